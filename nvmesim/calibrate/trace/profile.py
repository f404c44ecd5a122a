"""The profile that a fit to a trace makes of its parameters, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nvmesim.calibrate.drive.read_side import CHANNEL_PS, CHANNEL_SHARE
from nvmesim.catalog.profile import DriveProfile, Quantity

SPLIT = 0.25
"""Width of the interval of the constant part, as a share of a lone read's latency, from which on
the trace hardly tells it from the die's."""


@dataclass(frozen=True)
class Structure:
    """Values that are tried in turn and not searched."""

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
            "channel": q(value=min(CHANNEL_PS, CHANNEL_SHARE * v["latency"])),
        }
        if "commands" in v:
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


def told_keys(profile: DriveProfile, values: Mapping[str, float]) -> list[str]:
    """Dotted keys of *profile*'s numbers that `built` made of *values*, and the dies."""
    keys = ["dies"]
    if "latency" in values:
        keys += ["read.base", "read.die", "read.die_cv"]
        keys += ["commands"] if "commands" in values else []
        if "read_slope" in values:
            keys.append("read.split" if profile.read.engines is not None else "read_bandwidth")
    if "program" in values:
        spread = "program_cv" if profile.write.through else "base_cv"
        keys += ["write.base", f"write.{spread}", "write.program"]
        keys += ["write_bandwidth"] if "write_slope" in values else []
    return keys


def split_doubt(profile: DriveProfile, source: str) -> list[str]:
    """Caveat where *source* hardly tells a read's constant part from its die's.

    Both are the same in the latency of a lone read; only who waits for a busy die tells them apart.
    """
    base, die = profile.read.base, profile.read.die
    if base.low is None or base.high is None or die.low is None or die.high is None:
        return []
    if base.high - base.low < SPLIT * (base.value + die.value):
        return []
    return [
        f"{source}: how a read's {(base.value + die.value) / 1e6:.3g} us divide is a guess from "
        f"this trace: {base.low / 1e6:.2g} to {base.high / 1e6:.2g} us constant, "
        f"{die.low / 1e6:.2g} to {die.high / 1e6:.2g} us on a die; a sweep at several depths "
        "decides"
    ]
