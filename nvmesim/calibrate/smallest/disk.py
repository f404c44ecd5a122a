"""Fit a disk of one arm: a positioning time, shorter the more requests it may choose from.

Rows of a SATA or SAS device whose lone random reads take milliseconds are an arm's, not flash's.
Source: the catalog's `hdd-7200` (data sheets), whose variation and order of service are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.explanations import Explanation
from nvmesim.calibrate.evidence import with_draws
from nvmesim.calibrate.infer.problem import DRAWS
from nvmesim.calibrate.points import Point, sources
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import with_numbers
from nvmesim.network.distributions import nearest_share

ARM_S: Final = 2.5e-3
"""Time of a lone random read from which on an arm moved. Source: short strokes of data sheets take
3 ms with half a turn; flash and its interface 0.1 to 0.3."""
MOST_READS: Final = 1000.0
"""Random reads/s that no arm does. Source: 7200 to 15000 rpm do 70 to 200 alone, 400 sorted."""
BYTES_SHARE: Final = 0.5
"""Of its link, what a solid-state drive moves at least. Source: data sheets of SATA drives state
480 to 560 MB/s of 600."""
LEAST_SD: Final = 0.05
"""Least standard deviation of the logarithm of a positioning time. Assumed: repeats differ so."""


def is_disk(host: BenchHost, reads: Sequence[Point]) -> bool:
    """True if *reads*, random ones, are those of an arm: slow alone, or few however deep."""
    shallow = min(reads, key=lambda p: (p.outstanding, p.block_size), default=None)
    if shallow is None or host.link.kind == "pcie":
        return False
    if max(p.iops / p.targets for p in reads) > MOST_READS:
        return False
    bytes_s = shallow.block_size / (BYTES_SHARE * host.link.raw_bytes_per_s)
    if shallow.outstanding > 2 * shallow.targets:
        return shallow.targets / shallow.iops - bytes_s > 1 / MOST_READS
    return shallow.outstanding / shallow.iops - bytes_s > ARM_S


def fit_disk(
    template: DriveProfile, reads: Sequence[Point], writes: Sequence[Point]
) -> Explanation:
    """The disk of one arm that random *reads* and *writes* tell, with the bytes of *template*."""
    like = get("drive", "hdd-7200")
    read_ps, read_sd = _positioning(like, reads)
    write_ps, write_sd = _positioning(like, writes) if writes else (read_ps, 2 * read_sd)
    profile = with_numbers(template, {
        "dies": like.dies, "channels": like.channels, "commands": like.commands,
        "tags": like.tags, "sorts": True, "read": like.read, "write": like.write,
        "read.die": read_ps, "write.program": write_ps,
    })  # fmt: skip
    normal = np.random.default_rng(5).standard_normal((2, DRAWS))
    columns: dict[str, Floats] = {
        "read.die": read_ps * np.exp(read_sd * normal[0]),
        "write.program": write_ps * np.exp(write_sd * normal[1]),
    }
    loose = [] if writes else ["write.program"]
    profile = with_draws(profile, columns, sources([*reads, *writes]), loose)
    note = (
        f"reads: an arm that takes {read_ps / 1e9:.1f} ms to a place; it serves the nearest first"
    )
    return Explanation(profile, joint=columns, notes=(note,))


def _positioning(like: DriveProfile, points: Sequence[Point]) -> tuple[float, float]:
    """Mean time of the arm for one request, ps, by *points*, and its logarithm's deviation."""
    cv, most = like.read.die_cv.value, round(like.tags.value)
    logs = []
    for p in points:
        inside = max(1, min(most, round(p.outstanding / p.targets)))
        logs.append(math.log(p.targets / p.iops / nearest_share(cv, inside)))
    rest = like.read.base.value / 1e12
    found = max(math.exp(float(np.mean(logs))) - rest, rest)
    return found * 1e12, max(LEAST_SD, float(np.std(logs)) / math.sqrt(len(logs)))
