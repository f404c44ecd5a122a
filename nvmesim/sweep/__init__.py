"""Many scenarios at once: sweeps, rankings, and what an answer depends on."""

from nvmesim.sweep.api import Tally, sweep
from nvmesim.sweep.ranking import Ranking, rank
from nvmesim.sweep.sensitivity import sensitivity
from nvmesim.sweep.values import Span

__all__ = ["Ranking", "Span", "Tally", "rank", "sensitivity", "sweep"]
