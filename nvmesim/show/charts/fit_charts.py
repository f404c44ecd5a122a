"""Charts of what was fitted or predicted beside what was measured (Altair); readable in grey."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
from nvmesim.show import palette
from nvmesim.show.charts import base as c
from nvmesim.show.charts.base import Drawing, Rows, rounded
from nvmesim.show.words import LIMITS
from nvmesim.study.validate.score import Score
from nvmesim.units import format_size

COLOURS: Final = (palette.READ, palette.WRITE, "#009e73", "#cc79a7", "#56b4e9", "#7a7f87")
PERCENTILE_COLOURS: Final = {"p50": palette.READ, "p99": palette.WRITE, "p99.9": palette.ACCENT}
MOST_LINES: Final = 6
CDF_POINTS: Final = 120
FASTER: Final = "share of requests that are faster"
LEVELS: Final = 120
WINDOWS: Final = 120
ROLES: Final = {"measured": "circle", "held out": "diamond", "not fitted": "cross"}


def all_charts(fit: DriveFit | StackFit) -> dict[str, Drawing]:
    """Title -> chart, of those that *fit* has points for."""
    groups: dict[str, list[Judged]] = {}
    for j in fit.points:
        groups.setdefault(f"{j.point.op} {format_size(j.point.block_size)}", []).append(j)
    named = [(name, j) for name, group in groups.items() for j in group]
    rates = [_pair(j, name, j.point.iops, j.answer.iops, 1e-3) for name, j in named]
    found = {"Throughput against queue depth": _against_depth(rates, "kIOPS")}
    for name, group in groups.items():
        if sum(bool(j.point.percentiles_s) for j in group) > 1:
            pairs = [
                _pair(j, f"p{p:g}", value, j.answer.percentiles_s.get(p), 1e6)
                for j in group for p, value in j.point.percentiles_s.items()
                if f"p{p:g}" in PERCENTILE_COLOURS
            ]  # fmt: skip
            title = f"Latency against queue depth, {name}"
            found[title] = _against_depth(pairs, "latency, µs", PERCENTILE_COLOURS)
    if any(j.point.cpu_s and j.answer.cpu_s for j in fit.points):
        times = [_pair(j, name, j.point.cpu_s, j.answer.cpu_s, 1e6) for name, j in named]
        title = "CPU time of one request against queue depth"
        found[title] = _against_depth(times, "CPU, µs")
    for name, group in groups.items():
        shown = [j for j in group if j.point.bins is not None and j.answer.bins is not None]
        if len(shown) > MOST_LINES:  # some, from the first to the last
            which = np.linspace(0, len(shown) - 1, MOST_LINES).round().astype(int)
            shown = [shown[i] for i in which]
        if shown:
            found[f"Distribution of latency, {name}"] = _distribution(shown)
    return found


def _shape(judged: Judged) -> str:
    return f"{judged.point.jobs} x {judged.point.iodepth}"


def _pair(
    j: Judged, of: str, measured: float | None, fitted: float | None, factor: float
) -> dict[str, Any]:
    """A figure of a point, measured and fitted as far as known; its role is one of `ROLES`."""
    role = "held out" if j.point.held_out else "measured" if j.used else "not fitted"
    known = {n: rounded(v * factor) for n, v in (("measured", measured), ("fitted", fitted)) if v}
    return {"depth": j.point.outstanding, "of": of, "role": role, "point": j.point.name} | known


def _against_depth(pairs: Rows, title: str, colours: Mapping[str, str] | None = None) -> Drawing:
    """Dots where measured (hollow if not fitted), a line through what the profile does."""
    dots, line = ([{**pair, "y": pair[what]} for pair in pairs if what in pair]
                  for what in ("measured", "fitted"))  # fmt: skip
    found = dict.fromkeys(pair["of"] for pair in pairs)
    names = [n for n in colours if n in found] if colours else list(found)
    look = c.series("of", names, columns=3, shown=True,
                    colours=[colours[n] for n in names] if colours else COLOURS)  # fmt: skip
    used = [r for r in ROLES if any(row["role"] == r for row in dots)]
    roles = c.series("role", used, shapes=[ROLES[r] for r in used])
    across = c.x("depth", "requests in flight", log2=[r["depth"] for r in dots], padding=14)
    how = {"log": [row["y"] for row in [*dots, *line]], "padding": 12} if colours else {}
    up = c.y("y", title, **how)
    shown = c.tips("point", "role", "of", f"y: {title}: {c.NUMBER}")
    return c.layered(
        c.mark("line", line, across, up, look.colour, strokeWidth=2),
        c.mark("point", dots, across, up, look.colour, roles.shape, filled=True, size=60, opacity=1,
               tips=shown),
        height=260, says=f"{title} against requests in flight, measured and fitted.",
    )  # fmt: skip


def _distribution(points: Sequence[Judged]) -> Drawing:
    """Share of requests that are faster, measured and fitted, for each point."""
    rows: Rows = [
        {"of": _shape(j), "what": what, **point}
        for j in points for what, bins in (("measured", j.point.bins), ("fitted", j.answer.bins))
        if bins is not None for point in c.points_of_nines(bins.at_s, bins.count, 4 / CDF_POINTS)
    ]  # fmt: skip
    return _nines_chart(rows, [_shape(j) for j in points], "; dashed: fitted")


def distributions(tables: Mapping[str, Floats]) -> Drawing:
    """Share of requests that are faster, against latency: name -> seconds."""
    rows: Rows = [
        {"of": name, "what": name, "us": rounded(float(v) * 1e6), "nines": round(float(n), 4)}
        for name, samples in tables.items()
        # as far out as a distribution of so many samples can be drawn
        for most in [math.log10(max(len(samples) / c.FEWEST_BEYOND, 2.0))]
        for nines in [np.linspace(0.02, most, LEVELS)]
        for n, v in zip(nines, np.quantile(samples, 1 - 10.0**-nines), strict=True)
    ]  # fmt: skip
    return _nines_chart(rows, list(tables), "")


def _nines_chart(rows: Rows, names: Sequence[str], note: str) -> Drawing:
    """Distributions of latency: rows of ``of``, ``what``, ``us`` and ``nines``."""
    look = c.series("of", names, colours=COLOURS, columns=6, shown=True)
    known = list(dict.fromkeys(r["what"] for r in rows))
    dashes = alt.StrokeDash("what:N", legend=None, scale=alt.Scale(
        domain=known, range=[[1, 0] if k.startswith("measured") else [5, 3] for k in known]
    ))  # fmt: skip
    across = c.x("us", f"latency, µs{note}", log=[r["us"] for r in rows])
    up = c.y("nines", FASTER, nines=True)
    return c.layered(
        c.mark("line", rows, across, up, look.colour, dashes, strokeWidth=2),
        height=280, says=f"Distribution of latency of {', '.join(names)}.",
    )  # fmt: skip


def requests_over_time(at_s: Floats, tables: Mapping[str, Floats]) -> Drawing:
    """Median and p99 of single requests in windows of time."""
    edges = np.linspace(float(at_s[0]), float(at_s[-1]), min(WINDOWS, max(4, len(at_s) // 50)) + 1)
    window = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, len(edges) - 2)
    rows: Rows = [
        {"s": rounded(float(edge)), "of": f"{name} p{p}", "us": rounded(v * 1e6)}
        for name, samples in tables.items() for i, edge in enumerate(edges[:-1])
        if len(part := samples[window == i]) >= 5
        for p, v in zip((50, 99), np.percentile(part, (50, 99)).tolist(), strict=True)
    ]  # fmt: skip
    names = [f"{name} p{percent}" for name in tables for percent in (50, 99)]
    dashes = [(1, 0) if n.startswith("measured") else (6, 3) for n in names]
    look = c.series("of", names, colours=COLOURS, dashes=dashes, columns=4, lines=True, shown=True)
    across = c.x("s", "time in the capture, s", zero=False)
    up = c.y("us", "latency, µs", log=[r["us"] for r in rows])
    line = c.mark("line", rows, across, up, look.colour, look.dash, strokeWidth=1.5)
    return c.layered(line, height=220, says="Latency over time")


def score_charts(scores: Sequence[Score]) -> dict[str, tuple[Drawing, str]]:
    """Title -> (chart, caption), of those that there are rows for."""
    rows: Rows = [
        {"set": s.published.name, "row": line.row.config, "measured": line.row.measured,
         "predicted": line.value.value, "low": line.value.low, "high": line.value.high,
         "error": 100 * line.error, "stop": LIMITS.get(line.value.verdict, line.value.verdict),
         "role": line.row.role}
        for s in scores for line in s.lines
        if line.row.role != "input" and line.row.metric == "iops" and line.row.measured
    ]  # fmt: skip
    if not rows:
        return {}
    ends = [min(r["measured"] for r in rows) / 2, 2 * max(r["measured"] for r in rows)]
    scale = alt.Scale(type="log", domain=ends, clamp=True)
    across = alt.X("measured:Q", scale=scale, title="measured IOPS")
    up = alt.Y("predicted:Q", scale=scale, title="predicted IOPS")
    perfect = [{"measured": end, "predicted": end} for end in ends]
    shown = c.tips("set", "row", f"measured: measured, IOPS: {c.NUMBER}",
                   f"predicted: predicted, IOPS: {c.NUMBER}", "error: error, %: +.3~g")  # fmt: skip
    drawn = c.layered(
        c.mark("line", perfect, across, up, color="gray", strokeDash=[4, 4]),
        c.mark("rule", rows, across, alt.Y("low:Q", scale=scale), alt.Y2("high:Q"),
               alt.Color("set:N")),
        c.mark("point", rows, across, up, alt.Color("set:N"), filled=True, size=60, tips=shown),
        height=420, says=f"Predicted against measured IOPS of {len(rows)} rows.",
    )  # fmt: skip
    text = "Both axes logarithmic; bars are 95 % intervals; the line is a perfect prediction."
    return {"Predicted against measured, IOPS": (drawn, text)}
