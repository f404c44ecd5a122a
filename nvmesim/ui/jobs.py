"""Work in the background: what it has found so far, how far it is, and a way to stop it."""

from __future__ import annotations

import secrets
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

from nvmesim.errors import NvmesimError
from nvmesim.show.words import one_line

State = Literal["running", "done", "failed", "cancelled"]
KEPT: Final = 40
"""Jobs whose answers stay; the oldest finished ones go."""
AT_ONCE: Final = 4


class Cancelled(KeyboardInterrupt):
    """The page wants this no more; a simulation ends as if Ctrl-C had been pressed."""


class PageJob:
    """One piece of work. What the page sees of it is `to_json`."""

    def __init__(self) -> None:
        self.id = secrets.token_urlsafe(9)
        self.state: State = "running"
        self.data: dict[str, Any] = {}
        self.result: Any = None
        """Material of files that are made on request; not sent."""
        self._html, self._version = "", 0
        self._what, self._share, self._error = "waiting", 0.0, ""
        self._stop, self._lock = threading.Event(), threading.Lock()

    def publish(self, html: str, **data: Any) -> None:
        """Let the page show *html*, and know *data*."""
        with self._lock:
            self._html = html
            self._version += 1
            self.data |= data

    def progress(self, what: str, share: float) -> None:
        """Say what is being done and how far it is; raises Cancelled once the page has stopped."""
        if self._stop.is_set():
            raise Cancelled
        self._what, self._share = one_line(what), share

    def tell(self, what: str) -> None:
        """Say what is being done, of work that does not know how far it is."""
        self.progress(what, self._share)

    def cancel(self) -> None:
        """Stop at the next `progress`."""
        self._stop.set()

    @property
    def is_cancelled(self) -> bool:
        """True if the page wants it no more."""
        return self._stop.is_set()

    def run(self, work: Callable[[PageJob], None]) -> None:
        """Do *work*; whatever goes wrong is one sentence for the page."""
        try:
            if not self.is_cancelled:
                work(self)
            self._end("cancelled" if self.is_cancelled else "done")
        except KeyboardInterrupt:
            self._end("cancelled")
        except NvmesimError as error:
            self._end("failed", str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._end("failed", f"nvmesim failed at this ({type(error).__name__}); its terminal "
                      "says more")  # fmt: skip

    def _end(self, state: State, error: str = "") -> None:
        with self._lock:
            self.state, self._error = state, one_line(error)

    def to_json(self, seen: int = 0) -> dict[str, Any]:
        """Return what the page asks for; the HTML only if it is newer than version *seen*."""
        with self._lock:
            return {
                "id": self.id,
                "state": self.state,
                "version": self._version,
                "html": self._html if self._version > seen else None,
                "what": self._what,
                "share": round(self._share, 3),
                "error": self._error,
                "data": self.data,
            }


class Jobs:
    """The jobs of one app."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="nvmesim-ui")
        self._jobs: dict[str, PageJob] = {}
        self._lock = threading.Lock()

    def start(self, work: Callable[[PageJob], None]) -> PageJob:
        """Start *work* in the background."""
        job = PageJob()
        with self._lock:
            self._jobs[job.id] = job
            finished = [j.id for j in self._jobs.values() if j.state != "running"]
            for old in finished[: max(0, len(self._jobs) - KEPT)]:
                del self._jobs[old]
        self._pool.submit(job.run, work)
        return job

    def get(self, name: str) -> PageJob | None:
        """Return the job *name*, None if it is unknown or was long ago."""
        return self._jobs.get(name)

    def cancel_all(self) -> None:
        """Let each job stop at its next `progress`."""
        for job in list(self._jobs.values()):
            job.cancel()

    def close(self) -> None:
        """Stop everything."""
        self.cancel_all()
        self._pool.shutdown(wait=False, cancel_futures=True)
