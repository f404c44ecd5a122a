"""Tracepoints as perf, ftrace, bpftrace and the bcc tools print them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from tests.capture import composed
from tests.capture.contract import written

DATA = Path(__file__).parent / "data"
ISSUE = "fio 538 [001] {t:.6f}: block:block_rq_issue: 259,1 {rwbs} 4096 () {s} + 8 {prio}[{comm}]\n"
DONE = "swapper 0 [001] {t:.6f}: block:block_rq_complete: 259,1 {rwbs} () {s} + 8 {prio}[0]\n"


def sample(name: str) -> str:
    return gzip.decompress((DATA / "tracepoints" / name).read_bytes()).decode()


def test_all_of_perf_script_is_paired() -> None:
    capture = read_capture(DATA / "tracepoints" / "perf_script.txt.gz")
    assert (capture.format, capture.rows, capture.skipped) == ("perf-script", 400, 0)
    assert not capture.warnings
    assert {op: r.count for op, r in capture.measurements[0].ops.items()} == {
        "read": 274,
        "write": 126,
    }


def test_ioprio_of_newer_kernels_and_commands_with_blanks(tmp_path: Path) -> None:
    text = "".join(
        ISSUE.format(t=1 + i, s=8 * i, rwbs="R", prio="none,0,0 ", comm="Web [x] Content")
        + DONE.format(t=1.5 + i, s=8 * i, rwbs="R", prio="none,0,0 ")
        for i in range(3)
    )
    capture = read_capture(written(tmp_path / "t", text))
    assert (capture.rows, capture.skipped) == (3, 0)
    assert capture.measurements[0].ops["read"].clat.mean_s == pytest.approx(0.5)


def test_ftrace_with_other_events_between() -> None:
    capture = read_capture(DATA / "tracepoints" / "ftrace.txt.gz")
    assert (capture.format, capture.rows, capture.skipped) == ("ftrace", 72, 0)


def test_csv_columns_are_found_by_their_header(tmp_path: Path) -> None:
    lines = sample("bpftrace.csv.gz").split("\n")
    start = next(i for i, x in enumerate(lines) if x.startswith("ts_ns,"))
    turned = [",".join(reversed(x.split(","))) for x in lines[start:] if x]
    turned[0] = turned[0].replace("ts_ns,", "")
    first = read_capture(DATA / "tracepoints" / "bpftrace.csv.gz").requests.collect()
    order = ["ts_ns", "ev", "sector", "nr_sector", "dev_major", "dev_minor", "rwbs"]
    header = lines[start].split(",")
    rows = [x.split(",") for x in lines[start + 1 :] if x.strip()]
    text = ",".join(order) + "\n"
    text += "".join(",".join(r[header.index(c)] for c in order) + "\n" for r in rows)
    again = read_capture(written(tmp_path / "t", text)).requests.collect()
    assert again.equals(first)


def test_csv_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="lacks dev_major, dev_minor"):
        read_capture(written(tmp_path / "t", "ts_ns,ev,sector,nr_sector,rwbs\n1,D,2,8,R\n"))


def test_damaged_events_are_counted(tmp_path: Path) -> None:
    text = sample("perf_script.txt.gz")
    lines = text.split("\n")
    lines[5] = lines[5][:70]
    lines[9] = lines[9].replace(" + ", " - ")
    lines.insert(20, "CPU:0 [LOST 12 EVENTS]")
    lines.insert(30, "fio 538 [001] 157.9: sched:sched_switch: prev_comm=x")
    lines.insert(40, "who wrote this?")
    capture = read_capture(written(tmp_path / "t", "\n".join(lines)))
    assert capture.skipped == 3
    assert 396 <= capture.rows < 400


def test_biosnoop_of_both_versions(tmp_path: Path) -> None:
    expected = composed.requests(60)
    for queue in (True, False):
        capture = read_capture(written(tmp_path / "t", composed.biosnoop(queue=queue)))
        frame = capture.requests.collect().sort("issue_ns")
        assert (capture.rows, capture.skipped) == (60, 0)
        assert frame["bytes"].to_list() == expected["bytes"].tolist()
        assert frame["offset"].to_list() == expected["offset"].tolist()
        error = frame["latency_ns"].to_numpy() - expected["latency"]
        assert np.abs(error).max() <= 5_000
    decimal = re.sub(r"(\d)\.(\d)", r"\1,\2", composed.biosnoop())
    comma, point = (
        read_capture(written(tmp_path / "t", text)).requests.collect()
        for text in (decimal, composed.biosnoop())
    )
    assert comma.equals(point)


def test_biosnoop_bt_is_refused_with_what_to_do(tmp_path: Path) -> None:
    text = "Attaching 6 probes...\nTIME(ms)     DISK    COMM    PID    LAT(ms)\n1 nvme0 fio 12 0\n"
    with pytest.raises(CaptureError, match=r"without sizes.*trace block_rq_issue"):
        read_capture(written(tmp_path / "t", text))


def test_biolatency_counts() -> None:
    bpftrace = read_capture(DATA / "biolatency" / "bpftrace.txt").measurements[0]
    assert bpftrace.mixed.count == 357 + 846 + 928 + 557 + 103 + 50 + 74 + 42 + 8 + 5
    assert bpftrace.mixed.clat.percentiles_s[50.0] == pytest.approx((128 * 256) ** 0.5 * 1e-6)
    bcc = read_capture(DATA / "biolatency" / "bcc.txt").measurements[0]
    assert (bcc.label, bcc.mixed.count) == ("nvme0n1", 905)
    assert bcc.mixed.clat.bin_s[0] == pytest.approx((8 * 16) ** 0.5 * 1e-6)


def test_histograms_as_json_are_those_of_the_tables(tmp_path: Path) -> None:
    """``bpftrace -f json`` has inclusive bounds; ``biolatency -j`` prints Python's quotes."""
    path = tmp_path / "h"
    path.write_text(
        '{"type": "attached_probes", "data": {"probes": 2}}\n'
        '{"type": "hist", "data": {"@lat_ns": {"nvme0n1": [{"min": 65536, "max": 131071, '
        '"count": 40}, {"min": 131072, "max": 262143, "count": 8}]}}}\n'
    )
    (m,) = read_capture(path).measurements
    assert (m.label, m.mixed.count) == ("lat_ns nvme0n1", 48)
    assert m.mixed.clat.bin_s.tolist() == pytest.approx([65_536e-9 * 2**0.5, 131_072e-9 * 2**0.5])
    path.write_text(
        "Tracing block device I/O... Hit Ctrl-C to end.\n"
        "{'ts': '2024-01-01 10:00:00', 'val_type': 'usecs', 'data': ["
        "{'interval-start': 64, 'interval-end': 127, 'count': 10}]}\n"
    )
    (m,) = read_capture(path).measurements
    assert m.mixed.clat.bin_s.tolist() == pytest.approx([64e-6 * 2**0.5])
    assert m.mixed.clat.bin_count.tolist() == [10]


