"""A fit to single requests as one HTML page: distributions, residuals, time, families, numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nvmesim.show import page as html
from nvmesim.show import words as summary
from nvmesim.show.charts.fit_samples import distributions, episodes_in, over_time, residuals
from nvmesim.show.fit_page import numbers, provenance, warnings_part
from nvmesim.show.page import escaped

if TYPE_CHECKING:
    from nvmesim.calibrate.classes import JudgedClass
    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.trace.fit import TraceFit

FAMILIES = 3
"""Families drawn beside the samples, best first."""


def samples_page(fit: TraceFit | EmpiricalFit) -> str:
    """Return the evidence of *fit* as one HTML page that loads nothing."""
    from nvmesim.calibrate.trace.fit import TraceFit

    parts = [
        f"<h1>{escaped(fit.profile.name)}</h1>",
        f'<p class="soft">A {fit.profile.kind} {_subtitle(fit)}</p>',
        warnings_part(fit),
        *(_of_trace(fit) if isinstance(fit, TraceFit) else _of_samples(fit)),
        numbers(fit),
        provenance(fit),
    ]
    title = f"{fit.profile.name} · nvmesim calibrate"
    return html.document(title, "\n".join(p for p in parts if p))


def _subtitle(fit: TraceFit | EmpiricalFit) -> str:
    from nvmesim.calibrate.trace.fit import TraceFit

    if not isinstance(fit, TraceFit):
        return "made of the samples of a capture"
    kind = "served in batches" if fit.structure.rounds else f"of {fit.structure.dies} dies"
    return f"{kind}, fitted to single requests under their own arrivals"


def _of_trace(fit: TraceFit) -> list[str]:
    rows = [
        [
            escaped(c.label), "held out" if c.held_out else "", f"{c.requests:,}",
            *(_cell(c, p) for p in (50.0, 90.0, 99.0)),
        ]
        for c in fit.classes
    ]  # fmt: skip
    heads = ("requests", "", "number", "p50, µs", "p90, µs", "p99, µs")
    parts = []
    s = fit.sample
    if s is not None:
        tables = {"measured": s.measured_s, "fitted": s.model_s}
        what = "replayed, not fitted" if s.held_out else "fitted"
        charts = {
            "Distribution of latency": (distributions(tables), f"All requests that were {what}."),
            "Residuals": (residuals(s.measured_s, s.model_s), "Band: 10 % either way."),
            "Latency over time": (
                over_time(s.at_s, tables, episodes_in(s.at_s, s.measured_s)),
                "Shaded: episodes, where requests are slower for a while.",
            ),
        }
        parts.append("<h2>Charts</h2>" + html.figures(charts))
    parts.append("<h2>Class by class</h2>" + html.table(heads, rows, left=(1,), name="Classes"))
    return parts


def _cell(c: JudgedClass, percent: float) -> str:
    if percent not in c.measured_s:
        return ""
    off = 100 * c.residual[percent]
    return f"{escaped(summary.microseconds(c.measured_s[percent]))}<small>{off:+.1f} %</small>"


def _of_samples(fit: EmpiricalFit) -> list[str]:
    table = fit.profile.latencies
    if table is None:
        return []
    charts = {}
    for name, values in (("read", table.read_us), ("write", table.write_us)):
        if not values:
            continue
        samples = np.asarray(values) / 1e6
        tables = {f"measured {name}s": samples}
        choice = fit.families.get(name)
        if choice is not None and choice.best is not None:
            levels = (np.arange(len(samples)) + 0.5) / len(samples)
            tables[f"{choice.best.name}"] = choice.best.quantile(levels)
        charts[f"Distribution of latency, {name}s"] = (
            distributions(tables), "Dashed: the best parametric family, by held-out likelihood.",
        )  # fmt: skip
        at = np.cumsum(samples) / table.queue_depth
        charts[f"Latency over time, {name}s"] = (
            over_time(at, {f"measured {name}s": samples}, episodes_in(at, samples)),
            "In the order in which they were measured; shaded: episodes.",
        )
    return ["<h2>Charts</h2>" + html.figures(charts), _families(fit)]


def _families(fit: EmpiricalFit) -> str:
    parts = []
    for op, choice in fit.families.items():
        rows = [
            [escaped(n), f"{v:.4f}", f"± {choice.errors[n]:.4f}" if n in choice.errors else "best"]
            for n, v in choice.scores.items()
        ]
        heads = ("family", "mean log-density, held out", "standard error to the best")
        parts.append(f"<h2>Families, {op}s</h2>" + html.table(heads, rows, name=f"Families, {op}s"))
    for op, percentiles in fit.percentiles_s.items():
        lines = [
            [f"p{p:g}", *(escaped(summary.microseconds(v)) for v in (i.value, i.low, i.high))]
            for p, i in sorted(percentiles.items())
        ]
        names = ("percentile", "µs", "low", "high")
        parts.append(
            f"<h2>Percentiles, {op}s</h2>" + html.table(names, lines, name=f"Percentiles, {op}s")
        )
    return "".join(parts)
