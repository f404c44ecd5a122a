"""DiskSpd XML and text: figures, versions, encodings, damage."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture.capture import Measurement
from nvmesim.capture.registry import read_capture
from nvmesim.warning import has
from tests.capture.contract import DATA, read_text, refused, sample, written

XML, TEXT = "diskspd-xml/two_targets.xml.gz", "diskspd-text/two_targets.txt"
BLOCK = 4096
DEEP = "<a>" * 5000 + "</a>" * 5000
TIME = re.compile("<TestTimeSeconds>.*?</TestTimeSeconds>")


@dataclass(frozen=True)
class Thread:
    """What one thread of both samples did to its target: ms, ascending."""

    path: str
    reads: np.ndarray
    writes: np.ndarray


def threads() -> list[Thread]:
    rng = np.random.default_rng(1)
    return [
        Thread(
            path,
            np.sort(rng.gamma(9, 0.012 * k, 7000)).round(3),
            np.sort(rng.gamma(4, 0.004, 3000)).round(3),
        )
        for k, path in enumerate(("D:\\bench & co\\t1.dat", "E:\\bench\\t2.dat"), 1)
    ]


def rank(values: np.ndarray, percent: float) -> float:
    """DiskSpd's percentile: the first value with a cumulative count of at least p n."""
    return float(values[max(int(np.ceil(percent / 100 * len(values) - 1e-9)), 1) - 1])


def whole(text: str, tmp_path: Path) -> Measurement:
    """The measurement of the whole; one of each target may follow."""
    return read_text(text, tmp_path).measurements[0]


BOTH = pytest.mark.parametrize("name", [XML, TEXT], ids=["xml", "text"])


@BOTH
def test_figures(name: str) -> None:
    total, *targets = read_capture(DATA / name).measurements
    c = total.conditions
    assert (c.read_fraction, c.access, c.block_size) == (0.7, "random", BLOCK)
    assert (c.jobs, c.iodepth, c.outstanding, c.targets) == (2, 8, 16, 2)
    assert (c.duration_s, c.ramp_s, c.cpus, c.direct, c.engine) == (3.0, 1.0, 4, True, "iocp")
    for op, column in (("read", "reads"), ("write", "writes")):
        found = total.ops[op]
        values = np.sort(np.concatenate([getattr(t, column) for t in threads()]))
        assert found.count == len(values)
        assert found.iops == pytest.approx(len(values) / 3)
        assert found.bytes == len(values) * BLOCK
        assert found.lat.mean_s == pytest.approx(values.mean() / 1e3, abs=1e-6)
        assert found.lat.stddev_s == pytest.approx(values.std() / 1e3, abs=1e-6)
        assert found.lat.min_s == pytest.approx(values[0] / 1e3)
        assert found.lat.max_s == pytest.approx(values[-1] / 1e3)
        for percent in (25.0, 50.0, 99.0, 99.9):
            expected = rank(values, percent) / 1e3
            assert found.lat.percentiles_s[percent] == pytest.approx(expected)
        assert found.clat is None
    assert (total.cpu.total_pct, total.cpu.system_pct, total.cpu.scope) == (146.0, 142.0, "host")
    assert [m.conditions.jobs for m in targets] == [1, 1]
    for measurement, thread in zip(targets, threads(), strict=True):
        assert measurement.label.endswith(thread.path)
        mean_s = measurement.ops["read"].lat.mean_s
        assert mean_s == pytest.approx(thread.reads.mean() / 1e3, abs=1e-6)
        assert measurement.cpu is None


def test_totals_come_from_the_overall_table_not_the_first() -> None:
    total, first, _ = read_capture(DATA / TEXT).measurements
    assert total.ops["read"].lat.max_s > first.ops["read"].lat.max_s
    assert first.ops["read"].lat.percentiles_s


@BOTH
def test_powershell_and_decimal_commas(name: str, tmp_path: Path) -> None:
    text = sample(name)
    comma = re.sub(r"(?<=[\d])\.(?=\d\d)", ",", text).replace("2,2,0", "2.2.0")
    for data in (text.replace("\n", "\r\n").encode("utf-16"), comma.encode("utf-8-sig")):
        other = read_capture(written(tmp_path / "u", data))
        assert other.measurements == read_capture(DATA / name).measurements


