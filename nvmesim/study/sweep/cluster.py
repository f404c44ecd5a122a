"""The same jobs on a Dask cluster (optional extra ``distributed``), through its public client.

Whoever reaches a scheduler can run code on its workers and on whoever asks it: Dask unpickles what
it is sent. So `docs/sweeps.md` starts it on loopback, and asks for TLS where it must be reached.
"""

from __future__ import annotations

import importlib
import logging
import queue
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from nvmesim.errors import InfrastructureError, InputError
from nvmesim.study.sweep.cache import about
from nvmesim.study.sweep.point import PointAnswer, SweepJob
from nvmesim.study.sweep.workers import answer_text
from nvmesim.version import install_command

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

    A job whose worker dies is given to another one by the scheduler; after several deaths its
    answer is an error. InfrastructureError if there is no scheduler or no worker (any more).
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
                yield PointAnswer(number, row, 0.0, died=True)
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
