"""blkparse text and blktrace's own files: forms, figures known from elsewhere, damage."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture import lines
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers import blkparse
from nvmesim.capture.registry import read_capture
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from tests.capture.contract import DATA, counted, read_text, refused, table, written

LINE = "259,1    1  {seq:7}     {time:.9f}   372  {action}  {rwbs} {sector} + {n} [{end}]\n"


def sample(name: str) -> bytes:
    return gzip.decompress((DATA / "blkparse" / f"{name}.txt.gz").read_bytes())


def line(action: str, time: float, sector: int = 0, rwbs: str = "R", n: int = 8) -> str:
    end = "0" if action == "C" else "fio"
    return LINE.format(seq=1, time=time, action=action, rwbs=rwbs, sector=sector, n=n, end=end)


def test_latency_is_what_blkparse_t_prints() -> None:
    """With -t a C line carries the time since its D: the reader must find the same."""
    printed = re.findall(rb" C .*\( *(\d+)\)", sample("rr_qd4_opt_t"))
    found = table(read_capture(DATA / "blkparse" / "rr_qd4_opt_t.txt.gz"))
    assert found["latency_ns"].to_list() == [int(t) for t in printed]
    assert len(printed) == 100


def test_raid0_volume_and_members() -> None:
    capture = read_capture(DATA / "blkparse" / "md_raid0_randread256k.txt.gz")
    counts = {m.label: m.ops["read"].count for m in capture.measurements}
    assert counts == {"9,2": 60, "259,1": 60, "259,2": 60}
    sizes = {m.label: m.conditions.block_size for m in capture.measurements}
    assert sizes == {"9,2": 262144, "259,1": 131072, "259,2": 131072}


def test_raid5_bio_ends_with_the_last_of_four_completions() -> None:
    capture = read_capture(DATA / "blkparse" / "md_raid5_randread256k.txt.gz")
    frame = table(capture)
    volume = frame.filter(pl.col("device") == "9,0")
    members = frame.filter(pl.col("device") != "9,0")
    assert (volume.height, members.height) == (60, 240)
    assert volume["latency_ns"].min() > members["latency_ns"].min()


def test_footer_and_events_agree() -> None:
    text = sample("single_randrw").decode()
    reads, writes = (
        int(re.findall(rf"{what} Completed: +(\d+)", text)[-1]) for what in ("Reads", "Writes")
    )
    measurement = read_capture(DATA / "blkparse" / "single_randrw.txt.gz").measurements[0]
    assert (measurement.ops["read"].count, measurement.ops["write"].count) == (reads, writes)
    assert measurement.conditions.read_fraction == pytest.approx(reads / (reads + writes))


def test_merged_bios_are_one_command() -> None:
    capture = read_capture(DATA / "blkparse" / "buffered_seqwrite_merges.txt.gz")
    assert table(capture)["bytes"].to_list() == [520192]


def test_flush_steps_are_not_requests(tmp_path: Path) -> None:
    text = (
        "259,1    1        1     0.100000000   372  D  FN [kworker/1:1H]\n"
        "259,1    1        2     0.200000000     0  C  FN 0 [0]\n"
        + line("D", 0.3, rwbs="WFSM")
        + "259,1    1        4     0.350000000     0  C  WS 0 [0]\n"
        + line("C", 0.4, rwbs="WFSM")
        + line("D", 0.5, rwbs="DS", n=4096)
        + line("C", 0.6, rwbs="DS", n=4096)
    )
    capture = read_capture(written(tmp_path / "t", text))
    assert table(capture)["op"].to_list() == ["write"]
    assert capture.skipped == 0
    assert capture.warnings == (
        "3 flush steps and commands without sectors (not in the table)",
        "1 flushes, discards or other commands (not in the table)",
    )


def test_every_damaged_line_is_counted(tmp_path: Path) -> None:
    bad = [
        "cpu1 lost 37 events\n",
        "259,1  x  10 0.1 372 Q R 1 + 8 [fio]\n",
        line("D", 0.3).replace("[fio]", "[fi"),
        line("D", 0.3, sector=10**17),
        line("D", 0.3, n=10**11),
        line("D", 0.3).replace("0.3", "9999999999999999999999.3"),
        line("D", 0.3).replace("0.3", "-0.3"),
        line("D", 0.3).replace("259,1", "259,2000000"),
        line("D", 0.3).replace("259,1", "5000,1"),
        "259,1    1        1     0.\n",
        "\x00\x00\x00\n",
    ]
    good = [line("D", 0.1) + line("C", 0.2), line("D", 0.5) + line("C", 0.6)]
    capture = read_text("".join([good[0], *bad, good[1]]), tmp_path)
    assert capture.skipped == len(bad)
    assert capture.rows == 2


def test_lost_events_are_said(tmp_path: Path) -> None:
    skips = "Skips: 2 forward (1,234 -  10.0%)\nSkips: 1 forward (56 - 1%)\n"
    capture = read_text(line("D", 0.1) + line("C", 0.2) + skips, tmp_path)
    assert counted(capture.warnings, "events-lost") == 1290


def test_a_trace_of_issues_alone_is_refused(tmp_path: Path) -> None:
    said = refused(line("D", 0.1) + line("D", 0.2, sector=8), tmp_path)
    assert "without one whole request" in said
    assert "2 issues with no completion" in said


@pytest.mark.parametrize("size", [200, 10_000])
def test_chunks_of_any_size_give_the_same(size: int, monkeypatch) -> None:
    path = DATA / "blkparse" / "mix_qd16_fsync.CUT1600.txt.gz"
    whole = read_capture(path)
    cut = lines.chunks
    monkeypatch.setattr(blkparse, "chunks", lambda source: cut(source, size))
    monkeypatch.setattr(blkparse, "SMALL", 400)
    parts = read_capture(path)
    assert table(parts).equals(table(whole))
    assert (parts.rows, parts.skipped) == (whole.rows, whole.skipped)
    assert set(parts.warnings) == set(whole.warnings)


def test_a_long_trace_is_read_again_in_batches(monkeypatch, tmp_path: Path) -> None:
    path = DATA / "blkparse" / "single_randrw.txt.gz"
    kept = table(read_capture(path))
    monkeypatch.setattr(request_table, "KEEP_ROWS", 10)
    capture = read_capture(path)
    assert table(capture).equals(kept)
    some = capture.requests.filter(pl.col("op") == "read").select("latency_ns").head(3).collect()
    assert some.equals(kept.filter(pl.col("op") == "read").select("latency_ns").head(3))
    out = tmp_path / "t.parquet"
    capture.requests.sink_parquet(out)
    assert pl.read_parquet(out).height == kept.height


def test_histogram_and_percentiles_are_of_the_latencies() -> None:
    capture = read_capture(DATA / "blkparse" / "single_randrw.txt.gz")
    latency = capture.measurements[0].ops["read"].clat
    took = table(capture).filter(pl.col("op") == "read")["latency_ns"].sort()
    assert latency.mean_s == pytest.approx(took.mean() / 1e9)
    assert latency.min_s == pytest.approx(took.min() / 1e9)
    assert latency.max_s == pytest.approx(took.max() / 1e9)
    assert latency.stddev_s == pytest.approx(took.std(ddof=0) / 1e9, rel=1e-6)
    for percent in (50.0, 90.0, 99.0):
        exact = took[int(np.ceil(percent / 100 * took.len())) - 1] / 1e9
        assert latency.percentiles_s[percent] == pytest.approx(exact, rel=0.004)
    assert latency.bin_count.sum() == latency.count == took.len()


def binary() -> bytes:
    return gzip.decompress((DATA / "blktrace" / "nb2.gz").read_bytes())


def records(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = 48 + int.from_bytes(data[at + 46 : at + 48], "little")
        found.append(data[at : at + size])
        at += size
    return found


def test_binary_files_of_several_cpus_are_merged(tmp_path: Path) -> None:
    whole = read_capture(written(tmp_path / "one", binary()))
    parts = [b"", b"", b""]
    for i, record in enumerate(records(binary())):
        parts[i * 7 % 3] += record
    paths = [written(tmp_path / f"nb2.blktrace.{i}", part) for i, part in enumerate(parts)]
    written(tmp_path / "nb2.blktrace.3", b"")
    written(tmp_path / "nb20.blktrace.0", binary())
    assert blkparse.binary_parts(paths[0]) == tuple(paths)
    capture = read_capture(paths[0])
    assert table(capture).equals(table(whole))
    assert whole.rows == 120
    assert whole.measurements[0].ops["write"].clat.mean_s == pytest.approx(3980.872e-6, rel=1e-6)


def test_binary_damage_is_passed_over(tmp_path: Path) -> None:
    parts = records(binary())
    parts[10] = b"damage" + parts[10]
    capture = read_capture(written(tmp_path / "t", b"".join(parts) + b"\x07tae\0"))
    assert (capture.rows, capture.skipped) == (120, 2)


def test_binary_in_small_chunks(monkeypatch) -> None:
    path = DATA / "blktrace" / "nb2.gz"
    whole = table(read_capture(path))
    monkeypatch.setattr(blkparse, "BINARY_CHUNK", 500)
    found = pl.concat(
        request_table.block_frame(b) for b in blkparse.binary_blocks(Source(path), Notes())
    )
    assert found.equals(whole)


def test_blktrace_of_a_big_endian_machine_reads_the_same(tmp_path: Path) -> None:
    """s390 and old POWER machines write every number the other way round."""
    fields = "IIQQIIIIIHH"
    whole = [r for r in records(binary()) if len(r) >= 48 + int.from_bytes(r[46:48], "little")]
    big = [struct.pack(f">{fields}", *struct.unpack_from(f"<{fields}", r)) + r[48:] for r in whole]
    ours = read_capture(written(tmp_path / "sda.blktrace.0", b"".join(big)))
    same = read_capture(written(tmp_path / "one.bin", b"".join(whole)))
    assert ours.rows == same.rows > 0
    assert table(ours).equals(table(same))


def test_another_version_of_blktrace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="version 6, where 7 is known"):
        read_capture(written(tmp_path / "sda.blktrace.0", b"\x06tae" + bytes(60)))
