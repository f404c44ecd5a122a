"""A capture as frames of whole lines, and as integer columns of their cells.

Cells may be quoted and have blanks around them, names may have blanks in them, and cells may be
optional. What is not a row is handed to the format, which knows headers and messages, and else
counted. Polars splits lines a chunk ahead on another thread.
"""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import numpy as np
import polars as pl

from nvmesim.capture.requests import FLUSH, OTHER, READ, UNKNOWN_TIME, WRITE
from nvmesim.capture.text import Source
from nvmesim.warning import Warning

CHUNK: Final = 4 << 20
"""Characters read at a time: some 60,000 events; more is slower, for it leaves the cache."""
LONGEST_LINE: Final = 64 << 20

OTHER_COMMANDS: Final = "other-commands"
STEPS_BACK: Final = "clock-steps-back"
"""Codes of warnings."""


@dataclass
class Notes:
    """Counts and warnings of one file; filled while it is read."""

    skipped: int = 0
    warnings: list[str] = field(default_factory=list)

    def say(self, count: int, code: str, text: str) -> None:
        """Add a warning that starts with *count*, if there is anything to count."""
        if count:
            self.warnings.append(Warning(code, f"{count} {text}"))


T = TypeVar("T")


def ahead(source: Source, items: Iterator[T]) -> Iterator[T]:
    """Yield *items*, made of *source*; the next one is made on another thread meanwhile."""
    if source.head.whole:  # one item is not worth a thread
        yield from items
        return
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def line_frames(source: Source, notes: Notes, *, keep_last: bool = False) -> Iterator[pl.DataFrame]:
    """Yield the lines as frames with one String column ``line``, without their ends (LF or CRLF).

    A last line without its end may be cut within a number: it counts as skipped in *notes*, unless
    *keep_last*. A line longer than 64 MiB is a CaptureError. A compressed file is expanded ahead.
    """
    pieces = _pieces(source)
    for text in pieces if source.compression is None else ahead(source, pieces):
        if text.endswith("\n") or keep_last:
            text = text.removesuffix("\n")
        else:
            notes.skipped += 1
            continue
        lines = pl.Series("line", [text], dtype=pl.String).str.split("\n").explode()
        yield lines.str.strip_chars_end("\r").to_frame()


def _pieces(source: Source) -> Iterator[str]:
    """Whole lines, many at a time; only the last piece may be a line without its end."""
    carried = ""
    with io.TextIOWrapper(source.open(), source.encoding, "replace", newline="") as file:
        while read := file.read(CHUNK):
            carried += read
            cut = carried.rfind("\n") + 1
            whole, carried = carried[:cut], carried[cut:]
            if len(carried) > LONGEST_LINE:
                raise source.error("has a line longer than 64 MiB", "repeat the capture")
            if whole:
                yield whole
    if carried:
        yield carried


# -- rows of tables --------------------------------------------------------------------------------

# What a wanted column holds.
INTEGER: Final = 0
SECONDS: Final = 1
"""A decimal as 10**-9 of its unit, rounded."""
LETTER: Final = 2
"""The first letter of a word, as upper case; the word has letters only."""
NAME: Final = 3
"""Any text, as its number among the names seen so far."""
TWO_NAMES: Final = 4
"""This column and the one behind it as one name, with a comma in between."""
OPTIONAL: Final = 8
"""Added to a kind: a blank column is `UNKNOWN_TIME`."""

MAX_NAMES: Final = 1 << 14
LONGEST_NAME: Final = 200
NO_ROOM: Final = -2
MOST_SECONDS: Final = 4 * 10**18
"""ns; more is no time since 1970."""
MAX_ODD: Final = 10_000
_DECIMAL: Final = pl.Decimal(38, 9)
_BLANKS: Final = " \t\v\f"
_QUOTED: Final = r'^"(.*)"$'
_WORDS: Final = (LETTER, NAME, TWO_NAMES)
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
    least: int
    """Columns of a row at least."""
    most: int = 1000
    commas: bool = True
    point: str = "."
    """A decimal point beside the dot."""


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

    columns: Columns
    """int64[n] by name."""
    odd: list[bytes]
    """Lines that are no rows; beyond 10,000 a chunk they are counted only."""
    more_odd: int


