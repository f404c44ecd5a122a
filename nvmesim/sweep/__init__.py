"""Many scenarios at once: sweeps, rankings, and what an answer depends on."""

from nvmesim.sweep.api import Tally, sweep
from nvmesim.sweep.values import Span

__all__ = ["Span", "Tally", "sweep"]
