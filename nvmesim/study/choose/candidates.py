"""Facts about a candidate without simulation: capacity, redundancy, lanes, watts, price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nvmesim.catalog.profile import Quantity
from nvmesim.errors import InputError
from nvmesim.scenario.resolved import ResolvedScenario, Volume
from nvmesim.study.choose.goal import Goal


@dataclass(frozen=True)
class Fixed:
    """Figures that follow from the parts alone; None: not known and not asked for."""

    capacity: float
    """Usable bytes."""
    survives: int
    drives: int
    slots: int
    lanes: int
    power: float | None
    """W"""
    price: float | None


def fixed(scenario: ResolvedScenario, goal: Goal) -> Fixed:
    """Return the figures of *scenario*; InputError if a price or wattage that counts is missing."""
    in_volumes = {m for v in scenario.volumes for m in (*v.members, *v.spares)}
    loose = [d for d in scenario.drives if d.index not in in_volumes]
    capacity = sum(usable(v) for v in scenario.volumes)
    capacity += sum(d.profile.capacity.value for d in loose)
    redundancy = [survived(v) for v in scenario.volumes] + [0 for _ in loose]
    return Fixed(
        capacity=capacity,
        survives=min(redundancy),
        drives=len(scenario.drives),
        slots=len(scenario.drives),
        lanes=_lanes(scenario),
        power=_sum(scenario, goal, "power", goal.watts),
        price=_sum(scenario, goal, "price", goal.prices),
    )


def usable(volume: Volume) -> float:
    """Bytes that a volume holds."""
    n = len(volume.members)
    level = volume.raid
    if level.mirrored:
        return n * volume.member_bytes / volume.copies
    parity = level.parity
    wide = volume.columns or n
    return n * volume.member_bytes * (wide - parity) / wide


def survived(volume: Volume) -> int:
    """Members that may fail, whichever they are, those missing already counted.

    A RAID10 may survive more by luck; one whole set of copies may also be hit at once.
    """
    level = volume.raid
    return level.survives(len(volume.members), volume.copies) - len(volume.degraded)


def _lanes(scenario: ResolvedScenario) -> int:
    direct = sum(d.link.pcie_lanes for d in scenario.drives if d.adapter is None)
    return direct + sum(a.link.pcie_lanes for a in scenario.adapters)


def _parts(scenario: ResolvedScenario) -> Iterator[tuple[str, Mapping[str, Quantity | None]]]:
    """Yield (catalog name, what its profile knows) of each drive and CPU."""
    for drive in scenario.drives:
        p = drive.profile
        yield p.name, {"power": p.power_active_w, "price": p.price}
    for socket in scenario.sockets:
        yield socket.cpu.name, {"power": socket.cpu.tdp_w, "price": socket.cpu.price}


def _sum(
    scenario: ResolvedScenario, goal: Goal, what: str, table: Mapping[str, float]
) -> float | None:
    """Sum over the parts; the goal's own *table* goes before the profile's number."""
    counts = goal.objective.minimize == what or getattr(goal.constraints, what) is not None
    total = table.get("server", 0.0)
    for name, known in _parts(scenario):
        quantity = known[what]
        if name in table:
            total += table[name]
        elif quantity is not None:
            total += quantity.value
        elif counts:
            listed = "watts" if what == "power" else "prices"
            raise InputError(f"{name} has no {what}; add it to the goal's [{listed}]")
        else:
            return None
    return total


def with_failed(tables: dict[str, Any], scenario: ResolvedScenario, failed: int) -> dict[str, Any]:
    """Return *tables* with the first *failed* members of every volume missing."""
    if not failed:
        return tables
    volumes = [
        {**spec, "degraded": sorted({*volume.degraded, *range(failed)})}
        for spec, volume in zip(tables.get("volume", []), scenario.volumes, strict=True)
    ]
    return {**tables, "volume": volumes}
