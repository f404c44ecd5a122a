"""Colours of the charts and the picture; they stay apart in grey and for the colour-blind."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

KINDS: Final = {
    "cpu": "#0072b2",
    "thread": "#56b4e9",
    "lock": "#882255",
    "raid-engine": "#d55e00",
    "link": "#e69f00",
    "drive": "#009e73",
    "gate": "#cc79a7",
    "limit": "#8a5fa8",
    "delay": "#999999",
}
"""By kind of station. Source: Okabe and Ito, colour-universal design palette."""

READ: Final = "#2a78b8"
WRITE: Final = "#f0a63c"
TOTAL: Final = "#7a7f87"
ACCENT: Final = "#c2202c"
MUTED: Final = "#8a9099"

LOAD_STEPS: Final = ((0.5, "#8fcfc3"), (0.75, "#e0aa35"), (0.9, "#d9622b"), (None, "#b81d29"))
"""(utilization below which, colour): the busier, the darker, so that order survives in grey."""


def load_colour(utilization: float) -> str:
    """Colour of a load.

    >>> load_colour(0.2), load_colour(0.97)
    ('#8fcfc3', '#b81d29')
    """
    return next(c for limit, c in LOAD_STEPS if limit is None or utilization < limit)


def load_words(utilization: float) -> str:
    """The step of the legend that a load belongs to.

    >>> load_words(0.2), load_words(0.8), load_words(1.0)
    ('below 50 %', '75–90 %', 'over 90 %')
    """
    return next(words for words, step in load_legend() if step == load_colour(utilization))


def load_legend() -> list[tuple[str, str]]:
    """Return (words, colour) of every step, least first."""
    ends = [f"{100 * limit:.0f}" for limit, _ in LOAD_STEPS if limit is not None]
    between = [f"{low}–{high} %" for low, high in pairwise(ends)]
    words = [f"below {ends[0]} %", *between, f"over {ends[-1]} %"]
    return list(zip(words, (colour for _, colour in LOAD_STEPS), strict=True))
