"""`ns.diagnose`: measured against predicted, row by row, and what explains the difference.

Every explanation is a change of the scenario (`mistakes` beside this module), simulated under the
load of every row with the random numbers that all share, and weighted by its likelihood over all
rows and by how common it is. Where no single one suffices, pairs of the best are tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Captures
from nvmesim.measure.figures import Interval
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.scenario.schema import Scenario
from nvmesim.study.diagnosis.evidence import (
    LEAST_NOISE,
    TAIL_NOISE,
    ErrorScale,
    MeasuredRow,
    log_likelihood,
    log_likelihood_as_is,
    log_likelihoods,
    log_mean,
    log_ratios,
    misfit,
    notes_of,
    of_arrays,
    on_drives,
    placed,
    probabilities,
    rows_of,
)
from nvmesim.study.diagnosis.findings import (
    ComparedRow,
    Diagnosis,
    Explanation,
    NextMeasurement,
)
from nvmesim.study.diagnosis.mistakes import Trial, known, read_files, told_by
from nvmesim.study.diagnosis.ranges import DELAYS_US, Grid, change_of
from nvmesim.study.diagnosis.server import Server, Variant
from nvmesim.study.diagnosis.short_runs import ShortRuns
from nvmesim.study.sweep.api import Progress, tables_of

POOR: Final = 3.0
"""Mean square of the best explanation's residuals from which pairs are tried."""
PAIRED: Final = 6
"""Explanations of which all pairs are tried."""
HOPELESS: Final = 7.0
"""Log likelihood by which a form may lie behind the best before all rows are simulated."""
BETWEEN: Final = tuple(n / 8 for n in range(1, 8))
"""Where between two forms of one family (a drive twice and four times as slow) others are weighed:
the logarithms of what they do are interpolated."""
ALIKE: Final = 0.05
"""Largest difference of the logarithm of IOPS, in any row, of explanations that rows of such noise
cannot tell apart."""
DECIDES: Final = 0.1
"""Least difference of the logarithm of IOPS by which a measurement tells two explanations apart."""
DEAR: Final = 3.0
"""Times the predicted CPU time of a request from which busy jobs do something else as well."""
SPUN: Final = 100_000.0
"""Cycles of a request from which jobs spin at a lock: a guest takes 25,000 at most (stacks)."""
SPINS: Final = frozenset({"clock", "iommu", "kernel", "scheduler"})
"""Codes of mistakes that are locks."""
SPENDS: Final = SPINS | {"guest", "mitigations", "page-cache", "power"}
"""Codes of mistakes that cost the jobs' own CPU time; under all others they wait."""
WAITS: Final = 0.1
"""Share of its weight that is left to a mistake under which jobs wait, where they did not."""
SEEN: Final = 15.0
"""Times as common from which files name a mistake, whose forms may then be of another size."""
SIZE: Final = "of any size"
SHOWN: Final = 0.01
"""Least probability of an explanation that is listed."""
Trials = Sequence[Trial]


