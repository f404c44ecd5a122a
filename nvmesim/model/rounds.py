"""A disk that serves in rounds: a virtual disk's host thread, which moves the data itself."""

from dataclasses import dataclass
from typing import Final

from nvmesim.array_types import Ints
from nvmesim.catalog.profile import DriveProfile, Rounds, Stalls
from nvmesim.network.builder import Batches, Builder, Row, op
from nvmesim.network.distributions import Stop, pausing_table
from nvmesim.network.network import Op
from nvmesim.units import PS_PER_S

SMALLEST: Final = 4096
"""Bytes up to which a command takes the same time."""


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