def test_histograms_of_intervals_and_their_mean(tmp_path: Path) -> None:
    path = tmp_path / "h"
    table = (
        "     usecs               : count     distribution\n        16 -> 31         : {} |**  |\n"
    )
    path.write_text(
        f"10:00:00\n{table.format(30)}\navg = 21 usecs, total: 630 usecs, count: 30\n\n"
        f"10:00:01\n{table.format(7)}\n"
    )
    first, second = read_capture(path).measurements
    assert (first.label, second.label) == ("all 10:00:00", "all 10:00:01")
    assert (first.mixed.count, second.mixed.count) == (30, 7)
    assert first.mixed.clat.mean_s == pytest.approx(630e-6 / 30)
    assert second.mixed.clat.mean_s is None


def test_narrow_bins_are_not_said_to_double(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text("@lat_us:\n[20, 30)            512 |@@@@|\n[30, 40)              4 |    |\n")
    assert read_capture(path).warnings == ("percentiles are the middles of bins",)


def test_biolatency_by_flags(tmp_path: Path) -> None:
    text = composed.biolatency().replace("disk = b'nvme0n1'", "flags = Read")
    text += "\n" + composed.biolatency().replace("disk = b'nvme0n1'", "flags = Sync-Write")
    capture = read_capture(written(tmp_path / "t", text))
    assert [list(m.ops) for m in capture.measurements] == [["read"], ["write"]]
    assert all(m.mixed is None for m in capture.measurements)


def test_a_histogram_whose_bins_do_not_ascend_is_damaged(tmp_path: Path) -> None:
    text = (DATA / "biolatency" / "bpftrace.txt").read_text()
    capture = read_capture(written(tmp_path / "t", text.replace("[64, 128)", "[4, 8)")))
    assert capture.skipped == 1
    assert isinstance(capture.requests, pl.LazyFrame | None)
