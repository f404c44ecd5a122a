"""Charts of a result (Altair): each function draws one answer, with units, readable in grey.

Every chart takes its data along (no URL), so it can be saved or inlined with no network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import altair as alt

from nvmesim.measure.figures import Distribution, OpStats
from nvmesim.predict.result import CurvePoint, Result
from nvmesim.show import palette, words
from nvmesim.show.charts.base import (
    NUMBER,
    PASSED,
    WIDTH,
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
from nvmesim.show.station_groups import (
    FULL,
    StationGroup,
    equal_members,
    group_name,
    station_groups,
)

MOST_POINTS: Final = 240
"""Points of one line: more than the eye resolves only make the page heavier."""
FEWEST_BEYOND: Final = 10
"""A tail is drawn as far as this many samples lie beyond it."""
FIRST_SHARE: Final = 0.002
"""The fastest few per mille are a flat line that only stretches the axis."""
LABEL_SHARE: Final = 0.08
"""Of an axis' length: what a label needs, so that two do not touch."""
OPS: Final = {"total": palette.TOTAL, "read": palette.READ, "write": palette.WRITE}
OP_DASHES: Final = {"total": (1, 0), "read": (6, 3), "write": (2, 2)}

Rows = list[dict[str, Any]]


def chart(result: Result, *, width: int = WIDTH) -> Column:
    """All charts of *result*, one below the other."""
    return column(all_charts(result), width)


def all_charts(result: Result) -> dict[str, Drawing]:
    """Title -> chart, of those that *result* has data for."""
    from nvmesim.show.charts import time_series, waiting

    found: dict[str, Drawing] = {"Busy, along the path": utilization(result)}
    if result.bottleneck.reliefs:
        found["What would help"] = reliefs(result)
    if len(result.total.latency.bin_s):
        found["Latency"] = latency_cdf(result)
    if len(result.curve) > 1:
        found["Throughput against outstanding requests"] = throughput_curve(result)
        found["Latency against throughput"] = latency_curve(result)
    if len(result.members) > 1:
        found["What each drive does"] = members(result)
    return found | time_series.charts(result) | waiting.charts(result.waits)


# Latency ---------------------------------------------------------------------------------------


def latency_cdf(result: Result) -> Drawing:
    """Share of requests that are faster, against latency; each step up is one more nine."""
    parts = {"total": result.total, "read": result.read, "write": result.write}
    both = result.read is not None and result.write is not None
    drawn = {n: s for n, s in parts.items() if s is not None and (both or n == "total")}
    rows = [row for name, stats in drawn.items() for row in _nines(name, stats.latency)]
    dots = [row for name, stats in drawn.items() for row in _percentiles(name, stats.latency)]
    look = series("op", list(drawn), colours=[OPS[n] for n in drawn], lines=True,
                  dashes=[OP_DASHES[n] for n in drawn])  # fmt: skip
    across = x("us", "latency, µs", log=[row["us"] for row in rows])
    up = y("nines", "share of requests that are faster", nines=True)
    return layered(
        mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2),
        mark("point", dots, across, up, look.colour, filled=True, size=45,
             tips=tips("op: requests", "which: percentile", "us: latency, µs: ,.1f")),
        height=260, says=f"Latency. {'; '.join(_latency_text(n, s) for n, s in drawn.items())}.",
    )  # fmt: skip


def _latency_text(name: str, stats: OpStats) -> str:
    us = words.microseconds
    found = [f"p{p:g} {us(v)} us" for p, v in stats.latency.percentiles.items() if v is not None]
    return f"{name}: mean {us(stats.latency.mean)} us, {', '.join(found)}"


def _nines(name: str, distribution: Distribution) -> Iterator[dict[str, Any]]:
    """Points of the CDF on an axis of nines, -log10(1 - p), evenly spread over it."""
    total = int(distribution.bin_count.sum())
    below = distribution.bin_count.cumsum()
    last, step = -math.inf, math.log10(max(10.0, total)) / MOST_POINTS
    for value, count in zip(distribution.bin_s.tolist(), below.tolist(), strict=True):
        if total - count < FEWEST_BEYOND:
            break
        nines = math.log10(total / (total - count))
        if count >= FIRST_SHARE * total and nines - last >= step:
            yield {"op": name, "us": rounded(value * 1e6), "nines": round(nines, 4)}
            last = nines


