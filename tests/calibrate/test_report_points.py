"""Pages of fits, and what is held out of traces."""

from dataclasses import replace
from pathlib import Path

import pytest

from nvmesim.calibrate.drive.empirical import fit_empirical
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import read_capture
from nvmesim.cli.calibrate import fit_capture
from nvmesim.errors import FitError, UnitError
from nvmesim.show.charts.fit_charts import all_charts
from nvmesim.show.views.fits import fit_page
from nvmesim.show.views.measured import rows
from tests.calibrate.bench import drive, simulated

pytestmark = pytest.mark.xdist_group("report_points")

TRACE = Path(__file__).parent / "data" / "blkparse_qd4_emulated.txt.gz"


def test_the_page_has_charts_and_the_profile():
    fit = fit_drive([simulated(drive(), 1, n, requests=30_000) for n in (1, 4)])
    measured = replace(fit.points[0].point, bins=fit.points[0].answer.bins)
    fit = replace(fit, points=(replace(fit.points[0], point=measured), fit.points[1]))
    assert list(all_charts(fit)) == [
        "Throughput against queue depth", "Latency against queue depth, randread 4 KiB",
        "Distribution of latency, randread 4 KiB",
    ]  # fmt: skip
    assert "As a file (TOML)" in fit_page(fit)


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


@pytest.mark.parametrize(
    ("rule", "said"),
    [("QD=4", "write LAST=50%"), ("LAST=95%", "write LAST=0% to 90%"), ("LAST=much", "much")],
)
def test_of_a_trace_its_end_is_held_out(rule, said):
    captures = Captures(files=(read_capture(TRACE),))
    with pytest.raises((FitError, UnitError), match=said):
        fit_capture(captures, "x", None, (rule,), None, lambda _: None)


def test_the_page_of_an_empirical_drive_has_its_distribution_and_percentiles():
    logs = Path(__file__).parents[2] / "calibration" / "local-disk" / "logs"
    fit = fit_empirical(read_capture(logs / "randread_qd16_each_clat.1.log.gz"), name="log")
    text = fit_page(fit)
    for part in ("Distribution of latency", "p99.9 of reads", "As a file"):
        assert part in text
    assert "http://" not in text.replace("http://www.w3.org", "")
