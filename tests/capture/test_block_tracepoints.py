"""Tracepoints as perf, ftrace, bpftrace and bcc print them, and published traces; damaged, too."""

import re
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.warning import has
from tests.capture.contract import DATA, counted, read_text, refused, sample

BIOSNOOP, BIOLATENCY = sample("biosnoop/bcc.txt"), sample("biolatency/bcc.txt")
ISSUE = "fio 538 [001] {t:.6f}: block:block_rq_issue: 259,1 {rwbs} 4096 () {s} + 8 {prio}[{comm}]\n"
DONE = "swapper 0 [001] {t:.6f}: block:block_rq_complete: 259,1 {rwbs} () {s} + 8 {prio}[0]\n"


def test_ioprio_of_newer_kernels_and_commands_with_blanks(tmp_path: Path) -> None:
    text = "".join(
        ISSUE.format(t=1 + i, s=8 * i, rwbs="R", prio="none,0,0 ", comm="Web [x] Content")
        + DONE.format(t=1.5 + i, s=8 * i, rwbs="R", prio="none,0,0 ")
        for i in range(3)
    )
    capture = read_text(text, tmp_path)
    assert (capture.rows, capture.skipped) == (3, 0)
    assert capture.measurements[0].ops["read"].clat.mean_s == pytest.approx(0.5)


def test_trace_cmd_pads_behind_the_event(tmp_path: Path) -> None:
    lines = [
        "cpus=8",
        "   fio-538   [001] 157.892812: block_rq_issue:       259,0 R 4096 () 31616 + 8 [fio]",
        "   kw: 3: x-9 [000] 157.892900: block_rq_complete:    259,0 R () 31616 + 8 [0]",
        "CPU:2 [LOST 17 EVENTS]",
        "   fio-538   [001] 157.893000: sched_switch:         a ==> b",
        "   fio-538   [001] 157.893000: block_rq_issue:       259,0 R 4096 () 316",
    ]
    capture = read_text("\n".join(lines) + "\n", tmp_path)
    assert capture.requests.collect()["latency_ns"].to_list() == [88_000]
    assert capture.skipped == 1
    assert counted(capture.warnings, "events-lost") == 17


def test_csv_columns_are_found_by_their_header(tmp_path: Path) -> None:
    lines = sample("tracepoints/bpftrace.csv.gz").split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("ts_ns,"))
    rows = [x.split(",") for x in lines[start:] if x.strip()]
    order = ["ts_ns", "ev", "sector", "nr_sector", "dev_major", "dev_minor", "rwbs"]
    text = "".join(",".join(r[rows[0].index(c)] for c in order) + "\n" for r in rows)
    first = read_capture(DATA / "tracepoints" / "bpftrace.csv.gz").requests.collect()
    assert read_text(text, tmp_path).requests.collect().equals(first)


def test_csv_without_a_column_is_refused(tmp_path: Path) -> None:
    text = "ts_ns,ev,sector,nr_sector,rwbs\n1,D,2,8,R\n"
    assert "lacks dev_major, dev_minor" in refused(text, tmp_path)


def test_biosnoop_of_every_version(tmp_path: Path) -> None:
    """Without the time in the queue, with another column for it, with commas for points."""
    rows = [line.rsplit(maxsplit=5) for line in BIOSNOOP.splitlines()[1:]]
    rows = [row for row in rows if row[1] != "F"]  # flushes are no requests
    plain = read_text(BIOSNOOP, tmp_path)
    frame = plain.requests.collect().sort("complete_ns")
    assert frame["offset"].to_list() == [512 * int(row[2]) for row in rows]
    assert frame["bytes"].to_list() == [int(row[3]) for row in rows]
    assert frame["latency_ns"].to_list() == [round(1e6 * float(row[5])) for row in rows]
    assert (frame["op"] == "write").to_list() == [row[1] == "W" for row in rows]
    pattern = re.sub(r"\S+( +\S+\n)", r"RANDOM\1", BIOSNOOP.replace("QUE(ms)", "PATTERN"))
    pattern = pattern.replace("RANDOM", "PATTERN", 1)
    without = re.sub(r"\S+ +(\S+)\n", r"\1\n", BIOSNOOP)
    for text in (pattern, without, re.sub(r"(\d)\.(\d)", r"\1,\2", BIOSNOOP)):
        capture = read_text(text, tmp_path)
        assert (capture.rows, capture.skipped) == (60, 0)
        assert capture.requests.collect().equals(plain.requests.collect())


