"""`ns.diagnose`: measured against predicted, row by row, and what explains the difference.

Every explanation is a change of the scenario (`mistakes` beside this module), simulated under the
load of every row with the random numbers that all share, and weighted by its likelihood over all
rows and by how common it is. Where no single one suffices, pairs of the best are tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from nvmesim.study.diagnosis.mistakes import MISTAKES, Change, Mistake, Server, Variant
from nvmesim.study.diagnosis.rows import (
    MeasuredRow,
    in_flight,
    log_ratios,
    noise_of,
    rows_of,
)
from nvmesim.study.diagnosis.weights import (
    ErrorScale,
    log_likelihood,
    misfit,
    probabilities,
)
from nvmesim.study.sweep.api import Progress, simulate_all, tables_of
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
    """A form of one mistake, or of two at once."""

    mistakes: tuple[Mistake, ...]
    variants: tuple[Variant, ...]

    @property
    def code(self) -> str:
        return "+".join(m.code for m in self.mistakes)

    @property
    def name(self) -> str:
        return " and ".join(v.name for v in self.variants)

    @property
    def change(self) -> Change:
        return {key: value for v in self.variants for key, value in v.change.items()}


@dataclass(frozen=True)
class _Simulated:
    """A trial, and log(measured / predicted) under it: float64[n], as `log_ratios` orders them."""

    trial: _Trial
    ratios: Floats
    misfit: float


class _Search:
    """Simulates the rows under every explanation and weighs them."""

    def __init__(
        self, tables: Mapping[str, Any], base: str, rows: Sequence[MeasuredRow],
        settings: Settings, workers: int | None, progress: Progress | None,
    ) -> None:  # fmt: skip
        self._tables, self._base, self._rows = tables, base, rows
        self._settings, self._workers, self._progress = settings, workers, progress
        self._predicted = [self._predict(row) for row in rows]
        self._scale = self._errors()
        loaded = {**tables, "workload": [dict(row.workload) for row in rows]}
        self._server = Server(tables, resolve(scenario_from_dict(loaded, base)), rows)

    def diagnosis(self, left_out: tuple[str, ...]) -> Diagnosis:
        """Weigh all explanations, and pairs of them where none suffices."""
        healthy = np.array(log_ratios(self._rows, [_columns(r) for r in self._predicted]))
        single = [
            _Trial((mistake,), (variant,))
            for mistake in MISTAKES for variant in mistake.variants(self._server)
        ]  # fmt: skip
        found = self._screened(single, healthy)
        best = min([misfit(healthy, self._scale), *(f.misfit for f in found)])
        if best > POOR:
            pairs = _pairs(found)
            found += self._simulated(pairs, "pairs of explanations", range(len(self._rows)))
        chances = self._weighed(healthy, found)
        explanations = self._explanations(chances, found)
        return Diagnosis(
            scenario=str(self._tables.get("name") or "scenario"),
            rows=tuple(_compared(*pair) for pair in zip(self._rows, self._predicted, strict=True)),
            healthy=chances["healthy"],
            explanations=explanations,
            next=self._next(chances["healthy"], explanations),
            left_out=left_out,
        )

    # Predictions --------------------------------------------------------------------------------

    def _predict(self, row: MeasuredRow) -> Result:
        tables = {**self._tables, "workload": [dict(row.workload)]}
        resolved = resolve(scenario_from_dict(tables, self._base))
        return simulate(resolved, seed=self._settings.seed, reliefs=False, over_time=False)

    def _errors(self) -> ErrorScale:
        model, noise, names = [], [], []
        for row, result in zip(self._rows, self._predicted, strict=True):
            for column in row.figures:
                model.append(max(result.certainty.figures[FIGURES[column]].total) / Z95)
                noise.append(noise_of(column))
                names.append(FIGURES[column])
        return ErrorScale(np.array(model), np.array(noise), tuple(names))

    def _screened(self, trials: Sequence[_Trial], healthy: Floats) -> list[_Simulated]:
        """Simulate *trials* under the two rows that differ most and least; then what is left.

        A form that explains these two worse than another by `HOPELESS` is left out: the other rows
        would have to make it up.
        """
        firsts = self._firsts()
        order = sorted(range(len(firsts)), key=lambda i: abs(healthy[firsts[i]]))
        few = sorted({order[0], order[-1]})
        seen = self._simulated(trials, "first look", few)
        scores = [log_likelihood(one.ratios, self._scale) for one in seen]
        left = [
            one.trial for one, score in zip(seen, scores, strict=True)
            if score > max(scores) - HOPELESS
        ]  # fmt: skip
        return self._simulated(left, "explanations", range(len(self._rows)))

    def _firsts(self) -> list[int]:
        """Place of each row's IOPS among the figures of all rows."""
        return list(itertools.accumulate((len(row.figures) for row in self._rows), initial=0))[:-1]

    def _simulated(
        self, trials: Sequence[_Trial], what: str, rows: Sequence[int]
    ) -> list[_Simulated]:
        """Return those of *trials* that can be built, with *rows* simulated and the others NaN."""
        loads = [self._rows[i].workload for i in rows]
        answers = self._answers([(t.change, load) for t in trials for load in loads], what)
        out = []
        for i, trial in enumerate(trials):
            found = dict(zip(rows, answers[i * len(loads) : (i + 1) * len(loads)], strict=True))
            if all(answer is not None for answer in found.values()):
                every = [found.get(j) or {} for j in range(len(self._rows))]
                ratios = np.array(log_ratios(self._rows, every))
                out.append(_Simulated(trial, ratios, misfit(ratios, self._scale)))
        return out

    def _answers(
        self, wanted: Sequence[tuple[Change, Mapping[str, Any]]], what: str
    ) -> list[dict[str, Any] | None]:
        """A row of `sweep` for each (change, load); None where the two cannot be."""
        jobs = [
            job for number, (change, load) in enumerate(wanted)
            if (job := self._job(number, load, change)) is not None
        ]  # fmt: skip
        out: list[dict[str, Any] | None] = [None] * len(wanted)
        done = simulate_all(iter(jobs), len(jobs), workers=self._workers)
        for count, answer in enumerate(done, 1):
            if answer.row.get("error") is None and answer.row["iops"]:
                out[answer.number] = answer.row
            if self._progress is not None:
                self._progress(what, count / len(jobs))
        return out

    def _job(self, number: int, workload: Mapping[str, Any], change: Change) -> SweepJob | None:
        try:
            tables = put({**self._tables, "workload": [dict(workload)]}, change)
        except InputError:
            return None
        settings = replace(self._settings, requests=max(REQUESTS, ROUNDS * in_flight(workload)))
        return SweepJob(number, tables, self._base, settings)

    # Weights ------------------------------------------------------------------------------------

    def _weighed(self, healthy: Floats, found: Sequence[_Simulated]) -> dict[str, float]:
        """Code of each mistake, "healthy" and "unknown" -> probability."""
        likelihoods = {
            "healthy": [log_likelihood(healthy, self._scale)],
            "unknown": [log_likelihood(healthy, self._scale, unknown=True)],
        }
        for one in found:
            likelihoods.setdefault(one.trial.code, []).append(
                log_likelihood(one.ratios, self._scale)
            )
        whole = sum(m.weight for m in MISTAKES)
        priors = {"healthy": HEALTHY, "unknown": UNKNOWN}
        for one in found:
            shares = [(1 - HEALTHY - UNKNOWN) * m.weight / whole for m in one.trial.mistakes]
            priors[one.trial.code] = math.prod(shares)
        return probabilities(likelihoods, priors)

    def _explanations(
        self, chances: Mapping[str, float], found: Sequence[_Simulated]
    ) -> tuple[Explanation, ...]:
        likeliest: dict[str, _Simulated] = {}
        for one in sorted(found, key=lambda f: f.misfit):
            likeliest.setdefault(one.trial.code, one)
        out = [
            self._explanation(one, chances[code])
            for code, one in likeliest.items() if chances[code] >= SHOWN
        ]  # fmt: skip
        out.append(Explanation("unknown", "none of these", chances["unknown"], {}, None))
        return tuple(sorted(out, key=lambda e: -e.probability))

    def _explanation(self, one: _Simulated, chance: float) -> Explanation:
        pairs = list(zip(self._rows, self._predicted, strict=True))
        worst = max(range(len(pairs)), key=lambda i: abs(
            math.log(pairs[i][0].iops / pairs[i][1].total.iops.value)))  # fmt: skip
        iops = self._rows[worst].iops / math.exp(one.ratios[self._firsts()[worst]])
        around = self._predicted[worst].certainty.figures["iops"].around(iops)
        mistakes = one.trial.mistakes
        return Explanation(
            one.trial.code, one.trial.name, chance, one.trial.change, Interval(iops, *around),
            "; ".join(m.check for m in mistakes), "; ".join(m.mend for m in mistakes),
            "; ".join(m.source for m in mistakes),
        )  # fmt: skip

    # What to measure next -----------------------------------------------------------------------

    def _next(self, healthy: float, explanations: Sequence[Explanation]) -> NextMeasurement | None:
        """The load under which the two likeliest explanations differ most."""
        known = [(e.probability, e.name, e.changes) for e in explanations if e.iops is not None]
        known.append((healthy, "nothing is wrong", {}))
        likeliest = sorted(known, key=lambda k: -k[0])[:2]
        if len(likeliest) < 2 or likeliest[1][0] < SHOWN:
            return None
        loads = self._candidates()
        wanted = [(change, load) for load, _ in loads for _, _, change in likeliest]
        answers = self._answers(wanted, "what to measure next")
        rates = {
            i: (a["iops"], b["iops"]) for i in range(len(loads))
            if (a := answers[2 * i]) is not None and (b := answers[2 * i + 1]) is not None
        }  # fmt: skip
        if not rates:
            return None
        apart = {i: abs(math.log(a / b)) for i, (a, b) in rates.items()}
        best = max(apart, key=lambda i: apart[i])
        if apart[best] < DECIDES:
            return None
        return NextMeasurement(
            *loads[best], tells=(likeliest[0][1], likeliest[1][1]), iops=rates[best]
        )

    def _candidates(self) -> list[tuple[dict[str, Any], int | None]]:
        """Loads that are quick to measure: a drive alone, and the whole shallow and deep."""
        server = self._server.resolved
        threads = max(1, min(16, server.sockets[0].logical_cpus))
        alone = [server.drives[i].name for i in (0, -1)] if len(server.drives) > 1 else []
        if server.volumes:
            alone = []
        out: list[tuple[dict[str, Any], int | None]] = []
        for size, jobs, depth in (("4 KiB", 1, 1), ("4 KiB", 4, 64), ("4 KiB", threads, 32),
                                  ("128 KiB", threads, 8)):  # fmt: skip
            for read in (1.0, 0.0) if self._server.has_writes else (1.0,):
                load = {"access": "random", "block_size": size, "read": read,
                        "threads_total": jobs, "outstanding": depth}  # fmt: skip
                out.append((load, None))
                out += [({**load, "targets": [name]}, 1) for name in alone]
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


def _pairs(found: Sequence[_Simulated]) -> list[_Trial]:
    """Two at once, of the mistakes whose best forms come nearest."""
    nearest: dict[str, _Simulated] = {}
    for one in sorted(found, key=lambda f: f.misfit):
        nearest.setdefault(one.trial.code, one)
    best = [one.trial for one in list(nearest.values())[:PAIRED]]
    return [
        _Trial((*a.mistakes, *b.mistakes), (*a.variants, *b.variants))
        for a, b in itertools.combinations(best, 2) if not a.change.keys() & b.change.keys()
    ]  # fmt: skip
