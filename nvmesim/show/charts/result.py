"""Charts of a result (Altair): each function draws one answer, with units, readable in grey.

Every chart takes its data along (no URL), so it can be saved or inlined with no network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt

from nvmesim.measure.figures import Distribution, OpStats
from nvmesim.predict.result import CurvePoint, Result
from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.charts.base import (
    LOG_LABELS,
    PASSED,
    PERCENT_LABELS,
    WIDTH,
    Column,
    Drawing,
    column,
    inline,
    layered,
    legend,
    log_ticks,
    rounded,
)
from nvmesim.units import PS_PER_S

MOST_POINTS: Final = 240
"""Points of one line: more than the eye resolves only make the page heavier."""
FEWEST_BEYOND: Final = 10
"""A tail is drawn as far as this many samples lie beyond it."""
FIRST_SHARE: Final = 0.002
"""The fastest few per mille are a flat line that only stretches the axis."""
LABEL_SHARE: Final = 0.08
"""Of an axis' length: what a label needs, so that two do not touch."""
TAIL_LABELS: Final = (
    "datum.value == 0 ? '0 %' : datum.value == 1 ? '90 %' : datum.value == 2 ? '99 %' : "
    "datum.value == 3 ? '99.9 %' : datum.value == 4 ? '99.99 %' : datum.value == 5 ? '99.999 %' : "
    "'99.9999 %'"
)


def chart(result: Result, *, width: int = WIDTH) -> Column:
    """All charts of *result*, one below the other."""
    return column(all_charts(result), width)


def all_charts(result: Result) -> dict[str, Drawing]:
    """Title -> chart, of those that *result* has data for."""
    found: dict[str, Drawing] = {"Busy, along the path": utilization(result)}
    if result.bottleneck.reliefs:
        found["What relief would bring"] = reliefs(result)
    if len(result.total.latency.bin_s):
        found["Latency"] = latency_cdf(result)
    if len(result.curve) > 1:
        found["Throughput against outstanding requests"] = throughput_curve(result)
        found["Latency against throughput"] = latency_curve(result)
    if len(result.members) > 1:
        found["What each drive does"] = members(result)
    from nvmesim.show.charts import time as charts_time

    found |= charts_time.charts(result)
    if result.waits is not None:
        from nvmesim.show.charts import waiting as charts_waiting  # it draws with what is here

        found |= charts_waiting.charts(result.waits)
    return found


# Latency ---------------------------------------------------------------------------------------


def latency_cdf(result: Result) -> Drawing:
    """Share of requests that are faster, against latency; each step up is one more nine."""
    parts = {"total": result.total, "read": result.read, "write": result.write}
    both = result.read is not None and result.write is not None
    drawn = {n: s for n, s in parts.items() if s is not None and (both or n == "total")}
    rows = [row for name, stats in drawn.items() for row in _nines(name, stats.latency)]
    marks = [row for name, stats in drawn.items() for row in _percentile_marks(name, stats)]
    names = list(drawn)
    shown = legend(lines=True) if both else None
    colour = alt.Color("op:N", sort=names, scale=_op_scale(names), legend=shown)
    x = alt.X(
        "us:Q",
        title="latency, µs (log)",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(labelExpr=LOG_LABELS, values=log_ticks([row["us"] for row in rows])),
    )
    y = alt.Y(
        "nines:Q",
        title="share of requests that are faster",
        scale=alt.Scale(domainMin=0, nice=False),
        axis=alt.Axis(values=[0, 1, 2, 3, 4, 5, 6], labelExpr=TAIL_LABELS),
    )
    dash = alt.StrokeDash(
        "op:N",
        sort=names,
        scale=alt.Scale(domain=names, range=_dashes(names)),
        legend=shown,
    )
    line = alt.Chart(inline(rows)).mark_line(strokeWidth=2).encode(x, y, colour, dash)
    points = alt.Chart(inline(marks)).mark_point(filled=True, size=45).encode(x, y, colour)
    points = points.encode(
        tooltip=[alt.Tooltip("op:N"), alt.Tooltip("which:N"), alt.Tooltip("us:Q", format=",.1f")]
    )
    return layered(line, points, height=260, says=_said_of_latency(drawn))


