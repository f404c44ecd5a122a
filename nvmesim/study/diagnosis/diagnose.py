"""`ns.diagnose`: measured against predicted, row by row, and what explains the difference.

Every explanation is a change of the scenario (`mistakes` beside this module), simulated under the
load of every row with the random numbers that all share, and weighted by its likelihood over all
rows and by how common it is. Where no single one suffices, pairs of the best are tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import read_captures
from nvmesim.errors import InputError
from nvmesim.measure.figures import Interval
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from nvmesim.study.diagnosis.evidence import (
    LEAST_NOISE,
    TAIL_NOISE,
    ErrorScale,
    MeasuredRow,
    in_flight,
    log_likelihood,
    log_ratios,
    misfit,
    probabilities,
    rows_of,
)
from nvmesim.study.diagnosis.mistakes import MISTAKES, Change, Mistake, Server, Variant
from nvmesim.study.sweep.api import Progress, simulated_rows, tables_of
from nvmesim.study.sweep.plan import put
from nvmesim.study.sweep.point import Settings, SweepJob

HEALTHY: Final = 0.5
"""Probability, before anything is measured, that the server is as its scenario says."""
UNKNOWN: Final = 0.05
"""And that something is wrong that is not in the list."""
REQUESTS: Final = 8_000
"""Of a simulated row, at least."""
ROUNDS: Final = 15
"""A row completes what is in flight so many times at least."""
POOR: Final = 3.0
"""Mean square of the best explanation's residuals from which pairs are tried."""
PAIRED: Final = 6
"""Explanations of which all pairs are tried."""
HOPELESS: Final = 7.0
"""Log likelihood by which a form may lie behind the best after a first look."""
DECIDES: Final = 0.1
"""Least difference of the logarithm of IOPS by which a measurement tells two explanations apart."""
SHOWN: Final = 0.01
"""Least probability of an explanation that is listed."""
FIGURES: Final = {"iops": "iops", "read_lat_p99_us": "p99", "write_lat_p99_us": "p99"}
"""Column of a sweep -> figure that has an interval."""


@dataclass(frozen=True)
class Explanation:
    """One thing that may be different on the server."""

    code: str
    """Of its mistake; two joined by "+"."""
    name: str
    """Its likeliest form, in words."""
    probability: float
    """Of all forms together."""
    changes: Change
    """The likeliest form as ``--set`` takes it; empty: nothing is changed."""
    iops: Interval | None
    """Predicted with it, of the row that differs most; None: not simulated."""
    check: str = ""
    mend: str = ""
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the object of `diagnose --json`."""
        return {
            "code": self.code, "name": self.name, "probability": self.probability,
            "set": dict(self.changes),
            "iops": None if self.iops is None else self.iops.to_json(),
            "check": self.check, "mend": self.mend, "source": self.source,
        }  # fmt: skip


@dataclass(frozen=True)
class ComparedRow:
    """A measured row beside its prediction."""

    label: str
    measured: float
    predicted: Interval
    p99_measured_s: float | None
    p99_predicted_s: float | None

    @property
    def is_inside(self) -> bool:
        """True if the measured rate lies inside the predicted interval."""
        return self.predicted.low <= self.measured <= self.predicted.high

    def to_json(self) -> dict[str, Any]:
        """Return the object of `diagnose --json`."""
        return {
            "label": self.label, "measured": self.measured, "predicted": self.predicted.to_json(),
            "inside": self.is_inside, "p99_measured_s": self.p99_measured_s,
            "p99_predicted_s": self.p99_predicted_s,
        }  # fmt: skip


@dataclass(frozen=True)
class NextMeasurement:
    """The measurement that tells the likeliest explanations apart."""

    workload: Mapping[str, Any]
    drives: int | None
    """Number of drives that are loaded, alone; None: the whole."""
    tells: tuple[str, str]
    """The two explanations between which it decides."""
    iops: tuple[float, float]
    """Predicted under each."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of `diagnose --json`."""
        read = self.workload["read"]
        return {
            "op": {1.0: "randread", 0.0: "randwrite"}.get(read, f"randrw:{100 * read:g}"),
            "block_size": self.workload["block_size"], "jobs": self.workload["threads_total"],
            "iodepth": self.workload["outstanding"], "drives": self.drives,
            "tells": list(self.tells), "iops": list(self.iops),
        }  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """What was measured, what was predicted, and what explains the difference."""

    scenario: str
    rows: tuple[ComparedRow, ...]
    healthy: float
    """Probability that the server is as its scenario says."""
    explanations: tuple[Explanation, ...]
    """The likeliest first; "none of these" among them."""
    next: NextMeasurement | None
    left_out: tuple[str, ...] = ()
    """Rows that could not be compared, and why."""

    @property
    def is_healthy(self) -> bool:
        """True if nothing explains the rows better than the scenario as it is."""
        return all(self.healthy >= e.probability for e in self.explanations)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `diagnose --json` prints."""
        return {
            "scenario": self.scenario, "healthy": self.healthy,
            "rows": [row.to_json() for row in self.rows],
            "explanations": [e.to_json() for e in self.explanations],
            "next": None if self.next is None else self.next.to_json(),
            "left_out": list(self.left_out),
        }  # fmt: skip


def diagnose(
    scenario: Scenario | str | Path | Mapping[str, Any],
    captures: Captures | Iterable[str | Path],
    *,
    seed: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Return what explains the difference between *captures* and the prediction of *scenario*.

    The workload of *scenario* is replaced by that of each row. Raises InputError if no row states
    jobs, depth and block size, and whatever `simulate` raises for the scenario itself.
    """
    found = captures if isinstance(captures, Captures) else read_captures(captures)
    rows, left_out = rows_of(found)
    tables, base = tables_of(scenario)
    search = _Search(tables, base, rows, Settings(seed=seed, certainty=False), workers, progress)
    return search.diagnosis(tuple(left_out))


