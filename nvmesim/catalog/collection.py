"""Garbage collection that stalls writes: closed forms, to start a fit from and to test against.

Steady random writes pass one drain: between batches it takes ``drain`` writes a second, and after
every ``every`` writes comes a batch of ``length_s`` in which it takes ``rate``. Before it are
``slots`` of a buffer; writes wait once those are taken. The forms hold for steady arrivals x, more
than ``rate`` (a fluid). Sources: the figures of SSD-iq (PVLDB 18(11), 2025), whose delayed writes
wait uniformly long, once in so many writes whatever the rate is; that a drive divides its buffer
between user and collector by its free blocks: pblk (drivers/lightnvm/pblk-rl.c in Linux 4.12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchModel:
    """The numbers of a drive's batches; rates in writes of 4 KiB a second.

    >>> k5 = BatchModel(every=6518, length_s=10.7e-3, rate=67.9e3, slots=145, drain=588e3)
    >>> round(k5.knee), round(k5.ceiling)
    (81451, 317186)
    >>> f"{k5.longest_wait_s(150e3):.5f} s, {k5.delayed_share(150e3):.3f}"
    '0.00489 s, 0.206'
    """

    every: float
    length_s: float
    rate: float
    slots: float
    drain: float

    @property
    def knee(self) -> float:
        """Arrivals a second up to which the slots carry a batch over: nothing waits."""
        return self.rate + self.slots / self.length_s

    @property
    def ceiling(self) -> float:
        """Writes a second at saturation: V / (T + (V - r0 T) / mu)."""
        between = (self.every - self.rate * self.length_s) / self.drain
        return self.every / (self.length_s + between)

    def _stop_s(self, x: float) -> float:
        """Time for which the slots are all taken in a batch: T - B / (x - r0)."""
        return max(0.0, self.length_s - self.slots / (x - self.rate)) if x > self.rate else 0.0

    def longest_wait_s(self, x: float) -> float:
        """Wait of the last write of a batch at *x* arrivals a second: (T - B/(x-r0))(1 - r0/x)."""
        return self._stop_s(x) * (1 - self.rate / x) if x > self.rate else 0.0

    def delayed_share(self, x: float) -> float:
        """Share of writes that arrive while the slots are all taken: (x/V)(T - B/(x-r0))."""
        return min(1.0, x / self.every * self._stop_s(x))


def batch_of_waits(
    first: tuple[float, float], second: tuple[float, float], rate: float
) -> tuple[float, float]:
    """Length of a batch, s, and slots, from the longest waits (arrivals/s, s) at two rates.

    `BatchModel.longest_wait_s` is linear in both. ZeroDivisionError for one rate twice.

    >>> k5 = BatchModel(6518, 10.7e-3, 67.9e3, 145, 588e3)
    >>> waits = [(x, k5.longest_wait_s(x)) for x in (100e3, 150e3)]
    >>> length, slots = batch_of_waits(*waits, rate=67.9e3)
    >>> round(1e3 * length, 3), round(slots, 1)
    (10.7, 145.0)
    """
    (x, wait), (y, other) = first, second
    stop, later = wait / (1 - rate / x), other / (1 - rate / y)
    slots = (later - stop) / (1 / (x - rate) - 1 / (y - rate))
    return stop + slots / (x - rate), slots


def writes_between(x: float, share: float, length_s: float, slots: float, rate: float) -> float:
    """Writes from batch to batch, from the *share* of writes that are delayed at *x* a second.

    >>> round(writes_between(150e3, 0.205, 10.7e-3, 145, 67.9e3))
    6537
    """
    return x / share * (length_s - slots / (x - rate))


def drain_of_ceiling(ceiling: float, every: float, length_s: float, rate: float) -> float:
    """Drain between batches, from the writes a second at saturation (`BatchModel.ceiling`).

    >>> round(drain_of_ceiling(317_186, 6518, 10.7e-3, 67.9e3), -3)
    588000.0
    """
    return (every - rate * length_s) / (every / ceiling - length_s)


def write_amplification(spare: float) -> float:
    """Physical writes a user's write costs with *spare* space over the user's (0.11: 11 %).

    Uniform random writes, oldest block first: a / (a + W(-a exp(-a))), a = 1 + spare, W Lambert's
    principal branch. Source: Xiang and Kurkoski, arXiv 1110.4245. Greedy collection comes near
    (1 + s) / 2s: Desnoyers, SYSTOR 2012.

    >>> round(write_amplification(0.11), 1), round(write_amplification(0.28), 1)
    (5.2, 2.5)
    """
    from scipy.special import lambertw

    a = 1 + spare
    return a / (a + float(lambertw(-a * math.exp(-a)).real))


def program_of_reads(
    slope_s: float, writes: float, beyond_s: float, tail: float = 0.01
) -> tuple[float, float]:
    """Time of a program, and the time that each write keeps a die busy for reads, both in s.

    A read waits for the rest of a program with probability rho: P(wait > w) = rho (1 - w / tP), in
    the mean rho tP / 2. *slope_s* is that mean for each write a second (two rates give it); beside
    *writes* a second, a *tail* of reads waits longer than *beyond_s*. Of the two solutions that
    where rho is above twice the tail.

    >>> program, busy = program_of_reads(0.4675e-9, 150e3, 528.4e-6)
    >>> round(1e6 * program), round(1e6 * busy, 2)
    (550, 1.7)
    """
    product = 2 * slope_s * writes  # rho tP; tail = rho (1 - w / tP) is a quadratic in tP
    root = math.sqrt(max(0.0, product * product - 4 * tail * product * beyond_s))
    program = (product - root) / (2 * tail)
    return program, product / program / writes
