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
from nvmesim.calibrate.drive.profiled import sources
from nvmesim.calibrate.drive.read_side import Progress, host_ps
from nvmesim.calibrate.evidence import drawn
from nvmesim.calibrate.infer.figures import problem_of
from nvmesim.calibrate.infer.optimum import optimum
from nvmesim.calibrate.infer.problem import Parameter, logarithms
from nvmesim.calibrate.joint import with_draws
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile, Quantity

LEAST_PS: Final = 0.2e6
"""Shortest flush that is fitted, ps."""
VOLATILE_PS: Final = 100e6
"""Time of a flush from which on a drive is taken to empty a volatile cache. Measured: 0.7 to 2 us
beside a drive with capacitors, 28 in a cloud guest, 450 to 900 on a consumer drive (github
mdcallag/mytools e1ba3d9, fio runs of December 2025)."""


def fit_flush(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress
) -> tuple[DriveProfile, list[str]]:
    """*profile* with the flush that the rows of *points* with fdatasync tell, else those of fsync.

    The two differ by a file system's journal; with both, the drive's flush is that of fdatasync.
    """
    for kind in ("fdatasync", "fsync"):
        rows = [p for p in points if p.sync == kind]
        if rows:
            break
    else:
        return profile, []
    tell("flushes")
    alone = min(rows, key=lambda p: (p.outstanding, p.block_size))
    took = alone.outstanding / alone.iops - (alone.mean_s or 0.0)
    start = max(took * 1e12 - host_ps(host), 2 * LEAST_PS)
    volatile = took * 1e12 > VOLATILE_PS

    def made(u: Floats) -> DriveProfile:
        flush = Quantity(value=float(np.exp(u[0])))
        write = profile.write.model_copy(update={"flush": flush, "volatile": volatile})
        return profile.model_copy(update={"write": write})

    flush = Parameter("flush", start, low=LEAST_PS, high=8 * start + LEAST_PS, step=0.05)
    plain = [replace(p, percentiles_s={}, body_s={}, mean_s=None) for p in rows]
    problem = problem_of(plain, logarithms([flush]), made, host)
    found = optimum(problem, effort=0.5)
    draws = found.values + drawn(found.jacobian, found.residuals)
    columns = {"write.flush": np.exp(np.clip(draws[:, 0], problem.low[0], problem.high[0]))}
    fitted = with_draws(made(found.values), columns, sources(rows))
    notes = []
    if kind == "fdatasync" and any(p.sync == "fsync" for p in points):
        notes.append(
            "rows with fsync were not fitted: what they take beyond fdatasync is the journal of a "
            "file system, which is no part of a drive"
        )
    return fitted, notes
