"""Colours of the charts and the picture; they stay apart in grey and for the colour-blind."""

import math
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

LOADS: Final = (
    (0.5, "below 50 %", "#8fcfc3"),
    (0.75, "50–75 %", "#e0aa35"),
    (0.9, "75–90 %", "#d9622b"),
    (math.inf, "over 90 %", "#b81d29"),
)
"""(utilization below which, words, colour): the busier, the darker; order survives in grey."""


def load_step(utilization: float) -> tuple[str, str]:
    """Words and colour of a load.

    >>> load_step(0.2), load_step(0.97)
    (('below 50 %', '#8fcfc3'), ('over 90 %', '#b81d29'))
    """
    return next((words, colour) for limit, words, colour in LOADS if utilization < limit)
