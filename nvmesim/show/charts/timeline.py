"""The chart of single requests: where each waited, and what served it (Altair)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import polars as pl

from nvmesim.show import palette, words
from nvmesim.show.charts.base import (
    NUMBER,
    Drawing,
    layered,
    mark,
    nothing,
    rounded,
    series,
    tips,
    x,
    y,
)
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
    look = series("kind", kinds, colours=[palette.KINDS[k] for k in kinds], shown=True)
    lane = y("lane", names=lanes)
    shown = tips(
        "lane: of", "station", f"waits: waits, µs: {NUMBER}", f"served: served, µs: {NUMBER}"
    )
    first = min(float(step["arrive"]) for step in steps)
    last = max(float(step["depart"]) for step in steps)
    across: dict[str, Any] = {
        "title": "µs since the first request was submitted",
        "domain": (first, last),
    }
    served = [row for row in rows if row["kind"] != "gate"]
    requests = words.plural(len({step["request"] for step in steps}), "request")
    return layered(
        mark("bar", rows, x("arrive", **across), alt.X2("start:Q"), lane, look.colour, height=3,
             opacity=0.55, tips=shown),
        mark("bar", served, x("start", **across), alt.X2("depart:Q"), lane, look.colour, height=11,
             stroke="#ffffff", strokeWidth=0.5, tips=shown),
        height=LANE * len(lanes),
        says=f"Steps of {requests} in {words.plural(len(lanes), 'lane')}, over "
        f"{last - first:,.4g} us.",
    )  # fmt: skip


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
