"""Charts of a result (Altair): each function draws one answer, with units, readable in grey."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from nvmesim.predict.result import FULL, Result
from nvmesim.show import palette, words
from nvmesim.show.answer import operations
from nvmesim.show.charts import base as c
from nvmesim.show.charts.base import Drawing, Rows, Series, rounded
from nvmesim.show.station_groups import equal_members, station_groups

if TYPE_CHECKING:
    from nvmesim.study.timeline import Timeline

MOST_POINTS: Final = 240
"""Points of one line: more than the eye resolves only make the page heavier."""
LABEL_SHARE: Final = 0.08
"""Of an axis' length: what a label needs, so that two do not touch."""
OPS: Final = {"total": palette.TOTAL, "read": palette.READ, "write": palette.WRITE}
OP_DASHES: Final = {"total": (1, 0), "read": (6, 3), "write": (2, 2)}


def all_charts(result: Result) -> dict[str, Drawing]:
    """Title -> chart, of those that *result* has data for."""
    has_curve = len(result.curve) > 1
    charts = (
        ("Busy, along the path", utilization, True),
        ("What would help", reliefs, bool(result.bottleneck.reliefs)),
        ("Latency", latency_cdf, len(result.total.latency.bin_s) > 0),
        ("Throughput against outstanding requests", throughput_curve, has_curve),
        ("Latency against throughput", latency_curve, has_curve),
        ("What each drive does", members, len(result.members) > 1),
    )
    return {title: draw(result) for title, draw, is_there in charts if is_there}


def latency_cdf(result: Result) -> Drawing:
    """Share of requests that are faster, against latency; each step up is one more nine."""
    drawn = {name: stats.latency for name, stats in operations(result).items()}
    rows: Rows = []
    for name, latency in drawn.items():
        step = math.log10(max(10.0, int(latency.bin_count.sum()))) / MOST_POINTS
        points = c.points_of_nines(latency.bin_s, latency.bin_count, step)
        rows += [{"op": name, **point} for point in points]
    dots: Rows = [
        {"op": name, "which": f"p{p:g}", "us": rounded(value * 1e6),
         "nines": -math.log10(1 - p / 100)}
        for name, latency in drawn.items()
        for p, value in latency.percentiles.items() if value is not None
    ]  # fmt: skip
    look = c.series("op", list(drawn), colours=[OPS[n] for n in drawn], lines=True,
                    dashes=[OP_DASHES[n] for n in drawn])  # fmt: skip
    across = c.x("us", "latency, µs", log=[row["us"] for row in rows])
    up = c.y("nines", "share of requests that are faster", nines=True)
    says = []
    for name, latency in drawn.items():
        known = [f"p{p:g} {words.microseconds(v)} us"
                 for p, v in latency.percentiles.items() if v is not None]  # fmt: skip
        says.append(f"{name}: mean {words.microseconds(latency.mean)} us, {', '.join(known)}")
    return c.layered(
        c.mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2),
        c.mark("point", dots, across, up, look.colour, filled=True, size=45,
               tips=c.tips("op: requests", "which: percentile", "us: latency, µs: ,.1f")),
        height=260, says=f"Latency. {'; '.join(says)}.",
    )  # fmt: skip


def utilization(result: Result) -> Drawing:
    """How busy each station along the path is; of equal stations the busiest, and their range."""
    rows: Rows = []
    for group in station_groups(result.stations):
        busy, many = group.busiest.utilization, len(group.members)
        if group.kind not in ("delay", "gate") or group.busiest.resource:
            rows.append({
                "station": f"{group.label} × {many}" if many > 1 else group.label,
                "kind": group.kind, "busy": round(busy, 4), "least": round(group.least, 4),
                "text": words.percent(busy),
            })  # fmt: skip
    look = _kinds(rows)
    top = max([1.0, *(float(row["busy"]) for row in rows)])
    across = c.x("busy", "busy", domain=(0, top * 1.16), percents=[0, 0.25, 0.5, 0.9])
    up = c.y("station", names=[row["station"] for row in rows])
    ranged = [row for row in rows if row["busy"] - row["least"] > 0.02]
    text = ", ".join(f"{row['station']} {row['text']}" for row in rows)
    return c.layered(
        c.mark("bar", rows, across, up, look.colour, height={"band": 0.68},
               tips=c.tips("station", "kind", "text: busy", "least: least busy of them: .0%")),
        c.mark("tick", ranged, alt.X("least:Q"), up, thickness=2, size=11, color="#ffffff"),
        *c.level(across, FULL),
        c.mark("text", [row | {"end": top * 1.02} for row in rows], alt.X("end:Q"), up,
               alt.Text("text:N"), align="left"),
        height=22 * len(rows), says=f"How busy each station is. {text}.",
    )  # fmt: skip


