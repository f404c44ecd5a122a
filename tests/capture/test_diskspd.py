"""DiskSpd XML and text: figures, versions, encodings, damage, and what other options leave open."""

import re
from pathlib import Path

import polars as pl
import pytest

from nvmesim.capture.capture import Measurement
from nvmesim.capture.registry import read_capture
from nvmesim.warning import has
from tests.capture.contract import DATA, read_text, refused, sample, written
from tests.capture.test_fio_mailed import hard, quoted, soft

XML, TEXT = "diskspd-xml/two_targets.xml.gz", "diskspd-text/two_targets.txt"
DEEP = "<a>" * 5000 + "</a>" * 5000 + "<Latency>"


def whole(text: str, tmp_path: Path) -> Measurement:
    """The measurement of the whole; one of each target may follow."""
    return read_text(text, tmp_path).measurements[0]


BOTH = pytest.mark.parametrize("name", [XML, TEXT], ids=["xml", "text"])


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


def test_percentiles_that_do_not_ascend_are_left_out(tmp_path: Path) -> None:
    text = sample(XML)
    rows = re.findall(r"<ReadMilliseconds>[\d.]+</ReadMilliseconds>", text)
    for row in (rows[50], rows[90]):
        text = text.replace(row, "<ReadMilliseconds>0.001</ReadMilliseconds>", 1)
    total = whole(text, tmp_path)
    assert not total.ops["read"].lat.percentiles_s
    assert total.ops["write"].lat.percentiles_s
    assert has(total.warnings, "impossible-latency")


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


LINUX = "diskspd-text/linux_mix7030.txt"


def test_a_percentile_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    text, n = re.subn(r"(?m)^(\s+50th \|)[^|]*", r"\1        N/A", sample(TEXT))
    assert n
    ops = whole(text, tmp_path).ops
    assert 50.0 not in ops["read"].lat.percentiles_s
    assert 50.0 in ops["write"].lat.percentiles_s


def test_figures_that_the_xml_does_not_have(tmp_path: Path) -> None:
    def without(name: str) -> Measurement:
        text = re.sub(rf"<{name}>.*?</{name}>\n?", "", sample(XML), flags=re.S)
        return whole(text, tmp_path)

    lat = without("Latency").ops["read"].lat
    assert not lat.percentiles_s
    assert lat.mean_s is not None  # of the threads
    assert not without("Bucket").ops["read"].lat.percentiles_s


def test_a_thread_without_its_counts_is_left_out_and_said(tmp_path: Path) -> None:
    cut = re.sub(r"<ReadCount>\d+</ReadCount>", "", sample(XML), count=1)
    m = whole(cut, tmp_path)
    assert has(m.warnings, "thread-cut")
    assert m.ops["read"].count < whole(sample(XML), tmp_path).ops["read"].count


def test_a_failed_timespan_is_said(tmp_path: Path) -> None:
    one = re.search(r"<TimeSpan><TestTime.*?</TimeSpan>", sample(XML), re.S)[0]
    failed = "<TimeSpan><Error>no space</Error></TimeSpan>"
    capture = read_text(sample(XML, (one, failed + one)), tmp_path)
    assert capture.measurements[0].label.startswith("timespan 2")
    assert "timespan 1: no space" in capture.warnings
    refused(sample(XML, (one, failed)), tmp_path)


def test_headings_that_a_page_joined_to_the_line_above(tmp_path: Path) -> None:
    """With dashes of its editor, and totals in italics."""
    text = sample(LINUX)
    joined = re.sub(r"^-{3,}$", "— — — -", text, flags=re.M)
    joined = re.sub(r"^(total:.*?)[ \t]*$", r"*\1*", joined, flags=re.M)
    joined = re.sub(r"\n+(System info:|Input parameters:|Results for job|CPU \||(Read|Write) IO\n)",
                    r"\1", joined)  # fmt: skip
    assert joined.count("\n") < text.count("\n") - 3
    (found,), (plain,) = (read_text(t, tmp_path).measurements for t in (joined, text))
    assert found.ops == plain.ops
    assert found.conditions.jobs == plain.conditions.jobs


def test_results_in_one_file_are_told_apart(tmp_path: Path) -> None:
    other = sample(LINUX, ("-o4", "-o8"), ("operations: 4)", "operations: 8)"))
    first, second = read_text(sample(LINUX) + other, tmp_path).measurements
    assert (first.label, second.label) == ("timespan 1 (run 1)", "timespan 1 (run 2)")
    assert (first.conditions.iodepth, second.conditions.iodepth) == (4, 8)


def test_a_run_whose_parameters_were_cut_does_not_take_those_of_another(tmp_path: Path) -> None:
    text = sample(LINUX)
    results = text[text.index("Results for job 1:") :]
    cut = f"\nCommand Line: diskspd -b4K -r -o8 -t2 -w30 a.dat\n\n{results}"
    first, second = read_text(text + cut, tmp_path).measurements
    assert (first.conditions.iodepth, first.conditions.block_size) == (4, 4096)
    assert second.conditions.iodepth == 8


@pytest.mark.parametrize("wrap", [hard, soft])
@pytest.mark.parametrize("width", [68, 72, 76, 80, 90])
def test_tables_that_were_wrapped_are_whole_again(wrap, width: int, tmp_path: Path) -> None:
    """Rows are joined until they have the cells that the header says, numbers that were cut too."""
    for path in (DATA / "diskspd-text").glob("*.txt"):
        mailed = read_text(quoted("> ")(wrap(width)(path.read_text())), tmp_path, path.name)
        assert mailed.measurements == read_capture(path).measurements


def test_xml_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    assert "too deeply" in refused(sample(XML, ("<Latency>", DEEP)), tmp_path)
