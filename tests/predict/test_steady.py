import numpy as np
import pytest
from scipy.special import stdtrit

from nvmesim.engine.contract import HIST_BINS, Batch, Status
from nvmesim.measure.control import RunGoal
from nvmesim.measure.steady import (
    MAX_RECORDS,
    MAX_SNAPSHOTS,
    Col,
    Collector,
    half_width,
    mser,
    ratio_interval,
    relative_half,
    two_sided,
)
from tests.predict.networks import MEAN_PS, measure, network, plain_reducer


def batch(number: int, count: int = 10) -> Batch:
    """A made-up batch that completes *count* reads of *number* + 1 ps each."""
    histogram = np.zeros((2, 2, HIST_BINS), np.int64)
    histogram[0, :, number % 100] = count
    latency = np.array([[count * (number + 1)] * 2, [0, 0]], np.int64)
    return Batch(
        Status.COMPLETED, number * 100, number * 100 + 100, np.array([count, 0]), latency,
        np.full((2, 2), number, np.int64), histogram, np.array([count]), np.zeros(0, np.int64),
        np.zeros(0, np.int64), np.full((3, 4), number, np.int64), number,
    )  # fmt: skip


def collected(n: int) -> Collector:
    kept = Collector(plain_reducer(), 10)
    for i in range(n):
        kept.add(batch(i))
    return kept


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 127, 1023, 1024, 1025, 2500, 5000])
def test_memory_is_flat_and_nothing_is_lost(n: int) -> None:
    kept = collected(n)
    window = kept.window(0)
    assert len(kept) <= MAX_RECORDS
    assert len(window.snapshots) <= MAX_SNAPSHOTS
    assert sum(s.n_records for s in window.snapshots) == len(kept)
    assert window.requests == 10 * n
    assert window.duration_ps == 100 * n
    assert window.records[:, Col.READ_LAT].sum() == sum(10 * (i + 1) for i in range(n))
    assert window.records[-1, Col.OUTSTANDING] == n - 1
    total = window.total
    assert total.histogram[0, 0].sum() == 10 * n
    assert total.duration_ps == 100 * n
    assert total.latency_max_ps.max() == n - 1
    assert total.stations[0, 0] == n * (n - 1) / 2


@pytest.mark.parametrize("n", [100, 1500, 3000])
def test_records_and_snapshots_are_cut_at_the_same_place(n: int) -> None:
    kept = collected(n)
    cut, _ = kept.warmup()
    window = kept.window(cut)
    assert window.total.histogram[0, 0].sum() == window.requests
    assert window.warmup_ps + window.duration_ps == 100 * n
    kept.drop(cut)
    assert kept.window(0).requests == window.requests
    for i in range(n, n + 1200):
        kept.add(batch(i))
    assert kept.window(0).total.duration_ps == kept.window(0).duration_ps
    assert kept.window(0).warmup_ps == window.warmup_ps


def test_batches_grow_when_records_collapse() -> None:
    assert collected(1023).batch == 10
    assert collected(1024).batch == 20


def test_parts_of_a_batch_are_one_record() -> None:
    kept = Collector(plain_reducer(), 20)
    kept.add(batch(0), batch(1))
    assert len(kept) == 1
    assert kept.requests == 20
    assert kept.window(0).snapshots[0].n_records == 1


def test_the_head_is_kept_as_it_was() -> None:
    kept = collected(3000)
    assert len(kept.head) == MAX_RECORDS
    assert all(row[Col.READS] == 10 for row in kept.head)


def test_mser_cuts_a_transient_and_keeps_noise() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(10, 1, 400)
    assert mser(noise, np.arange(201)) < 60
    decaying = noise + 50 * np.exp(-np.arange(400) / 20)
    assert 40 <= mser(decaying, np.arange(201)) <= 140


def test_never_more_than_half_is_warm_up() -> None:
    kept = collected(400)  # latency grows for ever
    cut, warm = kept.warmup()
    assert cut <= 200
    assert not warm


def test_nothing_and_one_batch_have_no_interval() -> None:
    zeros = np.zeros(5)
    assert ratio_interval(zeros, zeros).value == 0
    assert relative_half(ratio_interval(zeros, zeros)) == np.inf
    assert half_width(np.array([3.0])) == np.inf
    assert ratio_interval(np.array([3.0]), np.array([2.0])).high == np.inf


@pytest.mark.parametrize("share", [0.7, 0.9, 0.95, 0.999])
def test_students_t_is_scipys(share):
    for freedom in [*range(1, 40), 99, 1023]:
        assert two_sided(freedom, share) == pytest.approx(stdtrit(freedom, (1 + share) / 2), 1e-12)


@pytest.mark.parametrize("users", [1, 2000])
def test_warm_up_is_found_from_empty_and_from_full(users: int) -> None:
    """All users submit at once: the slow second queue is empty, the fast first one full."""
    net = network([0.5 * MEAN_PS, MEAN_PS], users=users)
    measured = measure(net, RunGoal(None, 100_000), is_open=False, users=users)
    assert measured.converged
    assert measured.window.requests == 100_000
    rate = measured.window.iops()
    exact = 1e6 if users == 2000 else 1e6 / 1.5
    assert rate.low <= exact <= rate.high