def _said_of_latency(drawn: Mapping[str, OpStats]) -> str:
    def one(name: str, stats: OpStats) -> str:
        known = [f"p{p:g} {summary.microseconds(v)} us"
                 for p, v in stats.latency.percentiles.items() if v is not None]  # fmt: skip
        return f"{name}: mean {summary.microseconds(stats.latency.mean)} us, {', '.join(known)}"

    return f"Latency. {'; '.join(one(n, s) for n, s in drawn.items())}."


def _op_scale(names: Sequence[str]) -> alt.Scale:
    colours = {"total": palette.TOTAL, "read": palette.READ, "write": palette.WRITE}
    return alt.Scale(domain=list(names), range=[colours[n] for n in names])


def _dashes(names: Sequence[str]) -> list[list[int]]:
    dashes = {"total": [1, 0], "read": [6, 3], "write": [2, 2]}
    return [dashes[n] for n in names]


def _nines(name: str, distribution: Distribution) -> list[dict[str, Any]]:
    """Points of the CDF on an axis of nines, -log10(1 - p), evenly spread over it."""
    total = int(distribution.bin_count.sum())
    below = distribution.bin_count.cumsum()
    rows: list[dict[str, Any]] = []
    last = -1.0
    step = math.log10(max(10.0, total)) / MOST_POINTS
    for value, count in zip(distribution.bin_s.tolist(), below.tolist(), strict=True):
        if total - count < FEWEST_BEYOND:
            break
        if count < FIRST_SHARE * total:
            continue
        nines = math.log10(total / (total - count))
        if nines - last >= step or not rows:
            rows.append({"op": name, "us": rounded(value * 1e6), "nines": round(nines, 4)})
            last = nines
    return rows


def _percentile_marks(name: str, stats: OpStats) -> list[dict[str, Any]]:
    return [
        {
            "op": name,
            "which": f"p{p:g}",
            "us": rounded(value * 1e6),
            "nines": -math.log10(1 - p / 100),
        }
        for p, value in stats.latency.percentiles.items()
        if value is not None
    ]


# Stations --------------------------------------------------------------------------------------


def utilization(result: Result) -> Drawing:
    """How busy each station along the path is; of equal stations the busiest, and their range."""
    rows: list[dict[str, Any]] = [
        {
            "station": _group_label(group),
            "kind": group.kind,
            "busy": round(group.busiest.utilization, 4),
            "least": round(group.least, 4),
            "text": summary.percent(group.busiest.utilization),
        }
        for group in summary.station_groups(result.stations)
        if group.kind not in ("delay", "gate") or group.busiest.resource
    ]
    order = [row["station"] for row in rows]
    kinds = [k for k in palette.KINDS if any(row["kind"] == k for row in rows)]
    colours = [palette.KINDS[k] for k in kinds]
    data = inline(rows)
    top = max([1.0, *(float(row["busy"]) for row in rows)])
    x = alt.X(
        "busy:Q",
        title="busy",
        scale=alt.Scale(domain=[0, top * 1.16], nice=False),
        axis=alt.Axis(labelExpr=PERCENT_LABELS, values=[0, 0.25, 0.5, 0.9]),
    )
    y = alt.Y("station:N", title=None, sort=order, axis=alt.Axis(labelLimit=230))
    kind = alt.Color(
        "kind:N", sort=kinds, scale=alt.Scale(domain=kinds, range=colours), legend=legend()
    )
    bars = alt.Chart(data).mark_bar(height={"band": 0.68}).encode(x, y, kind)
    ranges = (
        alt.Chart(data).mark_tick(thickness=2, size=11, color="#ffffff").encode(alt.X("least:Q"), y)
    )
    ranges = ranges.transform_filter("datum.busy - datum.least > 0.02")
    texts = alt.Chart(data).mark_text(align="left", dx=4).encode(x, y, alt.Text("text:N"))
    full = alt.Chart(inline([{"full": summary.FULL}])).mark_rule(
        strokeDash=[4, 3], color=palette.ACCENT
    )
    text = ", ".join(f"{row['station']} {row['text']}" for row in rows)
    layers = (bars, ranges, full.encode(alt.X("full:Q")), texts)
    return layered(*layers, height=22 * len(rows), says=f"How busy each station is. {text}.")


