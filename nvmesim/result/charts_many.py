"""Charts of several results: how a design scales, and where its load moves (Altair)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from nvmesim.result import palette, summary
from nvmesim.result.charts import inline, layered, rounded
from nvmesim.result.result import Result


def scaling_curve(results: Mapping[int, Result], *, of: str = "drives") -> alt.LayerChart:
    """Throughput against the number of drives (or whatever *of* says), under its n x one line."""
    counts = sorted(results)
    rows: list[dict[str, Any]] = []
    for n in counts:
        iops = results[n].total.iops
        values = {"kiops": iops.value, "low": iops.low, "high": iops.high}
        rows.append({"n": n, **{k: rounded(v / 1e3) for k, v in values.items()}})
    one = float(rows[0]["kiops"]) / counts[0]
    ideal = [{"n": n, "kiops": rounded(one * n), "text": "n × one"} for n in counts]
    x = alt.X("n:Q", title=of, axis=alt.Axis(values=[float(n) for n in counts], format="d"))
    y = alt.Y("kiops:Q", title="kIOPS")
    shared = alt.Chart(inline(rows))
    line = shared.mark_line(color=palette.READ, strokeWidth=2).encode(x, y)
    points = shared.mark_point(color=palette.READ, filled=True, size=45, opacity=1).encode(x, y)
    whiskers = shared.mark_rule(strokeWidth=2).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"))
    dotted = alt.Chart(inline(ideal)).mark_line(strokeDash=[4, 3], color=palette.MUTED)
    label = alt.Chart(inline(ideal[-1:])).mark_text(align="right", dx=-8, dy=-4)
    return layered(
        dotted.encode(x, y),
        label.encode(x, y, alt.Text("text:N")),
        whiskers,
        line,
        points,
        height=260,
    )


def heat_map(results: Mapping[str, Result], *, of: str = "load") -> alt.LayerChart:
    """Busy share of each station (of equal ones the busiest) in each result."""
    rows: list[dict[str, Any]] = []
    stations: list[str] = []
    for label, result in results.items():
        for group in summary.station_groups(result.stations):
            if group.kind in ("delay", "gate"):
                continue
            if group.label not in stations:
                stations.append(group.label)
            busy = group.busiest.utilization
            rows.append(
                {"case": label, "station": group.label, "busy": round(busy, 4),
                 "text": f"{busy * 100:.0f}"}
            )  # fmt: skip
    limits = [limit for limit, _ in palette.LOAD_STEPS if limit is not None]
    scale = alt.Scale(type="threshold", domain=limits, range=[c for _, c in palette.LOAD_STEPS])
    legend = alt.Legend(orient="top", title="busy", format=".0%")
    base = alt.Chart(inline(rows)).encode(
        alt.X("case:N", title=of, sort=list(results), axis=alt.Axis(labelAngle=0)),
        alt.Y("station:N", title=None, sort=stations, axis=alt.Axis(labelLimit=230)),
    )
    cells = base.mark_rect(stroke="#ffffff").encode(alt.Color("busy:Q", scale=scale, legend=legend))
    texts = base.mark_text(fontSize=10).encode(
        alt.Text("text:N"),
        color=alt.condition("datum.busy > 0.75", alt.value("#ffffff"), alt.value("#1c1f24")),
    )
    return layered(cells, texts, height=20 * len(stations))
