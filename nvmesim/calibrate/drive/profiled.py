"""Fitted numbers put into a profile, each with its interval and its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.drive.read_side import ReadFit, with_reads
from nvmesim.calibrate.drive.write_side import WriteFit
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile, Quantity

READ_KEYS: Final = {
    "base": "read.base", "die": "read.die", "cv": "read.die_cv", "commands": "commands",
    "dies": "dies",
}  # fmt: skip


def sources(points: Sequence[Point]) -> str:
    """Where *points* are from, and what they are."""
    files = dict.fromkeys(p.source for p in points if p.source)
    where = [p.name for p in points]
    named = ", ".join(files) if len(files) <= 4 else f"{len(files)} captures"
    return f"{named or 'points'}: {', '.join(where)}"


def with_read_sources(
    template: DriveProfile, found: ReadFit, points: Sequence[Point]
) -> DriveProfile:
    """Return *template* with the read side that was *found* in *points*."""
    source = sources(points)
    profile = with_reads(template, found.values)
    read = profile.read.model_copy(
        update={
            "base": found.quantity("base", source),
            "die": found.quantity("die", source),
            "die_cv": found.quantity("cv", source),
        }
    )
    dies = found.quantity("dies", source).model_copy(update={"value": float(found.dies)})
    return profile.model_copy(
        update={"dies": dies, "commands": found.quantity("commands", source), "read": read}
    )


def with_write_sources(
    found: WriteFit, points: Sequence[Point], columns: Mapping[str, Floats]
) -> DriveProfile:
    """Return the profile that was *found* with the sources of its write side.

    *columns*: dotted key -> float64[n_draws], those of `write_columns`: a program's time is open as
    far as the number of dies is.
    """
    source = sources(points)
    profile, w = found.profile, found.profile.write

    def fitted(name: str, value: float) -> Quantity:
        if name not in found.bounds:
            column = found.draws.get(name)
            low, high = (None, None) if column is None else np.quantile(column, (0.025, 0.975))
            return Quantity(value=value, low=low, high=high, basis="assumed")
        low, high = found.bounds[name]
        return Quantity(value=value, low=low, high=high, basis="fitted", source=source)

    update: dict[str, Quantity | None] = {"base": fitted("base", w.base.value)}
    if found.limit == "through":
        update["program_cv"] = fitted("cv", w.program_cv.value)
    else:
        update["base_cv"] = fitted("cv", w.base_cv.value)
    if found.limit == "controller" and w.commands is not None:
        update["commands"] = fitted("rate", w.commands.value)
    elif "rate" in found.bounds:
        low, high = (float(v) for v in np.quantile(columns["write.program"], (0.025, 0.975)))
        value = w.program.value
        update["program"] = Quantity(
            value=value, low=min(low, value), high=max(high, value), basis="fitted", source=source
        )
    return profile.model_copy(update={"write": w.model_copy(update=update)})


def read_columns(found: ReadFit) -> dict[str, Floats]:
    """Dotted key -> float64[n_draws] of the read side."""
    return {READ_KEYS[n]: column for n, column in found.draws.items()}


def write_columns(found: WriteFit, reads: Mapping[str, Floats]) -> dict[str, Floats]:
    """Dotted key -> float64[n_draws] of the write side, drawn along with *reads*."""
    through, w = found.limit == "through", found.profile.write
    out = {
        "write.base": found.draws["base"],
        "write.program_cv" if through else "write.base_cv": found.draws["cv"],
    }
    if "rate" not in found.draws:
        return out
    rate = found.draws["rate"]
    if found.limit == "controller" and w.commands is not None:
        out["write.commands"] = rate
    else:
        dies = reads.get("dies", np.full(len(rate), found.profile.dies.value))
        out["write.program"] = np.maximum(dies, 1.0) / rate * 1e12
    return out
