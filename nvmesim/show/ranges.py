"""Intervals as bars: ``|----o------|`` in text, and the same as SVG, with the goal's line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nvmesim.show import palette
from nvmesim.show.blocks import Range, Ranges
from nvmesim.show.picture.svg import Canvas, text_width

WIDTH: Final = 44
"""Characters of a bar in text."""
LARGEST: Final = 3.0
"""An end or a goal further than so many times the value leaves the bar."""
_SVG_WIDTH: Final = 720.0
_ROW: Final = 30.0
_CSS: Final = (
    ".ranges{max-width:100%;height:auto;font-family:system-ui,sans-serif}"
    ".ranges text{fill:currentColor}.ranges .s{opacity:.75}"
    f".ranges .track{{fill:rgba(128,128,128,.16)}}.ranges .span{{fill:{palette.READ};opacity:.45}}"
    f".ranges .dot{{fill:{palette.READ}}}.ranges .goal{{fill:{palette.ACCENT}}}"
)


def _top(rows: Sequence[Range]) -> float:
    """The right end of the scale: every value, and ends and goals unless they are far off."""
    most = max(row.interval.value for row in rows)
    ends = [row.interval.high for row in rows] + [row.limit or 0.0 for row in rows]
    near = [min(end, LARGEST * most) for end in ends if math.isfinite(end)]
    return max([most, *near]) * 1.04 or 1.0


def bar(row: Range, top: float = 0.0, width: int = WIDTH) -> str:
    """Return one interval as text on a scale from 0 to *top*; ``:`` is the goal, ``>`` goes on.

    >>> from nvmesim.measure.figures import Interval
    >>> bar(Range("IOPS", Interval(50.0, 25.0, 75.0), ""), top=100.0, width=20)
    '     |----o----|    '
    >>> bar(Range("p99", Interval(50.0, 25.0, 300.0), "", limit=90.0), top=100.0, width=20)
    '     |----o-------:>'
    """
    top = top or _top([row])

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


def bars(ranges: Ranges) -> list[tuple[str, str, str]]:
    """Return name, bar and words of each row."""
    shared = _top(ranges.rows) if ranges.shared else 0.0
    return [
        (r.name, bar(r, shared), r.text + (f"   : {r.limit_text}" if r.limit_text else ""))
        for r in ranges.rows
    ]


def svg(ranges: Ranges) -> str:
    """Return the bars as one SVG that scales with the page."""
    canvas = Canvas()
    shared = _top(ranges.rows) if ranges.shared else 0.0
    room = min(240.0, max(text_width(r.name, 12) for r in ranges.rows) + 14)
    length = _SVG_WIDTH - room - 8
    y = 0.0
    for r in ranges.rows:
        top = shared or _top([r])
        low, value, high = (
            room + length * min(1.0, v / top)
            for v in (r.interval.low, r.interval.value, r.interval.high)
        )
        canvas.text(0, y + 14, r.name, "n", size=12.5, room=room)
        canvas.rect(room, y + 6, length, 9, "track", radius=4)
        canvas.rect(low, y + 6, max(1.5, high - low), 9, "span", radius=4)
        canvas.rect(value - 2.5, y + 2, 5, 17, "dot", radius=2, tip=f"{r.name}: {r.text}")
        if r.limit is not None and r.limit <= top:
            canvas.rect(room + length * r.limit / top - 1, y, 2, 21, "goal", tip=r.limit_text)
        words = f"{r.text} · red line: {r.limit_text}" if r.limit_text else r.text
        canvas.text(room, y + 31, words, "s", size=11.5, room=length)
        y += _ROW + 12
    label = "; ".join(f"{r.name}: {r.text}" for r in ranges.rows)
    return canvas.document(_SVG_WIDTH, y, label, _CSS, css_class="ranges")
