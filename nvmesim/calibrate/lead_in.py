"""Writes that fill a drive's buffer before requests of a capture are replayed on it.

A run out of the middle of a long capture finds the drive as the requests before it left it. What is
outstanding then is soon served, but a buffer that was full stays full where writes come as fast as
they are drained: begun empty, a replay would acknowledge all of them at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.catalog.profile import DriveProfile
from nvmesim.units import PS_PER_S

FIRST: Final = 32
"""Writes of a run that tell whether it began with a full buffer."""
WAITED: Final = 3.0
"""Their median latency, in units of what an acknowledgement takes, from which on it did. Assumed:
far above what an acknowledgement varies by, far below what the wait for a drain takes."""
SOON: Final = 0.1
"""Share of a capture's writes that are taken to have been acknowledged without a wait."""
BUSY: Final = 0.8
"""Share of the controller's rate at which the buffer is filled: commands do not pile up."""

EMPTIES: Final = 3.0
"""Time that a full buffer is left alone to drain, in units of what all dies together take: they do
not end together."""


def acknowledged_s(latency_s: Floats) -> float:
    """Seconds that a write of a capture takes without a wait; infinite if there is none.

    >>> acknowledged_s(np.array([1e-5] * 5 + [1e-3] * 5)).__round__(6)
    1e-05
    """
    return float(np.quantile(latency_s, SOON)) if len(latency_s) else float("inf")


def begins_full(latency_s: Floats, acknowledged: float) -> bool:
    """True if the first of a run's writes waited for the drain; float64[n] in order of arrival.

    >>> begins_full(np.full(40, 1e-3), 1e-5), begins_full(np.full(40, 1.5e-5), 1e-5)
    (True, False)
    """
    first = latency_s[:FIRST]
    return len(first) == FIRST and float(np.median(first)) > WAITED * acknowledged


def lead_in(profile: DriveProfile, size: int) -> Ints:
    """int64[n], ps from 0: arrivals of writes of *size* bytes that fill the buffer of *profile*.

    They begin when what the buffer held before is drained; the first real request may come one
    interval after the last. None where no buffer fills: the drive has none, or drains as fast as
    its controller takes commands.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> at = lead_in(drive, 4096)
    >>> bool(len(at) > drive.write.buffer.value / 4096 and (np.diff(at) > 0).all())
    True
    """
    write = profile.write
    units = -(-size // round(write.unit.value))
    rate = BUSY * profile.commands.value
    drained = profile.dies.value / write.program.value * PS_PER_S / units
    if write.through or profile.rounds is not None or rate <= drained:
        return np.zeros(0, np.int64)
    slots = write.buffer.value / write.unit.value / units
    count = int(np.ceil(slots * rate / (rate - drained)))
    at = EMPTIES * slots / drained + np.arange(count) / rate
    return np.round(at * PS_PER_S).astype(np.int64)
