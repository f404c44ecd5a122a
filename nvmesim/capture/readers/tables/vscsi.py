"""Reader of binary block traces of caching studies: vSCSI (CloudPhysics) and libCacheSim's LCS.

vSCSI, little endian: version 1 has 32 bytes a request (u32 sn, len, nSG; u16 cmd, ver; u64 lbn,
ts), version 2 has 40 (u16 cmd, ver; u32 sn, len, nSG; u64 lbn, ts, rt); the high byte of ver is
the version, lbn counts 512 B, ts and rt are us. LCS: a header of 8192 bytes, then requests with
whole seconds, of which version 2 and later say whether they read or write.
Source: 1a1a11a/libCacheSim, traceReader/customizedReader/vscsi.h and generalReader/lcs.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.notes import Notes
from nvmesim.capture.requests.block import Block
from nvmesim.capture.requests.table import requests_capture
from nvmesim.capture.requests.tally_kernel import UNKNOWN_TIME
from nvmesim.capture.requests.timed import Timed, sane_rows, timed_rows
from nvmesim.capture.text import Head, Source

SECTOR: Final = 512
V1: Final = np.dtype(
    [("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4"), ("cmd", "<u2"), ("ver", "<u2"),
     ("lbn", "<u8"), ("ts", "<u8")]
)  # fmt: skip
V2: Final = np.dtype(
    [("cmd", "<u2"), ("ver", "<u2"), ("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4"),
     ("lbn", "<u8"), ("ts", "<u8"), ("rt", "<u8")]
)  # fmt: skip
READS: Final = (0x08, 0x28, 0xA8, 0x88)
WRITES: Final = (0x0A, 0x2A, 0xAA, 0x8A)
"""SCSI READ and WRITE of 6, 10, 12 and 16 bytes. Source: SBC-4."""
MAGIC: Final = np.uint64(0x123456789ABCDEF0).tobytes()
LCS_HEADER: Final = 8192
LCS_OPS: Final = {"read": (1, 2, 12), "write": (3, 4, 6, 13)}
"""get, gets, read; set, add, replace, write. Source: libCacheSim, enum req_op."""
_LCS_V1: Final = [("time", "<u4"), ("id", "<u8"), ("size", "<u4")]
_LCS_V3: Final = [("time", "<u4"), ("id", "<u8"), ("size", "<i8"), ("op", "<u4"), ("ttl", "<u4")]
LCS: Final = {
    1: np.dtype([*_LCS_V1, ("next", "<i8")]),
    2: np.dtype([*_LCS_V1, ("op", "<u4"), ("next", "<i8")]),
    **{
        version: np.dtype([*_LCS_V3, ("next", "<i8"), ("features", "<u4", (n,))])
        for version, n in ((3, 0), (4, 1), (5, 2), (6, 4), (7, 8), (8, 16))
    },
}
CHUNK_ROWS: Final = 1 << 16
SNIFFED: Final = 8


def _version(head: Head) -> int:
    """Version of a vSCSI trace by its first requests, 0 if it is none."""
    for version, dtype in ((1, V1), (2, V2)):
        n = min(len(head.raw) // dtype.itemsize, SNIFFED)
        rows = np.frombuffer(head.raw, dtype, n)
        known = np.isin(rows["cmd"], (*READS, *WRITES))
        # The sector of a small drive and a length of some sectors: no text looks so.
        sane = (rows["lbn"] < 1 << 48) & (rows["len"] % SECTOR == 0) & (rows["len"] < 1 << 30)
        if n and bool((rows["ver"] >> 8 == version).all()) and bool((known & sane).all()):
            return version
    return 0


def sniff(head: Head) -> bool:
    """True if *head* starts with requests of vSCSI or with the mark of LCS."""
    return head.raw.startswith(MAGIC) or _version(head) > 0


def read(source: Source) -> Capture:
    """Read every request; CaptureError if the trace does not say what reads and what writes."""
    if source.head.raw.startswith(MAGIC):
        return _read_lcs(source)
    version = _version(source.head)
    if not version:
        raise source.error("is not a vSCSI trace", "give the binary trace as published")

    def blocks(source: Source, notes: Notes) -> Iterator[Block]:
        return timed_rows(_vscsi(source, V1 if version == 1 else V2, notes), notes)

    return requests_capture(source, "vscsi", blocks, version=str(version))


def _records(source: Source, dtype: np.dtype, skip: int, notes: Notes) -> Iterator[np.ndarray]:
    """Arrays of whole records behind *skip* bytes; a last part of one counts as skipped."""
    with source.open() as file:
        file.read(skip)
        while data := file.read(CHUNK_ROWS * dtype.itemsize):
            whole = len(data) // dtype.itemsize
            notes.skipped += int(len(data) % dtype.itemsize != 0)
            yield np.frombuffer(data, dtype, whole)


def _vscsi(source: Source, dtype: np.dtype, notes: Notes) -> Iterator[Timed]:
    start: int | None = None
    for rows in _records(source, dtype, 0, notes):
        if not rows.size:
            continue
        start = int(rows["ts"][0]) if start is None else start
        issue = _microseconds(rows["ts"], start)
        complete = np.full(rows.size, UNKNOWN_TIME)
        if "rt" in (dtype.names or ()):
            complete = issue + np.minimum(rows["rt"], 10**12).astype(np.int64) * 1000
        op = np.where(np.isin(rows["cmd"], WRITES), 1, np.where(np.isin(rows["cmd"], READS), 0, 4))
        yield _sane(issue, complete, op, rows["len"], _offsets(rows["lbn"]), dtype, notes)


def _microseconds(times: np.ndarray, start: int) -> np.ndarray:
    """Ns since *start*, int64[n], of unsigned us; a damaged time is far off and no overflow."""
    since = times.astype(np.float64) - start
    exact = np.abs(since) < 2**52
    near = np.where(exact, times, np.uint64(start)).astype(np.int64) - start
    found: np.ndarray = np.where(exact, near * 1000, np.iinfo(np.int64).max // 2)
    return found


def _offsets(sectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.minimum(sectors, 2**53).astype(np.int64) * SECTOR
    return found


def _sane(
    issue: np.ndarray,
    complete: np.ndarray,
    op: np.ndarray,
    size: np.ndarray,
    offset: np.ndarray,
    dtype: np.dtype,
    notes: Notes,
) -> Timed:
    timed = Timed(
        issue=issue,
        complete=complete,
        op=op.astype(np.int64),
        bytes=size.astype(np.int64),
        offset=offset,
        device=np.zeros(issue.size, np.int64),
        names=["disk"],
    )
    good = sane_rows(timed, latency="rt" in (dtype.names or ()))
    notes.skipped += int((~good).sum())
    return timed.where(good)


def _read_lcs(source: Source) -> Capture:
    version = int(np.frombuffer(source.head.raw[8:16].ljust(8, b"\0"), "<u8")[0])
    dtype = LCS.get(version)
    if dtype is None or source.head.raw[LCS_HEADER - 8 : LCS_HEADER] != MAGIC:
        raise source.error(
            f"is an LCS trace with a damaged header or of version {version}", "copy it again"
        )
    if version == 1:
        raise source.error(
            "is an LCS trace of version 1, which does not say what reads and what writes",
            "give the trace that it was made of, or version 2",
        )

    stated = int(np.frombuffer(source.head.raw[24:32], "<i8")[0])

    def blocks(source: Source, notes: Notes) -> Iterator[Block]:
        notes.warnings.append("LCS has whole seconds and no latencies: order and rate only")
        return timed_rows(_lcs(source, dtype, notes), notes)

    capture = requests_capture(source, "lcs", blocks, version=str(version))
    # Writers that do not count leave 0.
    if stated <= capture.rows + capture.skipped:
        return capture
    text = f"{capture.rows} requests, its header says {stated}: it is cut"
    return replace(capture, warnings=(*capture.warnings, text))


def _lcs(source: Source, dtype: np.dtype, notes: Notes) -> Iterator[Timed]:
    start: int | None = None
    for rows in _records(source, dtype, LCS_HEADER, notes):
        if not rows.size:
            continue
        start = int(rows["time"][0]) if start is None else start
        issue = (rows["time"].astype(np.int64) - start) * 10**9
        kind = rows["op"] & 0xFF
        op = np.where(
            np.isin(kind, LCS_OPS["write"]), 1, np.where(np.isin(kind, LCS_OPS["read"]), 0, 4)
        )
        offset = np.minimum(rows["id"], 2**62).astype(np.int64)
        yield _sane(issue, np.full(rows.size, UNKNOWN_TIME), op, rows["size"], offset, dtype, notes)
