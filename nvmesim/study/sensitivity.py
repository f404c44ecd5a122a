"""Sensitivity of an answer: each uncertain input at its low and high value, simulated again.

Inputs are the numbers of the profiles in use that are assumed (or all that have an interval). All
runs share their random numbers, so that small effects are seen. One input moves at a time: effects
of several together are not looked at.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, Profile, Quantity
from nvmesim.catalog.text import show_quantity
from nvmesim.errors import InputError, nearest
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.numbers import NEVER, WHOLE, Z95, spread_of
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.study.carried import FIGURES, Carried, load_words, of_input, parts_of
from nvmesim.study.sweep.api import Progress, simulate_all, tables_of
from nvmesim.study.sweep.frame import RESULT_COLUMNS
from nvmesim.study.sweep.point import PointAnswer, Settings, SweepJob

REQUESTS: Final = 40_000


@dataclass(frozen=True)
class Input:
    """One number of one profile."""

    name: str
    """As ``--set`` takes it where that is possible."""
    holders: tuple[tuple[Any, ...], ...]
    """Places in the scenario's tables that refer to the profile."""
    path: tuple[str, ...]
    quantity: Quantity
    shown: str

    def ends(self, spread: float | None) -> tuple[float, float]:
        """Return its low and high value: its own, or *spread* to both sides, or by its basis."""
        q = self.quantity
        if q.low is not None and q.high is not None and q.low < q.high:
            return q.low, q.high
        factor = spread_of(q)
        low, high = q.value / factor, q.value * factor
        if spread is not None:
            low, high = q.value * (1 - spread), q.value * (1 + spread)
        if self.path[-1] in WHOLE:
            low, high = max(1, round(low)), max(round(high), round(q.value) + 1)
        if self.path[-1].endswith("cv"):
            low = max(0.0, low)
        return low, high


