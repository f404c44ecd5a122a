"""A fit to single requests: distributions, residuals, latency over time, numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nvmesim.show.blocks import Block, Cell, Charts, Line, Section, Table, Warnings, table
from nvmesim.show.evidence.fits import profile_blocks
from nvmesim.show.page import document
from nvmesim.show.words import microseconds

if TYPE_CHECKING:
    from nvmesim.calibrate.classes import JudgedClass
    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.trace.fit import TraceFit

PERCENTS = (50.0, 90.0, 99.0)


def samples_page(fit: TraceFit | EmpiricalFit) -> str:
    """Return the evidence of *fit* as one HTML page that loads nothing."""
    return document(f"{fit.profile.name} · nvmesim calibrate", blocks_of(fit))


def blocks_of(fit: TraceFit | EmpiricalFit) -> list[Block]:
    """All that a person needs to trust such a profile, or not to."""
    from nvmesim.calibrate.trace.fit import TraceFit

    is_trace = isinstance(fit, TraceFit)
    return [
        Line(fit.profile.name, "title"),
        Line(f"A {fit.profile.kind} {_subtitle(fit)}", "soft"),
        Warnings(tuple(fit.warnings)),
        *(_of_trace(fit) if isinstance(fit, TraceFit) else _of_samples(fit)),
        *(profile_blocks(fit) if is_trace else profile_blocks(fit)[1:]),
    ]


def _subtitle(fit: TraceFit | EmpiricalFit) -> str:
    from nvmesim.calibrate.trace.fit import TraceFit

    found = fit.profile.latencies
    if not isinstance(fit, TraceFit):
        if found is None:
            return "made of the samples of a capture"
        return (
            f"made of {len(found.read_us):,} reads and {len(found.write_us):,} writes, drawn in "
            f"runs of {found.block} at queue depth {found.queue_depth}"
        )
    kind = "served in batches" if fit.structure.rounds else f"of {fit.structure.dies} dies"
    return f"{kind}, fitted to single requests under their own arrivals"


def _of_trace(fit: TraceFit) -> list[Block]:
    from nvmesim.show.charts.samples import distributions, episodes_in, over_time, residuals

    parts: list[Block] = []
    s = fit.sample
    if s is not None:
        tables = {"measured": s.measured_s, "fitted": s.model_s}
        what = "replayed, not fitted" if s.held_out else "fitted"
        parts.append(Section("Charts", (Charts({
            "Distribution of latency": (distributions(tables), f"All requests that were {what}."),
            "Residuals": (residuals(s.measured_s, s.model_s), "Band: 10 % either way."),
            "Latency over time": (
                over_time(s.at_s, tables, episodes_in(s.at_s, s.measured_s)),
                "Shaded: episodes, where requests are slower for a while.",
            ),
        }),)))  # fmt: skip
    return [*parts, Section("Class by class", (_classes(fit),), on_terminal=True)]


def _classes(fit: TraceFit) -> Table:
    rows = [
        [c.label, "held out" if c.held_out else "", f"{c.requests:,}",
         *(_cell(c, p) for p in PERCENTS)]
        for c in fit.classes
    ]  # fmt: skip
    heads = ("requests", "<", "number", *(f"p{p:g} [us]" for p in PERCENTS))
    return table("Classes", heads, rows, notes=["measured, and how far off the profile is"])


def _cell(c: JudgedClass, percent: float) -> Cell:
    if percent not in c.measured_s:
        return Cell("")
    return Cell(microseconds(c.measured_s[percent]), f"{100 * c.residual[percent]:+.1f} %")


def _of_samples(fit: EmpiricalFit) -> list[Block]:
    from nvmesim.show.charts.samples import distributions, episodes_in, over_time

    found = fit.profile.latencies
    if found is None:
        return []
    charts = {}
    for name, values in (("read", found.read_us), ("write", found.write_us)):
        if not values:
            continue
        samples = np.asarray(values) / 1e6
        tables = {f"measured {name}s": samples}
        at = np.cumsum(samples) / found.queue_depth
        charts[f"Distribution of latency, {name}s"] = distributions(tables), ""
        charts[f"Latency over time, {name}s"] = (
            over_time(at, tables, episodes_in(at, samples)),
            "In the order in which they were measured; shaded: episodes.",
        )
    return [Section("Charts", (Charts(charts),)), *_evidence(fit)]


def _evidence(fit: EmpiricalFit) -> list[Block]:
    """Percentiles with their intervals."""
    out: list[Block] = []
    for op, percentiles in fit.percentiles_s.items():
        rows = [
            [f"p{p:g}", *map(microseconds, (i.value, i.low, i.high))]
            for p, i in sorted(percentiles.items())
        ]
        heads: tuple[str, ...] = ("percentile", "value [us]", "95 % from [us]", "to [us]")
        title = f"Percentiles, {op}s"
        out.append(Section(title, (table(title, heads, rows),), on_terminal=True))
    return out
