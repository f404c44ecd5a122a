"""How md paces a rebuild whose least speed was raised: by whichever of two is faster.

Above ``sync_speed_min`` md waits for each window of a rebuild before it sends the next, as long as
there is other IO; below it does not wait. So the rebuild gets what one window at a time gets beside
the load, or the least speed if that is more. Which one it is only a run can tell: a short one with
the first alone is made before. Source: Linux drivers/md/md.c, md_do_sync.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc
from nvmesim.model.lower import lower
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S

PILOT: Final = 3000
"""Requests of the load beside which the waiting rebuild is timed."""
USUAL_MIN: Final = 1_024_000
"""md's own least speed, bytes per second: so low that adding it to the other changes nothing."""


def with_rebuilds(scenario: ResolvedScenario, lowered: Lowered) -> tuple[ResolvedScenario, Lowered]:
    """*scenario* with the pace of each rebuild that has a raised minimum, lowered again if any."""
    raised = {v.index for v in scenario.volumes if v.rebuild and v.sync_speed_min > USUAL_MIN}
    if not raised or not scenario.workload:  # an idle array never waits
        return scenario, lowered
    waiting = _paced(scenario, dict.fromkeys(raised, "waiting"))
    trial = lower(waiting)
    batch = CompiledEngine(trial.network).advance(PILOT, HORIZON_PS)
    seconds = max((batch.end_ps - batch.start_ps) / PS_PER_S, 1e-12)
    rates = {
        info.volume: int(batch.stations[info.station, Acc.VISITS]) * info.unit_bytes / seconds
        for info in trial.rebuilds
    }
    chosen = {
        v.index: "waiting" if rates.get(v.name, 0.0) >= v.sync_speed_min else "forced"
        for v in scenario.volumes
        if v.index in raised
    }
    changed = _paced(scenario, chosen)
    return changed, (trial if changed == waiting else lower(changed))


def _paced(scenario: ResolvedScenario, paces: dict[int, str]) -> ResolvedScenario:
    volumes = tuple(
        replace(v, rebuild_pace=paces[v.index])  # type: ignore[arg-type]  # one of the three
        if v.index in paces
        else v
        for v in scenario.volumes
    )
    return replace(scenario, volumes=volumes)
