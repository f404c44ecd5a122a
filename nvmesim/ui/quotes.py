"""Two to four quotes side by side: what they cost and do, how sure the difference is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nvmesim.measure.paired import Comparison
from nvmesim.predict.result import Result
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.show import words
from nvmesim.show.blocks import Block, Bullets, Charts, Range, Ranges, Section, table
from nvmesim.study.choose import usable
from nvmesim.ui.answer import goal_probability


@dataclass(frozen=True)
class Quote:
    """One design with what it does whole, with a drive failed, and while that is rebuilt."""

    tables: Mapping[str, Any]
    price: float | None
    """EUR, as typed or as the parts' profiles state."""
    healthy: Result
    degraded: Result | None
    rebuilding: Result | None

    @property
    def scenario(self) -> ResolvedScenario:
        """What was simulated."""
        found = self.healthy.resolved
        assert isinstance(found, ResolvedScenario)
        return found

    @property
    def watts(self) -> float | None:
        """W of the drives and CPUs at work; None if one of them does not say it."""
        known = [d.profile.power_active_w for d in self.scenario.drives]
        known += [s.cpu.tdp_w for s in self.scenario.sockets]
        stated = [q.value for q in known if q is not None]
        return sum(stated) if len(stated) == len(known) else None

    @property
    def capacity(self) -> float:
        """Usable bytes."""
        scenario = self.scenario
        inside = {m for v in scenario.volumes for m in (*v.members, *v.spares)}
        loose = [d.profile.capacity.value for d in scenario.drives if d.index not in inside]
        return sum(usable(v) for v in scenario.volumes) + sum(loose)


def states_of(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the design with a drive failed, and rebuilding; nothing if it does not survive one."""
    volumes = tables.get("volume") or []
    volumes = [volumes] if isinstance(volumes, Mapping) else volumes
    if not volumes or any(v.get("raid", "raid0") in ("none", "raid0") for v in volumes):
        return {}
    found = {}
    for state in ("degraded", "rebuilding"):
        changed = [{**v, "degraded": [0], "rebuild": state == "rebuilding"} for v in volumes]
        found[state] = {**tables, "volume": changed}
    return found


def page_blocks(quotes: Sequence[Quote], gains: Sequence[Comparison]) -> list[Block]:
    """Return the quotes as a table, bars and charts; *gains* are those over the first."""
    from nvmesim.show.charts.designs import side_by_side

    names = [f"{n}: {q.healthy.scenario}" for n, q in enumerate(quotes, 1)]
    rows = [[what, *cells] for what, cells in _lines(quotes, gains).items()]
    lead = [_lead(n, gain) for n, gain in enumerate(gains, 2)]
    bars = [
        Range(name, q.healthy.total.iops, f"{_iops(q.healthy)} IOPS")
        for name, q in zip(names, quotes, strict=True)
    ]
    drawn = side_by_side({n: q.healthy for n, q in zip(names, quotes, strict=True)})
    return [
        Section("Side by side", (
            Bullets(tuple(lead)), Ranges(tuple(bars), shared=True),
            table("Quotes side by side", ("", *(f"<{name}" for name in names)), rows),
        )),
        Section("Charts", (Charts({t: (c, "Thin: 95 % interval.") for t, c in drawn.items()}),)),
    ]  # fmt: skip


def _lead(number: int, gain: Comparison) -> str:
    if gain.p_better is None:
        return f"{number} against 1: not known which does more"
    better = gain.p_better >= 0.5
    winner, loser = (number, 1) if better else (1, number)
    chance = words.chance(gain.p_better if better else 1 - gain.p_better)
    return f"{winner} does more IOPS than {loser} with a probability of {chance}"


def _lines(quotes: Sequence[Quote], gains: Sequence[Comparison]) -> dict[str, list[str]]:
    totals = [q.healthy.total for q in quotes]
    against = ["", *(f"{words.gain(g.gain.value)} ({words.gain_span(g.gain.low, g.gain.high)})"
                     for g in gains)]  # fmt: skip
    return {
        **differing([q.tables for q in quotes]),
        "drives": [_drives(q.scenario) for q in quotes],
        "usable TB": [f"{q.capacity / 1e12:.4g}" for q in quotes],
        "price, EUR": [_number(q.price) for q in quotes],
        "W, drives and CPUs": [_number(q.watts) for q in quotes],
        "IOPS": [words.kiops(t.iops.value) for t in totals],
        "95 % within": [words.span(t.iops) for t in totals],
        "mean, µs": [words.microseconds(t.latency.mean) for t in totals],
        "p99, µs": [words.microseconds(t.latency.percentiles[99.0]) for t in totals],
        "CPU": [words.percent(q.healthy.cpu.logical_utilization) for q in quotes],
        "IOPS per EUR": [_per(q, q.price) for q in quotes],
        "IOPS per W": [_per(q, q.watts) for q in quotes],
        "IOPS, a drive failed": [_iops(q.degraded) for q in quotes],
        "IOPS, while it is rebuilt": [_iops(q.rebuilding) for q in quotes],
        "hours to rebuild": [_hours(q.rebuilding) for q in quotes],
        "limited by": [_limit(q.healthy) for q in quotes],
        "lacks of the goal": [_lacks(q.healthy) for q in quotes],
        "IOPS against 1": against,
    }


def _drives(scenario: ResolvedScenario) -> str:
    counts: dict[str, int] = {}
    for drive in scenario.drives:
        name = drive.profile.model or drive.profile.name
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.0f}"


def _per(quote: Quote, amount: float | None) -> str:
    return "" if not amount else f"{quote.healthy.total.iops.value / amount:,.4g}"


def _iops(result: Result | None) -> str:
    if result is None:
        return "-"
    return f"{words.kiops(result.total.iops.value)} ({words.span(result.total.iops)})"


def _hours(result: Result | None) -> str:
    found = None if result is None else result.rebuild
    return "-" if found is None else f"{found.hours:.2g}"


def _limit(result: Result) -> str:
    found = result.bottleneck
    return found.station or found.verdict


def _lacks(result: Result) -> str:
    """Say what is between the answer and its goal, and how likely it is met."""
    found = goal_probability(result)
    if found is None:
        return "no goal"
    what, limit, p = found
    value = words.latency_at(result.total.latency, what) or 0.0
    over = "nothing" if value <= limit else f"{what} is {words.time(value - limit)} above"
    return f"{over}; met with a probability of {words.chance(p)}"


def differing(designs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the keys that are not the same in all *designs*, with the value that each has.

    >>> differing([{"volume": [{"raid": "raid5"}]}, {"volume": [{"raid": "raid6"}]}])
    {'volume.raid': ['raid5', 'raid6']}
    """
    flat = [dict(_flat(tables, "")) for tables in designs]
    keys = dict.fromkeys(key for one in flat for key in one if key != "name")
    found = {key: [one.get(key, "-") for one in flat] for key in keys}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _flat(item: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield from _flat(value, f"{key}.{name}".lstrip("."))
    elif isinstance(item, list) and any(isinstance(i, Mapping) for i in item):
        for number, value in enumerate(item):
            yield from _flat(value, key if len(item) == 1 else f"{key}.{number}")
    else:
        yield key, ", ".join(map(str, item)) if isinstance(item, list) else str(item)
