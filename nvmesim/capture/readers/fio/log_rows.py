"""Rows of fio's per-request and averaged logs, whatever columns a version writes, and their sums.

No log says what its columns are. Their number, their values and, if it is known, the version
decide: ``time_ms, value[, max], ddir, bs[, offset][, prio][, issue_ns]``. Source: fio iolog.c,
flush_samples; fio HOWTO, log file formats.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Final

import numpy as np
import polars as pl

from nvmesim.capture.capture import (
    FIO_PERCENTILES,
    OPS,
    Capture,
    Latency,
    OpResult,
    fio_bin_index,
    fio_bin_value,
    percentiles_of_bins,
)
from nvmesim.capture.checked_numbers import MAX_LATENCY_S
from nvmesim.capture.lines import (
    INTEGER,
    OTHER_COMMANDS,
    STEPS_BACK,
    ColumnNames,
    Notes,
    Shape,
    TableColumn,
    line_frames,
    table_batches,
)
from nvmesim.capture.requests import UNKNOWN_TIME
from nvmesim.capture.requests.table import Block, requests_capture, rows_of
from nvmesim.capture.text import Head, Source
from nvmesim.warning import Warning

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
TEXTS: Final = ("prio", "more")
"""Columns that are not taken as numbers: a priority may be 0x2004."""
SINCE_PRIO: Final = (3, 18)
"""Version since which every log has a priority column."""
SINCE_NS: Final = (2, 99)
US_BELOW: Final = 1000
"""No drive answers in less than 1 us, so a median below this many units is not in ns."""
IDLE: Final = 0.05
"""Mean number in flight below which a log in ns is rather one in us with a thousand times more."""
N_BINS: Final = 64 * 45
"""Bins up to 2**50 ns, 13 days."""
N_WINDOWS: Final = 4096
"""Windows of the series for drift; their width doubles when the log outgrows them."""
FIRST_WINDOW_NS: Final = 10**8
STEP_NS: Final = 10**9
"""Rows of threads interleave by less; a longer step back starts another job or run."""
DRIFTING: Final = "drift"
"""Code of the warning that a mean changed over the run."""
DRIFT: Final = 0.2
"""Change of the mean between the first and last quarter that is worth a warning."""
MIN_DRIFT_S: Final = 1.0


@dataclass(frozen=True)
class LogLayout:
    """Which column is what, and the unit of a latency."""

    columns: tuple[str, ...]
    ns_per_unit: int = 1
    is_averaged: bool = False
    t0_ms: int = 0
    guesses: tuple[str, ...] = ()
    """Decisions made from values because no version was known."""


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
    bs, first_ms = columns.index("bs"), min(int(row[0]) for row in same)
    layout = LogLayout(
        columns=tuple(columns),
        is_averaged=_mostly(row[bs] == "0" for row in same),
        t0_ms=first_ms if EPOCH_MS < first_ms <= MAX_TIME_MS else 0,
    )
    return layout if kind in ("bw", "iops") else _with_unit(layout, same, version)


def _rest(rest: list[list[str]], version: tuple[int, int] | None) -> list[str]:
    """Name the columns behind the block size."""
    if len(rest) == 1:
        is_prio = _mostly(map(_is_prio, rest[0])) if version is None else version >= SINCE_PRIO
        return ["prio" if is_prio else "offset"]
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


def row_batches(source: Source, layout: LogLayout, notes: Notes) -> Iterator[Rows]:
    """Yield the good rows, a chunk ahead; the others count as skipped in *notes*.

    Skipped is a row with other columns, with something that is not a number or not plausible, or of
    another operation than read and write (a trim).
    """
    columns = {
        name: TableColumn(at, INTEGER)
        for at, name in enumerate(layout.columns)
        if name not in TEXTS
    }
    shape = Shape(columns, least=len(layout.columns), most=len(layout.columns))
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
    for batch in table_batches(source, shape, ColumnNames(), notes, lambda line: False):
        kept = batch.columns
        good: np.ndarray = np.ones(kept["bs"].size, np.bool_)
        for name, column in kept.items():
            low, high = bounds[name]
            good &= (column >= low) & (column <= high)
        if not good.all():
            notes.skipped += int((~good).sum())
            kept = {name: column[good] for name, column in kept.items()}
        yield Rows(
            time_ns=(kept["time_ms"] - layout.t0_ms) * NS_PER_MS,
            value=kept["value"] * layout.ns_per_unit,
            op=kept["ddir"],
            bytes=kept["bs"],
            offset=kept.get("offset"),
            issue_ns=kept.get("issue_ns"),
        )


class LogStats:
    """Counts, sums, extremes and a histogram of 0.8 % an operation, and means over time.

    Its memory does not grow with the log.
    """

    def __init__(self, kind: str, is_averaged: bool) -> None:
        self.kind, self.is_averaged = kind, is_averaged
        self.is_latency = kind in ("clat", "lat", "slat")
        self.rows = 0
        self.count = [0, 0]
        self.sizes: set[int] = set()
        self._bytes, self._total, self._squares = [0, 0], [0, 0], [0.0, 0.0]
        self._low, self._high = [2**62, 2**62], [0, 0]
        self._bins = np.zeros((2, N_BINS), np.int64)
        self._steps_back = self._before_ns = self._last_ns = 0
        self._first_ns, self._window_ns = 2**62, FIRST_WINDOW_NS
        self._windows = np.zeros((2, 2, N_WINDOWS))
        """By operation: rows, and the sum of their values, of each window."""

    def add(self, rows: Rows) -> None:
        """Count *rows*."""
        self.rows += rows.value.size
        if not rows.value.size:
            return
        time = rows.time_ns
        before = np.concatenate(([self._before_ns], time[:-1]))
        self._steps_back += int(np.count_nonzero(before - time > STEP_NS))
        self._before_ns = int(time[-1])
        self._first_ns = min(self._first_ns, int(time.min()))
        self._last_ns = max(self._last_ns, int(time.max()))
        while self._last_ns // self._window_ns >= N_WINDOWS:
            halves = self._windows[:, :, ::2] + self._windows[:, :, 1::2]
            self._windows = np.concatenate((halves, np.zeros_like(halves)), axis=2)
            self._window_ns *= 2
        if len(self.sizes) < 2:
            self.sizes.update((int(rows.bytes.min()), int(rows.bytes.max())))
        for k in range(2):
            mine = rows.op == k
            if mine.any():
                self._add_op(k, time[mine], rows.value[mine], rows.bytes[mine])

    def end_file(self) -> None:
        """Say that the next rows are of another file, whose times start anew."""
        self._before_ns = 0

    def _add_op(self, k: int, time: np.ndarray, value: np.ndarray, n_bytes: np.ndarray) -> None:
        self.count[k] += len(value)
        self._bytes[k] += int(n_bytes.sum())
        # 100,000 rows of a batch x 2**50 ns stay below 2**67: a float sum cannot wrap.
        is_safe = int(value.max()) < 2**40
        self._total[k] += int(value.sum() if is_safe else value.sum(dtype=np.float64))
        self._low[k] = min(self._low[k], int(value.min()))
        self._high[k] = max(self._high[k], int(value.max()))
        real = value.astype(np.float64)
        self._squares[k] += float((real * real).sum())
        self._bins[k] += np.bincount(fio_bin_index(value), minlength=N_BINS)[:N_BINS]
        window = np.maximum(time, 0) // self._window_ns
        self._windows[k, 0] += np.bincount(window, minlength=N_WINDOWS)
        self._windows[k, 1] += np.bincount(window, weights=real, minlength=N_WINDOWS)

    @property
    def span_s(self) -> float:
        """Time from the start of the job, or the first row if that is late, to the last row."""
        start = 0 if self._first_ns < 10**9 else self._first_ns
        return max(self._last_ns - start, 0) / 10**9

    def result(self, k: int) -> OpResult:
        """Return what operation *k* (0 reads, 1 writes) did."""
        rate = 1 / self.span_s if self.span_s else 0.0
        count, n_bytes = self.count[k], self._bytes[k]
        latency = {self.kind: self._latency(k)} if self.is_latency else {}
        return OpResult(count, n_bytes, count * rate, n_bytes * rate, **latency)

    def _latency(self, k: int) -> Latency:
        count = self.count[k]
        mean = self._total[k] / count
        used = np.flatnonzero(self._bins[k])
        counts = self._bins[k][used]
        values = fio_bin_value(used) / 10**9
        return Latency(
            count=count,
            mean_s=mean / 10**9,
            min_s=self._low[k] / 10**9,
            max_s=self._high[k] / 10**9,
            stddev_s=math.sqrt(max(self._squares[k] / count - mean * mean, 0.0)) / 10**9,
            percentiles_s=percentiles_of_bins(values, counts, FIO_PERCENTILES),
            bin_s=values,
            bin_count=counts,
        )

    def caveats(self) -> list[Warning]:
        """Say what the values over time show: drift, and steps back."""
        if self._steps_back:
            times = self._steps_back
            text = f"its times step back {times} times: it holds several jobs or runs"
            return [Warning(STEPS_BACK, text)]
        used = self._last_ns // self._window_ns + 1
        quarter = used // 4
        if self.span_s < MIN_DRIFT_S or quarter < 2:
            return []
        found = []
        for k, op in enumerate(OPS):
            counts, sums = self._windows[k]
            ends = slice(0, quarter), slice(used - quarter, used)
            means = [sums[end].sum() / counts[end].sum() for end in ends if counts[end].any()]
            change = means[1] / means[0] - 1 if len(means) == 2 and means[0] else 0.0
            if abs(change) > DRIFT:
                text = f"mean {self.kind} of {op}s {change:+.0%} from the first quarter to the last"
                found.append(Warning(DRIFTING, f"drift: {text}"))
        return found


# -- fio's iolog -----------------------------------------------------------------------------------
#
# What ``write_iolog`` requested and when, without latencies. Version 3 stamps every line in us;
# version 2 has no times, and is refused. File names may hold spaces: lines are read from the right.
# Source: fio HOWTO, trace file formats.

_IOLOG_HEADER: Final = re.compile(r"[ \t]*fio version ([23]) iolog[ \t]*(?:\n|\Z)")
_IOLOG_LINE: Final = (
    r"^(?P<time>[0-9]{1,18}) (?P<device>\S.*) "
    r"(?P<action>read|write|trim|sync|datasync|add|open|close)"
    r"(?: (?P<offset>[0-9]{1,18})(?: (?P<bytes>[0-9]{1,15}))?)?\s*$"
)
MAX_TIME_US: Final = 10**13
MAX_LENGTH: Final = 2**40


def _sniff_iolog(head: Head) -> bool:
    return _IOLOG_HEADER.match(head.text) is not None


def _read_iolog(source: Source) -> Capture:
    header = _IOLOG_HEADER.match(source.head.text)
    if header is None or header[1] != "3":
        raise source.error("is no iolog of version 3, with times", "write it with fio 3.31 on")
    return requests_capture(source, "fio-iolog", _iolog_blocks, version="iolog 3")


def _iolog_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    names = ColumnNames()
    others = back = 0
    last_ns = -(2**62)
    is_first = True
    for lines in line_frames(source, notes):
        text = lines[1:] if is_first else lines
        is_first = False
        text = text.filter(pl.col("line").str.strip_chars() != "")
        found = text.select(pl.col("line").str.extract_groups(_IOLOG_LINE)).unnest("line")
        found = found.with_columns(pl.col("time", "offset", "bytes").cast(pl.Int64))
        known = pl.col("time") <= MAX_TIME_US
        clock = pl.when(known).then(pl.col("time")).otherwise(None) * 1000
        found = found.with_columns(issue_ns=clock)
        asked = found.filter(pl.col("action").is_in(OPS))
        good = asked.filter(
            pl.col("issue_ns").is_not_null()
            & pl.col("offset").is_not_null()
            & pl.col("bytes").is_between(1, MAX_LENGTH)
        )
        notes.skipped += found["action"].null_count() + asked.height - good.height
        others += int(found["action"].is_in(["trim", "sync", "datasync"]).sum())
        back += int((good["issue_ns"].diff() < -STEP_NS).sum())
        if good.height:
            back += int(good["issue_ns"][0]) - last_ns < -STEP_NS
            last_ns = int(good["issue_ns"][-1])
        issue, offset, size = (good[name].to_numpy() for name in ("issue_ns", "offset", "bytes"))
        files = good["device"].unique(maintain_order=True)
        numbers = [names.number(name) for name in files]
        device = good["device"].replace_strict(files, numbers, return_dtype=pl.Int64).to_numpy()
        is_write = (good["action"] == "write").to_numpy()
        never = np.full_like(issue, UNKNOWN_TIME)
        rows = rows_of(issue, never, offset, size, device, is_write)
        notes.skipped += int((device < 0).sum())  # of files beyond the room for names
        yield Block(rows[:, device >= 0], names.known)
    notes.say(back, STEPS_BACK, "places where the time steps back by more than a second")
    notes.say(others, OTHER_COMMANDS, "trims and flushes are left out")


REPORTS: Final = {"fio-iolog": SimpleNamespace(sniff=_sniff_iolog, read=_read_iolog)}