def diagnose(
    scenario: Scenario | str | Path | Mapping[str, Any],
    captures: Captures | Iterable[str | Path],
    *,
    seed: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Return what explains the difference between *captures* and the prediction of *scenario*.

    The workload of *scenario* is replaced by that of each row, but for where and through what it
    runs (`PLACE`). Raises InputError if no row states
    jobs, depth and block size, and whatever `simulate` raises for the scenario itself.
    """
    texts, refused = dict[str, str](), list[str]()
    if isinstance(captures, Captures):
        found = captures
    else:
        found, texts, refused = read_files(captures)
    rows, left_out = rows_of(found)
    tables, base = tables_of(scenario)
    if tables.get("volume"):
        rows, members = of_arrays(rows)
        left_out += members
    texts["the scenario's name"] = str(tables.get("name", ""))
    facts, quotes = told_by(texts, known().facts)
    search = Search(tables, base, rows, seed, workers, progress, facts)
    tell = {quote.partition(": ")[0] for quote in quotes}
    left_out += [reason for reason in refused if reason.partition(": ")[0] not in tell]
    return replace(search.diagnosis(tuple(left_out)), notes=(*notes_of(found), *quotes))


class Search:
    """Simulates the rows under every explanation and weighs them."""

    def __init__(
        self, tables: Mapping[str, Any], base: str, rows: Sequence[MeasuredRow],
        seed: int | None, workers: int | None, progress: Progress | None,
        facts: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._tables, self._facts = tables, facts or {}
        self._runs = ShortRuns(tables, base, seed=seed, workers=workers, progress=progress)
        self._rows: list[MeasuredRow] = []
        self._predicted: list[Result] = []
        for i, measured in enumerate(rows):
            row = replace(measured, workload={**placed(tables), **measured.workload})
            loaded = on_drives(row, self._runs.scenario({}, row.workload))
            scenario = self._runs.scenario({}, loaded.workload)
            told = progress and _told(progress, f"predicting row {i + 1} of {len(rows)}")
            result = simulate(scenario, seed=seed, reliefs=False, over_time=False, progress=told)
            known = result.certainty.figures.keys() & _figures(result).keys()
            p99 = loaded.p99_s if "p99" in known else None
            self._rows.append(replace(loaded, p99_s=p99))
            self._predicted.append(result)
        every = self._runs.scenario({}, *(row.workload for row in self._rows))
        self._server = Server(tables, every, self._rows)
        self._healthy = log_ratios(self._rows, map(_figures, self._predicted))
        columns = [(result, i, c) for i, result in enumerate(self._predicted)
                   for c in self._rows[i].figures]  # fmt: skip
        self._scale = ErrorScale(
            np.array([_deviation(r.certainty.figures[c].around(1.0), ratio)
                      for (r, _, c), ratio in zip(columns, self._healthy, strict=True)]),
            np.array([LEAST_NOISE if c == "iops" else TAIL_NOISE for _, _, c in columns]),
            tuple(c for _, _, c in columns),
            tuple(i for _, i, _ in columns),
        )  # fmt: skip
        places = itertools.accumulate((len(row.figures) for row in self._rows), initial=0)
        self._places = [slice(a, b) for a, b in itertools.pairwise(places)]
        """Places of each row's figures among those of all rows."""
        self._is_rate = np.equal(self._scale.figure, "iops")
        self.compared = tuple(
            ComparedRow(r.label, r.iops, p.total.iops, r.p99_s, _figures(p).get("p99"))
            for r, p in zip(self._rows, self._predicted, strict=True)
        )
        self.contexts = self._server.contexts(all(row.is_inside for row in self.compared))
        plain = self._runs.figures([({}, r.workload) for r in self._rows], "the server as it is")
        self._plain = log_ratios(self._rows, [found or {} for found in plain])

    def tried(self) -> tuple[list[Trial], list[Trial]]:
        """All explanations, and pairs where none suffices: whole ones, and hopeless ones."""
        nothing = np.full(len(self._healthy), np.nan)
        single = [
            Trial((mistake,), (variant,), nothing)
            for mistake in known().mistakes for variant in mistake.variants(self._server)
        ]  # fmt: skip
        forms, hopeless = self._formed(single, "explanations")
        whole = [*forms, *self._ranged()]
        if min(misfit(r, self._scale) for r in (self._healthy, *(t.ratios for t in whole))) > POOR:
            best = list(_likeliest(whole).values())[:PAIRED]
            pairs = [
                Trial((*a.mistakes, *b.mistakes), (*a.variants, *b.variants), nothing)
                for a, b in itertools.combinations(best, 2)
                if not a.change.keys() & b.change.keys()
            ]
            further = self._formed(pairs, "pairs of explanations")
            whole, hopeless = whole + further[0], hopeless + further[1]
        return whole, hopeless

    def _formed(self, trials: Trials, what: str) -> tuple[list[Trial], list[Trial]]:
        """*trials* under all rows, with what lies between them; those that were given up before.

        The rows that differ most and least go first. A family that explains them worse than another
        by `HOPELESS` is simulated no further: the other rows would have to make it up.
        """
        order = sorted(range(len(self._rows)), key=lambda i: abs(self._healthy[self._places[i]][0]))
        left, hopeless, between = list(trials), list[Trial](), list[Trial]()
        for n in range(len(order)):
            row = order.pop(0 if n % 2 else -1)
            load, at = self._rows[row].workload, self._places[row]
            wanted = [(one.change, load) for one in left]
            answers = self._runs.figures(wanted, f"{what}, row {n + 1} of {len(self._rows)}")
            seen = []
            for one, answer in zip(left, answers, strict=True):
                if answer is not None and answer["iops"]:
                    ratios = one.ratios.copy()
                    found = log_ratios([self._rows[row]], [answer])
                    ratios[at] = self._healthy[at] + found - self._plain[at]
                    seen.append(replace(one, ratios=ratios))
            between, best = self._filled(seen), dict[tuple[str, ...], float]()
            for one in between:
                best[one.kind] = max(best.get(one.kind, -math.inf), one.score)
            least = max(best.values(), default=0.0) - HOPELESS if order else -math.inf
            left = [one for one in seen if best[one.kind] > least]
            hopeless += [one for one in seen if best[one.kind] <= least]
            between = [one for one in between if best[one.kind] > least]
        return between, hopeless

    def _ranged(self) -> list[Trial]:
        """The likeliest point of each range that these rows show, with the mean of all of it."""
        grid, server = Grid.of(self._rows, self._late()), self._server
        profile, drives = server.resolved.drives[0].profile, len(server.resolved.drives)
        found = []
        for mistake in known().mistakes:
            for one in mistake.ranges_on(server):
                if one.of_core and not server.core_rate:
                    continue
                points = grid.points(one, server.core_rate)
                known_to = np.isfinite(points.ratios).all(1)
                shown = np.abs(points.ratios - self._healthy).max(1) >= ALIKE
                kept = np.flatnonzero(known_to & shown)
                if not len(kept):
                    continue
                counts = points.counts[kept] if mistake.is_exact else np.ones((1, 1))
                scores = self._scores(points.ratios[kept], counts)
                at = kept[scores.argmax()]
                change = change_of(one, points.waits_us[at], points.limits[at], drives,
                                   profile.write.base.value)  # fmt: skip
                found.append(Trial(
                    (mistake,), (Variant(one.name, change, one.name, one.usual),),
                    points.ratios[at], float(scores.max()), log_mean(scores),
                ))  # fmt: skip
        return found

    def _late(self) -> Floats:
        """float64[1 + delays, n]: what the server as it is leaves, and with each of `DELAYS_US`."""
        wanted = [({"drives.*.delay": f"{us:g} us"}, row.workload)
                  for us in DELAYS_US for row in self._rows]  # fmt: skip
        answers = self._runs.figures(wanted, "delays")
        late, step = [self._healthy], len(self._rows)
        for i in range(0, len(answers), step):
            found = log_ratios(self._rows, [one or {} for one in answers[i : i + step]])
            late.append(self._healthy + found - self._plain)
        return np.array(late)

    def _scores(self, ratios: Floats, counts: Floats) -> Floats:
        """Log likelihoods of points (float64[m, n] both), those with the same counts together."""
        out, each = np.empty(len(ratios)), np.broadcast_to(counts, ratios.shape)
        for pattern in np.unique(each, axis=0):
            at = (each == pattern).all(1)
            out[at] = log_likelihoods(ratios[at], self._scale.where_it_counts(pattern))
        return out

    def diagnosis(self, left_out: tuple[str, ...]) -> Diagnosis:
        """Weigh all explanations."""
        whole, hopeless = self.tried()
        chances = self._weighed(whole, hopeless)
        likeliest = _likeliest([one for one in whole if not self._is_idle(one.ratios)])
        listed = [one for one in likeliest.values() if chances[one.code] >= SHOWN]
        explanations = [self._explanation(one, chances[one.code], listed) for one in listed]
        for mistake in known().mistakes:
            code = mistake.code  # what files name is listed, though no form of it fits
            is_named = self._facts.get(code, 0.0) >= SEEN and code not in likeliest
            if is_named and chances[code] >= SHOWN:
                said = mistake.on(self._server)
                explanations.append(Explanation(
                    code, f"{code}, as the files say", chances[code], {}, None,
                    said["check"], said["mend"], said["source"],
                ))  # fmt: skip
        explanations += [Explanation("unknown", "none of these", chances["unknown"], {}, None)]
        explanations.sort(key=lambda e: -e.probability)
        tried = dict.fromkeys(m.code for one in (*whole, *hopeless) for m in one.mistakes)
        found = Diagnosis(
            scenario=str(self._tables.get("name") or "scenario"),
            rows=self.compared,
            healthy=chances["healthy"],
            explanations=tuple(explanations),
            next=self._next(chances["healthy"], explanations),
            left_out=left_out,
            tried=tuple(tried),
            nearest=next(map(self._left, likeliest.values()), None),
        )
        if found.next is None and found.is_unexplained:
            found = replace(found, next=self._further())
        return found

    def _left(self, one: Trial) -> tuple[str, float]:
        """Name of *one*, and what it leaves of the row that it misses most."""
        rates = one.ratios[self._is_rate]
        return one.name, math.expm1(rates[np.abs(rates).argmax()])

    def _further(self) -> NextMeasurement | None:
        """A row that says where to look: of one drive alone, else of another load."""
        loads = sorted(self._loads(), key=lambda one: one[1] is None)
        found = self._runs.figures([({}, loads[0][0])], "what to measure next") if loads else [None]
        if found[0] is None:
            return None
        return NextMeasurement(*loads[0], tells=("nothing is wrong",), iops=(found[0]["iops"],))

    def _filled(self, seen: Trials) -> list[Trial]:
        """*seen*, and what lies between neighbours of a family, by the name of the nearer one.

        Where a link or another exact number rules, the prediction is as sure as that.
        """
        out = list(seen)
        for one, after in itertools.pairwise(seen):
            if one.family and one.family == after.family:
                out += [
                    replace(one if share < 0.5 else after,
                            ratios=one.ratios + (after.ratios - one.ratios) * share)
                    for share in BETWEEN
                ]  # fmt: skip
        return [self._scored(one) for one in out]

    def _scored(self, one: Trial) -> Trial:
        counts = np.ones(len(one.ratios))
        if all(m.is_exact for m in one.mistakes):
            counts[np.abs(one.ratios - self._healthy) >= ALIKE] = 0.0
        score = log_likelihood(one.ratios, self._scale.where_it_counts(counts))
        return replace(one, score=score)

    def _is_idle(self, ratios: Floats) -> bool:
        """True if these rows would be the same without what leaves *ratios*."""
        return bool(np.abs(ratios - self._healthy).max() < ALIKE)

    def told(self) -> dict[str, float]:
        """Code of a mistake -> how many times as common it is, as rows and busy jobs tell."""
        spent = [
            (row.spent_s * 1e9 * min(s.ghz for s in result.cpu.sockets), result.cpu.cycles_per_io)
            for row, result in zip(self._rows, self._predicted, strict=True) if row.spent_s
        ]  # fmt: skip
        dear = [cycles for cycles, predicted in spent if cycles > DEAR * predicted]
        every = known().weights.keys()
        possible = SPINS if max(dear, default=0.0) > SPUN else SPENDS if dear else every
        told, waits = self._server.told, every - possible - {"unknown"}
        return {
            code: told.get(code, 1.0) * self._facts.get(code, 1.0) * (WAITS if code in waits else 1)
            for code in {*told, *self._facts, *waits}
        }

    def likelihoods(self, found: Trials, hopeless: Trials) -> dict[str, tuple[float, float]]:
        """Code of each mistake that rows show, "healthy" and "unknown" -> log likelihoods.

        Of its best form, and the mean of all.
        """
        as_is = log_likelihood_as_is(self._healthy, self._scale)
        unknown = log_likelihood(self._healthy, self._scale, unknown=True)
        kinds: dict[tuple[str, ...], list[float]] = {}
        usual: dict[tuple[str, ...], float] = {}
        best = {"healthy": as_is, "unknown": unknown}
        for one in found:
            if not self._is_idle(one.ratios):  # or it is not why somebody asks
                kinds.setdefault(one.kind, []).append(one.score if one.mean is None else one.mean)
                usual[one.kind] = math.prod(v.usual for v in one.variants)
                best[one.code] = max(best.get(one.code, -math.inf), one.score)
        for code, times in self._facts.items():
            if times >= SEEN:  # it is there, whatever its size
                kinds[code, SIZE], usual[code, SIZE] = [unknown], 1.0
                best[code] = max(best.get(code, -math.inf), unknown)
        for one in hopeless:  # it might have been one of these as well
            kinds[one.kind], usual[one.kind] = [-math.inf], math.prod(v.usual for v in one.variants)
        means = {"healthy": as_is, "unknown": unknown}
        for code in best.keys() - means.keys():
            own = [kind for kind in kinds if kind[0] == code]
            shares = np.array([usual[kind] for kind in own])
            means[code] = log_mean([log_mean(kinds[kind]) for kind in own], shares)
        return {code: (logs, means[code]) for code, logs in best.items()}

    def _weighed(self, found: Trials, hopeless: Trials) -> dict[str, float]:
        """Code of each mistake, "healthy" and "unknown" -> probability."""
        logs, told = self.likelihoods(found, hopeless), self.told()
        weights = {
            code: told.get(code, 1.0) * usual * math.prod(itertools.compress(times, self.contexts))
            for code, (usual, *times) in known().weights.items()
        }
        whole = sum(weights[c] for c in {m.code for t in (*found, *hopeless) for m in t.mistakes})
        share = known().best
        scores = {code: share * best + (1 - share) * mean for code, (best, mean) in logs.items()}
        priors = dict(weights)
        for code in (code for code in logs if "+" in code):
            parts = code.split("+")  # of each mistake the form that fits best alone was taken
            spread = sum(scores[part] - logs[part][0] for part in parts if part in logs)
            priors[code] = math.prod(weights[p] for p in parts) / whole * math.exp(spread)
        return probabilities(scores, priors)

    def _explanation(self, one: Trial, chance: float, listed: Trials) -> Explanation:
        worst = int(np.abs(self._healthy[self._is_rate]).argmax())
        iops = self._rows[worst].iops / math.exp(one.ratios[self._places[worst]][0])
        around = self._predicted[worst].certainty.figures["iops"].around(iops)
        said = [m.on(self._server) for m in one.mistakes]
        check, mend, source = ("; ".join(m[k] for m in said) for k in ("check", "mend", "source"))
        alike = (other for other in listed if other is not one and
                 np.abs(other.ratios - one.ratios)[self._is_rate].max() < ALIKE)  # fmt: skip
        return Explanation(
            one.code, one.name, chance, one.change, Interval(iops, *around), check, mend, source,
            tuple(other.code for other in alike),
        )  # fmt: skip

    def _next(self, healthy: float, explanations: Sequence[Explanation]) -> NextMeasurement | None:
        """The load that tells most of the likeliest explanations apart; None if none tells much."""
        nothing = Explanation("healthy", "nothing is wrong", healthy, {}, None)
        known = [*(e for e in explanations if e.iops is not None), nothing]
        known = sorted((e for e in known if e.probability >= SHOWN), key=lambda e: -e.probability)
        loads, likely = self._loads(), known[:PAIRED]
        wanted = [(e.changes, load) for load, _ in loads for e in likely]
        answers = self._runs.figures(wanted, "what to measure next")
        rates = np.reshape([math.nan if a is None else a["iops"] for a in answers],
                           (len(loads), len(likely)))  # fmt: skip
        logs, chances = np.log(rates), np.array([e.probability for e in likely])
        apart = np.abs(logs[:, :, None] - logs[:, None, :])
        told = np.nan_to_num(1 - np.exp(-((apart / DECIDES) ** 2) / 8)) * np.outer(chances, chances)
        told[apart < DECIDES] = 0.0
        if not told.any():
            return None
        best = int(told.sum((1, 2)).argmax())
        i, j = sorted(np.unravel_index(told[best].argmax(), told[best].shape))
        return NextMeasurement(*loads[best], tells=(likely[i].name, likely[j].name),
                               iops=(float(rates[best, i]), float(rates[best, j])))  # fmt: skip

    def _loads(self) -> list[tuple[dict[str, Any], int | None]]:
        """Loads that are quick to measure: a drive alone, and the whole shallow and deep."""
        server = self._server.resolved
        threads = max(1, min(16, server.sockets[0].logical_cpus))
        alone = server.drives[0].name if len(server.drives) > 1 else None
        out: list[tuple[dict[str, Any], int | None]] = []
        for size, jobs, depth in (("4 KiB", 1, 1), ("4 KiB", 4, 64), ("4 KiB", threads, 32),
                                  ("128 KiB", threads, 8)):  # fmt: skip
            for read in (1.0, 0.0) if self._server.has_writes else (1.0,):
                load = {"access": "random", "block_size": size, "read": read,
                        "threads_total": jobs, "outstanding": depth}  # fmt: skip
                out.append((load, None))
                if alone is not None:  # rows of one drive are of the first
                    out.append(({**load, "targets": [alone]}, 1))
        known = [_asked(row.workload) for row in self._rows]
        return [(load, drives) for load, drives in out if _asked(load) not in known]


def _told(progress: Progress, which: str) -> Progress:
    """*progress* of a part of the work, *which* is said before each of its steps."""
    return lambda what, share: progress(f"{which}: {what}", share)


def _asked(load: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a load asks for, to compare it with another."""
    keys = ("access", "block_size", "read", "threads_total", "outstanding", "targets")
    return tuple(load.get(key) for key in keys)


def _likeliest(found: Trials) -> dict[str, Trial]:
    """Code -> its form that fits best, the best first."""
    out: dict[str, Trial] = {}
    for one in sorted(found, key=lambda f: -f.score):
        out.setdefault(one.code, one)
    return out


def _deviation(around: tuple[float, float], ratio: float) -> float:
    """Standard deviation of the logarithm, of a 95 % interval around 1 on the side of *ratio*."""
    return abs(math.log(around[int(ratio > 0)])) / Z95


def _figures(result: Result) -> dict[str, float]:
    """What `log_ratios` compares, of a prediction."""
    p99 = None if result.read is None else result.read.clat.percentiles[99.0]
    return {"iops": result.total.iops.value, **({} if p99 is None else {"p99": p99})}
