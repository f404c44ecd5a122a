"""Sets whose drive and stack are fitted as `nvmesim calibrate` does, on input rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.fit import fit_stack
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import Frozen
from nvmesim.errors import InputError
from nvmesim.study.validate.published import InputFit, Row, read_set
from nvmesim.study.validate.question import Question

PERCENTILES = {"clat_p50_us": 50.0, "clat_p99_us": 99.0, "clat_p99_9_us": 99.9}
UNITS = {"time": (1e6, " us"), "rate": (1e3, "k/s"), "bandwidth": (1e9, " GB/s")}


def with_drive(question: Question) -> tuple[Question, tuple[tuple[str, float, str], ...]]:
    """Return *question* with the fitted stack and drive in its scenario, and the numbers found.

    The fit is handed points that are made of input rows and of nothing else; its numbers keep the
    intervals and the joint draws that it found.
    """
    asked = question.drive_fit
    assert asked is not None
    points = _points(question, asked)
    found = fit_stack(points, ghz=asked.ghz, name="fitted", link=asked.link)
    if found.drive is None:  # pragma: no cover - fit_stack always fits the drive behind it
        raise InputError(f"{question.name}: no drive was fitted")
    parts = {"server.stack": found.profile, "drives.0.profile": found.drive}
    scenario = dict(question.scenario)
    scenario["server"] = {**scenario["server"], "stack": found.profile.model_dump(mode="json")}
    drive = {**scenario["drives"][0], "profile": found.drive.model_dump(mode="json")}
    scenario["drives"] = [drive, *scenario["drives"][1:]]
    numbers = tuple(_numbers(parts))
    return replace(question, scenario=scenario, drive_fit=None), numbers


def _points(question: Question, asked: InputFit) -> Sequence[Point]:
    """One point per configuration that has an IOPS input row."""
    source = question
    if asked.set:
        source = Question.of(read_set((question.folder / asked.set).resolve()))
    rows: dict[str, dict[str, Row]] = {}
    for row in source.inputs:
        rows.setdefault(row.config, {})[row.metric] = row
    points = [_point(name, rows[name], source) for name in rows if "iops" in rows[name]]
    if not points:
        raise InputError(f"{question.name}: drive_fit has no input row of IOPS")
    return points


def _point(name: str, rows: Mapping[str, Row], question: Question) -> Point:
    shape = question.configs[name].point
    if shape is None:
        raise InputError(f"{question.name}: config {name!r} needs point = [jobs, iodepth]")
    jobs, depth = shape
    iops = rows["iops"].number
    mean, cpu = rows.get("lat_mean_us"), rows.get("thread_cpu_pct")
    return Point(
        label=name,
        read_fraction=1.0,
        random=True,
        block_size=4096,
        jobs=jobs,
        iodepth=depth,
        iops=iops,
        mean_s=mean.number / 1e6 if mean else None,
        percentiles_s={p: rows[m].number / 1e6 for m, p in PERCENTILES.items() if m in rows},
        cpu_s=cpu.number / 100 * jobs / iops if cpu else None,
        per_job_pct=cpu.number if cpu else None,
        source=f"{question.name}, {name}",
    )


def _fitted(parts: Mapping[str, Frozen]) -> Iterator[tuple[str, Any]]:
    for where, profile in parts.items():
        for key, quantity in quantities(profile):
            if quantity.basis == "fitted":
                yield f"{where}.{key}", quantity


def _numbers(parts: Mapping[str, Frozen]) -> Iterator[tuple[str, float, str]]:
    for key, quantity in _fitted(parts):
        scale, unit = _unit(key)
        yield key, quantity.value / scale, unit.strip()


def _unit(key: str) -> tuple[float, str]:
    last = key.rpartition(".")[2]
    if last in ("base", "die", "channel", "split", "wakeup_half"):
        return UNITS["time"]
    if last == "commands":
        return UNITS["rate"]
    return 1.0, ""
