"""From blocks of requests to a `Capture`: the table, kept or read again, and its statistics.

A reader of a request-level format is a function ``blocks(source, notes)`` that yields `Block`s in
file order. It runs once for the statistics; the table is kept while it is small, else it is the
same function again behind a lazy frame, so that a trace larger than memory is read in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from nvmesim.capture.capture import REQUEST_SCHEMA, Capture, lazy_table
from nvmesim.capture.lines import Notes
from nvmesim.capture.requests import pairing_kernel as kernel
from nvmesim.capture.requests.tally import Tally
from nvmesim.capture.requests.tally_kernel import UNKNOWN_TIME
from nvmesim.capture.text import Source

KEEP_ROWS: Final = 2_000_000
"""Rows kept in memory (about 60 bytes each); a longer table is read again when asked for."""
OPS: Final = ("read", "write")


@dataclass(frozen=True)
class Block:
    """Some requests. rows: int64[N_OUT, n] as in the pairing kernel; names: device by index.

    `UNKNOWN_TIME` stands for an unknown issue, completion or offset, 0 for an unknown depth and
    2 or more for an unknown operation.
    """

    rows: np.ndarray
    names: list[str]


Blocks = Callable[[Source, Notes], Iterator[Block]]


def block_frame(block: Block) -> pl.DataFrame:
    """The rows of *block* as a frame of `REQUEST_SCHEMA`."""
    rows = block.rows
    issue, complete = rows[kernel.OUT_ISSUE], rows[kernel.OUT_COMPLETE]
    ops = pl.Series([*OPS, None], dtype=REQUEST_SCHEMA["op"])
    names = pl.Series([*block.names, None], dtype=pl.String)
    issues, completes = _known(issue), _known(complete)
    depth = pl.Series(rows[kernel.OUT_DEPTH].astype(np.int32))
    return pl.DataFrame(
        [
            issues.alias("issue_ns"),
            completes.alias("complete_ns"),
            (completes - issues).alias("latency_ns"),
            ops.gather(np.minimum(rows[kernel.OUT_OP], len(OPS))).alias("op"),
            pl.Series("bytes", rows[kernel.OUT_BYTES]),
            _known(rows[kernel.OUT_OFFSET]).alias("offset"),
            names.gather(rows[kernel.OUT_DEVICE]).alias("device"),
            (depth if depth.min() else depth.replace(0, None)).alias("depth"),
        ]
    )


def _known(values: np.ndarray) -> pl.Series:
    """*values* with null for `UNKNOWN_TIME`."""
    series = pl.Series(values)
    return series.replace(UNKNOWN_TIME, None) if bool((values == UNKNOWN_TIME).any()) else series


def _by_completion(frame: pl.DataFrame) -> pl.DataFrame:
    """*frame* in order of completion."""
    if frame["complete_ns"].is_sorted():
        return frame
    return frame.sort("complete_ns", maintain_order=True)


def requests_capture(
    source: Source, format_name: str, blocks: Blocks, *, version: str | None = None
) -> Capture:
    """Read *source* through *blocks* into a capture, a measurement a device.

    Raises CaptureError if the file holds no request at all.
    """
    notes, tally = Notes(), Tally()
    kept: list[Block] = []
    for block in blocks(source, notes):
        tally.add(block.rows, block.names)
        kept.append(block)
        if tally.rows > KEEP_ROWS:
            kept.clear()
    if tally.rows == 0:
        why = "; ".join(notes.warnings) or f"{notes.skipped} lines skipped"
        raise source.error(
            f"{format_name} without one whole request ({why})",
            "capture both issues and completions",
        )
    is_kept = tally.rows <= KEEP_ROWS
    whole: list[pl.DataFrame] = []

    def frames() -> Iterator[pl.DataFrame]:
        if not is_kept:
            yield from (_by_completion(block_frame(block)) for block in blocks(source, Notes()))
            return
        if not whole:
            whole.append(_by_completion(pl.concat([block_frame(block) for block in kept])))
        yield from whole

    warnings = list(dict.fromkeys(notes.warnings))
    if notes.skipped:
        warnings.append(f"{notes.skipped} lines skipped: damaged, or of no known kind")
    return Capture(
        file=source.path,
        format=format_name,
        version=version,
        measurements=tally.measurements(),
        rows=tally.rows,
        skipped=notes.skipped,
        requests=lazy_table(frames, REQUEST_SCHEMA),
        warnings=tuple(warnings),
    )