def test_biosnoop_bt_is_refused_with_what_to_do(tmp_path: Path) -> None:
    text = "Attaching 6 probes...\nTIME(ms)     DISK    COMM    PID    LAT(ms)\n1 nvme0 fio 12 0\n"
    said = refused(text, tmp_path)
    assert "without sizes" in said
    assert "trace block_rq_issue" in said


def test_histograms_of_intervals_and_their_mean(tmp_path: Path) -> None:
    table = (
        "     usecs               : count     distribution\n        16 -> 31         : {} |**  |\n"
    )
    text = (
        f"10:00:00\n{table.format(30)}\navg = 21 usecs, total: 630 usecs, count: 30\n\n"
        f"10:00:01\n{table.format(7)}\n"
    )
    first, second = read_text(text, tmp_path).measurements
    assert (first.label, second.label) == ("all 10:00:00", "all 10:00:01")
    assert (first.mixed.count, second.mixed.count) == (30, 7)
    assert first.mixed.clat.mean_s == pytest.approx(630e-6 / 30)
    assert second.mixed.clat.mean_s is None


def test_narrow_bins_are_not_said_to_double(tmp_path: Path) -> None:
    text = "@lat_us:\n[20, 30)            512 |@@@@|\n[30, 40)              4 |    |\n"
    assert read_text(text, tmp_path).warnings == ("percentiles are the middles of bins",)


def test_biolatency_by_flags(tmp_path: Path) -> None:
    text = BIOLATENCY.replace("disk = b'nvme0n1'", "flags = Read")
    text += "\n" + BIOLATENCY.replace("disk = b'nvme0n1'", "flags = Sync-Write")
    capture = read_text(text, tmp_path)
    assert [list(m.ops) for m in capture.measurements] == [["read"], ["write"]]
    assert all(m.mixed is None for m in capture.measurements)


def test_a_histogram_whose_bins_do_not_ascend_is_damaged(tmp_path: Path) -> None:
    text = sample("biolatency/bpftrace.txt", ("[64, 128)", "[4, 8)"))
    assert read_text(text, tmp_path).skipped == 1


def histogram(name: str, *bins: tuple[str, int]) -> str:
    return f"@{name}:\n" + "".join(f"[{span}) {n} |@@@@|\n" for span, n in bins) + "\n"


@pytest.mark.parametrize(
    ("name", "unit_s"),
    [("usecs", 1e-6), ("latency_ssd_ns", 1e-9), ("lat_us", 1e-6), ("io_ms", 1e-3)],
)
def test_the_unit_of_a_map_is_in_its_name(name: str, unit_s: float, tmp_path: Path) -> None:
    text = histogram(name, ("16, 32", 10), ("32, 64", 980), ("64, 128", 10))
    (m,) = read_text(text, tmp_path).measurements
    assert m.mixed.clat.percentiles_s[50.0] == pytest.approx((32 * 64) ** 0.5 * unit_s)
    assert m.mixed.count == 1000


def test_each_map_is_a_series_of_its_own(tmp_path: Path) -> None:
    bins = ("16K, 32K", 5)
    text = "".join(histogram(f"layer_{n}_ns", bins) for n in range(3)) + histogram("bytes", bins)
    capture = read_text("some program says hello\n" + text, tmp_path)
    assert [m.label for m in capture.measurements] == [f"layer_{n}_ns" for n in range(3)]
    assert capture.skipped == 0
    assert any("@bytes: its name does not say" in w for w in capture.warnings)


def test_a_latency_of_months_is_refused(tmp_path: Path) -> None:
    months = histogram("usecs", ("32, 64", 100), ("1T, 2T", 1))
    assert "a latency of 12.7 days or more, which no request" in refused(months, tmp_path)


def test_requests_without_a_response_are_said(tmp_path: Path) -> None:
    capture = read_text(sample("public-trace/systor.csv"), tmp_path)
    assert (capture.rows, capture.skipped) == (57, 0)
    assert capture.warnings == ("3 requests without a response (left out)",)


@pytest.mark.parametrize(("n", "rate"), [(2, 0.0), (3, 3 / 2.1)])
def test_two_requests_make_no_rate(n: int, rate: float, tmp_path: Path) -> None:
    rows = (f"7,R,{4096 * k},4096,{1577808000000000 + k * 1_050_000}\n" for k in range(n))
    (m,) = read_text("".join(rows), tmp_path, "trace.csv").measurements
    assert m.ops["read"].count == n
    assert m.ops["read"].iops == pytest.approx(rate)
    assert has(m.warnings, "few-requests") == (n == 2)
