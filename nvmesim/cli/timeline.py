"""`nvmesim run --timeline`: every step of some requests, recorded by the SimPy engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from altair import LayerChart

    from nvmesim.engine.reference import Step
    from nvmesim.model.lowered import Lowered
    from nvmesim.scenario.schema import Scenario

REQUESTS: Final = 12
MOST_LANES: Final = 72
"""Lanes (requests and their children) that a page shows."""


def timeline(
    scenario: Scenario, *, seed: int | None = None, requests: int = REQUESTS
) -> LayerChart:
    """Simulate until the first *requests* are done and draw what each met, and when."""
    from nvmesim.engine.reference import ReferenceEngine
    from nvmesim.result.charts_timeline import request_timeline
    from nvmesim.simulate import prepare

    ready = prepare(scenario, "simpy", seed)
    engine = ReferenceEngine(ready.lowered.network, seed=ready.seed, timeline=requests)
    # Those submitted first may finish late: enough others are let through to wait for them.
    engine.advance(requests + 4 * ready.load.in_flight)
    return request_timeline(_rows(engine.steps(), ready.lowered))


def _rows(steps: list[Step], lowered: Lowered) -> list[dict[str, Any]]:
    names = lowered.network.station_names
    kinds = {
        station: info.kind
        for info in lowered.stations
        for station in range(info.first, info.first + info.count)
    }
    rows: list[dict[str, Any]] = []
    lanes: dict[tuple[int, int], None] = {}
    for step in sorted(steps, key=lambda s: (s.request, s.child, s.arrive_ps)):
        lanes.setdefault((step.request, step.child))
        if len(lanes) > MOST_LANES:
            break
        if step.depart_ps < 0:
            continue
        rows.append(
            {
                "request": step.request,
                "child": step.child,
                "station": names[step.station],
                "kind": kinds.get(step.station, "delay"),
                "arrive": step.arrive_ps / 1e6,
                "start": step.start_ps / 1e6,
                "depart": step.depart_ps / 1e6,
            }
        )
    return rows
