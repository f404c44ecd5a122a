"""A fit and what it rests on: points or single requests, charts, the numbers of the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import Quantity
from nvmesim.catalog.toml import fitted_toml, show_quantity, show_value
from nvmesim.show import blocks as b
from nvmesim.show import words
from nvmesim.show.page import document, html
from nvmesim.show.views.inputs import in_words
from nvmesim.version import __version__

if TYPE_CHECKING:
    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.trace.fit import TraceFit

    AnyFit = DriveFit | StackFit | TraceFit | EmpiricalFit

FIGURES: Final = {
    # key of the evidence: heading
    "iops": "IOPS", "mean_s": "mean [us]", "p50_s": "p50 [us]", "p99_s": "p99 [us]",
    "p99.9_s": "p99.9 [us]", "cpu_s": "CPU [us]",
}  # fmt: skip
NEAR: Final = {"iops": (0.03, 0.10), "mean_s": (0.03, 0.10), "cpu_s": (0.05, 0.15)}
"""Key -> |residual| up to which a figure is met, and up to which it is near."""
NEAR_TAIL: Final = (0.12, 0.30)
PERCENTS: Final = (50.0, 90.0, 99.0)
_ENDINGS: Final = {" us": "time", "k/s": "rate", " GB/s": "bandwidth"}


def fit_page(fit: AnyFit) -> str:
    """Return the evidence of *fit* as one HTML page that loads nothing."""
    return document(f"{fit.profile.name} · nvmesim calibrate", fit_blocks(fit))


def evidence(fit: AnyFit) -> str:
    """Return what a fit rests on, without its name, as part of a page."""
    return html(fit_blocks(fit)[1:])


def fragment(fit: DriveFit | StackFit) -> list[b.Block]:
    """What a notebook shows of *fit*: the points, and how far off the profile is."""
    return [b.Line(fit.profile.name, "title"), points(fit)]


def fit_blocks(fit: AnyFit) -> list[b.Block]:
    """All that a person needs to trust the profile, or not to."""
    title, warnings = b.Line(fit.profile.name, "title"), b.Warnings(tuple(fit.warnings))
    if not isinstance(fit, DriveFit | StackFit):
        return [title, *_of_requests(fit, warnings)]
    rows = [j for j in fit.points if not j.point.is_stated] or list(fit.points)
    files = list(dict.fromkeys(j.point.source for j in rows if j.point.source))
    of = f" of {words.joined(files)}" if files else ""
    of += " and a data sheet" if len(rows) < len(fit.points) else ""
    count = words.plural(len(rows), "point")
    judged = [j for j in fit.points if j.used or j.point.held_out]
    held = [j for j in judged if j.point.held_out]
    whom = "of what was held out" if held else "of the fitted points"
    found = []
    for key in ("iops", "p50_s", "p99_s", "p99.9_s"):
        errors = [abs(j.residual[key]) for j in held or judged if key in j.residual]
        if errors:
            name = FIGURES[key].partition(" [")[0]
            found.append((f"{100 * max(errors):.1f} %", f"worst error on {name}, {whom}"))
    return [
        title,
        *([b.Line(fit.verdict, "head")] if isinstance(fit, DriveFit) else []),
        b.Line(f"A {fit.profile.kind} fitted to {count}{of}", "soft"),
        b.Cards(tuple(found)),
        warnings,
        b.Section("Point by point", (points(fit),), on_terminal=True),
        b.Section("Charts", (b.Charts(lambda: _charts(fit)),)),
        *profile_blocks(fit),
    ]


def points(fit: DriveFit | StackFit) -> b.Table:
    """Each point as it was measured, and how far off the fitted profile is."""
    known = {k for j in fit.points for k in j.residual}
    keys = [k for k in FIGURES if k in known]
    rows = []
    is_beside = any(not j.point.is_stated for j in fit.points)
    for j in fit.points:
        role = "held out" if j.point.held_out else "" if j.used else "not fitted"
        if is_beside and j.point.is_stated:
            role = "data sheet"
        rows.append([b.Cell(j.point.name), b.Cell(role), *(_cell(j, k) for k in keys)])
    note = "measured, and how far off the fitted profile is; green: met, amber: near, red: missed"
    if any(j.point.held_out for j in fit.points):
        note += "; held out: predicted, not fitted"
    heads = ("point", "<", *(FIGURES[k] for k in keys))
    return b.table("Measured against fitted", heads, rows, notes=[note])


def _cell(judged: Judged, key: str) -> b.Cell:
    """The measured figure and the model's relative difference."""
    value, off = judged.measured.get(key), judged.residual.get(key)
    if value is None:
        return b.Cell("")
    shown = words.kiops(value) if key == "iops" else words.microseconds(value)
    if off is None:
        return b.Cell(shown)
    met, near = NEAR.get(key, NEAR_TAIL)
    grade: Literal["good", "near", "off"] = "off"
    if abs(off) <= near:
        grade = "good" if abs(off) <= met else "near"
    return b.Cell(shown, f"{100 * off:+.1f} %", grade)


def _charts(fit: DriveFit | StackFit) -> dict[str, tuple[Any, str]]:
    from nvmesim.show.charts.fit_charts import all_charts

    captions = words.texts("fit")
    return {t: (drawn, captions.get(t.split()[0], "")) for t, drawn in all_charts(fit).items()}


