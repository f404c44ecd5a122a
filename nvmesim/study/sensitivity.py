"""Sensitivity of an answer: each uncertain input at its low and high value, simulated again."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, Profile, Quantity
from nvmesim.catalog.toml import show_quantity
from nvmesim.errors import InputError, nearest
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import RunOptions, simulate
from nvmesim.predict.uncertainty.model_error import model_error
from nvmesim.predict.uncertainty.numbers import NEVER, WHOLE, Z95, spread_of
from nvmesim.predict.uncertainty.parts import Span
from nvmesim.predict.uncertainty.standing import ALIKE
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.study.sweep.api import Progress, simulated_rows, tables_of
from nvmesim.study.sweep.point import RESULT_COLUMNS, Settings
from nvmesim.units import format_size

REQUESTS: Final = 40_000
FIGURES: Final = {
    "iops": "iops", "lat_mean_us": "mean", "lat_p50_us": "p50", "lat_p90_us": "p90",
    "lat_p99_us": "p99", "lat_p99_9_us": "p99.9",
}  # fmt: skip
"""Column of a sweep -> figure that has an interval of four parts."""
CAPTURED: Final = 4
"""Rows of a capture that would be made, where none was: a sweep of a few depths. Assumed."""
WORTH: Final = 0.9
"""Of the model's error, what a capture of the asked load may leave to be worth it. Assumed."""
_DEFAULTS: Final = {"stack": "linux-io_uring", "engine": "linux-md"}
_SCHEMA: Final[dict[str, Any]] = {
    "input": pl.String, "basis": pl.String, "stated": pl.Boolean, "value": pl.String,
    **dict.fromkeys(("low", "high", "at_low", "at_high", "change_low", "change_high", "swing",
                     "share", "whole", "without"), pl.Float64),
    "measure": pl.String,
}  # fmt: skip
Place = tuple[str | int, ...]
"""Keys that lead to an entry of a scenario's tables."""


@dataclass(frozen=True)
class Input:
    """One number of one profile."""

    name: str
    """As ``--set`` takes it where that is possible."""
    holders: tuple[Place, ...]
    """Places in the scenario's tables that refer to the profile."""
    path: tuple[str, ...]
    quantity: Quantity
    shown: str

    def ends(self) -> tuple[float, float]:
        """Return its low and high value: its own, or what its basis says."""
        q = self.quantity
        if q.low is not None and q.high is not None and q.low < q.high:
            return q.low, q.high
        factor = spread_of(q)
        low, high = q.value / factor, q.value * factor
        if self.path[-1] in WHOLE:
            low, high = max(1, round(low)), max(round(high), round(q.value) + 1)
        if self.path[-1].endswith("cv"):
            low = max(0.0, low)
        return low, high


