"""What was measured: the rows of a capture, and why a server does not do what was predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nvmesim import units
from nvmesim.capture.capture import Capture, Conditions, Measurement, Op, OpResult
from nvmesim.measure.figures import Interval
from nvmesim.show.blocks import Block, Cell, Facts, Fold, Line, Warnings, present, table
from nvmesim.show.page import document
from nvmesim.show.words import gigabytes, kiops, microseconds, percent, plural
from nvmesim.units import format_iops

if TYPE_CHECKING:
    from nvmesim.study.diagnosis.findings import ComparedRow, Diagnosis, Explanation

OPS: Final[tuple[Op, ...]] = ("read", "write")
HEADINGS: Final = (
    "measurement", "<load", "<op", "count", "IOPS", "GB/s", "latency", "mean [us]", "p50 [us]",
    "p99 [us]", "p99.9 [us]", "CPU",
)  # fmt: skip
LISTED: Final = 20
"""Measurements of a file that are shown unless all are asked for."""
LIKELY: Final = 0.01
"""Probability of an explanation that is shown; JSON has all."""
SURE: Final = 0.5
"""Probability that nothing is wrong from which no explanation is shown."""
CLEAR: Final = 0.8
"""The same from which it is said so plainly."""
WIDE: Final = 2.0
"""Upper over lower end of an interval from which a row tells little."""


def capture_blocks(capture: Capture) -> list[Block]:
    """A headline with format and counts, and a row for each operation of each measurement."""
    every = rows(capture)
    warnings = [f"{m.label}: {w}" for m in capture.measurements for w in m.warnings]
    counts = [
        f"{capture.format} {capture.version}" if capture.version else capture.format,
        plural(capture.rows, "row"),
        f"{capture.skipped:,} skipped" if capture.skipped else "",
        plural(len(capture.measurements), "measurement"),
        "every request is known" if capture.requests is not None else "",
    ]
    rest = table("More measurements", HEADINGS, every[LISTED:])
    return present(
        Line(str(capture.file), "title"), Line(", ".join(filter(None, counts)), "soft"),
        table("Measurements", HEADINGS, every[:LISTED]),
        Fold(f"{len(rest.rows)} more measurements", (rest,)) if rest.rows else None,
        Warnings((*capture.warnings, *warnings)),
    )  # fmt: skip


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
    """Total latency if its distribution is known, else completion latency."""
    kinds = {"lat": result.lat, "clat": result.clat, "slat": result.slat}
    if not (result.lat and result.lat.percentiles_s):
        kinds = {"clat": result.clat, "lat": result.lat, "slat": result.slat}
    kind, latency = next(((k, v) for k, v in kinds.items() if v is not None), ("-", None))
    known: Mapping[float, float] = latency.percentiles_s if latency else {}
    mean = microseconds(latency.mean_s if latency else None)
    if kind == "clat" and latency and latency.mean_s is None and result.lat:
        # A datasheet may give percentiles of one kind and the mean of the other.
        mean = f"{microseconds(result.lat.mean_s)} (lat)"
    return (
        measurement.label,
        load_text(measurement.conditions),
        op,
        f"{result.count:,}" if result.count else "-",
        kiops(result.iops) if result.iops else "-",
        gigabytes(result.bytes_per_s) if result.bytes_per_s else "-",
        kind,
        mean,
        *(microseconds(known.get(p)) for p in (50.0, 99.0, 99.9)),
        percent(measurement.cpu.total_pct / 100) if measurement.cpu else "-",
    )


def load_text(conditions: Conditions) -> str:
    """The load in a few words.

    >>> load_text(Conditions(access="random", block_size=4096, jobs=2, iodepth=32))
    'random 4 KiB, 2x32'
    """
    size = conditions.block_size
    sizes = "mixed sizes" if isinstance(size, Mapping) else units.format_size(size) if size else "?"
    parts = [f"{conditions.access or 'unknown access,'} {sizes}"]
    if conditions.jobs is not None or conditions.iodepth is not None:
        parts.append(f"{conditions.jobs or '?'}x{conditions.iodepth or '?'}")
    elif conditions.depth_mean is not None:
        parts.append(f"depth {conditions.depth_mean:.3g}")
    if conditions.targets is not None and conditions.targets > 1:
        parts.append(f"{conditions.targets} targets")
    return ", ".join(parts)


def diagnosis_page(found: Diagnosis) -> str:
    """Return a diagnosis as one HTML page that loads nothing."""
    title = Line(found.scenario, "title")
    return document(f"{found.scenario} · nvmesim diagnose", [title, *diagnosis_blocks(found)])


def diagnosis_blocks(found: Diagnosis) -> list[Block]:
    """Rows beside their predictions, what to measure next, what explains the difference."""
    from nvmesim.study.diagnosis.findings import FITS

    wide = max((row.predicted for row in found.rows), key=lambda p: p.high / p.low)
    is_calm = _is_calm(found)
    shown: list[Block] = [Line(_headline(found), "head"), _compared(found)]
    if is_calm and wide.high / wide.low > WIDE:
        shown.append(Line(
            f"{_around(wide)} is wide: what costs less would not be seen. `nvmesim measure` and a "
            "profile of this drive narrow all rows; another load tells more of the server."
        ))  # fmt: skip
    if found.is_unexplained:
        shown.append(_unexplained(found))
    if not is_calm or (found.next is not None and wide.high / wide.low > WIDE):
        shown.append(Line(_next(found), "head"))
    if not is_calm:
        likely = [e for e in found.explanations if e.probability >= FITS]
        shown.append(_explanations(found))
        shown += [block for e in likely for block in _advice(e)]
    noted = (*found.notes, *(f"left out: {reason}" for reason in found.left_out))
    return [*shown, Warnings(noted)] if noted else shown


def _compared(found: Diagnosis) -> Block:
    rows: list[list[str | Cell]] = []
    for row in found.rows:
        around, predicted = row.around, row.predicted
        off = f"{100 * (around.value / predicted.value - 1):+.0f} %"
        outside = Cell(off) if row.is_inside else Cell(off, "outside", "off")
        rows.append([
            row.label, format_iops(around.value), _around(around), format_iops(predicted.value),
            _around(predicted), outside,
        ])  # fmt: skip
    headings = ("row", "measured", "95 %", "predicted", "95 %", "difference")
    return table("Measured beside predicted", headings, rows)


def _unexplained(found: Diagnosis) -> Facts:
    """What was tried in vain, how far off the rows are, and what comes nearest."""
    off = [100 * (row.measured / row.predicted.value - 1) for row in found.rows]
    nearest = "none changes what these rows show"
    if found.nearest is not None:
        name, left = found.nearest
        nearest = f"{name}; a row is still {100 * left:+.0f} % off"
    return Facts((("rows are", f"{min(off):+.0f} to {max(off):+.0f} % off"), ("nearest", nearest),
                  ("tried", ", ".join(found.tried))))  # fmt: skip


def _explanations(found: Diagnosis) -> Block:
    """What may be different, the likeliest first; those that no row tells apart have one letter."""
    letters: dict[str, str] = {}
    listed = [e for e in found.explanations if e.probability >= LIKELY]
    for e in listed:
        group = {code for code in e.alike if code not in letters}
        if e.code not in letters and group:
            letter = "abcdefghij"[len(set(letters.values()))]
            letters |= dict.fromkeys({e.code, *group}, letter)
    rows = [(e.probability, e.name, "" if e.iops is None else format_iops(e.iops.value),
             letters.get(e.code, "")) for e in listed]  # fmt: skip
    nothing = "nothing: it is as its scenario says"
    if found.is_unexplained:
        nothing = "no mistake: the prediction is off by so much"
    rows.append((found.healthy, nothing, "", ""))
    rows.sort(key=lambda row: -row[0])
    worst = _worst(found).label
    notes = [f"it would do: under {worst}, if that is so"]
    if letters:
        notes.append("same letter: these rows cannot tell them apart")
    many = 4 if letters else 3
    headings = ("probability", "<what is different", "it would do", "<alike")[:many]
    texts = [(_chance(chance), *rest)[:many] for chance, *rest in rows]
    return table("What is different", headings, texts, notes=notes)


def _advice(one: Explanation) -> Iterator[Block]:
    """How to check an explanation, and how to mend it."""
    if one.check:
        yield Line(one.name)
        yield Facts((("check", one.check), ("mend", one.mend)))


def _worst(found: Diagnosis) -> ComparedRow:
    return max(found.rows, key=lambda row: abs(math.log(row.measured / row.predicted.value)))


def _is_calm(found: Diagnosis) -> bool:
    """True if the scenario as it is explains the rows, without much doubt."""
    return found.healthy >= SURE and found.is_healthy


def _headline(found: Diagnosis) -> str:
    rows, inside = len(found.rows), sum(row.is_inside for row in found.rows)
    if _is_calm(found):
        said = "Nothing is wrong" if found.healthy >= CLEAR else "Nothing is known to be wrong"
        return (
            f"{said}, as far as {plural(rows, 'row')} can tell ({found.healthy:.0%}): "
            f"{inside} of {rows} inside the interval."
        )
    worst = _worst(found)
    told = "something is different on this server"
    if found.is_unexplained or found.healthy >= SURE:
        why = f"none of the {len(found.tried)} usual mistakes that were tried fits"
        if not found.is_unexplained:
            known = (e.probability for e in found.explanations if e.code != "unknown")
            why = f"the likeliest mistake has {max(known):.0%}"
        told = (
            f"{rows - inside} of {plural(rows, 'row')} outside, and {why}; "
            "check first that the scenario is what was measured (drives, RAID, file or device)"
        )
    elif all(found.healthy >= e.probability for e in found.explanations):
        told = "nothing may be wrong, or one of what follows"
    return (
        f"Measured {format_iops(worst.measured)}, predicted {format_iops(worst.predicted.value)} "
        f"({_around(worst.predicted)}): {told}."
    )


def _chance(share: float) -> str:
    """A probability in percent.

    >>> _chance(0.784), _chance(0.001)
    ('78%', 'under 1%')
    """
    return f"{share:.0%}" if share >= LIKELY else "under 1%"


def _around(interval: Interval) -> str:
    down, up = (100 * (end / interval.value - 1) for end in (interval.low, interval.high))
    return f"{down:+.0f}/{up:+.0f} %"


def _next(found: Diagnosis) -> str:
    """What to measure next, as a row of a table of points."""
    if found.next is None:
        if found.is_unexplained:
            return "Measure a row at another depth or size, and ask again with it."
        if sum(e.probability >= LIKELY for e in found.explanations) < 2:
            return "What explains it:"
        return "No quick measurement tells the likeliest apart: check what each of them names."
    load = found.next.to_json()
    where = "one drive alone" if found.next.drives else "the whole server"
    ends = [f"{format_iops(rate)} if {tells}"
            for rate, tells in zip(found.next.iops, found.next.tells, strict=False)]  # fmt: skip
    jobs = plural(load["jobs"], "job")
    return (
        f"Measure next: {where} with {load['op']} of {load['block_size']}, {jobs} at "
        f"depth {load['iodepth']}, and ask again with that row added. {'; '.join(ends)}."
    )