def _kinds(rows: Rows) -> Series:
    """Colours of the kinds of stations that are there."""
    kinds = [k for k in palette.KINDS if any(row["kind"] == k for row in rows)]
    return c.series("kind", kinds, colours=[palette.KINDS[k] for k in kinds], shown=True)


def reliefs(result: Result) -> Drawing:
    """IOPS after each change that was simulated, against what it is now."""
    now = result.total.iops.value / 1e3
    found = result.bottleneck.reliefs
    # A wide interval must not make the bars invisible: an arrow says that it goes on.
    most = max(1.1 * now, *(r.iops.value / 1e3 for r in found)) * 1.3
    rows: Rows = [
        {"change": words.one_line(r.change), "kiops": rounded(r.iops.value / 1e3),
         "low": rounded(max(0.0, now * (1 + r.gain_low))), "zero": 0,
         "high": rounded(min(most, now * (1 + r.gain_high))), "end": rounded(most * 1.02),
         "text": f"{words.kiops(r.iops.value)}, {words.gain(r.gain)}",
         "label": words.gain(r.gain), "within": words.gain_span(r.gain_low, r.gain_high)}
        for r in found
    ]  # fmt: skip
    beyond = [row for row, r in zip(rows, found, strict=True) if now * (1 + r.gain_high) > most]
    across = c.x("kiops", "kIOPS", domain=(0, most * 1.4), ticks=6)
    up = c.y("change", names=[row["change"] for row in rows])
    shown = c.tips("change", f"kiops: throughput, kIOPS: {c.NUMBER}", "text: with",
                   "within: gain, 95 %")  # fmt: skip
    text = "; ".join(f"{row['change']}: {row['text']}" for row in rows)
    return c.layered(
        c.mark("bar", rows, across, up, height={"band": 0.6}, color=palette.READ, tips=shown),
        c.mark("rule", rows, alt.X("low:Q"), alt.X2("high:Q"), up, strokeWidth=2),
        c.mark("point", beyond, alt.X("high:Q"), up, shape="triangle-right", filled=True, size=70,
               color="black", opacity=1),
        *c.level(across, now),
        c.mark("text", rows, alt.X("end:Q"), up, alt.Text("label:N"), align="left"),
        height=30 * len(rows), says=f"What would help, from {now:,.4g} kIOPS now. {text}.",
    )  # fmt: skip


def members(result: Result) -> Drawing:
    """Commands per second that each drive serves; of many, those that are equal share a bar."""
    rate = result.total.iops.value / 1e3
    rows: Rows = []
    for name, group in equal_members(result).items():
        for what in ("reads", "writes"):
            each = sum(getattr(m, f"{what}_per_request") for m in group) / len(group)
            rows.append({"drive": words.one_line(name), "what": what, "kiops": rounded(each * rate),
                         "each": rounded(each)})  # fmt: skip
    totals = [(m.reads_per_request + m.writes_per_request) * rate for m in result.members]
    order = list(dict.fromkeys(row["drive"] for row in rows))
    look = c.series("what", ["reads", "writes"], colours=[palette.READ, palette.WRITE])
    shown = c.tips("drive", "what: commands", "kiops: kIOPS: ,.1f",
                   f"each: per request: {c.NUMBER}")  # fmt: skip
    text = f"{min(totals):,.4g} to {max(totals):,.4g} kIOPS of commands for each of {len(totals)}"
    return c.layered(
        c.mark("bar", rows, c.y("drive", names=order),
               c.x("kiops", "commands of each, kIOPS", ticks=6), look.colour,
               height={"band": 0.7}, tips=shown),
        height=24 * len(order), says=f"What each drive serves: {text} drives.",
    )  # fmt: skip


