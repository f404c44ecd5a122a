"""Charts of `ns.best`: the most IOPS of each design and state, and the way there."""

from __future__ import annotations

from typing import Any, Final

import altair as alt

from nvmesim.show import palette
from nvmesim.show.charts.base import (
    LOG_LABELS,
    WIDTH,
    Column,
    Drawing,
    column,
    inline,
    layered,
    legend,
    log_ticks,
    nothing,
    rounded,
)
from nvmesim.study.best import STATES, Best

MOST: Final = "Most IOPS within the goal"
WAY: Final = "p99 against throughput, with the goal"
CAPTIONS: Final = {
    MOST: "Each design healthy, with a drive failed, and while it rebuilds; thin: 95 % interval.",
    WAY: "Every load that was tried; large: the long runs that decide. Dashed: the goal; what lies "
    "above it does not meet it.",
}
COLOURS: Final = {"healthy": "#0072b2", "degraded": "#e69f00", "rebuilding": "#882255"}
SHAPES: Final = {"healthy": "circle", "degraded": "square", "rebuilding": "triangle-up"}


def chart(found: Best, *, width: int = WIDTH) -> Column:
    """All charts, one below the other."""
    return column(dict(all_charts(found)), width)


def all_charts(found: Best) -> dict[str, Drawing]:
    """Title -> chart."""
    return {MOST: most(found), WAY: way(found)}


def _states(found: Best) -> alt.Color:
    shown = [s for s in STATES if s in found.states]
    scale = alt.Scale(domain=shown, range=[COLOURS[s] for s in shown])
    return alt.Color("state:N", scale=scale, legend=legend())


def most(found: Best) -> Drawing:
    """A bar for every design and state that has an answer."""
    rows: list[dict[str, Any]] = [
        {"design": d.name, "state": s.state, "order": STATES.index(s.state),
         **{k: rounded(v / 1e3) for k, v in s.result.total.iops.to_json().items()}}
        for d in found.designs for s in d.states if s.result is not None
    ]  # fmt: skip
    if not rows:
        return nothing("no load meets the goal")
    names = [d.name for d in found.designs]
    shared = alt.Chart(inline(rows))
    y = alt.Y("design:N", sort=names, title=None, axis=alt.Axis(labelLimit=220))
    offset = alt.YOffset("state:N", sort=list(STATES))
    x = alt.X("value:Q", title="kIOPS", scale=alt.Scale(zero=True))
    bars = shared.mark_bar().encode(x, y, offset, _states(found))
    ends = shared.mark_rule(strokeWidth=1.5, color=palette.MUTED).encode(
        alt.X("low:Q"), alt.X2("high:Q"), y, offset
    )
    layers = [bars, ends]
    if found.goal.iops is not None:
        line = alt.Chart(inline([{"value": rounded(found.goal.iops / 1e3)}]))
        layers.append(line.mark_rule(strokeDash=[5, 4], color=palette.ACCENT).encode(x))
    says = "; ".join(f"{r['design']} {r['state']}: {r['value']:,.4g} kIOPS" for r in rows)
    height = 30 + 22 * len(found.states) * len({r["design"] for r in rows})
    return layered(*layers, height=height, says=f"Most IOPS within the goal: {says}.")


def way(found: Best) -> Drawing:
    """p99 against IOPS of all loads that were tried, and the goal's line."""
    rows = [
        {"kiops": rounded(t.iops / 1e3), "us": rounded(t.p99_s * 1e6), "state": s.state,
         "series": f"{d.name} {s.state}", "load": t.applied.words(), "design": d.name,
         "run": "long" if t.decides else "short"}
        for d in found.designs for s in d.states for t in s.trials if t.p99_s
    ]  # fmt: skip
    if not rows:
        return nothing("no load was tried that has a p99")
    limit = found.goal.limits.p99
    goal = [] if limit is None else [limit * 1e6]
    ticks = log_ticks([*(float(r["us"]) for r in rows), *goal])
    y = alt.Y("us:Q", title="p99, µs", scale=alt.Scale(type="log", nice=False),
              axis=alt.Axis(values=ticks, labelExpr=LOG_LABELS))  # fmt: skip
    x = alt.X(
        "kiops:Q", title="kIOPS", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6)
    )
    shown = [s for s in STATES if s in found.states]
    shapes = alt.Scale(domain=shown, range=[SHAPES[s] for s in shown])
    shared = alt.Chart(inline(rows))
    lines = shared.mark_line(strokeWidth=1, opacity=0.6).encode(
        x, y, _states(found), detail="series:N", order="us:Q"
    )
    sizes = alt.Scale(domain=["short", "long"], range=[30, 150])
    points = shared.mark_point(filled=True, opacity=1).encode(
        x, y, _states(found), shape=alt.Shape("state:N", scale=shapes, legend=legend()),
        size=alt.Size("run:N", scale=sizes, legend=None),
        tooltip=["design:N", "state:N", "load:N", "kiops:Q", "us:Q"],
    )  # fmt: skip
    layers = [lines, points]
    if goal:
        line = alt.Chart(inline([{"us": rounded(goal[0])}]))
        layers.append(line.mark_rule(strokeDash=[5, 4], color=palette.ACCENT).encode(y))
    above = sum(float(r["us"]) > goal[0] for r in rows) if goal else 0
    says = f"p99 against kIOPS of {len(rows)} loads, {above} of them above the goal."
    return layered(*layers, height=280, says=says)
