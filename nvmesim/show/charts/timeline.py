"""The chart of single requests: where each waited, and what served it (Altair)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import polars as pl

from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.charts.base import Drawing, inline, layered, legend, nothing, rounded
from nvmesim.study.timeline import Timeline

LANE: Final = 17
MOST_LANES: Final = 72
"""Lanes (requests and their commands) that one picture shows."""


def chart(timeline: Timeline, requests: int | None = None) -> Drawing:
    """A lane for each of the first *requests* and its commands; thin: waits, thick: served."""
    return request_timeline(_lanes(timeline.steps, requests))


def request_timeline(steps: Sequence[Mapping[str, Any]]) -> Drawing:
    """A lane for each request and each of its commands; thin: waiting, thick: being served.

    Each step has request, child, station, kind, and arrive, start and depart in us. Slots that are
    held at a gate are drawn only while they are waited for.

    >>> step = {"request": 0, "child": 1, "station": "drive0 die5", "kind": "drive"}
    >>> request_timeline([step | {"arrive": 0.0, "start": 2.0, "depart": 60.0}]).description
    'Steps of 1 request in 1 lane, over 60 us.'
    """
    rows = [_row(step) for step in steps]
    if not rows:
        return nothing("no step was recorded")
    lanes = list(dict.fromkeys(str(row["lane"]) for row in rows))
    kinds = [k for k in palette.KINDS if any(row["kind"] == k for row in rows)]
    colours = alt.Scale(domain=kinds, range=[palette.KINDS[k] for k in kinds])
    lane = alt.Y("lane:N", title=None, sort=lanes, axis=alt.Axis(labelLimit=160))
    kind = alt.Color("kind:N", sort=kinds, scale=colours, legend=legend())
    tips = [
        alt.Tooltip("station:N"),
        alt.Tooltip("waits:Q", title="waits, µs"),
        alt.Tooltip("served:Q", title="served, µs"),
    ]
    waiting = alt.Chart(inline(rows)).mark_bar(height=3, opacity=0.55)
    serving = alt.Chart(inline([r for r in rows if r["kind"] != "gate"])).mark_bar(
        height=11, stroke="#ffffff", strokeWidth=0.5
    )
    first = min(float(step["arrive"]) for step in steps)
    last = max(float(step["depart"]) for step in steps)
    x = alt.X(
        "arrive:Q",
        title="µs since the first request was submitted",
        scale=alt.Scale(domain=[first, last], nice=False),
    )
    requests = len({step["request"] for step in steps})
    return layered(
        waiting.encode(x, alt.X2("start:Q"), lane, kind, tooltip=tips),
        serving.encode(alt.X("start:Q"), alt.X2("depart:Q"), lane, kind, tooltip=tips),
        height=LANE * len(lanes),
        says=f"Steps of {summary.plural(requests, 'request')} in "
        f"{summary.plural(len(lanes), 'lane')}, over {last - first:,.4g} us.",
    )


def _row(step: Mapping[str, Any]) -> dict[str, Any]:
    child = int(step["child"])
    request = f"request {step['request']}"
    return {
        "lane": request if child <= 0 else f"{request}, command {child}",
        "station": step["station"],
        "kind": step["kind"],
        **{name: round(float(step[name]), 3) for name in ("arrive", "start", "depart")},
        "waits": rounded(step["start"] - step["arrive"]),
        "served": rounded(step["depart"] - step["start"]),
    }


def _lanes(steps: pl.DataFrame, requests: int | None) -> list[dict[str, Any]]:
    """Rows for the chart: of the first *requests*, and no more lanes than can be seen."""
    rows: list[dict[str, Any]] = []
    lanes: dict[tuple[int, int], None] = {}
    for step in steps.iter_rows(named=True):
        if requests is not None and step["request"] >= requests:
            break
        lanes.setdefault((step["request"], step["command"]))
        if len(lanes) > MOST_LANES:
            break
        start = step["arrives_us"] + step["waits_us"]
        rows.append({"request": step["request"], "child": step["command"],
                     "station": step["station"], "kind": step["kind"], "start": start,
                     "arrive": step["arrives_us"], "depart": step["leaves_us"]})  # fmt: skip
    return rows
