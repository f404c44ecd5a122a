"""The four parts of an interval, and their sum, for each figure of a prediction."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nvmesim.predict.uncertainty.standing import Standing

FIGURES: Final = ("iops", "mean", "p50", "p90", "p95", "p99", "p99.9")
"""Figures that have an interval of four parts."""
SHOWN: Final = ("iops", "mean", "p50", "p99", "p99.9")
"""Of these, what `run --json` lists."""
SIDES_DIFFER: Final = 0.05
"""Relative difference of the two half-widths from which both are given."""

Span = tuple[float, float]
"""95 %: how far the logarithm may lie below and above."""
NONE: Final[Span] = (0.0, 0.0)


@dataclass(frozen=True)
class Parts:
    """One figure's interval by where it comes from, on a logarithmic scale, 95 %."""

    simulation: Span = NONE
    numbers: Span = NONE
    misfit: Span = NONE
    model: Span = NONE
    room: Span = (math.inf, math.inf)
    """What measured rows leave below and above (`certainty.room`)"""

    @property
    def total(self) -> Span:
        """All four, in quadrature, below and above apart, within their room.

        >>> Parts(simulation=(0.3, 0.0), model=(0.4, 0.1), room=(0.2, 1.0)).total
        (0.2, 0.1)
        """
        spans = (self.simulation, self.numbers, self.misfit, self.model)
        down, up = (math.hypot(*(s[side] for s in spans)) for side in (0, 1))
        return min(down, self.room[0]), min(up, self.room[1])

    def around(self, value: float) -> tuple[float, float]:
        """Return the ends of the interval about *value*.

        >>> Parts(model=(math.log(2), math.log(2))).around(100.0)
        (50.0, 200.0)
        """
        down, up = self.total
        return value * math.exp(-down), value * _exp(up)

    def to_json(self) -> dict[str, Any]:
        """Return relative half-widths: one number, or [down, up] where the sides differ.

        >>> Parts(numbers=(0.01, 0.01), model=(0.5, 0.5)).to_json()["model"]
        [0.3934693402873666, 0.6487212707001282]
        """
        names = ("simulation", "numbers", "misfit", "model", "total")
        return {name: _relative(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Certainty:
    """How sure a prediction is, and on what that rests."""

    figures: Mapping[str, Parts] = field(default_factory=dict)
    """By name, as `FIGURES`."""
    standing: Standing = field(default_factory=Standing)
    sources: tuple[str, ...] = ()
    """Who measured servers of that class; empty: not validated."""
    off: tuple[float, float] = NONE
    """Least and largest typical error of the model at those sources, relative."""

    moved: Mapping[str, float] = field(default_factory=dict)
    """Figure -> by how much it was moved, relative: what the profiles missed nearby."""

    @property
    def model_class(self) -> str:
        """Class of the server and its load."""
        return self.standing.model_class

    def to_json(self) -> dict[str, Any]:
        """Return the object ``uncertainty`` of `run --json`."""
        figures = {n: self.figures[n].to_json() for n in SHOWN if n in self.figures}
        return {
            **figures,
            "model_class": self.model_class,
            "standing": dict(vars(self.standing)),
            "basis": self.rests_on(),
            "sources": list(self.sources),
            "model_off": list(self.off),
            "moved": dict(self.moved),
        }

    def rests_on(self) -> str:
        """How many sources stand behind the model's part, and how far they were off."""
        n = len(self.sources)
        if not n:
            return f"no source of {self.model_class or 'such servers'}; {self.standing.words()}"
        low, high = (f"{100 * share:.0f}" for share in self.off)
        off = low if low == high else f"{low} to {high}"
        of = f" of {self.model_class}" if self.model_class else ""
        said = f"{n} source{'s' if n > 1 else ''}{of}, off by {off} %"
        return f"{said}; {self.standing.words()}"


def percent_of(span: Span) -> str:
    """Half-width in percent, with both ends where they differ much.

    >>> percent_of((0.0061, 0.006)), percent_of((0.14, 0.14)), percent_of((0.7, 0.7))
    ('0.6', '14', '-50/+101')
    """
    down, up = 1 - math.exp(-span[0]), _exp(span[1]) - 1
    if max(down, up) > 0.2 and abs(up - down) > 0.25 * max(down, up):
        return f"-{100 * down:.0f}/+{100 * up:.0f}"
    half = 100 * (down + up) / 2
    return f"{half:.0f}" if half >= 9.5 else f"{half:.1f}"


def _relative(span: Span) -> float | list[float]:
    down, up = 1 - math.exp(-span[0]), _exp(span[1]) - 1
    return [down, up] if abs(up - down) > SIDES_DIFFER * max(up, down) else (down + up) / 2


def _exp(x: float) -> float:
    return math.exp(min(x, 50.0))
