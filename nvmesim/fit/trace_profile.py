"""The profile that a fit to a trace makes of its parameters, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.fit.read_side import CHANNEL_PS


@dataclass(frozen=True)
class Structure:
    """What is tried in turn and not searched."""

    dies: int = 32
    engines: int = 0
    """Data engines of large reads; 0: they fork over dies."""
    through: bool = False
    """Writes end on their dies; else in a buffer."""
    rounds: bool = False
    """No dies: one server that takes all that is queued."""


def built(template: DriveProfile, v: dict[str, float], structure: Structure) -> DriveProfile:
    """Return *template* with these values (ps, 1/s) and this structure.

    A slope is the time of each further unit: in the data engine, or in the drive's data path.
    """
    q = Quantity
    unit = template.read.unit.value
    update: dict[str, Any] = {
        "dies": q(value=structure.dies),
        "channels": q(value=min(8, structure.dies)),
    }
    if "latency" in v:
        base = v["latency"] * v["share"] / (1 + v["share"])
        read: dict[str, Any] = {
            "base": q(value=base),
            "die": q(value=v["latency"] - base),
            "die_cv": q(value=v["cv"]),
            "channel": q(value=min(CHANNEL_PS, 0.05 * v["latency"])),
        }
        update["commands"] = q(value=v["commands"])
        if structure.engines and "read_slope" in v:
            read["engines"] = q(value=structure.engines)
            read["split"] = q(value=v["read_slope"])
        elif "read_slope" in v:
            update["read_bandwidth"] = q(value=unit / v["read_slope"] * 1e12)
        update["read"] = template.read.model_copy(update=read)
    if "program" in v:
        through = structure.through
        write: dict[str, Any] = {
            "base": q(value=v["write_latency"]),
            "base_cv": q(value=0.1 if through else v["write_cv"]),
            "program": q(value=v["program"]),
            "program_cv": q(value=v["write_cv"] if through else 0.1),
            "through": through,
        }
        if "write_slope" in v:
            update["write_bandwidth"] = q(value=unit / v["write_slope"] * 1e12)
        update["write"] = template.write.model_copy(update=write)
    return template.model_copy(update=update)


def with_intervals(
    profile: DriveProfile,
    values: dict[str, float],
    bounds: Mapping[str, tuple[float, float]],
    source: str,
) -> DriveProfile:
    """Return *profile* with each fitted number's interval and source."""
    unit = profile.read.unit.value

    def q(value: float, low: float, high: float) -> Quantity:
        return Quantity(value=value, low=low, high=high, basis="fitted", source=source)

    def same(name: str, value: Quantity) -> Quantity:
        """Scaled as *name* is: base and die carry the relative interval of the latency."""
        low, high = bounds[name]
        scale = value.value / values[name]
        return q(value.value, low * scale, high * scale)

    def rate(name: str, value: Quantity) -> Quantity:
        low, high = bounds[name]
        return q(value.value, unit / high * 1e12, unit / low * 1e12)

    read, write, top = {}, {}, {}
    if "latency" in values:
        share = values["share"]
        low, high = bounds["share"]
        latency = values["latency"]
        wide = bounds["latency"][1] / latency
        base = [latency * s / (1 + s) for s in (low, share, high)]
        read["base"] = q(base[1], base[0] / wide, base[2] * wide)
        read["die"] = q(latency - base[1], (latency - base[2]) / wide, (latency - base[0]) * wide)
        read["die_cv"] = q(values["cv"], *bounds["cv"])
        top["commands"] = q(values["commands"], *bounds["commands"])
        if profile.read.engines is not None:
            read["split"] = same("read_slope", profile.read.split)
        elif "read_slope" in values:
            top["read_bandwidth"] = rate("read_slope", profile.read_bandwidth)
    if "program" in values:
        write["base"] = same("write_latency", profile.write.base)
        spread = "program_cv" if profile.write.through else "base_cv"
        write[spread] = q(values["write_cv"], *bounds["write_cv"])
        write["program"] = same("program", profile.write.program)
        if "write_slope" in values:
            top["write_bandwidth"] = rate("write_slope", profile.write_bandwidth)
    return profile.model_copy(
        update={
            **top,
            "read": profile.read.model_copy(update=read),
            "write": profile.write.model_copy(update=write),
        }
    )
