"""Which class of server and load a prediction belongs to: the error of the model differs by it."""

from __future__ import annotations

from typing import Final

from nvmesim.scenario.resolved import ResolvedScenario, Volume

CPU_BOUND: Final = "CPU-bound"
CLASSES: Final = (
    "drives alone", CPU_BOUND, "shared targets", "md reads", "md parity writes", "mirrors",
    "mixes", "degraded and rebuilding", "links", "Storage Spaces", "hardware RAID",
    "other RAID engines", "Windows",
)  # fmt: skip


def model_class(scenario: ResolvedScenario, verdict: str = "") -> str:
    """Return the class of *scenario*, stopped by *verdict* (empty: not known yet).

    The part that is least like a drive by itself names it: RAID before mixes before processors.
    """
    used = {t.index for g in scenario.workload for t in g.targets if t.kind == "volume"}
    volumes = [v for v in scenario.volumes if v.index in used]
    if volumes:
        return _of_volume(volumes[0], scenario)
    if scenario.stack.name.startswith("windows"):
        return "Windows"
    if verdict == "link":
        return "links"
    if any(0 < g.read < 1 for g in scenario.workload):
        return "mixes"
    if verdict == "cpu":
        return CPU_BOUND
    return "shared targets" if _shares_targets(scenario) else "drives alone"


def _of_volume(volume: Volume, scenario: ResolvedScenario) -> str:
    if volume.engine.name.startswith("storage-spaces"):
        return "Storage Spaces"
    if volume.engine.runs_on == "controller" or volume.engine.name.startswith("intel-vroc"):
        return "hardware RAID"
    if volume.engine.merge == "none" and volume.engine.name != "none":
        return "other RAID engines"  # what was learned of Linux md says nothing of these
    if volume.degraded or volume.rebuild:
        return "degraded and rebuilding"
    if all(g.read == 1 for g in scenario.workload):
        return "md reads"
    level = volume.raid
    if level.parity:
        return "md parity writes"
    return "mixes" if level.copies == "one" else "mirrors"


def _shares_targets(scenario: ResolvedScenario) -> bool:
    return any(not g.threads_are_per_target and len(g.targets) > 1 for g in scenario.workload)
