"""Charts of what a fit misses: residuals by depth and along distributions, and courses in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.evidence import Judged
from nvmesim.calibrate.over_time.course import Course, Unit
from nvmesim.calibrate.points import Bins
from nvmesim.show import palette
from nvmesim.show.charts.base import LOG_LABELS, Drawing, inline, layered, log_ticks, rounded
from nvmesim.show.charts.result import TAIL_LABELS

Row = dict[str, Any]

COLOURS: Final = (palette.READ, palette.WRITE, "#009e73", "#cc79a7", "#56b4e9", "#7a7f87")
FIGURES: Final = {"iops": "IOPS", "mean_s": "mean", "p50_s": "p50", "p99_s": "p99",
                  "p99.9_s": "p99.9"}  # fmt: skip
BAND: Final = 10.0
"""Residuals within so many per cent lie in the band."""
LEAST_TOP: Final = 25.0
LINEAR_TOP: Final = 100.0
"""Up to so many per cent the axis is straight."""
LEVELS: Final = 90
BEYOND: Final = 10
"""A distribution is compared as far as this many requests lie beyond."""
SCALES: Final[dict[Unit, tuple[float, str]]] = {
    "s": (1e6, "latency, µs (log)"), "requests/s": (1e-3, "kIOPS"), "bytes/s": (1e-9, "GB/s"),
}  # fmt: skip
LINES: Final = 6


def residuals_by_depth(points: Sequence[Judged]) -> Drawing:
    """By how much each figure is off, against requests in flight."""
    rows: list[Row] = [
        {"depth": j.point.outstanding, "of": FIGURES[key], "off": round(100 * off, 2),
         "held": j.point.held_out, "point": j.point.name}
        for j in points
        for key, off in j.residual.items()
        if key in FIGURES
    ]  # fmt: skip
    names = [name for name in FIGURES.values() if any(row["of"] == name for row in rows)]
    depths = sorted({row["depth"] for row in rows})
    x = alt.X("depth:Q", title="requests in flight (log)",
              scale=alt.Scale(type="log", base=2, nice=False, padding=14),
              axis=alt.Axis(labelExpr=LOG_LABELS, values=depths))  # fmt: skip
    return _residuals(rows, names, x, f"Residuals of {', '.join(names)} against depth", dots=True)


def residuals_of_distributions(points: Sequence[Judged]) -> Drawing:
    """By how much the latency is off at each percentile, a line a point."""
    rows: list[Row] = []
    chosen = [j for j in points if j.point.bins is not None and j.answer.bins is not None][:LINES]
    for j in chosen:
        if j.point.bins is None or j.answer.bins is None:
            continue
        least = min(j.point.bins.count.sum(), j.answer.bins.count.sum())
        nines = np.linspace(0.05, np.log10(max(least / BEYOND, 10.0)), LEVELS)
        off = 100 * (_quantiles(j.answer.bins, nines) / _quantiles(j.point.bins, nines) - 1)
        rows += [
            {"nines": round(float(n), 4), "off": round(float(o), 2), "of": _depth(j)}
            for n, o in zip(nines, off, strict=True)
        ]
    x = alt.X("nines:Q", title="share of requests that are faster",
              scale=alt.Scale(domainMin=0, nice=False),
              axis=alt.Axis(values=list(range(7)), labelExpr=TAIL_LABELS))  # fmt: skip
    names = [_depth(j) for j in chosen]
    return _residuals(rows, names, x, f"Residuals of the distribution at {', '.join(names)}")


def course_chart(courses: Sequence[Course]) -> Drawing:
    """Means over time, a line a file; episodes shaded, a step down for good as a rule."""
    scale, title = SCALES[courses[0].unit]
    shown = courses[:LINES]
    rows: list[Row] = [
        {"s": rounded(float(t)), "of": c.label, "y": rounded(float(v) * scale)}
        for c in shown
        for t, v in zip(c.times_s, c.values, strict=True)
        if v > 0
    ]
    names = [c.label for c in shown]
    x = alt.X("s:Q", title="time in the capture, s", scale=alt.Scale(nice=False))
    y = alt.Y("y:Q", title=title)
    if courses[0].unit == "s":
        ticks = log_ticks([row["y"] for row in rows])
        y = alt.Y("y:Q", title=title, scale=alt.Scale(type="log", nice=False),
                  axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks))  # fmt: skip
    colour = _colour(names, columns=2)
    spans = [
        {"s": rounded(a), "end": rounded(b), "of": c.label} for c in shown for a, b in c.episodes
    ]
    steps = [{"s": rounded(c.step_s), "of": c.label} for c in shown if c.step_s is not None]
    layers: list[alt.Chart] = []
    if spans:
        box = alt.Chart(inline(spans)).mark_rect(opacity=0.18)
        layers.append(box.encode(x, alt.X2("end:Q"), colour))
    layers.append(alt.Chart(inline(rows)).mark_line(strokeWidth=1.5).encode(x, y, colour))
    if steps:
        rule = alt.Chart(inline(steps)).mark_rule(strokeDash=[4, 3], strokeWidth=1.5)
        layers.append(rule.encode(x, colour))
    return layered(*layers, height=220, says=f"Course over time of {', '.join(names)}")


def _residuals(
    rows: Sequence[Row], names: Sequence[str], x: alt.X, says: str, *, dots: bool = False
) -> Drawing:
    """Lines of residuals in per cent around zero, with the band."""
    far = max((abs(row["off"]) for row in rows), default=0.0)
    top = max(1.05 * far, LEAST_TOP)
    scale = alt.Scale(domain=[-top, top], nice=False)
    if top > LINEAR_TOP:  # nothing is cut off: what is far is drawn closer together
        scale = alt.Scale(type="symlog", constant=LINEAR_TOP / 2, domain=[-top, top], nice=False)
    y = alt.Y("off:Q", title="fitted / measured - 1, %", scale=scale)
    band = alt.Chart(inline([{"low": -BAND, "high": BAND}])).mark_rect(opacity=0.12)
    zero = alt.Chart(inline([{"off": 0}])).mark_rule(color=palette.MUTED)
    colour = _colour(names)
    line = alt.Chart(inline(rows)).mark_line(strokeWidth=2 if not dots else 1.2)
    layers = [
        band.encode(y=alt.Y("low:Q"), y2="high:Q"), zero.encode(y="off:Q"),
        line.encode(x, y, colour),
    ]  # fmt: skip
    if dots:
        tips = [alt.Tooltip("point:N"), alt.Tooltip("of:N"), alt.Tooltip("off:Q", format="+.1f")]
        held = alt.Scale(domain=[False, True], range=["circle", "diamond"])
        shape = alt.Shape("held:N", legend=None, scale=held)
        for is_held in (False, True):  # told apart without colours: held out are hollow
            some = [row for row in rows if row["held"] == is_held]
            if some:
                dots_of = alt.Chart(inline(some))
                mark = dots_of.mark_point(filled=not is_held, size=60, opacity=1)
                layers.append(mark.encode(x, y, colour, shape, tooltip=tips))
    return layered(*layers, height=190, says=says)


def _colour(names: Sequence[str], columns: int = 3) -> alt.Color:
    unique = list(dict.fromkeys(names))
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1, columns=columns, labelLimit=200)
    scale = alt.Scale(domain=unique, range=[COLOURS[i % len(COLOURS)] for i in range(len(unique))])
    return alt.Color("of:N", sort=unique, scale=scale, legend=legend)


def _depth(j: Judged) -> str:
    return f"{j.point.jobs} x {j.point.iodepth}"


def _quantiles(bins: Bins, nines: Floats) -> Floats:
    """float64[k], s: what a share 1 - 10^-nines of requests is faster than."""
    cumulative = np.cumsum(bins.count) / bins.count.sum()
    known = np.asarray(bins.count) > 0
    out: Floats = np.interp(1 - 10.0**-nines, cumulative[known], np.asarray(bins.at_s)[known])
    return out