def test_two_results_in_one_file_and_a_cut_third(tmp_path: Path) -> None:
    text = sample(XML) + sample(XML, (">3.00<", ">2.00<")) + sample(XML)[:900]
    capture = read_text(text, tmp_path)
    assert len(capture.measurements) == 6
    assert capture.warnings == ("the last result is cut (left out)",)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda x: x[: len(x) // 2], "<Results> without </Results>"),
        (lambda x: "<!DOCTYPE a [<!ENTITY b 'c'>]>\n" + x, "document type"),
        (lambda x: x.replace("</Profile>", ""), "broken XML"),
        (lambda x: x.replace("<Latency>", DEEP + "<Latency>"), "too deeply"),
        (lambda x: TIME.sub("<Error>interrupted</Error>", x), "timespan 1: interrupted"),
        (lambda x: x.replace(">3.00<", ">NaN<"), "without one whole result"),
    ],
)
def test_broken_xml_is_refused(damage, found: str, tmp_path: Path) -> None:
    assert found in refused(damage(sample(XML)), tmp_path)


def test_percentiles_that_do_not_ascend_are_left_out(tmp_path: Path) -> None:
    text = sample(XML)
    rows = re.findall(r"<ReadMilliseconds>[\d.]+</ReadMilliseconds>", text)
    for row in (rows[50], rows[90]):
        text = text.replace(row, "<ReadMilliseconds>0.001</ReadMilliseconds>", 1)
    total = whole(text, tmp_path)
    assert not total.ops["read"].lat.percentiles_s
    assert total.ops["write"].lat.percentiles_s
    assert has(total.warnings, "impossible-latency")


def test_old_versions_are_doubted(tmp_path: Path) -> None:
    for text, is_old in ((sample(XML, (">2.2.0<", ">2.0.21a<")), True), (sample(XML), False)):
        assert has(whole(text, tmp_path).warnings, "inflated-latency") == is_old


def test_rows_that_people_cut_out(tmp_path: Path) -> None:
    rows = [x for x in sample(TEXT).split("\n") if not re.match(r"\s+1 \|", x)]
    (total,) = read_text("\n".join(rows), tmp_path).measurements
    assert total.ops["read"].count == 14_000
    assert has(total.warnings, "thread-cut")


def test_conditions_from_the_command_line_alone(tmp_path: Path) -> None:
    text = sample(TEXT)
    a, b = text.index("Input parameters"), text.index("System information")
    c = whole(text[:a] + text[b:], tmp_path).conditions
    assert (c.block_size, c.iodepth, c.read_fraction, c.access) == (BLOCK, 8, 0.7, "random")


def test_text_without_totals_is_cut(tmp_path: Path) -> None:
    text = sample(TEXT)
    assert "its tables are cut" in refused(text[: text.index("Write IO") + 300], tmp_path)


def test_the_iops_series_of_diskspd(tmp_path: Path) -> None:
    buckets = "".join(
        f'<Bucket SampleMillisecond="{1000 * k}" Read="{4600 + k}" Write="2000" Total="6600" '
        f'ReadAvgLatencyMilliseconds="0.10{k}" WriteAvgLatencyMilliseconds="0,015"/>'
        for k in (1, 2, 3)
    )
    series = f"<Iops><ReadIopsStdDev>1</ReadIopsStdDev>{buckets}</Iops>"
    # The first Thread follows the totals' tables; each Target may have a series of its own.
    found = read_text(sample(XML).replace("<Thread>", series + "<Thread>", 1), tmp_path).series
    rates = found.filter((pl.col("op") == "read") & (pl.col("kind") == "iops"))
    assert rates["time_s"].to_list() == [1.0, 2.0, 3.0]
    assert rates["value"].to_list() == [4601.0, 4602.0, 4603.0]
    writes = found.filter((pl.col("op") == "write") & (pl.col("kind") == "lat"))
    assert writes["value"].to_list() == pytest.approx([15e-6] * 3)
