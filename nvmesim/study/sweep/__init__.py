"""Many scenarios at once: a grid or samples of a scenario's keys."""

from nvmesim.study.sweep.api import Tally, sweep
from nvmesim.study.sweep.values import Span

__all__ = ["Span", "Tally", "sweep"]
