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
from nvmesim.errors import InputError
from nvmesim.measure.figures import Interval
from nvmesim.predict.uncertainty.derived import gain_of
from nvmesim.predict.uncertainty.standing import model_class
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.workloads import loads_differ
from nvmesim.study.sweep.api import Progress, simulated_rows, tables_of
from nvmesim.study.sweep.point import Settings
from nvmesim.units import chance
from nvmesim.warning import Warning

FIRST_ROUNDS: Final = 10
MOST_ROUNDS: Final = 200
ROUND_REQUESTS: Final = 20_000
PROBABILITY: Final = 0.95
"""That the one that is named is the best."""
DIFFERENCE: Final = 0.01
"""Relative difference below which two candidates count as equally good."""


@dataclass(frozen=True)
class Ranking:
    """Candidates, best first, and how sure that order's head is."""

    table: pl.DataFrame
    """candidate, mean, low, high (as `run` says them; null: no interval is known), rounds,
    requests, dropped_after (null: still in)."""
    probability: float
    """Stated probability that the first is the best; 0 if the rounds ran out before a choice."""
    p_better: float
    """Least probability that the first is better, with all that is not known."""
    warnings: tuple[Warning, ...] = ()

    @property
    def best(self) -> str:
        """Name of the first."""
        return str(self.table["candidate"][0])

    def as_good(self) -> list[str]:
        """Return the others that are, as far as was seen, within the difference of the best."""
        first, *others = self.table.rows(named=True)
        near = DIFFERENCE * first["mean"]
        return [row["candidate"] for row in others if abs(row["mean"] - first["mean"]) < near]

    def __str__(self) -> str:
        left = self.table.filter(pl.col("dropped_after").is_null())["candidate"].to_list()
        if len(left) > 1:
            return f"not decided between {', '.join(left)} (by iops)"
        equal = self.as_good()
        close = f"; within {DIFFERENCE:.1%} of it: {', '.join(equal)}" if equal else ""
        return (
            f"{self.best} is best by iops, on a real server with a probability of "
            f"{chance(self.p_better)}; in the simulation with {self.probability:.0%}, if it is "
            f"ahead by {DIFFERENCE:.1%} or more{close}"
        )


def rank(
    candidates: Mapping[str, Scenario | Mapping[str, Any]],
    *,
    requests: int = ROUND_REQUESTS,
    seed: int = 1,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Rank *candidates* (name -> scenario) by their IOPS.

    The best is named with a probability of 95 % if it is ahead of the others by 1 % or more. Each
    of at most 200 rounds simulates *requests* of every candidate left.
    """
    if len(candidates) < 2:
        raise InputError(f"{len(candidates)} candidates cannot be ranked; at least 2 are needed")
    names = list(candidates)
    tables = [tables_of(scenario) for scenario in candidates.values()]
    values: list[list[float]] = [[] for _ in names]
    dropped: dict[int, int] = {}
    alive = list(range(len(names)))
    delta = 0.0
    for number in range(MOST_ROUNDS):
        settings = Settings(seed=seed + number, requests=requests, certainty=False)
        found = simulated_rows([tables[i] for i in alive], settings, workers or 1)
        for i, row in zip(alive, found, strict=True):
            values[i].append(_known(row, names[i]))
        if progress is not None:
            left = f"{len(alive)} candidates left"
            progress(f"replication {number + 1}: {left}", number / MOST_ROUNDS)
        if number + 1 >= FIRST_ROUNDS:
            runs = np.array([values[i] for i in alive])
            delta = delta or DIFFERENCE * float(runs.mean(axis=1).max())
            out = {
                alive[a] for a, b in permutations(range(len(alive)), 2)
                if is_behind(runs[a] - runs[b], delta, PROBABILITY, len(names))
            }  # fmt: skip
            dropped |= dict.fromkeys(out, number + 1)
            alive = [i for i in alive if i not in out]
        if len(alive) == 1:
            break
    # those still in first, then by how long they stayed, then by mean
    means = [float(np.mean(each)) for each in values]
    order = sorted(range(len(names)), key=lambda i: (-dropped.get(i, MOST_ROUNDS + 1), -means[i]))
    ordered = [tables[i] for i in order]
    whole = simulated_rows(ordered, Settings(seed=seed), workers or 1)
    rows = [
        {"candidate": names[i], "mean": row.get("iops") or means[i], "low": row.get("iops_low"),
         "high": row.get("iops_high"), "rounds": len(values[i]),
         "requests": len(values[i]) * requests, "dropped_after": dropped.get(i)}
        for i, row in zip(order, whole, strict=True)
    ]  # fmt: skip
    resolved = [resolve(scenario_from_dict(*one)) for one in ordered]
    table, said = pl.DataFrame(rows, infer_schema_length=None), tuple(loads_differ(resolved))
    sure = PROBABILITY if len(alive) == 1 else 0.0
    return Ranking(table, sure, _p_better(rows, whole, resolved), said)


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


def _known(row: Mapping[str, Any], name: str) -> float:
    if row.get("error") is not None:
        raise InputError(f"{name}: {row['error']}")
    return float(row["iops"])
