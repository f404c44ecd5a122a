# ruff: noqa: E501 - lines are as long as the tools print them
"""Traps of the formats: what a reader that trusts the usual file gets wrong."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.capture.text import Source
from nvmesim.warning import has
from tests.capture import composed
from tests.capture.contract import counted, table, written
from tests.capture.test_fio_json import group

DATA = Path(__file__).parent / "data"


# fio


def test_the_jobs_beside_a_failed_one_are_read(tmp_path: Path) -> None:
    table = group()
    good = table["jobs"][0]
    table["jobs"].append({**good, "jobname": "bad", "error": 84})
    capture = read_capture(written(tmp_path / "c.json", json.dumps(table)))
    assert capture.measurements[0].ops["read"].count == good["read"]["total_ios"]
    assert has(capture.warnings, "job-failed")


def test_a_job_that_goes_on_after_errors_is_read(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0].update(error=84, total_err=3)
    table["jobs"][0]["job options"]["continue_on_error"] = "verify"
    capture = read_capture(written(tmp_path / "c.json", json.dumps(table)))
    assert any("3 requests failed" in w for w in capture.measurements[0].warnings)


# DiskSpd


def test_the_iops_series_of_diskspd(tmp_path: Path) -> None:
    text = Source(DATA / "diskspd-xml" / "two_targets.xml.gz").text()
    buckets = "".join(
        f'<Bucket SampleMillisecond="{1000 * k}" Read="{4600 + k}" Write="2000" Total="6600" '
        f'ReadAvgLatencyMilliseconds="0.10{k}" WriteAvgLatencyMilliseconds="0,015"/>'
        for k in (1, 2, 3)
    )
    series = f"<Iops><ReadIopsStdDev>1</ReadIopsStdDev>{buckets}</Iops>"
    # The first Thread follows the totals' tables; each Target may have a series of its own.
    capture = read_capture(
        written(tmp_path / "d.xml", text.replace("<Thread>", series + "<Thread>", 1))
    )
    reads = capture.series.filter(pl.col("op") == "read")
    rates = reads.filter(pl.col("kind") == "iops")
    assert rates["time_s"].to_list() == [1.0, 2.0, 3.0]
    assert rates["value"].to_list() == [4601.0, 4602.0, 4603.0]
    writes = capture.series.filter((pl.col("op") == "write") & (pl.col("kind") == "lat"))
    assert writes["value"].to_list() == pytest.approx([15e-6] * 3)


# Traces


def test_ascii_traces_say_how_their_last_column_was_taken(tmp_path: Path) -> None:
    replayer = "".join(f"{i}.5,0,{4096 * i},8192,{i % 2}\n" for i in range(20))
    capture = read_capture(written(tmp_path / "b.trace", replayer))
    assert capture.format == "replayer"
    assert {op: r.count for op, r in capture.measurements[0].ops.items()} == {
        "read": 10,
        "write": 10,
    }
    assert table(capture)["op"].to_list()[:2] == ["write", "read"]
    assert "1 reads, 0 writes" in capture.warnings[0]
    assert table(capture)["issue_ns"].to_list()[:3] == [0, 1_000_000, 2_000_000]


def test_trace_cmd_pads_behind_the_event(tmp_path: Path) -> None:
    lines = [
        "cpus=8",
        "   fio-538   [001] 157.892812: block_rq_issue:       259,0 R 4096 () 31616 + 8 [fio]",
        "   kw: 3: x-9 [000] 157.892900: block_rq_complete:    259,0 R () 31616 + 8 [0]",
        "CPU:2 [LOST 17 EVENTS]",
        "   fio-538   [001] 157.893000: sched_switch:         a ==> b",
        "   fio-538   [001] 157.893000: block_rq_issue:       259,0 R 4096 () 316",
    ]
    capture = read_capture(written(tmp_path / "t.txt", "\n".join(lines) + "\n"))
    assert table(capture)["latency_ns"].to_list() == [88_000]
    assert capture.skipped == 1
    assert counted(capture.warnings, "events-lost") == 17


def test_biosnoop_columns_follow_the_header(tmp_path: Path) -> None:
    plain = read_capture(written(tmp_path / "a.txt", composed.biosnoop(20, queue=False)))
    header, *rows = composed.biosnoop(20).splitlines()
    text = header.replace("QUE(ms)", "PATTERN") + "\n"
    for row in rows:
        first, _, latency = row.rsplit(maxsplit=2)
        text += f"{first} RANDOM {latency}\n"
    other = read_capture(written(tmp_path / "b.txt", text))
    assert table(other).equals(table(plain))


def test_quoted_cells_are_read(tmp_path: Path) -> None:
    text = composed.msr(40)
    lines = ['"' + line.replace(",", '","') + '"\n' for line in text.splitlines()]
    plain = read_capture(written(tmp_path / "t", text))
    # Quotes around what must be a number everywhere would be no MSR trace to the sniffer.
    other = read_capture(written(tmp_path / "o", text[: text.index("\n") + 1] + "".join(lines[1:])))
    assert table(other).equals(table(plain))


OLD_IOSTAT = """Linux 3.10.0 (host) \t01/07/2024 \t_x86_64_\t(4 CPU)

avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           2.00    0.00    3.00    1.00    0.00   94.00

{head}
{row}

avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           2.00    0.00    3.00    1.00    0.00   94.00

{head}
{row}

"""


@pytest.mark.parametrize(
    ("head", "row"),
    [
        (
            "Device:         rrqm/s   wrqm/s     r/s     w/s   rsec/s   wsec/s avgrq-sz avgqu-sz   await  svctm  %util",
            "sda               0.00     1.00  100.00   50.00   800.00   400.00     8.00     0.30    2.00   0.50  30.00",
        ),
        (
            "Device:         rrqm/s   wrqm/s     r/s     w/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  %util",
            "sda               0.00     1.00  100.00   50.00   400.00   200.00     8.00     0.30    2.00    2.00    2.00   0.50  30.00",
        ),
        (
            "Device            r/s     w/s     rMB/s     wMB/s   rrqm/s   wrqm/s  %rrqm  %wrqm r_await w_await aqu-sz rareq-sz wareq-sz  svctm  %util",
            "sda            100.00   50.00 0.390625 0.1953125     0.00     1.00   0.00   1.00    2.00    2.00   0.30     4.00     4.00   0.50  30.00",
        ),
        (
            "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util",
            "sda            100.00    400.00     0.00   0.00    2.00     4.00   50.00    200.00     1.00   1.00    2.00     4.00    0.00      0.00     0.00   0.00    0.00     0.00    0.00    0.00    0.30  30.00",
        ),
    ],
)
def test_iostat_of_every_version(tmp_path: Path, head: str, row: str) -> None:
    for comma in (False, True):
        text = OLD_IOSTAT.format(head=head, row=row.replace(".", ",") if comma else row)
        measurement = read_capture(written(tmp_path / "i", text)).measurements[0]
        read, write = measurement.ops["read"], measurement.ops["write"]
        assert (read.iops, write.iops) == (100.0, 50.0)
        assert (read.bytes_per_s, write.bytes_per_s) == (409600.0, 204800.0)
        assert measurement.disk_util_pct == {"sda": 30.0}
        assert measurement.conditions.depth_mean == 0.3
        assert read.clat.mean_s == pytest.approx(0.002)
