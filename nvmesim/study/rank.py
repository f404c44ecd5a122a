"""The best of several candidates, and how likely it does more than each of the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

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

DIFFERENCE: Final = 0.01
"""Relative difference below which two candidates count as equally good."""


@dataclass(frozen=True)
class Ranking:
    """Candidates, best first, and how sure that order's head is."""

    table: pl.DataFrame
    """candidate, mean, low, high (as `run` says them; null: no interval is known)."""
    probability: float
    """Least probability, over the others, that the first does more on a real server."""
    warnings: tuple[Warning, ...] = ()

    @property
    def best(self) -> str:
        """Name of the first."""
        return str(self.table["candidate"][0])

    def as_good(self) -> list[str]:
        """Return the others that are within 1 % of the best."""
        first, *others = self.table.rows(named=True)
        near = DIFFERENCE * first["mean"]
        return [row["candidate"] for row in others if abs(row["mean"] - first["mean"]) < near]

    def __str__(self) -> str:
        equal = self.as_good()
        close = f"; within {DIFFERENCE:.1%} of it: {', '.join(equal)}" if equal else ""
        sure = chance(self.probability)
        return f"{self.best} is best by iops, with a probability of {sure}{close}"


def rank(
    candidates: Mapping[str, Scenario | Mapping[str, Any]],
    *,
    requests: int | None = None,
    seed: int = 1,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Rank *candidates* (name -> scenario) by their IOPS, one run each with the same *seed*.

    Without *requests* each run is as long as its precision needs.
    """
    if len(candidates) < 2:
        raise InputError(f"{len(candidates)} candidates cannot be ranked; at least 2 are needed")
    tables = [tables_of(scenario) for scenario in candidates.values()]
    settings = Settings(seed=seed, requests=requests)

    def say(done: int) -> None:
        if progress is not None:
            progress(f"{done} of {len(tables)} candidates", done / len(tables))

    found = simulated_rows(tables, settings, workers or 1, say)
    runs = [
        (name, one, {**row, "iops": _known(row, name)})
        for name, one, row in zip(candidates, tables, found, strict=True)
    ]
    runs.sort(key=lambda run: -run[2]["iops"])
    rows = [{"candidate": name, "mean": row["iops"], "low": row.get("iops_low"),
             "high": row.get("iops_high")} for name, _, row in runs]  # fmt: skip
    resolved = [resolve(scenario_from_dict(*one)) for _, one, _ in runs]
    sure = _p_better(rows, [row for *_, row in runs], resolved)
    table = pl.DataFrame(rows, infer_schema_length=None)
    return Ranking(table, sure, tuple(loads_differ(resolved)))


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