def table_batches(
    source: Source, shape: Shape, names: ColumnNames, notes: Notes,
    is_expected: Callable[[bytes], bool],
) -> Iterator[RowBatch]:  # fmt: skip
    """Yield the rows of *source*; lines that are none and not *is_expected* count as skipped."""
    reader = _Reader(shape, names)
    ends = Notes()  # filled on the other thread
    for batch in ahead(source, map(reader.read, line_frames(source, ends))):
        notes.skipped += batch.more_odd + sum(not is_expected(line) for line in batch.odd)
        yield batch
    notes.skipped += ends.skipped
    notes.say(
        reader.overflow, "too-many-names", "rows of devices beyond the room for names (left out)"
    )


class _Reader:
    def __init__(self, shape: Shape, names: ColumnNames) -> None:
        self._shape, self._names = shape, names
        self.overflow = 0

    def read(self, frame: pl.DataFrame) -> RowBatch:
        """The rows of lines, in their order."""
        shape, lines = self._shape, frame["line"]
        if shape.commas:
            close = lines.str.replace_all(", ", ",", literal=True)
            split, is_loose = close.str.split(","), close.str.contains(f'["{_BLANKS}]').any()
        else:
            split, is_loose = lines.str.extract_all(r"\S+"), lines.str.contains('"').any()

        def cell(at: int) -> pl.Series:
            text = split.list.get(at, null_on_oob=True)
            return text.str.strip_chars(_BLANKS).str.replace(_QUOTED, "$1") if is_loose else text

        good: np.ndarray = split.list.len().is_between(shape.least, shape.most).to_numpy()
        found: Columns = {}
        for name, column in shape.columns.items():
            words = cell(column.at)
            if column.kind == TWO_NAMES:
                both = pl.concat_str(words, cell(column.at + 1), separator=",")
                words = pl.select(both).to_series()
            found[name] = numbers = self._numbers(words, column.kind)
            good = good & ((numbers >= 0) | (numbers == UNKNOWN_TIME))
            self.overflow += int((numbers == NO_ROOM).sum())
        odd = lines.filter(~good)
        odd = odd.filter(odd.str.contains(r"\S"))
        kept = [line.encode("utf-8", "replace") for line in odd.head(MAX_ODD)]
        rows = {name: column[good] for name, column in found.items()}
        return RowBatch(rows, kept, odd.len() - len(kept))

    def _numbers(self, words: pl.Series, kind: int) -> np.ndarray:
        """What each of *words* stands for; -1 or `NO_ROOM` if for nothing."""
        if kind & OPTIONAL:
            blank = (words == "").fill_null(value=False).to_numpy()
            return np.where(blank, UNKNOWN_TIME, self._numbers(words, kind & ~OPTIONAL))
        if kind in _WORDS:  # there are few different ones
            distinct = words.drop_nulls().unique(maintain_order=True)
            codes = [self._code(word, kind) for word in distinct]
            meant = words.replace_strict(distinct, codes, default=-1, return_dtype=pl.Int64)
            return meant.to_numpy()
        if kind == INTEGER:
            number = words.cast(pl.Int64, strict=False)
        else:
            decimal = words.str.replace(self._shape.point, ".", literal=True)
            number = decimal.cast(_DECIMAL, strict=False).to_physical().cast(pl.Int64, strict=False)
            number = number.set(number > MOST_SECONDS, -1)
        return np.asarray(number.fill_null(-1).clip(-1).to_numpy())

    def _code(self, word: str, kind: int) -> int:
        if kind in (NAME, TWO_NAMES):  # a name, or two, as it stands: not blank, not quoted
            is_name = all(part and part == part.strip() for part in word.split(","))
            return self._names.number(word) if is_name and '"' not in word else -1
        return ord(word[0].upper()) if word.isascii() and word.isalpha() else -1


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
