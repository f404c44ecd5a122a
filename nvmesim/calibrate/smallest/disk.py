"""Fit a disk of one arm: a positioning time, shorter the more requests it may choose from.

Rows of a SATA or SAS device whose lone random reads take milliseconds are an arm's, not flash's.
Few large sequential bytes a second may be an arm's, and what rows leave open of one (whether it
sorts what is queued, whether a write cache does) is carried on as other explanations.
Source: the catalog's `hdd-7200` (data sheets), whose variation and order of service are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.explanations import MODEL_ERROR, Explanation
from nvmesim.calibrate.drive.starting_point import streams_slowly
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
MOST_WRITES: Final = 2000.0
"""Random writes/s that no arm does, its cache sorting them: 912 to 1,164 were seen on 5 GB of a
disk behind a controller's cache (`calibration/held-out`, R06). Assumed: no more than twice that."""
BYTES_SHARE: Final = 0.5
"""Of its link, what a solid-state drive moves at least. Source: data sheets of SATA drives state
480 to 560 MB/s of 600."""
LEAST_SD: Final = 0.05
"""Least standard deviation of the logarithm of a positioning time. Assumed: repeats differ so."""
LAW_SD: Final = 0.15
"""Deviation of logarithms that the law of the nearest leaves, where explanations are compared.
Source: 0.19 of six depths of R06, 0.04 of two of R07 (`calibration/held-out`)."""
UNTOLD_SD: Final = 0.4
"""The same where no row tells it. Assumed: laptops' disks take 17 ms, the fastest 5."""
CACHED_SD: Final = 0.3
"""The same of a write that a cache sorts, where no row is of writes. Assumed."""
CACHED: Final = 1.5
"""Lone writes/s in units of lone reads/s from which on a write cache sorts them. Source: 2.3 to 4.8
times as many with one (`calibration/held-out`, R06 and R07), as many without."""
STREAMED: Final = {True: 0.8, False: 0.5}
"""Weight of an arm where large sequential reads (true), or writes alone, are as slow as one's, and
no row is random. Assumed: flash behind a full cache writes so slowly, few read so."""
IN_ORDER: Final = 0.15
"""Weight of a disk that serves one command at a time, where one depth is known. Assumed: behind
USB, old controllers and some bridges commands are not queued."""
WITH_CACHE: Final = 0.35
"""Weight of a write cache where no lone row tells it. Assumed: servers switch it off."""
BASE_PS: Final = 1e6
"""Arm's time of a write that a cache has sorted: the rate is its limit."""
DECIDES: Final = "random rows of 4 KiB (reads at depth 1 and at 32, writes at depth 1)"
SHORT_RUNS: Final = (
    "a disk's own write cache takes short runs of random writes and does many times as many; this "
    "is what lasts"
)


def arm_share(host: BenchHost, reads: Sequence[Point], others: Sequence[Point]) -> float:
    """How likely random *reads*, or without any the *others*, are an arm's: 1 if reads tell it."""
    if host.link.kind == "pcie":
        return 0.0
    if reads:
        return float(_is_arm(host, reads))
    writes = [p for p in others if p.random and not p.sync and p.read_fraction == 0]
    if writes:
        return STREAMED[True] * _is_arm(host, writes)
    is_told = any(p.read_fraction == 1 for p in others)
    return STREAMED[is_told] if streams_slowly(others) else 0.0


def _is_arm(host: BenchHost, points: Sequence[Point]) -> bool:
    """True if *points*, random ones, are those of an arm: slow alone, or few however deep."""
    shallow = min(points, key=lambda p: (p.outstanding, p.block_size))
    if max(p.iops / p.targets for p in points) > MOST_READS:
        return False
    bytes_s = shallow.block_size / (BYTES_SHARE * host.link.raw_bytes_per_s)
    if shallow.outstanding > 2 * shallow.targets:
        return shallow.targets / shallow.iops - bytes_s > 1 / MOST_READS
    return shallow.outstanding / shallow.iops - bytes_s > ARM_S


def without_bursts(points: Sequence[Point], host: BenchHost, notes: list[str]) -> list[Point]:
    """*points* but writes that the cache of an arm took, if reads tell one; *notes* get why."""
    reads = [p for p in points if p.random and p.read_fraction == 1]
    if arm_share(host, reads, ()) < 1:
        return list(points)
    fast = [p for p in points if p.random and p.read_fraction == 0
            and p.iops > MOST_WRITES * p.targets]  # fmt: skip
    if fast:
        notes.append(
            f"{fast[0].name}: {fast[0].iops:,.0f} writes/s are more than an arm does: the run was "
            "so short that the drive's cache took them; they are not fitted, and less will last"
        )
    return [p for p in points if p not in fast]


