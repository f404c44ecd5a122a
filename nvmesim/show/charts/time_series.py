"""Charts over simulated time: latency and throughput, slice by slice (Altair)."""

from __future__ import annotations

from typing import Any, Final

import altair as alt

from nvmesim.measure.groups import ALL
from nvmesim.predict.result import Result
from nvmesim.show.charts.base import (
    MOST_SERIES,
    Drawing,
    layered,
    mark,
    rounded,
    series,
    tips,
    x,
    y,
)

SECONDS: Final = x("s", "simulated time, s", zero=False, ticks=8)

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
    return [name for name in result.over_time.groups if name != ALL][:MOST_SERIES]


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


def latency_over_time(result: Result) -> Drawing:
    """p50 and p99 of each workload against time, with the latencies that they should keep."""
    names = _names(result)
    rows = _rows(result, {"p50_s": 1e6, "p99_s": 1e6})
    goals = [
        {"group": g.name, "value": rounded(g.slo.limit_s * 1e6)} for g in result.groups if g.slo
    ]
    look = series("group", names, lines=True)
    up = y("value", "latency, µs", log=[r["value"] for r in [*rows, *goals]], padding=12)
    wide = alt.StrokeWidth("what:O", legend=None,
                           scale=alt.Scale(domain=["p50_s", "p99_s"], range=[1, 2.4]))  # fmt: skip
    shown = tips("group: workload", "what: percentile", "value: latency, µs: ,.1f")
    return layered(
        mark("line", rows, SECONDS, up, look.colour, look.dash, wide, tips=shown),
        mark("rule", goals, up, look.colour, strokeDash=[4, 3], strokeWidth=1.5),
        height=240, says=f"p99 in µs: {'; '.join(_p99_text(rows, name) for name in names)}.",
    )  # fmt: skip


def _p99_text(rows: Rows, name: str) -> str:
    own = [r["value"] for r in rows if r["group"] == name and r["what"] == "p99_s"]
    return f"{name} {min(own):,.4g} to {max(own):,.4g}" if own else f"{name} not known"


def throughput_over_time(result: Result) -> Drawing:
    """Completions a second of each workload against time."""
    rows = _rows(result, {"iops": 1e-3})
    look = series("group", _names(result), lines=True)
    shown = tips("group: workload", "value: throughput, kIOPS: ,.1f")
    return layered(
        mark("line", rows, SECONDS, y("value", "kIOPS"), look.colour, look.dash, strokeWidth=2,
             interpolate="step", tips=shown),
        height=180, says="kIOPS of each workload over time.",
    )  # fmt: skip
