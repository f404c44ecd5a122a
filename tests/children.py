"""Processes that tests start, and waiting for what they do."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def child(command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A process that does not outlive the block: a test that fails would wait for it for ever."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def until(has_happened: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what others do; what did not happen in time is the caller's to find."""
    end = time.monotonic() + seconds
    while not has_happened() and time.monotonic() < end:
        time.sleep(0.002)


def heed_ctrl_c() -> None:
    """For ``preexec_fn``: a shell's job in the background has SIGINT ignored, its children too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def unmeasured() -> dict[str, str]:
    """The environment, for a child that cannot write all it wants: it writes nothing of its own.

    Neither what ``make coverage`` asks of it, nor bytecode: Python does not notice when a limit on
    the size of files cuts that short, and every later process would fail to import it.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}
