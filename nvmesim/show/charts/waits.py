"""Charts of single requests: where each waits, and what a volume loses to its slowest member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import altair as alt
import numpy as np

from nvmesim import units
from nvmesim.predict.result import MemberWait, SizeWait, Waits
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


# Members that wait for one another ----------------------------------------------------------------

LATENCY: Final = "Wait for the slowest: latency"
BUSY: Final = "Wait for the slowest: members at work"
SCALING: Final = "Wait for the slowest: more members"
CAPTIONS: Final = {
    LATENCY: (
        "By request size: 5 to 95 % of the requests (bar), median (mark) and mean (dot), for the "
        "members and for the volume, which ends with the slowest of them in each phase. Steps "
        "recorded by the SimPy engine, at most 32 requests in flight, small write buffers."
    ),
    BUSY: (
        "Share of the time of their requests in which members work (green); for the rest they wait "
        "for a sibling, or serve other requests (grey). Last in: the share of requests that ended "
        "with this member. One by one for the largest requests."
    ),
    SCALING: (
        "Requests of one chunk a member, one at a time, against so many members by themselves "
        "(dashed): what is missing is the wait for the slowest."
    ),
}
MOST_MEMBERS: Final = 4
"""Members drawn one by one; of more, the fastest, the middle and the slowest at each size."""
MOST_AT_WORK: Final = 16
"""The same for the largest requests, where who waits for whom is to be seen."""


def waiting_charts(waits: Waits | None) -> dict[str, Drawing]:
    """Title -> chart, of those that there is something to draw for."""
    if waits is None:
        return {}
    is_shared = any(m.last > 0 for size in waits.sizes for m in size.members)
    charts = ((LATENCY, _latencies, bool(waits.sizes)), (BUSY, _at_work, is_shared),
              (SCALING, _scaling, len(waits.scaling) > 1))  # fmt: skip
    return {title: draw(waits) for title, draw, is_there in charts if is_there}


def _shown(size: SizeWait, most: int = MOST_MEMBERS) -> dict[str, MemberWait]:
    """Row -> member: all of a size, or three that stand for many."""
    ordered = sorted(size.members, key=lambda m: float(np.mean(m.latencies_s)))
    three = {"fastest": ordered[0], "middle": ordered[len(ordered) // 2], "slowest": ordered[-1]}
    if len(ordered) > most:
        return {_name(size, f"{what} ({m.name})"): m for what, m in three.items()}
    return {_name(size, m.name): m for m in size.members}


def _name(size: SizeWait, name: str) -> str:
    return f"{units.format_size(size.n_bytes)} {size.op}s: {words.one_line(name)}"


def _latencies(waits: Waits) -> Drawing:
    """Latencies of the members and of the volume, for each request size."""
    rows: Rows = []
    for size in waits.sizes:
        found = [(row, "member", m.latencies_s) for row, m in _shown(size).items()]
        for row, what, latencies_s in (
            *found,
            (_name(size, waits.volume), "volume", size.volume_s),
        ):
            us = np.asarray(latencies_s) * 1e6
            ends = zip(("low", "middle", "high"), np.quantile(us, [0.05, 0.5, 0.95]), strict=True)
            rows.append({"row": row, "what": what, **{n: rounded(float(v)) for n, v in ends},
                         "mean": rounded(float(us.mean()))})  # fmt: skip
    across = c.x("low", "latency, µs", log=[r[k] for r in rows for k in ("low", "high")], padding=8)
    up = c.y("row", names=[row["row"] for row in rows])
    look = c.series("what", ["member", "volume"], colours=[palette.READ, palette.ACCENT])
    shown = c.tips("row", "low: 5 % are faster than, µs: ,.0f", "middle: median, µs: ,.0f",
                   "mean: mean, µs: ,.0f", "high: 95 % are faster than, µs: ,.0f")  # fmt: skip
    text = "; ".join(f"{r['row']} {r['low']:,.4g} to {r['high']:,.4g} us, median {r['middle']:,.4g}"
                     for r in rows)  # fmt: skip
    return c.layered(
        c.mark("bar", rows, across, alt.X2("high:Q"), up, look.colour, opacity=0.35,
               height={"band": 0.55}, tips=shown),
        c.mark("tick", rows, alt.X("middle:Q"), up, look.colour, thickness=2, size=14),
        c.mark("point", rows, alt.X("mean:Q"), up, look.colour, filled=True, size=34, tips=shown),
        height=20 * len(rows), says=f"Latency of {text}.",
    )  # fmt: skip


def _at_work(waits: Waits) -> Drawing:
    """Share of its requests' time in which each member works, for each request size."""
    shared = [s for s in waits.sizes if any(m.last > 0 for m in s.members)]
    rows: Rows = [
        {"row": row, "busy": round(m.busy, 4), "all": 1, "last": round(m.last, 4),
         "text": f"{words.percent(m.busy)}, last in {words.percent(m.last)}"}
        for s in shared
        for row, m in _shown(s, MOST_AT_WORK if s is shared[-1] else MOST_MEMBERS).items()
    ]  # fmt: skip
    across = c.x("busy", "at work while its requests run; grey: waiting for a sibling",
                 domain=(0, 1.42), percents=[0, 0.25, 0.5, 0.75, 1])  # fmt: skip
    up = c.y("row", names=[row["row"] for row in rows])
    shown = c.tips("row", "busy: at work: .0%", "last: was the slowest: .0%")
    text = ", ".join(f"{row['row']} {row['text']}" for row in rows)
    bar: dict[str, Any] = {"height": {"band": 0.68}}
    return c.layered(
        c.mark("bar", rows, across, up, alt.X2("all:Q"), color=palette.MUTED, opacity=0.3, **bar),
        c.mark("bar", rows, across, up, color=palette.KINDS["drive"], tips=shown, **bar),
        c.mark("text", rows, alt.X("all:Q"), up, alt.Text("text:N"), align="left", dx=4),
        height=20 * len(rows),
        says=f"Share of its requests' time in which each member works: {text}.",
    )  # fmt: skip


def _scaling(waits: Waits) -> Drawing:
    """Throughput of n members that wait for one another over n times one, for reads and writes."""
    rows: Rows = [
        {"n": p.members, "op": f"{p.op}s", "share": round(p.efficiency, 4)} for p in waits.scaling
    ]
    looks = {"reads": (palette.READ, (6, 3)), "writes": (palette.WRITE, (1, 0))}
    names = [n for n in looks if any(row["op"] == n for row in rows)]
    look = c.series("op", names, colours=[looks[n][0] for n in names], lines=True, shown=True,
                    dashes=[looks[n][1] for n in names])  # fmt: skip
    least = min(float(row["share"]) for row in rows)
    across = c.x("n", "members", zero=False)
    up = c.y("share", "throughput, share of members x one", domain=(min(0.7, least - 0.05), 1.02),
             labels=c.PERCENT_LABELS)  # fmt: skip
    shown = c.tips("op: requests", "n: members: d", "share: of members x one: .1%")
    text = ", ".join(f"{r['op']} of {r['n']} {words.percent(float(r['share']))}" for r in rows)
    return c.layered(
        *c.level(up, 1.0, light=True),
        c.mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2),
        c.mark("point", rows, across, up, look.colour, filled=True, size=40, tips=shown),
        height=230, says=f"Throughput as a share of members times one: {text}.",
    )  # fmt: skip
