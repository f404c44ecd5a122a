"""Both engines give the same completion times and statistics, to the last picosecond."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from nvmesim.array_types import Ints
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Batch
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import DeadlockError
from nvmesim.network.network import Network
from tests.engines.strategies import PLACES, networks, random_network

UNTIL_PS = 1500
BATCHES = (3, 25, 60)  # completions of the batches that are compared one by one
FIELDS = ("status", "start_ps", "end_ps", "outstanding")
ARRAYS = (
    "count", "latency_sum_ps", "latency_max_ps", "histogram", "flows", "alternatives",
    "stations", "syncs", "classes",
)  # fmt: skip


Outcome = tuple[list[Batch], Ints, str]


def run(engine: CompiledEngine | ReferenceEngine) -> Outcome:
    """Batches, records in the order that both engines keep, and the deadlock if it came to one."""
    batches, error = [], ""
    try:
        batches = [engine.advance(n, UNTIL_PS) for n in BATCHES]
    except DeadlockError as deadlock:
        error = str(deadlock)
    return batches, engine.records(), error


def assert_equal(net: Network, seed: int = 1) -> Outcome:
    """Assert that the engines agree on *net*; return what they agree on."""
    expected = run(ReferenceEngine(net, seed=seed, record=True))
    found = run(CompiledEngine(net, seed=seed, record=True))
    equal(found, expected)
    return found


def equal(found: Outcome, expected: Outcome) -> None:
    """Assert that what two engines gave is the same."""
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[2] == expected[2]
    for ours, theirs in zip(found[0], expected[0], strict=True):
        for name in FIELDS:
            assert getattr(ours, name) == getattr(theirs, name), name
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)


def compare_seeds(seeds: range, first: int = 0) -> tuple[int, int, int]:
    """Compare a network a seed; return requests, deadlocks and tied completions."""
    requests = deadlocks = ties = 0
    for seed in seeds:
        try:
            _, records, error = assert_equal(random_network(seed, first, most_kinds=3), seed)
        except AssertionError as difference:
            raise AssertionError(f"random_network({seed}, {first}): {difference}") from None
        requests += len(records)
        deadlocks += bool(error)
        ties += len(records) - len(np.unique(records[:, 6]))
    return requests, deadlocks, ties


def test_random_networks() -> None:
    requests, deadlocks, ties = compare_seeds(range(120))
    # the comparison means little unless requests complete, tie, and some networks lock
    assert requests > 6_000
    assert deadlocks > 2
    assert ties > requests / 20


@pytest.mark.parametrize("first", range(1, len(PLACES)))
def test_whatever_has_the_number_0(first: int) -> None:
    compare_seeds(range(30), first)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_twenty_thousand_random_networks(block: int) -> None:
    compare_seeds(range(1000 * (block + 1), 1000 * (block + 2)))


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(networks())
def test_hypothesis_networks(net: Network) -> None:
    assert_equal(net)


def assert_complete_alike(net, requests, seed=3):
    """Both engines complete the same requests at the same times; also for other rooms."""
    rows = []
    for engine in (CompiledEngine, ReferenceEngine):
        run = engine(net, seed=seed, record=True)
        run.advance(requests)
        rows.append(run.records())
    np.testing.assert_array_equal(*rows)
