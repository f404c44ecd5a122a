"""Reshapes in a scenario: an array of Linux md that has got more members."""

from __future__ import annotations

from nvmesim import units
from nvmesim.catalog.profile import RaidEngineProfile
from nvmesim.errors import GeometryError
from nvmesim.raid.levels import Level
from nvmesim.raid.map import BLOCK
from nvmesim.raid.rebuild import LEAST_CHUNKS
from nvmesim.scenario.hardware import ResolveNotes
from nvmesim.scenario.schema import Scenario, VolumeSpec


def check_reshape(
    spec: VolumeSpec,
    level: Level,
    key: str,
    engine: RaidEngineProfile,
    n_members: int,
    scenario: Scenario,
) -> None:
    """Refuse a reshape that md does not make, or that no model is there for."""
    before = spec.reshape_from
    if before is None:
        return
    at = f"{key}.reshape_from is {before}"
    if not level.stripe_cache or engine.rows is None:
        hint = "a mirror gets a copy by recovery: degraded and rebuild"
        hint = hint if level.copies == "all" else "leave it out"
        raise GeometryError(
            f"{at}; only raid5 and raid6 of Linux md are reshaped here, not {level.name} of "
            f"{engine.name}: {hint}"
        )
    if not level.least <= before < n_members:
        raise GeometryError(
            f"{at}; it is the number of members before: {level.least} to {n_members - 1}, as the "
            f"array has {n_members} now"
        )
    for name in ("degraded", "rebuild", "check"):
        if getattr(spec, name):
            raise GeometryError(f"{at} and {key}.{name} is given, too; md does one of them")
    if spec.journal != "none":
        raise GeometryError(f"{at}; md does not reshape an array with a journal, leave that out")
    if scenario.workload:
        raise GeometryError(
            f"{at}; how long it takes is answered for an idle array only, leave workload out"
        )


def reshape_rows(spec: VolumeSpec, chunk: int, key: str, notes: ResolveNotes) -> int:
    """Rows of the stripe cache: in a reshape at least as many as md asks for, as mdadm sets them.

    Source: Linux drivers/md/raid5.c, check_stripe_cache.
    """
    least = LEAST_CHUNKS * chunk // BLOCK
    if spec.reshape_from is None or spec.cache_rows >= least:
        return spec.cache_rows
    notes.assume(
        f"{key}.stripe_cache_size: {least}, which mdadm sets for a reshape with chunks of "
        f"{units.format_size(chunk)}"
    )
    return least