def _percentiles(name: str, distribution: Distribution) -> Iterator[dict[str, Any]]:
    for p, value in distribution.percentiles.items():
        if value is not None:
            nines = -math.log10(1 - p / 100)
            yield {"op": name, "which": f"p{p:g}", "us": rounded(value * 1e6), "nines": nines}


# Stations --------------------------------------------------------------------------------------


def utilization(result: Result) -> Drawing:
    """How busy each station along the path is; of equal stations the busiest, and their range."""
    rows: Rows = [
        {"station": _label(group), "kind": group.kind, "busy": round(group.busiest.utilization, 4),
         "least": round(group.least, 4), "text": words.percent(group.busiest.utilization)}
        for group in station_groups(result.stations)
        if group.kind not in ("delay", "gate") or group.busiest.resource
    ]  # fmt: skip
    kinds = [k for k in palette.KINDS if any(row["kind"] == k for row in rows)]
    look = series("kind", kinds, colours=[palette.KINDS[k] for k in kinds], shown=True)
    top = max([1.0, *(float(row["busy"]) for row in rows)])
    across = x("busy", "busy", domain=(0, top * 1.16), percents=[0, 0.25, 0.5, 0.9])
    up = y("station", names=[row["station"] for row in rows])
    ranged = [row for row in rows if row["busy"] - row["least"] > 0.02]
    text = ", ".join(f"{row['station']} {row['text']}" for row in rows)
    return layered(
        mark("bar", rows, across, up, look.colour, height={"band": 0.68},
             tips=tips("station", "kind", "text: busy", "least: least busy of them: .0%")),
        mark("tick", ranged, alt.X("least:Q"), up, thickness=2, size=11, color="#ffffff"),
        *level(across, FULL),
        mark("text", [row | {"end": top * 1.02} for row in rows], alt.X("end:Q"), up,
             alt.Text("text:N"), align="left"),
        height=22 * len(rows), says=f"How busy each station is. {text}.",
    )  # fmt: skip


def _label(group: StationGroup) -> str:
    many = len(group.members)
    return f"{group.label} × {many}" if many > 1 else group.label


# What would help ---------------------------------------------------------------------------------


def reliefs(result: Result) -> Drawing:
    """IOPS after each change that was simulated, against what it is now."""
    now = result.total.iops.value / 1e3
    found = result.bottleneck.reliefs
    # A wide interval must not make the bars invisible: it leaves the chart.
    most = max(1.1 * now, *(r.iops.value / 1e3 for r in found)) * 1.3
    rows: Rows = [
        {"change": words.one_line(r.change), "kiops": rounded(r.iops.value / 1e3),
         "low": rounded(max(0.0, now * (1 + r.gain_low))), "zero": 0,
         "high": rounded(min(most, now * (1 + r.gain_high))), "end": rounded(most * 1.02),
         "text": f"{words.kiops(r.iops.value)}, {words.gain(r.gain)}",
         "label": words.gain(r.gain), "within": words.gain_span(r.gain_low, r.gain_high)}
        for r in found
    ]  # fmt: skip
    across = x("kiops", "kIOPS", domain=(0, most * 1.4), ticks=6)
    up = y("change", names=[row["change"] for row in rows])
    help_ = tips(
        "change", f"kiops: throughput, kIOPS: {NUMBER}", "text: with", "within: gain, 95 %"
    )
    text = "; ".join(f"{row['change']}: {row['text']}" for row in rows)
    return layered(
        mark("bar", rows, across, up, height={"band": 0.6}, color=palette.READ, tips=help_),
        mark("rule", rows, alt.X("low:Q"), alt.X2("high:Q"), up, strokeWidth=2),
        *level(across, now),
        mark("text", rows, alt.X("end:Q"), up, alt.Text("label:N"), align="left"),
        height=30 * len(rows), says=f"What would help, from {now:,.4g} kIOPS now. {text}.",
    )  # fmt: skip


# Curves ----------------------------------------------------------------------------------------


