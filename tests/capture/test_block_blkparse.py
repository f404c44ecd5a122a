"""blkparse text and blktrace's own files: forms, figures known from elsewhere, damage, odd lines.

The coverage run takes these with the JIT off, where the kernels are Python.
"""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture.capture import fio_bin_index, fio_bin_value
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers import blktrace_binary
from nvmesim.capture.registry import read_capture
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.requests import table as tally
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from tests.capture.contract import DATA, counted, refused, sample, table, written


def test_latency_is_what_blkparse_t_prints() -> None:
    """With -t a C line carries the time since its D: the reader must find the same."""
    printed = re.findall(r" C .*\( *(\d+)\)", sample("blkparse/rr_qd4_opt_t.txt.gz"))
    found = table(read_capture(DATA / "blkparse" / "rr_qd4_opt_t.txt.gz"))
    assert found["latency_ns"].to_list() == [int(t) for t in printed]
    assert len(printed) == 100


def test_the_forms_of_f_give_what_the_default_form_gives() -> None:
    default = table(read_capture(DATA / "blkparse" / "rr_qd4_opt_t.txt.gz"))
    for name in ("rr_qd4_fmt_fields", "rr_qd4_fmt_csv", "rr_qd4_fmt_commaspace"):
        form = table(read_capture(DATA / "blkparse" / f"{name}.txt.gz"))
        columns = ["issue_ns", "complete_ns", "bytes", "offset", "depth"]
        assert form.select(columns).equals(default.select(columns).head(form.height))
    assert form["op"].null_count() == form.height
    assert read_capture(DATA / "blkparse" / "rr_qd4_fmt_commaspace.txt.gz").measurements[0].mixed


def test_raid5_bio_ends_with_the_last_of_four_completions() -> None:
    capture = read_capture(DATA / "blkparse" / "md_raid5_randread256k.txt.gz")
    frame = table(capture)
    volume = frame.filter(pl.col("device") == "9,0")
    members = frame.filter(pl.col("device") != "9,0")
    assert (volume.height, members.height) == (60, 240)
    assert volume["latency_ns"].min() > members["latency_ns"].min()


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
    assert blktrace_binary.parts(paths[0]) == tuple(paths)
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
    monkeypatch.setattr(blktrace_binary, "BINARY_CHUNK", 500)
    found = pl.concat(
        request_table.block_frame(b) for b in blktrace_binary.binary_blocks(Source(path), Notes())
    )
    assert found.equals(whole)


@pytest.mark.parametrize(
    ("magic", "found"), [(b"eat\x07", "big-endian"), (b"\x06tae", "version 6, where 7 is known")]
)
def test_blktrace_of_another_kind_is_refused(magic: bytes, found: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=found):
        read_capture(written(tmp_path / "sda.blktrace.0", magic + bytes(60)))


RECORD = "<IIQQIIIIIHH"
QUEUE, REQUEUE, ISSUE, COMPLETE = 1, 6, 7, 8
READ, WRITE, FLUSH, NOTIFY, PASSTHROUGH, DISCARD = (1 << n for n in (0, 1, 2, 10, 9, 13))


def fields(action: str, time: float, sector: object = 0, n: object = 8, rwbs: str = "R") -> str:
    """A line of ``-f "%D %2c %8s %5T.%9t %5p %2a %3d %S %n"``."""
    return f"259,1    1        1     {time:.9f}   372  {action}   {rwbs} {sector} {n}\n"


GOOD = "".join(
    fields("D", k / 10, 1000 * k + 8) + fields("C", k / 10 + 0.05, 1000 * k + 8)
    for k in range(1, 9)
)


def test_damaged_lines_of_a_form_are_counted(tmp_path: Path) -> None:
    bad = [
        "259,1 1 1\n",
        fields("D", 0.3, "x12"),
        fields("D", 0.3, 10**17),
        fields("D", 0.3, 8, 10**11),
        fields("D", 0.3).replace("0.300000000", "0.30000000x"),
        fields("D", 0.3).replace("0.300000000", "9999999163.300000000"),
        fields("D", 0.3).replace("0.300000000", 40 * "9" + ".300000000"),
        fields("D", 0.3).replace("259,1", "5000,1"),
        fields("DDD", 0.3),
    ]
    capture = read_capture(written(tmp_path / "t", GOOD + "".join(bad)))
    assert (capture.rows, capture.skipped) == (8, len(bad))


