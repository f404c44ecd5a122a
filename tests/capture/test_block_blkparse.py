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

from nvmesim.capture.capture import fio_bin_index
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers import blktrace_binary
from nvmesim.capture.registry import read_capture
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.requests import table as tally
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from tests.capture.contract import DATA, counted, read_text, refused, sample, table, written

LINE = "259,1    1  {seq:7}     {time:.9f}   372  {action}  {rwbs} {sector} + {n} [{end}]\n"


def line(action: str, time: float, sector: int = 0, rwbs: str = "R", n: int = 8) -> str:
    end = "0" if action == "C" else "fio"
    return LINE.format(seq=1, time=time, action=action, rwbs=rwbs, sector=sector, n=n, end=end)


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


def test_lost_events_are_said(tmp_path: Path) -> None:
    skips = "Skips: 2 forward (1,234 -  10.0%)\nSkips: 1 forward (56 - 1%)\n"
    capture = read_text(line("D", 0.1) + line("C", 0.2) + skips, tmp_path)
    assert counted(capture.warnings, "events-lost") == 1290


def test_a_trace_of_issues_alone_is_refused(tmp_path: Path) -> None:
    said = refused(line("D", 0.1) + line("D", 0.2, sector=8), tmp_path)
    assert "without one whole request" in said
    assert "2 issues with no completion" in said


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


def test_times_of_fewer_decimals(tmp_path: Path) -> None:
    """The default form is read by its words where the point is not where it was before."""
    good = line("D", 0.25, 8) + line("C", 0.5, 8) + line("D", 1.125, 16) + line("C", 1.25, 16)
    short = re.sub(r"(\.\d+?)0+ ", r"\1 ", good)
    assert ".125 " in short
    whole = table(read_capture(written(tmp_path / "t", good)))
    assert table(read_capture(written(tmp_path / "u", short))).equals(whole)
    assert whole["latency_ns"].to_list() == [250_000_000, 125_000_000]


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


def test_operations_by_their_letters(tmp_path: Path) -> None:
    """A preflush stands before the write it belongs to; alone it is not a request."""
    text = ""
    for k, rwbs in enumerate(("R", "WS", "FWFS", "F", "FN", "DS", "RA", "N"), 1):
        text += line("D", k / 10, 100 * k, rwbs) + line("C", k / 10 + 0.01, 100 * k, rwbs)
    capture = read_text(text, tmp_path)
    frame = table(capture)
    assert frame.schema["op"] == pl.Enum(["read", "write"])
    assert frame["op"].to_list() == ["read", "write", "write", "read"]
    assert frame["depth"].to_list() == [1] * 4
    assert counted(capture.warnings, "other-commands") == 4


def test_two_volumes_and_their_devices(tmp_path: Path) -> None:
    """Q events count where a device has no commands of its own, in any order of devices."""
    text = ""
    for k in range(1, 6):
        for device in ("9,0", "259,1", "9,1"):
            first = "D" if device == "259,1" else "Q"
            text += line(first, k / 10, 100 * k).replace("259,1", device)
        for device in ("9,1", "259,1", "9,0"):
            text += line("C", k / 10 + 0.05, 100 * k).replace("259,1", device)
    found = table(read_capture(written(tmp_path / "t", text)))
    assert found.group_by("device").len().sort("device")["len"].to_list() == [5, 5, 5]
    assert found["latency_ns"].unique().to_list() == [50_000_000]


def test_a_bio_inside_a_bio_goes_to_the_one_of_its_size(tmp_path: Path) -> None:
    """An equal range is preferred to a larger one that holds it."""

    def bio(action: str, time: float, sector: int, n: int) -> str:
        return line(action, time, sector, n=n).replace("259,1", "9,0")

    text = bio("Q", 0.1, 0, 64) + bio("Q", 0.2, 8, 8) + bio("C", 0.3, 8, 8)
    text += bio("C", 0.4, 0, 32) + bio("C", 0.5, 32, 32) + bio("Q", 0.6, 0, 8) + bio("C", 0.7, 0, 8)
    found = table(read_capture(written(tmp_path / "t", text))).select("issue_ns", "complete_ns")
    assert found.rows() == [
        (200_000_000, 300_000_000), (100_000_000, 500_000_000), (600_000_000, 700_000_000),
    ]  # fmt: skip


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
    assert tally.bin_middle_ns(found)[0] == pytest.approx(value, rel=1 / 256, abs=0)


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
