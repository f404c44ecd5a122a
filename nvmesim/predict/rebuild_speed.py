"""Md's speed limits of a rebuild: said where they are what holds it."""

from __future__ import annotations

from typing import Final

from nvmesim.measure.figures import Rebuild
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import format_bandwidth
from nvmesim.warning import Warning

AT_LIMIT: Final = 0.97
"""Share of ``sync_speed_max`` from which on it is what holds a rebuild."""


def speed_limits(scenario: ResolvedScenario, rebuild: Rebuild | None) -> list[Warning]:
    """Say that ``sync_speed_max`` holds *rebuild*, and what the least speed then means."""
    if rebuild is None:
        return []
    volume = next(v for v in scenario.volumes if v.name == rebuild.volume)
    if rebuild.bytes_per_s < AT_LIMIT * volume.sync_speed_max:
        return []
    text = (
        f"{volume.name}: sync_speed_max, {format_bandwidth(volume.sync_speed_max)} of each member, "
        "limits it, not the drives or md: raise it (md's default is 200,000 KiB/s) to "
        "know what they can"
    )
    return [Warning("sync-speed-max", text, volume.name)]
