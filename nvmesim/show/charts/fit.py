"""Charts of a fit (Altair): dots are measured, lines the fitted profile; readable in grey."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
from nvmesim.calibrate.over_time.course import by_kind
from nvmesim.calibrate.points import Bins
from nvmesim.show import palette
from nvmesim.show.charts.base import LOG_LABELS, Column, column, inline, layered, log_ticks, rounded
from nvmesim.show.charts.fit_residuals import (
    course_chart,
    residuals_by_depth,
    residuals_of_distributions,
)
from nvmesim.show.charts.result import TAIL_LABELS
from nvmesim.units import format_size

COLOURS: Final = (palette.READ, palette.WRITE, "#009e73", "#cc79a7", "#56b4e9", "#7a7f87")
PERCENTILE_COLOURS: Final = {"p50": palette.READ, "p99": palette.WRITE, "p99.9": palette.ACCENT}
MOST_CDFS: Final = 6
CDF_POINTS: Final = 120
FEWEST_BEYOND: Final = 10
"""A measured tail is drawn as far as this many requests lie beyond it."""

Row = dict[str, Any]


def chart(fit: DriveFit | StackFit) -> Column:
    """Return all charts, one below the other (Altair)."""
    return column(all_charts(fit))


def all_charts(fit: DriveFit | StackFit) -> dict[str, alt.LayerChart]:
    """Title -> chart, of those that *fit* has points for."""
    found = {"Throughput against queue depth": throughput(fit.points)}
    for name, group in _groups(fit.points):
        if sum(bool(j.point.percentiles_s) for j in group) > 1:
            found[f"Latency against queue depth, {name}"] = latency(group)
    for name, group in _groups(fit.points):
        if len({j.point.outstanding for j in group}) > 1:
            found[f"Residuals against queue depth, {name}"] = residuals_by_depth(group)
    if any(j.point.cpu_s and j.answer.cpu_s for j in fit.points):
        found["CPU time of one request against queue depth"] = cpu(fit.points)
    for name, group in _groups(fit.points):
        with_bins = [j for j in group if j.point.bins is not None and j.answer.bins is not None]
        if with_bins:
            found[f"Distribution of latency, {name}"] = distribution(with_bins)
            shown = list(_spread_over(with_bins, MOST_CDFS))
            found[f"Residuals of the distribution, {name}"] = residuals_of_distributions(shown)
    for (op, unit), courses in by_kind(getattr(fit, "courses", ())).items():
        what = "Latency" if unit == "s" else "Throughput"
        found[f"{what} over time, {op}s"] = course_chart(courses)
    return found


def _groups(points: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    """Points of one operation and size together, in their order."""
    groups: dict[str, list[Judged]] = {}
    for j in points:
        groups.setdefault(f"{j.point.op} {format_size(j.point.block_size)}", []).append(j)
    return list(groups.items())


# Against depth -----------------------------------------------------------------------------------


def throughput(points: Sequence[Judged]) -> alt.LayerChart:
    """IOPS against requests in flight."""
    rows = [
        {"what": what, "depth": j.point.outstanding, "of": name, "y": rounded(value / 1e3),
         "role": _role(j), "point": j.point.name}
        for name, group in _groups(points)
        for j in group
        for what, value in (("measured", j.point.iops), ("fitted", j.answer.iops))
    ]  # fmt: skip
    return _against_depth(rows, [n for n, _ in _groups(points)], "kIOPS", log=False)


def latency(points: Sequence[Judged]) -> alt.LayerChart:
    """Percentiles against requests in flight."""
    rows = [
        {"what": what, "depth": j.point.outstanding, "of": f"p{p:g}", "y": rounded(value * 1e6),
         "role": _role(j), "point": j.point.name}
        for j in points
        for p in j.point.percentiles_s
        for what, value in (
            ("measured", j.point.percentiles_s[p]),
            ("fitted", j.answer.percentiles_s.get(p, math.nan)),
        )
        if math.isfinite(value)
    ]  # fmt: skip
    names = [n for n in PERCENTILE_COLOURS if any(row["of"] == n for row in rows)]
    colours = [PERCENTILE_COLOURS[n] for n in names]
    return _against_depth(rows, names, "latency, µs (log)", log=True, colours=colours)


def cpu(points: Sequence[Judged]) -> alt.LayerChart:
    """CPU time per request against requests in flight."""
    rows = [
        {"what": what, "depth": j.point.outstanding, "of": name, "y": rounded(value * 1e6),
         "role": _role(j), "point": j.point.name}
        for name, group in _groups(points)
        for j in group
        for what, value in (("measured", j.point.cpu_s), ("fitted", j.answer.cpu_s))
        if value
    ]  # fmt: skip
    return _against_depth(rows, [n for n, _ in _groups(points)], "CPU, µs", log=False)


def _role(judged: Judged) -> str:
    if judged.point.held_out:
        return "held out"
    return "measured" if judged.used else "not fitted"


def _against_depth(
    rows: Sequence[Row], names: Sequence[str], title: str, *, log: bool,
    colours: Sequence[str] = COLOURS,
) -> alt.LayerChart:  # fmt: skip
    """Dots where measured (hollow if not fitted), a line through what the profile does."""
    depths = sorted({row["depth"] for row in rows})
    scale = alt.Scale(type="log", base=2, nice=False, padding=14)
    x = alt.X("depth:Q", title="requests in flight (log)", scale=scale,
              axis=alt.Axis(labelExpr=LOG_LABELS, values=depths))  # fmt: skip
    y = alt.Y("y:Q", title=title)
    if log:
        ticks = log_ticks([row["y"] for row in rows])
        y = alt.Y("y:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=12),
                  axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks))  # fmt: skip
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1, columns=3, labelLimit=220)
    domain = alt.Scale(domain=list(names), range=list(colours[: len(names)]))
    colour = alt.Color("of:N", sort=list(names), scale=domain, legend=legend)
    tips = [alt.Tooltip("point:N"), alt.Tooltip("what:N"), alt.Tooltip("y:Q", format=",.4~r")]
    line = alt.Chart(inline([r for r in rows if r["what"] == "fitted"])).mark_line(strokeWidth=2)
    dots = alt.Chart(inline([r for r in rows if r["what"] == "measured"]))
    roles = ["measured", "held out", "not fitted"]
    used = [r for r in roles if any(row["role"] == r for row in rows)]
    shapes = dict(zip(roles, ("circle", "diamond", "cross"), strict=True))
    shape = alt.Shape(
        "role:N", sort=used,
        scale=alt.Scale(domain=used, range=[shapes[r] for r in used]),
        legend=alt.Legend(orient="top", title=None) if len(used) > 1 else None,
    )  # fmt: skip
    return layered(
        line.encode(x, y, colour),
        dots.mark_point(filled=True, size=60, opacity=1).encode(x, y, colour, shape, tooltip=tips),
        height=260,
    )


# Distributions -----------------------------------------------------------------------------------


def distribution(points: Sequence[Judged]) -> alt.LayerChart:
    """Share of requests that are faster, against latency; each step up is one more nine."""
    chosen = list(_spread_over(points, MOST_CDFS))
    rows: list[Row] = []
    for j in chosen:
        for what, bins in (("measured", j.point.bins), ("fitted", j.answer.bins)):
            if bins is not None:
                rows += [{"of": _shape(j), "what": what, **r} for r in _nines(bins)]
    names = [_shape(j) for j in chosen]
    ticks = log_ticks([row["us"] for row in rows])
    x = alt.X("us:Q", title="latency, µs (log); dashed: fitted",
              scale=alt.Scale(type="log", nice=False),
              axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks))  # fmt: skip
    y = alt.Y("nines:Q", title="share of requests that are faster",
              scale=alt.Scale(domainMin=0, nice=False),
              axis=alt.Axis(values=list(range(7)), labelExpr=TAIL_LABELS))  # fmt: skip
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1, columns=6)
    scale = alt.Scale(domain=names, range=list(COLOURS[: len(names)]))
    colour = alt.Color("of:N", sort=names, scale=scale, legend=legend)
    layers = []
    for what, dash in (("measured", [1, 0]), ("fitted", [5, 3])):
        data = inline([r for r in rows if r["what"] == what])
        line = alt.Chart(data).mark_line(strokeWidth=2, strokeDash=dash)
        layers.append(line.encode(x, y, colour))
    return layered(*layers, height=280)


def _shape(judged: Judged) -> str:
    return f"{judged.point.jobs} x {judged.point.iodepth}"


def _spread_over(points: Sequence[Judged], most: int) -> Iterator[Judged]:
    """At most *most* of *points*, from the first to the last."""
    if len(points) <= most:
        yield from points
        return
    for i in np.linspace(0, len(points) - 1, most).round().astype(int):
        yield points[i]


def _nines(bins: Bins) -> Iterable[Row]:
    """Points of the curve: a few hundred at most, none where too few requests lie beyond."""
    cumulative = np.cumsum(bins.count)
    total = int(cumulative[-1])
    last = -1.0
    for at, below in zip(bins.at_s, cumulative, strict=True):
        if below < 0.002 * total or total - below < FEWEST_BEYOND:
            continue
        nines = math.log10(total / (total - below))
        if nines - last >= 4 / CDF_POINTS:
            yield {"us": rounded(float(at) * 1e6), "nines": round(nines, 4)}
            last = nines
