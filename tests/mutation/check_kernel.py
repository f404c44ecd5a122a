"""What a change of the kernel must not survive: equality with SimPy and the laws, JIT off, quickly.

What SimPy gives is worked out once, when this is imported: a trial runs only the kernel. Its clock
ticks in the networks' few ps, so that the wheel has one slot or thousands of them. Not collected by
name: `tests.mutation` runs it.
"""

import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from numba import config

from nvmesim.array_types import Ints
from nvmesim.engine.compiled import engine as compiled
from nvmesim.engine.compiled import kernel, kernel_events, kernel_requests, kernel_stations
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.compiled.kernel_state import N_FREE
from nvmesim.engine.contract import Status
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import DeadlockError
from nvmesim.network.network import Network
from tests.engines.strategies import PLACES, random_network
from tests.engines.test_chains import tandem
from tests.engines.test_equality import UNTIL_PS, Outcome, equal, run
from tests.engines.test_laws import test_stations as stations_of

for module in (kernel, kernel_events, kernel_requests, kernel_stations):
    if config.DISABLE_JIT:
        module.uint64 = np.uint64  # as Numba's, ten times as fast

RANDOM, TANDEM = 240, 20
HANGS_S = 15  # CPU seconds of ten networks, which take one or two
EVERYTHING = 1 << 40


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, HANGS_S)  # the signal ends the process
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


@cache
def network(number: int) -> Network:
    """Any kind of station has the number 0 in some."""
    return random_network(number, number % len(PLACES), 3) if number < RANDOM else tandem(number)


@cache
def expected(number: int) -> Outcome:
    return run(ReferenceEngine(network(number), seed=number, record=True))


@cache
def expected_rows(number: int) -> Ints:
    engine = ReferenceEngine(network(number), seed=number, record=True)
    with suppress(DeadlockError):
        engine.advance(EVERYTHING, UNTIL_PS)
    return by_request(engine.records())


def by_request(rows: Ints) -> Ints:
    return rows[np.argsort(rows[:, 0])]


IN_PARTS = range(0, 60, 3)
for known in range(RANDOM + TANDEM):
    expected(known)
for known in IN_PARTS:
    expected_rows(known)


def crowded(number: int) -> CompiledEngine:
    """The compiled engine with hardly any room, so that it must grow soon."""
    net = network(number)
    engine = CompiledEngine(net, seed=number, record=True)
    slots = max(len(net.user_group), net.max_burst) + 1
    engine._room = compiled._room(net, slots)
    engine._run.scalars[N_FREE] = slots
    engine._start_users()
    return engine


@pytest.mark.parametrize("block", range((RANDOM + TANDEM) // 10))
def test_engines_agree(block, monkeypatch):
    for number in range(10 * block, 10 * block + 10):
        monkeypatch.setattr(compiled, "FIRST_SHIFT", (0, 1, 18)[number % 7 % 3])
        if number % 3:
            engine = CompiledEngine(network(number), seed=number, record=True)
        else:
            engine = crowded(number)
        equal(run(engine), expected(number))


def test_records_agree_that_do_not_fit():
    full = 0
    for number in IN_PARTS:
        engine = crowded(number)
        engine._run = engine._run._replace(record=np.zeros((1, 7), np.int64))
        rows, status = [], Status.RECORD_FULL
        with suppress(DeadlockError):
            while status == Status.RECORD_FULL:
                status = engine.advance(EVERYTHING, UNTIL_PS).status
                full += status == Status.RECORD_FULL
                rows.append(engine.records())
        rows.append(engine.records())
        np.testing.assert_array_equal(by_request(np.concatenate(rows)), expected_rows(number))
    assert full > 10


def test_laws_hold():
    for seed in range(1000, 1006):
        stations_of(seed)
