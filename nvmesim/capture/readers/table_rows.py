"""Tables with a line a request as integer columns, read by Polars a chunk ahead on another thread.

Most lines are plain: cells between separators, whole numbers, words without quotes. They are split
by Polars' CSV reader into typed columns, with one column more than a row has, so that a row that is
too long is seen. Lines without a value in a wanted cell are parsed again as text: quotes, blanks
around cells, names with blanks in them, optional cells. What is not a row even then is handed to
the format, which knows headers and messages, and else counted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from nvmesim.capture.lines import NEWLINE, Notes, ahead, chunks, whole_lines
from nvmesim.capture.requests import FLUSH, OTHER, READ, UNKNOWN_TIME, WRITE
from nvmesim.capture.text import Source

# What a wanted column holds.
INTEGER: Final = 0
SECONDS: Final = 1  # a decimal as 10**-9 of its unit, rounded
LETTER: Final = 2  # the first letter of a word, as upper case; the word has letters only
NAME: Final = 3  # any text, as its number among the names seen so far
TWO_NAMES: Final = 4  # this column and the one behind it as one name, with a comma in between
OPERATION: Final = 5  # an RWBS field: 0 reads, 1 writes, other numbers as in `capture.requests`
OPTIONAL: Final = 8  # added to a kind: a blank column is `UNKNOWN_TIME`

COMMA, SPACE = b", "
MAX_NAMES: Final = 1 << 14
LONGEST_NAME: Final = 200
NO_ROOM: Final = -2
MOST_SECONDS: Final = 4 * 10**18  # ns; more is no time since 1970
MAX_ODD: Final = 10_000
_DECIMAL: Final = pl.Decimal(38, 9)
_BLANKS: Final = bytes.maketrans(b"\t\x0b\x0c\r", b"    ")
_WORDS: Final = (LETTER, NAME, TWO_NAMES, OPERATION)
LONGEST_RWBS: Final = 10


Columns = dict[str, np.ndarray]


class TableColumn(NamedTuple):
    """A wanted column: where it stands (negative: from the right) and what it holds."""

    at: int
    kind: int


@dataclass(frozen=True)
class Shape:
    """How lines split into columns, and which are wanted, by name."""

    columns: dict[str, TableColumn]
    least: int  # columns of a row at least
    most: int = 1000
    commas: bool = True
    point: str = "."  # a decimal point beside the dot


@dataclass
class ColumnNames:
    """Names seen so far, at most `MAX_NAMES`."""

    known: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of *name*, given when it is first seen; `NO_ROOM` if there is no more room."""
        found = self.numbers.get(name)
        if found is None:
            if len(self.known) >= MAX_NAMES or len(name) > LONGEST_NAME:
                return NO_ROOM
            found = self.numbers[name] = len(self.known)
            self.known.append(name)
        return found


class RowBatch(NamedTuple):
    """Rows of one chunk."""

    columns: Columns  # int64[n] by name
    odd: list[bytes]  # lines that are no rows; beyond 10,000 a chunk they are counted only
    more_odd: int


def table_batches(
    source: Source, shape: Shape, names: ColumnNames, notes: Notes,
    is_expected: Callable[[bytes], bool],
) -> Iterator[RowBatch]:  # fmt: skip
    """Yield the rows of *source*; lines that are none and not *is_expected* count as skipped."""
    reader = _Reader(shape, names)
    for batch, is_cut in ahead(source, reader.batches(source)):
        # A last line without its end may be cut within a number.
        notes.skipped += int(is_cut) + batch.more_odd
        notes.skipped += sum(not is_expected(line) for line in batch.odd)
        yield batch
    notes.say(
        reader.overflow, "too-many-names", "rows of devices beyond the room for names (left out)"
    )


