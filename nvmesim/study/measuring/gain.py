"""Which row narrows an answer most per second: expected reduction of its variance.

The fitted drive's uncertain numbers are moved along a two-level design (`predict.uncertainty`), and
the candidates and the answer are simulated with each. To first order all are normal, and a measured
candidate leaves of the answer's variance what its correlation with the candidate does not explain.
Source: Chaloner and Verdinelli, "Bayesian experimental design: a review", Statistical Science
10(3), 1995, section 2.2 (linear design).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.text import to_toml
from nvmesim.errors import InputError
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.design import design
from nvmesim.predict.uncertainty.numbers import Factor, factors, moved
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.measuring.rows import Row

REQUESTS: Final = 6_000
NOISE: Final = (0.01, 0.05)
"""Standard error of the logarithm of a measured rate, and of a p99."""

__all__ = ["answer_of_drive", "expected_gains", "half_width", "scenario_of_row", "with_drive"]

Answer = Callable[[DriveProfile], list[ResolvedScenario]]
"""The scenarios whose throughput and p99 are asked for, with a drive."""


def scenario_of_row(row: Row, profile: DriveProfile, stack: str, link: str) -> ResolvedScenario:
    """Return the bench on which *row* is measured, with *profile* as its drive."""
    tables: dict[str, Any] = {
        "name": row.name,
        "server": {"stack": stack, "sockets": [{"cpu": "epyc-7313"}]},
        "drives": [{"profile": _table(profile), "link": link}],
        "workload": [{
            "access": "random" if row.op.startswith("rand") else "sequential",
            "block_size": f"{row.kib} KiB", "read": row.read_share,
            "threads_total": row.jobs, "outstanding": row.depth,
        }],
    }  # fmt: skip
    return resolve(scenario_from_dict(tables))


def _table(profile: DriveProfile) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(to_toml(profile))


def answer_of_drive(rows: Sequence[Row], stack: str, link: str) -> Answer:
    """Return the answer "the drive itself": all of *rows* alike."""
    return lambda profile: [scenario_of_row(row, profile, stack, link) for row in rows]


def with_drive(tables: Mapping[str, Any], base: str) -> Answer:
    """Return the answer "that server": *tables* with every drive replaced by the fitted one."""

    def scenarios(profile: DriveProfile) -> list[ResolvedScenario]:
        drives = [{**spec, "profile": _table(profile)} for spec in tables["drives"]]
        return [resolve(scenario_from_dict({**tables, "drives": drives}, base))]

    return scenarios


def half_width(profile: DriveProfile, answer: Answer) -> float:
    """Return the relative half-width, 95 %, that the drive's numbers leave of *answer*."""
    values = _moved_answers(answer(profile), _drive_factors(profile, answer))
    return float(np.expm1(1.96 * np.sqrt(values.var(axis=0).mean())))


def expected_gains(
    candidates: Sequence[Row], profile: DriveProfile, answer: Answer, stack: str, link: str
) -> dict[str, float]:
    """Return, by name, the share of the answer's half-width that measuring a row would take away.

    Rows that cannot be simulated are left out.
    """
    found = _drive_factors(profile, answer)
    wanted = _moved_answers(answer(profile), found)
    spread = wanted - wanted.mean(axis=0)
    whole = float((spread**2).mean(axis=0).sum())
    if whole <= 0:
        return {row.name: 0.0 for row in candidates}
    out = {}
    for row in candidates:
        try:
            seen = _moved_answers([scenario_of_row(row, profile, stack, link)], found)
        except InputError:
            continue
        out[row.name] = 1 - math.sqrt(max(0.0, 1 - _explained(spread, seen) / whole))
    return out


def _explained(spread: Floats, seen: Floats) -> float:
    """Variance of the answer's figures that the figures of one row explain."""
    row = seen - seen.mean(axis=0)
    noise = np.diag(np.square(NOISE[: row.shape[1]]))
    covariance = row.T @ row / len(row) + noise
    cross = row.T @ spread / len(row)
    return float(np.trace(cross.T @ np.linalg.solve(covariance, cross)))


def _drive_factors(profile: DriveProfile, answer: Answer) -> list[Factor]:
    """Uncertain numbers of the drive alone, of whatever the answer's loads use."""
    found = [factor for scenario in answer(profile) for factor in factors(scenario)]
    return list({f.name: f for f in found if f.profile.startswith("drive")}.values())


def _moved_answers(scenarios: Sequence[ResolvedScenario], found: Sequence[Factor]) -> Floats:
    """float64[runs, 2 x scenarios]: log IOPS and log p99 with the numbers moved."""
    signs = design(max(1, len(found)))[:, : len(found)]
    rows = []
    for line in signs.tolist():
        values: list[float] = []
        for scenario in scenarios:
            result = simulate(
                moved(scenario, found, line), requests=REQUESTS, reliefs=False, over_time=False,
                certainty=False,
            )  # fmt: skip
            p99 = result.total.latency.percentiles[99.0] or result.total.latency.mean
            values += [math.log(result.total.iops.value), math.log(p99)]
        rows.append(values)
    return np.array(rows)
