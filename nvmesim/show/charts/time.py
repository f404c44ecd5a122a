"""Charts over simulated time: latency and throughput, slice by slice (Altair)."""

from __future__ import annotations

from typing import Any, Final

import altair as alt

from nvmesim.measure.groups import ALL
from nvmesim.predict.result import Result
from nvmesim.show import palette
from nvmesim.show.charts.base import (
    LOG_LABELS,
    Drawing,
    inline,
    layered,
    legend,
    log_ticks,
    rounded,
)

COLOURS: Final = ("#2a78b8", "#d55e00", "#009e73", "#8a5fa8", "#1c1f24", "#e69f00")
DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 2, 2, 2), (4, 4), (1, 3))
MOST_GROUPS: Final = len(COLOURS)

Rows = list[dict[str, Any]]


def charts(result: Result) -> dict[str, Drawing]:
    """Title -> chart, if the load is one that changes, or is held to something."""
    if result.over_time is None or result.resolved is None:
        return {}
    unsteady = any(g.bursts or g.trace or g.limits or g.slo_ps for g in result.resolved.workload)
    if not unsteady or len(result.over_time.start_s) < 2:
        return {}
    return {
        "Latency over time": latency_over_time(result),
        "Throughput over time": throughput_over_time(result),
    }


def _names(result: Result) -> list[str]:
    assert result.over_time is not None
    return [name for name in result.over_time.groups if name != ALL][:MOST_GROUPS]


def _rows(result: Result, columns: dict[str, float]) -> Rows:
    """A row a slice, group and column: its middle in s, the value times what *columns* say."""
    assert result.over_time is not None
    over = result.over_time
    middles = over.start_s + over.duration_s / 2
    return [
        {"s": rounded(float(s)), "group": name, "what": column, "value": rounded(value * factor)}
        for name in _names(result)
        for column, factor in columns.items()
        for s, value in zip(middles, over.groups[name][column], strict=True)
        if value
    ]


def _scales(names: list[str]) -> tuple[alt.Color, alt.StrokeDash]:
    n = len(names)
    shown = None if n < 2 else legend(lines=True)
    colour = alt.Scale(domain=names, range=list(COLOURS[:n]))
    dash = alt.Scale(domain=names, range=[list(d) for d in DASHES[:n]])
    return (
        alt.Color("group:N", scale=colour, legend=shown),
        alt.StrokeDash("group:N", scale=dash, legend=shown),
    )


def latency_over_time(result: Result) -> Drawing:
    """p50 and p99 of each workload against time, with the latencies that they should keep."""
    rows = _rows(result, {"p50_s": 1e6, "p99_s": 1e6})
    limits = [{"group": g.name, "us": rounded(g.slo.limit_s * 1e6)} for g in result.groups if g.slo]
    values = [r["value"] for r in rows] + [r["us"] for r in limits]
    x = alt.X(
        "s:Q",
        title="simulated time, s",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y("value:Q", title="latency, µs (log)",
              scale=alt.Scale(type="log", nice=False, padding=12),
              axis=alt.Axis(values=log_ticks(values), labelExpr=LOG_LABELS))  # fmt: skip
    colour, dash = _scales(_names(result))
    which = ["p50_s", "p99_s"]
    wide = alt.StrokeWidth("what:O", sort=which, legend=None,
                           scale=alt.Scale(domain=which, range=[1, 2.4]))  # fmt: skip
    lines = alt.Chart(inline(rows)).mark_line().encode(x, y, colour, dash, wide)
    rules = alt.Chart(inline(limits)).mark_rule(strokeDash=[4, 3], strokeWidth=1.5)
    says = "p99 in µs: " + "; ".join(_said(rows, name) for name in _names(result)) + "."
    return layered(lines, rules.encode(alt.Y("us:Q"), colour), height=240, says=says)


def _said(rows: Rows, name: str) -> str:
    own = [r["value"] for r in rows if r["group"] == name and r["what"] == "p99_s"]
    return f"{name} {min(own):,.4g} to {max(own):,.4g}" if own else f"{name} not known"


def throughput_over_time(result: Result) -> Drawing:
    """Completions a second of each workload against time."""
    rows = _rows(result, {"iops": 1e-3})
    x = alt.X(
        "s:Q",
        title="simulated time, s",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y("value:Q", title="kIOPS", scale=alt.Scale(zero=True))
    colour, dash = _scales(_names(result))
    lines = alt.Chart(inline(rows)).mark_line(strokeWidth=2, interpolate="step").encode(
        x, y, colour, dash
    )  # fmt: skip
    rule = alt.Chart(inline([{"value": 0}])).mark_rule(color=palette.MUTED).encode(y)
    return layered(lines, rule, height=180, says="kIOPS of each workload over time.")
