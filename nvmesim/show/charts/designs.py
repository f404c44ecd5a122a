"""Charts of designs: the largest load of each, what to buy, and several side by side (Altair)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import altair as alt

from nvmesim.predict.result import Result
from nvmesim.show import palette, words
from nvmesim.show.charts.base import (
    NUMBER,
    WIDTH,
    Column,
    Drawing,
    Series,
    column,
    layered,
    level,
    mark,
    nothing,
    rounded,
    series,
    tips,
    x,
    y,
)
from nvmesim.show.charts.sweep import beside
from nvmesim.study.best import STATES, Best
from nvmesim.study.choose import Choice

Rows = list[dict[str, Any]]

# The largest load of each design ------------------------------------------------------------------

MOST: Final = "Most IOPS within the goal"
WAY: Final = "p99 against throughput, with the goal"
BEST_CAPTIONS: Final = {
    MOST: "Each design healthy, with a drive failed, and while it rebuilds; thin: 95 % interval.",
    WAY: "Every load that was tried; large: the long runs that decide. Dashed: the goal; what lies "
    "above it does not meet it.",
}
STATE_COLOURS: Final = {"healthy": "#0072b2", "degraded": "#e69f00", "rebuilding": "#882255"}
STATE_SHAPES: Final = {"healthy": "circle", "degraded": "square", "rebuilding": "triangle-up"}


def best_chart(found: Best, *, width: int = WIDTH) -> Column:
    """All charts of a search for the largest load, one below the other."""
    return column(dict(best_charts(found)), width)


def best_charts(found: Best) -> dict[str, Drawing]:
    """Title -> chart."""
    return {MOST: most(found), WAY: way(found)}


def _states(found: Best) -> Series:
    shown = [s for s in STATES if s in found.states]
    return series("state", shown, colours=[STATE_COLOURS[s] for s in shown], shown=True,
                  shapes=[STATE_SHAPES[s] for s in shown])  # fmt: skip


def most(found: Best) -> Drawing:
    """A bar for every design and state that has an answer."""
    rows: Rows = [
        {"design": d.name, "state": s.state,
         **{k: rounded(v / 1e3) for k, v in s.result.total.iops.to_json().items()}}
        for d in found.designs for s in d.states if s.result is not None
    ]  # fmt: skip
    if not rows:
        return nothing("no load meets the goal")
    up, offset = (
        y("design", names=[d.name for d in found.designs]),
        alt.YOffset("state:N", sort=list(STATES)),
    )
    top = min(max(float(r["high"]) for r in rows), 2.5 * max(float(r["value"]) for r in rows))
    cut = [row | {"high": min(row["high"], top)} for row in rows]
    across = x("value", "kIOPS", domain=(0, 1.05 * top))
    shown = tips("design", "state", f"value: kIOPS: {NUMBER}", f"low: 95 % from: {NUMBER}",
                 f"high: to: {NUMBER}")  # fmt: skip
    goal = [] if found.goal.iops is None else level(across, found.goal.iops / 1e3)
    says = "; ".join(f"{r['design']} {r['state']}: {r['value']:,.4g} kIOPS" for r in rows)
    return layered(
        mark("bar", rows, across, up, offset, _states(found).colour, tips=shown),
        mark("rule", cut, alt.X("low:Q"), alt.X2("high:Q"), up, offset, strokeWidth=1.5,
             color=palette.MUTED),
        *goal,
        height=30 + 22 * len(found.states) * len({r["design"] for r in rows}),
        says=f"Most IOPS within the goal: {says}.",
    )  # fmt: skip


def way(found: Best) -> Drawing:
    """p99 against IOPS of all loads that were tried, and the goal's line."""
    rows: Rows = [
        {"kiops": rounded(t.iops / 1e3), "us": rounded(t.p99_s * 1e6), "state": s.state,
         "series": f"{d.name} {s.state}", "load": t.applied.words(), "design": d.name,
         "run": "long" if t.decides else "short"}
        for d in found.designs for s in d.states for t in s.trials if t.p99_s
    ]  # fmt: skip
    if not rows:
        return nothing("no load was tried that has a p99")
    limit = found.goal.limits.p99
    goal = [] if limit is None else [limit * 1e6]
    up = y("us", "p99, µs", log=[*(float(r["us"]) for r in rows), *goal])
    across = x("kiops", "kIOPS", zero=False, ticks=6)
    look = _states(found)
    size = alt.Size("run:N", legend=None,
                    scale=alt.Scale(domain=["short", "long"], range=[30, 150]))  # fmt: skip
    shown = tips("design", "state", "load", f"kiops: kIOPS: {NUMBER}", f"us: p99, µs: {NUMBER}")
    above = sum(float(r["us"]) > goal[0] for r in rows) if goal else 0
    return layered(
        mark("line", rows, across, up, look.colour, alt.Detail("series:N"), alt.Order("us:Q"),
             strokeWidth=1, opacity=0.6),
        mark("point", rows, across, up, look.colour, look.shape, size, filled=True, opacity=1,
             tips=shown),
        *(level(up, goal[0]) if goal else []),
        height=280, says=f"p99 against kIOPS of {len(rows)} loads, {above} of them above the goal.",
    )  # fmt: skip


# What to buy --------------------------------------------------------------------------------------

