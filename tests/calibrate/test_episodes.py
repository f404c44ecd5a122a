"""Episodes of garbage collection are recovered from series simulated with known ones."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.calibrate.over_time.episodes import (
    Episodes,
    episodes_of_requests,
    find_episodes,
    suggestions,
)
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.profile import DriveProfile, GarbageCollection, Quantity
from tests.calibrate.written import known_drive, requests_of, write_blkparse

ON_S, OFF_S, FACTOR = 0.020, 0.080, 3.0


def drive_with(gc: GarbageCollection | None) -> DriveProfile:
    """Eight slow dies and a small buffer: 20,000 writes a second."""
    q = Quantity
    drive = known_drive(dies=q(value=8), channels=q(value=8))
    update = {"program": q(value=400e6), "buffer": q(value=256 << 10), "gc": gc}
    return drive.model_copy(update={"write": drive.write.model_copy(update=update)})


def collection(on_s: float, off_s: float, factor: float) -> GarbageCollection:
    q = Quantity
    return GarbageCollection(
        on=q(value=on_s * 1e12), off=q(value=off_s * 1e12), factor=q(value=factor)
    )


def simulated(gc: GarbageCollection | None, n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rows = requests_of(drive_with(gc), 32, n, read=0.0, seed=seed)[n // 10 :]
    return rows[:, 1] / 1e12, (rows[:, 1] - rows[:, 0]) / 1e12


def hits(found: Episodes | None) -> list[bool]:
    pairs = ((found.on_s, ON_S), (found.off_s, OFF_S), (found.factor, FACTOR))
    return [e.low <= truth <= e.high for e, truth in pairs]


def coverage(trials: int) -> np.ndarray:
    """Share of trials in which on, off and factor lie in their intervals."""
    gc = collection(ON_S, OFF_S, FACTOR)
    return np.mean(
        [hits(episodes_of_requests(*simulated(gc, 200_000, seed))) for seed in range(trials)],
        axis=0,
    )


def test_episodes_of_a_known_drive_are_recovered() -> None:
    assert (coverage(10) >= 0.8).all()


def test_a_capture_with_episodes_suggests_them(tmp_path: Path) -> None:
    rows = requests_of(drive_with(collection(ON_S, OFF_S, FACTOR)), 32, 30_000, read=0.0)
    path = tmp_path / "writes.blkparse"
    write_blkparse(path, rows)
    (said,) = suggestions(read_captures(path))
    assert "writes stall in episodes" in said
    assert "write.gc = { on =" in said
    assert suggestions(Captures(())) == []


@pytest.mark.slow
def test_intervals_cover_at_the_stated_rate() -> None:
    assert (coverage(200) >= 0.90).all()


@pytest.mark.parametrize(("on", "off", "factor"), [(0.05, 0.2, 1.5), (0.03, 0.05, 6.0)])
def test_other_episodes_are_near(on: float, off: float, factor: float) -> None:
    found = episodes_of_requests(*simulated(collection(on, off, factor), 250_000, 3))
    assert found.factor.value == pytest.approx(factor, rel=0.05)
    assert found.on_s.value == pytest.approx(on, rel=0.4)
    assert found.off_s.value == pytest.approx(off, rel=0.4)
    made = found.collection("capture")
    assert made.factor.basis == "fitted"
    assert made.on.low is not None
    assert made.on.low <= made.on.value


def test_none_are_found_where_there_are_none() -> None:
    assert episodes_of_requests(*simulated(None, 100_000)) is None


@pytest.mark.parametrize("seed", range(10))
def test_noise_drift_and_a_single_step_are_no_episodes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.arange(2000) * 0.001
    noise = rng.gamma(20, 1 / 20, 2000)
    for series in (
        noise, rng.gamma(2, 1, 2000), np.exp(rng.normal(size=2000)),
        np.convolve(noise, np.ones(10) / 10, "same"),
        noise * np.linspace(1, 3, 2000), noise * np.where(times > 1, 3, 1),
    ):  # fmt: skip
        assert find_episodes(times, series, kind="latency") is None


def test_a_log_of_window_means_shows_them_too() -> None:
    from nvmesim.calibrate.over_time.episodes import _of_series

    rng = np.random.default_rng(1)
    slow = np.tile(np.repeat([False, True], [80, 20]), 30)
    iops = np.where(slow, 20e3, 60e3) * rng.gamma(100, 0.01, 3000)
    series = pl.DataFrame(
        {"time_s": np.arange(3000) * 0.1, "op": "write", "kind": "iops", "value": iops}
    )
    found = _of_series(series)
    assert found.count == 29  # the last does not end
    assert found.factor.value == pytest.approx(3, rel=0.02)
    assert found.on_s.low <= 2.0 <= found.on_s.high
    assert np.mean(found.slow == slow) > 0.99
