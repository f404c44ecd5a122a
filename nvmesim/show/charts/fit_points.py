"""Charts of a fit (Altair): dots are measured, lines the fitted profile; readable in grey."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import altair as alt
import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
from nvmesim.calibrate.over_time.course import Course, Unit, by_kind
from nvmesim.calibrate.points import Bins
from nvmesim.show import palette
from nvmesim.show.charts.base import (
    NUMBER,
    Column,
    Drawing,
    column,
    layered,
    level,
    mark,
    rounded,
    series,
    tips,
    x,
    y,
)
from nvmesim.units import format_size

COLOURS: Final = (palette.READ, palette.WRITE, "#009e73", "#cc79a7", "#56b4e9", "#7a7f87")
PERCENTILE_COLOURS: Final = {"p50": palette.READ, "p99": palette.WRITE, "p99.9": palette.ACCENT}
MOST_LINES: Final = 6
CDF_POINTS: Final = 120
FEWEST_BEYOND: Final = 10
"""A measured tail is drawn, and compared, as far as this many requests lie beyond it."""
FIGURES: Final = {"iops": "IOPS", "mean_s": "mean", "p50_s": "p50", "p99_s": "p99",
                  "p99.9_s": "p99.9"}  # fmt: skip
BAND: Final = 10.0
"""Residuals within so many per cent lie in the band."""
LEAST_TOP: Final = 25.0
LINEAR_TOP: Final = 100.0
"""Up to so many per cent the axis is straight."""
LEVELS: Final = 90
SCALES: Final[dict[Unit, tuple[float, str]]] = {
    "s": (1e6, "latency, µs"), "requests/s": (1e-3, "kIOPS"), "bytes/s": (1e-9, "GB/s"),
}  # fmt: skip
ROLES: Final = {"measured": "circle", "held out": "diamond", "not fitted": "cross"}

Row = dict[str, Any]


def chart(fit: DriveFit | StackFit) -> Column:
    """Return all charts, one below the other (Altair)."""
    return column(all_charts(fit))


def all_charts(fit: DriveFit | StackFit) -> dict[str, alt.LayerChart]:
    """Title -> chart, of those that *fit* has points for."""
    groups = _groups(fit.points)
    found: dict[str, alt.LayerChart] = {"Throughput against queue depth": throughput(fit.points)}
    for name, group in groups.items():
        if sum(bool(j.point.percentiles_s) for j in group) > 1:
            found[f"Latency against queue depth, {name}"] = latency(group)
    for name, group in groups.items():
        if len({j.point.outstanding for j in group}) > 1:
            found[f"Residuals against queue depth, {name}"] = residuals_by_depth(group)
    if any(j.point.cpu_s and j.answer.cpu_s for j in fit.points):
        found["CPU time of one request against queue depth"] = cpu(fit.points)
    for name, group in groups.items():
        with_bins = [j for j in group if j.point.bins is not None and j.answer.bins is not None]
        if with_bins:
            shown = _spread_over(with_bins, MOST_LINES)
            found[f"Distribution of latency, {name}"] = distribution(shown)
            found[f"Residuals of the distribution, {name}"] = residuals_of_distributions(shown)
    for (op, unit), courses in by_kind(getattr(fit, "courses", ())).items():
        what = "Latency" if unit == "s" else "Throughput"
        found[f"{what} over time, {op}s"] = over_time(courses)
    return found


def _groups(points: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Points of one operation and size together, in their order."""
    groups: dict[str, list[Judged]] = {}
    for j in points:
        groups.setdefault(f"{j.point.op} {format_size(j.point.block_size)}", []).append(j)
    return groups


def _shape(judged: Judged) -> str:
    return f"{judged.point.jobs} x {judged.point.iodepth}"


def _spread_over(points: Sequence[Judged], most: int) -> list[Judged]:
    """At most *most* of *points*, from the first to the last."""
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.linspace(0, len(points) - 1, most).round().astype(int)]


# Against depth -----------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """A figure of a point, measured and fitted."""

    point: Judged
    of: str
    measured: float
    fitted: float


def throughput(points: Sequence[Judged]) -> Drawing:
    """IOPS against requests in flight."""
    pairs = [
        _Pair(j, name, j.point.iops / 1e3, j.answer.iops / 1e3)
        for name, group in _groups(points).items() for j in group
    ]  # fmt: skip
    return _against_depth(pairs, "kIOPS")


def latency(points: Sequence[Judged]) -> Drawing:
    """Percentiles against requests in flight."""
    pairs = [
        _Pair(j, f"p{p:g}", value * 1e6, j.answer.percentiles_s.get(p, math.nan) * 1e6)
        for j in points for p, value in j.point.percentiles_s.items()
    ]  # fmt: skip
    known = [pair for pair in pairs if pair.of in PERCENTILE_COLOURS]
    return _against_depth(known, "latency, µs", colours=PERCENTILE_COLOURS, log=True)


