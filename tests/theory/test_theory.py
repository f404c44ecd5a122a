"""Simulated against exact, within what the standard error allows; see `cases`."""

import numpy as np
import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.network.network import HORIZON_PS
from tests.engines import builder as b
from tests.engines.strategies import numpy_roll
from tests.theory.cases import Case, all_cases, outcome, table_row
from tests.theory.formulas import (
    bulk_wait,
    mm1_sojourn,
    mva_throughput,
    mva_two_classes,
    repairman_throughput,
)

CASES = all_cases()
TEETH = 0.15  # no allowed error is so wide that it proves nothing (relative to the exact value)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_simulated_is_exact(case: Case) -> None:
    result = outcome(case, len(CASES))
    print(table_row(result))  # make theory shows it
    assert result.is_good, (result.simulated, case.exact, result.allowed)
    assert result.allowed < TEETH * case.exact


@pytest.mark.parametrize("seed", range(60))
def test_asymptotic_bounds_are_never_violated(seed: int) -> None:
    """Fixed services, started empty: completions x demand fit the servers, and N cycles fit."""
    roll = numpy_roll(seed)
    net = b.NetworkBuilder()
    rows, demand, servers = [], [], []
    for _ in range(roll(1, 5)):
        servers.append(roll(1, 4))
        demand.append(roll(1, 50))
        rows.append(b.visit(net.fifo(servers[-1]), demand[-1]))
    users, think = roll(1, 40), roll(0, 60)
    net.closed(net.program(*rows), users, think)
    engine = CompiledEngine(net.build(), seed=seed)
    for horizon in (100, 1000, 10_000):
        engine = CompiledEngine(net.build(), seed=seed)
        done = engine.advance(1 << 40, horizon).completions
        assert all(done * d <= c * horizon for d, c in zip(demand, servers, strict=True))
        assert done <= users * (horizon // sum(demand))
        # and it does no worse than if every request met all others at every station
        longest = think + users * sum(demand)
        assert done >= users * (horizon // longest)


def test_formulas_agree_where_they_overlap() -> None:
    np.testing.assert_allclose(mva_throughput(7, [1.0], 10), repairman_throughput(7, 10, 1))
    both = mva_two_classes((3, 4), np.array([[1.0, 0.5], [1.0, 0.5]]), (2.0, 2.0))
    np.testing.assert_allclose(sum(both), mva_throughput(7, [1.0, 0.5], 2.0))
    np.testing.assert_allclose(bulk_wait(0.6, 1, 1), mm1_sojourn(0.6, 1) - 1)  # one at once: M/M/1
    np.testing.assert_allclose(bulk_wait(0.6, 1, 400), bulk_wait(0.6, 1))


def test_the_saturated_server_never_idles() -> None:
    """Utilization law: throughput x service = 1 at the bottleneck, to the last picosecond."""
    net = b.NetworkBuilder()
    station = net.fifo()
    net.closed(net.program(b.visit(station, 7)), 5)
    batch = CompiledEngine(net.build()).advance(1000, HORIZON_PS)
    assert batch.end_ps == 7 * batch.completions
