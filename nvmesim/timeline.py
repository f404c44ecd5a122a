"""`ns.timeline`: every step of the first requests, recorded by the SimPy engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from nvmesim.engine.reference import ReferenceEngine, Step
from nvmesim.model.lowered import Lowered
from nvmesim.scenario.schema import Scenario
from nvmesim.simulate import prepare
from nvmesim.units import PS_PER_US

if TYPE_CHECKING:
    from nvmesim.result.charts_base import Drawing

REQUESTS: Final = 12
MOST_LANES: Final = 72
"""Lanes (requests and their commands) that one picture shows."""


@dataclass(frozen=True, repr=False)
class Timeline:
    """What the first requests met, and when."""

    scenario: str
    steps: pl.DataFrame
    """A row a step: request, command (0: the request itself), station, kind, and arrives_us,
    waits_us, served_us, leaves_us, all in us since the load began."""

    def chart(self, requests: int | None = None) -> Drawing:
        """A lane for each of the first *requests* and its commands; thin: waits, thick: served."""
        from nvmesim.result.charts_timeline import request_timeline

        return request_timeline(_lanes(self.steps, requests))

    def __repr__(self) -> str:
        """Return one line: the scenario and how much was recorded."""
        n = self.steps["request"].n_unique()
        return f"<Timeline {self.scenario!r}: {len(self.steps)} steps of {n} requests>"

    def _repr_mimebundle_(self, *args: Any, **kwds: Any) -> Any:
        """What a notebook shows: the chart."""
        return self.chart()._repr_mimebundle_(*args, **kwds)


def timeline(scenario: Scenario, *, requests: int = REQUESTS, seed: int | None = None) -> Timeline:
    """Simulate until the first *requests* are done and return every step that they took.

    >>> one = timeline(Scenario(
    ...     server={"sockets": [{"cpu": "xeon-gold-6130"}]},
    ...     drives=[{"profile": "sata-ssd"}], workload={"outstanding": 1}), requests=1)
    >>> "drive" in one.steps["kind"], one.steps["leaves_us"].max() > 50
    (True, True)
    """
    ready = prepare(scenario, "simpy", seed)
    engine = ReferenceEngine(ready.lowered.network, seed=ready.seed, timeline=requests)
    # Those submitted first may finish late: enough others are let through to wait for them.
    engine.advance(requests + 4 * ready.load.in_flight)
    return Timeline(ready.name, _frame(engine.steps(), ready.lowered))


def _frame(steps: list[Step], lowered: Lowered) -> pl.DataFrame:
    """Finished steps by request and command, in their order."""
    names = lowered.network.station_names
    kinds = {
        station: info.kind
        for info in lowered.stations
        for station in range(info.first, info.first + info.count)
    }
    rows = [
        {"request": s.request, "command": s.child, "station": names[s.station],
         "kind": kinds.get(s.station, "delay"), "arrives_us": s.arrive_ps / PS_PER_US,
         "waits_us": (s.start_ps - s.arrive_ps) / PS_PER_US,
         "served_us": (s.depart_ps - s.start_ps) / PS_PER_US,
         "leaves_us": s.depart_ps / PS_PER_US}
        for s in sorted(steps, key=lambda s: (s.request, s.child, s.arrive_ps))
        if s.depart_ps >= 0
    ]  # fmt: skip
    return pl.DataFrame(rows)


def _lanes(steps: pl.DataFrame, requests: int | None) -> list[dict[str, Any]]:
    """Rows for the chart: of the first *requests*, and no more lanes than can be seen."""
    rows: list[dict[str, Any]] = []
    lanes: dict[tuple[int, int], None] = {}
    for step in steps.iter_rows(named=True):
        if requests is not None and step["request"] >= requests:
            break
        lanes.setdefault((step["request"], step["command"]))
        if len(lanes) > MOST_LANES:
            break
        start = step["arrives_us"] + step["waits_us"]
        rows.append({"request": step["request"], "child": step["command"],
                     "station": step["station"], "kind": step["kind"], "start": start,
                     "arrive": step["arrives_us"], "depart": step["leaves_us"]})  # fmt: skip
    return rows
