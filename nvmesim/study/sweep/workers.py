"""Worker processes on this machine: jobs out, answers in as they finish, deaths survived.

A worker reads one job a line on its standard input and writes one answer a line, so that a script
or notebook that sweeps needs no ``if __name__ == "__main__"``, and nothing is pickled. A process
pool of the standard library needs that guard, and ends whole when one process of it dies.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import IO, Any, Final

from nvmesim.errors import NvmesimError
from nvmesim.study.sweep.point import PointAnswer, SweepJob, answer

DEATHS: Final = 2
"""Workers that one point may kill before it is given up."""
ONE_THREAD: Final = (
    "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
_SERVE: Final = "from nvmesim.study.sweep.workers import serve; serve()"


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def answer_text(text: str) -> str:
    """Return the answer to a job, both as one line of JSON."""
    return answer(SweepJob.from_text(text)).to_text()


def serve() -> None:
    """Answer the jobs on standard input, in a process of its own.

    Standard output is for the answers alone: what libraries print goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in open(0, encoding="utf-8", closefd=False):  # noqa: SIM115
        answers.write(answer_text(line) + "\n")
        answers.flush()


class Worker:
    """One process; ask it one thing at a time."""

    def __init__(self) -> None:
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        session: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            env=environment, encoding="utf-8", **session,
        )  # fmt: skip

    def ask(self, job: SweepJob) -> PointAnswer | None:
        """Return the answer to *job*, None if the process died of it."""
        to, back = self.process.stdin, self.process.stdout
        assert to is not None
        assert back is not None
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
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
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
        self._stderr.close()


class WorkerPool:
    """So many workers, each asked by a thread; leaving the block ends them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads = ThreadPoolExecutor(count)
        self._workers: set[Worker] = set()
        self._idle: deque[Worker] = deque()
        self._lock = threading.Lock()
        self._is_stopped = self._has_answered = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_stopped = True
            for worker in self._workers:
                worker.process.kill()  # whoever waits for its answer goes on
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def answers(self, jobs: Iterable[SweepJob]) -> Iterator[PointAnswer]:
        """Yield the answers to *jobs* as they finish, in any order; few are taken ahead."""
        todo = iter(jobs)
        running: set[Future[PointAnswer]] = set()
        while True:
            ahead = islice(todo, 2 * self._count - len(running))
            running |= {self._threads.submit(self._answer, job) for job in ahead}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()

    def _answer(self, job: SweepJob) -> PointAnswer:
        """Ask a worker that is idle, or a new one; another one if it dies."""
        text = ""
        for _ in range(DEATHS):
            worker = self._idle_worker()
            found = worker.ask(job)
            if found is not None:
                self._has_answered = True
                self._idle.append(worker)
                return found
            text = worker.last_words()
            with self._lock:
                self._workers.discard(worker)
            worker.stop()
        if not self._has_answered:
            raise NvmesimError(f"no worker process answers ({text})")
        row = {"error": f"the worker died {DEATHS} times at this point ({text})"}
        return PointAnswer(job.number, row, 0.0, died=True)

    def _idle_worker(self) -> Worker:
        with self._lock:
            if self._is_stopped:
                raise NvmesimError("the workers were stopped")
            if self._idle:
                return self._idle.popleft()
            worker = Worker()
            self._workers.add(worker)
            return worker
