"""Readers of block tracepoints as text: perf script, ftrace, and CSV printed by bpftrace.

All three carry block_rq_issue and block_rq_complete: device, RWBS, sector, sectors. An ftrace
that has nvme_setup_cmd and nvme_complete_rq only is paired by disk, queue and command number;
lengths there are 0-based and, like addresses, in logical blocks whose size the trace does not have.
Source: linux/include/trace/events/block.h (6.1, and 6.18 with an ioprio field), nvme/host/trace.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes, line_frames
from nvmesim.capture.readers.block import blkparse_kernel as kernel
from nvmesim.capture.readers.block.blkparse import (
    STEPS,
    TRACE,
    OtherLines,
    from_zero,
    paired_blocks,
    text_events,
)
from nvmesim.capture.readers.table_rows import (
    INTEGER,
    LETTER,
    OPERATION,
    OPTIONAL,
    ColumnNames,
    Shape,
    TableColumn,
    table_batches,
)
from nvmesim.capture.requests import pairing_kernel as pairs
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

FORMAT: Final = "tracepoints"

_BLOCK = re.compile(r"\d\.\d{6,9}: +(block:)?block_rq_(issue|complete): +\d+,\d+ ")
_NVME = re.compile(r"\d\.\d{6,9}: +(nvme:)?nvme_(setup_cmd|complete_rq): ")
_CSV_HEADER = re.compile(r"^ts_ns,ev,.*sector.*$", re.M)
_CSV_ROW = re.compile(r"^\d{6,19},[DCQR],\d{1,4},\d{1,7},\d+,\d+,[A-Z]+.*$", re.M)
_QUIET = re.compile(rb"\s*#|Attaching |\s*$|ts_ns,|cpus=\d|version = ")
_LOST = re.compile(rb"CPU:\d+ \[LOST (\d{1,15}) EVENTS\]|[Ll]ost (\d{1,15}) events")
_COLUMNS: Final = {
    "ts_ns": INTEGER, "ev": LETTER, "dev_major": INTEGER, "dev_minor": INTEGER,
    "sector": INTEGER, "nr_sector": INTEGER, "rwbs": OPERATION | OPTIONAL,
}  # fmt: skip
LOST: Final = "events lost by the tracer: counts and depths are too low"
LETTERS: Final = tuple(ord(letter) for letter in "QDCR")

LBA_BYTES: Final = 512
MAX_LBA: Final = 2**53
SETUP: Final = (
    r"(?P<s>\d{1,10})\.(?P<f>\d{6,9}): +(?:nvme:)?nvme_setup_cmd: \S+ disk=(?P<disk>\S+), "
    r"qid=(?P<qid>\d{1,5}), cmdid=(?P<cid>\d{1,5}), .*cmd=\(nvme_cmd_(?P<op>read|write) "
    r"slba=(?P<slba>\d{1,16}), len=(?P<len>\d{1,5}),"
)
DONE: Final = (
    r"(?P<s>\d{1,10})\.(?P<f>\d{6,9}): +(?:nvme:)?nvme_complete_rq: \S+ disk=(?P<disk>\S+), "
    r"qid=(?P<qid>\d{1,5}), cmdid=(?P<cid>\d{1,5}), "
)
_SHAPE: Final = pl.Schema(
    {"time": pl.Int64, "disk": pl.String, "key": pl.Int64, "offset": pl.Int64,
     "bytes": pl.Int64, "op": pl.Int64, "code": pl.UInt8}
)  # fmt: skip


def sniff(head: Head) -> bool:
    """True if *head* holds block events of perf script, ftrace or a bpftrace CSV."""
    text = head.text
    if "block_rq_" in text or "nvme_" in text:
        return bool(_BLOCK.search(text) or _NVME.search(text))
    return bool(_CSV_HEADER.search(text) or _CSV_ROW.search(text))


def read(source: Source) -> Capture:
    """Read block tracepoints; CaptureError if they hold no whole request."""
    head = source.head.text
    if _BLOCK.search(head):
        name = "perf-script" if re.search(r": +block:block_rq", head) else "ftrace"
        return requests_capture(source, name, block_blocks)
    if _NVME.search(head):
        return requests_capture(source, "ftrace-nvme", nvme_blocks)
    return requests_capture(source, "bpftrace-csv", csv_blocks)


def block_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of block_rq_* events, in order of completion."""
    other_lines = OtherLines(_QUIET, _LOST)
    events = text_events(source, notes, TRACE, other_lines)
    yield from paired_blocks(from_zero(events), notes)
    notes.say(other_lines.lost, LOST)


