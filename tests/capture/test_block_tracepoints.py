"""Tracepoints as perf, ftrace, bpftrace and bcc print them, and published traces; damaged, too."""

import re
from pathlib import Path

from nvmesim.capture.registry import read_capture
from tests.capture.contract import DATA, read_text, sample

BIOSNOOP = sample("biosnoop/bcc.txt")


def test_csv_columns_are_found_by_their_header(tmp_path: Path) -> None:
    lines = sample("tracepoints/bpftrace.csv.gz").split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("ts_ns,"))
    rows = [x.split(",") for x in lines[start:] if x.strip()]
    order = ["ts_ns", "ev", "sector", "nr_sector", "dev_major", "dev_minor", "rwbs"]
    text = "".join(",".join(r[rows[0].index(c)] for c in order) + "\n" for r in rows)
    first = read_capture(DATA / "tracepoints" / "bpftrace.csv.gz").requests.collect()
    assert read_text(text, tmp_path).requests.collect().equals(first)


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


def test_narrow_bins_are_not_said_to_double(tmp_path: Path) -> None:
    text = "@lat_us:\n[20, 30)            512 |@@@@|\n[30, 40)              4 |    |\n"
    assert read_text(text, tmp_path).warnings == ("percentiles are the middles of bins",)