def sensitivity(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    metric: str = "iops",
    which: Literal["assumed", "all"] = "all",
    spread: float | None = None,
    requests: int = REQUESTS,
    seed: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Return one row an uncertain input, the one that carries most of the interval first.

    Columns: input, basis, stated (whether it has an interval of its own; else *spread* is taken, or
    what its basis says), value, low, high, at_low, at_high (the metric there), change_low,
    change_high (relative to the base), swing, share (of the variance of the whole interval: Sobol's
    total index on a quadratic through the three points, inputs taken as independent), whole (the
    interval's relative half-width), measure (what would tell the input, and others with it) and
    without (what is left of the interval then). The parts "misfit", "model" and "simulation" are
    rows as well; a drive from the catalog that is captured leaves the model's error of calibrated
    ones. *which* "all" (the default) adds numbers that are measured or fitted.
    `nvmesim.show.charts.sweep.tornado` draws it.
    """
    if metric not in RESULT_COLUMNS:
        raise InputError(f"metric {metric!r} is unknown; {nearest(metric, RESULT_COLUMNS)}")
    if spread is not None and not 0 < spread < 1:
        raise InputError(f"spread {spread!r} is out of range; above 0, below 1")
    tables, base = tables_of(scenario)
    inputs = list(inputs_of(tables, base, which))
    settings = Settings(seed=seed, requests=requests, certainty=False)
    jobs = [SweepJob(0, tables, base, settings)]
    for i, found in enumerate(inputs):
        for side, value in enumerate(found.ends(spread)):
            changed = _with(tables, found, value)
            jobs.append(SweepJob(1 + 2 * i + side, changed, base, settings))
    answers: dict[int, PointAnswer] = {}
    for answer in simulate_all(iter(jobs), len(jobs), workers=workers):
        answers[answer.number] = answer
        if progress is not None:
            progress(f"{len(answers)} of {len(jobs)} runs", len(answers) / len(jobs))
    resolved = resolve(scenario_from_dict(tables, base))
    rest: list[Carried] = []
    if metric in FIGURES:
        whole = simulate(resolved, seed=seed, requests=requests, reliefs=False, over_time=False)
        rest = parts_of(whole, resolved, FIGURES[metric])
    rows = _rows(inputs, answers, metric, spread)
    return _frame(rows, rest, load_words(resolved))


def _rows(
    inputs: list[Input], answers: Mapping[int, PointAnswer], metric: str, spread: float | None
) -> list[dict[str, Any]]:
    base = answers[0].row.get(metric)
    if not base:
        why = answers[0].row.get("error") or "too few requests, or no steady state"
        raise InputError(f"{metric} of the unchanged scenario is not known: {why}")
    rows = []
    for i, found in enumerate(inputs):
        at = [answers[1 + 2 * i + side].row.get(metric) for side in (0, 1)]
        change = [None if v is None else v / base - 1 for v in at]
        known = [c for c in change if c is not None]
        low, high = found.ends(spread)
        q = found.quantity
        rows.append({
            "input": found.name, "basis": q.basis, "stated": q.low is not None,
            "value": found.shown, "low": float(low), "high": float(high),
            "at_low": at[0], "at_high": at[1],
            "change_low": change[0], "change_high": change[1],
            "swing": max([0.0, *known]) - min([0.0, *known]),
        })  # fmt: skip
    return rows


def _frame(rows: list[dict[str, Any]], rest: list[Carried], load: str) -> pl.DataFrame:
    """All rows with what each carries of the whole interval, most first."""
    carried = [of_input(r["input"], r["change_low"], r["change_high"], load) for r in rows]
    parts: list[dict[str, Any]] = [
        {"input": part.name, "basis": "part", "stated": True, "value": "", "swing": 0.0}
        for part in rest
    ]
    every = [*carried, *rest]
    whole = sum(part.variance for part in every)
    told: dict[str, float] = {}
    for part in every:
        told[part.measure] = told.get(part.measure, 0.0) + max(0.0, part.variance - part.left)
    for row, part in zip([*rows, *parts], every, strict=True):
        row["share"] = part.variance / whole if whole > 0 else 0.0
        left = max(0.0, whole - told[part.measure])
        row["without"] = math.expm1(Z95 * math.sqrt(left))
        row["whole"] = math.expm1(Z95 * math.sqrt(whole))
        row["measure"] = part.measure
    schema: dict[str, Any] = {
        "input": pl.String, "basis": pl.String, "stated": pl.Boolean, "value": pl.String,
        **dict.fromkeys(("low", "high", "at_low", "at_high", "change_low", "change_high", "swing",
                         "share", "whole", "without"), pl.Float64),
        "measure": pl.String,
    }  # fmt: skip
    return pl.DataFrame([*rows, *parts], schema=schema).sort("share", descending=True)


def inputs_of(
    tables: Mapping[str, Any], base: str, which: Literal["assumed", "all"] = "all"
) -> Iterator[Input]:
    """Yield the uncertain numbers of the profiles that a scenario uses, each profile once."""
    resolved = resolve(scenario_from_dict(tables, base))
    for label, holders, profile in _profiles(tables, resolved):
        for key, quantity in quantities(profile):
            if key in NEVER or not quantity.value or not _is_uncertain(quantity, which):
                continue
            if key.startswith(("filesystems.", "guests.", "sections.")) and not _used(
                key, resolved
            ):
                continue
            if isinstance(profile, DriveProfile) and not profile.counts(key):
                continue
            yield Input(
                f"{label}.{key}", holders, tuple(key.split(".")), quantity, _shown(profile, key)
            )


def _is_uncertain(quantity: Quantity, which: str) -> bool:
    return quantity.basis == "assumed" or which == "all"


def _used(key: str, resolved: ResolvedScenario) -> bool:
    kind, _, name = key.partition(".")
    named = {"filesystems": ("filesystem",), "guests": ("guest",)}
    places = named.get(kind, ("filesystem", "guest"))  # sections are of either
    wanted = name.partition(".")[0]
    return any(wanted == getattr(g, place) for g in resolved.workload for place in places)


def _shown(profile: Profile, key: str) -> str:
    try:
        return show_quantity(profile, key)
    except (AttributeError, KeyError, TypeError):
        return ""


def _profiles(
    tables: Mapping[str, Any], resolved: ResolvedScenario
) -> Iterator[tuple[str, tuple[tuple[Any, ...], ...], Profile]]:
    """Yield (label, places, profile) of each profile in use, equal ones together."""
    server = tables["server"]
    stack = ("server", "stack")
    yield "server.stack", (stack,), resolved.stack
    cpus = [("server", "sockets", i, "cpu") for i in range(len(server["sockets"]))]
    yield from _grouped("server.sockets", "cpu", cpus, tables, [s.cpu for s in resolved.sockets])
    places, profiles = [], []
    first = 0
    for i, spec in enumerate(tables["drives"]):
        places.append(("drives", i, "profile"))
        profiles.append(resolved.drives[first].profile)
        first += int(spec.get("count", 1))
    yield from _grouped("drives", "profile", places, tables, profiles)
    volumes = [("volume", i, "engine") for i in range(len(resolved.volumes))]
    engines = [v.engine for v in resolved.volumes]
    yield from _grouped("volume", "engine", volumes, tables, engines)


def _grouped(
    list_name: str, key: str, places: list[tuple[Any, ...]], tables: Mapping[str, Any],
    profiles: list[Any],
) -> Iterator[tuple[str, tuple[tuple[Any, ...], ...], Profile]]:  # fmt: skip
    groups: dict[str, list[int]] = {}
    for i, place in enumerate(places):
        groups.setdefault(repr(_at(tables, place)) + str(getattr(profiles[i], "state", "")), []
                          ).append(i)  # fmt: skip
    for members in groups.values():
        one = len(groups) == 1 and len(places) > 1
        label = f"{list_name}.{'*' if one else members[0]}.{key}"
        yield label, tuple(places[i] for i in members), profiles[members[0]]


def _at(tables: Any, place: tuple[Any, ...]) -> Any:
    for part in place:
        tables = tables.get(part) if isinstance(tables, Mapping) else tables[part]
    return tables


def _with(tables: Mapping[str, Any], found: Input, value: float) -> dict[str, Any]:
    """Return *tables* with another value of one number, in every profile that has it."""
    changed = copy.deepcopy(dict(tables))
    for place in found.holders:
        holder = _at(changed, place[:-1])
        profile = holder.get(place[-1], _DEFAULTS.get(place[-1]))
        table = {"extends": profile} if isinstance(profile, str) else dict(profile)
        holder[place[-1]] = table
        _put_number(table, found, value, _level(changed, place), holder)
    return changed


_DEFAULTS: Final = {"stack": "linux-io_uring", "engine": "linux-md"}


def _level(tables: Mapping[str, Any], place: tuple[Any, ...]) -> str | None:
    return str(_at(tables, place[:-1])["raid"]) if place[0] == "volume" else None


def _put_number(
    table: dict[str, Any], found: Input, value: float, level: str | None, holder: Mapping[str, Any]
) -> None:
    number = {"value": value, "basis": "assumed", "source": "sensitivity"}
    places = [table]
    if level is not None:
        # A number that the profile states for this level only is overridden there as well.
        places.append(table.setdefault("by_level", {}).setdefault(level, {}))
    if isinstance(holder, dict) and holder.get("state") == "fresh":
        table.setdefault("fresh", {})[".".join(found.path)] = number
    for inner in places:
        for part in found.path[:-1]:
            inner = inner.setdefault(part, {})
        inner[found.path[-1]] = number