def cpu(points: Sequence[Judged]) -> Drawing:
    """CPU time per request against requests in flight."""
    pairs = [
        _Pair(j, name, (j.point.cpu_s or math.nan) * 1e6, (j.answer.cpu_s or math.nan) * 1e6)
        for name, group in _groups(points).items() for j in group
    ]  # fmt: skip
    return _against_depth(pairs, "CPU, µs")


def _against_depth(
    pairs: Sequence[_Pair], title: str, *, colours: Mapping[str, str] | None = None,
    log: bool = False,
) -> Drawing:  # fmt: skip
    """Dots where measured (hollow if not fitted), a line through what the profile does."""
    dots, line = (
        [
            {"depth": pair.point.point.outstanding, "of": pair.of, "y": rounded(value),
             "role": _role(pair.point), "point": pair.point.point.name}
            for pair in pairs if math.isfinite(value := getattr(pair, what))
        ] for what in ("measured", "fitted")
    )  # fmt: skip
    found = dict.fromkeys(pair.of for pair in pairs)
    names = [n for n in colours if n in found] if colours else list(found)
    look = series("of", names, columns=3, shown=True,
                  colours=[colours[n] for n in names] if colours else COLOURS)  # fmt: skip
    used = [r for r in ROLES if any(row["role"] == r for row in dots)]
    roles = series("role", used, shapes=[ROLES[r] for r in used])
    across = x("depth", "requests in flight", log2=[r["depth"] for r in dots], padding=14)
    how = {"log": [row["y"] for row in [*dots, *line]], "padding": 12} if log else {}
    up = y("y", title, **how)
    shown = tips("point", "role", "of", f"y: {title}: {NUMBER}")
    return layered(
        mark("line", line, across, up, look.colour, strokeWidth=2),
        mark("point", dots, across, up, look.colour, roles.shape, filled=True, size=60, opacity=1,
             tips=shown),
        height=260, says=f"{title} against requests in flight, measured and fitted.",
    )  # fmt: skip


def _role(judged: Judged) -> str:
    if judged.point.held_out:
        return "held out"
    return "measured" if judged.used else "not fitted"


# Distributions -----------------------------------------------------------------------------------


def distribution(points: Sequence[Judged]) -> Drawing:
    """Share of requests that are faster, against latency; each step up is one more nine."""
    rows: list[Row] = []
    for j in points:
        for what, bins in (("measured", j.point.bins), ("fitted", j.answer.bins)):
            if bins is not None:
                rows += [{"of": _shape(j), "what": what, **r} for r in _nines(bins)]
    names = [_shape(j) for j in points]
    return nines_chart(rows, names, [r["what"] for r in rows], "dashed: fitted")


def nines_chart(
    rows: Sequence[Row], names: Sequence[str], kinds: Iterable[str], note: str
) -> Drawing:
    """Distributions of latency: rows of ``of``, ``what``, ``us`` and ``nines``."""
    look = series("of", names, colours=COLOURS, columns=6, shown=True)
    known = list(dict.fromkeys(kinds))
    dashes = alt.StrokeDash("what:N", legend=None, scale=alt.Scale(
        domain=known, range=[[1, 0] if k.startswith("measured") else [5, 3] for k in known]
    ))  # fmt: skip
    across = x("us", "latency, µs" + (f"; {note}" if note else ""), log=[r["us"] for r in rows])
    up = y("nines", "share of requests that are faster", nines=True)
    return layered(
        mark("line", rows, across, up, look.colour, dashes, strokeWidth=2),
        height=280, says=f"Distribution of latency of {', '.join(names)}.",
    )  # fmt: skip


def _nines(bins: Bins) -> Iterator[Row]:
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


# Residuals ----------------------------------------------------------------------------------------


def residuals_by_depth(points: Sequence[Judged]) -> Drawing:
    """By how much each figure is off, against requests in flight; held-out points are hollow."""
    rows: list[Row] = [
        {"depth": j.point.outstanding, "of": FIGURES[key], "off": round(100 * off, 2),
         "held": j.point.held_out, "point": j.point.name}
        for j in points
        for key, off in j.residual.items()
        if key in FIGURES
    ]  # fmt: skip
    names = [name for name in FIGURES.values() if any(row["of"] == name for row in rows)]
    across = x("depth", "requests in flight", log2=[r["depth"] for r in rows], padding=14)
    return residual_chart(rows, names, across, f"Residuals of {', '.join(names)} against depth",
                          dots=True)  # fmt: skip


