"""Charts of several results side by side: throughput and p99, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from nvmesim.predict.result import Result
from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.charts.base import Drawing, inline, layered, rounded


def all_charts(results: Mapping[str, Result]) -> dict[str, Drawing]:
    """Title -> chart, of results by name; p99 only where each has one."""
    charts = {"Throughput": throughput(results)}
    if all(r.total.latency.percentiles[99.0] is not None for r in results.values()):
        charts["p99 latency"] = tail(results)
    return charts


def throughput(results: Mapping[str, Result]) -> Drawing:
    """A bar of kIOPS for each result; thin: its 95 % interval."""
    rows = [
        {"design": summary.one_line(name), **{k: rounded(v / 1e3) for k, v in
         r.total.iops.to_json().items()}}
        for name, r in results.items()
    ]  # fmt: skip
    return _bars(rows, "kIOPS", palette.READ)


def tail(results: Mapping[str, Result]) -> Drawing:
    """A bar of p99 for each result; thin: its 95 % interval."""
    rows = []
    for name, result in results.items():
        p99 = (result.total.latency.percentiles[99.0] or 0.0) * 1e6
        low, high = result.total.latency.intervals.get("p99", (p99 / 1e6, p99 / 1e6))
        rows.append({"design": summary.one_line(name), "value": rounded(p99),
                     "low": rounded(low * 1e6), "high": rounded(high * 1e6)})  # fmt: skip
    return _bars(rows, "p99, µs", palette.WRITE)


def _bars(rows: list[dict[str, Any]], title: str, colour: str) -> Drawing:
    for row in rows:
        row["text"] = f"{row['value']:,.4g}"
    data = inline(rows)
    y = alt.Y("design:N", sort=[r["design"] for r in rows], title=None,
              axis=alt.Axis(labelLimit=220))  # fmt: skip
    most = max(float(r["high"]) for r in rows)
    scale = alt.Scale(domain=[0, most * 1.18 or 1], nice=False)
    x = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6))
    bars = alt.Chart(data).mark_bar(height={"band": 0.6}, color=colour).encode(x, y)
    ends = alt.Chart(data).mark_rule(strokeWidth=1.5).encode(alt.X("low:Q"), alt.X2("high:Q"), y)
    texts = alt.Chart(data).mark_text(align="left", dx=6).encode(
        alt.X("high:Q"), y, alt.Text("text:N")
    )  # fmt: skip
    text = ", ".join(f"{r['design']} {r['text']}" for r in rows)
    return layered(bars, ends, texts, height=34 * len(rows), says=f"{title}: {text}.")
