"""Where the search for a trace's drive begins, and the profile of its numbers: dies or rounds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.calibrate.arrivals import Arrivals
from nvmesim.calibrate.drive.batch_service import served_in_rounds
from nvmesim.calibrate.drive.read_side import CHANNEL_PS, CHANNEL_SHARE
from nvmesim.calibrate.evidence import with_span
from nvmesim.calibrate.infer.problem import Parameter
from nvmesim.catalog.profile import DriveProfile, Pauses, Quantity, Rounds
from nvmesim.catalog.quantity import with_numbers

UNIT = 4096
LONE_DIES = 32
"""Assumed where nothing tells, as for a sweep at depth 1."""
MOST_COMMANDS = 10
"""Ceiling on commands per second that is looked for, in units of the highest rate in the trace."""


def column(parameters: Iterable[Parameter], field: str) -> list[Any]:
    """One field of all *parameters*."""
    return [getattr(p, field) for p in parameters]


def unit_of(a: Arrivals) -> int:
    """Bytes of a unit of the media: 4 KiB, or the smallest request."""
    return max(UNIT, int(a.size.min()))


def read_units(a: Arrivals) -> int:
    """Units of the largest read."""
    return max(1, -(-int(a.size[~a.write].max(initial=0)) // unit_of(a)))


def dies_asked(a: Arrivals) -> int:
    """Dies that a search begins with: as many as were ever asked at once, about."""
    if int(a.depth.max()) <= 1:
        return LONE_DIES
    return int(np.clip(np.quantile(a.depth, 0.99), 4, 64))


def bank_search(a: Arrivals) -> list[Parameter]:
    """Where the search for a bank of dies begins, from the trace alone."""
    rows: list[Parameter] = []
    unit, reading = unit_of(a), 0.0
    if not a.write.all():
        reading, slope = _line(a, unit, write=False)
        rate = peak_rate(a)
        rows += [
            Parameter("latency", reading, reading / 5, reading * 3, 0.02),
            Parameter("share", 0.3, 2e-3, 50.0, 0.2),
            Parameter("cv", 0.2, 0.01, 1.5, 0.1),
        ]
        # A lone request waits for no other: its pace says nothing of the controller's.
        if int(a.depth.max()) > 1:
            rows.append(Parameter("commands", 3 * rate, rate, MOST_COMMANDS * rate, 0.1))
        if read_units(a) > 1:
            rows.append(Parameter("read_slope", slope / 3, slope / 100, slope * 10, 0.05))
    if a.write.any():
        latency, slope = _line(a, unit, write=True)
        program = 2 * latency if a.write.all() else max(latency, reading)
        if a.full:  # writes then come as fast as all dies drain
            program = dies_asked(a) / drained(a, unit) * 1e12
        rows += [
            Parameter("write_latency", latency, latency / 20, latency * 3, 0.02),
            Parameter("write_cv", 0.2, 0.01, 1.5, 0.1),
            Parameter("program", program, program / 100, program * 30, 0.1),
        ]
        if int(a.size[a.write].max()) > unit:
            rows.append(Parameter("write_slope", slope, slope / 30, slope * 10, 0.05))
    return rows


def _line(a: Arrivals, unit: int, *, write: bool) -> tuple[float, float]:
    """Latency of one unit at small depth (lower quartile), and what each unit more adds, ps."""
    of_op = a.write == write
    shallow = of_op & (a.depth <= np.quantile(a.depth[of_op], 0.25))
    sizes = [int(s) for s in np.unique(a.size[shallow])]
    quartile = [float(np.quantile(a.latency_s[shallow & (a.size == s)], 0.25)) for s in sizes]
    first = quartile[0] * 1e12
    if len(sizes) < 2:
        return first, max(1e5, first / 50)
    slope = (quartile[-1] * 1e12 - first) / max(1, (sizes[-1] - sizes[0]) // unit)
    return first, max(1e5, slope)


def drained(a: Arrivals, unit: int) -> float:
    """Units written per second in the runs of *a* that began with a full buffer, on average."""
    units = took = 0.0
    for start, stop in a.full:
        wrote = a.write[start:stop]
        units += float(np.ceil(a.size[start:stop][wrote] / unit).sum())
        took += float(a.at_ps[stop - 1] - a.at_ps[start]) / 1e12
    return units / max(took, 1e-12)


def peak_rate(a: Arrivals) -> float:
    """Most requests per second over any 64 arrivals in a row."""
    step = min(64, len(a) - 1)
    spans = a.at_ps[step:] - a.at_ps[:-step]
    return float(step / max(1, int(spans.min())) * 1e12)


@dataclass(frozen=True)
class Structure:
    """Values that are tried in turn and not searched."""

    dies: int = 32
    engines: int = 0
    """Data engines of large reads; 0: they fork over dies."""
    through: bool = False
    """Writes end on their dies; else in a buffer."""
    rounds: bool = False
    """No dies: one server that takes all that is queued."""


def bank_numbers(
    template: DriveProfile, v: Mapping[str, float], structure: Structure
) -> tuple[dict[str, float], dict[str, float]]:
    """Numbers of a bank of dies that these values (ps, 1/s) tell, and others beside them.

    A slope is each further unit's.
    """
    unit = template.read.unit.value
    told, others = {"dies": float(structure.dies)}, {"channels": float(min(8, structure.dies))}
    if "latency" in v:
        base = v["latency"] * v["share"] / (1 + v["share"])
        told |= {"read.base": base, "read.die": v["latency"] - base, "read.die_cv": v["cv"]}
        others["read.channel"] = min(CHANNEL_PS, CHANNEL_SHARE * v["latency"])
        if "commands" in v:
            told["commands"] = v["commands"]
        if structure.engines and "read_slope" in v:
            told["read.split"], others["read.engines"] = v["read_slope"], structure.engines
        elif "read_slope" in v:
            told["read_bandwidth"] = unit / v["read_slope"] * 1e12
    if "program" in v:
        spread, other = "write.base_cv", "write.program_cv"
        if structure.through:
            spread, other = other, spread
        told |= {"write.base": v["write_latency"], spread: v["write_cv"]}
        told["write.program"], others[other] = v["program"], 0.1
        if "write_slope" in v:
            told["write_bandwidth"] = unit / v["write_slope"] * 1e12
    return told, others


def built(template: DriveProfile, v: Mapping[str, float], structure: Structure) -> DriveProfile:
    """*template* with the numbers of these values (ps, 1/s) and structure."""
    told, others = bank_numbers(template, v, structure)
    through = {"write.through": structure.through} if "program" in v else {}
    return with_numbers(template, {**told, **others, **through})


PAUSES = ((1e10, 7e8, 1.7), (5e10, 3e9, 0.5))
"""Guesses of pauses: time of work between two, mean, ps, and coefficient of variation."""
KEYS = {
    "base": "rounds.base", "base_cv": "rounds.base_cv", "each": "rounds.read", "cv": "rounds.cv",
    "write_each": "rounds.write", "every": "rounds.pauses.every",
    "length": "rounds.pauses.length", "pause_cv": "rounds.pauses.cv",
}  # fmt: skip


def rounds_search(a: Arrivals) -> list[Parameter]:
    """Where the search for rounds begins, from the trace alone.

    By the line a + b n through the median latencies at each depth n.
    """
    depths = np.unique(a.depth)
    medians = np.array([np.median(a.latency_s[a.depth == n]) for n in depths]) * 1e12
    weight = np.sqrt([np.sum(a.depth == n) for n in depths]) / medians
    slope, first = (
        np.polyfit(depths, medians, 1, w=weight) if len(depths) > 1 else (0.0, medians[0])
    )
    least = float(medians.min())
    base, each = max(float(first), 0.2 * least), max(float(slope), 0.02 * least)
    rows = [
        Parameter("base", base, base / 5, base * 5, 0.05),
        Parameter("base_cv", 0.3, 0.02, 3.0, 0.2),
        Parameter("each", each, each / 5, each * 5, 0.05),
        Parameter("cv", 0.5, 0.02, 3.0, 0.2),
        Parameter("every", PAUSES[0][0], 2e8, 1e13, 0.3),
        Parameter("length", PAUSES[0][1], 1e6, 2e11, 0.3),
        Parameter("pause_cv", PAUSES[0][2], 0.2, 5.0, 0.3),
    ]
    if a.write.any() and not a.write.all():
        rows.append(Parameter("write_each", each, each / 20, each * 10, 0.1))
    if int(a.size.max()) > unit_of(a):
        rows.append(Parameter("slope", each / 5, each / 500, each * 3, 0.2))
    return rows


def rounds_guesses(search: Sequence[Parameter]) -> list[list[float]]:
    """Starting values, once for each guess of the pauses."""
    start = {p.name: p.start for p in search}
    pauses = (dict(zip(("every", "length", "pause_cv"), g, strict=True)) for g in PAUSES)
    return [list((start | guess).values()) for guess in pauses]


def built_rounds(template: DriveProfile, v: Mapping[str, float]) -> DriveProfile:
    """Return *template* serving in rounds of these values (ps)."""
    q = {name: Quantity(value=value) for name, value in v.items()}
    # as in fits of a sweep (`pauses.py`): the same disks, longer captures
    rounds = Rounds(
        base=q["base"], base_cv=q["base_cv"], read=q["each"], write=q.get("write_each"), cv=q["cv"],
        pauses=Pauses(every=q["every"], length=q["length"], cv=q["pause_cv"], law="lognormal"),
    )  # fmt: skip
    made = served_in_rounds(template, rounds)
    if "slope" not in v:
        return made
    rate = template.read.unit.value / v["slope"] * 1e12
    return with_numbers(made, {"read_bandwidth": rate, "write_bandwidth": rate})


def with_rounds_intervals(
    profile: DriveProfile, bounds: Mapping[str, tuple[float, float]], source: str
) -> DriveProfile:
    """Return *profile* with each fitted number's interval and source."""
    spans = {KEYS[name]: span for name, span in bounds.items() if name in KEYS}
    if "slope" in bounds:
        unit, (low, high) = profile.read.unit.value * 1e12, bounds["slope"]
        spans |= dict.fromkeys(("read_bandwidth", "write_bandwidth"), (unit / high, unit / low))
    for key, span in spans.items():
        profile = with_span(profile, key, span, source)
    return profile


def screened(n: int, most: int) -> npt.NDArray[np.bool_]:
    """bool[n]: requests that `Arrivals.windows` of at most *most* takes."""
    seen = np.zeros(n, bool)
    if n <= most:
        return ~seen
    length = most // 4
    for start in np.linspace(0, n - length, 4).astype(int):
        seen[start : start + length] = True
    return seen
