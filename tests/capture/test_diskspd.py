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
DEEP = "<a>" * 5000 + "</a>" * 5000
TIME = re.compile("<TestTimeSeconds>.*?</TestTimeSeconds>")


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
    assert (c.block_size, c.iodepth, c.read_fraction, c.access) == (4096, 8, 0.7, "random")


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


LINUX = "diskspd-text/linux_mix7030.txt"
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
    text = sample(TEXT, (old, new), ("-b4K -r -o8 -t1 -w30 -W1 -d3 -L -Su ", "-d3 "))
    assert getattr(whole(text, tmp_path).conditions, key) == value


RATE = "<Throughput>0</Throughput>"
RANDOM = "<Random>4096</Random>"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (RANDOM, "<StrideSize>4096</StrideSize>", {"access": "sequential"}),
        (RANDOM, "", {"access": None}),
        (RANDOM, f"{RANDOM}<RandomRatio>60</RandomRatio>", {"access": None}),
        (RANDOM, f"{RANDOM}<RandomRatio>100</RandomRatio>", {"access": "random"}),
        # one thread a file, two files; bytes per millisecond where there is no unit
        (RATE, '<Throughput unit="IOPS">500</Throughput>', {"rate_iops": 1000}),
        (RATE, "<Throughput>4096</Throughput>", {"rate_iops": 2000}),
        (RATE, "<Throughput>-1</Throughput>", {"rate_iops": None}),
        # -F and -O: so many threads, and so many requests of each over all files
        ("<ThreadCount>0</ThreadCount><RequestCount>0</RequestCount><Targets>",
         "<ThreadCount>2</ThreadCount><RequestCount>6</RequestCount><Targets>",
         {"jobs": 2, "iodepth": 6}),
    ],
)  # fmt: skip
def test_parameters_of_the_xml(
    old: str, new: str, expected: dict[str, object], tmp_path: Path
) -> None:
    conditions = whole(sample(XML, (old, new)), tmp_path).conditions
    assert {key: getattr(conditions, key) for key in expected} == expected


def test_versions_by_what_they_print(tmp_path: Path) -> None:
    old = [("\tcpu count:\t\t4", ""), ("thread count:\t\t2", "proc count:\t\t4")]
    oldest = [*old, ("operations per thread: 8", "operations: 8")]
    for changes, version in (((), ">=2.2"), (old, "<=2.1"), (oldest, "<=2.0")):
        assert read_text(sample(TEXT, *changes), tmp_path).version == version


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

    cpu = without("Average").cpu
    assert cpu is None or cpu.total_pct >= 0
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


def test_threads_that_share_their_files_are_counted(tmp_path: Path) -> None:
    """diskspd-for-linux prints "threads per file" only where they do not (-F)."""
    text = re.sub(r"^.*threads per file.*\n", "", sample(LINUX, ("-t2", "-F2")), flags=re.M)
    (found,) = read_text(text, tmp_path).measurements
    assert found.conditions.jobs == 2


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
