"""The best of several candidates, with a stated probability that the choice is right.

Procedure KN: Kim and Nelson, "A fully sequential procedure for indifference-zone selection in
simulation", ACM TOMACS 11(3), 2001: all share random numbers, those that fall behind drop out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.errors import InputError, nearest
from nvmesim.measure.figures import Interval
from nvmesim.predict.uncertainty.derived import gain_of
from nvmesim.predict.uncertainty.standing import model_class
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.workloads import loads_differ
from nvmesim.study.sweep.api import Progress, simulated_rows, tables_of
from nvmesim.study.sweep.point import RESULT_COLUMNS, Settings
from nvmesim.units import chance
from nvmesim.warning import Warning

FIRST_ROUNDS: Final = 10
MOST_ROUNDS: Final = 200
ROUND_REQUESTS: Final = 20_000
ENDS: Final = {"iops": ("iops_low", "iops_high"),
               "lat_p99_us": ("lat_p99_low_us", "lat_p99_high_us")}  # fmt: skip
"""Metric -> columns of its interval; of others none is known."""
LESS_IS_BETTER: Final = ("lat_", "cpu_", "cycles_per_io", "ghz_per_miops", "busy_", "utilization")


@dataclass(frozen=True)
class Ranking:
    """Candidates, best first, and how sure that order's head is."""

    table: pl.DataFrame
    """candidate, mean, low, high (as `run` says them; null: no interval is known), rounds,
    requests, dropped_after (null: still in)."""
    metric: str
    probability: float
    """Stated probability that the first is the best; 0 if the rounds ran out before a choice."""
    difference: float
    """Relative difference below which two candidates count as equally good."""
    p_better: float | None = None
    """Least probability, of IOPS, that the first is better with all that is not known."""
    warnings: tuple[Warning, ...] = ()

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
        left = self.table.filter(pl.col("dropped_after").is_null())["candidate"].to_list()
        if len(left) > 1:
            return f"not decided between {', '.join(left)} (by {self.metric})"
        equal = self.as_good()
        close = f"; within {self.difference:.1%} of it: {', '.join(equal)}" if equal else ""
        sure = "" if self.p_better is None else (
            f", on a real server with a probability of {chance(self.p_better)}")  # fmt: skip
        return (
            f"{self.best} is best by {self.metric}{sure}; in the simulation with "
            f"{self.probability:.0%}, if it is ahead by {self.difference:.1%} or more{close}"
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
    _check(len(candidates), metric, probability, difference, rounds)
    names = list(candidates)
    tables = [tables_of(scenario) for scenario in candidates.values()]
    sign = -1.0 if metric.startswith(LESS_IS_BETTER) or "_lat_" in metric else 1.0
    values: list[list[float]] = [[] for _ in names]
    dropped: dict[int, int] = {}
    alive = list(range(len(names)))
    delta = 0.0
    for number in range(rounds):
        settings = Settings(seed=seed + number, requests=requests, certainty=False)
        found = simulated_rows([tables[i] for i in alive], settings, workers or 1)
        for i, row in zip(alive, found, strict=True):
            values[i].append(sign * _known(row, metric, names[i], requests))
        if progress is not None:
            progress(f"replication {number + 1}: {len(alive)} candidates left", number / rounds)
        if number + 1 >= min(FIRST_ROUNDS, rounds):
            runs = np.array([values[i] for i in alive])
            delta = delta or difference * max(abs(float(runs.mean(axis=1).max())), 1e-300)
            out = {
                alive[a] for a, b in permutations(range(len(alive)), 2)
                if is_behind(runs[a] - runs[b], delta, probability, len(names))
            }  # fmt: skip
            dropped |= dict.fromkeys(out, number + 1)
            alive = [i for i in alive if i not in out]
        if len(alive) == 1:
            break
    # those still in first, then by how long they stayed, then by mean
    means = [float(np.mean(each)) for each in values]
    order = sorted(range(len(names)), key=lambda i: (-dropped.get(i, rounds + 1), -means[i]))
    ordered = [tables[i] for i in order]
    whole = simulated_rows(ordered, Settings(seed=seed), workers or 1)
    low, high = ENDS.get(metric, ("", ""))
    rows = [
        {"candidate": names[i], "mean": row.get(metric) or sign * means[i], "low": row.get(low),
         "high": row.get(high), "rounds": len(values[i]), "requests": len(values[i]) * requests,
         "dropped_after": dropped.get(i)}
        for i, row in zip(order, whole, strict=True)
    ]  # fmt: skip
    resolved = [resolve(scenario_from_dict(*one)) for one in ordered]
    p_better = _p_better(rows, whole, resolved) if metric == "iops" else None
    table, said = pl.DataFrame(rows, infer_schema_length=None), tuple(loads_differ(resolved))
    sure = probability if len(alive) == 1 else 0.0
    return Ranking(table, metric, sure, difference, p_better, said)


def _check(
    candidates: int, metric: str, probability: float, difference: float, rounds: int
) -> None:
    if candidates < 2:
        raise InputError(f"{candidates} candidates cannot be ranked; at least 2 are needed")
    if metric not in RESULT_COLUMNS:
        raise InputError(f"metric {metric!r} is unknown; {nearest(metric, RESULT_COLUMNS)}")
    if not 0.5 <= probability < 1:
        raise InputError(f"probability {probability!r} is out of range; 0.5 to below 1")
    if not 0 < difference <= 1:
        raise InputError(f"difference {difference!r} is out of range; above 0, at most 1")
    if rounds < 3:
        raise InputError(f"{rounds} replications are too few to see a spread; at least 3")


def is_behind(differences: Floats, delta: float, probability: float, candidates: int) -> bool:
    """True if *differences* (float64[rounds]) say that a candidate is behind (their figure 1)."""
    first = min(len(differences), FIRST_ROUNDS)
    share = 2 * (1 - probability) / (candidates - 1)
    eta = 0.5 * (share ** (-2 / (first - 1)) - 1)
    variance = float(differences[:first].var(ddof=1))
    reach = eta * (first - 1) * variance / delta - delta * len(differences) / 2
    return bool(float(differences.sum()) < -max(0.0, reach))


def _p_better(
    rows: Sequence[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]],
    designs: Sequence[ResolvedScenario],
) -> float:  # fmt: skip
    """Least probability that the first does more, with all that is not known."""
    classes = [model_class(one, row["verdict"]) for one, row in zip(designs, whole, strict=True)]
    first, least = rows[0], 1.0
    for row, name in zip(rows[1:], classes[1:], strict=True):
        if not all(r["mean"] and r["low"] and r["high"] for r in (first, row)):
            least = min(least, 0.5)
            continue
        spans = [(math.log(r["mean"] / r["low"]), math.log(r["high"] / r["mean"]))
                 for r in (row, first)]  # fmt: skip
        gain = first["mean"] / row["mean"] - 1
        change = Interval(gain, gain, gain)
        found = gain_of(change, (spans[0], spans[1]), same_class=name == classes[0])
        least = min(least, found.p_better)
    return least


def _known(row: Mapping[str, Any], metric: str, name: str, requests: int) -> float:
    if row.get("error") is not None:
        raise InputError(f"{name}: {row['error']}")
    value = row.get(metric)
    if value is None:
        raise InputError(
            f"{name}: {metric} is not known from {requests:,} requests a replication; ask for more"
        )
    return float(value)
