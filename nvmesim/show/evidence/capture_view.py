"""Output of `nvmesim trace` for one capture on a terminal: a headline and rows of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from nvmesim import units
from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.show.blocks import Block, Fold, Line, Warnings, table
from nvmesim.show.words import gigabytes, kiops, microseconds, percent, plural

OPS: Final[tuple[Op, ...]] = ("read", "write")
HEADINGS: Final = (
    "measurement", "<load", "<op", "count", "IOPS", "GB/s", "latency", "mean [us]", "p50 [us]",
    "p99 [us]", "p99.9 [us]", "CPU",
)  # fmt: skip
LISTED: Final = 20
"""Measurements of a file that are shown unless all are asked for."""


def blocks_of(capture: Capture) -> list[Block]:
    """What `nvmesim trace` prints of one file."""
    every = rows(capture)
    warnings = [*capture.warnings]
    for measurement in capture.measurements:
        warnings += [f"{measurement.label}: {w}" for w in measurement.warnings]
    parts: list[Block] = [
        Line(str(capture.file), "title"),
        Line(headline(capture), "soft"),
        table("Measurements", HEADINGS, every[:LISTED]),
    ]
    if len(every) > LISTED:
        rest = table("More measurements", HEADINGS, every[LISTED:])
        parts.append(Fold(f"{len(every) - LISTED} more measurements", (rest,)))
    return [*parts, Warnings(tuple(warnings))]


def _total(result: OpResult) -> Latency | None:
    """Total latency if its distribution is known, else completion latency."""
    if result.lat is not None and result.lat.percentiles_s:
        return result.lat
    return result.clat or result.lat or result.slat


def headline(capture: Capture) -> str:
    """Format, version and counts in one line."""
    parts = [f"{capture.format}{f' {capture.version}' if capture.version else ''}"]
    parts.append(plural(capture.rows, "row"))
    if capture.skipped:
        parts.append(f"{capture.skipped:,} skipped")
    parts.append(plural(len(capture.measurements), "measurement"))
    if capture.requests is not None:
        parts.append("every request is known")
    return ", ".join(parts)


def rows(capture: Capture) -> list[tuple[str, ...]]:
    """One row of texts for each operation of each measurement, as HEADINGS."""
    out = []
    for measurement in capture.measurements:
        if capture.format == "points":  # its label is the load; where it is from says more
            measurement = replace(measurement, label=measurement.source or "-")
        out += [_row(measurement, op, measurement.ops[op]) for op in OPS if op in measurement.ops]
        if measurement.mixed is not None:
            op = "unknown" if measurement.conditions.read_fraction is None else "both"
            out.append(_row(measurement, op, measurement.mixed))
    return out


def _row(measurement: Measurement, op: str, result: OpResult) -> tuple[str, ...]:
    latency = _total(result)
    known: Mapping[float, float] = latency.percentiles_s if latency else {}
    mean = microseconds(latency.mean_s if latency else None)
    if latency is result.clat and (latency is None or latency.mean_s is None) and result.lat:
        # A datasheet may give percentiles of one kind and the mean of the other.
        mean = f"{microseconds(result.lat.mean_s)} (lat)"
    cpu = measurement.cpu
    return (
        measurement.label,
        load_text(measurement.conditions),
        op,
        f"{result.count:,}" if result.count else "-",
        kiops(result.iops) if result.iops else "-",
        gigabytes(result.bytes_per_s) if result.bytes_per_s else "-",
        _kind(result, latency),
        mean,
        *(microseconds(known.get(p)) for p in (50.0, 99.0, 99.9)),
        percent(cpu.total_pct / 100) if cpu else "-",
    )


def _kind(result: OpResult, latency: Latency | None) -> str:
    """Which latency the row is of."""
    if latency is None:
        return "-"
    return "lat" if latency is result.lat else "slat" if latency is result.slat else "clat"


def load_text(conditions: Conditions) -> str:
    """The load in a few words.

    >>> load_text(Conditions(access="random", block_size=4096, jobs=2, iodepth=32))
    'random 4 KiB, 2x32'
    """
    parts = [f"{conditions.access or 'unknown access,'} {_size(conditions.block_size)}"]
    if conditions.jobs is not None or conditions.iodepth is not None:
        parts.append(f"{conditions.jobs or '?'}x{conditions.iodepth or '?'}")
    elif conditions.depth_mean is not None:
        parts.append(f"depth {conditions.depth_mean:.3g}")
    if conditions.targets is not None and conditions.targets > 1:
        parts.append(f"{conditions.targets} targets")
    return ", ".join(parts)


def _size(size: int | Mapping[int, float] | None) -> str:
    if isinstance(size, Mapping):
        return "mixed sizes"
    return units.format_size(size) if size else "?"
