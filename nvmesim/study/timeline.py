"""`ns.timeline`: every step of the first requests, recorded by the SimPy engine."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nvmesim.drawing import Charted
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.predict.prepare import prepare
from nvmesim.scenario.schema import Scenario
from nvmesim.units import PS_PER_US

REQUESTS: Final = 12


@dataclass(frozen=True, repr=False)
class Timeline(Charted):
    """Visits of the first requests, and when."""

    scenario: str
    steps: pl.DataFrame
    """A row a step: request, command (0: the request itself), station, kind, and arrives_us,
    waits_us, served_us, leaves_us, all in us since the load began."""

    def __repr__(self) -> str:
        n = self.steps["request"].n_unique()
        return f"<Timeline {self.scenario!r}: {len(self.steps)} steps of {n} requests>"

    def _repr_mimebundle_(self, *args: Any, **kwds: Any) -> Any:
        """HTML that a notebook shows: the chart."""
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
    engine = ready.engine(timeline=requests)
    assert isinstance(engine, ReferenceEngine)
    # Those submitted first may finish late: enough others are let through to wait for them.
    engine.advance(requests + 4 * ready.load.in_flight)
    names = ready.lowered.network.station_names
    kinds = {
        station: info.kind
        for info in ready.lowered.stations
        for station in range(info.first, info.first + info.count)
    }
    steps = [
        {"request": s.request, "command": s.child, "station": names[s.station],
         "kind": kinds.get(s.station, "delay"), "arrives_us": s.arrive_ps / PS_PER_US,
         "waits_us": (s.start_ps - s.arrive_ps) / PS_PER_US,
         "served_us": (s.depart_ps - s.start_ps) / PS_PER_US,
         "leaves_us": s.depart_ps / PS_PER_US}
        for s in sorted(engine.steps(), key=lambda s: (s.request, s.child, s.arrive_ps))
        if s.depart_ps >= 0
    ]  # fmt: skip
    return Timeline(ready.name, pl.DataFrame(steps))
