"""Fit a drive to a trace of single requests with mixed sizes and varying depths.

The candidate drive is simulated under the trace's own arrivals, and the percentiles of each class
of requests (operation and size, operation and depth) are matched: so a latency is fitted given the
depth at which it was measured. How large reads and writes are served is tried in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.errors import FitError
from nvmesim.fit.arrivals import Arrivals, Replayer
from nvmesim.fit.bench import Host, free_host
from nvmesim.fit.classes import JudgedClass, classes_of, everything, judge, misfits
from nvmesim.fit.evidence import intervals
from nvmesim.fit.notes import named
from nvmesim.fit.read_side import blank_reads
from nvmesim.fit.search import Floats, Solution, solve
from nvmesim.fit.trace_profile import Structure, built, with_intervals
from nvmesim.fit.trace_rounds import RoundsStart, built_rounds, screened, with_rounds_intervals
from nvmesim.fit.write_side import blank_writes

UNIT = 4096
MAX_REQUESTS = 12_000
"""Requests simulated at each step of the search; a longer trace is fitted on runs of it."""
MIN_REQUESTS = 100
SIMULATED = 12_000
"""Requests that a step simulates at least, over several runs of a short trace."""
MAX_RUNS = 8
SCREENED = 4_000
"""Requests that structures are compared on."""
SEEN = 0.7
"""Share of a short trace that structures are fitted on before they are compared on the rest."""
SCREEN_ROUNDS, FINE_ROUNDS = 4, 6
FAR = (0.25, 0.5, 2.0, 4.0)
"""Numbers of dies tried first, in units of the first guess; then nearer to the best."""
NEAR = (0.7, 1.4)
LESS, MORE = (0.85, 0.7, 0.55), (1.18, 1.4, 1.8)
"""Numbers of dies with all requests, in units of the best of the screening."""
ENGINES = (0, 1, 2, 4)
MOST_COMMANDS = 10
"""Ceiling on commands per second that is looked for, in units of the highest rate in the trace:
above it a trace does not tell one ceiling from another."""
DRIFT = 0.15
"""Relative difference of medians between the trace's halves that is said."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """Requests as measured and as the fitted drive served them, in order of arrival; seconds."""

    at_s: Floats
    measured_s: Floats
    model_s: Floats
    held_out: bool


@dataclass(frozen=True)
class TraceFit:
    """A drive fitted to a trace, and the evidence."""

    profile: DriveProfile
    classes: tuple[JudgedClass, ...]
    warnings: tuple[str, ...] = ()
    free_parameters: tuple[str, ...] = ()
    cost: float = 0.0
    """Half the sum of squared residuals, in standard errors."""
    structure: Structure = field(default_factory=Structure)
    sample: Sample | None = None
    """What was held out, or else what was fitted, replayed; for charts"""

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as an object, as `DriveFit.to_json` does."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "points": [c.to_json() for c in self.classes],
            "free_parameters": list(self.free_parameters),
            "warnings": list(self.warnings),
        }


def fit_trace(
    arrivals: Arrivals,
    *,
    name: str,
    host: Host | None = None,
    captured_on: str | None = None,
    held_out: Arrivals | None = None,
    tell: Progress = lambda text: None,
) -> TraceFit:
    """Fit a drive to *arrivals*; *held_out* is replayed on it and judged.

    Raises FitError if there are too few requests.
    """
    if len(arrivals) < MIN_REQUESTS:
        raise FitError(
            f"{arrivals.source}: {len(arrivals)} requests are too few to fit a drive to; "
            f"{MIN_REQUESTS} are needed"
        )
    return _Fitting(arrivals, name, host, captured_on, tell).fit(held_out)


