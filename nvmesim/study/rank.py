"""The best of several candidates, with a stated probability that the choice is right.

Fully sequential selection with common random numbers, procedure KN: Kim and Nelson, "A fully
sequential procedure for indifference-zone selection in simulation", ACM TOMACS 11(3), 2001. Each
round simulates every candidate that is still in once more, with random numbers that all share;
those that fall behind by more than chance explains drop out, so that simulation is spent where it
decides. If the best is better than every other by the stated difference, it is found with at least
the stated probability; candidates closer than that count as equally good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.errors import InputError, nearest
from nvmesim.measure.figures import Interval
from nvmesim.predict.uncertainty.certainty import ModelUncertainty, model_uncertainty
from nvmesim.predict.uncertainty.difference import gain_of
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from nvmesim.study.sweep.api import Progress, simulate_all, tables_of
from nvmesim.study.sweep.frame import RESULT_COLUMNS
from nvmesim.study.sweep.point import Settings, SweepJob

FIRST_ROUNDS: Final = 10
MOST_ROUNDS: Final = 200
ROUND_REQUESTS: Final = 20_000
LESS_IS_BETTER: Final = ("lat_", "cpu_", "cycles_per_io", "ghz_per_miops", "busy_", "utilization")


@dataclass(frozen=True)
class Ranking:
    """Candidates, best first, and how sure that order's head is."""

    table: pl.DataFrame
    """candidate, mean, low, high (95 %), rounds, requests, dropped_after (null: still in)."""
    metric: str
    probability: float
    """Stated probability that the first is the best; 0 if the rounds ran out before a choice."""
    difference: float
    """Relative difference below which two candidates count as equally good."""
    p_better: float | None = None
    """Least probability that the first is better than another, with all that is not known of
    profiles and model; None for metrics other than IOPS."""

    @property
    def best(self) -> str:
        """Name of the first."""
        return str(self.table["candidate"][0])

    def as_good(self) -> list[str]:
        """Return the others that are, as far as was seen, within the difference of the best."""
        first, *others = self.table.rows(named=True)
        near = self.difference * abs(first["mean"])
        return [row["candidate"] for row in others if abs(row["mean"] - first["mean"]) < near]

    def __str__(self) -> str:
        """Return the choice in one sentence."""
        left = self.table.filter(pl.col("dropped_after").is_null())["candidate"].to_list()
        if len(left) > 1:
            return f"not decided between {', '.join(left)} (by {self.metric})"
        equal = self.as_good()
        close = f"; within {self.difference:.1%} of it: {', '.join(equal)}" if equal else ""
        sure = ""
        if self.p_better is not None:
            sure = f"; better on a real server with probability {self.p_better:.0%}"
        return (
            f"{self.best} is best by {self.metric} in the simulation, with probability "
            f"{self.probability:.0%} if it is better than the others by {self.difference:.1%} or "
            f"more{close}{sure}"
        )


