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

from nvmesim.capture.fields import MAX_LATENCY_S
from nvmesim.capture.lines import NEWLINE, ahead, chunks
from nvmesim.capture.text import Source

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
TEXTS: Final = ("prio", "more", "extra")
"""Columns that are not taken as numbers: a priority may be 0x2004."""
SINCE_PRIO: Final = (3, 18)
"""Version since which every log has a priority column."""
SINCE_NS: Final = (2, 99)
US_BELOW: Final = 1000
"""No drive answers in less than 1 us, so a median below this many units is not in ns."""
IDLE: Final = 0.05
"""Mean number in flight below which a log in ns is rather one in us with a thousand times more."""


@dataclass(frozen=True)
class LogLayout:
    """Which column is what, and the unit of a latency."""

    columns: tuple[str, ...]
    ns_per_unit: int = 1
    is_averaged: bool = False
    t0_ms: int = 0
    guesses: tuple[str, ...] = ()
    """Decisions made from values because no version was known."""

    @property
    def has_issue(self) -> bool:
        """True if each row has the time of its issue."""
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


def find_layout(rows: list[list[str]], version: tuple[int, int] | None, kind: str) -> LogLayout:
    """Decide the columns of *rows* (at least one), their unit and whether they are averages."""
    width = Counter(len(row) for row in rows).most_common(1)[0][0]
    same = [row for row in rows if len(row) == width]
    has_max = width > 4 and _mostly(row[2] not in ("0", "1", "2") for row in same)
    columns = ["time_ms", "value", *(["max"] if has_max else []), "ddir", "bs"]
    rest = [[row[k] for row in same] for k in range(len(columns), width)]
    columns += _rest(rest, version)
    bs = columns.index("bs")
    layout = LogLayout(
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
    """True if more than half of *votes* are for it: a damaged row decides nothing."""
    given = list(votes)
    return 2 * sum(given) > len(given)


def _start_ms(rows: list[list[str]]) -> int:
    first = min(int(row[0]) for row in rows)
    return first if EPOCH_MS < first <= MAX_TIME_MS else 0


def _with_unit(
    layout: LogLayout, rows: list[list[str]], version: tuple[int, int] | None
) -> LogLayout:
    """Set ns or us: by the version, by a column that only fio 3 has, else by the values."""
    if version is not None:
        return replace(layout, ns_per_unit=1000 if version < SINCE_NS else 1)
    if "prio" in layout.columns:
        return layout
    values = sorted(int(row[1]) for row in rows)
    times = [int(row[0]) for row in rows]
    median = values[len(values) // 2]
    span_ns = (max(times) - min(times)) * NS_PER_MS
    # A row of means stands for a window of requests, so means say nothing of how many.
    in_flight = sum(values) / span_ns if span_ns and not layout.is_averaged else None
    is_us = median < US_BELOW or (in_flight is not None and in_flight < IDLE)
    unit = "us, as fio 2 writes" if is_us else "ns, as fio 3 writes"
    guess = f"no version is known: its values were taken as {unit} (median {median})"
    return replace(layout, ns_per_unit=1000 if is_us else 1, guesses=(guess,))


@dataclass(frozen=True)
class Rows:
    """Good rows of a log, arrays of int64[n]."""

    time_ns: np.ndarray
    """Since the start."""
    value: np.ndarray
    """ns for latencies."""
    op: np.ndarray
    """0 reads, 1 writes."""
    bytes: np.ndarray
    offset: np.ndarray | None
    issue_ns: np.ndarray | None


def row_batches(source: Source, layout: LogLayout) -> Iterator[tuple[Rows, int]]:
    """Yield the good rows, a chunk ahead, and the number of rows skipped.

    Skipped is a row with other columns, with something that is not a number or not plausible, or of
    another operation than read and write (a trim).
    """
    return ahead(source, _batches(source, layout))


def _batches(source: Source, layout: LogLayout) -> Iterator[tuple[Rows, int]]:
    names = [*layout.columns, "extra"]
    # One more column than the log has tells rows that are too long; the first line fixes the width.
    first = (",".join("0" * len(names)) + "\n").encode()
    schema = {name: pl.String if name in TEXTS else pl.Int64 for name in names}
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
        )
        good = _good_rows(frame, layout)
        n_good = good.value.size
        lines = int(np.count_nonzero(data == NEWLINE))
        if lines != n_good:  # only now, for it is slow
            lines = sum(1 for line in raw.split(b"\n") if line.strip()) - 1
        yield good, lines - n_good + cut


def _good_rows(frame: pl.DataFrame, layout: LogLayout) -> Rows:
    """The rows of *frame* but the first that can be true."""
    numbers = [name for name in layout.columns if name not in TEXTS]
    texts = [name for name in layout.columns if name == "prio"]
    blanks = {name: frame[name].null_count() for name in (*numbers, *texts, "extra")}
    n = frame.height - 1
    good: np.ndarray = np.ones(n, np.bool_)
    # The first line has no blank.
    if sum(blanks.values()) != n or blanks["extra"] != n:
        frame = frame.select(pl.col(numbers).fill_null(-1), pl.col(*texts, "extra").is_null())
        for name in texts:
            good &= ~frame[name].to_numpy()[1:]
        good &= frame["extra"].to_numpy()[1:]
    columns = {name: frame[name].to_numpy()[1:] for name in numbers}
    good &= _is_good(columns, layout)
    kept = columns if good.all() else {name: column[good] for name, column in columns.items()}
    return Rows(
        time_ns=(kept["time_ms"] - layout.t0_ms) * NS_PER_MS,
        value=kept["value"] * layout.ns_per_unit,
        op=kept["ddir"],
        bytes=kept["bs"],
        offset=kept.get("offset"),
        issue_ns=kept.get("issue_ns"),
    )


def _is_good(columns: dict[str, np.ndarray], layout: LogLayout) -> np.ndarray:
    # Long runs may hold rows of zeros (fio issue 152).
    least = 0 if layout.is_averaged else 1
    bounds = {
        "time_ms": (0, MAX_TIME_MS),
        "value": (least, int(MAX_LATENCY_S * 1e9) // layout.ns_per_unit),
        "max": (0, 2**63 - 1),
        "ddir": (0, 1),
        "bs": (least, MAX_BLOCK_BYTES),
        "offset": (0, 2**62),
        "issue_ns": (0, 2**62),
    }
    good: np.ndarray = np.ones(columns["value"].size, np.bool_)
    for name, column in columns.items():
        low, high = bounds[name]
        good &= (column >= low) & (column <= high)
    return good
