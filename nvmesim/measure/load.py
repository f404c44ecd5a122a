"""Facts about a load that the controller of a run needs, and how full the write buffers are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.engine.contract import Acc
from nvmesim.measure.steady import Window
from nvmesim.units import PS_PER_S

DRIFT: Final = 0.03
"""Share of what goes into a write buffer that must stay in it for the buffer to count as filling.
"""
CHANCE: Final = 4.0
"""Standard deviations beyond which a buffer's level did not move by chance."""


@dataclass(frozen=True)
class RunLoad:
    """Facts about the load that the controller needs."""

    is_open: bool = False
    """Requests arrive by the clock."""
    replayed: bool = False
    """Arrivals end: a trace. Then nothing is warm-up, all of it is the answer."""
    bursts: bool = False
    """Requests arrive in bursts: their number in a window says how many bursts it saw."""
    in_flight: int = 0
    """Requests that a closed loop keeps; there is no warm-up shorter than a few rounds."""
    servers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """int64[n_stations]: servers where requests queue for service, else 0; empty: not looked at."""
    buffers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Gates of write buffers: full or not, they must have settled."""
    buffer_slots: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def _levels(window: Window, load: RunLoad) -> Floats:
    """float64[n_groups, n_buffers]: mean share of each write buffer's slots in use."""
    return np.array(
        [
            sum(s.stations[load.buffers, 2] for s in group)
            / sum(s.duration_ps for s in group)
            / load.buffer_slots
            for group in window.groups(8)
        ]
    )


def drifting(window: Window, load: RunLoad) -> int:
    """1 if a write buffer fills or has only just filled, -1 if one empties, 0 if settled."""
    if not load.buffers.size or window.duration_ps <= 0:
        return 0
    late = _levels(window, load)[-5:]
    if len(late) < 5:
        return 0
    groups = window.groups(8)[-5:]
    entered = sum(s.stations[load.buffers, Acc.VISITS] for g in groups[1:] for s in g)
    moved = (late[-1] - late[0]) * load.buffer_slots
    least = np.minimum(DRIFT * entered, 0.02 * load.buffer_slots)
    clear = np.abs(moved) > np.maximum(least, CHANCE * np.sqrt(2 * entered))
    step = np.diff(late, axis=0) * load.buffer_slots
    one_way = ((step >= 0).all(axis=0) & (moved > 0)) | ((step <= 0).all(axis=0) & (moved < 0))
    sure = clear & one_way
    if (sure & (moved > 0)).any():
        return 1
    return -1 if sure.any() else 0


def fill_share(window: Window, load: RunLoad) -> float:
    """Mean share of the write buffers' slots in use at the end of *window*."""
    return float(np.clip(_levels(window, load)[-1].mean(), 0.0, 1.0))


def fill_level(window: Window, load: RunLoad) -> tuple[float, float]:
    """Share of the fullest filling buffer in use, and the seconds until it is full."""
    levels = _levels(window, load)
    rise = (levels[-1] - levels[-5]) / 4
    buffer = int(np.argmax(np.where(rise > 0, levels[-1], -1.0)))
    eighth = window.duration_ps / len(levels) / PS_PER_S
    left = (1 - float(levels[-1, buffer])) / max(float(rise[buffer]), 1e-12) * eighth
    return float(levels[-1, buffer]), left
