"""Chart of single requests: where each waits, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt

from nvmesim.show import palette, words
from nvmesim.show.charts import base as c
from nvmesim.show.charts.base import Drawing, Rows, rounded

if TYPE_CHECKING:
    from nvmesim.study.timeline import Timeline

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
    kinds = [k for k in palette.KINDS if any(row["kind"] == k for row in rows)]
    look = c.series("kind", kinds, colours=[palette.KINDS[k] for k in kinds], shown=True)
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
