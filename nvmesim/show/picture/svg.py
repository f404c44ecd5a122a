"""A little SVG: shapes and texts as escaped elements, and how much text fits."""

from __future__ import annotations

import html
from typing import Final

from nvmesim.show.words import one_line

GLYPH: Final = 0.6
"""Mean width of a glyph in units of the font size; wide fonts (DejaVu Sans) need this much."""


def text_width(text: str, size: float) -> float:
    """Width that *text* may need at font size *size*.

    >>> text_width("socket", 10)
    36.0
    """
    return len(text) * size * GLYPH


def fitted(text: str, width: float, size: float) -> str:
    """*text* on one line, cut with an ellipsis where it would be wider than *width*.

    >>> fitted("drive17 of the second rack", 60, 10)
    'drive17 o…'
    """
    line = one_line(text)
    most = max(1, int(width / (size * GLYPH)))
    return line if len(line) <= most else line[: most - 1] + "…"


def number(value: float) -> str:
    """A coordinate: two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Canvas:
    """Elements in the order they are drawn."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, *,
        fill: str = "", radius: float = 0, tip: str = "",
    ) -> None:  # fmt: skip
        """A rectangle of class *css*, filled by its class unless *fill* is given."""
        if width <= 0 or height <= 0:
            return
        style = f' style="fill:{fill}"' if fill else ""
        round_ = f' rx="{number(radius)}"' if radius else ""
        inside = f"<title>{html.escape(one_line(tip))}</title>" if tip else ""
        self.parts.append(
            f'<rect class="{css}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}"{round_}{style}>{inside}</rect>'
        )

    def text(
        self, x: float, y: float, text: str, css: str = "t", *, size: float = 11,
        anchor: str = "start", room: float | None = None,
    ) -> None:  # fmt: skip
        """A line of text with its baseline at *y*, cut to *room*."""
        shown = fitted(text, room, size) if room is not None else one_line(text)
        where = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text class="{css}" x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
            f"{where}>{html.escape(shown)}</text>"
        )

    def path(self, d: str, css: str, *, style: str = "") -> None:
        """A path of class *css*."""
        text = f' style="{style}"' if style else ""
        self.parts.append(f'<path class="{css}" d="{d}"{text}/>')

    def document(
        self, width: float, height: float, label: str, css: str, css_class: str = "nvmesim-server"
    ) -> str:
        """The whole SVG, scaling with what holds it."""
        name = html.escape(one_line(label), quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{css_class}" role="img" '
            f'aria-label="{name}" viewBox="0 0 {number(width)} {number(height)}" '
            f'width="{number(width)}" height="{number(height)}">'
            f"<style>{css}</style>{''.join(self.parts)}</svg>"
        )
