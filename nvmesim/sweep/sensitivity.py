"""What an answer depends on: each uncertain input at its low and high value, simulated again.

Inputs are the numbers of the profiles in use that are assumed (or all that have an interval). All
runs share their random numbers, so that small effects are seen. One input moves at a time: effects
of several together are not looked at.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, Profile, Quantity
from nvmesim.catalog.text import show_quantity
from nvmesim.errors import InputError, nearest
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.sweep.api import Progress, simulate_all, tables_of
from nvmesim.sweep.frame import RESULT_COLUMNS
from nvmesim.sweep.point import Answer, Job, Settings

SPREAD: Final = 0.2
"""Relative range of a number that states none: an assumption, and named as one in the table."""
NEVER: Final = ("price", "tdp_w", "power_active_w", "power_idle_w", "capacity", "turbo_ghz", "ghz",
                "logical_sector", "physical_sector", "tags", "read.unit", "write.unit",
                "latencies.block_size")  # fmt: skip
WHOLE: Final = ("dies", "channels", "workers")
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

    def ends(self, spread: float) -> tuple[float, float]:
        """Return its low and high value."""
        q = self.quantity
        if q.low is not None and q.high is not None and q.low < q.high:
            return q.low, q.high
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
    which: Literal["assumed", "all"] = "assumed",
    spread: float = SPREAD,
    requests: int = REQUESTS,
    seed: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Return one row an uncertain input, the one that moves *metric* most first.

    Columns: input, basis, stated (whether it has an interval of its own; else *spread* is taken),
    value, low, high, at_low, at_high (the metric there), change_low, change_high (relative to
    the base), swing. *which* "all" adds numbers that are measured or fitted and have an interval.
    `nvmesim.result.charts_sweep.tornado` draws it.
    """
    if metric not in RESULT_COLUMNS:
        raise InputError(f"metric {metric!r} is unknown; {nearest(metric, RESULT_COLUMNS)}")
    if not 0 < spread < 1:
        raise InputError(f"spread {spread!r} is out of range; above 0, below 1")
    tables, base = tables_of(scenario)
    inputs = list(inputs_of(tables, base, which))
    settings = Settings(seed=seed, requests=requests)
    jobs = [Job(0, tables, base, settings)]
    for i, found in enumerate(inputs):
        for side, value in enumerate(found.ends(spread)):
            changed = _with(tables, found, value)
            jobs.append(Job(1 + 2 * i + side, changed, base, settings))
    answers: dict[int, Answer] = {}
    for answer in simulate_all(iter(jobs), len(jobs), workers=workers):
        answers[answer.number] = answer
        if progress is not None:
            progress(f"{len(answers)} of {len(jobs)} runs", len(answers) / len(jobs))
    return _table(inputs, answers, metric, spread)


def _table(
    inputs: list[Input], answers: Mapping[int, Answer], metric: str, spread: float
) -> pl.DataFrame:
    base = answers[0].row.get(metric)
    if not base:
        why = answers[0].row.get("error") or "too few requests, or no steady state"
        raise InputError(f"{metric} of the scenario as it is is not known: {why}")
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
    schema: dict[str, Any] = {
        "input": pl.String, "basis": pl.String, "stated": pl.Boolean, "value": pl.String,
        **dict.fromkeys(("low", "high", "at_low", "at_high", "change_low", "change_high", "swing"),
                        pl.Float64),
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema).sort("swing", descending=True)


def inputs_of(
    tables: Mapping[str, Any], base: str, which: Literal["assumed", "all"] = "assumed"
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
    has_interval = quantity.low is not None and quantity.high is not None
    return quantity.basis == "assumed" or (which == "all" and has_interval)


def _used(key: str, resolved: ResolvedScenario) -> bool:
    kind, _, name = key.partition(".")
    attribute = "guest" if kind == "guests" else "filesystem"
    return any(getattr(g, attribute) == name.partition(".")[0] for g in resolved.workload)


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
    key = ".".join(found.path)
    if level is not None:
        # A number that the profile states for this level only is overridden there as well.
        table.setdefault("by_level", {}).setdefault(level, {})[key] = number
    if isinstance(holder, dict) and holder.get("state") == "fresh":
        table.setdefault("fresh", {})[key] = number
    inner = table
    for part in found.path[:-1]:
        inner = inner.setdefault(part, {})
    inner[found.path[-1]] = number
