"""`nvmesim run --timeline`: every step of some requests, recorded by the SimPy engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario
    from nvmesim.show.charts.base import Drawing


def timeline(scenario: Scenario, *, seed: int | None = None) -> Drawing:
    """Simulate until the first requests are done and draw what each met, and when."""
    from nvmesim.show.charts.timeline import chart
    from nvmesim.study.timeline import timeline as recorded

    return chart(recorded(scenario, seed=seed))
