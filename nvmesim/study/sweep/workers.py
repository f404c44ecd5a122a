"""Who answers a sweep's jobs: processes on this machine, or the workers of a Dask cluster.

A worker reads jobs and writes answers as lines: no ``if __name__ == "__main__"`` is needed, and
nothing is pickled.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, Final

from nvmesim.errors import InfrastructureError, InputError, NvmesimError
from nvmesim.study.sweep.point import PointAnswer, SweepJob, about, answer
from nvmesim.version import install_command

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
    """Answer the jobs on standard input; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in open(0, encoding="utf-8", closefd=False):  # noqa: SIM115
        answers.write(answer_text(line) + "\n")
        answers.flush()


def started(*arguments: str, stderr: IO[bytes] | None = None) -> subprocess.Popen[str]:
    """Start this Python with *arguments*: a process of one thread that is written to and read."""
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=stderr, env=environment, encoding="utf-8", start_new_session=os.name == "posix",
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> None:
    """End *process* now; what was still to be written is not wanted any more."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


class Worker:
    """One process; ask it one thing at a time."""

    def __init__(self) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = started("-c", _SERVE, stderr=self._stderr)

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
        end(self.process)
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
        return PointAnswer(job.number, row, died=True)

    def _idle_worker(self) -> Worker:
        with self._lock:
            if self._is_stopped:
                raise NvmesimError("the workers were stopped")
            if self._idle:
                return self._idle.popleft()
            worker = Worker()
            self._workers.add(worker)
            return worker


# -- on a Dask cluster, through its public client (optional extra `distributed`) ------------------
#
# Whoever reaches a scheduler can run code on its workers and on whoever asks it: Dask unpickles
# what it is sent. So `docs/sweeps.md` starts it on loopback, and asks for TLS where it must be
# reached.

AHEAD: Final = 4
"""Jobs in flight per thread of the cluster: enough to keep it busy, few enough to stop soon."""
LEAST_AHEAD: Final = 64
TIMEOUT: Final = "20s"
WORKERS_TIMEOUT: Final = "60s"
"""For the first worker: starting one on a busy machine takes a while."""
LOOK_EVERY_S: Final = 2.0
"""Without any answer for so long it is asked whether the cluster is still there."""
GONE_S: Final = 20.0
"""A scheduler that is not to be reached, or has no worker, for so long is gone."""


def answers_of_cluster(address: str, jobs: Iterable[SweepJob]) -> Iterator[PointAnswer]:
    """Yield the answers to *jobs* as the workers of the scheduler at *address* finish them.

    InfrastructureError if there is no scheduler or no worker (any more).
    """
    with _quiet(), _client(address) as client:
        _check_versions(client, address)
        threads = sum(client.nthreads().values())
        todo = iter(jobs)
        running: dict[Any, int] = {}
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def submit(count: int) -> None:
            for job in islice(todo, count):
                future = client.submit(answer_text, job.to_text(), pure=False, retries=1)
                running[future] = job.number
                future.add_done_callback(done.put)

        submit(max(LEAST_AHEAD, AHEAD * threads))
        while running:
            future = _next(done, client, address)
            if future.status == "cancelled":
                raise _gone(address, "has lost its work")
            number, error = running.pop(future), future.exception()
            if error is None:
                yield PointAnswer.from_text(future.result())
            else:
                row = {"error": f"the cluster gave this point up: {_line(error)}"}
                yield PointAnswer(number, row, died=True)
            submit(1)


def _next(done: queue.SimpleQueue[Any], client: Any, address: str) -> Any:
    """The next future that is done; InfrastructureError once the cluster is gone."""
    missed: float | None = None
    while True:
        try:
            return done.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            trouble = _trouble(client)
        now = time.monotonic()
        missed = None if not trouble else now if missed is None else missed
        if missed is not None and now - missed >= GONE_S:
            raise _gone(address, trouble)


def _trouble(client: Any) -> str:
    """Fault of the cluster; none if its scheduler answers and has workers."""
    try:
        if client.status == "running":
            workers = client.sync(client.scheduler.identity)["workers"]
            return "" if workers else "has no workers any more"
    except (OSError, TimeoutError, KeyError, RuntimeError):
        pass
    return "does not answer any more"


def _gone(address: str, how: str) -> InfrastructureError:
    return InfrastructureError(
        f"the Dask scheduler at {address} {how}; the finished points are kept; --resume continues "
        "with the rest"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own words about lost connections out of the one line that says so."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _client(address: str) -> Any:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError(
            f"a Dask cluster needs the package distributed: {install_command('dask')}"
        ) from None
    try:
        return distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
    except ValueError as error:  # no address
        raise InputError(f"--dask {address!r} is not an address: {_line(error)}") from None
    except (OSError, TimeoutError) as error:
        raise InfrastructureError(
            f"no Dask scheduler answers at {address!r}: {_line(error)}"
        ) from None


def _check_versions(client: Any, address: str) -> None:
    """Raise unless there are workers, all with this version of program and catalog."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_TIMEOUT)
    except TimeoutError:
        raise InfrastructureError(f"the Dask scheduler at {address} has no workers") from None
    here = about()
    for worker, found in sorted(client.run(about, on_error="return").items()):
        if found == here:
            continue
        raise InputError(
            f"the Dask worker {worker} has {_version(found)}; here is {_version(here)}: install "
            "the same version on every machine"
        )


def _version(found: Any) -> str:
    """Answer of `about`, or why a worker could not give it."""
    if isinstance(found, ModuleNotFoundError):
        return f"no {found.name}"
    if not isinstance(found, tuple):
        return "another version of nvmesim"
    version, catalog = found
    return f"nvmesim {version} with catalog {catalog[:8]}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
