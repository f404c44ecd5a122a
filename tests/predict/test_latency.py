import math
from dataclasses import replace

import numpy as np
import pytest

from nvmesim.engine.contract import HIST_BINS, bin_index
from nvmesim.measure.latency import CLAT, Samples, distribution, enough, samples, tail_warnings
from nvmesim.measure.steady import Snapshot, Window

BIN = 1 / 128
"""Width of a bin, relative: what a percentile may be off by."""


def window_of(values: np.ndarray, groups: int = 24, writes: bool = False) -> Window:
    """A window whose snapshots hold *values* (ps), in order."""
    snapshots = []
    for part in np.array_split(values, groups):
        histogram = np.zeros((2, 2, HIST_BINS), np.int64)
        for value in part.tolist():
            histogram[int(writes), :, bin_index(value)] += 1
        most = np.full((2, 2), part.max(), np.int64)
        snapshots.append(
            Snapshot(
                *(1, 1e6, most, histogram, np.zeros(1, np.int64), np.zeros(0), np.zeros((1, 4))),
                np.zeros(HIST_BINS, np.int64),
            )
        )
    records = np.ones((groups, 10))
    return Window(0.0, records, tuple(snapshots))


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, Samples]:
    rng = np.random.default_rng(7)
    values = np.maximum(1, rng.lognormal(18, 1, 30_000)).astype(np.int64)
    data = samples(window_of(values), None)
    assert data is not None
    return values, data


@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantiles_are_those_of_the_samples(drawn: tuple[np.ndarray, Samples], p: float) -> None:
    values, data = drawn
    assert data.quantile(p) == pytest.approx(np.quantile(values, p), rel=1.5 * BIN)
    assert data.quantile(p) <= values.max()


def test_small_values_are_exact() -> None:
    data = samples(window_of(np.full(1000, 77)), None)
    assert data.quantile(0.5) == 77
    assert data.interval(0.5) == (77, 77)


def test_shares_below_add_up(drawn: tuple[np.ndarray, Samples]) -> None:
    values, data = drawn
    assert data.below(data.quantile(0.9)).sum() == pytest.approx(0.9 * len(values), abs=1)


def test_an_interval_of_independent_samples_is_binomial(drawn: tuple[np.ndarray, Samples]) -> None:
    """1.96 sqrt(p (1 - p) / n), within what 24 to 6 groups scatter."""
    values, data = drawn
    expected = 1.96 * np.sqrt(0.9 * 0.1 / len(values))
    assert 0.7 * expected < data.half_share(0.9) < 2 * expected


def test_too_few_samples_beyond_give_no_percentile() -> None:
    assert enough(100_000, 99.9)
    assert not enough(99_000, 99.9)
    values = np.random.default_rng(1).permutation(np.arange(1000, 10_999))
    found = distribution(window_of(values), None)
    assert found.percentiles[90.0] is not None
    assert found.percentiles[99.0] is None
    assert "p99" not in found.intervals
    (said,) = tail_warnings(found)
    assert said.code == "few-samples"
    assert "p99 of 9,999 requests is not shown: 100 must lie beyond" in said
    assert "10,000 requests are needed" in said
    enough_of_it = distribution(window_of(np.arange(1000, 31_000)), None)
    assert enough_of_it is not None
    assert not [w for w in tail_warnings(enough_of_it) if w.code == "few-samples"]


def test_samples_of_one_episode_are_not_many() -> None:
    values = np.full(24_000, 1000)
    values[5000:5400] = np.arange(400) + 2000  # all that lies beyond p99 in one stretch
    found = distribution(window_of(values), None)
    assert found.percentiles[99.0] is None


def test_an_unstable_load_has_no_latency() -> None:
    found = distribution(window_of(np.arange(1000, 31_000)), None, stable=False)
    assert np.isnan(found.mean)
    assert set(found.percentiles.values()) == {None}
    assert not found.intervals


def test_no_samples_no_distribution() -> None:
    assert distribution(window_of(np.arange(1, 1001)), 1) is None
    assert distribution(window_of(np.arange(1, 1001), writes=True), 1, CLAT) is not None


def test_a_steep_quantile_whose_share_moves_is_bounded_by_its_groups():
    """The slow mode holds 2 % or 80 % of a group: its place is known, its share is not."""
    groups = np.zeros((24, 3), np.int64)
    for i, share in enumerate(np.repeat([0.02, 0.8, 0.02, 0.02, 0.8, 0.02], 4)):
        slow = int(share * 200_000)
        groups[i] = [200_000 - slow, slow // 2, slow - slow // 2]
    low = np.array([100.0, 5000.0, 5010.0])
    data = Samples(groups, low, np.full(3, 10.0), low + 5, 5020.0)
    assert 0.99 + data.half_share(0.99) > 1
    low_ps, high_ps = data.interval(0.99)
    assert 5000 < low_ps < data.quantile(0.99) < high_ps < 5040
    few = Samples(groups // 400, low, np.full(3, 10.0), low + 5, 5020.0)
    assert few.quantile(0.99) < few.interval(0.99)[1] < 5020
    alone = np.array([[1000, 0, 0]] * 23 + [[700, 150, 150]])
    assert replace(few, groups=alone).interval(0.99)[1] == math.inf
