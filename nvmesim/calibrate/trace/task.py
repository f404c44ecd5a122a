"""A trace as a task of inference: its requests in classes, and a bank of dies' coordinates.

Classes are by operation and size or depth; the percentiles of each are compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Bools, Floats, Ints
from nvmesim.calibrate.arrivals import Arrivals, Replayer
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.laws import CV_STEP
from nvmesim.calibrate.infer.problem import Coordinate, Parameter, Problem
from nvmesim.calibrate.trace.start import Structure, built
from nvmesim.catalog.profile import DriveProfile
from nvmesim.units import format_size

PERCENTS = (10.0, 50.0, 90.0, 99.0)
"""Percentiles compared in each class."""
MIN_BEYOND = 8
"""Samples beyond a percentile for it to count."""
MIN_CLASS = 30
"""Requests for a class to count."""
FLOOR = 0.02
"""Least relative standard error of a percentile, as gamma-distributed dies have it. Assumed."""
TAIL_FLOOR = 0.05
"""The same for percentiles from 99 on."""


@dataclass(frozen=True)
class ClassOf:
    """Some requests of a trace: what they took, how surely that is known, what they take here."""

    label: str
    rows: Ints
    """int64[k]: indices into the arrivals"""
    measured_s: dict[float, float]
    errors: dict[float, float]
    """Relative standard error of each percentile"""
    model_s: dict[float, float] = field(default_factory=dict)
    """The same percentiles, simulated; empty before they are judged"""
    held_out: bool = False

    def answers(self, latency_s: Floats) -> dict[float, float]:
        """Percentiles, s, of the same requests in a simulation: float64[runs, n]."""
        chosen = latency_s[:, self.rows].ravel()
        percents = list(self.measured_s)
        values = np.quantile(chosen, np.array(percents) / 100)
        return dict(zip(percents, values.tolist(), strict=True))

    @property
    def requests(self) -> int:
        """How many they are."""
        return len(self.rows)

    @property
    def residual(self) -> dict[float, float]:
        """Simulated / measured - 1 by percent."""
        return {p: self.model_s[p] / v - 1 for p, v in self.measured_s.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the class as an object, percentiles named as in results."""
        measured, model = ({f"p{p:g}_s": v for p, v in table.items()}
                           for table in (self.measured_s, self.model_s))  # fmt: skip
        return {
            "class": self.label, "requests": self.requests, "held_out": self.held_out,
            "measured": measured, "model": model,
            "residual": {f"p{p:g}": v for p, v in self.residual.items()},
        }  # fmt: skip


def all_requests(arrivals: Arrivals) -> ClassOf:
    """All requests as one class."""
    return _class("all requests", np.arange(len(arrivals)), arrivals)


def classes_of(
    arrivals: Arrivals,
    only: npt.NDArray[np.bool_] | None = None,
    percents: Sequence[float] = PERCENTS,
) -> list[ClassOf]:
    """Classes by (operation, size) and by (operation, depth in octaves), of requests in *only*.

    Each request counts in two classes, so errors are those of half as many.
    """
    chosen = arrivals.after_others() & (True if only is None else only)
    made: list[ClassOf] = []
    octave = np.floor(np.log2(arrivals.depth)).astype(np.int64)
    for write in (False, True):
        of_op = (arrivals.write == write) & chosen
        name = "write" if write else "read"
        for size in np.unique(arrivals.size[of_op]).tolist():
            rows = np.flatnonzero(of_op & (arrivals.size == size))
            made.append(_class(f"{name} {format_size(size)}", rows, arrivals, percents))
        for level in np.unique(octave[of_op]).tolist():
            rows = np.flatnonzero(of_op & (octave == level))
            span = f"{2**level} to {2 ** (level + 1) - 1}" if level else "1"
            made.append(_class(f"{name} depth {span}", rows, arrivals, percents))
    return [c for c in made if len(c.rows) >= MIN_CLASS and c.measured_s]


def misfits(classes: Sequence[ClassOf], latency_s: Floats) -> list[float]:
    """Residuals of all percentiles in standard errors, on a logarithmic scale."""
    out: list[float] = []
    for c in classes:
        found = c.answers(latency_s)
        out += [
            float(np.log(max(found[p], 1e-12) / v)) / c.errors[p] for p, v in c.measured_s.items()
        ]
    return out


def judge(classes: Sequence[ClassOf], latency_s: Floats, *, held_out: bool) -> list[ClassOf]:
    """Return every class beside its simulation."""
    return [replace(c, model_s=c.answers(latency_s), held_out=held_out) for c in classes]


def _class(
    label: str, rows: Ints, arrivals: Arrivals, percents: Sequence[float] = PERCENTS
) -> ClassOf:
    values = arrivals.latency_s[rows]
    n = len(rows)
    kept = [p for p in percents if min(p, 100 - p) / 100 * n >= MIN_BEYOND]
    percentiles = {p: float(np.quantile(values, p / 100)) for p in kept}
    return ClassOf(label, rows, percentiles, {p: _error(values, p, n) for p in kept})


