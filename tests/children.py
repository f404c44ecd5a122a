"""Processes that tests start."""

import signal


def heed_ctrl_c() -> None:
    """For ``preexec_fn``: a shell's job in the background has SIGINT ignored, its children too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