def throughput_curve(result: Result) -> Drawing:
    """Simulated throughput against outstanding requests, under its bound lines."""
    total = result.total.iops
    down, over = _relative(total.low, total.value, total.high)
    rows: Rows = [
        {"n": p.outstanding, "kiops": rounded(p.iops / 1e3), "low": rounded(p.iops * down / 1e3),
         "high": rounded(p.iops * over / 1e3)} for p in result.curve
    ]  # fmt: skip
    most = max(float(row["kiops"]) for row in rows)
    least = min((b for b in result.bottleneck.bounds.values() if math.isfinite(b)), default=0.0)
    top = max(most, min(least / 1e3, 1.6 * most), min(1.6 * most, rows[-1]["high"])) * 1.12
    band = [row | {"low": min(row["low"], top), "high": min(row["high"], top)} for row in rows]
    across = c.x("n", "outstanding requests", log2=[p.outstanding for p in result.curve])
    up = c.y("kiops", "kIOPS", domain=(0, top))
    now: Rows = [{"n": result.outstanding, "kiops": rounded(total.value / 1e3)}]
    ring = [
        c.mark("point", now, across, up, size=170, strokeWidth=2.5, color=palette.ACCENT,
               opacity=1),
        c.mark("text", now, across, up, alt.TextValue("this load"), align="center", dy=20,
               fontWeight="bold"),
    ]  # fmt: skip
    is_near = result.curve[0].outstanding <= result.outstanding <= result.curve[-1].outstanding
    text = ", ".join(f"{row['kiops']:,.4g} at {row['n']:,}" for row in rows)
    return c.layered(
        c.mark("area", band, across, alt.Y("low:Q"), alt.Y2("high:Q"), opacity=0.15,
               color=palette.READ),
        c.mark("line", rows, across, up, color=palette.READ, strokeWidth=2),
        c.mark("point", rows, across, up, color=palette.READ, filled=True, size=40,
               tips=c.tips("n: outstanding: ,", f"kiops: throughput, kIOPS: {c.NUMBER}")),
        *(layer for name, at in _bounds(result, top).items() for layer in c.level(up, at, name)),
        *_no_waiting(result, top, across, up), *(ring if is_near else []),
        height=270, says=f"Throughput in kIOPS at so many outstanding requests: {text}.",
    )  # fmt: skip


def _relative(low: float, value: float, high: float) -> tuple[float, float]:
    """Both ends of an interval as shares of its value; (1, 1) if they are not known."""
    if not value or not math.isfinite(high - low):
        return 1.0, 1.0
    return low / value, high / value


def _bounds(result: Result, top: float) -> dict[str, float]:
    """The tightest bounds below *top*, least first; those too close to label share one line."""
    found: dict[str, float] = {}
    last = -math.inf
    for name, iops in sorted(result.bottleneck.bounds.items(), key=lambda pair: pair[1]):
        kiops = rounded(iops / 1e3) if math.isfinite(iops) else math.inf
        passed = kiops * 1e3 < c.PASSED * max(p.iops for p in result.curve)
        if not passed and kiops <= top and kiops - last >= LABEL_SHARE * top and len(found) < 3:
            found[f"bound: {words.one_line(name)}"] = last = kiops
    return found