class _Reader:
    """Chunks of bytes to columns of integers."""

    def __init__(self, shape: Shape, names: ColumnNames) -> None:
        self._shape, self._names = shape, names
        self._separator = "," if shape.commas else " "
        types = {INTEGER: pl.Int64(), SECONDS: _DECIMAL}
        # One cell more than a row has must be missing.
        self._schema: dict[str, pl.DataType] = {
            **{f"c{k}": pl.String() for k in range(shape.least)},
            **{
                f"c{column.at % shape.least}": types.get(column.kind & ~OPTIONAL, pl.String())
                for column in shape.columns.values()
            },
            "extra": pl.String(),
        }
        self.overflow = 0

    def batches(self, source: Source) -> Iterator[tuple[RowBatch, bool]]:
        """The rows chunk by chunk, and whether its last line lacks its end."""
        for data in chunks(source):
            stop = data.size if data[-1] == NEWLINE else whole_lines(data)
            if stop:
                yield self.read(data[:stop].tobytes()), bool(stop < data.size)
            else:
                nothing = {name: np.zeros(0, np.int64) for name in self._shape.columns}
                yield RowBatch(nothing, [], 0), True

    def read(self, raw: bytes) -> RowBatch:
        """The rows of *raw*, whole lines, in their order."""
        if self._shape.commas:
            raw = raw.replace(b"\r\n", b"\n")
        else:
            raw = _single_blanks(raw, self._shape.point)
        plain, good = self._plain(raw)
        text = np.frombuffer(raw, np.uint8)
        ends = np.flatnonzero(text == NEWLINE)
        if good.size != ends.size:  # a line that Polars takes for two or for none
            good = np.zeros(ends.size, np.bool_)
            plain = {name: np.zeros(good.size, np.int64) for name in plain}
        # Polars does not tell a further cell that is blank from none.
        good &= text[np.maximum(ends - 1, 0)] != COMMA
        if good.all():
            return RowBatch(plain, [], 0)
        others = _lines(raw, ends, np.flatnonzero(~good))
        close, is_row = self._close(others)
        where = np.flatnonzero(~good)[is_row]
        if where.size:
            plain = {name: column.copy() for name, column in plain.items()}
            for name, column in plain.items():
                column[where] = close[name][is_row]
            good[where] = True
        odd = others.filter(~is_row)
        odd = odd.filter(odd.str.contains(r"\S"))
        kept = [line.encode("utf-8", "replace") for line in odd.head(MAX_ODD)]
        rows = {name: column[good] for name, column in plain.items()}
        return RowBatch(rows, kept, odd.len() - len(kept))

    def _plain(self, raw: bytes) -> tuple[Columns, np.ndarray]:
        """The wanted columns of every line, and bool[n], whether it needs no closer look."""
        least = self._shape.least
        # The first line fixes the number of columns.
        first = self._separator.join(["0"] * len(self._schema)) + "\n"
        frame = pl.read_csv(
            io.BytesIO(first.encode() + raw),
            has_header=False,
            schema=self._schema,
            separator=self._separator,
            ignore_errors=True,
            truncate_ragged_lines=True,
            quote_char=None,
            encoding="utf8-lossy",
        )[1:]
        # The last cell shows that a row is not too short, the extra one that it is not too long.
        good: np.ndarray = frame[f"c{least - 1}"].is_not_null().to_numpy().copy()
        if self._shape.most == least or not self._shape.commas:
            good &= frame["extra"].is_null().to_numpy()
        return self._numbers(lambda at: frame[f"c{at % least}"], good)

    def _close(self, lines: pl.Series) -> tuple[Columns, np.ndarray]:
        """The same of single *lines*, looked at closely."""
        shape = self._shape
        split = lines.str.split(self._separator)
        quoted = bool(lines.str.contains('"', literal=True).any())

        def cell(at: int) -> pl.Series:
            text = split.list.get(at, null_on_oob=True).str.strip_chars()
            return text.str.replace(r'^"(.*)"$', "$1") if quoted else text

        good = split.list.len().is_between(shape.least, shape.most).to_numpy().copy()
        found, good = self._numbers(cell, good)
        self.overflow += sum(
            int((found[name] == NO_ROOM).sum())
            for name, column in shape.columns.items()
            if column.kind in (NAME, TWO_NAMES)
        )
        return found, good

    def _numbers(
        self, cell: Callable[[int], pl.Series], good: np.ndarray
    ) -> tuple[Columns, np.ndarray]:
        """Every wanted column as int64[n], and bool[n], *good* where all its cells are such."""
        found: Columns = {}
        for name, column in self._shape.columns.items():
            kind, values = column.kind & ~OPTIONAL, cell(column.at)
            if kind == TWO_NAMES:
                both = pl.concat_str(values, cell(column.at + 1), separator=",")
                values = pl.select(both).to_series()
            number = (
                self._codes(values, kind)
                if kind in _WORDS
                else _number(values, kind, self._shape.point)
            )
            is_good = number >= 0
            if column.kind & OPTIONAL and values.dtype == pl.String:
                blank = (values == "").fill_null(value=False).to_numpy()
                number = np.where(blank, UNKNOWN_TIME, number)
                is_good |= blank
            found[name] = number
            good &= is_good
        return found, good

    def _codes(self, words: pl.Series, kind: int) -> np.ndarray:
        """Meaning of each word, -1: none; there are few different ones."""
        distinct = words.drop_nulls().unique(maintain_order=True)
        codes = [self._code(word, kind) for word in distinct]
        found = words.replace_strict(distinct, codes, default=-1, return_dtype=pl.Int64)
        return found.to_numpy()

    def _code(self, word: str, kind: int) -> int:
        if kind in (NAME, TWO_NAMES):
            return self._names.number(word) if _is_name(word) else -1
        if not (word.isascii() and word.isalpha()):
            return -1
        return ord(word[0].upper()) if kind == LETTER else operation_of(word)


