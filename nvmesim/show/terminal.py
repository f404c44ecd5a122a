"""An answer as a person reads it on a terminal."""

import io
from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from nvmesim.show import blocks as b
from nvmesim.show.words import one_line

WIDTH = 120
"""Of output that no terminal shows."""
BAR = 44
"""Characters of a bar."""
GAPS = (3, 2, 1)
"""Between the columns of a table: the first with which it is not wider than the terminal."""
FIRST = 36
"""Characters of the first column that are not given up for wider gaps."""
LONG = 24
"""Characters from which on a text may take several lines."""
_STYLES = {"title": "bold", "head": "bold", "soft": "dim", "strong": "bold", "faint": "dim"}


def show(blocks: Iterable[b.Block], *, verbose: bool = False) -> None:
    """Print *blocks* to stdout; a pipe gets plain text, 120 wide, no spaces at ends of lines."""
    screen = Console(highlight=False)
    shown = view(blocks, verbose=verbose, width=screen.width if screen.is_terminal else WIDTH)
    if screen.is_terminal:
        screen.print(shown)
        return
    for line in _flat(shown):
        print(line, file=screen.file)


def text(blocks: Iterable[b.Block], *, verbose: bool = False, width: int = WIDTH) -> str:
    """Return what `show` prints into a pipe."""
    return "\n".join(_flat(view(blocks, verbose=verbose, width=width), width))


def _flat(shown: RenderableType, width: int = WIDTH) -> list[str]:
    console = Console(file=io.StringIO(), highlight=False, width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return [line.rstrip() for line in captured.get().splitlines()]


def plain(line: str, style: str = "") -> Text:
    """*line* as it is: no markup, no control characters."""
    return Text(one_line(line), style=style)


def view(blocks: Iterable[b.Block], *, verbose: bool = False, width: int = WIDTH) -> RenderableType:
    """Return *blocks* for rich; folds are named at the end unless they are shown."""
    shown = list(blocks)
    parts = list(_parts(shown, verbose, width))
    folded = [x.title for x in shown if isinstance(x, b.Fold) and x.is_listed and not verbose]
    if folded:
        parts += [Text(), plain(f"--verbose shows: {', '.join(folded)}", "dim")]
    return Group(*parts)


def _parts(blocks: list[b.Block], verbose: bool, width: int) -> Iterator[RenderableType]:
    """Renderables, with an empty line around all that is more than a line."""
    before: b.Block | None = None
    for block in blocks:
        found = list(_part(block, verbose, width))
        if found:
            gap = not isinstance(block, b.Line) or block.look == "head"
            if before is not None and (gap or not isinstance(before, b.Line)):
                yield Text()
            yield from found
            before = block


def _part(block: b.Block, verbose: bool, width: int) -> Iterator[RenderableType]:
    match block:
        case b.Line():
            yield plain(block.text, _STYLES.get(block.look, ""))
        case b.Table():
            if block.rows:
                yield _table(block, width)
            yield from (plain(note, "dim") for note in block.notes)
        case b.Facts():
            yield _pairs(block.pairs, "dim")
        case b.Ranges():
            yield _pairs(((r.name, f"{bar(r, block.top(r))}  {r.text}"
                           + (f"   : {r.limit_text}" if r.limit_text else ""))
                          for r in block.rows), "dim")  # fmt: skip
        case b.Warnings() if block.lines:
            yield _pairs((("warning", line) for line in block.lines), "yellow")
        case b.Bullets():
            if block.title:
                yield plain(block.title, "dim")
            yield from (Padding(plain(line), (0, 0, 0, 2)) for line in block.lines)
        case b.Fold() if verbose:
            yield plain(block.title, "dim")
            yield from _parts(list(block.blocks), verbose, width)
        case b.Section() if block.on_terminal:
            yield from _parts(list(block.blocks), verbose, width)


def bar(row: b.Range, top: float, width: int = BAR) -> str:
    """Return one interval as text on a scale from 0 to *top*; ``:`` is the goal, ``>`` goes on.

    >>> from nvmesim.measure.figures import Interval
    >>> bar(b.Range("IOPS", Interval(50.0, 25.0, 75.0), ""), top=100.0, width=20)
    '     |----o----|    '
    >>> bar(b.Range("p99", Interval(50.0, 25.0, 300.0), "", limit=90.0), top=100.0, width=20)
    '     |----o-------:>'
    """

    def at(value: float) -> int:
        return max(0, min(width - 1, round(value / top * width)))

    cells = [" "] * width
    low, value, high = (at(v) for v in (row.interval.low, row.interval.value, row.interval.high))
    cells[low : high + 1] = "-" * (high + 1 - low)
    cells[low], cells[high] = "|", ">" if row.interval.high > top else "|"
    if row.limit is not None and row.limit <= top:
        cells[at(row.limit)] = ":"
    cells[value] = "o"
    return "".join(cells)


def _pairs(pairs: Iterable[tuple[str, str]], style: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(style=style, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, line in pairs:
        grid.add_row(plain(name), plain(line))
    return grid


def _table(shown: b.Table, width: int) -> Grid:
    """A table with no frame; headings of two lines where the terminal is narrow.

    Names and long texts take several lines, numbers never.
    """
    headings = [f"{c.name} {c.unit}".strip() for c in shown.columns]
    cells = [[f"{row[n].text} {row[n].small}".strip() for row in shown.rows]
             for n in range(len(headings))]  # fmt: skip
    widest = [max(map(len, column)) for column in cells]
    whole = list(map(max, widest, map(len, headings)))
    narrow = list(map(max, widest, (max(map(len, h.split() or [""])) for h in headings)))
    may_fold = [n == 0 or (c.is_left and widest[n] > LONG) for n, c in enumerate(shown.columns)]
    least = sum(min(FIRST, w) if fold else w for w, fold in zip(narrow, may_fold, strict=True))
    gap = next((g for g in GAPS if least + g * (len(headings) - 1) <= width), GAPS[-1])
    is_wide = sum(whole) + gap * (len(headings) - 1) > width
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for n, column in enumerate(shown.columns):
        grid.add_column(
            plain(headings[n]), justify="left" if column.is_left else "right", overflow="fold",
            width=narrow[n] if is_wide and not may_fold[n] else None,
        )  # fmt: skip
    for number, row in enumerate(shown.rows):
        texts = (plain(f"{c.text} {c.small}".strip()) for c in row)
        grid.add_row(*texts, style=_STYLES.get(shown.look(number), ""))
    return grid