def _error(values: Floats, percent: float, n: int) -> float:
    """Relative standard error of a percentile: sample, simulation and model in quadrature.

    The sample's from the quantiles one binomial standard error either side. Source: David and
    Nagaraja, Order Statistics, section 7.1.
    """
    share = percent / 100
    step = np.sqrt(share * (1 - share) / n)
    low, high = np.quantile(values, np.clip([share - step, share + step], 0, 1))
    sample = 0.5 * float(np.log(max(high, 1e-12) / max(low, 1e-12)))
    floor = TAIL_FLOOR if percent >= 99 else FLOOR
    return float(np.sqrt(2 * (2 * sample**2 + floor**2)))


COMPARED = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0)
"""Percentiles of each class: how long requests wait for a busy die tells the die's time."""
PLACED = 25.0
"""Up to this percentile its latency is compared; above, the share that is no slower, which does not
jump where few latencies lie between those that waited and those that did not."""
REPLAYED = 3_000
"""Requests that a candidate is simulated with at least, over several runs of a short trace."""
MAX_RUNS = 8
EXACT = 0.001
"""Standard error of a percentile beside sampling that is always there: bins of the engine."""
STEPS = {
    "latency": 0.01, "share": 0.05, "cv": 0.2, "command": 0.08, "read_slope": 0.1,
    "write_latency": 0.02, "write_cv": 0.15, "program": 0.1, "write_slope": 0.1, "dies": 0.12,
}  # fmt: skip
"""Finite differences of the coordinates."""
LEAST_SHARE = 0.05
"""Of a lone read's latency, what the die has at least."""
DIES_SPAN = 8.0
"""Numbers of dies that are looked for, either way from the least-squares fit."""
KEYS = {
    "latency": ("read.base", "read.die"), "cv": ("read.die_cv",), "command": ("commands",),
    "write_latency": ("write.base",), "program": ("write.program",), "dies": ("dies",),
}  # fmt: skip
"""Numbers of the profile that each coordinate tells."""
TOLD = 0.8
"""Standard deviation of a coordinate, relative to all that was open, that tells nothing."""


@dataclass(frozen=True)
class TraceBank:
    """Coordinates of a bank of dies in which a trace's figures are nearly straight; ps."""

    search: tuple[str, ...]
    """Numbers of the least-squares search, in order"""
    peak: float
    """Most requests per second over a short while: no controller is slower"""
    most: float
    """Commands per second that are looked for at most, in units of that"""
    structure: Structure

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return (*("command" if n == "commands" else n for n in self.search), "dies")

    def decoded(self, u: Floats) -> tuple[dict[str, float], Structure]:
        """Coordinates as `start.built` takes them."""
        at = dict(zip(self.names, u.tolist(), strict=True))
        found = {n: float(np.exp(v)) for n, v in at.items() if n not in ("command", "dies")}
        command = 1e12 / self.rate(at["command"]) if "command" in at else 0.0
        if "latency" in found:
            latency, die = found["latency"], found["latency"] * found["share"]
            found["latency"] = max(latency - command, 1.001 * die)
            found["share"] = found["latency"] / die - 1
        if "command" in at:
            found["commands"] = 1e12 / command
            if "write_latency" in found:
                whole = found["write_latency"]
                found["write_latency"] = max(whole - command, 1e-3 * whole)
        return found, replace(self.structure, dies=max(1, round(float(np.exp(at["dies"])))))

    def rate(self, command: float) -> float:
        """Commands per second of the coordinate."""
        return self.peak / max(command, 1 / self.most)

    def encoded(self, found: Mapping[str, float]) -> Floats:
        """The inverse of `decoded`, for where a search begins."""
        command = 1e12 / found["commands"] if "commands" in found else 0.0
        u = []
        for name in self.search:
            value = found[name]
            if name == "commands":
                u.append(self.peak / value)
            elif name == "share":
                die = found["latency"] / (1 + value)
                u.append(float(np.log(die / (found["latency"] + command))))
            else:
                total = name in ("latency", "write_latency")
                u.append(float(np.log(value + (command if total else 0.0))))
        return np.array([*u, np.log(self.structure.dies)])

    def snapped(self, u: Floats) -> Floats:
        """float64[n, n_coordinates]: with whole numbers of dies, and variations in steps."""
        out = u.copy()
        out[:, -1] = np.log(np.maximum(1.0, np.round(np.exp(out[:, -1]))))
        cvs = [i for i, name in enumerate(self.names) if name in ("cv", "write_cv")]
        out[:, cvs] = np.round(out[:, cvs] / CV_STEP) * CV_STEP
        return out

    def allowed(self, u: Floats) -> Bools:
        """bool[n]: whether something is left for the constant parts."""
        if "command" not in self.names:
            return np.ones(len(u), bool)
        at = {name: u[:, i] for i, name in enumerate(self.names)}
        command = at["command"] / self.peak * 1e12
        left: Bools = np.exp(at["latency"]) * (1 - np.exp(at["share"])) - command >= 0
        if "write_latency" in at:
            left &= np.exp(at["write_latency"]) - command >= 0
        return left

    def coordinates(self, begin: Floats, searched: Mapping[str, Parameter]) -> list[Coordinate]:
        """Open parameters and starting values; *searched*: those of least squares, by name."""
        ends = {"share": (np.log(LEAST_SHARE), -1e-6), "command": (0.0, 1.0)}
        dies = self.structure.dies
        ends["dies"] = np.log(max(2.0, dies / DIES_SPAN)), np.log(dies * DIES_SPAN)
        found = []
        for name, at in zip(self.names, begin.tolist(), strict=True):
            if name not in ends:
                ends[name] = np.log(searched[name].low), np.log(searched[name].high)
            first, last = ends[name]
            tilt = float(name == "share")
            found.append(Coordinate(name, at, float(first), float(last), STEPS[name], 0.0, tilt))
        return found