def _of_requests(fit: TraceFit | EmpiricalFit, warnings: b.Warnings) -> list[b.Block]:
    """What the profile is made of, its charts, percentiles or classes of requests."""
    from nvmesim.calibrate.trace.fit import TraceFit

    if not isinstance(fit, TraceFit):
        return [*_of_samples(fit, warnings), *profile_blocks(fit)[1:]]
    made = "served in batches" if fit.structure.rounds else f"of {fit.structure.dies} dies"
    made += ", fitted to single requests under their own arrivals"
    head = b.Line(f"A {fit.profile.kind} {made}", "soft")
    return [head, warnings, *_of_trace(fit), *profile_blocks(fit)]


def _of_trace(fit: TraceFit) -> list[b.Block]:
    from nvmesim.show.charts.fit_charts import distributions, requests_over_time

    parts: list[b.Block] = []
    if (s := fit.sample) is not None:
        tables = {"measured": s.measured_s, "fitted": s.model_s}
        what = "replayed, not fitted" if s.held_out else "fitted"
        parts.append(b.Section("Charts", (b.Charts({
            "Distribution of latency": (distributions(tables), f"All requests that were {what}."),
            "Latency over time": (requests_over_time(s.at_s, tables), ""),
        }),)))  # fmt: skip
    rows = []
    for c in fit.classes:
        cells = [
            b.Cell(words.microseconds(c.measured_s[p]), f"{100 * c.residual[p]:+.1f} %")
            if p in c.measured_s else b.Cell("") for p in PERCENTS
        ]  # fmt: skip
        rows.append([c.label, "held out" if c.held_out else "", f"{c.requests:,}", *cells])
    heads = ("requests", "<", "number", *(f"p{p:g} [us]" for p in PERCENTS))
    shown = b.table("Classes", heads, rows, notes=["measured, and how far off the profile is"])
    return [*parts, b.Section("Class by class", (shown,), on_terminal=True)]


def _of_samples(fit: EmpiricalFit, warnings: b.Warnings) -> list[b.Block]:
    """How many samples there are, their distribution, and how sure their percentiles are."""
    from nvmesim.show.charts.fit_charts import distributions

    found = fit.profile.latencies
    assert found is not None
    samples = {"reads": np.array(found.read_us) / 1e6, "writes": np.array(found.write_us) / 1e6}
    tables = {f"measured {op}": values for op, values in samples.items() if len(values)}
    made = words.joined([f"{len(values):,} {op}" for op, values in samples.items() if len(values)])
    head = b.Line(f"A drive made of {made}, drawn in runs of {found.block:,}", "soft")
    rows = [
        [f"p{p:g} of {op}s", *map(words.microseconds, (i.value, i.low, i.high))]
        for op, percentiles in fit.percentiles_s.items() for p, i in percentiles.items()
    ]  # fmt: skip
    heads = ("percentile", "value [us]", "95 % from [us]", "to [us]")
    chart = b.Charts({"Distribution of latency": (distributions(tables), "")})
    return [
        head, warnings, b.Section("Charts", (chart,)),
        b.Section("Percentiles", (b.table("Percentiles", heads, rows),), on_terminal=True),
    ]  # fmt: skip


def profile_blocks(fit: AnyFit) -> list[b.Block]:
    """The numbers of the profile with intervals and sources, and the file that loads it."""
    stated = [(k, q) for k, q in quantities(fit.profile) if q.value or q.basis != "assumed"]
    known = [_number(fit, k, q) for k, q in stated if q.basis != "assumed"]
    rest = [_number(fit, k, q) for k, q in stated if q.basis == "assumed"]
    heads = ("number", "value", "95 % interval", "<basis", "<what it is")
    sources: dict[str, list[str]] = {}
    for key, q in stated:
        sources.setdefault(q.source, []).append(key)
    of = [[words.joined(keys, 3), source] for source, keys in sources.items()]
    numbers = b.table("Numbers of the profile", heads, known)
    return [
        b.Section("The profile", (numbers,), on_terminal=True),
        b.Fold("assumed numbers", (b.table("Assumed numbers", heads, rest),)),
        b.Fold("sources of the numbers", (b.table("Sources", ("numbers", "<source"), of),)),
        b.Fold("As a file (TOML)", (
            b.Facts((("nvmesim", __version__),)), b.Source(fitted_toml(fit.profile)),
        ), is_listed=False),
    ]  # fmt: skip


def _number(fit: AnyFit, key: str, q: Quantity) -> list[str]:
    place = "server.stack" if isinstance(fit, StackFit) else "drives.profile"
    text = show_quantity(fit.profile, key)
    unit: Any = next((w for end, w in _ENDINGS.items() if text.endswith(end)), "number")
    value, *ends = (
        "" if v is None else text if unit == "number" and v % 1 == 0 and v == q.value
        else show_value(float(f"{v:.4g}"), unit) for v in (q.value, q.low, q.high)
    )  # fmt: skip
    return [key, text if key == "capacity" else value, " to ".join(ends) if all(ends) else "",
            q.basis, in_words(f"{place}.{key}").partition(": ")[2]]  # fmt: skip
