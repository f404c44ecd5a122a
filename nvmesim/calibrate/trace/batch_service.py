"""A disk of rounds under a trace's arrivals: where its search begins, and the profile it makes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from nvmesim.calibrate.arrivals import Arrivals
from nvmesim.calibrate.joint import with_span
from nvmesim.catalog.profile import DriveProfile, Pauses, Quantity, Rounds

PAUSES = ((1e10, 7e8, 1.7), (5e10, 3e9, 0.5))
"""Guesses of pauses: time of work between two, mean, ps, and coefficient of variation."""
KEYS = {
    "base": "rounds.base", "base_cv": "rounds.base_cv", "each": "rounds.read", "cv": "rounds.cv",
    "write_each": "rounds.write", "every": "rounds.pauses.every",
    "length": "rounds.pauses.length", "pause_cv": "rounds.pauses.cv",
}  # fmt: skip


class RoundsStart:
    """Names, starting values (ps), bounds and finite differences of a search for rounds."""

    def __init__(self, a: Arrivals, unit: int) -> None:
        self.unit = unit
        base, each = _law(a)
        large = int(a.size.max()) > unit
        rows: list[tuple[str, float, float, float, float]] = [
            ("base", base, base / 5, base * 5, 0.05),
            ("base_cv", 0.3, 0.02, 3.0, 0.2),
            ("each", each, each / 5, each * 5, 0.05),
            ("cv", 0.5, 0.02, 3.0, 0.2),
            ("every", PAUSES[0][0], 2e8, 1e13, 0.3),
            ("length", PAUSES[0][1], 1e6, 2e11, 0.3),
            ("pause_cv", PAUSES[0][2], 0.2, 5.0, 0.3),
        ]
        if a.write.any() and not a.write.all():
            rows.append(("write_each", each, each / 20, each * 10, 0.1))
        if large:
            rows.append(("slope", each / 5, each / 500, each * 3, 0.2))
        self.names = [r[0] for r in rows]
        self.values = [r[1] for r in rows]
        self.low = [r[2] for r in rows]
        self.high = [r[3] for r in rows]
        self.steps = [r[4] for r in rows]

    def guesses(self) -> list[list[float]]:
        """Starting values, once for each guess of the pauses."""
        found = []
        for guess in PAUSES:
            named = dict(zip(self.names, self.values, strict=True))
            named |= dict(zip(("every", "length", "pause_cv"), guess, strict=True))
            found.append(list(named.values()))
        return found


def _law(a: Arrivals) -> tuple[float, float]:
    """Constants of the line a + b n through the median latencies at each depth n, ps."""
    depths = np.unique(a.depth)
    medians = np.array([np.median(a.latency_s[a.depth == n]) for n in depths]) * 1e12
    weight = np.sqrt([np.sum(a.depth == n) for n in depths]) / medians
    slope, first = (
        np.polyfit(depths, medians, 1, w=weight) if len(depths) > 1 else (0.0, medians[0])
    )
    least = float(medians.min())
    each = max(float(slope), 0.02 * least)
    return max(float(first), 0.2 * least), each


def built_rounds(template: DriveProfile, v: Mapping[str, float]) -> DriveProfile:
    """Return *template* serving in rounds of these values (ps)."""
    q = Quantity
    rounds = Rounds(
        base=q(value=v["base"]), base_cv=q(value=v["base_cv"]), read=q(value=v["each"]),
        write=q(value=v["write_each"]) if "write_each" in v else None, cv=q(value=v["cv"]),
        pauses=Pauses(
            every=q(value=v["every"]), length=q(value=v["length"]), cv=q(value=v["pause_cv"]),
            law="lognormal",  # as in fits of a sweep (`pauses.py`): the same disks, longer captures
        ),
    )  # fmt: skip
    none = q(value=0.0)
    update = {
        "rounds": rounds,
        "read": template.read.model_copy(update={"base": none}),
        "write": template.write.model_copy(update={"base": none}),
    }
    if "slope" in v:
        rate = q(value=template.read.unit.value / v["slope"] * 1e12)
        update |= {"read_bandwidth": rate, "write_bandwidth": rate}
    return template.model_copy(update=update)


def with_rounds_intervals(
    profile: DriveProfile, bounds: Mapping[str, tuple[float, float]], source: str
) -> DriveProfile:
    """Return *profile* with each fitted number's interval and source."""
    for name, (low, high) in bounds.items():
        if name in KEYS:
            profile = with_span(profile, KEYS[name], (low, high), source)
        elif name == "slope":
            unit = profile.read.unit.value * 1e12
            for key in ("read_bandwidth", "write_bandwidth"):
                profile = with_span(profile, key, (unit / high, unit / low), source)
    return profile


def screened(n: int, most: int, count: int = 4) -> npt.NDArray[np.bool_]:
    """bool[n]: requests that `Arrivals.windows` of at most *most* takes."""
    seen = np.zeros(n, bool)
    if n <= most:
        return ~seen
    length = most // count
    for start in np.linspace(0, n - length, count).astype(int):
        seen[start : start + length] = True
    return seen
