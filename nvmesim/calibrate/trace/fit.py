"""Fit a drive to a trace of single requests with mixed sizes and varying depths.

The drive is simulated under the trace's own arrivals, and the percentiles of each class of requests
(operation and size, operation and depth) are matched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.arrivals import Arrivals, Replayer, acknowledged_s
from nvmesim.calibrate.bench import BenchHost, free_host
from nvmesim.calibrate.drive.batch_service import as_a_read
from nvmesim.calibrate.drive.gate import missed_means
from nvmesim.calibrate.drive.laws import OPEN
from nvmesim.calibrate.drive.read_side import CLEAN
from nvmesim.calibrate.drive.starting_point import blank_drive
from nvmesim.calibrate.evidence import joint_of, with_draws, with_span
from nvmesim.calibrate.infer.optimum import Solution, intervals, is_stopping, solve
from nvmesim.calibrate.infer.posterior import CHI_SQUARE, Inferred, infer
from nvmesim.calibrate.infer.problem import Parameter, Problem
from nvmesim.calibrate.notes import named
from nvmesim.calibrate.trace import start, task
from nvmesim.calibrate.trace.start import Structure
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import with_numbers
from nvmesim.errors import FitError
from nvmesim.model.lowered import in_words

MAX_REQUESTS = 12_000
"""Requests simulated at each step of the search; a longer trace is fitted on runs of it."""
MIN_REQUESTS = 100
SIMULATED = 100_000
"""Requests that a step simulates at least, over several runs of a short trace: pauses are rare."""
MAX_RUNS = 40
SCREENED = 4_000
"""Requests that structures are compared on."""
SEEN = 0.7
"""Share of a short trace that structures are fitted on before they are compared on the rest."""
SCREEN_ROUNDS, FINE_ROUNDS = 4, 6
FAR = (0.25, 0.5, 2.0, 4.0)
"""Numbers of dies tried, in units of the first guess."""
ENGINES = (0, 1, 2, 4)
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
    classes: tuple[task.ClassOf, ...]
    warnings: tuple[str, ...] = ()
    free_parameters: tuple[str, ...] = ()
    structure: Structure = field(default_factory=Structure)
    sample: Sample | None = None
    """The held-out part, or else the fitted one, replayed; for charts"""
    misses: tuple[str, ...] = ()
    """Its own operations whose mean latency it misses by more than a profile may: one line each"""

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as an object, as `DriveFit.to_json` does."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "points": [c.to_json() for c in self.classes],
            "free_parameters": list(self.free_parameters),
            "warnings": list(self.warnings),
            "misses": list(self.misses),
        }


def fit_trace(
    arrivals: Arrivals, *, name: str, host: BenchHost | None = None,
    captured_on: str | None = None, held_out: Arrivals | None = None,
    tell: Progress = lambda text: None,
) -> TraceFit:  # fmt: skip
    """Fit a drive to *arrivals*, or FitError for too few; *held_out* is replayed and judged."""
    if len(arrivals) < MIN_REQUESTS:
        raise FitError(
            f"{arrivals.source}: {len(arrivals)} requests are too few to fit a drive to; "
            f"{MIN_REQUESTS} are needed"
        )
    return _Fitting(arrivals, name, host, captured_on, tell).fit(held_out)


class _Fitting:
    def __init__(
        self, arrivals: Arrivals, name: str, host: BenchHost | None, captured_on: str | None,
        tell: Progress,
    ) -> None:  # fmt: skip
        self.all, self.tell = arrivals, tell
        self.used = arrivals.windows(MAX_REQUESTS)
        self.host = host or free_host()
        runs = int(np.clip(-(-SIMULATED // len(self.used)), 1, MAX_RUNS))
        self.replayer = Replayer(self.used, self.host, runs=runs)
        self.classes = task.classes_of(self.used)
        if not self.classes:
            raise FitError(f"{arrivals.source}: no operation and size has enough requests")
        # some are kept from the screening, so that models are compared on what none has seen
        most = min(SCREENED, int(SEEN * len(self.used)))
        few = self.used.windows(most)
        self.unseen = ~start.screened(len(self.used), most)
        self.screen = (Replayer(few, self.host), task.classes_of(few))
        self.search = start.bank_search(self.used)
        self.rounds_search = start.rounds_search(self.used)
        self.depth = int(self.used.depth.max())
        self.choice = ""
        self.notes: list[str] = []
        blank = blank_drive(name, str(self.host.link), captured_on, host is None)
        unit = start.unit_of(self.used)
        self.template = with_numbers(blank, {
            "dies": start.LONE_DIES, "read.unit": unit, "write.unit": unit,
            "read_bandwidth": 1e11, "write_bandwidth": 1e11, "wait_cv": 0.0,
        })  # fmt: skip

    def fit(self, held_out: Arrivals | None) -> TraceFit:
        best = self._search()
        if best.structure.rounds:
            profile, structure = self._in_rounds(best), best.structure
        else:
            profile, structure = self._bank(best)
        served = self.replayer.latencies_s(profile)
        misses = missed_means(
            self.all.source, self.used.write, self.used.latency_s, served.mean(axis=0),
        )  # fmt: skip
        judged = task.judge([task.all_requests(self.used), *self.classes], served, held_out=False)
        sample = Sample(self.used.at_ps / 1e12, self.used.latency_s, served[0], False)
        if held_out is not None and len(held_out):
            self.tell("replaying what was held out")
            begun = held_out.begun(acknowledged_s(self.all.latency_s[self.all.write]))
            again = Replayer(begun, self.host).latencies_s(profile)
            classes = [task.all_requests(held_out), *task.classes_of(held_out)]
            judged += task.judge(classes, again, held_out=True)
            sample = Sample(held_out.at_ps / 1e12, held_out.latency_s, again[0], True)
        return TraceFit(
            profile, tuple(judged), tuple(self._doubts(judged, structure)),
            tuple(start.column(self._begin(structure), "name")), structure, sample, tuple(misses),
        )  # fmt: skip

    def _search(self) -> _Try:
        """Screen structures with few requests, twice as each choice depends on the others."""
        used = self.used
        first = Structure(start.dies_asked(used))
        best = self._at(first, start.column(self.search, "start"), SCREEN_ROUNDS)
        for turn in range(2):
            before = best.structure
            if used.write.any():
                best = self._better(
                    best, [replace(best.structure, through=t) for t in (False, True)]
                )
            if start.read_units(used) > 1:
                best = self._better(best, [replace(best.structure, engines=n) for n in ENGINES])
            # the distribution holds other numbers of dies, but not far more or fewer; lone requests
            # wait for none
            factors = () if self.depth <= 1 or turn else FAR
            dies = dict.fromkeys(max(1, round(best.structure.dies * f)) for f in factors)
            best = self._better(best, [replace(best.structure, dies=n) for n in dies])
            if turn and best.structure == before:
                break
        served = self._rounds()
        if served is not None and self._tells(served) + CHI_SQUARE / 2 < self._tells(best):
            self.choice = (
                "taken as one queue that is served in batches (a virtual disk), not as flash dies: "
                "that predicts requests that were left out of the fit better"
            )
            tries = [
                self._at(served.structure, begin, 2 * FINE_ROUNDS, fine=True)
                for begin in (served.values, *start.rounds_guesses(self.rounds_search))
            ]
            return min(tries, key=lambda t: t.found.cost)
        return best

    def _rounds(self) -> _Try | None:
        """The best disk of rounds by the screening; None where depth does not vary enough."""
        if len(np.unique(self.used.depth)) < 3:
            return None
        tries = [
            self._at(Structure(dies=1, rounds=True), begin, 2 * SCREEN_ROUNDS)
            for begin in start.rounds_guesses(self.rounds_search)
        ]
        return min(tries, key=lambda t: t.found.cost)

    def _tells(self, tried: _Try) -> float:
        """Half chi-square of *tried* on the requests that the screening left out."""
        classes = task.classes_of(self.used, self.unseen) or self.classes
        served = self.replayer.latencies_s(self._made(tried.found.values, tried.structure))
        return 0.5 * float(np.sum(np.square(task.misfits(classes, served))))

    def _better(self, best: _Try, structures: Sequence[Structure]) -> _Try:
        """The best of *best* and *structures*, each searched from the best's values."""
        begin, names = best, start.column(self._begin(best.structure), "name")
        for structure in structures:
            if structure == begin.structure or is_stopping():
                continue
            values = begin.values
            if self.used.full and "program" in names:  # a drain that was seen stays what it is
                values[names.index("program")] *= structure.dies / begin.structure.dies
            tried = self._at(structure, values, SCREEN_ROUNDS)
            if tried.found.cost < best.found.cost:
                best = tried
        return best

    def _at(
        self, structure: Structure, begin: Sequence[float], rounds: int, *, fine: bool = False
    ) -> _Try:
        self.tell(
            ("trace: batch service" if structure.rounds else f"trace: {structure.dies} dies")
            + (f", {structure.engines} data engines" if structure.engines else "")
            + (", no write buffer" if structure.through else "")
            + (", all requests" if fine else "")
        )
        s = self._begin(structure)
        replayer, classes = (self.replayer, self.classes) if fine else self.screen

        def residuals(x: Floats) -> list[float]:
            return task.misfits(classes, replayer.latencies_s(self._made(x, structure)))

        low, high, step = (start.column(s, name) for name in ("low", "high", "step"))
        inside = np.clip(np.asarray(begin), low, high).tolist()
        found = solve(residuals, inside, rounds=rounds, low=low, high=high, step=step)
        return _Try(structure, found)

    def _made(self, x: Sequence[float] | Floats, structure: Structure) -> DriveProfile:
        names = start.column(self._begin(structure), "name")
        v = dict(zip(names, (float(value) for value in x), strict=True))
        if structure.rounds:
            return start.built_rounds(self.template, v)
        return start.built(self.template, v, structure)

    def _begin(self, structure: Structure) -> list[Parameter]:
        return self.rounds_search if structure.rounds else self.search

    def _in_rounds(self, best: _Try) -> DriveProfile:
        found = best.found
        bounds = intervals(start.column(self.rounds_search, "name"), found.values, found)
        made = self._made(found.values, best.structure)
        profile = start.with_rounds_intervals(made, bounds, self._source())
        if self.used.write.any() or profile.rounds is None:
            return profile
        return with_numbers(profile, {"rounds.write": as_a_read(profile.rounds.read)})

    def _bank(self, best: _Try) -> tuple[DriveProfile, Structure]:
        """The fitted bank of dies, with the joint distribution of its numbers.

        The simpler structures come first: the first that sampling alone explains is taken.
        """
        simple = [best.structure]
        if best.structure.engines:
            simple.insert(0, replace(best.structure, engines=0))
        if best.structure.through:
            simple = [replace(s, through=False) for s in simple] + simple
        found = []
        for structure in simple:
            found.append(self._inferred(structure, best))
            if found[-1][2].tau <= CLEAN or is_stopping():
                break
        bank, problem, inferred = min(found, key=lambda f: (f[2].tau, f[2].chi))
        values, structure = bank.decoded(inferred.best)
        profile = start.built(self.template, values, structure)
        rows = [start.bank_numbers(self.template, *bank.decoded(u))[0] for u in inferred.draws]
        columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        open_ = task.unidentified(problem, inferred.draws)
        assumed = [key for name in open_ for key in task.KEYS.get(name, ())]
        if open_:
            self.notes.append(
                f"{self.all.source}: not determined by this trace, any value in the interval is as "
                f"likely: {in_words([key for key in assumed if key in columns] or open_)}"
            )
        profile = with_draws(profile, columns, self._source(), assumed)
        profile = profile.model_copy(update={"joint": joint_of(profile, columns)})
        if problem.profiled in problem.names:
            # The interval of the controller's rate is open where it is.
            slow, fast = bank.rate(inferred.span[1]), bank.rate(inferred.span[0])
            if inferred.span[0] < OPEN:
                fast = bank.rate(0.0)
                self.notes.append(
                    f"{self.all.source}: only a lower limit of commands per second is known: "
                    f"{slow / 1e3:.3g}k/s"
                )
            profile = with_span(profile, "commands", (slow, fast), profile.commands.source)
        return profile, structure

    def _inferred(
        self, structure: Structure, best: _Try
    ) -> tuple[task.TraceBank, Problem, Inferred]:
        """The joint distribution of *structure*'s numbers, begun at least squares' *best*."""
        names, known = start.column(self.search, "name"), {p.name: p for p in self.search}
        begin = dict(zip(names, best.values, strict=True))
        if structure.engines != best.structure.engines and "read_slope" in begin:
            begin["read_slope"] = known["read_slope"].start
        peak = start.peak_rate(self.used)
        bank = task.TraceBank(tuple(names), peak, start.MOST_COMMANDS, structure)
        coordinates = bank.coordinates(bank.encoded(begin), known)
        problem = task.trace_task(bank, self.used, self.host, self.template, coordinates)
        said = f"trace: {structure.engines} data engines, " if structure.engines else "trace: "
        return bank, problem, infer(problem, tell=lambda step: self.tell(said + step))

    def _source(self) -> str:
        return f"{self.all.source}: {len(self.used)} requests one by one"

    def _doubts(self, judged: Sequence[task.ClassOf], structure: Structure) -> list[str]:
        used, source, writes = self.used, self.all.source, self.used.write
        # Of (operation, size, depth) classes the change of p50 from half to half.
        before, after = (
            {c.label: c.measured_s[50.0] for c in task.classes_of(half) if c.measured_s.get(50.0)}
            for half in used.halves()
        )
        changes = [after[k] / v - 1 for k, v in before.items() if k in after]
        drift, pace = float(np.median(changes)) if changes else 0.0, start.peak_rate(used)
        off = [(c.label, c.residual.get(50.0, 0.0)) for c in judged if not c.held_out]
        missed = [f"{label} {100 * error:+.0f} %" for label, error in off if abs(error) > 0.1]
        doubts = (
            (self.template.host_included,
             "no --captured-on: the time that the host took counts as the drive's, so name the "
             "host that measured"),
            (len(used) < len(self.all),
             f"{source}: fitted on {len(used):,} of {len(self.all):,} requests"),
            (not writes.any(), "no writes in the trace: the write side is assumed"),
            (writes.all(), "no reads in the trace: the read side is assumed"),
            (self.depth < 8 and not structure.rounds,
             f"at most {self.depth} requests were outstanding: the number of dies cannot be known "
             "from this trace, nor the tail at greater depth"),
            (self.depth == 1 and not writes.all(),
             f"one request was outstanding at a time: {pace / 1e3:.3g}k/s is the trace's own pace "
             "and no limit of the drive; commands per second are assumed"),
            (used.full,
             f"{source}: the write buffer was full at the start of {len(used.full)} of the runs "
             "that are fitted: their replays fill it first"),
            (abs(drift) > DRIFT,
             f"{source}: latencies drift, the second half is {100 * drift:+.0f} % of the first at "
             "the same size and depth; one drive cannot be both"),
            (missed,
             f"the fitted drive misses the median by more than 10 %: {named(missed, 6)}"),
        )  # fmt: skip
        choice = [self.choice] if self.choice else []
        return [*choice, *self.notes, *(text for is_so, text in doubts if is_so)]


@dataclass(frozen=True)
class _Try:
    structure: Structure
    found: Solution

    @property
    def values(self) -> list[float]:
        return [float(v) for v in self.found.values]