def _group_label(group: summary.StationGroup) -> str:
    many = len(group.members)
    return f"{group.label} × {many}" if many > 1 else group.label


# What relief brings ------------------------------------------------------------------------------


def reliefs(result: Result) -> Drawing:
    """The gain in IOPS of each relief, simulated again."""
    now = result.total.iops.value / 1e3
    rows: list[dict[str, Any]] = [
        {
            "change": summary.one_line(relief.change),
            "kiops": rounded(relief.iops.value / 1e3),
            "gain": rounded(100 * relief.gain),
            "low": rounded(100 * relief.gain_low),
            "high": rounded(100 * relief.gain_high),
            "text": f"{summary.gain(relief.gain)}, {summary.kiops(relief.iops.value)}IOPS",
        }
        for relief in result.bottleneck.reliefs
    ]
    order = [row["change"] for row in rows]
    data = inline(rows)
    gains = [float(row["gain"]) for row in rows]
    # A wide interval must not make the bars invisible: it leaves the chart.
    most = min(max(10.0, *(float(r["high"]) for r in rows)), max(10.0, 2.5 * max(gains)))
    least = max(min(0.0, *(float(r["low"]) for r in rows)), -0.6 * most)
    scale = alt.Scale(domain=[least, most * 1.5], nice=False)
    y = alt.Y("change:N", title=None, sort=order, axis=alt.Axis(labelLimit=290))
    x = alt.X("gain:Q", title="gain in IOPS, %", scale=scale, axis=alt.Axis(tickCount=6))
    bars = alt.Chart(data).mark_bar(height={"band": 0.6}, color=palette.READ, clip=True)
    whiskers = alt.Chart(data).mark_rule(strokeWidth=2, clip=True)
    texts = alt.Chart(data).mark_text(align="right", dx=-4)
    today = alt.Chart(inline([{"now": 0}])).mark_rule(color=palette.MUTED)
    text = "; ".join(f"{row['change']}: {row['text']}" for row in rows)
    layers = (
        bars.encode(x, y),
        whiskers.encode(alt.X("low:Q"), alt.X2("high:Q"), y),
        today.encode(alt.X("now:Q")),
        texts.encode(y, alt.Text("text:N"), x=alt.value("width")),
    )
    says = f"What relief would bring, from {now:,.4g} kIOPS now. {text}."
    return layered(*layers, height=30 * len(rows), says=says)


# Curves ----------------------------------------------------------------------------------------


def throughput_curve(result: Result) -> Drawing:
    """Simulated throughput against outstanding requests, under its bound lines."""
    rows = [{"n": p.outstanding, "kiops": rounded(p.iops / 1e3)} for p in result.curve]
    most = max(float(row["kiops"]) for row in rows)
    least = min((b for b in result.bottleneck.bounds.values() if math.isfinite(b)), default=0.0)
    top = max(most, least / 1e3) * 1.25
    bounds = _bounds(result, top)
    x = alt.X(
        "n:Q",
        title="outstanding requests (log)",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(labelExpr=LOG_LABELS, values=[p.outstanding for p in result.curve]),
    )
    y = alt.Y("kiops:Q", title="kIOPS", scale=alt.Scale(domain=[0, top], clamp=True, nice=False))
    data = inline(rows)
    line = alt.Chart(data).mark_line(color=palette.READ, strokeWidth=2).encode(x, y)
    points = (
        alt.Chart(data)
        .mark_point(color=palette.READ, filled=True, size=40)
        .encode(x, y, tooltip=[alt.Tooltip("n:Q"), alt.Tooltip("kiops:Q", format=",.0f")])
    )
    layers = [line, points, *_bound_layers(bounds), *_no_waiting(result.curve, top, x, y)]
    text = ", ".join(f"{row['kiops']:,.4g} at {row['n']:,}" for row in rows)
    layers += _operating_point(result, x, y)
    says = f"Throughput in kIOPS at so many outstanding requests: {text}."
    return layered(*layers, height=270, says=says)