def operation_of(word: str) -> int:
    """The operation of an RWBS field, its first letter or the one behind a preflush F; -1: none.

    >>> operation_of("WS"), operation_of("FR"), operation_of("FN"), operation_of("D")
    (1, 0, 2, 3)
    """
    if len(word) > LONGEST_RWBS:
        return -1
    letter = word[1:2] if word[0] == "F" else word[0]
    return {"R": READ, "W": WRITE, "": FLUSH, "N": FLUSH if word[0] == "F" else OTHER}.get(
        letter, OTHER
    )


def _is_name(word: str) -> bool:
    """True if *word* is a name as it stands, or two: not blank, not quoted."""
    parts = word.split(",")
    return '"' not in word and all(part and part == part.strip() for part in parts)


def _lines(raw: bytes, ends: np.ndarray, which: np.ndarray) -> pl.Series:
    """The lines *which* of *raw*, without their ends."""
    starts = np.append(0, ends[:-1] + 1)[which].tolist()
    stops = ends[which].tolist()
    found = [raw[a:b].decode("utf-8", "replace") for a, b in zip(starts, stops, strict=True)]
    return pl.Series("line", found, dtype=pl.String)


def _number(values: pl.Series, kind: int, point: str) -> np.ndarray:
    """Numbers from 0 on; negative for all else."""
    if values.dtype == pl.String:
        text = values.str.replace(point, ".", literal=True) if point != "." else values
        values = text.cast(_DECIMAL if kind == SECONDS else pl.Int64, strict=False)
    if kind == SECONDS:
        values = values.to_physical().cast(pl.Int64, strict=False)
    number = values.fill_null(-1).to_numpy()
    return np.where(number > MOST_SECONDS, -1, number) if kind == SECONDS else number


def _single_blanks(raw: bytes, point: str) -> bytes:
    """*raw* with one blank between the words of a line and none around them."""
    text = np.frombuffer(raw.translate(_BLANKS), np.uint8)
    blank = text == SPACE
    edge = text == NEWLINE
    # Of a run of blanks the last one stays, unless a line starts before it or ends behind it.
    following = np.append((blank | edge)[1:], True)
    kept = text[~(blank & following)]
    starts = np.append(True, kept[:-1] == NEWLINE)
    text = kept[~((kept == SPACE) & starts)]
    single: bytes = text.tobytes()
    return single.replace(point.encode(), b".") if point != "." else single