def sensitivity(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    metric: str = "iops",
    requests: int = REQUESTS,
    seed: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Return one row an uncertain input, the one that carries most of the interval first.

    Columns: input, basis, stated (whether it has an interval of its own; else what its basis says
    is taken), value, low, high, at_low, at_high (the metric there), change_low, change_high
    (relative to the base), swing, share (of the variance of the whole interval: Sobol's
    total index on a quadratic through the three points; numbers that were fitted together make up
    for each other, so the inputs' shares are of what `simulate` says that all do at once), whole
    (the interval's relative half-width, as of `simulate`), measure (what would tell the input, and
    others with it) and without (what is left of the interval then). The parts "misfit", "model"
    and "simulation" are rows as well; one drive captured at the asked load leaves the model's
    error of a row so near.
    `nvmesim.show.charts.sweep.tornado` draws it.
    """
    if metric not in RESULT_COLUMNS:
        raise InputError(f"metric {metric!r} is unknown; {nearest(metric, RESULT_COLUMNS)}")
    tables, base = tables_of(scenario)
    resolved = resolve(scenario_from_dict(tables, base))
    inputs = list(_inputs(tables, resolved))
    moved = [_with(tables, one, value) for one in inputs for value in one.ends()]
    settings = Settings(seed=seed, requests=requests, certainty=False)
    asked = [(changed, base) for changed in (tables, *moved)]

    def say(done: int) -> None:
        if progress is not None:
            progress(f"{done} of {len(asked)} runs", done / len(asked))

    with ThreadPoolExecutor(1) as pool:  # beside the others, not after them
        quiet = RunOptions(seed=seed, reliefs=False, over_time=False)
        whole = pool.submit(simulate, resolved, quiet) if metric in FIGURES else None
        answers = simulated_rows(asked, settings, workers, say)
    unmoved = answers[0].get(metric)
    if not unmoved:
        why = answers[0].get("error") or "too few requests, or no steady state"
        raise InputError(f"{metric} of the unchanged scenario is not known: {why}")
    result = whole.result() if whole is not None else None
    load, at = load_words(resolved), result and result.certainty.standing
    was_captured = bool(at and at.rows and max(map(abs, (at.depth, at.size, at.read))) < ALIKE)
    capture = "capture reads at three depths, with p99" if was_captured else f"capture {load}"
    rows = [
        _row(one, unmoved, [a.get(metric) for a in answers[2 * i + 1 : 2 * i + 3]],
             load, capture)
        for i, one in enumerate(inputs)
    ]  # fmt: skip
    figures = {} if result is None else result.certainty.figures
    parts = figures.get(FIGURES.get(metric, ""))
    if result is None or parts is None:
        return _frame(rows)
    alone = sum(row["variance"] for row in rows)
    together = variance_of(parts.numbers) / alone if alone > 0 else 0.0
    rows = [{**row, "variance": row["variance"] * together} for row in rows]
    rows += _parts(result, FIGURES[metric], capture, was_captured)
    return _frame(rows, parts.total)


def variance_of(span: Span) -> float:
    """Return the variance of a 95 % interval of a logarithm, its two sides alike in it.

    >>> round(variance_of((0.196, 0.196)), 4)
    0.01
    """
    return (span[0] ** 2 + span[1] ** 2) / 2 / Z95**2


def _frame(rows: Sequence[dict[str, Any]], interval: Span | None = None) -> pl.DataFrame:
    """All rows with what each carries of the whole *interval*, most first; None: of their sum.

    Each has its ``variance``, of the answer's logarithm, and what is ``left`` of that once it has
    been measured.
    """
    whole = sum(row["variance"] for row in rows)
    taken: dict[str, float] = {}  # by a measurement
    for row in rows:
        gain = max(0.0, row["variance"] - row["left"])
        taken[row["measure"]] = taken.get(row["measure"], 0.0) + gain
    for row in rows:
        row["share"] = row["variance"] / whole if whole > 0 else 0.0
        left = max(0.0, whole - taken[row["measure"]]) / whole if whole > 0 else 0.0
        down, up = interval or (Z95 * math.sqrt(whole),) * 2
        row["without"], row["whole"] = (
            (math.exp(up * x) - math.exp(-down * x)) / 2 for x in (math.sqrt(left), 1.0)
        )
    return pl.DataFrame(rows, schema=_SCHEMA).sort("share", descending=True)


def _row(
    one: Input, unmoved: float, at: Sequence[float | None], load: str, capture: str
) -> dict[str, Any]:
    """What an input does to the answer at its ends, and what would tell it."""
    change = [None if v is None else v / unmoved - 1 for v in at]
    known = [0.0, *(c for c in change if c is not None)]
    low, high = one.ends()
    measure = "measure the server itself"
    if one.name.startswith("server.stack"):
        measure = f"record CPU figures with a capture of {load} (calibrate --stack)"
    elif one.name.startswith("volume"):
        measure = "measure the array itself under this load"
    elif one.name.startswith("drives"):
        is_write = ".write" in one.name
        measure = "capture randwrite until the buffer is full" if is_write else capture
    return {
        "input": one.name, "basis": one.quantity.basis, "stated": one.quantity.low is not None,
        "value": one.shown, "low": float(low), "high": float(high), "at_low": at[0],
        "at_high": at[1], "change_low": change[0], "change_high": change[1],
        "swing": max(known) - min(known), "variance": variance(*change), "left": 0.0,
        "measure": measure,
    }  # fmt: skip


def variance(low: float | None, high: float | None) -> float:
    """Variance that an input carries whose ends change the answer by *low* and *high*, relative.

    The answer's logarithm is a quadratic through the three points, the input normal. Source:
    Saltelli et al., "Global Sensitivity Analysis: The Primer", 2008, chapter 4.

    >>> round(variance(-0.1, 0.1), 5)
    0.00262
    """
    down, up = (math.log(max(1 + (change or 0.0), 1e-9)) for change in (low, high))
    slope, curve = (up - down) / 2 / Z95, (up + down) / 2 / Z95**2
    return slope**2 + 2 * curve**2


def _parts(result: Result, figure: str, capture: str, was_captured: bool) -> list[dict[str, Any]]:
    """Misfit, model and simulation of *figure*; *capture*: what brings a row nearer, if none is."""
    parts = result.certainty.figures.get(figure)
    if parts is None:
        return []
    standing = result.certainty.standing
    misfit, model, chance = map(variance_of, (parts.misfit, parts.model, parts.simulation))
    near = replace(  # one drive at this load is a row, too, and the nearest
        standing, rows=max(CAPTURED, standing.rows + 1), depth=0.0, size=0.0, read=0.0, moved=0.0,
        sheet="", cache=0.0,
    )  # fmt: skip
    left, measure = variance_of(model_error(near, figure).span), capture
    if was_captured or left > WORTH**2 * model:
        left = model
        measure = f"measure a server of this class ({standing.model_class}) as a set of its own"
    listed = (
        ("misfit", misfit, 0.0, capture), ("model", model, left, measure),
        ("simulation", chance, 0.0, "simulate longer (precision of [run])"),
    )  # fmt: skip
    return [
        {"input": name, "basis": "part", "stated": True, "value": "", "swing": 0.0,
         "variance": own, "left": rest, "measure": measure}
        for name, own, rest, measure in listed
    ]  # fmt: skip


def load_words(scenario: ResolvedScenario) -> str:
    """The load of one drive as fio would name it: "randrw 70 % of 4 KiB at depth 32"."""
    group = scenario.workload[0]
    kind = "rand" if group.access == "random" else ""
    name = {1.0: f"{kind}read", 0.0: f"{kind}write"}.get(group.read)
    name = name or f"{kind}rw {100 * group.read:g} %"
    sizes = [(format_size(n), f" ({share:.0%})" * (share < 1)) for n, share in group.block_sizes]
    size = ", ".join(map("".join, sizes))
    depth = max(1, round(group.in_flight / max(1, len(scenario.drives))))
    return f"{name} of {size}" + ("" if group.is_open else f" at depth {depth}")


def _inputs(tables: Mapping[str, Any], resolved: ResolvedScenario) -> Iterator[Input]:
    """Yield the uncertain numbers of the profiles that a scenario uses, each profile once."""
    used = {(g.filesystem, g.guest) for g in resolved.workload}
    kinds = {
        "filesystems": {filesystem for filesystem, _ in used},
        "guests": {guest for _, guest in used},
        "sections": {name for pair in used for name in pair},
    }
    for label, holders, profile in _profiles(tables, resolved):
        for key, quantity in quantities(profile):
            first, *rest = path = tuple(key.split("."))
            if key in NEVER or not quantity.value:
                continue
            if first in kinds and rest[0] not in kinds[first]:
                continue
            if isinstance(profile, DriveProfile) and not profile.counts(key):
                continue
            try:
                shown = show_quantity(profile, key)
            except (AttributeError, KeyError, TypeError):
                shown = ""
            yield Input(f"{label}.{key}", holders, path, quantity, shown)


def _profiles(
    tables: Mapping[str, Any], resolved: ResolvedScenario
) -> Iterator[tuple[str, tuple[Place, ...], Profile]]:
    """Yield (label, places, profile) of each profile in use, equal ones together."""
    yield "server.stack", (("server", "stack"),), resolved.stack
    first, drives = 0, []
    for spec in tables["drives"]:
        drives.append(resolved.drives[first].profile)
        first += int(spec.get("count", 1))
    sockets = [s.cpu for s in resolved.sockets[: len(tables["server"]["sockets"])]]
    engines = [v.engine for v in resolved.volumes]
    listed: tuple[tuple[str, str, Sequence[Profile]], ...] = (
        ("server.sockets", "cpu", sockets),
        ("drives", "profile", drives),
        ("volume", "engine", engines),
    )
    for list_name, key, profiles in listed:
        groups: dict[str, list[int]] = {}
        places: list[Place] = [(*list_name.split("."), i, key) for i in range(len(profiles))]
        for i, (place, profile) in enumerate(zip(places, profiles, strict=True)):
            same = f"{_at(tables, place)!r}{getattr(profile, 'state', '')}"
            groups.setdefault(same, []).append(i)
        for members in groups.values():
            number = "*" if len(groups) == 1 and len(places) > 1 else members[0]
            label = f"{list_name}.{number}.{key}"
            yield label, tuple(places[i] for i in members), profiles[members[0]]


def _at(tables: Any, place: Place) -> Any:
    for part in place:
        tables = tables.get(part) if isinstance(tables, Mapping) else tables[part]
    return tables


def _with(tables: Mapping[str, Any], one: Input, value: float) -> dict[str, Any]:
    """Return *tables* with another value of one number, in every profile that has it."""
    changed = copy.deepcopy(dict(tables))
    number = {"value": value, "basis": "assumed", "source": "sensitivity"}
    for place in one.holders:
        *outer, last = place
        holder = _at(changed, tuple(outer))
        profile = holder.get(last, _DEFAULTS.get(str(last)))
        table: dict[str, Any]
        table = {"extends": profile} if isinstance(profile, str) else dict(profile)
        holder[last] = table
        targets: list[dict[str, Any]] = [table]
        if place[0] == "volume":
            # A number that the profile states for this level only is overridden there as well.
            by_level = table.setdefault("by_level", {})
            targets.append(by_level.setdefault(str(holder["raid"]), {}))
        if holder.get("state") == "fresh":
            table.setdefault("fresh", {})[".".join(one.path)] = number
        for target in targets:
            inner = target
            for part in one.path[:-1]:
                inner = inner.setdefault(part, {})
            inner[one.path[-1]] = number
    return changed
