"""An empirical drive answers with what was captured, at the depth where it was captured."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.drive.empirical import (
    MAX_SAMPLES,
    fit_empirical,
)
from nvmesim.calibrate.points import Point
from nvmesim.capture.capture import Conditions, percentiles_of_bins
from nvmesim.capture.registry import read_capture
from nvmesim.catalog.load import load
from nvmesim.cli.main import run_command
from nvmesim.errors import FitError
from nvmesim.predict.simulate import simulate
from tests.calibrate.written import known_drive, requests_of, write_blkparse
from tests.predict.scenarios import scenario

TRACES = Path(__file__).parents[1] / "capture" / "data"
LOGS = Path(__file__).parents[2] / "calibration" / "local-disk" / "logs"


@pytest.fixture(scope="module")
def capture_of_reads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empirical") / "reads.blkparse"
    write_blkparse(path, requests_of(known_drive(), 16, 6000, read=1.0))
    return path


def test_its_percentiles_are_those_of_the_capture(capture_of_reads: Path) -> None:
    capture = read_capture(capture_of_reads)
    measured = capture.requests.collect()["latency_ns"].to_numpy() / 1e9
    fit = fit_empirical(capture, name="known")
    assert fit.profile.latencies.queue_depth == 16
    point = Point("", 1.0, True, 4096, 1, 16, 1.0, None, percentiles_s={50.0: 1.0, 99.0: 1.0})
    answer = measure(fit.profile, free_host(), point, requests=60_000)
    for percent in (50.0, 99.0):
        expected = np.percentile(measured, percent)
        assert answer.percentiles_s[percent] == pytest.approx(expected, rel=0.02)


def test_percentiles_have_intervals(capture_of_reads: Path) -> None:
    fit = fit_empirical(read_capture(capture_of_reads), name="known")
    table = fit.percentiles_s["read"]
    assert list(table) == [50.0, 90.0, 99.0]
    for found in table.values():
        assert found.low <= found.value <= found.high
    half, tail = ((t.high - t.low) / t.value for t in (table[50.0], table[99.0]))
    assert tail > half


def test_episodes_are_kept_in_runs(tmp_path: Path) -> None:
    """The variance of means of 500 requests is that of the capture, not of independent draws."""
    rng = np.random.default_rng(2)
    slow = np.repeat(rng.random(60) < 0.3, 500)
    latency = np.where(slow, 400.0, 80.0) * rng.gamma(20, 1 / 20, 30_000)
    submit = np.cumsum(np.full(30_000, 500)) * 1_000_000
    rows = np.stack([submit, submit + (latency * 1e6).astype(np.int64)], axis=1)
    rows = np.concatenate([rows, np.tile([0, 4096], (30_000, 1))], axis=1)
    path = tmp_path / "episodes.blkparse"
    write_blkparse(path, rows)
    fit = fit_empirical(read_capture(path), name="episodes")
    table = fit.profile.latencies
    assert table.queue_depth == 1
    assert len(table.read_us) <= MAX_SAMPLES
    assert 100 <= fit.memories[0] <= 1500
    assert table.block >= 2 * fit.memories[0]
    kept = np.array(table.read_us)
    assert np.mean(kept > 200) == pytest.approx(np.mean(latency > 200), abs=0.1)


def test_a_fio_log_and_a_histogram_are_read() -> None:
    log = fit_empirical(read_capture(TRACES / "fio-log" / "rr_qd1_clat.1.log.gz"), name="log")
    assert len(log.profile.latencies.read_us) > 100
    alone = LOGS / "randread_qd1_each_clat.1.log.gz"  # beside the JSON of its run
    assert "queue depth 1," in fit_empirical(read_capture(alone), name="alone").warnings[0]
    path = TRACES / "fio-json" / "randread_4k_qd4.jsonplus.json.gz"
    capture = read_capture(path)
    bins = fit_empirical(capture, name="bins").profile.latencies
    assert bins.queue_depth == 4
    clat = capture.measurements[0].ops["read"].clat
    assert clat is not None
    for percent in (50.0, 99.0):
        found = np.percentile(bins.read_us, percent) / 1e6
        assert found == pytest.approx(clat.percentiles_s[percent], rel=0.02)
    assert (len(bins.read_us), bins.block) == (4000, 1)
    least = percentiles_of_bins(clat.bin_s, clat.bin_count, [0.025])[0.025]
    ends = (1e6 * least, 1e6 * clat.bin_s[-1])
    assert (bins.read_us[0], bins.read_us[-1]) == pytest.approx(ends, abs=0.006)
    unstated = (replace(capture.measurements[0], conditions=Conditions()),)
    fit = fit_empirical(replace(capture, measurements=unstated), name="unstated")
    assert "latencies.queue_depth" in fit.warnings[0]
    assert fit.profile.latencies.block_size.value == 4096


def test_what_a_lone_log_does_not_tell_is_said(tmp_path: Path) -> None:
    log = tmp_path / "x_clat.1.log"
    latencies = [0, *[90_000] * 750, *[30_000] * 750]
    log.write_text("".join(f"{i}, {ns}, 0, 4096, 0\n" for i, ns in enumerate(latencies)))
    fit = fit_empirical(read_capture(log), name="x")
    assert fit.profile.latencies.queue_depth == 1
    assert fit.profile.latencies.read_us == (*[90.0] * 750, *[30.0] * 750)
    assert fit.profile.latencies.block == 1500 // 4
    assert "latencies.queue_depth" in fit.warnings[0]
    assert "latencies.queue_depth" in fit.profile.notes
    assert any("intervals may be too narrow" in text for text in fit.warnings)
    assert not any("size" in text or "are kept" in text for text in fit.warnings)


def test_a_hundred_latencies_are_enough(tmp_path: Path) -> None:
    log = tmp_path / "x_clat.1.log"
    ns = [30_919, *np.random.default_rng(1).integers(30_000, 31_000, 99).tolist()]
    rows = [f"{i}, {one}, 0, 4096, 0\n" for i, one in enumerate(ns)]
    log.write_text("".join(rows))
    fit = fit_empirical(read_capture(log), name="x")
    assert len(fit.profile.latencies.read_us) == 100
    assert fit.profile.latencies.read_us[0] == 30.92
    assert (fit.memories, fit.profile.latencies.block) == ((1,), 1)
    log.write_text("".join(rows[1:]))
    with pytest.raises(FitError, match="fewer than 100"):
        fit_empirical(read_capture(log), name="x")


@pytest.mark.parametrize(
    ("least", "most", "varied"), [(1, 3, False), (1, 4, True), (6, 9, False), (6, 10, True)]
)
def test_requests_of_several_depths_and_sizes_are_said_to_be(
    tmp_path: Path, least: int, most: int, varied: bool
) -> None:
    """One request beside *least* - 1 that last, or *most* - 1."""
    beside = [
        (k, 10**12 * (2000 if k < least - 1 else 1000), 0, 4096 << k % 3) for k in range(most - 1)
    ]
    at = [(10**12 * i, 10**12 * i + 10**8, 0, 4096 << i % 3) for i in range(2000)]
    rows = sorted([*beside, *at])
    path = tmp_path / "bursts.blkparse"
    write_blkparse(path, np.array(rows))
    fit = fit_empirical(read_capture(path), name="x")
    assert any(f"varied from {least} to" in text for text in fit.warnings) == varied
    assert any("several sizes" in text for text in fit.warnings)
    assert least <= fit.profile.latencies.queue_depth <= most
    assert fit.profile.latencies.block_size.value == 8192


def test_results_without_bins_are_refused() -> None:
    with pytest.raises(FitError, match="neither single requests nor a histogram"):
        fit_empirical(read_capture(TRACES / "fio-json" / "psync_qd8.json"), name="x")


def test_the_command_writes_a_profile_that_predicts_its_own_depth(
    capture_of_reads: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "drive.toml"
    code = run_command(["calibrate", "--empirical", str(capture_of_reads), "-o", str(target)])
    assert code == 0
    assert "honest only at queue depth 16" in capfd.readouterr().out
    profile = load("drive", str(target))
    assert profile.latencies is not None  # type: ignore[union-attr]
    for depth in (16, 64):
        base = scenario(drives=1, read=1.0, threads=1, outstanding=depth)
        drive = base.drives[0].model_copy(update={"profile": str(target)})
        predicted = simulate(base.model_copy(update={"drives": (drive,)}))
        codes = [warning.code for warning in predicted.warnings]
        assert ("replayed-depth" in codes) == (depth != 16)
