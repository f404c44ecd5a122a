"""Pages of fits: residuals, time series with what happens in them, and fits to single requests."""

from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.bench import BenchAnswer, measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.evidence import Judged
from nvmesim.calibrate.over_time.time_series import TimeSeries, time_series_of
from nvmesim.calibrate.points import Bins, Point
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import read_capture, read_captures
from nvmesim.cli.calibrate import fit_capture
from nvmesim.errors import FitError, UnitError
from nvmesim.show.charts.fit_charts import (
    all_charts,
    nines_of,
    over_time,
    residuals,
    residuals_by_depth,
    residuals_of_distributions,
)
from nvmesim.show.views.fits import fit_page
from nvmesim.show.views.measured import rows
from tests.calibrate.bench import drive, fio_json, host, simulated

pytestmark = pytest.mark.xdist_group("report_points")

LOGS = Path(__file__).parents[2] / "calibration" / "local-disk" / "logs"


def drawn(chart) -> list[dict]:
    """All rows of data in *chart*."""
    return [r for rows in chart.to_dict(context={})["datasets"].values() for r in rows]


def judged(factor: float, *, held_out: bool = False, depth: int = 4) -> Judged:
    """A point whose model is off by *factor* everywhere."""
    at, count = np.geomspace(5e-5, 5e-3, 400), np.full(400, 250)
    point = Point(
        "p", 1.0, True, 4096, 1, depth, 1e4, 1e-4, {50.0: 1e-4, 99.0: 2e-4}, held_out=held_out,
        bins=Bins(at, count), count=100_000,
    )  # fmt: skip
    answer = BenchAnswer(
        1e4 * factor, 1e-4 * factor, {50.0: 1e-4 * factor, 99.0: 2e-4 * factor},
        bins=Bins(at * factor, count),
    )  # fmt: skip
    return Judged(point, answer)


def test_a_tenth_is_drawn_as_a_tenth_at_every_depth_and_percentile():
    points = [judged(1.1, depth=n, held_out=n == 4) for n in (1, 4)]
    rows = [r for r in drawn(residuals_by_depth(points)) if "depth" in r]
    assert {r["of"] for r in rows} == {"IOPS", "mean", "p50", "p99"}
    assert [r["off"] for r in rows] == pytest.approx([10.0] * len(rows), abs=0.01)
    assert {r["held"] for r in rows} == {True, False}
    rows = [r for r in drawn(residuals_of_distributions(points)) if "nines" in r]
    assert [r["off"] for r in rows] == pytest.approx([10.0] * len(rows), abs=0.05)


def test_what_is_far_off_is_drawn_where_it_is():
    chart = residuals_by_depth([judged(5.0)])
    rows = [r for r in drawn(chart) if "depth" in r]
    assert max(r["off"] for r in rows) == pytest.approx(400)
    text = str(chart.to_dict(context={}))
    assert "symlog" in text
    assert "'domain': [-420.0, 420.0]" in text  # nothing is cut off


def test_logs_of_a_folder_have_their_courses():
    found = time_series_of(read_captures([LOGS]))
    assert len(found) == 22  # 12 logs of windows, 4 of them of both; 4 of requests; a trace of both
    assert {c.unit for c in found} == {"s"}
    assert {c.op for c in found} == {"read", "write"}
    labels = {c.label for c in found}
    assert "randread_qd16" in labels
    text = str(over_time([c for c in found if c.op == "read"]).to_dict(context={}))
    assert "time in the capture, s" in text


def folder_with(tmp_path: Path, kind: str, values: np.ndarray) -> Path:
    rows = "".join(f"{100 * (i + 1)}, {v:.0f}, 1, 0, 0\n" for i, v in enumerate(values))
    (tmp_path / f"w_{kind}.1.log").write_text(rows)
    return tmp_path


def test_a_long_series_is_thinned(tmp_path):
    values = 100e3 * np.random.default_rng(1).normal(1, 0.03, 600)
    (course,) = time_series_of(read_captures([folder_with(tmp_path, "clat", values)]))
    assert len(course.values) <= 240
    assert course.values.mean() == pytest.approx(values.mean() / 1e9, rel=1e-3)


def test_a_step_down_for_good_is_ruled(tmp_path):
    noise = np.random.default_rng(1).normal(1, 0.02, 150)
    values = np.repeat([90e3, 30e3], [50, 100]) * noise
    (course,) = time_series_of(read_captures([folder_with(tmp_path, "iops", values)]))
    assert course.step_s == pytest.approx(5.0, abs=0.3)
    assert any(r.get("s") == pytest.approx(course.step_s, abs=0.01)
               for r in drawn(over_time([course])) if "y" not in r)  # fmt: skip


def test_the_page_has_them(tmp_path):
    for n in (1, 4):
        (tmp_path / f"qd{n}.json").write_text(fio_json(simulated(drive(), 1, n, requests=30_000)))
    folder_with(tmp_path, "clat", 80e3 * np.random.default_rng(1).normal(1, 0.03, 100))
    fit = fit_drive(read_captures([tmp_path]))
    assert [c.name for c in fit.time_series] == ["w_clat.1.log"]
    titles = set(all_charts(fit))
    assert {"Residuals against queue depth, randread 4 KiB", "Latency over time, writes"} <= titles
    page = fit_page(fit)
    assert "Band: 10 % either way; hollow diamonds: held out" in page
    assert "Dashed: a step down for good" in page


def test_fits_without_logs_have_none():
    points = [simulated(drive(), 1, n, requests=30_000) for n in (1, 4)]
    assert fit_drive(points).time_series == ()
    assert measure(drive(), host(), points[0], requests=1000).bins is not None
    assert TimeSeries("a.json", "read", "s", np.zeros(0), np.zeros(0)).label == "a"


def test_a_table_of_points_is_viewed_by_where_each_is_from(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(
        "op,block_size,jobs,iodepth,iops,lat_mean_us,source,targets\n"
        "randread,4 KiB,4,64,560000,455,review,8\nrandrw:70,4 KiB,1,32,90000,300,,\n"
    )
    shown = rows(read_capture(path))
    assert shown[0][:3] == ("review", "random 4 KiB, 4x64, 8 targets", "read")
    assert [row[2] for row in shown[1:]] == ["read", "write", "both"]
    assert shown[1][0] == "-"


ROOT = Path(__file__).parents[2]
LOG = ROOT / "calibration" / "local-disk" / "logs" / "randread_qd16_each_clat.1.log.gz"
TRACE = Path(__file__).parent / "data" / "blkparse_qd4_emulated.txt.gz"


def test_residuals_of_a_tenth_are_drawn_as_a_tenth():
    measured = np.linspace(1e-5, 2e-5, 2000)
    rows = residuals(measured, 1.1 * measured).to_dict(context={})
    drawn = [r["off"] for data in rows["datasets"].values() for r in data if "nines" in r]
    assert drawn == pytest.approx([10.0] * len(drawn), abs=0.01)
    assert nines_of(measured).max() == pytest.approx(np.log10(200))


@pytest.mark.parametrize(
    ("rule", "said"),
    [("QD=4", "write LAST=50%"), ("LAST=95%", "write LAST=0% to 90%"), ("LAST=much", "much")],
)
def test_of_a_trace_its_end_is_held_out(rule, said):
    captures = Captures(files=(read_capture(TRACE),))
    with pytest.raises((FitError, UnitError), match=said):
        fit_capture(captures, "x", None, (rule,), lambda _: None)
