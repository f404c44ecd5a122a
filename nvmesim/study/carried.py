"""How much of an answer's interval each input carries, and what measurement would take it away."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from nvmesim.predict.result import Result
from nvmesim.predict.uncertainty.certainty import model_uncertainty
from nvmesim.predict.uncertainty.model_error import model_error
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import format_size

FIGURES: Final = {
    "iops": "iops", "lat_mean_us": "mean", "lat_p50_us": "p50", "lat_p90_us": "p90",
    "lat_p99_us": "p99", "lat_p99_9_us": "p99.9",
}  # fmt: skip
"""Column of a sweep -> figure that has an interval of four parts."""


@dataclass(frozen=True)
class Carried:
    """A part of the variance of an answer's logarithm."""

    name: str
    variance: float
    left: float = 0.0
    """Variance that is left once it has been measured."""
    measure: str = ""


def of_input(name: str, low: float | None, high: float | None, load: str) -> Carried:
    """Return what an input carries whose ends change the answer by *low* and *high*, relative.

    The answer's logarithm is a quadratic through the three points, the input normal: its variance
    is that of the slope and of the curve. In a sum of such quadratics it is Sobol's total index.
    Source: Saltelli et al., "Global Sensitivity Analysis: The Primer", 2008, chapter 4.

    >>> round(of_input("drives.0.profile.read.die", -0.1, 0.1, "randread").variance, 5)
    0.00262
    """
    down, up = (math.log(max(1 + (change or 0.0), 1e-9)) for change in (low, high))
    slope, curve = (up - down) / 2 / Z95, (up + down) / 2 / Z95**2
    return Carried(name, slope**2 + 2 * curve**2, measure=_measure(name, load))


def parts_of(result: Result, scenario: ResolvedScenario, figure: str) -> list[Carried]:
    """Return misfit, model and simulation of *figure*."""
    parts = result.certainty.figures.get(figure)
    if parts is None:
        return []
    known = model_uncertainty(scenario, result.bottleneck.verdict)
    calibrated = model_error(known.model_class, "calibrated", figure).half
    left = min(calibrated, max(parts.model)) if known.kind == "catalog" else max(parts.model)
    load = load_words(scenario)
    of_model = f"capture {load}" if known.kind == "catalog" else (
        f"measure a server of this class ({known.model_class}) as a set of its own"
    )  # fmt: skip
    return [
        Carried("misfit", _variance(max(parts.misfit)), measure=f"capture {load}"),
        Carried("model", _variance(max(parts.model)), _variance(left), of_model),
        Carried("simulation", _variance(max(parts.simulation)), measure="--precision"),
    ]


def load_words(scenario: ResolvedScenario) -> str:
    """The load of one drive as fio would name it: "randrw 70 % of 4 KiB at depth 32"."""
    group = scenario.workload[0]
    kind = "rand" if group.access == "random" else ""
    name = {1.0: f"{kind}read", 0.0: f"{kind}write"}.get(group.read)
    name = name or f"{kind}rw {100 * group.read:g} %"
    size = format_size(group.block_sizes[0][0])
    depth = max(1, round(group.in_flight / max(1, len(scenario.drives))))
    return f"{name} of {size}" + ("" if group.is_open else f" at depth {depth}")


def _measure(name: str, load: str) -> str:
    if name.startswith("server.stack"):
        return f"CPU figures with a capture of {load} (calibrate --stack)"
    if name.startswith("volume"):
        return "the array itself under this load"
    if name.startswith("drives"):
        op = "randwrite until the buffer is full" if ".write" in name else load
        return f"capture {op}"
    return "the server itself"


def _variance(half: float) -> float:
    return (half / Z95) ** 2
