"""Rows of fio's per-request and averaged logs, whatever columns a version writes.

No log says what its columns are. Their number, their values and, if it is known, the version
decide: ``time_ms, value[, max], ddir, bs[, offset][, prio][, issue_ns]``. Source: fio iolog.c,
flush_samples; fio HOWTO, log file formats.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from nvmesim.trace.fields import MAX_LATENCY_S
from nvmesim.trace.lines import NEWLINE, ahead, chunks
from nvmesim.trace.text import Source

ROW: Final = re.compile(
    r"\s*\d{1,19}, \d{1,19}, \d{1,19}, \d{1,19}(?:, (?:\d{1,19}|0x[0-9a-f]{1,4})){0,4}\s*"
)
SAMPLE_ROWS: Final = 2000
MAX_TIME_MS: Final = 9 * 10**12
"""Later than the year 2200 even if times count from 1970."""
EPOCH_MS: Final = 10**11
"""Times beyond three years are not since the start of the job but since 1970."""
MAX_BLOCK_BYTES: Final = 2**40
NS_PER_MS: Final = 10**6
SINCE_PRIO: Final = (3, 18)
"""Version since which every log has a priority column."""
SINCE_NS: Final = (2, 99)
US_BELOW: Final = 1000
"""No drive answers in less than 1 us, so a median below this many units is not in ns."""
IDLE: Final = 0.05
"""Mean number in flight below which a log in ns is rather one in us with a thousand times more."""


@dataclass(frozen=True)
class Layout:
    """Which column is what, and the unit of a latency."""

    columns: tuple[str, ...]
    ns_per_unit: int = 1
    is_averaged: bool = False
    t0_ms: int = 0
    guesses: tuple[str, ...] = ()
    """What was decided from values because no version was known."""

    @property
    def has_issue(self) -> bool:
        """Whether each row has the time of its issue."""
        return "issue_ns" in self.columns


def version_of(text: str | None) -> tuple[int, int] | None:
    """Return major and minor of a fio version.

    >>> version_of("3.33"), version_of("3.6-12-gabc"), version_of(None)
    ((3, 33), (3, 6), None)
    """
    match = re.match(r"(\d{1,4})\.(\d{1,4})", text or "")
    return (int(match[1]), int(match[2])) if match else None


def sample_rows(source: Source) -> list[list[str]]:
    """Return the cells of the rows in the head that look like rows of a log."""
    lines = [line for line in source.head.lines if ROW.fullmatch(line)]
    return [line.strip().split(", ") for line in lines[:SAMPLE_ROWS]]


def find_layout(rows: list[list[str]], version: tuple[int, int] | None, kind: str) -> Layout:
    """Decide the columns of *rows* (at least one), their unit and whether they are averages."""
    width = Counter(len(row) for row in rows).most_common(1)[0][0]
    same = [row for row in rows if len(row) == width]
    has_max = width > 4 and _mostly(row[2] not in ("0", "1", "2") for row in same)
    columns = ["time_ms", "value", *(["max"] if has_max else []), "ddir", "bs"]
    rest = [[row[k] for row in same] for k in range(len(columns), width)]
    columns += _rest(rest, version)
    bs = columns.index("bs")
    layout = Layout(
        columns=tuple(columns),
        is_averaged=_mostly(row[bs] == "0" for row in same),
        t0_ms=_start_ms(same),
    )
    if kind in ("bw", "iops"):
        return layout
    return _with_unit(layout, same, version)


def _rest(rest: list[list[str]], version: tuple[int, int] | None) -> list[str]:
    """Name the columns behind the block size."""
    if len(rest) == 1:
        has_prio = version is None or version >= SINCE_PRIO
        if version is None and not _mostly(map(_is_prio, rest[0])):
            has_prio = False
        return ["prio" if has_prio else "offset"]
    if len(rest) == 2:
        is_timed = _mostly(map(_is_prio, rest[0])) and not _mostly(map(_is_prio, rest[1]))
        return ["prio", "issue_ns"] if is_timed else ["offset", "prio"]
    return ["offset", "prio", "issue_ns", "more"][: len(rest)]


def _is_prio(cell: str) -> bool:
    return cell in ("0", "1") or cell.startswith("0x")


def _mostly(votes: Iterable[bool]) -> bool:
    """Whether more than half of *votes* are for it: a damaged row decides nothing."""
    given = list(votes)
    return 2 * sum(given) > len(given)


def _start_ms(rows: list[list[str]]) -> int:
    first = min(int(row[0]) for row in rows)
    return first if EPOCH_MS < first <= MAX_TIME_MS else 0


def _with_unit(layout: Layout, rows: list[list[str]], version: tuple[int, int] | None) -> Layout:
    """Set ns or us: by the version, by a column that only fio 3 has, else by the values."""
    if version is not None:
        return replace(layout, ns_per_unit=1000 if version < SINCE_NS else 1)
    if "prio" in layout.columns:
        return layout
    values = sorted(int(row[1]) for row in rows)
    times = [int(row[0]) for row in rows]
    median = values[len(values) // 2]
    span_ns = (max(times) - min(times)) * NS_PER_MS
    in_flight = sum(values) / span_ns if span_ns else None
    is_us = median < US_BELOW or (in_flight is not None and in_flight < IDLE)
    unit = "us, as fio 2 writes" if is_us else "ns, as fio 3 writes"
    guess = f"no version is known: its values were taken as {unit} (median {median})"
    return replace(layout, ns_per_unit=1000 if is_us else 1, guesses=(guess,))


def row_frames(source: Source, layout: Layout) -> Iterator[tuple[pl.DataFrame, int]]:
    """Yield frames of good rows (time_ns, value, op, bytes, offset, issue_ns) and rows skipped.

    Values are ns for latencies. Skipped is a row with other columns, with something that is no
    number or not plausible, or of another operation than read and write (a trim).
    """
    return ahead(source, _row_frames(source, layout))


def _row_frames(source: Source, layout: Layout) -> Iterator[tuple[pl.DataFrame, int]]:
    names = [*layout.columns, "extra"]
    # One more column than the log has tells rows that are too long; the first line fixes the width.
    first = (",".join("0" * len(names)) + "\n").encode()
    schema = {name: pl.String if name in ("prio", "more", "extra") else pl.Int64 for name in names}
    for data in chunks(source):
        raw = b"".join((first, data.data))
        cut = 0
        if not raw.endswith(b"\n"):  # fio ends every row: what does not was cut off
            raw, end, last = raw.rpartition(b"\n")
            raw += end
            cut = 1 if last.strip() else 0
        frame = pl.read_csv(
            io.BytesIO(raw),
            has_header=False,
            schema=schema,
            ignore_errors=True,
            truncate_ragged_lines=True,
            quote_char=None,
            separator=",",
            encoding="utf8-lossy",
        ).slice(1)
        good = frame.filter(_is_good(layout)).select(_columns(layout))
        lines = int(np.count_nonzero(data == NEWLINE))
        if lines != good.height:  # only now, for it is slow
            lines = sum(1 for line in raw.split(b"\n") if line.strip()) - 1
        yield good, lines - good.height + cut


def _is_good(layout: Layout) -> pl.Expr:
    most = int(MAX_LATENCY_S * 1e9) // layout.ns_per_unit
    good = (
        pl.col("time_ms").is_between(0, MAX_TIME_MS)
        & pl.col("value").is_between(0, most)
        & pl.col("ddir").is_in([0, 1])
        & pl.col("bs").is_between(0, MAX_BLOCK_BYTES)
        & pl.col("extra").is_null()
    )
    for name in layout.columns:
        if name in ("offset", "issue_ns"):
            good &= pl.col(name).is_between(0, 2**62)
        elif name in ("prio", "max"):
            good &= pl.col(name).is_not_null()
    if not layout.is_averaged:
        # Long runs may hold rows of zeros (fio issue 152).
        good &= (pl.col("bs") > 0) & (pl.col("value") > 0)
    return good.fill_null(False)


def _columns(layout: Layout) -> list[pl.Expr]:
    null = pl.lit(None, dtype=pl.Int64)
    known = layout.columns
    return [
        ((pl.col("time_ms") - layout.t0_ms) * NS_PER_MS).alias("time_ns"),
        (pl.col("value") * layout.ns_per_unit).alias("value"),
        pl.col("ddir").cast(pl.Int8).alias("op"),
        pl.col("bs").alias("bytes"),
        (pl.col("offset") if "offset" in known else null).alias("offset"),
        (pl.col("issue_ns") if layout.has_issue else null).alias("issue_ns"),
    ]