class _Fitting:
    def __init__(
        self,
        arrivals: Arrivals,
        name: str,
        host: Host | None,
        captured_on: str | None,
        tell: Progress,
    ) -> None:
        self.all = arrivals
        self.used = arrivals.windows(MAX_REQUESTS)
        self.name, self.captured_on, self.tell = name, captured_on, tell
        self.included = host is None
        self.host = host or free_host()
        runs = int(np.clip(-(-SIMULATED // len(self.used)), 1, MAX_RUNS))
        self.replayer = Replayer(self.used, self.host, runs=runs)
        self.classes = classes_of(self.used)
        if not self.classes:
            raise FitError(f"{arrivals.source}: no operation and size has enough requests")
        # some are kept from the screening, so that models are compared on what none has seen
        most = min(SCREENED, int(SEEN * len(self.used)))
        few = self.used.windows(most)
        self.unseen = ~screened(len(self.used), most)
        self.screen = (Replayer(few, self.host), classes_of(few))
        self.start = _Start(self.used)
        self.rounds_start = RoundsStart(self.used, self.start.unit)
        self.choice = ""
        self.template = self._template()

    def fit(self, held_out: Arrivals | None) -> TraceFit:
        tries = self._search()
        best = tries[0]
        profile = self._profile(tries)
        served = self.replayer.latencies_s(profile)
        judged = judge([everything(self.used), *self.classes], served, held_out=False)
        sample = _sample(self.used, served[0], held_out=False)
        if held_out is not None and len(held_out):
            self.tell("replaying what was held out")
            again = Replayer(held_out, self.host).latencies_s(profile)
            classes = [everything(held_out), *classes_of(held_out)]
            judged += judge(classes, again, held_out=True)
            sample = _sample(held_out, again[0], held_out=True)
        return TraceFit(
            profile, tuple(judged), tuple(self._doubts(judged, best.structure)),
            tuple(self._begin(best.structure).names),
            best.found.cost, best.structure, sample,
        )  # fmt: skip

    # -- search ---------------------------------------------------------------------------------

    def _search(self) -> list[_Try]:
        """Screen structures with few requests, twice as each choice depends on the others."""
        s = self.start
        best = self._at(Structure(s.dies), s.values, SCREEN_ROUNDS)
        for turn in range(2):
            before = best.structure
            if s.writes.any():
                best = self._better(
                    best, [replace(best.structure, through=t) for t in (False, True)]
                )
            if s.units > 1:
                best = self._better(best, [replace(best.structure, engines=n) for n in ENGINES])
            factors = NEAR if turn else FAR
            dies = dict.fromkeys(max(1, round(best.structure.dies * f)) for f in factors)
            best = self._better(best, [replace(best.structure, dies=n) for n in dies])
            if turn and best.structure == before:
                break
        served = self._rounds()
        if served is not None and self._tells(served) < self._tells(best):
            said = f"{self._tells(served):.0f} against {self._tells(best):.0f} of a bank of dies"
            self.choice = (
                "requests are served in rounds (a virtual disk: one thread behind one queue): half "
                f"a chi-square of {said}, on requests that neither was fitted to"
            )
            tries = [
                self._at(served.structure, start, 2 * FINE_ROUNDS, fine=True)
                for start in (_values(served), *self.rounds_start.guesses())
            ]
            return sorted(tries, key=lambda t: t.found.cost)[:1]
        return self._refined(best)

    def _rounds(self) -> _Try | None:
        """The best disk of rounds by the screening; None where depth does not vary enough."""
        if len(np.unique(self.used.depth)) < 3:
            return None
        tries = [
            self._at(Structure(dies=1, rounds=True), start, 2 * SCREEN_ROUNDS)
            for start in self.rounds_start.guesses()
        ]
        return min(tries, key=lambda t: t.found.cost)

    def _tells(self, tried: _Try) -> float:
        """Half chi-square of *tried* on the requests that the screening left out."""
        classes = classes_of(self.used, self.unseen) or self.classes
        made = self._made(tried.found.values, tried.structure)
        return 0.5 * float(np.sum(np.square(misfits(classes, self.replayer.latencies_s(made)))))

    def _refined(self, best: _Try) -> list[_Try]:
        """Least squares with all requests for a ladder of numbers of dies, the best first."""
        about = self._at(best.structure, _values(best), FINE_ROUNDS, fine=True)
        tries = [about]
        for factors in (LESS, MORE):
            last = about
            for factor in factors:
                structure = replace(
                    about.structure, dies=max(1, round(about.structure.dies * factor))
                )
                if structure in [t.structure for t in tries]:
                    continue
                last = self._at(structure, _values(last), FINE_ROUNDS - 2, fine=True)
                tries.append(last)
                if last.found.cost - about.found.cost > 6 * _scale(about.found):
                    break
        return sorted(tries, key=lambda t: t.found.cost)

    def _better(self, best: _Try, structures: Sequence[Structure]) -> _Try:
        """The best of *best* and *structures*, each searched from the best's values."""
        start = best
        for structure in structures:
            if structure == start.structure:
                continue
            tried = self._at(structure, _values(start), SCREEN_ROUNDS)
            if tried.found.cost < best.found.cost:
                best = tried
        return best

    def _at(
        self, structure: Structure, start: Sequence[float], rounds: int, *, fine: bool = False
    ) -> _Try:
        self.tell(
            ("trace: rounds" if structure.rounds else f"trace: {structure.dies} dies")
            + (f", {structure.engines} data engines" if structure.engines else "")
            + (", no write buffer" if structure.through else "")
            + (", all requests" if fine else "")
        )
        s = self._begin(structure)
        replayer, classes = (self.replayer, self.classes) if fine else self.screen

        def residuals(x: Floats) -> list[float]:
            return misfits(classes, replayer.latencies_s(self._made(x, structure)))

        inside = np.clip(np.asarray(start), s.low, s.high).tolist()
        found = solve(residuals, inside, rounds=rounds, low=s.low, high=s.high, step=s.steps)
        return _Try(structure, found)

    # -- profiles -------------------------------------------------------------------------------

    def _template(self) -> DriveProfile:
        q = Quantity
        return DriveProfile(
            name=self.name, link=str(self.host.link),
            capacity=q(value=1e12, basis="assumed"),
            host_included=self.included, captured_on=self.captured_on,
            dies=q(value=32), channels=q(value=8), commands=q(value=1e6),
            read_bandwidth=q(value=1e11, basis="assumed"),
            write_bandwidth=q(value=1e11, basis="assumed"),
            read=blank_reads().model_copy(update={"unit": q(value=self.start.unit)}),
            write=blank_writes().model_copy(update={"unit": q(value=self.start.unit)}),
        )  # fmt: skip

    def _made(self, x: Sequence[float] | Floats, structure: Structure) -> DriveProfile:
        names = self._begin(structure).names
        v = dict(zip(names, (float(value) for value in x), strict=True))
        if structure.rounds:
            return built_rounds(self.template, v)
        return built(self.template, v, structure)

    def _begin(self, structure: Structure) -> _Start | RoundsStart:
        return self.rounds_start if structure.rounds else self.start

    def _profile(self, tries: Sequence[_Try]) -> DriveProfile:
        """The fitted drive, with intervals and what each number rests on."""
        s, best = self.start, tries[0]
        found = best.found
        if best.structure.rounds:
            names = self.rounds_start.names
            return with_rounds_intervals(
                self._made(found.values, best.structure), averaged(names, tries),
                f"{self.all.source}: {len(self.used)} requests one by one",
            )  # fmt: skip
        bounds = averaged(s.names, tries)
        if "commands" in bounds and bounds["commands"][1] > 2 * found.values[3]:
            # not told by the trace: anything from its highest rate up; a write's own time then
            # holds, or not, what the controller takes
            if "write_latency" in bounds:
                slower = 1e12 / bounds["commands"][0] - 1e12 / found.values[3]
                low, high = bounds["write_latency"]
                bounds["write_latency"] = (max(low / 2, low - slower), high)
            bounds["commands"] = (s.low[3], max(bounds["commands"][1], s.high[3]))
        values = dict(zip(s.names, found.values.tolist(), strict=True))
        source = f"{self.all.source}: {len(self.used)} requests one by one"
        near = [t.structure.dies for t in tries if weight(t, best) > 0.02]
        drive = built(self.template, values, best.structure)
        dies = Quantity(
            value=best.structure.dies, low=min(near), high=max(near), basis="fitted", source=source
        )
        return with_intervals(drive.model_copy(update={"dies": dies}), values, bounds, source)

    def _doubts(self, judged: Sequence[JudgedClass], structure: Structure) -> list[str]:
        s, said = self.start, [self.choice] if self.choice else []
        if self.included:
            said.append(
                "no --captured-on: the host's constant part stays in the profile "
                "(host_included = true)"
            )
        if len(self.used) < len(self.all):
            said.append(
                f"{self.all.source}: fitted on {len(self.used):,} of {len(self.all):,} requests"
            )
        if not s.writes.any():
            said.append("no writes in the trace: the write side is assumed")
        if s.writes.all():
            said.append("no reads in the trace: the read side is assumed")
        if int(self.used.depth.max()) < 8 and not structure.rounds:
            said.append(
                f"at most {int(self.used.depth.max())} requests were outstanding: the number of "
                "dies is not told by this trace, nor is the tail at greater depth"
            )
        drift = _drift(self.used)
        if abs(drift) > DRIFT:
            said.append(
                f"{self.all.source}: latencies drift, the second half is {100 * drift:+.0f} % of "
                "the first at the same size and depth; one drive cannot be both"
            )
        off = [(c.label, c.residual.get(50.0, 0.0)) for c in judged if not c.held_out]
        missed = [f"{label} {100 * error:+.0f} %" for label, error in off if abs(error) > 0.1]
        if missed:
            said.append(f"the fitted drive misses the median by more than 10 %: {named(missed, 6)}")
        return said


@dataclass(frozen=True)
class _Try:
    structure: Structure
    found: Solution


def _scale(found: Solution) -> float:
    """Size of the residuals in units of what was expected, at least 1."""
    return max(1.0, 2 * found.cost / max(1, len(found.residuals) - len(found.values)))


def weight(tried: _Try, best: _Try) -> float:
    """Likelihood of *tried* in units of the best's."""
    return float(np.exp(-(tried.found.cost - best.found.cost) / _scale(best.found)))


def averaged(names: Sequence[str], tries: Sequence[_Try]) -> dict[str, tuple[float, float]]:
    """95 % intervals over all numbers of dies, each by its likelihood; the best comes first.

    The variance is that within a number of dies and that between them. Source: Buckland, Burnham
    and Augustin 1997, Model selection: an integral part of inference.
    """
    weights = np.array([weight(t, tries[0]) for t in tries])
    weights /= weights.sum()
    logs = np.log([t.found.values for t in tries])
    half = np.empty_like(logs)
    for i, t in enumerate(tries):
        found = t.found
        spread = intervals(names, found.values, found.jacobian, found.residuals)
        half[i] = [np.log(high / low) / 2 for low, high in spread.values()]
    mean = weights @ logs
    wide = np.sqrt(weights @ ((half / 1.96) ** 2 + (logs - mean) ** 2)) * 1.96
    low, high = np.exp(mean - wide), np.exp(mean + wide)
    best = tries[0].found.values
    return {
        name: (float(min(a, v)), float(max(b, v)))
        for name, a, b, v in zip(names, low, high, best, strict=True)
    }


def _values(tried: _Try) -> list[float]:
    return [float(v) for v in tried.found.values]


class _Start:
    """Where a search begins, from the trace alone; times ps."""

    def __init__(self, a: Arrivals) -> None:
        self.writes = a.write
        self.unit = UNIT if int(a.size.min()) <= UNIT else int(a.size.min())
        self.units = max(1, -(-int(a.size[~a.write].max(initial=0)) // self.unit))
        rows: list[tuple[str, float, float, float, float]] = []
        slope_r = slope_w = 0.0
        if not a.write.all():
            latency, slope_r = self._line(a, write=False)
            rate = _peak_rate(a)
            rows += [
                ("latency", latency, latency / 5, latency * 3, 0.02),
                ("share", 0.3, 2e-3, 50.0, 0.2),
                ("cv", 0.2, 0.01, 1.5, 0.1),
                ("commands", 3 * rate, rate, MOST_COMMANDS * rate, 0.1),
            ]
            if self.units > 1:
                rows.append(("read_slope", slope_r / 3, slope_r / 100, slope_r * 10, 0.05))
        if a.write.any():
            latency, slope_w = self._line(a, write=True)
            program = 2 * latency if a.write.all() else max(latency, self._line(a, write=False)[0])
            rows += [
                ("write_latency", latency, latency / 20, latency * 3, 0.02),
                ("write_cv", 0.2, 0.01, 1.5, 0.1),
                ("program", program, program / 100, program * 30, 0.1),
            ]
            if int(a.size[a.write].max()) > self.unit:
                rows.append(("write_slope", slope_w, slope_w / 30, slope_w * 10, 0.05))
        self.names = [r[0] for r in rows]
        self.values = [r[1] for r in rows]
        self.low = [r[2] for r in rows]
        self.high = [r[3] for r in rows]
        self.steps = [r[4] for r in rows]
        self.dies = int(np.clip(np.quantile(a.depth, 0.99), 4, 64))

    def _line(self, a: Arrivals, *, write: bool) -> tuple[float, float]:
        """Latency of one unit at small depth, and what each unit more adds, ps.

        The lower quartile: what hardly waited.
        """
        of_op = a.write == write
        shallow = of_op & (a.depth <= np.quantile(a.depth[of_op], 0.25))
        sizes = [int(s) for s in np.unique(a.size[shallow])]
        quartile = [float(np.quantile(a.latency_s[shallow & (a.size == s)], 0.25)) for s in sizes]
        first = quartile[0] * 1e12
        if len(sizes) < 2:
            return first, max(1e5, first / 50)
        slope = (quartile[-1] * 1e12 - first) / max(1, (sizes[-1] - sizes[0]) // self.unit)
        return first, max(1e5, slope)


def _drift(a: Arrivals) -> float:
    """Median, over (operation, size, depth) classes, of the change of p50 from half to half."""
    first, second = a.halves()
    before = {c.label: c.percentiles_s.get(50.0) for c in classes_of(first)}
    after = {c.label: c.percentiles_s.get(50.0) for c in classes_of(second)}
    changes = [after[k] / v - 1 for k, v in before.items() if v and after.get(k)]  # type: ignore[operator]
    return float(np.median(changes)) if changes else 0.0


def _peak_rate(a: Arrivals) -> float:
    """Most requests per second over any 64 arrivals in a row."""
    step = min(64, len(a) - 1)
    spans = a.at_ps[step:] - a.at_ps[:-step]
    return float(step / max(1, int(spans.min())) * 1e12)


def _sample(a: Arrivals, served: Floats, *, held_out: bool) -> Sample:
    return Sample(a.at_ps / 1e12, a.latency_s, served, held_out)


def replayed(profile: DriveProfile, arrivals: Arrivals, host: Host | None) -> list[JudgedClass]:
    """Replay *arrivals* on *profile*: all requests, then by class, measured beside simulated."""
    replayer = Replayer(arrivals, host or free_host(profile.link))
    classes = [everything(arrivals), *classes_of(arrivals)]
    return judge(classes, replayer.latencies_s(profile), held_out=True)
