"""Tables with a line a request as integer columns, scanned a chunk ahead on a second thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from nvmesim.trace import table_kernel as kernel
from nvmesim.trace.blkparse_fields import whole_lines
from nvmesim.trace.lines import NEWLINE, chunks
from nvmesim.trace.pairing import Notes
from nvmesim.trace.text import Source

SHORTEST_ROW: Final = 8
MAX_ODD: Final = 10_000


class Column(NamedTuple):
    """A wanted column: where it stands (negative: from the right) and what it holds."""

    at: int
    kind: int


@dataclass(frozen=True)
class Shape:
    """How lines split into columns, and which are wanted, by name."""

    columns: dict[str, Column]
    least: int
    """Columns of a row at least."""
    most: int = kernel.MAX_COLUMNS
    commas: bool = True
    point: int = 46
    """A byte that is a decimal point beside the dot."""


@dataclass
class Names:
    """Names seen so far; the kernel adds to them, so one scan at a time."""

    table: np.ndarray = field(default_factory=lambda: np.full(4 * kernel.MAX_NAMES, -1, np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.zeros(kernel.MAX_NAMES, np.int64))
    text: np.ndarray = field(default_factory=lambda: np.zeros(kernel.NAME_BYTES, np.uint8))
    state: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))
    known: list[str] = field(default_factory=list)

    def listed(self, count: int) -> list[str]:
        """The first *count* names."""
        for number in range(len(self.known), count):
            first = int(self.ends[number - 1]) if number else 0
            raw = self.text[first : int(self.ends[number])].tobytes()
            self.known.append(raw.decode("utf-8", "replace"))
        return self.known


class Batch(NamedTuple):
    """Rows of one chunk."""

    columns: dict[str, np.ndarray]
    """int64[n] by name."""
    n_names: int
    odd: list[bytes]
    """Lines that are no rows; beyond 10,000 a chunk they are counted only."""
    more_odd: int


def table_batches(
    source: Source, shape: Shape, names: Names, notes: Notes, is_expected: Callable[[bytes], bool]
) -> Iterator[Batch]:
    """Yield the rows of *source*; lines that are none and not *is_expected* count as skipped."""
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    waiting: Future[Batch] | None = None
    with ThreadPoolExecutor(1) as pool:
        for data in chunks(source):
            started = pool.submit(_scan, data, shape, names, counters)
            if waiting is not None:
                yield _counted(waiting.result(), notes, is_expected)
            waiting = started
            # A last line without its end may be cut within a number.
            notes.skipped += int(data[-1] != NEWLINE)
        if waiting is not None:
            yield _counted(waiting.result(), notes, is_expected)
    notes.say(
        int(counters[kernel.OVERFLOW]), "rows of devices beyond the room for names (left out)"
    )


def _scan(data: np.ndarray, shape: Shape, names: Names, counters: np.ndarray) -> Batch:
    stop = data.size if data[-1] == NEWLINE else whole_lines(data)
    wanted = list(shape.columns.values())
    out = np.empty((len(wanted), stop // SHORTEST_ROW + 2), np.int64)
    odd = np.empty((2, MAX_ODD), np.int64)
    before = int(counters[kernel.SKIPPED])
    n, n_odd = kernel.scan_table(
        data,
        stop,
        shape.commas,
        shape.point,
        np.array([column.at for column in wanted], np.int64),
        np.array([column.kind for column in wanted], np.int64),
        np.array([shape.least, shape.most], np.int64),
        out,
        odd,
        names.table,
        names.ends,
        names.text,
        names.state,
        counters,
    )
    lines = [data[a:b].tobytes() for a, b in odd[:, :n_odd].T.tolist()]
    columns = {name: out[k, :n] for k, name in enumerate(shape.columns)}
    more = int(counters[kernel.SKIPPED]) - before
    return Batch(columns, int(names.state[kernel.N_NAMES]), lines, more)


def _counted(batch: Batch, notes: Notes, is_expected: Callable[[bytes], bool]) -> Batch:
    notes.skipped += batch.more_odd + sum(not is_expected(line) for line in batch.odd)
    return batch
