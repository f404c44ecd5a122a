"""Work in the background, each piece in a process that can be killed; what it has found so far."""

import contextlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final, Literal

from nvmesim.files import locked
from nvmesim.study.sweep.workers import end, started

State = Literal["running", "done", "failed", "cancelled"]
KEPT: Final = 40
"""Jobs whose answers stay; the oldest finished ones go."""
AT_ONCE: Final = 3
IDLE: Final = 2
"""Processes that stay at hand, with the engine loaded."""
FIRST_S: Final = 60.0
"""A design whose first figures take longer is given up; a busy machine takes a third of it."""
GRACE_S: Final = 1.0
"""Time that cancelled work has to end on its own; its process is killed then."""
LARGEST: Final = 300 << 20
"""Bytes of a process that is used again."""
PREFIX: Final = "nvmesim-ui-"
LOCK: Final = "lock"
"""Held open, and locked, by the app that a temporary folder belongs to."""
TOO_LONG: Final = (
    f"this design is too large for the page: no first figures within {FIRST_S:.0f} s; fewer "
    "drives, threads or outstanding requests, or nvmesim run, which has no such limit"
)
DIED: Final = (
    "the process that simulated this has ended, most likely for want of memory; fewer drives, "
    "threads or outstanding requests"
)


class PageJob:
    """One piece of work. What the page sees of it is `to_json`."""

    def __init__(self, what: str, asked: Mapping[str, Any], folder: Path) -> None:
        self.id = secrets.token_hex(8)
        self.what, self.asked = what, asked
        self.report = folder / f"report-{self.id}.html"
        """Written by the work when it ends, if it is of a kind that has a report."""
        self.state: State = "running"
        self.data: dict[str, Any] = {}
        self.version = 0
        self.worker: Worker | None = None
        self._html, self._step, self._share, self._error = "", "waiting", 0.0, ""
        self._stop, self._lock = threading.Event(), threading.Lock()

    @property
    def is_cancelled(self) -> bool:
        """True if the page wants it no more."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop soon; work that does not listen is killed."""
        self._stop.set()
        worker = self.worker
        if worker is not None:
            worker.cancel(self)

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take what the process says."""
        with self._lock:
            if "html" in message:
                self._html = message["html"]
                self.data |= message["data"]
                self.version += 1
            elif "step" in message:
                self._step, self._share = message["step"], message["share"]
            else:
                self.state, self._error = message["state"], message["error"]

    def to_json(self, seen: int = 0) -> dict[str, Any]:
        """Return what the page asks for; the HTML only if it is newer than version *seen*."""
        with self._lock:
            return {
                "id": self.id,
                "state": self.state,
                "version": self.version,
                "html": self._html if self.version > seen else None,
                "what": self._step,
                "share": round(self._share, 3),
                "error": self._error,
                "data": self.data,
            }


class Worker:
    """One process that does one job at a time."""

    def __init__(self) -> None:
        self._process = started("-m", "nvmesim.ui.work")
        self._lock = threading.Lock()
        self._size = 0
        self._killed_for = ""

    def do(self, job: PageJob) -> None:
        """Do *job* to its end, whatever that is."""
        job.worker = self
        timer = threading.Timer(FIRST_S, self._give_up, (job,))
        timer.daemon = True
        if job.what == "refine":
            timer.start()
        try:
            self._send({"do": job.what, "job": job.id, "asked": job.asked,
                        "report": str(job.report)})  # fmt: skip
            if job.is_cancelled:
                self.cancel(job)
            for line in self._process.stdout or ():
                message = json.loads(line)
                self._size = message.get("size", self._size)
                job.hear(message)
                if job.state != "running":
                    return
        except OSError:
            pass
        finally:
            timer.cancel()
            job.worker = None
            if job.state == "running":
                end(self._process)
                error = "" if job.is_cancelled else self._killed_for or DIED
                job.hear({"state": "failed" if error else "cancelled", "error": error})

    def cancel(self, job: PageJob) -> None:
        """Ask the process to stop *job*; kill it if it goes on."""
        with contextlib.suppress(OSError, ValueError):
            self._send({"do": "cancel", "job": job.id})
        timer = threading.Timer(GRACE_S, self._kill_at, (job,))
        timer.daemon = True
        timer.start()

    def _kill_at(self, job: PageJob) -> None:
        if job.worker is self:
            self._process.kill()

    def _give_up(self, job: PageJob) -> None:
        if not job.version:
            self._killed_for = TOO_LONG
            self._kill_at(job)

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            if self._process.stdin is not None:
                self._process.stdin.write(json.dumps(message) + "\n")
                self._process.stdin.flush()

    @property
    def is_usable(self) -> bool:
        """True if another job may be done in it: it lives, and has not grown large."""
        return self._process.poll() is None and self._size < LARGEST

    def end(self) -> None:
        """End the process now."""
        end(self._process)


class Jobs:
    """The jobs of one app."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="nvmesim-ui")
        self._jobs: dict[str, PageJob] = {}
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._busy = 0
        self._warming: PageJob | None = None

    def start(
        self, what: str, asked: Mapping[str, Any], done: Callable[[PageJob], None] | None = None
    ) -> PageJob:
        """Start the work *what* of `nvmesim.ui.work`; *done* is called if it succeeds."""
        job = PageJob(what, asked, self._folder)
        with self._lock:
            self._jobs[job.id] = job
            finished = [j for j in self._jobs.values() if j.state != "running"]
            for old in finished[: max(0, len(self._jobs) - KEPT)]:
                del self._jobs[old.id]
                old.report.unlink(missing_ok=True)
        self._pool.submit(self._run, job, done)
        return job

    def warm(self) -> None:
        """Have `IDLE` processes that have loaded the engine, those at work among them."""
        for _ in range(IDLE):
            with self._changed:
                if self._warming is not None or len(self._idle) + self._busy >= IDLE:
                    return
                self._warming = PageJob("warm", {}, self._folder)
            worker = Worker()
            if not self._closed:  # `close` sees the job, or is seen here
                worker.do(self._warming)
            self._give(worker, was_at_work=False)

    def get(self, name: str) -> PageJob | None:
        """Return the job *name*, None if it is unknown or was long ago."""
        return self._jobs.get(name)

    def cancel(self, name: Any) -> bool:
        """Stop the job *name*; False if there is none."""
        job = self._jobs.get(name) if isinstance(name, str) else None
        if job is not None:
            job.cancel()
        return job is not None

    def cancel_all(self) -> None:
        """Stop all jobs."""
        for job in list(self._jobs.values()):
            job.cancel()

    def close(self) -> None:
        """Stop everything, and end the processes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            warming = self._warming
        if warming is not None:
            warming.cancel()
        self.cancel_all()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._idle:
            worker.end()

    def _run(self, job: PageJob, done: Callable[[PageJob], None] | None) -> None:
        if job.is_cancelled:
            job.hear({"state": "cancelled", "error": ""})
            return
        worker = self._take()
        try:
            worker.do(job)
            if job.state == "done" and done is not None:
                done(job)
        finally:
            self._give(worker)
        if job.state != "done":
            self.warm()  # one that was killed is replaced before it is missed

    def _take(self) -> Worker:
        """A process that has loaded the engine, or will have sooner than a new one."""
        with self._changed:
            while not self._idle and self._warming is not None and not self._closed:
                self._changed.wait()
            self._busy += 1
            if self._idle:
                return self._idle.pop()
        return Worker()

    def _give(self, worker: Worker, *, was_at_work: bool = True) -> None:
        with self._changed:
            if was_at_work:
                self._busy -= 1
            else:
                self._warming = None
            self._changed.notify_all()
            if worker.is_usable and len(self._idle) < IDLE and not self._closed:
                self._idle.append(worker)
                return
        worker.end()


# The temporary folder; what a killed app left is removed by the next one. ---------------------


class Scratch:
    """A folder of this app alone."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: IO[bytes] = open(self.path / LOCK, "wb")  # noqa: SIM115 - until `remove`
        locked(self._lock)

    def remove(self) -> None:
        """Delete the folder."""
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the folders of this user in *place* whose app has ended without doing so."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
            if stat.S_ISDIR(found.st_mode) and own:
                with (folder / LOCK).open("r+b") as file:  # an app that is just starting has none
                    is_left = locked(file)
                if os.name == "nt":  # no locks, but it refuses this while the app is there
                    (folder / LOCK).unlink()
                    is_left = True
                if is_left:
                    shutil.rmtree(folder, ignore_errors=True)
