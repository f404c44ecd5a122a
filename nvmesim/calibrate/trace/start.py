"""Where the search for a trace's drive begins, from the trace alone."""

from __future__ import annotations

import numpy as np

from nvmesim.calibrate.arrivals import Arrivals

UNIT = 4096
LONE_DIES = 32
"""Assumed where nothing tells, as for a sweep at depth 1."""
MOST_COMMANDS = 10
"""Ceiling on commands per second that is looked for, in units of the highest rate in the trace:
above it a trace does not tell one ceiling from another."""


class Start:
    """Where a search begins, from the trace alone; times ps."""

    def __init__(self, a: Arrivals) -> None:
        self.writes = a.write
        self.unit = UNIT if int(a.size.min()) <= UNIT else int(a.size.min())
        self.units = max(1, -(-int(a.size[~a.write].max(initial=0)) // self.unit))
        rows: list[tuple[str, float, float, float, float]] = []
        slope_r = slope_w = 0.0
        if not a.write.all():
            latency, slope_r = self._line(a, write=False)
            rate = peak_rate(a)
            rows += [
                ("latency", latency, latency / 5, latency * 3, 0.02),
                ("share", 0.3, 2e-3, 50.0, 0.2),
                ("cv", 0.2, 0.01, 1.5, 0.1),
            ]
            # A lone request waits for no other: its pace says nothing of the controller's.
            if int(a.depth.max()) > 1:
                rows.append(("commands", 3 * rate, rate, MOST_COMMANDS * rate, 0.1))
            if self.units > 1:
                rows.append(("read_slope", slope_r / 3, slope_r / 100, slope_r * 10, 0.05))
        if a.write.any():
            latency, slope_w = self._line(a, write=True)
            program = 2 * latency if a.write.all() else max(latency, self._line(a, write=False)[0])
            if a.full:  # writes then come as fast as all dies drain
                program = self._deep_dies(a) / drained(a, self.unit) * 1e12
            rows += [
                ("write_latency", latency, latency / 20, latency * 3, 0.02),
                ("write_cv", 0.2, 0.01, 1.5, 0.1),
                ("program", program, program / 100, program * 30, 0.1),
            ]
            if int(a.size[a.write].max()) > self.unit:
                rows.append(("write_slope", slope_w, slope_w / 30, slope_w * 10, 0.05))
        self.names = [r[0] for r in rows]
        self.values = [r[1] for r in rows]
        self.low = [r[2] for r in rows]
        self.high = [r[3] for r in rows]
        self.steps = [r[4] for r in rows]
        self.is_lone = int(a.depth.max()) <= 1
        """True if each request was served alone: no other waits for a die or the controller."""
        self.dies = self._deep_dies(a)

    @staticmethod
    def _deep_dies(a: Arrivals) -> int:
        """Dies that a search begins with: as many as were ever asked at once, about."""
        if int(a.depth.max()) <= 1:
            return LONE_DIES
        return int(np.clip(np.quantile(a.depth, 0.99), 4, 64))

    def _line(self, a: Arrivals, *, write: bool) -> tuple[float, float]:
        """Latency of one unit at small depth, and what each unit more adds, ps.

        The lower quartile: what hardly waited.
        """
        of_op = a.write == write
        shallow = of_op & (a.depth <= np.quantile(a.depth[of_op], 0.25))
        sizes = [int(s) for s in np.unique(a.size[shallow])]
        quartile = [float(np.quantile(a.latency_s[shallow & (a.size == s)], 0.25)) for s in sizes]
        first = quartile[0] * 1e12
        if len(sizes) < 2:
            return first, max(1e5, first / 50)
        slope = (quartile[-1] * 1e12 - first) / max(1, (sizes[-1] - sizes[0]) // self.unit)
        return first, max(1e5, slope)


def drained(a: Arrivals, unit: int) -> float:
    """Units written per second in the runs of *a* that began with a full buffer, on average."""
    units = took = 0.0
    for start, stop in a.full:
        wrote = a.write[start:stop]
        units += float(np.ceil(a.size[start:stop][wrote] / unit).sum())
        took += float(a.at_ps[stop - 1] - a.at_ps[start]) / 1e12
    return units / max(took, 1e-12)


def peak_rate(a: Arrivals) -> float:
    """Most requests per second over any 64 arrivals in a row."""
    step = min(64, len(a) - 1)
    spans = a.at_ps[step:] - a.at_ps[:-step]
    return float(step / max(1, int(spans.min())) * 1e12)
