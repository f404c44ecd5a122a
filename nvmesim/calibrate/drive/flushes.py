"""Time of a flush, from rows of writes that wait for one each, beside rows that do not.

Linux sends no flush to a device without a volatile cache, so what such a row costs more is the
host's; a volatile drive executes one at a time. Source: Linux block/blk-core.c (submit_bio_noacct)
and block/blk-flush.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.read_side import Progress, host_ps
from nvmesim.calibrate.drive.starting_point import sources
from nvmesim.calibrate.evidence import drawn, with_draws, with_numbers
from nvmesim.calibrate.infer.optimum import optimum
from nvmesim.calibrate.infer.problem import Parameter, logarithms, problem_of
from nvmesim.calibrate.points import LONE_S, Point
from nvmesim.catalog.profile import DriveProfile, Quantity

LEAST_PS: Final = 0.2e6
"""Shortest flush that is fitted, ps."""
VOLATILE_PS: Final = 100e6
"""Time of a flush from which on a drive is taken to empty a volatile cache. Measured: 0.7 to 2 us
beside a drive with capacitors, 28 in a cloud guest, 450 to 900 on a consumer drive (github
mdcallag/mytools e1ba3d9, fio runs of December 2025)."""
SLOW_READ_S: Final = 300e-6
"""Time of a lone small read from which on a disk is no flash beside the host: data sheets say 60 to
115 us."""
SERIAL: Final = 0.25
"""Share of a flush for which the drive does nothing else, where one row alone tells the flush:
those that wait share the next one, so N threads do N / 2 writes in the time of a flush, 4 of 8
threads. Source: block/blk-flush.c (double buffering)."""
SERIAL_SD: Final = 0.6
"""Standard deviation of its logarithm: threads whose queues differ share no flush (1, measured on a
consumer drive, mdcallag as above), drives that flush several at a time have less. Assumed."""


def fit_flush(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress
) -> tuple[DriveProfile, list[str]]:
    """*profile* with the flush that the rows of *points* with fdatasync tell, else those of fsync.

    The two differ by a file system's journal; with both, the drive's flush is that of fdatasync.
    A drive whose flush is short has capacitors: it is sent none.
    """
    for kind in ("fdatasync", "fsync"):
        rows = [p for p in points if p.sync == kind]
        if rows:  # a flush takes as long whatever was written; large writes bring more than that
            least = min(p.block_size for p in rows)
            rows = [p for p in rows if p.block_size == least]
            break
    else:
        return profile, []
    tell("flushes")
    notes = []
    if kind == "fdatasync" and any(p.sync == "fsync" for p in points):
        notes.append(
            "rows with fsync were not fitted: what they take beyond fdatasync is the journal of a "
            "file system, which is no part of a drive"
        )
    alone = min(rows, key=lambda p: (p.outstanding, p.block_size))
    written = profile.write.base.value if alone.mean_s is None else alone.mean_s * 1e12
    took = max(alone.outstanding / alone.iops * 1e12 - written, 2 * LEAST_PS)
    if took < VOLATILE_PS:
        return _with_flush(profile, None, None), notes
    # one flush at a time: the busiest row tells how long each of them holds the drive
    serial, sd = min(took, 1e12 / max(p.iops / p.targets for p in rows)), 0.0
    if len({p.outstanding for p in rows}) == 1:
        serial, sd = SERIAL * took, SERIAL_SD
    flush = max(took - host_ps(host), 2 * LEAST_PS)
    parameters = [
        Parameter("flush", flush, low=flush / 3, high=3 * flush),
        Parameter("flush_serial", serial, low=serial / 4, high=4 * serial, prior_sd=sd),
    ]

    def made(u: Floats) -> DriveProfile:
        return _with_flush(profile, *np.exp(u).tolist())

    plain = [replace(p, percentiles_s={}, body_s={}, mean_s=None) for p in rows]
    problem = problem_of(plain, logarithms(parameters), made, host)
    found = optimum(problem, effort=0.5)
    columns = np.exp(drawn(problem, found)).T
    keyed = {f"write.{n}": column for n, column in zip(problem.names, columns, strict=True)}
    return with_draws(made(found.values), keyed, sources(rows)), notes


def is_volatile(points: Sequence[Point], host: BenchHost) -> bool:
    """Return whether rows that all flush wait for flash: no cache takes a write for so long.

    A lone read that takes as long is of a disk behind a network, or of an arm.
    """
    lone = [p for p in points if p.outstanding == p.targets == 1 and not p.raid]
    flushed = [p for p in lone if p.read_fraction == 0 and p.sync == "fdatasync"]
    if not flushed or host.link.kind not in ("pcie", "sata", "sas"):
        return False
    reads = [1 / p.iops for p in lone if p.read_fraction == 1 and p.block_size <= 1 << 14]
    took = min(1 / p.iops for p in flushed) - LONE_S[False]
    return took > VOLATILE_PS / 1e12 and all(s < SLOW_READ_S for s in reads)


def _with_flush(
    profile: DriveProfile, flush_ps: float | None, serial_ps: float | None
) -> DriveProfile:
    """*profile* with a volatile cache whose flush takes so long; None: with capacitors."""
    update: dict[str, Quantity | bool | None] = {"write.volatile": flush_ps is not None}
    for name, value in (("flush", flush_ps), ("flush_serial", serial_ps)):
        update[f"write.{name}"] = None if value is None else Quantity(value=value)
    return with_numbers(profile, update)