class _Figures:
    """Figures of one class that are compared: latencies as logarithms, shares as normal scores."""

    def __init__(self, chosen: ClassOf, arrivals: Arrivals) -> None:
        from scipy.special import ndtri

        self._rows = chosen.rows
        table = chosen.measured_s
        self._placed = np.array([p / 100 for p in table if p <= PLACED])
        shares = np.array([p / 100 for p in table if p > PLACED])
        self._ends = np.array([v for p, v in table.items() if p > PLACED])
        # normal scores by relative latency, about each end: of one standard error either way
        latency = np.sort(arrivals.latency_s[chosen.rows])
        step = np.sqrt(shares * (1 - shares) / len(latency))
        low, high = (np.quantile(latency, np.clip(shares + s * step, 0, 1)) for s in (-1, 1))
        scores = ndtri(np.clip(shares + step, 0, 1 - 1e-4)) - ndtri(shares - step)
        slope = scores / np.maximum(np.log(high / low), EXACT)
        floors = np.where(shares >= 0.99, TAIL_FLOOR, FLOOR) * slope
        self.assumed = np.concatenate([np.full(len(self._placed), FLOOR), floors])
        self.exact = np.concatenate([np.full(len(self._placed), EXACT), EXACT * slope])

    def of(self, latency_s: Floats) -> Floats:
        """float64[n_figures] of float64[runs, n_requests]."""
        from scipy.special import ndtri

        chosen = np.sort(latency_s[:, self._rows].ravel())
        n = len(chosen)
        below = np.searchsorted(chosen, self._ends, side="right")
        scores = ndtri(np.clip(below / n, 0.5 / n, 1 - 0.5 / n))
        return np.concatenate([np.log(np.quantile(chosen, self._placed)), scores])


def trace_task(
    bank: TraceBank, arrivals: Arrivals, host: BenchHost, template: DriveProfile,
    coordinates: Sequence[Coordinate],
) -> Problem:  # fmt: skip
    """The problem of finding *bank*'s coordinates from *arrivals* replayed on *host*."""
    runs = int(np.clip(-(-REPLAYED // len(arrivals)), 1, MAX_RUNS))
    replayers: dict[int, Replayer] = {}
    classes = [_Figures(c, arrivals) for c in classes_of(arrivals, percents=COMPARED)]

    def simulate(u: Floats, seed: int, share: float) -> Floats:
        count = max(1, round(runs * share))
        if count not in replayers:
            replayers[count] = Replayer(arrivals, host, runs=count)
        served = replayers[count].latencies_s(built(template, *bank.decoded(u)), seed=seed)
        return np.concatenate([c.of(served) for c in classes])

    measured = np.concatenate([c.of(arrivals.latency_s[None]) for c in classes])
    count = len(measured)
    return Problem(
        coordinates=tuple(coordinates), simulate=simulate, measured=measured,
        run=np.zeros(count, np.int64), sample=np.full(count, float(runs)),
        assumed=np.concatenate([c.assumed for c in classes]),
        floor=np.concatenate([c.exact for c in classes]),
        profiled="command", snapped=bank.snapped, allowed=bank.allowed,
    )  # fmt: skip


def unidentified(task: Problem, draws: Floats) -> list[str]:
    """Coordinates of *draws*, float64[n_draws, n_coordinates], that are as open as before."""
    before = (task.high - task.low) / np.sqrt(12)
    return [n for n, w in zip(task.names, draws.std(axis=0) / before, strict=True) if w > TOLD]