def csv_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of a CSV with a line an event, in order of completion."""
    yield from paired_blocks(from_zero(_csv_events(source, notes)), notes)


def _csv_shape(source: Source) -> Shape:
    header = _CSV_HEADER.search(source.head.text)
    row = _CSV_ROW.search(source.head.text)
    names = header[0].strip().split(",") if header else list(_COLUMNS)
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise source.error(
            f"its CSV header lacks {', '.join(missing)}", "print " + ",".join(_COLUMNS)
        )
    wanted = {name: TableColumn(names.index(name), kind) for name, kind in _COLUMNS.items()}
    width = len(names) if header or row is None else row[0].count(",") + 1
    return Shape(wanted, least=width, most=width)


def _csv_events(source: Source, notes: Notes) -> Iterator[Events]:
    steps = 0
    other_lines = OtherLines(_QUIET, _LOST)
    shape = _csv_shape(source)
    for batch in table_batches(source, shape, ColumnNames(), notes, other_lines):
        c = batch.columns
        sane = (c["sector"] <= kernel.MAX_SECTOR) & (c["nr_sector"] <= kernel.MAX_SECTORS)
        sane &= (c["dev_major"] < 4096) & (c["dev_minor"] < 2**20)
        sane &= (c["ts_ns"] <= kernel.MAX_SECONDS * 10**9) & np.isin(c["ev"], LETTERS)
        notes.skipped += int((~sane).sum())
        ranged = sane & (c["nr_sector"] > 0)
        steps += int((sane & ~ranged).sum())
        device = c["dev_major"] * 2**20 + c["dev_minor"]
        rows = np.stack([c["ts_ns"], device, c["sector"], c["nr_sector"]], axis=1)
        operation = np.where(c["rwbs"] < 0, kernel.UNKNOWN, c["rwbs"])
        codes = np.stack([c["ev"], operation]).astype(np.uint8)
        if ranged.any():
            yield Events(np.ascontiguousarray(rows[ranged]), np.ascontiguousarray(codes[:, ranged]))
    notes.say(steps, STEPS)
    notes.say(other_lines.lost, LOST)


def nvme_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of nvme events, in order of completion."""
    notes.warnings.append("sizes and offsets assume logical blocks of 512 B")
    pairer = Pairer()
    disks: dict[str, int] = {}
    open_commands = pl.DataFrame(schema=_SHAPE)
    start: int | None = None
    for lines in line_frames(source, notes):
        found = _found(lines)
        odd = lines.filter(~pl.col("line").str.contains(r"^[ \t]*#|\d: +[\w:]+: |^[ \t]*$")).height
        notes.skipped += odd
        if found.height == 0:
            continue
        if start is None:
            start = int(found["time"][0])
        found = found.with_columns(pl.col("time") - start)
        for disk in found["disk"].unique(maintain_order=True):
            disks.setdefault(disk, len(disks) + 1)
        rows = pairer.feed(_events(found, disks))
        open_commands = pl.concat([open_commands, found.filter(pl.col("code") == 68)])
        yield from _filled(rows, open_commands, disks, pairer)
        done = set(rows[pairs.OUT_ISSUE].tolist())
        open_commands = open_commands.filter(~pl.col("time").is_in(done)).tail(1 << 16)
    pairer.finish(notes)


def _found(lines: pl.DataFrame) -> pl.DataFrame:
    """Setup and completion events of *lines*, columns of `_SHAPE`."""
    setup = pl.col("line").str.extract_groups(SETUP)
    done = pl.col("line").str.extract_groups(DONE)
    frame = lines.select(setup=setup, done=done)
    issued = frame.select("setup").unnest("setup").with_columns(code=pl.lit(68, pl.UInt8))
    ended = frame.select("done").unnest("done").with_columns(code=pl.lit(67, pl.UInt8))
    both = pl.concat([issued.with_row_index(), ended.with_row_index()], how="diagonal")
    both = both.filter(pl.col("disk").is_not_null()).sort("index", maintain_order=True)

    def integer(name: str) -> pl.Expr:
        return pl.col(name).str.to_integer(strict=False)

    return both.select(
        time=integer("s") * 10**9 + pl.col("f").str.pad_end(9, "0").str.to_integer(strict=False),
        disk="disk",
        key=integer("qid") * 2**20 + integer("cid"),
        offset=integer("slba") * LBA_BYTES,
        bytes=(integer("len") + 1) * LBA_BYTES,
        op=pl.when(pl.col("op") == "read").then(0).otherwise(1).cast(pl.Int64),
        code="code",
    ).filter((pl.col("offset") <= MAX_LBA).fill_null(True))


def _events(found: pl.DataFrame, disks: dict[str, int]) -> Events:
    rows = np.empty((found.height, 4), np.int64)
    rows[:, 0] = found["time"].to_numpy()
    rows[:, 1] = found["disk"].replace_strict(disks, return_dtype=pl.Int64).to_numpy()
    rows[:, 2] = found["key"].to_numpy()
    rows[:, 3] = 1
    codes = np.zeros((2, found.height), np.uint8)
    codes[0] = found["code"].to_numpy()
    return Events(rows, codes)


def _filled(
    rows: np.ndarray, commands: pl.DataFrame, disks: dict[str, int], pairer: Pairer
) -> Iterator[Block]:
    """*rows* with the address, length and operation of their commands instead of the key."""
    if rows.shape[1] == 0:
        return
    names = {number: disk for disk, number in disks.items()}
    known = [names[i] for i in pairer.device_ids]
    paired = pl.DataFrame(
        {
            "time": rows[pairs.OUT_ISSUE],
            "key": rows[pairs.OUT_OFFSET] // 512,
            "disk": pl.Series(known).gather(rows[pairs.OUT_DEVICE]),
        }
    )
    unique = commands.unique(["time", "key", "disk"], keep="last")
    joined = paired.join(unique, on=["time", "key", "disk"], how="left", maintain_order="left")
    inside = joined["offset"].is_not_null().to_numpy()
    out = rows[:, inside]
    joined = joined.filter(pl.col("offset").is_not_null())
    out[pairs.OUT_OFFSET] = joined["offset"].to_numpy()
    out[pairs.OUT_BYTES] = joined["bytes"].to_numpy()
    out[pairs.OUT_OP] = joined["op"].to_numpy()
    yield Block(out, known)
