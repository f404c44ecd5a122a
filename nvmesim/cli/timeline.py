"""`nvmesim run --timeline`: every step of some requests, recorded by the SimPy engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nvmesim.result.charts_base import Drawing
    from nvmesim.scenario.schema import Scenario


def timeline(scenario: Scenario, *, seed: int | None = None) -> Drawing:
    """Simulate until the first requests are done and draw what each met, and when."""
    from nvmesim.timeline import timeline as recorded

    return recorded(scenario, seed=seed).chart()
