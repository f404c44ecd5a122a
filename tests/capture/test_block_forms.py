"""Forms of blkparse and records of blktrace line by line, damaged and odd; a model for both ways.

The coverage run takes these with the JIT off, where the kernels are Python.
"""

import re
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture.capture import fio_bin_index
from nvmesim.capture.registry import read_capture
from nvmesim.capture.requests import table as tally
from tests.capture.contract import counted, read_text, refused
from tests.capture.test_block_blkparse import binary, line, table, written

RECORD = "<IIQQIIIIIHH"
QUEUE, REQUEUE, ISSUE, COMPLETE = 1, 6, 7, 8
READ, WRITE, FLUSH, NOTIFY, PASSTHROUGH, DISCARD = (1 << n for n in (0, 1, 2, 10, 9, 13))


def fields(action: str, time: float, sector: object = 0, n: object = 8, rwbs: str = "R") -> str:
    return f"259,1    1        1     {time:.9f}   372  {action}   {rwbs} {sector} + {n} [fio]\n"


GOOD = "".join(
    fields("D", k / 10, 1000 * k + 8) + fields("C", k / 10 + 0.05, 1000 * k + 8)
    for k in range(1, 9)
)


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    bad = [
        "259,1 1 1\n",
        fields("D", 0.3, "x12"),
        fields("D", 0.3, 10**17),
        fields("D", 0.3, 8, 10**11),
        fields("D", 0.3).replace("0.300000000", "0.30000000x"),
        fields("D", 0.3).replace("259,1", "5000,1"),
        fields("DDD", 0.3),
    ]
    capture = read_capture(written(tmp_path / "t", GOOD + "".join(bad)))
    assert (capture.rows, capture.skipped) == (8, len(bad))


def test_what_is_no_request_is_passed_over(tmp_path: Path) -> None:
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


def test_events_without_a_completion_are_refused(tmp_path: Path) -> None:
    assert refused("".join(fields("Q", k / 10) for k in range(9)), tmp_path)


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
    action: int, time: int, sector: int = 0, n_bytes: int = 4096, kind: int = READ,
    more: bytes = b"",
) -> bytes:  # fmt: skip
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
    counts: dict[int, int] = {}
    sizes = 512 * np.arange(1, tally.N_SIZES + 4)
    tally._count_sizes(counts, sizes[::-1])
    tally._count_sizes(counts, sizes[-1:])
    assert counts[int(sizes[-1])] == 2
    assert sum(counts.values()) - counts[tally.OTHER_SIZES] == tally.N_SIZES + 1
    assert counts[tally.OTHER_SIZES] == 3