def test_what_is_no_request_of_a_form_is_passed_over(tmp_path: Path) -> None:
    other = fields("UT", 0.9) + fields("G", 0.9) + fields("D", 0.91, 0, 0) + "\n"
    capture = read_capture(written(tmp_path / "t", GOOD + other))
    assert (capture.rows, capture.skipped) == (8, 0)
    assert counted(capture.warnings, "flush-steps") == 1


def test_a_length_in_bytes_is_told_from_one_in_sectors(tmp_path: Path) -> None:
    """Where no column confirms it, lengths that are all multiples of 512 are bytes."""
    sizes = table(read_capture(written(tmp_path / "t", GOOD.replace(" 8\n", " 4096\n"))))
    assert set(sizes["bytes"].to_list()) == {4096}
    assert set(table(read_capture(written(tmp_path / "u", GOOD)))["bytes"].to_list()) == {4096}


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace(" 8\n", "\n"),  # no length
        "".join(f"{k} one two three four\n" for k in range(9)),
        "".join(f"259,1 1 1 0.{k}00000000 372 Q R 8 + 8\n" for k in range(9)),  # no completion
    ],
)
def test_columns_that_lack_what_is_needed(text: str, tmp_path: Path) -> None:
    assert refused(text, tmp_path)


def record(
    action: int,
    time: int,
    sector: int = 0,
    n_bytes: int = 4096,
    kind: int = READ,
    more: bytes = b"",
) -> bytes:
    return struct.pack(
        RECORD, 0x65617407, 1, time, sector, n_bytes, action | kind << 16, 372, (8 << 20) | 1, 0, 0,
        len(more),
    ) + more  # fmt: skip


def pair(sector: int, kind: int, at: int) -> bytes:
    return record(ISSUE, at, sector, kind=kind) + record(COMPLETE, at + 50, sector, kind=kind)


def test_records_of_blktrace(tmp_path: Path) -> None:
    """A time or sector of 2**63 and more is none; a requeued command counts once."""
    data = pair(8, READ, 1000) + pair(16, WRITE, 2000)
    data += pair(24, DISCARD | WRITE, 3000) + pair(32, PASSTHROUGH, 4000) + pair(40, FLUSH, 5000)
    data += pair(48, 0, 6000)
    data += record(ISSUE, 1 << 63, 8) + record(ISSUE, 7000, 1 << 63)
    data += record(ISSUE, 8000, 56) + record(REQUEUE, 8010, 56) + pair(56, READ, 8020)
    data += record(QUEUE, 9000, 64, 0) + record(ISSUE, 9000, 64, 0)
    data += record(0, 9100, kind=NOTIFY, more=b"fio\0") + pair(72, READ, 9200)
    capture = read_capture(written(tmp_path / "sda.blktrace.0", data))
    assert table(capture)["op"].to_list() == ["read", "write", "read", "read"]
    assert set(table(capture)["latency_ns"].to_list()) == {50}
    assert capture.skipped == 1
    said = " ".join(capture.warnings)
    assert "4 flushes, discards or other commands" in said
    assert "2 flush steps and commands without sectors" in said


def test_a_blktrace_of_two_disks_and_one_cut_record(tmp_path: Path) -> None:
    other = struct.pack(
        RECORD, 0x65617407, 1, 1500, 8, 4096, ISSUE | READ << 16, 1, (8 << 20) | 2, 0, 0, 0
    )
    data = record(ISSUE, 1000, 8) + other + record(COMPLETE, 2000, 8) + binary()[:20]
    capture = read_capture(written(tmp_path / "sda.blktrace.0", data))
    assert capture.rows == 1
    assert any("1 issues" in w or "1 requests" in w for w in capture.warnings)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 255, 256, 1000, 10**6, 10**12])
def test_bins_of_a_latency_hold_it(value: int) -> None:
    found = fio_bin_index(np.array([value]), tally.BITS)
    assert fio_bin_value(found, tally.BITS)[0] == pytest.approx(value, rel=1 / 256, abs=0)


def test_more_sizes_than_are_counted_apart() -> None:
    found = tally.Tally()
    n = tally.N_SIZES + 1
    for size in (512 * np.arange(1, n), np.full(n, 512), 512 * np.arange(n, n + 3)):
        assert found.rows == 0 or found.measurements()[0].conditions.block_size is not None
        zeros = np.zeros(size.size, np.int64)
        found.add(tally.rows_of(zeros, zeros + 1000, zeros, size, zeros, zeros), ["sda"])
    (measurement,) = found.measurements()
    assert measurement.conditions.block_size is None
    assert measurement.ops["read"].bytes == 512 * (n * (n - 1) // 2 + n + 3 * n + 3)