def rank(
    candidates: Mapping[str, Scenario | Mapping[str, Any]],
    *,
    metric: str = "iops",
    probability: float = 0.95,
    difference: float = 0.01,
    requests: int = ROUND_REQUESTS,
    rounds: int = MOST_ROUNDS,
    seed: int = 1,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Rank *candidates* (name -> scenario) by a column of `sweep`'s frame.

    More is better for throughput, less for latencies, CPU and utilization. The best is named with
    *probability* if it beats the others by *difference* (relative) or more. Each of at most
    *rounds* simulates *requests* of every candidate left.
    """
    _check(candidates, metric, probability, difference, rounds)
    race = _Race(candidates, metric, requests, seed, workers)
    first = min(FIRST_ROUNDS, rounds)
    for number in range(rounds):
        race.simulate(number)
        if progress is not None:
            progress(
                f"replication {number + 1}: {len(race.alive)} candidates left", number / rounds
            )
        if number + 1 >= first:
            race.drop(probability, difference)
        if len(race.alive) == 1:
            break
    sure = probability if len(race.alive) == 1 else 0.0
    table, p_better = race.judged()
    return Ranking(table, metric, sure, difference, p_better)


def _check(
    candidates: Mapping[str, Any], metric: str, probability: float, difference: float, rounds: int
) -> None:
    if len(candidates) < 2:
        raise InputError(f"{len(candidates)} candidates cannot be ranked; at least 2 are needed")
    if metric not in RESULT_COLUMNS:
        raise InputError(f"metric {metric!r} is unknown; {nearest(metric, RESULT_COLUMNS)}")
    if not 0.5 <= probability < 1:
        raise InputError(f"probability {probability!r} is out of range; 0.5 to below 1")
    if not 0 < difference <= 1:
        raise InputError(f"difference {difference!r} is out of range; above 0, at most 1")
    if rounds < 3:
        raise InputError(f"{rounds} replications are too few to see a spread; at least 3")


class _Race:
    """Candidates and what each round gave."""

    def __init__(
        self, candidates: Mapping[str, Any], metric: str, requests: int, seed: int,
        workers: int | None,
    ) -> None:  # fmt: skip
        self.names = list(candidates)
        self._tables = [tables_of(s) for s in candidates.values()]
        self._metric, self._requests = metric, requests
        self._seed, self._workers = seed, workers
        self._sign = -1.0 if metric.startswith(LESS_IS_BETTER) or "_lat_" in metric else 1.0
        self._delta = 0.0
        self.alive = list(range(len(self.names)))
        self.values: list[list[float]] = [[] for _ in self.names]
        self.dropped: list[int | None] = [None for _ in self.names]

    def simulate(self, number: int) -> None:
        """One round more of those that are left; all with the same seed."""
        settings = Settings(seed=self._seed + number, requests=self._requests, certainty=False)
        jobs = (SweepJob(i, *self._tables[i], settings) for i in self.alive)
        for answer in simulate_all(jobs, len(self.alive), workers=self._workers or 1):
            error, value = answer.row.get("error"), answer.row.get(self._metric)
            if error is not None:
                raise InputError(f"{self.names[answer.number]}: {error}")
            if value is None:
                raise InputError(
                    f"{self.names[answer.number]}: {self._metric} is not known from "
                    f"{self._requests:,} requests a replication; ask for more"
                )
            self.values[answer.number].append(self._sign * value)

    def drop(self, probability: float, difference: float) -> None:
        """Drop who is behind another by more than chance explains (Kim and Nelson, figure 1)."""
        runs = np.array([self.values[i] for i in self.alive])
        n = runs.shape[1]
        if not self._delta:
            self._delta = difference * max(abs(float(runs.mean(axis=1).max())), 1e-300)
        region = _Region(self._delta, probability, len(self.names), min(n, FIRST_ROUNDS))
        out = {a for a, b in _pairs(len(self.alive)) if region.is_left_by(runs[a] - runs[b])}
        for a in sorted(out, reverse=True):
            self.dropped[self.alive[a]] = n
            del self.alive[a]

    def table(self) -> pl.DataFrame:
        """Those still in first, then by how long they stayed, then by mean."""
        order = sorted(
            range(len(self.names)),
            key=lambda i: (-(self.dropped[i] or 1 << 60), -float(np.mean(self.values[i]))),
        )
        return pl.DataFrame([self._row(i) for i in order], infer_schema_length=None)

    def judged(self) -> tuple[pl.DataFrame, float | None]:
        """The table with whole intervals, and the least probability that its first is better.

        The numbers of profiles are left out here: they move all candidates alike.
        """
        table = self.table()
        if self._metric != "iops":
            return table, None
        known = {n: model_uncertainty(resolve(scenario_from_dict(*t)))
                 for n, t in zip(self.names, self._tables, strict=True)}  # fmt: skip
        rows = [_whole(row, known[row["candidate"]]) for row in table.rows(named=True)]
        chances = [self._p_better(rows[0], row, known) for row in rows[1:]]
        return pl.DataFrame(rows, infer_schema_length=None), min(chances)

    @staticmethod
    def _p_better(
        a: Mapping[str, Any], b: Mapping[str, Any], known: Mapping[str, ModelUncertainty]
    ) -> float:
        if not b["mean"] or not a["mean"]:
            return 0.5
        spans = [(k.half("iops"), k.half("iops")) for k in (known[r["candidate"]] for r in (b, a))]
        alike = len({known[r["candidate"]].model_class for r in (a, b)}) == 1
        gain = a["mean"] / b["mean"] - 1
        return gain_of(Interval(gain, gain, gain), (spans[0], spans[1]), same_class=alike).p_better

    def _row(self, i: int) -> dict[str, Any]:
        from scipy.special import stdtrit

        values = self._sign * np.array(self.values[i])
        n, mean = len(values), float(values.mean())
        half = float(stdtrit(n - 1, 0.975)) * float(values.std(ddof=1)) / n**0.5 if n > 1 else 0.0
        return {
            "candidate": self.names[i], "mean": mean, "low": mean - half, "high": mean + half,
            "rounds": n, "requests": n * self._requests, "dropped_after": self.dropped[i],
        }  # fmt: skip


def _whole(row: Mapping[str, Any], known: ModelUncertainty) -> dict[str, Any]:
    """A candidate's row, its interval as wide as simulation, misfit and model make it."""
    mean = row["mean"]
    if not mean:
        return dict(row)
    half = math.hypot(known.half("iops"), math.log(max(row["high"], 1e-300) / mean))
    return {**row, "low": mean * math.exp(-half), "high": mean * math.exp(half)}


def _pairs(n: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for a in range(n) for b in range(n) if a != b)


@dataclass(frozen=True)
class _Region:
    """The triangle that the sum of differences must leave for a candidate to be behind.

    The variance is that of the *first* rounds alone, as the procedure's guarantee needs.
    """

    delta: float
    probability: float
    candidates: int
    first: int

    def is_left_by(self, differences: Floats) -> bool:
        """True if the *differences* (float64[rounds]) say that it is behind."""
        free = self.first - 1
        share = 2 * (1 - self.probability) / (self.candidates - 1)
        eta = 0.5 * (share ** (-2 / free) - 1)
        variance = float(differences[: self.first].var(ddof=1))
        reach = eta * free * variance / self.delta - self.delta * len(differences) / 2
        return bool(float(differences.sum()) < -max(0.0, reach))