def throughput_curve(result: Result) -> Drawing:
    """Simulated throughput against outstanding requests, under its bound lines."""
    down, over = _relative(result.total.iops.low, result.total.iops.value, result.total.iops.high)
    rows: Rows = [
        {"n": p.outstanding, "kiops": rounded(p.iops / 1e3), "low": rounded(p.iops * down / 1e3),
         "high": rounded(p.iops * over / 1e3)} for p in result.curve
    ]  # fmt: skip
    most = max(float(row["kiops"]) for row in rows)
    least = min((b for b in result.bottleneck.bounds.values() if math.isfinite(b)), default=0.0)
    top = max(most, min(least / 1e3, 1.6 * most), min(1.6 * most, rows[-1]["high"])) * 1.12
    band = [row | {"low": min(row["low"], top), "high": min(row["high"], top)} for row in rows]
    across = x("n", "outstanding requests", log2=[p.outstanding for p in result.curve])
    up = y("kiops", "kIOPS", domain=(0, top))
    shown = tips("n: outstanding: ,", f"kiops: throughput, kIOPS: {NUMBER}")
    text = ", ".join(f"{row['kiops']:,.4g} at {row['n']:,}" for row in rows)
    return layered(
        mark("area", band, across, alt.Y("low:Q"), alt.Y2("high:Q"), opacity=0.15,
             color=palette.READ),
        mark("line", rows, across, up, color=palette.READ, strokeWidth=2),
        mark("point", rows, across, up, color=palette.READ, filled=True, size=40, tips=shown),
        *(layer for b in _bounds(result, top) for layer in level(up, b["kiops"], b["text"])),
        *_no_waiting(result.curve, top, across, up), *_this_load(result, across, up),
        height=270, says=f"Throughput in kIOPS at so many outstanding requests: {text}.",
    )  # fmt: skip


def _relative(low: float, value: float, high: float) -> tuple[float, float]:
    """Both ends of an interval as shares of its value; (1, 1) if they are not known."""
    if not value or not math.isfinite(high - low):
        return 1.0, 1.0
    return low / value, high / value


def _bounds(result: Result, top: float) -> Rows:
    """The tightest bounds below *top*, least first; those too close to label share one line."""
    found: Rows = []
    for name, iops in sorted(result.bottleneck.bounds.items(), key=lambda pair: pair[1]):
        kiops = rounded(iops / 1e3) if math.isfinite(iops) else math.inf
        passed = kiops * 1e3 < PASSED * max(p.iops for p in result.curve)
        if passed or kiops > top or (found and kiops - found[-1]["kiops"] < LABEL_SHARE * top):
            continue
        found.append({"kiops": kiops, "text": f"bound: {words.one_line(name)}"})
    return found[:3]


def _no_waiting(
    curve: Sequence[CurvePoint], top: float, across: alt.X, up: alt.Y
) -> list[alt.Chart]:
    """The bound of light load: outstanding / latency at the least load."""
    first, last = curve[0], curve[-1]
    each = first.iops / first.outstanding / 1e3
    if each <= 0:
        return []
    growth = min(last.outstanding, top / each) / first.outstanding
    n = [first.outstanding * growth ** (i / 40) for i in range(41)]
    rows = [{"n": rounded(v), "kiops": rounded(min(top, v * each))} for v in n]
    middle = [row for row in rows if row["kiops"] >= 0.3 * rows[-1]["kiops"]][:1]
    return [
        mark("line", rows, across, up, strokeDash=[2, 3], color=palette.MUTED),
        mark("text", middle, across, up, alt.TextValue("no waiting"), align="right", dx=-7,
             fontSize=10),
    ]  # fmt: skip