def fit_disks(
    template: DriveProfile, reads: Sequence[Point], writes: Sequence[Point]
) -> list[Explanation]:
    """The disk of one arm that random *reads* and *writes* tell, with the bytes of *template*.

    One for each way it may queue and write; their weights make 1, before the rows are looked at.
    """
    tags = get("drive", "hdd-7200").tags.value
    found = []
    for held, likely in ((tags, 1 - IN_ORDER), (1.0, IN_ORDER)):
        for is_cached, share in _caches(reads, writes):
            made = _fit_disk(template, reads, writes, held, is_cached)
            found.append(replace(made, weight=likely * share))
    return found


def _caches(reads: Sequence[Point], writes: Sequence[Point]) -> list[tuple[bool, float]]:
    """Whether a cache takes the writes, by how many are done alone, and how likely that is."""
    lone = [[p.iops / p.targets for p in rows if p.outstanding <= p.targets]
            for rows in (reads, writes)]  # fmt: skip
    if all(lone):
        return [(max(lone[1]) > CACHED * max(lone[0]), 1.0)]
    return [(False, 1 - WITH_CACHE), (True, WITH_CACHE)]


def _fit_disk(
    template: DriveProfile, reads: Sequence[Point], writes: Sequence[Point], held: float,
    is_cached: bool,
) -> Explanation:  # fmt: skip
    like = get("drive", "hdd-7200")
    read_ps, read_sd, cost = _positioning(like, reads, held)
    numbers: dict[str, Any] = {
        "dies": like.dies, "channels": like.channels, "commands": like.commands, "tags": held,
        "sorts": True, "read": like.read, "write": like.write, "read.die": read_ps,
    }  # fmt: skip
    for name in ("read_bandwidth", "write_bandwidth"):
        if getattr(template, name).basis == "assumed":  # else rows or a data sheet tell it
            numbers[name] = getattr(like, name)
    key, value, sd, more = "write.program", read_ps, 2 * read_sd, 0.0
    if is_cached:
        key, sd = "write.commands", CACHED_SD
        value = 1e12 / (read_ps * nearest_share(like.read.die_cv.value, round(like.tags.value)))
        numbers |= {"write.program": BASE_PS, "write_caveat": SHORT_RUNS}
        if writes:
            value, sd, more = _mean([math.log(p.iops / _busy(p)) for p in writes])
    elif writes:
        value, sd, more = _positioning(like, writes, held)
    profile = with_numbers(template, numbers | {key: value})
    normal = np.random.default_rng(5).standard_normal((2, DRAWS))
    columns: dict[str, Floats] = {
        "read.die": read_ps * np.exp(read_sd * normal[0]), key: value * np.exp(sd * normal[1]),
    }  # fmt: skip
    loose = [k for k, told in (("read.die", reads), (key, writes)) if not told]
    profile = with_draws(profile, columns, sources([*reads, *writes]), loose)
    how = "serves the nearest first" if held > 1 else "serves one command at a time"
    if is_cached:
        how += ", and a write cache sorts what it holds"
    return Explanation(
        profile, joint=columns, title=f"an arm that {how}", decides=DECIDES, cost=cost + more,
        notes=(f"reads: an arm that takes {read_ps / 1e9:.1f} ms to a place; it {how}",),
        unidentified={} if reads else dict.fromkeys(loose, DECIDES),
    )  # fmt: skip


def _positioning(
    like: DriveProfile, points: Sequence[Point], held: float
) -> tuple[float, float, float]:
    """Mean time of the arm for one request, ps, by *points*, its logarithm's error, their cost."""
    if not points:
        return like.read.die.value, UNTOLD_SD, 0.0
    cv = like.read.die_cv.value
    logs = []
    for p in points:
        inside = max(1, min(round(held), round(p.outstanding / p.targets)))
        logs.append(math.log(_busy(p) / p.iops / nearest_share(cv, inside)))
    rest = like.read.base.value / 1e12
    found, sd, cost = _mean(logs)
    return max(found - rest, rest) * 1e12, sd, cost


def _busy(point: Point) -> int:
    """Arms that move for *point*: no more than requests are in flight."""
    return min(point.targets, point.outstanding)


def _mean(logs: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of what *logs* are logarithms of, its error, half a chi-square of them."""
    spread = float(np.std(logs))
    cost = MODEL_ERROR**2 * len(logs) * (spread / LAW_SD) ** 2 / 2
    return math.exp(float(np.mean(logs))), max(LEAST_SD, spread / math.sqrt(len(logs))), cost
