"""Worker processes on this machine: jobs out, answers in as they finish, deaths survived."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, Any, Final

from nvmesim.errors import NvmesimError
from nvmesim.study.sweep.point import PointAnswer, SweepJob, answer

DEATHS: Final = 2
"""Workers that one point may kill before it is given up."""
ONE_THREAD: Final = (
    "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def answers_here(jobs: Iterable[SweepJob]) -> Iterator[PointAnswer]:
    """Yield the answers to *jobs*, each simulated in this process."""
    for job in jobs:
        yield answer(job)


class Worker:
    """One process; ask it one thing at a time."""

    def __init__(self) -> None:
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        session: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "nvmesim.study.sweep.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env=environment, encoding="utf-8", **session,
        )  # fmt: skip

    def ask(self, job: SweepJob) -> PointAnswer | None:
        """Return the answer to *job*, None if the process died of it."""
        to, back = self.process.stdin, self.process.stdout
        if to is None or back is None:
            return None
        try:
            to.write(job.to_text() + "\n")
            to.flush()
            line = back.readline()
        except (OSError, ValueError):
            return None
        return PointAnswer.from_text(line) if line.endswith("\n") else None

    def last_words(self) -> str:
        """Return how the process ended, and the last line that it said."""
        code = self.process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}: {lines[-1].strip()}" if lines else how

    def stop(self) -> None:
        """End the process now."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # What was still to be written is not wanted any more.
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()
        self._said.close()


class WorkerPool:
    """So many workers; leaving the block ends them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: set[Worker] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._answered = 0
        self._out: queue.Queue[PointAnswer | Exception | None] = queue.Queue()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        with self._lock:
            self._stopped = True
            workers = list(self._workers)
        for worker in workers:
            worker.process.kill()

    def answers(self, jobs: Iterable[SweepJob]) -> Iterator[PointAnswer]:
        """Yield the answers to *jobs* as they finish, in any order."""
        todo = iter(jobs)
        threads = [
            threading.Thread(target=self._work, args=(todo,), daemon=True)
            for _ in range(self._count)
        ]
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            found = self._out.get()
            if found is None:
                left -= 1
            elif isinstance(found, Exception):
                raise found
            else:
                yield found

    def _next(self, todo: Iterator[SweepJob]) -> SweepJob | None:
        with self._lock:
            return None if self._stopped else next(todo, None)

    def _work(self, todo: Iterator[SweepJob]) -> None:
        """Feed one worker, and the ones that take its place."""
        worker: Worker | None = None
        try:
            while (job := self._next(todo)) is not None:
                worker = self._asked(worker, job)
        except Exception as error:  # goes to the thread that reads the answers
            self._out.put(error)
        finally:
            if worker is not None:
                self._end(worker)
            self._out.put(None)

    def _asked(self, worker: Worker | None, job: SweepJob) -> Worker | None:
        text = ""
        for _ in range(DEATHS):
            worker = worker or self._start()
            found = worker.ask(job)
            if found is not None:
                self._answered += 1
                self._out.put(found)
                return worker
            if self._stopped:
                return worker
            text = worker.last_words()
            self._end(worker)
            worker = None
        if not self._answered:
            raise NvmesimError(f"no worker process answers ({text})")
        row = {"error": f"the worker died {DEATHS} times at this point ({text})"}
        self._out.put(PointAnswer(job.number, row, 0.0, died=True))
        return None

    def _start(self) -> Worker:
        worker = Worker()
        with self._lock:
            self._workers.add(worker)
            stopped = self._stopped
        if stopped:
            worker.process.kill()
        return worker

    def _end(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.stop()