def _no_waiting(result: Result, top: float, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """The bound of light load: outstanding / latency at the least load."""
    first, last = result.curve[0], result.curve[-1]
    each = first.iops / first.outstanding / 1e3
    if each <= 0:
        return []
    growth = min(last.outstanding, top / each) / first.outstanding
    n = [first.outstanding * growth ** (i / 40) for i in range(41)]
    rows = [{"n": rounded(v), "kiops": rounded(min(top, v * each))} for v in n]
    middle = [row for row in rows if row["kiops"] >= 0.3 * rows[-1]["kiops"]][:1]
    return [
        c.mark("line", rows, across, up, strokeDash=[2, 3], color=palette.MUTED),
        c.mark("text", middle, across, up, alt.TextValue("no waiting"), align="right", dx=-7,
               fontSize=10),
    ]  # fmt: skip


def latency_curve(result: Result) -> Drawing:
    """Mean and p99 against throughput: where it bends, more load only waits."""
    latency = result.total.latency
    rows: Rows = []
    for name in ("mean", "p99"):
        now, ends = words.latency_at(latency, name), latency.intervals.get(name, (0.0, math.inf))
        down, over = _relative(ends[0], now or 0.0, ends[1])
        rows += [
            {"kiops": rounded(p.iops / 1e3), "us": rounded(v * 1e6), "which": name,
             "n": p.outstanding, "low": rounded(v * down * 1e6), "high": rounded(v * over * 1e6)}
            for p in result.curve
            if (v := getattr(p, f"{name}_s")) is not None and math.isfinite(v)
        ]  # fmt: skip
    limit = [] if result.goal is None else [result.goal.limit * 1e6]
    most = 3 * max(row["us"] for row in rows)
    # The way out along the high ends and back along the low ones: an area goes from left to right
    # alone, and a full server does no more at any depth.
    band = [row | {"us": min(row["high"], most)} for row in rows]
    band += [row | {"us": row["low"], "n": -row["n"]} for row in rows]
    across = c.x("kiops", "kIOPS", ticks=8, zero=True)
    up = c.y("us", "latency, µs", log=[*limit, *(r["us"] for r in rows + band)], padding=12)
    look = c.series("which", ["mean", "p99"], colours=[palette.READ, palette.WRITE], lines=True)
    shown = c.tips("which: latency", "n: outstanding: ,", "kiops: kIOPS: ,.0f",
                   "us: latency, µs: ,.0f")  # fmt: skip
    text = ", ".join(f"{row['which']} {row['us']:,.4g} µs at {row['kiops']:,.4g}" for row in rows)
    says = f"Latency against throughput in kIOPS: {text}."
    if limit:
        says += f" The goal is {limit[0]:,.4g} µs."
    order = alt.Order("n:Q")
    # No throughput right of the fullest station's bound, no mean below that of the least load.
    bounds = c.level(up, result.curve[0].mean_s * 1e6, light=True)
    bound, reached = result.bottleneck.bound_iops, max(p.iops for p in result.curve)
    if math.isfinite(bound) and c.PASSED * reached <= bound <= 1.5 * reached:
        bounds += c.level(across, bound / 1e3, "bound")
    return c.layered(
        c.mark("line", band, across, up, look.colour, order, opacity=0.13, filled=True),
        *bounds, *(c.level(up, limit[0], "goal") if limit else []),
        c.mark("line", rows, across, up, look.colour, look.dash, order, strokeWidth=2),
        c.mark("point", rows, across, up, look.colour, filled=True, size=36, tips=shown),
        height=240, says=says,
    )  # fmt: skip


# Single requests: where each waits, and for how long ---------------------------------------------

LANE: Final = 17
MOST_LANES: Final = 72
"""Lanes (requests and their commands) that one picture shows."""


def timeline(recorded: Timeline, requests: int | None = None) -> Drawing:
    """A lane for each of the first *requests* and of their commands, as many as can be seen.

    Thin: waiting, thick: being served; slots of a gate are drawn while they are waited for.
    """
    rows: Rows = []
    lanes: dict[str, int] = {}
    for step in recorded.steps.iter_rows(named=True):
        lane = f"request {step['request']}"
        lane += f", command {step['command']}" if step["command"] else ""
        lanes.setdefault(lane, step["request"])
        if len(lanes) > MOST_LANES or (requests is not None and step["request"] >= requests):
            lanes.popitem()
            break
        arrive, start = step["arrives_us"], step["arrives_us"] + step["waits_us"]
        rows.append({
            "lane": lane, "station": step["station"], "kind": step["kind"],
            "arrive": round(arrive, 3), "start": round(start, 3),
            "depart": round(step["leaves_us"], 3), "waits": rounded(start - arrive),
            "served": rounded(step["leaves_us"] - start),
        })  # fmt: skip
    if not rows:
        return c.nothing("no step was recorded")
    look = _kinds(rows)
    up = c.y("lane", names=list(lanes))
    shown = c.tips("lane: of", "station", f"waits: waits, µs: {c.NUMBER}",
                   f"served: served, µs: {c.NUMBER}")  # fmt: skip
    first, last = min(row["arrive"] for row in rows), max(row["depart"] for row in rows)
    across: dict[str, Any] = {"title": "µs since the first request was submitted",
                              "domain": (first, last)}  # fmt: skip
    served = [row for row in rows if row["kind"] != "gate"]
    count = words.plural(len(set(lanes.values())), "request")
    return c.layered(
        c.mark("bar", rows, c.x("arrive", **across), alt.X2("start:Q"), up, look.colour,
               height=3, opacity=0.55, tips=shown),
        c.mark("bar", served, c.x("start", **across), alt.X2("depart:Q"), up, look.colour,
               height=11, stroke="#ffffff", strokeWidth=0.5, tips=shown),
        height=LANE * len(lanes), says=f"Steps of {count} in "
        f"{words.plural(len(lanes), 'lane')}, over {last - first:,.4g} us.",
    )  # fmt: skip
