"""A drive fitted to the first half of a capture predicts the second half of it."""

from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.arrivals import Replayer, arrivals_of
from nvmesim.calibrate.bench import free_host
from nvmesim.calibrate.trace.fit import TraceFit, fit_trace
from nvmesim.capture.registry import read_capture
from nvmesim.catalog.load import load
from nvmesim.cli.main import run_command
from nvmesim.errors import FitError
from tests.calibrate.written import known_drive, requests_of, varying_depth, write_blkparse

pytestmark = [pytest.mark.xdist_group("trace_fit"), pytest.mark.long]

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parents[2] / "calibration" / "local-disk" / "logs"
SIZES = ((4096, 0.6), (16384, 0.25), (65536, 0.15))
DEPTHS = (1, 4, 16, 32, 2, 8, 24, 48)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> TraceFit:
    """First half of a mixed-size, varying-depth blkparse text of a known drive; the second held."""
    path = tmp_path_factory.mktemp("trace") / "known.blkparse"
    write_blkparse(path, varying_depth(known_drive(), DEPTHS * 2, 500, sizes=SIZES))
    first, second = arrivals_of(read_capture(path)).halves()
    assert 3950 < len(first) <= len(second) <= 4000
    return fit_trace(first, name="known", held_out=second)


def test_the_second_half_is_predicted(fitted: TraceFit) -> None:
    held = next(c for c in fitted.classes if c.held_out and c.label == "all requests")
    assert abs(held.residual[50.0]) < 0.10
    assert abs(held.residual[99.0]) < 0.20


def test_it_misses_none_of_its_own_means(fitted: TraceFit) -> None:
    assert fitted.misses == ()
    assert fitted.to_json()["misses"] == []


def test_every_class_of_the_second_half_is_near(fitted: TraceFit) -> None:
    held = [c for c in fitted.classes if c.held_out and "depth" not in c.label]
    assert len(held) == 7
    for c in held:
        assert abs(c.residual[90.0]) < 0.20, c


def test_parameters_of_the_known_drive_lie_in_their_intervals(fitted: TraceFit) -> None:
    known, found = known_drive(), fitted.profile
    assert fitted.structure.engines == 0
    assert not fitted.structure.through
    missed = []
    for name, part in (
        ("die", "read"), ("base", "read"), ("die_cv", "read"),
        ("program", "write"), ("base_cv", "write"),
    ):  # fmt: skip
        quantity = getattr(getattr(found, part), name)
        truth = getattr(getattr(known, part), name).value
        if not quantity.low <= truth <= quantity.high:
            missed.append((name, quantity, truth))
    # Five intervals of 95 %: of a right fit three or more are missed once in 860 traces.
    assert len(missed) <= 2, missed
    assert found.commands.low is not None
    assert found.commands.low <= known.commands.value


def test_a_capture_of_an_emulated_machine() -> None:
    """400 requests at 4 outstanding of a disk that delays each by 4 ms: p50 and p90.

    Its p99 is missed (-35 %): of the first 200 requests 4 took more than 6 ms, of the second 15;
    such stalls of the emulator are not a mechanism of a drive, and their share changes on the way.
    """
    whole = arrivals_of(read_capture(DATA / "blkparse_qd4_emulated.txt.gz"))
    first, second = whole.halves()
    fit = fit_trace(first, name="emulated")
    simulated = Replayer(second, free_host()).latencies_s(fit.profile)
    for percent, error in ((50, 0.10), (90, 0.10)):
        measured = np.percentile(second.latency_s, percent)
        assert np.percentile(simulated, percent) == pytest.approx(measured, rel=error)
    assert any("the number of dies" in w for w in fit.warnings)


def test_the_second_half_of_a_virtual_disk_at_varying_depth() -> None:
    """A recorded trace: three sizes, 70 % reads, depths 1 to 32, on a machine with other work.

    A bank of dies has p50 +31 and p99 -49 % there: it is served in rounds, and paused.
    """
    whole = arrivals_of(read_capture(LOGS / "randrw_mixed_depths.blkparse.gz"))
    first, second = whole.halves()
    fit = fit_trace(first, name="mixed", held_out=second)
    assert fit.structure.rounds
    assert any("served in batches" in w for w in fit.warnings)
    assert any("latencies drift, the second half is" in w for w in fit.warnings)
    held = next(c for c in fit.classes if c.held_out and c.label == "all requests")
    assert abs(held.residual[50.0]) < 0.10, held
    assert abs(held.residual[99.0]) < 0.20, held
    assert fit.sample.held_out
    assert len(fit.sample.model_s) == len(second)


def test_too_few_requests_are_refused() -> None:
    whole = arrivals_of(read_capture(DATA / "blkparse_qd4_emulated.txt.gz"))
    with pytest.raises(FitError, match="too few"):
        fit_trace(whole.part(0, 50), name="short")


def test_runs_of_a_long_trace_keep_order_and_are_idle_between() -> None:
    whole = arrivals_of(read_capture(DATA / "blkparse_qd4_emulated.txt.gz"))
    runs = whole.windows(100)
    assert len(runs) == 100
    gaps = np.diff(runs.at_ps)
    assert (gaps >= 0).all()
    idle = int(whole.latency_s.max() * 1e12)
    assert gaps[24] == idle + runs.at_ps[24]  # a run's own time again: a replay may be slower
    assert runs.begins == (0, 25, 50, 75)


def test_a_trace_of_lone_requests_sets_no_limit_of_its_own_pace(tmp_path: Path) -> None:
    """At depth 1 a drive completes one request a latency: that is not a ceiling at depth 32."""
    known = known_drive()
    path = tmp_path / "qd1.blkparse"
    write_blkparse(path, requests_of(known, 1, 3_000, read=1.0))
    arrivals = arrivals_of(read_capture(path))
    assert int(arrivals.depth.max()) == 1
    pace = len(arrivals) / ((arrivals.at_ps[-1] - arrivals.at_ps[0]) / 1e12)
    fit = fit_trace(arrivals, name="lone")
    commands = fit.profile.commands
    assert commands.basis == "assumed"
    assert commands.value > 20 * pace
    assert any("own pace and no limit" in note for note in fit.warnings)
    served = requests_of(fit.profile, 32, 5_000, read=1.0)
    rate = len(served) / ((served[-1, 1] - served[0, 0]) / 1e12)
    assert rate > 8 * pace


def test_the_command_fits_a_trace_whose_depth_nobody_stated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capture, target = tmp_path / "reads.blkparse", tmp_path / "drive.toml"
    write_blkparse(capture, requests_of(known_drive(), 16, 6000, read=1.0))
    assert run_command(["calibrate", str(capture), "-o", str(target)]) == 0
    assert "held out" in capfd.readouterr().out
    assert load("drive", str(target)).name == "drive"