def residuals_of_distributions(points: Sequence[Judged]) -> Drawing:
    """By how much the latency is off at each percentile, a line a point."""
    rows: list[Row] = []
    for j in points[:MOST_LINES]:
        if j.point.bins is None or j.answer.bins is None:
            continue
        least = min(j.point.bins.count.sum(), j.answer.bins.count.sum())
        nines = np.linspace(0.05, np.log10(max(least / FEWEST_BEYOND, 10.0)), LEVELS)
        off = 100 * (_quantiles(j.answer.bins, nines) / _quantiles(j.point.bins, nines) - 1)
        rows += [
            {"nines": round(float(n), 4), "off": round(float(o), 2), "of": _shape(j)}
            for n, o in zip(nines, off, strict=True)
        ]
    names = list(dict.fromkeys(row["of"] for row in rows))
    across = x("nines", "share of requests that are faster", nines=True)
    return residual_chart(
        rows, names, across, f"Residuals of the distribution at {', '.join(names)}"
    )


def _quantiles(bins: Bins, nines: Floats) -> Floats:
    """float64[k], s: what a share 1 - 10^-nines of requests is faster than."""
    cumulative = np.cumsum(bins.count) / bins.count.sum()
    known = np.asarray(bins.count) > 0
    out: Floats = np.interp(1 - 10.0**-nines, cumulative[known], np.asarray(bins.at_s)[known])
    return out


def residual_chart(
    rows: Sequence[Row], names: Sequence[str], across: alt.X, says: str, *, dots: bool = False
) -> Drawing:
    """Lines of residuals in per cent around zero, with the band of 10 % either way."""
    far = max((abs(row["off"]) for row in rows), default=0.0)
    top = max(1.05 * far, LEAST_TOP)
    # Nothing is cut off: what is far is drawn closer together.
    far_too: dict[str, Any] = {"type": "symlog", "constant": LINEAR_TOP / 2}
    scale = alt.Scale(domain=[-top, top], nice=False, **(far_too if top > LINEAR_TOP else {}))
    up = alt.Y("off:Q", title="fitted / measured - 1, %", scale=scale)
    look = series("of", names, colours=COLOURS, columns=3, shown=True)
    shapes = alt.Scale(domain=[False, True], range=["circle", "diamond"])
    held = alt.Shape("held:N", legend=None, scale=shapes)
    shown = tips("point", "of", "off: fitted / measured - 1, %: +.1f")
    marks = []
    for is_held in (False, True) if dots else ():  # told apart without colours
        some = [row for row in rows if row["held"] == is_held]
        if some:
            marks.append(mark("point", some, across, up, look.colour, held, filled=not is_held,
                              size=60, opacity=1, tips=shown))  # fmt: skip
    return layered(
        mark("rect", [{"low": -BAND, "high": BAND}], alt.Y("low:Q"), alt.Y2("high:Q"),
             opacity=0.12),
        *level(up, 0.0, light=True),
        mark("line", rows, across, up, look.colour, strokeWidth=1.2 if dots else 2),
        *marks, height=190, says=says,
    )  # fmt: skip


# Over time ----------------------------------------------------------------------------------------


def over_time(courses: Sequence[Course]) -> Drawing:
    """Means over time, a line a file; episodes shaded, a step down for good as a rule."""
    factor, title = SCALES[courses[0].unit]
    shown = courses[:MOST_LINES]
    rows: list[Row] = [
        {"s": rounded(float(t)), "of": c.label, "y": rounded(float(v) * factor)}
        for c in shown
        for t, v in zip(c.times_s, c.values, strict=True)
        if v > 0
    ]
    names = [c.label for c in shown]
    across = x("s", "time in the capture, s", zero=False)
    log = {"log": [row["y"] for row in rows]} if courses[0].unit == "s" else {}
    look = series("of", names, colours=COLOURS, columns=2, shown=True)
    spans = [
        {"s": rounded(a), "end": rounded(b), "of": c.label} for c in shown for a, b in c.episodes
    ]
    steps = [{"s": rounded(c.step_s), "of": c.label} for c in shown if c.step_s is not None]
    layers = [mark("line", rows, across, y("y", title, **log), look.colour, strokeWidth=1.5)]
    if spans:
        layers.insert(0, shaded(spans, across, look.colour))
    if steps:
        layers.append(mark("rule", steps, across, look.colour, strokeDash=[4, 3], strokeWidth=1.5))
    return layered(*layers, height=220, says=f"Course over time of {', '.join(names)}")


def shaded(spans: Sequence[Row], across: alt.X, *look: alt.Color) -> alt.Chart:
    """Spans of time, ``s`` to ``end``, as areas."""
    plain: dict[str, Any] = {} if look else {"color": palette.ACCENT}
    return mark("rect", spans, across, alt.X2("end:Q"), *look, opacity=0.18, **plain)