@dataclass(frozen=True)
class _Trial:
    """A form of one mistake, or of two at once, and what it leaves of the rows' differences."""

    mistakes: tuple[Mistake, ...]
    variants: tuple[Variant, ...]
    ratios: Floats = field(default_factory=lambda: np.empty(0))
    """log(measured / predicted) under it: float64[n], as `log_ratios` orders them."""
    misfit: float = math.inf

    @property
    def code(self) -> str:
        return "+".join(m.code for m in self.mistakes)

    @property
    def name(self) -> str:
        return " and ".join(v.name for v in self.variants)

    @property
    def change(self) -> Change:
        return {key: value for v in self.variants for key, value in v.change.items()}


class _Search:
    """Simulates the rows under every explanation and weighs them."""

    def __init__(
        self, tables: Mapping[str, Any], base: str, rows: Sequence[MeasuredRow],
        settings: Settings, workers: int | None, progress: Progress | None,
    ) -> None:  # fmt: skip
        self._tables, self._base, self._rows = tables, base, rows
        self._settings, self._workers, self._progress = settings, workers, progress

        def loaded(*loads: Mapping[str, Any]) -> Any:
            changed = {**tables, "workload": [dict(load) for load in loads]}
            return resolve(scenario_from_dict(changed, base))

        self._predicted = [
            simulate(loaded(row.workload), seed=settings.seed, reliefs=False, over_time=False)
            for row in rows
        ]
        self._server = Server(tables, loaded(*(row.workload for row in rows)), rows)
        columns = [(result, c) for result, row in zip(self._predicted, rows, strict=True)
                   for c in row.figures]  # fmt: skip
        model = [max(r.certainty.figures[FIGURES[c]].total) / Z95 for r, c in columns]
        noise = [LEAST_NOISE if c == "iops" else TAIL_NOISE for _, c in columns]
        self._scale = ErrorScale(
            np.array(model), np.array(noise), tuple(FIGURES[c] for _, c in columns)
        )
        places = itertools.accumulate((len(row.figures) for row in rows), initial=0)
        self._firsts = list(places)[:-1]
        """Place of each row's IOPS among the figures of all rows."""

    def diagnosis(self, left_out: tuple[str, ...]) -> Diagnosis:
        """Weigh all explanations, and pairs of them where none suffices."""
        healthy = log_ratios(self._rows, [_columns(r) for r in self._predicted])
        single = [
            _Trial((mistake,), (variant,))
            for mistake in MISTAKES for variant in mistake.variants(self._server)
        ]  # fmt: skip
        found = self._screened(single, healthy)
        every = range(len(self._rows))
        if min([misfit(healthy, self._scale), *(f.misfit for f in found)]) > POOR:
            best = list(_likeliest(found).values())[:PAIRED]
            pairs = [
                _Trial((*a.mistakes, *b.mistakes), (*a.variants, *b.variants))
                for a, b in itertools.combinations(best, 2)
                if not a.change.keys() & b.change.keys()
            ]
            found += self._simulated(pairs, "pairs of explanations", every)
        chances = self._weighed(healthy, found)
        explanations = [
            self._explanation(one, chances[code])
            for code, one in _likeliest(found).items() if chances[code] >= SHOWN
        ]  # fmt: skip
        explanations.append(Explanation("unknown", "none of these", chances["unknown"], {}, None))
        explanations.sort(key=lambda e: -e.probability)
        return Diagnosis(
            scenario=str(self._tables.get("name") or "scenario"),
            rows=tuple(_compared(*pair) for pair in zip(self._rows, self._predicted, strict=True)),
            healthy=chances["healthy"],
            explanations=tuple(explanations),
            next=self._next(chances["healthy"], explanations),
            left_out=left_out,
        )

    def _screened(self, trials: Sequence[_Trial], healthy: Floats) -> list[_Trial]:
        """Simulate *trials* under the two rows that differ most and least; then what is left.

        A form that explains these two worse than another by `HOPELESS` is left out: the other rows
        would have to make it up.
        """
        every = range(len(self._rows))
        order = sorted(every, key=lambda i: abs(healthy[self._firsts[i]]))
        seen = self._simulated(trials, "first look", sorted({order[0], order[-1]}))
        scores = [log_likelihood(one.ratios, self._scale) for one in seen]
        least = max(scores) - HOPELESS
        left = [one for one, score in zip(seen, scores, strict=True) if score > least]
        return self._simulated(left, "explanations", every)

    def _simulated(self, trials: Sequence[_Trial], what: str, rows: Sequence[int]) -> list[_Trial]:
        """Return those of *trials* that can be built, with *rows* simulated and the others NaN."""
        loads = [self._rows[i].workload for i in rows]
        answers = iter(self._answers([(t.change, load) for t in trials for load in loads], what))
        out = []
        for trial in trials:
            found = {i: next(answers) for i in rows}
            if all(answer is not None for answer in found.values()):
                ratios = log_ratios(
                    self._rows, [found.get(j) or {} for j in range(len(self._rows))]
                )
                misses = misfit(ratios, self._scale)
                out.append(replace(trial, ratios=ratios, misfit=misses))
        return out

    def _answers(
        self, wanted: Sequence[tuple[Change, Mapping[str, Any]]], what: str
    ) -> list[dict[str, Any] | None]:
        """A row of `sweep` for each (change, load); None where the two cannot be."""
        jobs = []
        for number, (change, load) in enumerate(wanted):
            try:
                tables = put({**self._tables, "workload": [dict(load)]}, change)
            except InputError:
                continue
            requests = max(REQUESTS, ROUNDS * in_flight(load))
            settings = replace(self._settings, requests=requests)
            jobs.append(SweepJob(number, tables, self._base, settings))

        def say(done: int) -> None:
            if self._progress is not None:
                self._progress(what, done / len(jobs))

        rows = simulated_rows(jobs, self._workers, say)
        known = {n: row for n, row in rows.items() if not row.get("error") and row["iops"]}
        return [known.get(number) for number in range(len(wanted))]

    def _weighed(self, healthy: Floats, found: Sequence[_Trial]) -> dict[str, float]:
        """Code of each mistake, "healthy" and "unknown" -> probability."""
        likelihoods = {
            "healthy": [log_likelihood(healthy, self._scale)],
            "unknown": [log_likelihood(healthy, self._scale, unknown=True)],
        }
        priors = {"healthy": HEALTHY, "unknown": UNKNOWN}
        whole = sum(m.weight for m in MISTAKES)
        for one in found:
            score = log_likelihood(one.ratios, self._scale)
            likelihoods.setdefault(one.code, []).append(score)
            shares = [(1 - HEALTHY - UNKNOWN) * m.weight / whole for m in one.mistakes]
            priors[one.code] = math.prod(shares)
        return probabilities(likelihoods, priors)

    def _explanation(self, one: _Trial, chance: float) -> Explanation:
        pairs = list(zip(self._rows, self._predicted, strict=True))
        worst = max(range(len(pairs)), key=lambda i: abs(
            math.log(pairs[i][0].iops / pairs[i][1].total.iops.value)))  # fmt: skip
        iops = self._rows[worst].iops / math.exp(one.ratios[self._firsts[worst]])
        around = self._predicted[worst].certainty.figures["iops"].around(iops)
        check, mend, source = (
            "; ".join(getattr(m, text) for m in one.mistakes)
            for text in ("check", "mend", "source")
        )
        return Explanation(
            one.code, one.name, chance, one.change, Interval(iops, *around), check, mend, source
        )

    def _next(self, healthy: float, explanations: Sequence[Explanation]) -> NextMeasurement | None:
        """The load under which the two likeliest explanations differ most."""
        nothing = Explanation("healthy", "nothing is wrong", healthy, {}, None)
        known = [*(e for e in explanations if e.iops is not None), nothing]
        first, *others = sorted(known, key=lambda e: -e.probability)
        if not others or others[0].probability < SHOWN:
            return None
        second = others[0]
        loads = self._loads()
        wanted = [(e.changes, load) for load, _ in loads for e in (first, second)]
        answers = self._answers(wanted, "what to measure next")
        rates = {
            i: (a["iops"], b["iops"]) for i in range(len(loads))
            if (a := answers[2 * i]) is not None and (b := answers[2 * i + 1]) is not None
        }  # fmt: skip
        differences = {i: abs(math.log(a / b)) for i, (a, b) in rates.items()}
        best = max(differences, key=lambda i: differences[i], default=None)
        if best is None or differences[best] < DECIDES:
            return None
        return NextMeasurement(*loads[best], tells=(first.name, second.name), iops=rates[best])

    def _loads(self) -> list[tuple[dict[str, Any], int | None]]:
        """Loads that are quick to measure: a drive alone, and the whole shallow and deep."""
        server = self._server.resolved
        threads = max(1, min(16, server.sockets[0].logical_cpus))
        alone: list[str] = []
        if len(server.drives) > 1 and not server.volumes:
            alone = [server.drives[i].name for i in (0, -1)]
        out: list[tuple[dict[str, Any], int | None]] = []
        for size, jobs, depth in (("4 KiB", 1, 1), ("4 KiB", 4, 64), ("4 KiB", threads, 32),
                                  ("128 KiB", threads, 8)):  # fmt: skip
            for read in (1.0, 0.0) if self._server.has_writes else (1.0,):
                load = {"access": "random", "block_size": size, "read": read,
                        "threads_total": jobs, "outstanding": depth}  # fmt: skip
                out.append((load, None))
                out += [({**load, "targets": [name]}, 1) for name in alone]
        return out


def _likeliest(found: Sequence[_Trial]) -> dict[str, _Trial]:
    """Code -> its form that fits best, the best first."""
    out: dict[str, _Trial] = {}
    for one in sorted(found, key=lambda f: f.misfit):
        out.setdefault(one.code, one)
    return out


def _columns(result: Result) -> dict[str, Any]:
    """What `log_ratios` compares, of a prediction."""
    out: dict[str, Any] = {"iops": result.total.iops.value}
    for name, stats in (("read", result.read), ("write", result.write)):
        p99 = None if stats is None else stats.latency.percentiles[99.0]
        out[f"{name}_lat_p99_us"] = None if p99 is None else p99 * 1e6
    return out


def _compared(row: MeasuredRow, result: Result) -> ComparedRow:
    stats = result.read or result.write or result.total
    p99 = stats.latency.percentiles[99.0]
    return ComparedRow(row.label, row.iops, result.total.iops, row.p99_s, p99)