def _this_load(result: Result, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """A ring around where the answer lies."""
    now = [{"n": result.outstanding, "kiops": rounded(result.total.iops.value / 1e3)}]
    if not result.curve[0].outstanding <= result.outstanding <= result.curve[-1].outstanding:
        return []
    return [
        mark("point", now, across, up, size=170, strokeWidth=2.5, color=palette.ACCENT, opacity=1),
        mark("text", now, across, up, alt.TextValue("this load"), align="center", dy=20,
             fontWeight="bold"),
    ]  # fmt: skip


def latency_curve(result: Result) -> Drawing:
    """Mean and p99 against throughput: where it bends, more load only waits."""
    latency = result.total.latency
    rows: Rows = []
    for name, key in (("mean", "mean_s"), ("p99", "p99_s")):
        now, ends = words.latency_at(latency, name), latency.intervals.get(name, (0.0, math.inf))
        down, over = _relative(ends[0], now or 0.0, ends[1])
        rows += [
            {"kiops": rounded(p.iops / 1e3), "us": rounded(v * 1e6), "which": name,
             "n": p.outstanding, "low": rounded(v * down * 1e6), "high": rounded(v * over * 1e6)}
            for p in result.curve
            if (v := getattr(p, key)) is not None and math.isfinite(v)
        ]  # fmt: skip
    goal = result.goal
    limit = [] if goal is None else [goal.limit * 1e6]
    ends_us = [row[key] for row in rows for key in ("us", "low")]
    most = 3 * max(row["us"] for row in rows)
    band = [row | {"high": min(row["high"], most)} for row in rows]
    across = x("kiops", "kIOPS", ticks=8, zero=True)
    values = [*ends_us, *limit, *(r["high"] for r in band)]
    up, low = (y(key, "latency, µs", log=values, padding=12) for key in ("us", "low"))
    look = series("which", ["mean", "p99"], colours=[palette.READ, palette.WRITE], lines=True)
    shown = tips(
        "which: latency", "n: outstanding: ,", "kiops: kIOPS: ,.0f", "us: latency, µs: ,.0f"
    )
    text = ", ".join(f"{row['which']} {row['us']:,.4g} µs at {row['kiops']:,.4g}" for row in rows)
    says = f"Latency against throughput in kIOPS: {text}."
    if limit:
        says += f" The goal is {limit[0]:,.4g} µs."
    order = alt.Order("n:Q")
    return layered(
        mark("area", band, across, low, alt.Y2("high:Q"), look.colour, order, opacity=0.13),
        *_latency_bounds(result, across, up), *(level(up, limit[0], "goal") if limit else []),
        mark("line", rows, across, up, look.colour, look.dash, order, strokeWidth=2),
        mark("point", rows, across, up, look.colour, filled=True, size=36, tips=shown),
        height=240, says=says,
    )  # fmt: skip


def _latency_bounds(result: Result, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """No throughput right of the fullest station's bound, no mean below that of the least load."""
    most = max(p.iops for p in result.curve)
    bound = result.bottleneck.bound_iops
    layers = level(up, result.curve[0].mean_s * 1e6, light=True)
    if math.isfinite(bound) and PASSED * most <= bound <= 1.5 * most:
        layers += level(across, bound / 1e3, "bound")
    return layers


# Members ---------------------------------------------------------------------------------------


def members(result: Result) -> Drawing:
    """Commands per second that each drive serves; of many, those that are equal share a bar."""
    rate = result.total.iops.value / 1e3
    rebuilt = result.rebuild.drive or "" if result.rebuild is not None else ""
    rows: Rows = []
    for group in equal_members(result.members, rebuilt):
        name = words.one_line(group_name(group))
        name += ", rebuilt" if group[0].name == rebuilt else ""
        both = {"reads": [m.reads_per_request for m in group],
                "writes": [m.writes_per_request for m in group]}  # fmt: skip
        rows += [
            {"drive": name, "what": what, "kiops": rounded(sum(each) / len(each) * rate),
             "each": rounded(sum(each) / len(each))}
            for what, each in both.items()
        ]  # fmt: skip
    totals = [(m.reads_per_request + m.writes_per_request) * rate for m in result.members]
    order = list(dict.fromkeys(row["drive"] for row in rows))
    look = series("what", ["reads", "writes"], colours=[palette.READ, palette.WRITE])
    shown = tips("drive", "what: commands", "kiops: kIOPS: ,.1f", f"each: per request: {NUMBER}")
    text = f"{min(totals):,.4g} to {max(totals):,.4g} kIOPS of commands for each of {len(totals)}"
    return layered(
        mark("bar", rows, y("drive", names=order), x("kiops", "commands of each, kIOPS", ticks=6),
             look.colour, height={"band": 0.7},
             tips=shown),
        height=24 * len(order), says=f"What each drive serves: {text} drives.",
    )  # fmt: skip
