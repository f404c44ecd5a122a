"""A process of the app: one job a line on standard input, what it finds on standard output.

Lines are JSON. A job that takes all memory, or that the page wants no more, ends with its process
and not with the app.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import IO, Any, Final

from nvmesim import limits
from nvmesim.errors import NvmesimError
from nvmesim.show.words import one_line

MEMORY: Final = 2 << 30
"""Bytes of data that the process may hold; requests in flight may take half of them."""


class Cancelled(KeyboardInterrupt):
    """The page wants this no more; a simulation ends as if Ctrl-C had been pressed."""


class Job:
    """What the work of `nvmesim.ui.work` says while it runs."""

    def __init__(
        self, name: str, answers: IO[str], report: Path, cancelled: Container[str]
    ) -> None:  # fmt: skip
        self._name, self._answers, self._report, self._cancelled = name, answers, report, cancelled

    def publish(self, html: str, **data: Any) -> None:
        """Let the page show *html*, and know *data*."""
        self._say({"html": html, "data": data})

    def progress(self, what: str, share: float) -> None:
        """Say what is being done and how far it is; raises Cancelled once the page has stopped."""
        if self._name in self._cancelled:
            raise Cancelled
        self._say({"step": one_line(what), "share": share})

    def tell(self, what: str) -> None:
        """Say what is being done, of work that does not know how far it is."""
        self.progress(what, 0.0)

    def keep_report(self, page: str) -> None:
        """Keep the HTML file that the page offers for download."""
        self._report.write_text(page, encoding="utf-8")

    def run(self, work: Callable[..., None], asked: dict[str, Any]) -> None:
        """Do *work*; whatever goes wrong is one sentence for the page."""
        try:
            work(self, **asked)
            self._end("done")
        except KeyboardInterrupt:
            self._end("cancelled")
        except NvmesimError as error:
            self._end("failed", str(error).replace(f"{self._report.parent}{os.sep}", ""))
        except MemoryError:
            self._end("failed", f"this needs more than {MEMORY >> 30} GiB, the most that the page "
                      "gives one design; nvmesim run --max-memory gives more")  # fmt: skip
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._end("failed", f"nvmesim failed at this ({type(error).__name__}); its terminal "
                      "says more")  # fmt: skip

    def _end(self, state: str, error: str = "") -> None:
        self._say({"state": state, "error": one_line(error), "size": _size()})

    def _say(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def _size() -> int:
    """Bytes of this process in memory; 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _bound_memory() -> None:
    os.environ[limits.VARIABLE] = str(min(limits.memory(), MEMORY // 2))
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _serve(work: Mapping[str, Callable[..., None]], asked: IO[str], answers: IO[str]) -> None:
    """Do the jobs that are asked, one after the other; end with whoever asks."""
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    cancelled: set[str] = set()

    def listen() -> None:
        for line in asked:
            message = json.loads(line)
            if message["do"] == "cancel":
                cancelled.add(message["job"])
            else:
                waiting.put(message)
        os._exit(0)  # the app is gone; compiled code would not hear of it

    threading.Thread(target=listen, daemon=True).start()
    while True:
        message = waiting.get()
        job = Job(message["job"], answers, Path(message["report"]), cancelled)
        job.run(work[message["do"]], message["asked"])


def serve(work: Mapping[str, Callable[..., None]]) -> None:
    """Be such a process, for the *work* of each name.

    Standard output is for the answers alone: what libraries print goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _bound_memory()
    _serve(work, open(0, encoding="utf-8", closefd=False), answers)  # noqa: SIM115
