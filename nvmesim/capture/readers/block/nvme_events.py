"""ftrace of nvme_setup_cmd and nvme_complete_rq alone: pairs by disk, queue and command number.

Lengths are 0-based and, like addresses, in logical blocks whose size the trace does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from nvmesim.capture.lines import Notes, line_frames
from nvmesim.capture.requests import pairing_kernel as pairs
from nvmesim.capture.requests.block import Block
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.capture.text import Source

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
