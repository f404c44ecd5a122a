"""fio's histogram logs (``write_hist_log``): the counts of one interval and operation a row.

``time_ms, ddir, bs, c0, c1, ...`` with 1856 counters (fio 2: 1216, in us), or fewer when
``log_hist_coarseness`` merges 2**c neighbours. Source: fio iolog.c, flush_hist_samples; stat.h.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.caveats import with_caveats
from nvmesim.capture.histogram import FIO_PERCENTILES, fio_bin_value, percentiles_of_bins
from nvmesim.capture.lines import chunks
from nvmesim.capture.readers.fio.sibling import find_run, parse_name
from nvmesim.capture.text import Head, Source
from nvmesim.errors import CaptureError

_START: Final = re.compile(r"\d{1,15}, [0-2], \d{1,13}(?:, \d{1,19}){19,}")
OPS: Final[tuple[Op, ...]] = ("read", "write")
WIDTHS: Final = {
    groups * 64 >> coarseness: (coarseness, per_s)
    for groups, per_s in ((29, 1e9), (19, 1e6))
    for coarseness in range(7)
}
"""Number of counters -> coarseness and units per second; no two are equal."""


def sniff(head: Head) -> bool:
    """True if *head* starts with a row of counters of one of fio's widths."""
    first = next((line for line in head.text.split("\n") if line.strip()), "")
    match = _START.match(first.strip())
    return match is not None and first.count(",") - 2 in WIDTHS


@dataclass(frozen=True)
class _Row:
    time_ms: int
    op: int
    bytes: int
    counts: np.ndarray


def read(source: Source) -> Capture:
    """Read all intervals; CaptureError if there is no whole row."""
    rows: list[_Row] = []
    skipped, width = 0, 0
    for line in _lines(source):
        if not line.strip():
            continue
        row = _row(line, width) if line.endswith("\n") else None
        if row is None:
            skipped += 1
            continue
        width = len(row.counts)
        rows.append(row)
    if not rows:
        raise source.error(
            f"has no whole row of a fio histogram log ({skipped} skipped)", "repeat the capture"
        )
    measurement = _measurement(source, rows, width)
    run = find_run(source.path)
    warnings = ["the last interval of a histogram log is not written by fio: its requests miss"]
    if skipped:
        warnings.append(f"{skipped} rows skipped: damaged, cut off, or trims")
    if run is not None and parse_name(source.path).job is not None and len(run.numbers) > 1:
        warnings.append(
            f"1 of {len(run.numbers)} jobs that ran together: the others loaded the drive, too"
        )
    if WIDTHS[width][0]:
        warnings.append(f"log_hist_coarseness={WIDTHS[width][0]}: latencies are that much coarser")
    return Capture(
        file=source.path,
        format="fio-hist-log",
        version=run.version if run else None,
        measurements=(with_caveats(measurement),),
        rows=len(rows),
        skipped=skipped,
        warnings=tuple(warnings),
    )


def _lines(source: Source) -> Iterator[str]:
    """Yield lines with their ends: fio ends every row, so one without was cut off."""
    for data in chunks(source):
        yield from io.StringIO(data.tobytes().decode("utf-8", "replace"), newline="\n")


def _row(line: str, width: int) -> _Row | None:
    """Return one row, None if it is damaged or has another width than those before."""
    cells = line.rstrip().removesuffix(",").split(",")
    n = len(cells) - 3
    if n not in WIDTHS or (width and n != width):
        return None
    try:
        numbers = np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return None
    time_ms, op, size = (int(number) for number in numbers[:3])
    counts = numbers[3:]
    if op > 1 or bool((numbers < 0).any()) or bool((counts > 2**40).any()) or size > 2**40:
        return None
    return _Row(time_ms, op, size, counts) if time_ms < 9 * 10**12 else None


def bin_values(width: int) -> np.ndarray:
    """Representative latency of each counter, s: the middle of what it covers; float64[width].

    >>> bin_values(1856)[[0, 127, 128]] * 1e9
    array([  0., 127., 129.])
    """
    coarseness, per_s = WIDTHS[width]
    first = np.arange(width, dtype=np.int64) << coarseness
    last = first + (1 << coarseness) - 1
    middle: np.ndarray = (fio_bin_value(first) + fio_bin_value(last)) / (2 * per_s)
    return middle


def _measurement(source: Source, rows: list[_Row], width: int) -> Measurement:
    run, name = find_run(source.path), parse_name(source.path)
    start = min(row.time_ms for row in rows)
    # Since 1970 (log_unix_epoch): the first interval's start is unknown.
    origin = start if start > 10**11 else 0
    span_s = (max(row.time_ms for row in rows) - origin) / 1000
    conditions = run.conditions([name.job]) if run else Conditions()
    sizes = {row.bytes for row in rows if row.bytes}
    if conditions.block_size is None and len(sizes) == 1:
        conditions = replace(conditions, block_size=sizes.pop())
    conditions = replace(conditions, duration_s=span_s or conditions.duration_s)
    ops = dict(_results(source, rows, width, span_s))
    return Measurement(name.prefix, conditions, ops, source="fio histogram log")


def _results(
    source: Source, rows: list[_Row], width: int, span_s: float
) -> Iterator[tuple[Op, OpResult]]:
    values = bin_values(width)
    found = False
    for k, op in enumerate(OPS):
        mine = [row for row in rows if row.op == k]
        counts = np.sum([row.counts for row in mine], axis=0) if mine else np.zeros(0, np.int64)
        total = int(counts.sum())
        if not total:
            continue
        found = True
        n_bytes = sum(int(row.counts.sum()) * row.bytes for row in mine)
        rate = 1 / span_s if span_s else 0.0
        yield op, OpResult(total, n_bytes, total * rate, n_bytes * rate, _latency(values, counts))
    if not found:
        raise _empty(source)


def _latency(values: np.ndarray, counts: np.ndarray) -> Latency:
    used = np.flatnonzero(counts)
    bins, samples = values[used], counts[used]
    return Latency(
        count=int(samples.sum()),
        mean_s=float(np.average(bins, weights=samples)),
        percentiles_s=percentiles_of_bins(bins, samples, FIO_PERCENTILES),
        bin_s=bins,
        bin_count=samples,
    )


def _empty(source: Source) -> CaptureError:
    return source.error("has zero samples: all its counters are 0", "repeat the capture")
