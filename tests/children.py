"""Processes that tests start."""

import os
import signal


def heed_ctrl_c() -> None:
    """For ``preexec_fn``: a shell's job in the background has SIGINT ignored, its children too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def unmeasured() -> dict[str, str]:
    """The environment, for a child that could not write what ``make coverage`` asks of it."""
    return {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