CHOICE_STATES: Final = {
    "chosen": "chosen", "runner-up": "meets the goal", "rejected": "rejected"
}  # fmt: skip
CHOICE_COLOURS: Final = (palette.WRITE, palette.READ, palette.MUTED)
CHOICE_SHAPES: Final = ("diamond", "circle", "cross")
MOST_TICKS: Final = 14
CHOICE_CAPTION: Final = (
    "All that were simulated. The line leads through those that meet the goal and are beaten by "
    "none: more throughput costs as much as it shows. Dashed: the throughput asked for."
)


def choice_chart(choice: Choice) -> Drawing:
    """Throughput against the objective of all candidates that were simulated."""
    what = choice.goal.objective.minimize
    title = {"price": f"price, {choice.goal.currency}", "power": "power, W"}.get(what, what)
    rows: Rows = [
        {"name": choice.named(c), "state": CHOICE_STATES[c.state], "cost": rounded(c.cost(what)),
         "kiops": rounded(c.row["iops"] / 1e3), "why": c.reason, "strong": c.state == "chosen",
         "label": f"chosen: {choice.named(c)}" if c.state == "chosen" else choice.named(c)}
        for c in choice.candidates
        if c.state in CHOICE_STATES and c.row.get("iops") and c.cost(what) < float("inf")
    ]  # fmt: skip
    if not rows:
        return nothing("no candidate was simulated")
    front = _front([r for r in rows if r["state"] != CHOICE_STATES["rejected"]])
    values = sorted({float(r["cost"]) for r in rows})
    counts = what == "drives" and len(values) <= MOST_TICKS
    across = x("cost", title, zero=False, padding=24, ticks=values if counts else 6)
    up = y("kiops", "kIOPS")
    look = series("state", list(CHOICE_STATES.values()), colours=CHOICE_COLOURS,
                  shapes=CHOICE_SHAPES, shown=True)  # fmt: skip
    shown = tips("name: candidate", "state", f"cost: {title}: ,.6~g", f"kiops: kIOPS: {NUMBER}",
                 "why: why not")  # fmt: skip
    asked = choice.goal.constraints.iops
    text = "; ".join(f"{r['label']} {r['kiops']:,.4g} kIOPS for {r['cost']:,.6g}" for r in front)
    return layered(
        *([] if asked is None else level(up, asked / 1e3, "goal")),
        mark("line", front, across, up, interpolate="step-after", color=palette.READ,
             strokeDash=[4, 3]),
        mark("point", rows, across, up, look.colour, look.shape, filled=True, size=75, opacity=1,
             tips=shown),
        *beside(front, rows, across, up),
        height=300, says=f"kIOPS against {title}: {text or 'no candidate meets the goal'}.",
    )  # fmt: skip


def _front(met: Rows) -> Rows:
    """Candidates that no other one beats: cheaper and with more throughput."""
    out: Rows = []
    for row in sorted(met, key=lambda r: (r["cost"], -r["kiops"])):
        if not out or row["kiops"] > out[-1]["kiops"]:
            out.append(row)
    return out


# Side by side -------------------------------------------------------------------------------------


def side_by_side(results: Mapping[str, Result]) -> dict[str, Drawing]:
    """Title -> chart, of results by name; p99 only where each has one."""
    iops: Rows = [
        {"design": name, **{k: v / 1e3 for k, v in r.total.iops.to_json().items()}}
        for name, r in results.items()
    ]
    charts = {"Throughput": _bars(iops, "kIOPS", palette.READ)}
    tails: Rows = []
    for name, r in results.items():
        p99 = r.total.latency.percentiles[99.0]
        if p99 is None:
            return charts
        low, high = r.total.latency.intervals.get("p99", (p99, p99))
        tails.append({"design": name, "value": p99 * 1e6, "low": low * 1e6, "high": high * 1e6})
    return charts | {"p99 latency": _bars(tails, "p99, µs", palette.WRITE)}


def _bars(found: Rows, title: str, colour: str) -> Drawing:
    """A bar for each design; thin: its 95 % interval, its text beyond all of them."""
    top = min(max(float(r["high"]) for r in found), 2.5 * max(float(r["value"]) for r in found))
    rows: Rows = [
        {"design": words.one_line(r["design"]), "value": rounded(r["value"]), "end": 1.03 * top,
         "low": rounded(r["low"]), "high": rounded(min(r["high"], top)),
         "text": f"{r['value']:,.4g}", "within": f"{r['low']:,.4g} to {r['high']:,.4g}"}
        for r in found
    ]  # fmt: skip
    up = y("design", names=[r["design"] for r in rows])
    across = x("value", title, domain=(0, top * 1.22 or 1), ticks=6)
    text = ", ".join(f"{r['design']} {r['text']}" for r in rows)
    return layered(
        mark("bar", rows, across, up, height={"band": 0.6}, color=colour,
             tips=tips("design", f"value: {title}: {NUMBER}", "within: 95 %")),
        mark("rule", rows, alt.X("low:Q"), alt.X2("high:Q"), up, strokeWidth=1.5),
        mark("text", rows, alt.X("end:Q"), up, alt.Text("text:N"), align="left"),
        height=34 * len(rows), says=f"{title}: {text}.",
    )  # fmt: skip
