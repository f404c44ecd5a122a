"""Iometer's results and iostat -x."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from tests.capture import composed
from tests.capture.contract import written

DATA = Path(__file__).parent / "data"


def test_iometer_runs() -> None:
    capture = read_capture(DATA / "iometer" / "results.csv")
    first, second = capture.measurements
    c = first.conditions
    assert (capture.version, first.label) == ("1.1.0", "4K 70%Rd 100%Rnd")
    assert (c.read_fraction, c.access, c.block_size, c.jobs, c.targets) == (
        0.7,
        "random",
        4096,
        1,
        2,
    )
    assert (c.iodepth, c.outstanding, c.cpus) == (32, 32, 4)
    assert first.ops["read"].count == 2583021
    assert first.ops["read"].iops == pytest.approx(43050.35)
    assert first.ops["read"].lat.mean_s == pytest.approx(0.342e-3)
    assert first.ops["write"].lat.max_s == pytest.approx(1.903e-3)
    assert first.cpu.total_pct == pytest.approx(40.5 + 41.5 + 42.5 + 43.5)
    assert second.ops["read"].iops == pytest.approx(2 * first.ops["read"].iops)


def test_iometer_cut_in_its_processors_has_no_cpu_figure(tmp_path: Path) -> None:
    text = composed.iometer()
    capture = read_capture(written(tmp_path / "t", text[: text.rindex("PROCESSOR,CPU 3")]))
    first, second = capture.measurements
    assert first.cpu is not None
    assert second.cpu is None
    assert second.ops["read"].count == 2583021


def test_iometer_with_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    lines = composed.iometer().split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("'Target Type"))
    for i in range(start, len(lines)):
        if not lines[i].startswith("20"):
            lines[i] = lines[i].replace(",", ";").replace(".", ",")
    capture = read_capture(written(tmp_path / "t", "\n".join(lines)))
    plain = read_capture(DATA / "iometer" / "results.csv")
    assert [m.ops for m in capture.measurements] == [m.ops for m in plain.measurements]


def test_iometer_without_results_is_refused(tmp_path: Path) -> None:
    text = composed.iometer()
    with pytest.raises(CaptureError, match="is iometer without one whole result"):
        read_capture(written(tmp_path / "t", text[: text.index("'Results")]))


def test_iostat_text_leaves_out_the_average_since_boot() -> None:
    capture = read_capture(DATA / "iostat" / "text.txt")
    (busy,) = capture.measurements
    assert busy.label == "nvme3n1"
    assert busy.disk_util_pct == {"nvme3n1": pytest.approx((74.4 + 82.4) / 2)}
    assert busy.ops["read"].iops == pytest.approx((1436 + 2117) / 2)
    waited = (1436 * 0.5 + 2117 * 0.35) / (1436 + 2117)
    assert busy.ops["read"].clat.mean_s == pytest.approx(waited / 1e3)
    assert busy.ops["read"].bytes == (5744 + 8468) * 1024
    assert busy.conditions.depth_mean == pytest.approx((1.06 + 1.17) / 2)


def test_iostat_json_has_the_cpu() -> None:
    (busy,) = read_capture(DATA / "iostat" / "report.json").measurements
    assert busy.cpu.total_pct == pytest.approx(2 * (3.33 + 62.0))
    assert busy.disk_util_pct == {"nvme3n1": 91.76}
    assert busy.conditions.cpus == 2


@pytest.mark.parametrize("name", ["text.txt", "report.json"])
def test_iostat_with_decimal_commas(name: str, tmp_path: Path) -> None:
    text = (DATA / "iostat" / name).read_text()
    comma = re.sub(r"(?<=\d)\.(?=\d\d\b)", ",", text)
    assert comma != text
    found = read_capture(written(tmp_path / "t", comma))
    assert found.measurements == read_capture(DATA / "iostat" / name).measurements


def test_iostat_of_one_report_is_doubted(tmp_path: Path) -> None:
    text = (DATA / "iostat" / "text.txt").read_text()
    capture = read_capture(written(tmp_path / "t", text[: text.index("11/21/26 08:27:46")]))
    assert "since boot" in capture.warnings[0]


def test_iostat_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    text = (DATA / "iostat" / "text.txt").read_text()
    text = text.replace("nvme3n1       2117.00", "nvme3n1       2117.00 7.00")
    assert read_capture(written(tmp_path / "t", text)).skipped == 1


def test_cut_iostat_json_is_refused(tmp_path: Path) -> None:
    text = (DATA / "iostat" / "report.json").read_text()
    with pytest.raises(CaptureError, match="cut or broken iostat JSON"):
        read_capture(written(tmp_path / "t", text[: len(text) // 2]))
