"""Drives without dies: delays as captured, and a disk that serves in rounds.

A disk of rounds is a virtual disk's host thread, which moves the data itself.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.catalog.profile import DriveProfile, EmpiricalLatencies, Rounds, Stalls
from nvmesim.errors import ScenarioError
from nvmesim.network.builder import Batches, Builder, Row, const, ints, op
from nvmesim.network.distributions import Stop, pausing_table
from nvmesim.network.network import Kind, Op
from nvmesim.scenario.resolved import Drive
from nvmesim.units import PS_PER_S

SMALLEST: Final = 4096
"""Bytes up to which a command takes the same time."""


class EmpiricalLatency:
    """A delay station for each operation that *table* holds, less *host_ps* of the host's time.

    It draws runs of the capture's own samples.
    """

    def __init__(
        self, b: Builder, drive: Drive, table: EmpiricalLatencies, host_ps: int
    ) -> None:  # fmt: skip
        self._drive = drive
        self._series: dict[bool, tuple[int, int]] = {}
        for write, samples in ((False, table.read_us), (True, table.write_us)):
            if samples:
                ticks = np.maximum(1, np.round(np.asarray(samples) * 1e6) - host_ps)
                name = f"{drive.name} {'write' if write else 'read'}"
                station = b.station(name, Kind.DELAY)
                row = b.add_series(ints(ticks.astype(np.int64)), min(table.block, len(samples)))
                self._series[write] = (station, row)
                b.report(f"{name} latency", "delay", station, drive=drive.index)

    def check(self, write: bool) -> None:
        """Raise ScenarioError where the capture has no such latencies."""
        if write not in self._series:
            raise ScenarioError(
                f"drives: profile {self._drive.profile.name!r} holds no "
                f"{'write' if write else 'read'} latencies; calibrate it on a capture that has them"
            )

    def rows(self, write: bool) -> list[Row]:
        """Operations of one command."""
        (station, row), delay = self._series[write], self._drive.delay_ps
        away = [const(station, delay)] if delay else []
        return [*away, op(Op.VISIT_SERIES, station, row)]


def batches(b: Builder, rounds: Rounds) -> Batches:
    """The one server of rounds.

    No port: the guest's memory is the host's. A link's time for each of n commands would let some
    of them miss their round, which the captures do not show (writes at depth 64: p99 1.05 ms, where
    a PCIe 4 x4 port makes it 1.38).
    """
    base = b.dist(_pausing(rounds, rounds.base.value, rounds.base_cv.value))
    most = max(1, round(rounds.most.value))
    return Batches(most, 0, base, gathers=True)


@dataclass(frozen=True)
class RoundService:
    """A server of rounds at *station*, and its rows."""

    b: Builder
    profile: DriveProfile
    rounds: Rounds
    station: int

    def row(self, write: bool, n_bytes: int, held_ps: int, delay_ps: int, slot: int) -> Row:
        """The constant part less *held_ps*, the host's, and the command's part of a round."""
        p, rounds = self.profile, self.rounds
        side = p.write.base if write else p.read.base
        each = rounds.write if write and rounds.write is not None else rounds.read
        rate = p.write_bandwidth.value if write else p.read_bandwidth.value
        more = max(0, n_bytes - SMALLEST) * PS_PER_S / rate
        stalls = rounds.write_stalls if write else rounds.read_stalls
        dist = self.b.dist(_pausing(rounds, each.value, rounds.cv.value, stalls))
        delay = max(0, round(side.value) - held_ps) + delay_ps
        return op(Op.VISIT, self.station, dist, round(more), delay, slot=slot)


def _pausing(rounds: Rounds, mean_ps: float, cv: float, stalls: Stalls | None = None) -> Ints:
    """Table of a part of a round, with the pauses that hit so long a part, and its own stalls."""
    stops = []
    if rounds.pauses is not None:
        p = rounds.pauses
        share = min(0.5, mean_ps / p.every.value)
        stops.append(Stop(share, p.length.value, p.cv.value, p.law))
    if stalls is not None:
        stops.append(Stop(stalls.share.value, stalls.length.value, stalls.cv.value))
    return pausing_table(mean_ps, cv, tuple(stops))