def _bounds(result: Result, top: float) -> list[dict[str, Any]]:
    """The tightest bounds below *top*, least first; those too close to label share one line."""
    found: list[dict[str, Any]] = []
    for name, iops in sorted(result.bottleneck.bounds.items(), key=lambda pair: pair[1]):
        kiops = rounded(iops / 1e3) if math.isfinite(iops) else math.inf
        passed = kiops * 1e3 < PASSED * max(p.iops for p in result.curve)
        if passed or kiops > top or (found and kiops - found[-1]["kiops"] < LABEL_SHARE * top):
            continue
        found.append({"kiops": kiops, "text": f"bound: {name}"})
    return found[:3]


def _bound_layers(bounds: Sequence[dict[str, Any]]) -> list[alt.Chart]:
    shown = inline(bounds)
    rule = alt.Chart(shown).mark_rule(strokeDash=[4, 3], color=palette.ACCENT)
    text = alt.Chart(shown).mark_text(align="left", baseline="bottom", dx=5, dy=-3, fontSize=10)
    y = alt.Y("kiops:Q")
    return [rule.encode(y), text.encode(y, alt.Text("text:N"), x=alt.value(0))]


def _no_waiting(curve: Sequence[CurvePoint], top: float, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The bound of light load: outstanding / latency at the least load."""
    first, last = curve[0], curve[-1]
    each = first.iops / first.outstanding / 1e3
    if each <= 0:
        return []
    growth = min(last.outstanding, top / each) / first.outstanding
    n = [first.outstanding * growth ** (i / 40) for i in range(41)]
    rows = [{"n": rounded(v), "kiops": rounded(min(top, v * each))} for v in n]
    line = alt.Chart(inline(rows)).mark_line(strokeDash=[2, 3], color=palette.MUTED)
    middle = [row for row in rows if row["kiops"] >= 0.3 * rows[-1]["kiops"]][:1]
    text = alt.Chart(inline(middle)).mark_text(align="right", dx=-7, fontSize=10)
    return [line.encode(x, y), text.encode(x, y, text=alt.value("bound: no waiting"))]


def _operating_point(result: Result, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    now = inline([{"n": result.outstanding, "kiops": rounded(result.total.iops.value / 1e3)}])
    if not result.curve[0].outstanding <= result.outstanding <= result.curve[-1].outstanding:
        return []
    ring = alt.Chart(now).mark_point(size=170, strokeWidth=2.5, color=palette.ACCENT, opacity=1)
    text = alt.Chart(now).mark_text(align="right", dx=-12, dy=-8, fontWeight="bold")
    return [ring.encode(x, y), text.encode(x, y, text=alt.value("this load"))]


def latency_curve(result: Result) -> Drawing:
    """Mean and p99 against throughput: where it bends, more load only waits."""
    rows: list[dict[str, Any]] = []
    for point in result.curve:
        both = {"mean": point.mean_s, "p99": point.p99_s}
        rows += [
            {"kiops": rounded(point.iops / 1e3), "us": rounded(v * 1e6), "which": name,
             "n": point.outstanding}
            for name, v in both.items()
            if v is not None and math.isfinite(v)
        ]  # fmt: skip
    names = ["mean", "p99"]
    scale = alt.Scale(domain=names, range=[palette.READ, palette.WRITE])
    dashes = alt.Scale(domain=names, range=[[1, 0], [6, 3]])
    goal = _goal_s(result)
    known = [float(str(row["us"])) for row in rows]
    ticks = log_ticks([*known, goal * 1e6] if goal else known)
    shared = alt.Chart(inline(rows)).encode(
        alt.X("kiops:Q", title="kIOPS", scale=alt.Scale(zero=True, nice=False),
              axis=alt.Axis(tickCount=8)),
        alt.Y("us:Q", title="latency, µs (log)",
              scale=alt.Scale(type="log", nice=False, padding=12),
              axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks)),
        alt.Color("which:N", sort=names, scale=scale, legend=legend(lines=True)),
        order="n:Q",
        tooltip=[alt.Tooltip("n:Q", title="outstanding"), alt.Tooltip("kiops:Q", format=",.0f"),
                 alt.Tooltip("us:Q", format=",.0f")],
    )  # fmt: skip
    line = shared.mark_line(strokeWidth=2).encode(
        alt.StrokeDash("which:N", sort=names, scale=dashes, legend=legend(lines=True))
    )
    text = ", ".join(f"{row['which']} {row['us']:,.4g} µs at {row['kiops']:,.4g}" for row in rows)
    bounds = [*_latency_bounds(result), *_goal_line(goal)]
    says = f"Latency against throughput in kIOPS: {text}."
    if goal:
        says += f" The goal is {1e6 * goal:,.4g} µs."
    return layered(*bounds, line, shared.mark_point(filled=True, size=36), height=240, says=says)


def _goal_s(result: Result) -> float | None:
    """The latency that every workload agrees on (slo), s; None if none or several are stated."""
    groups = () if result.resolved is None else result.resolved.workload
    stated = {g.slo_ps for g in groups if g.slo_ps is not None}
    return stated.pop() / PS_PER_S if len(stated) == 1 else None


def _goal_line(goal: float | None) -> list[alt.Chart]:
    if goal is None:
        return []
    at = alt.Chart(inline([{"us": rounded(goal * 1e6), "text": "goal"}]))
    rule = at.mark_rule(strokeDash=[7, 4], strokeWidth=1.5, color=palette.ACCENT).encode(
        alt.Y("us:Q")
    )
    text = at.mark_text(align="left", dx=4, dy=-7, fontSize=11, color=palette.ACCENT)
    return [rule, text.encode(alt.Y("us:Q"), alt.Text("text:N"), x=alt.value(0))]


def _latency_bounds(result: Result) -> list[alt.Chart]:
    """No throughput right of the fullest station's bound, no mean below that of the least load."""
    most = max(p.iops for p in result.curve)
    bound = result.bottleneck.bound_iops
    layers = []
    if math.isfinite(bound) and PASSED * most <= bound <= 1.5 * most:
        at = alt.Chart(inline([{"kiops": rounded(bound / 1e3), "text": "bound"}]))
        rule = at.mark_rule(strokeDash=[4, 3], color=palette.ACCENT).encode(alt.X("kiops:Q"))
        text = at.mark_text(align="right", dx=-5, fontSize=10)
        layers += [rule, text.encode(alt.X("kiops:Q"), alt.Text("text:N"), y=alt.value(231))]
    light = alt.Chart(inline([{"us": rounded(result.curve[0].mean_s * 1e6)}]))
    rule = light.mark_rule(strokeDash=[2, 3], color=palette.MUTED).encode(alt.Y("us:Q"))
    return [*layers, rule]


# Members ---------------------------------------------------------------------------------------


def members(result: Result) -> Drawing:
    """Commands per second that each drive serves; of many, those that are alike share a bar."""
    rate = result.total.iops.value / 1e3
    rebuilt = result.rebuild.drive or "" if result.rebuild is not None else ""
    rows: list[dict[str, Any]] = []
    totals: list[float] = []
    for group in summary.alike(result.members, rebuilt):
        name = summary.one_line(summary.alike_name(group))
        name += ", rebuilt" if group[0].name == rebuilt else ""
        both = {"reads": [m.reads_per_request for m in group],
                "writes": [m.writes_per_request for m in group]}  # fmt: skip
        rows += [
            {"drive": name, "what": what, "kiops": rounded(sum(each) / len(each) * rate),
             "each": rounded(sum(each) / len(each))}
            for what, each in both.items()
        ]  # fmt: skip
        totals += [(m.reads_per_request + m.writes_per_request) * rate for m in group]
    names = ["reads", "writes"]
    scale = alt.Scale(domain=names, range=[palette.READ, palette.WRITE])
    order = list(dict.fromkeys(row["drive"] for row in rows))
    bars = alt.Chart(inline(rows)).mark_bar(height={"band": 0.7}).encode(
        alt.Y("drive:N", title=None, sort=order, axis=alt.Axis(labelLimit=220)),
        alt.X("kiops:Q", title="commands of each, kIOPS", axis=alt.Axis(tickCount=6)),
        alt.Color("what:N", sort=names, scale=scale, legend=legend()),
        tooltip=[alt.Tooltip("drive:N"), alt.Tooltip("what:N"),
                 alt.Tooltip("kiops:Q", format=",.1f"),
                 alt.Tooltip("each:Q", title="per request")],
    )  # fmt: skip
    text = f"{min(totals):,.4g} to {max(totals):,.4g} kIOPS of commands for each of {len(totals)}"
    return layered(bars, height=24 * len(order), says=f"What each drive serves: {text} drives.")
