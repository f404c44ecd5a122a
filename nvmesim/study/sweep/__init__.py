"""Many scenarios at once: a grid or samples of a scenario's keys."""

from nvmesim.study.sweep.api import SweepTally, sweep
from nvmesim.study.sweep.plan import SweptRange

__all__ = ["SweepTally", "SweptRange", "sweep"]
