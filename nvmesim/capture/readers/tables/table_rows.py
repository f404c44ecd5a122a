"""Tables with a line a request as integer columns, scanned a chunk ahead on a second thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from nvmesim.capture.lines import NEWLINE, ahead, chunks
from nvmesim.capture.notes import Notes
from nvmesim.capture.readers.block.blkparse_fields import whole_lines
from nvmesim.capture.readers.block.words_kernel import words_of
from nvmesim.capture.readers.tables import table_kernel as kernel
from nvmesim.capture.text import Source

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

    def slots(self) -> np.ndarray:
        """Which wanted column each one is, int64[width]; empty if the width is not fixed."""
        found = np.full(self.least if self.commas and self.least == self.most else 0, -1, np.int64)
        if found.size:
            for k, column in enumerate(self.columns.values()):
                found[column.at] = k
        return found


@dataclass
class Names:
    """Names seen so far; the kernel adds to them, so one scan at a time."""

    table: np.ndarray = field(default_factory=lambda: np.zeros(4 * kernel.MAX_NAMES, np.int64))
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
    """Yield the rows of *source*; lines that are none and not *is_expected* count as skipped.

    The arrays of a batch are used again for the one after the next.
    """
    scanner = _Scanner(shape, names)
    for batch, is_cut in ahead(source, scanner.batches(source)):
        # A last line without its end may be cut within a number.
        notes.skipped += int(is_cut) + batch.more_odd
        notes.skipped += sum(not is_expected(line) for line in batch.odd)
        yield batch
    notes.say(
        int(scanner.counters[kernel.OVERFLOW]),
        "rows of devices beyond the room for names (left out)",
    )


class _Scanner:
    """The kernel's tables and buffers: one chunk's rows are used while the next are scanned."""

    def __init__(self, shape: Shape, names: Names) -> None:
        wanted = list(shape.columns.values())
        self._shape, self._names = shape, names
        self._columns = np.array([column.at for column in wanted], np.int64)
        self._kinds = np.array([column.kind for column in wanted], np.int64)
        self._widths = np.array([shape.least, shape.most], np.int64)
        self._slots = shape.slots()
        self._bounds = np.empty((2, kernel.MAX_COLUMNS), np.int64)
        self._quick = np.zeros((len(wanted), 2, kernel.QUICK), np.uint64)
        self._odd = np.empty((2, MAX_ODD), np.int64)
        self._outs = [np.empty((len(wanted), 0), np.int64) for _ in range(2)]
        self.counters = np.zeros(kernel.N_COUNTERS, np.int64)

    def batches(self, source: Source) -> Iterator[tuple[Batch, bool]]:
        """The rows chunk by chunk, and whether its last line lacks its end."""
        for data in chunks(source):
            yield self.scan(data), bool(data[-1] != NEWLINE)

    def scan(self, data: np.ndarray) -> Batch:
        """The rows of *data*, uint8[n], whole lines except perhaps the last."""
        stop = data.size if data[-1] == NEWLINE else whole_lines(data)
        out = self._room(stop // SHORTEST_ROW + 2)
        names, before = self._names, int(self.counters[kernel.SKIPPED])
        # With the JIT off NumPy would warn of unsigned numbers that wrap, as they must.
        with np.errstate(over="ignore"):
            n, n_odd = kernel.scan_table(
                data,
                words_of(data),
                stop,
                self._shape.commas,
                self._shape.point,
                self._columns,
                self._kinds,
                self._widths,
                self._slots,
                self._bounds,
                out,
                self._odd,
                names.table,
                names.ends,
                names.text,
                names.state,
                self._quick,
                self.counters,
            )
        return Batch(
            {name: out[k, :n] for k, name in enumerate(self._shape.columns)},
            int(names.state[kernel.N_NAMES]),
            [data[a:b].tobytes() for a, b in self._odd[:, :n_odd].T.tolist()],
            int(self.counters[kernel.SKIPPED]) - before,
        )

    def _room(self, rows: int) -> np.ndarray:
        out = self._outs.pop(0)
        if out.shape[1] < rows:
            out = np.empty((out.shape[0], rows), np.int64)
        self._outs.append(out)
        return out
