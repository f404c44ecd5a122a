"""What a load asks of a drive that its captures did not tell: said with the prediction."""

from __future__ import annotations

from collections.abc import Iterator

from nvmesim.catalog.profile import DriveProfile
from nvmesim.scenario.resolved import ResolvedScenario


def doubts(scenario: ResolvedScenario) -> list[str]:
    """Warnings of the drives of *scenario* under its load, once for each profile.

    No interval holds what they are about.
    """
    profiles = {d.profile.name: d.profile for d in scenario.drives}
    depth = sum(g.in_flight for g in scenario.workload) / len(scenario.drives)
    reads = {g.read for g in scenario.workload}
    said: list[str] = []
    for profile in profiles.values():
        said += [*_replayed(profile, depth), *_unmeasured(profile, reads), *_missed(profile, reads)]
    return said


def _replayed(profile: DriveProfile, depth: float) -> Iterator[str]:
    table = profile.latencies
    if table is not None and abs(depth - table.queue_depth) > 0.1 * table.queue_depth:
        yield (
            f"{profile.name}: latencies were captured at queue depth {table.queue_depth} "
            f"and are replayed at {depth:g}; the prediction is not to be trusted there"
        )


def _unmeasured(profile: DriveProfile, reads: set[float]) -> Iterator[str]:
    if profile.writes_unmeasured and min(reads) < 1:
        yield (
            f"{profile.name}: no writes were measured, what they cost is assumed and in no "
            "interval; calibrate with a capture of writes"
        )


def _missed(profile: DriveProfile, reads: set[float]) -> Iterator[str]:
    """Repeat what the calibration missed of loads of this kind."""
    kinds = {_kind(read) for read in reads}
    for op, error in profile.missed.items():
        of = "mixed" if "rw:" in op else op.removeprefix("rand")
        if of in kinds:
            less = "less" if error > 0 else "more"
            yield (
                f"{profile.name}: captures of {op} did {less} than this profile predicts, which is "
                f"off by up to {100 * error:+.0f} % IOPS; so may this load be, beyond its interval"
            )


def _kind(read: float) -> str:
    return {1.0: "read", 0.0: "write"}.get(read, "mixed")
