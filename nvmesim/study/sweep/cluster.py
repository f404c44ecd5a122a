"""The same jobs on a Dask cluster (optional extra ``distributed``), through its public client."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from nvmesim.errors import InputError
from nvmesim.study.sweep.content import fingerprint
from nvmesim.study.sweep.point import Answer, Job
from nvmesim.study.sweep.worker import answer_text

AHEAD: Final = 4
"""Jobs in flight per thread of the cluster: enough to keep it busy, few enough to stop soon."""
LEAST_AHEAD: Final = 64
TIMEOUT: Final = "20s"
WORKERS_TIMEOUT: Final = "60s"
"""For the first worker: starting one on a busy machine takes a while."""


def answers_of_cluster(address: str, jobs: Iterable[Job]) -> Iterator[Answer]:
    """Yield the answers to *jobs* as the workers of the scheduler at *address* finish them.

    A job whose worker dies is given to another one by the scheduler; after several deaths its
    answer is an error.
    """
    distributed = _distributed()
    with _client(distributed, address) as client:
        _check_versions(client, address)
        threads = sum(client.nthreads().values())
        todo = iter(jobs)
        running: dict[Any, int] = {}

        def submit(count: int) -> list[Any]:
            found = []
            for job in islice(todo, count):
                future = client.submit(answer_text, job.to_text(), pure=False, retries=1)
                running[future] = job.number
                found.append(future)
            return found

        first = submit(max(LEAST_AHEAD, AHEAD * threads))
        waiting = distributed.as_completed(first, loop=client.loop)
        for future in waiting:
            yield _answer(future, running.pop(future))
            for more in submit(1):
                waiting.add(more)


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise InputError(
            "a Dask cluster needs the package distributed: pip install 'nvmesim[dask]'"
        ) from None


def _client(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"no Dask scheduler answers at {address!r}: {text}") from None


def _check_versions(client: Any, address: str) -> None:
    """Raise InputError unless there are workers, all with this version of program and catalog."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_TIMEOUT)
    except TimeoutError:
        raise InputError(f"the Dask scheduler at {address} has no workers") from None
    here = fingerprint()
    others = [worker for worker, found in client.run(fingerprint).items() if found != here]
    if others:
        raise InputError(f"the Dask worker {others[0]} has another version of nvmesim or catalog")


def _answer(future: Any, number: int) -> Answer:
    error = future.exception()
    if error is None:
        return Answer.from_text(future.result())
    text = " ".join(str(error).split())
    return Answer(number, {"error": f"the cluster gave this point up: {text}"}, 0.0, died=True)
