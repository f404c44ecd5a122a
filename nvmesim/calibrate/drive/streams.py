"""Bandwidths of a drive from its sequential rows; and the rows that no drive's link carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.infer.optimum import misfit, solve
from nvmesim.calibrate.points import Point
from nvmesim.catalog.links import command_ceiling
from nvmesim.catalog.profile import DriveProfile, Quantity

Key = Literal["read_bandwidth", "write_bandwidth"]
REQUESTS: Final = 3_000
LARGER_PAYLOAD: Final = 512
"""Largest TLP payload that is assumed where a row needs more than the usual one carries."""


def streams(points: Sequence[Point], *, read: bool) -> list[Point]:
    """Sequential rows of one operation, without flushes; a full thread tells no bandwidth."""
    share = 1.0 if read else 0.0
    return [
        p for p in points
        if not (p.random or p.sync or p.is_cpu_bound) and p.read_fraction == share
    ]  # fmt: skip


def fit_stream(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], key: Key, source: str
) -> DriveProfile:
    """Return *profile* with the bandwidth at *key* that *points* tell."""
    top = max(p.iops * p.block_size / p.targets for p in points)

    def made(rate: float) -> DriveProfile:
        return profile.model_copy(update={key: Quantity(value=rate)})

    def residuals(x: Floats) -> list[float]:
        drive = made(float(x[0]))
        return [
            r
            for p in points
            for r in misfit(
                replace(p, percentiles_s={}),
                measure(drive, host, p, requests=REQUESTS + 10 * p.outstanding),
            )
        ]

    found = solve(residuals, [1.02 * top], step=0.03, rounds=4, low=[0.9 * top], high=[20 * top])
    rate = float(found.values[0])
    half = 0.02 * rate
    quantity = Quantity(
        value=rate, low=rate - half, high=rate + half, basis="fitted", source=source
    )
    return profile.model_copy(update={key: quantity})


def with_payload(host: BenchHost, points: Sequence[Point]) -> tuple[BenchHost, list[str]]:
    """*host* with a link whose payload carries *points*, if it is only assumed; and what is said.

    A row beyond any payload of the link names the row.
    """
    for p in sorted(points, key=lambda p: -p.iops * p.block_size):
        op: Literal["read", "write"] = "read" if p.read_fraction >= 0.5 else "write"
        share = max(p.read_fraction, 1 - p.read_fraction)
        needed = p.iops * share / p.targets
        if needed <= command_ceiling(host.link, op, p.block_size):
            continue
        wide = replace(host.link, mps=LARGER_PAYLOAD)
        if needed <= 1.001 * command_ceiling(wide, op, p.block_size):
            said = (
                f"{p.name}: {needed * p.block_size / 1e9:.3g} GB/s need payloads of "
                f"{LARGER_PAYLOAD} bytes on {host.link}; the usual {host.link.mps} carry "
                f"{command_ceiling(host.link, op, p.block_size) * p.block_size / 1e9:.3g}"
            )
            return replace(host, link=wide), [said]
    return host, []


def bandwidth(points: Sequence[Point], default: float, *, read: bool) -> float:
    """Bandwidth to begin with, bytes/s: what is assumed must not cap what was measured."""
    moved = [
        p.iops * p.block_size * (p.read_fraction if read else 1 - p.read_fraction) / p.targets
        for p in points
    ]
    return float(np.maximum(default, 2 * max(moved, default=0.0)))
