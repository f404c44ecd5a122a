"""DiskSpd's results as other options leave them: each figure is said or left open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nvmesim.capture.capture import Measurement
from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture import composed_diskspd as made
from tests.capture.contract import read_text
from tests.capture.test_fio_mailed import hard, quoted, soft

DATA = Path(__file__).parent / "data"


def only(text: str, tmp_path: Path) -> Measurement:
    """The measurement of the whole; one of each target may follow."""
    return read_text(text, tmp_path).measurements[0]


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


MIX = "performing mix test (read/write ratio: 70/30)"
LIMIT = "throughput rate-limited to"


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("software cache disabled", "using software cache", "direct", False),
        ("using I/O Completion Ports", "using completion routines", "engine",
         "completion-routines"),
        ("using random I/O", "using sequential I/O", "access", "sequential"),
        (MIX, "performing read test", "read_fraction", 1.0),
        (MIX, "performing write test", "read_fraction", 0.0),
        ("IO priority: normal", f"{LIMIT} 2000 IOPS", "rate_iops", 4000.0),
        ("IO priority: normal", f"{LIMIT} 4096 B/ms", "rate_iops", 2000.0),
    ],
)  # fmt: skip
def test_parameters_of_the_text(
    old: str, new: str, key: str, value: object, tmp_path: Path
) -> None:
    text = changed(made.text(), (old, new), ("-b4K -r -o8 -t1 -w30 -W1 -d3 -L -Su ", "-d3 "))
    assert getattr(only(text, tmp_path).conditions, key) == value


def test_versions_by_what_they_print(tmp_path: Path) -> None:
    new = read_text(made.text(), tmp_path)
    assert new.version == ">=2.2"
    old = changed(
        made.text(), ("\tcpu count:\t\t4", ""), ("thread count:\t\t2", "proc count:\t\t4")
    )
    assert read_text(old, tmp_path).version == "<=2.1"
    oldest = changed(old, ("operations per thread: 8", "operations: 8"))
    assert read_text(oldest, tmp_path).version == "<=2.0"


def test_a_percentile_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    rows = [line for line in made.text().split("\n") if re.match(r"\s+50th \|", line)]
    assert rows
    text = made.text()
    for row in rows:
        cells = row.split("|")
        text = text.replace(row, "|".join([cells[0], "        N/A", *cells[2:]]))
    measurement = only(text, tmp_path)
    read_latency, write_latency = (measurement.ops[op].lat for op in ("read", "write"))
    known = [set(t.percentiles_s) for t in (read_latency, write_latency) if t is not None]
    assert 50.0 not in known[0]
    assert 50.0 in known[1]


def element(name: str) -> re.Pattern[str]:
    return re.compile(rf"<{name}>.*?</{name}>\n?", re.S)


def test_figures_that_the_xml_does_not_have(tmp_path: Path) -> None:
    no_average = element("Average").sub("", made.xml())
    cpu = only(no_average, tmp_path).cpu
    assert cpu is None or cpu.total_pct >= 0
    no_table = re.sub(r"<Latency>.*?</Latency>", "", made.xml(), flags=re.S)
    lat = only(no_table, tmp_path).ops["read"].lat
    assert not lat.percentiles_s
    assert lat.mean_s is not None  # of the threads
    no_buckets = element("Bucket").sub("", made.xml())
    lat = only(no_buckets, tmp_path).ops["read"].lat
    assert not lat.percentiles_s


def test_a_thread_without_its_counts_is_left_out_and_said(tmp_path: Path) -> None:
    cut = re.sub(r"<ReadCount>\d+</ReadCount>", "", made.xml(), count=1)
    measurement = only(cut, tmp_path)
    assert has(measurement.warnings, "thread-cut")
    assert measurement.ops["read"].count < only(made.xml(), tmp_path).ops["read"].count


@pytest.mark.parametrize(
    ("target", "access"),
    [
        ("<StrideSize>4096</StrideSize>", "sequential"),
        ("", None),
        ("<Random>4096</Random><RandomRatio>60</RandomRatio>", None),
        ("<Random>4096</Random><RandomRatio>100</RandomRatio>", "random"),
    ],
)
def test_access_of_the_xml(target: str, access: str | None, tmp_path: Path) -> None:
    text = changed(made.xml(), ("<Random>4096</Random>", target))
    assert only(text, tmp_path).conditions.access == access


def test_rates_of_the_xml(tmp_path: Path) -> None:
    """Bytes per millisecond without a unit; one thread a file, two files."""
    old = "<Throughput>0</Throughput>"
    iops = changed(made.xml(), (old, '<Throughput unit="IOPS">500</Throughput>'))
    assert only(iops, tmp_path).conditions.rate_iops == 1000
    rate = changed(made.xml(), (old, "<Throughput>4096</Throughput>"))
    assert only(rate, tmp_path).conditions.rate_iops == 2000
    negative = changed(made.xml(), (old, "<Throughput>-1</Throughput>"))
    assert only(negative, tmp_path).conditions.rate_iops is None


def test_threads_that_share_their_targets(tmp_path: Path) -> None:
    """-F and -O: so many threads, and so many requests of each over all files."""
    text = changed(
        made.xml(),
        ("<ThreadCount>0</ThreadCount><RequestCount>0</RequestCount><Targets>",
         "<ThreadCount>2</ThreadCount><RequestCount>6</RequestCount><Targets>"),
    )  # fmt: skip
    conditions = only(text, tmp_path).conditions
    assert (conditions.jobs, conditions.iodepth) == (2, 6)


def test_a_failed_timespan_is_said(tmp_path: Path) -> None:
    one = re.search(r"<TimeSpan><TestTime.*?</TimeSpan>", made.xml(), re.S)
    failed = "<TimeSpan><Error>no space</Error></TimeSpan>"
    capture = read_text(changed(made.xml(), (one[0], failed + one[0])), tmp_path)
    assert capture.measurements[0].label.startswith("timespan 2")
    assert "timespan 1: no space" in capture.warnings
    with pytest.raises(CaptureError):
        read_text(changed(made.xml(), (one[0], failed)), tmp_path)


def test_results_in_one_file_are_told_apart(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data" / "diskspd-text" / "linux_mix7030.txt").read_text()
    path = tmp_path / "sweep.txt"
    path.write_text(text + text.replace("-o4", "-o8").replace("operations: 4)", "operations: 8)"))
    first, second = read_capture(path).measurements
    assert (first.label, second.label) == ("timespan 1 (run 1)", "timespan 1 (run 2)")
    assert (first.conditions.iodepth, second.conditions.iodepth) == (4, 8)


def test_a_run_whose_parameters_were_cut_does_not_take_those_of_another(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data" / "diskspd-text" / "linux_mix7030.txt").read_text()
    results = text[text.index("Results for job 1:") :]
    path = tmp_path / "sweep.txt"
    path.write_text(f"{text}\nCommand Line: diskspd -b4K -r -o8 -t2 -w30 a.dat\n\n{results}")
    first, second = read_capture(path).measurements
    assert (first.conditions.iodepth, first.conditions.block_size) == (4, 4096)
    assert second.conditions.iodepth == 8


@pytest.mark.parametrize("wrap", [hard, soft])
@pytest.mark.parametrize("width", [68, 72, 76, 80, 90])
def test_tables_that_were_wrapped_are_whole_again(wrap, width: int, tmp_path: Path) -> None:
    """Rows are joined until they have the cells that the header says, numbers that were cut too."""
    for path in (DATA / "diskspd-text").glob("*.txt"):
        mailed = tmp_path / path.name
        mailed.write_text(quoted("> ")(wrap(width)(path.read_text())))
        assert read_capture(mailed).measurements == read_capture(path).measurements
