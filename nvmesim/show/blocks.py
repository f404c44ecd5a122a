"""An answer as blocks: each is described once, and `terminal`, `page` and `markdown` render it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nvmesim.measure.figures import Interval

if TYPE_CHECKING:
    from altair import LayerChart

Look = Literal["", "strong", "faint"]
LARGEST: Final = 3.0
"""An end or a goal further than so many times the value leaves its bar."""
_HEADING: Final = re.compile(r"(?P<left><?)(?P<name>[^\[]*?)(?: ?\[(?P<unit>.+)\])?")


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers stand right, texts left."""

    name: str
    unit: str = ""
    is_left: bool = False


@dataclass(frozen=True)
class Cell:
    """A text, and beside or below it a remark in small letters, graded by how good it is."""

    text: str
    small: str = ""
    grade: Literal["", "good", "near", "off"] = ""


@dataclass(frozen=True)
class Table:
    """Rows under columns with units."""

    title: str
    """Says what the table is where there is no heading to see."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    looks: tuple[Look, ...] = ()
    """Of the first rows; the others look as usual."""
    notes: tuple[str, ...] = ()

    def look(self, row: int) -> Look:
        """Return how row number *row* looks."""
        return self.looks[row] if row < len(self.looks) else ""


def column(heading: str) -> Column:
    """Return the column of a heading: "<" before it: left-aligned; its unit in brackets.

    >>> column("p99 [us]"), column("<limited by")
    (Column(name='p99', unit='us', is_left=False), Column(name='limited by', unit='', is_left=True))
    """
    found = _HEADING.fullmatch(heading)
    if found is None:  # a bracket of the user's own
        return Column(heading.removeprefix("<"), is_left=heading.startswith("<"))
    return Column(found["name"], found["unit"] or "", bool(found["left"]))


def table(
    title: str, headings: Iterable[str], rows: Iterable[Sequence[str | Cell]], *,
    looks: Iterable[Look] = (), notes: Iterable[str] = (),
) -> Table:  # fmt: skip
    """Return a table; *headings* as `column` takes them, the first column is left-aligned.

    >>> table("Loads", ["name", "IOPS"], [["a", "5k"]]).rows[0][1].text
    '5k'
    """
    columns = [column(heading) for heading in headings]
    columns[0] = Column(columns[0].name, columns[0].unit, is_left=True)
    cells = (tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(title, tuple(columns), tuple(cells), tuple(looks), tuple(notes))


@dataclass(frozen=True)
class Line:
    """A line of text."""

    text: str
    look: Literal["", "title", "head", "soft"] = ""


@dataclass(frozen=True)
class Facts:
    """Names and what is known of them."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Bullets:
    """Lines of a list."""

    lines: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Warnings:
    """Reasons to doubt an answer."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A text as it is, such as a scenario's file."""

    text: str


@dataclass(frozen=True)
class Range:
    """A value with its 95 % interval, to be drawn as a bar."""

    name: str
    interval: Interval
    text: str
    """The value and its ends in words."""
    limit: float | None = None
    """The goal for it."""
    limit_text: str = ""


@dataclass(frozen=True)
class Ranges:
    """Bars, those of one scale below one another."""

    rows: tuple[Range, ...]
    shared: bool = False
    """True if all have the same unit, and so one scale."""

    def top(self, row: Range) -> float:
        """The end of *row*'s scale: values, and ends and goals up to `LARGEST` times as far."""
        rows = self.rows if self.shared else (row,)
        most = max(r.interval.value for r in rows)
        ends = [end for r in rows for end in (r.interval.high, r.limit or 0.0)]
        near = [min(end, LARGEST * most) for end in ends if math.isfinite(end)]
        return max([most, *near]) * 1.04 or 1.0


@dataclass(frozen=True)
class Cards:
    """Numbers in large letters with what they are; on pages only."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Charts:
    """Title -> (chart, caption), or what draws them; on pages only: a terminal draws none."""

    drawn: Mapping[str, tuple[LayerChart, str]] | Callable[[], Mapping[str, tuple[LayerChart, str]]]

    def all(self) -> Mapping[str, tuple[LayerChart, str]]:
        """The charts, drawn now where they were not."""
        return self.drawn() if callable(self.drawn) else self.drawn


@dataclass(frozen=True)
class Drawn:
    """An SVG with its name; on pages only."""

    svg: str
    name: str


@dataclass(frozen=True)
class Fold:
    """Blocks for those who want to know more: closed on a page, ``--verbose`` on a terminal."""

    title: str
    blocks: tuple[Block, ...]
    is_listed: bool = True
    """Named on a terminal that does not show it."""


@dataclass(frozen=True)
class Section:
    """Blocks under a heading, which the contents of a page lead to."""

    title: str
    blocks: tuple[Block, ...]
    on_terminal: bool = False
    """Only pages have room for most."""


Block: TypeAlias = (
    Line | Facts | Bullets | Warnings | Source | Ranges | Cards | Charts | Drawn | Fold | Section
    | Table
)  # fmt: skip


def present(*blocks: Block | None) -> list[Block]:
    """Return those of *blocks* that are there."""
    return [block for block in blocks if block is not None]


def markdown(shown: Table) -> str:
    """Return *shown* as a Markdown table, its notes below.

    >>> print(markdown(table("", ["", "<p99 [us]"], [["total", "55"]])))
    | | p99, us |
    |---|---|
    | total | 55 |
    """
    heads = [f"{c.name}, {c.unit}" if c.unit else c.name for c in shown.columns]
    lines = ["".join(f"| {h} " if h else "| " for h in heads) + "|", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(cell.text for cell in row)} |" for row in shown.rows]
    text = "\n".join(lines)
    return text + ("\n\n" + "\n".join(f"- {note}" for note in shown.notes) if shown.notes else "")
