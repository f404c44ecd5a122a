"""Misfit of a profile to its own captures, carried over to another load.

A profile keeps a residual a captured row: logarithm of model over measured. They are read as one
smooth function of the load (a Gaussian process over the share of reads, the logarithms of size and
depth, and the drives a thread serves): near a captured row the prediction moves by what was missed
there, far from all of them the doubt grows to what the profile misses anywhere. Source: Rasmussen
and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1; Kennedy and O'Hagan
2001 for its use as a model's discrepancy.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.catalog.profile import DriveProfile, Residual
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.scenario.resolved import ResolvedScenario

LENGTHS: Final = (0.35, 2.0, 2.5, 1.5)
"""Over which a residual loses what it says: share of reads, doublings of the size, of the depth,
and of the drives a thread serves. Assumed: a mix of 70 % reads tells about one of 50 %, little
about pure writes; 4 KiB about 16 KiB, little about 64 KiB."""
LEAST: Final = 0.03
"""Least standard deviation of what a profile misses where nothing was captured."""
NOISE: Final = 0.015
"""Standard error of a captured row that states none: 1.5 %, as repeats of fio runs scatter."""
FIGURES: Final = {"iops": "iops", "mean": "mean", "p50": "p50", "p99": "p99", "p99.9": "p99_9"}
"""Figure of a prediction -> field of a residual."""


@dataclass(frozen=True)
class Misfit:
    """How a figure's logarithm moves, and its standard deviation."""

    shift: float = 0.0
    deviation: float = 0.0

    @property
    def half(self) -> float:
        """95 % half-width, of the logarithm."""
        return Z95 * self.deviation


@dataclass(frozen=True)
class Where:
    """A load as misfits are looked up by."""

    read: float
    size: float
    depth: float
    drives_per_thread: float
    sequential: bool = False
    sync: str = ""
    path: tuple[str, str] = ("raw", "none")
    """File system and guest."""

    def point(self) -> tuple[float, ...]:
        """Coordinates in units of `LENGTHS`."""
        raw = (self.read, math.log2(self.size), math.log2(max(self.depth, 0.125)),
               math.log2(max(self.drives_per_thread, 1.0)))  # fmt: skip
        return tuple(x / length for x, length in zip(raw, LENGTHS, strict=True))


def misfit(scenario: ResolvedScenario, figure: str = "iops", share: float = 1.0) -> Misfit:
    """Misfit of the drives' profiles in *figure* under this load, by the drives' *share* of it.

    Drives of several profiles count by their number; a drive that does not matter to the answer (a
    processor is full) does not move it, unless its rows were measured on this stack: what they miss
    is then the stack's as well.
    """
    places, stack = list(_places(scenario)), scenario.stack.name
    has_volume = any(t.kind == "volume" for g in scenario.workload for t in g.targets)
    shifts: list[float] = []
    deviations: list[float] = []
    for drive in scenario.drives:
        captured = drive.profile.captured
        is_whole = not has_volume and captured is not None and captured.stack == stack
        part = 1.0 if is_whole else share
        each = [of_profile(drive.profile, where, figure) for where in places]
        worst = max(each, key=lambda m: m.deviation, default=Misfit())
        shifts.append(part * sum(m.shift for m in each) / max(1, len(each)))
        deviations.append(part * worst.deviation)
    if not shifts:
        return Misfit()
    return Misfit(sum(shifts) / len(shifts), sum(deviations) / len(deviations))


def of_profile(profile: DriveProfile, where: Where, figure: str = "iops") -> Misfit:
    """Return what *profile* misses at *where*.

    >>> from nvmesim.catalog.load import get
    >>> of_profile(get("drive", "intel-p4610-1.6tb"), Where(1.0, 4096, 32, 1))
    Misfit(shift=0.0, deviation=0.0)
    """
    field = FIGURES.get(figure, "")
    told = [r for r in profile.residuals if not (r.stated or r.held_out)]
    kept = [r for r in told if getattr(r, field, None) is not None]
    alike = [r for r in kept if (r.sequential, r.sync) == (where.sequential, where.sync)]
    alike = [r for r in alike if (r.filesystem, r.guest) == where.path] or alike
    if alike:
        return _process(alike, field, where)
    plain = [r for r in kept if not r.sequential and not r.sync]
    if plain:  # of another kind of load: as far off, in no direction
        return replace(_process(plain, field, where), shift=0.0)
    return _stated(profile, where) if is_calibrated(profile) else Misfit()


def is_calibrated(profile: DriveProfile) -> bool:
    """Return whether *profile* comes from captures: its main numbers were measured or fitted."""
    if profile.latencies is not None:
        return True
    if profile.rounds is not None:
        return profile.rounds.read.basis in ("fitted", "measured")
    known = [q.basis in ("fitted", "measured") for q in (profile.read.die, profile.commands)]
    return all(known)


def _places(scenario: ResolvedScenario) -> Iterator[Where]:
    """Where the load lies for each of the scenario's drives: of each group one place."""
    drives = len(scenario.drives)
    for g in scenario.workload:
        is_shared = not g.threads_are_per_target or any(t.kind == "volume" for t in g.targets)
        flush = "" if not g.sync_every else "fsync" if g.commits else "fdatasync"
        yield Where(
            g.read, g.mean_size, (1 if g.is_open else g.in_flight) / max(1, drives),
            float(drives) if is_shared else 1.0, g.access == "sequential",
            "sync" if g.write_through else flush, (g.filesystem, g.guest),
        )  # fmt: skip


def _process(rows: Sequence[Residual], field: str, where: Where) -> Misfit:
    """What is missed at *where*, by Gaussian-process regression over the *field* of *rows*."""
    points = np.array([
        Where(r.read, r.block_size, r.depth, r.drives_per_thread).point() for r in rows
    ])  # fmt: skip
    values = np.array([float(getattr(r, field)) for r in rows])
    noise = np.array([NOISE if r.noise is None else max(r.noise, 1e-3) for r in rows])
    prior = max(LEAST**2, float(np.mean(values**2)))
    among = prior * _kernel(points, points) + np.diag(noise**2)
    to = prior * _kernel(points, np.array(where.point())[None])[:, 0]
    weights = np.linalg.solve(among, np.stack([values, to], axis=1))
    shift = float(to @ weights[:, 0])
    left = max(0.0, prior - float(to @ weights[:, 1]))
    return Misfit(-shift, math.sqrt(left))


def _kernel(a: Floats, b: Floats) -> Floats:
    distance = ((a[:, None] - b[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-distance / 2))


def _stated(profile: DriveProfile, where: Where) -> Misfit:
    """From the largest misses that an older profile names; a mix inherits those of its parts."""
    kind = {0.0: "write", 1.0: "read"}.get(where.read, "rw")
    every = {op: abs(error) for op, error in profile.missed.items()}
    kinds = {op: next((k for k in ("rw", "write") if k in op), "read") for op in every}
    own = [error for op, error in every.items() if kinds[op] == kind]
    worst = max(own or (every.values() if kind == "rw" else ()), default=0.0)
    return Misfit(0.0, max(LEAST, math.log1p(worst) / Z95))
