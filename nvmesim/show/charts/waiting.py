"""Charts of what a striped volume loses to its slowest member (`nvmesim.predict.stragglers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from nvmesim import units
from nvmesim.predict.stragglers import BUSY, LATENCY, SCALING, MemberWait, SizeWait, Waits
from nvmesim.show import palette, words
from nvmesim.show.charts.base import (
    PERCENT_LABELS,
    Drawing,
    layered,
    level,
    mark,
    rounded,
    series,
    tips,
    x,
    y,
)

MOST_MEMBERS: Final = 4
"""Members drawn one by one; of more, the fastest, the middle and the slowest at each size."""
MOST_AT_WORK: Final = 16
"""The same for the largest requests, where who waits for whom is to be seen."""


def charts(waits: Waits | None) -> dict[str, Drawing]:
    """Title -> chart, of those that there is something to draw for."""
    if waits is None:
        return {}
    found = {}
    if waits.sizes:
        found[LATENCY] = latency(waits)
    if any(m.last > 0 for size in waits.sizes for m in size.members):
        found[BUSY] = busy(waits)
    if len(waits.scaling) > 1:
        found[SCALING] = scaling(waits)
    return found


def _shown(members: Sequence[MemberWait], most: int = MOST_MEMBERS) -> dict[str, MemberWait]:
    """All members by name, or three that stand for many."""
    if len(members) <= most:
        return {m.name: m for m in members}
    ordered = sorted(members, key=lambda m: float(np.mean(m.latencies_s)))
    chosen = {
        "fastest": ordered[0],
        "middle": ordered[len(ordered) // 2],
        "slowest": ordered[-1],
    }
    return {f"{what} ({m.name})": m for what, m in chosen.items()}


def _label(size: SizeWait) -> str:
    return f"{units.format_size(size.n_bytes)} {size.op}s"


def _row(size: SizeWait, name: str, what: str, latencies_s: Sequence[float]) -> dict[str, Any]:
    us = np.asarray(latencies_s) * 1e6
    low, middle, high = np.quantile(us, [0.05, 0.5, 0.95])
    return {
        "row": f"{_label(size)}: {words.one_line(name)}",
        "what": what,
        "low": rounded(float(low)),
        "middle": rounded(float(middle)),
        "high": rounded(float(high)),
        "mean": rounded(float(us.mean())),
    }


def latency(waits: Waits) -> Drawing:
    """Latencies of the members and of the volume, for each request size."""
    rows = []
    for size in waits.sizes:
        rows += [
            _row(size, name, "member", m.latencies_s) for name, m in _shown(size.members).items()
        ]
        rows.append(_row(size, waits.volume, "volume", size.volume_s))
    across = x("low", "latency, µs", log=[r[k] for r in rows for k in ("low", "high")], padding=8)
    up = y("row", names=[row["row"] for row in rows])
    look = series("what", ["member", "volume"], colours=[palette.READ, palette.ACCENT])
    shown = tips("row", "low: 5 % are faster than, µs: ,.0f", "middle: median, µs: ,.0f",
                 "mean: mean, µs: ,.0f", "high: 95 % are faster than, µs: ,.0f")  # fmt: skip
    text = "; ".join(f"{r['row']} {r['low']:,.4g} to {r['high']:,.4g} us, median {r['middle']:,.4g}"
                     for r in rows)  # fmt: skip
    return layered(
        mark("bar", rows, across, alt.X2("high:Q"), up, look.colour, opacity=0.35,
             height={"band": 0.55}, tips=shown),
        mark("tick", rows, alt.X("middle:Q"), up, look.colour, thickness=2, size=14),
        mark("point", rows, alt.X("mean:Q"), up, look.colour, filled=True, size=34, tips=shown),
        height=20 * len(rows), says=f"Latency of {text}.",
    )  # fmt: skip


def busy(waits: Waits) -> Drawing:
    """Share of its requests' time in which each member works, for each request size.

    Sizes that no two members share are left out: nobody waits.
    """
    shared = [s for s in waits.sizes if any(m.last > 0 for m in s.members)]
    rows: list[dict[str, Any]] = [
        {"row": f"{_label(size)}: {words.one_line(name)}", "busy": round(m.busy, 4), "all": 1,
         "last": round(m.last, 4),
         "text": f"{words.percent(m.busy)}, last in {words.percent(m.last)}"}
        for size in shared
        for name, m in _shown(
            size.members, MOST_AT_WORK if size is shared[-1] else MOST_MEMBERS
        ).items()
    ]  # fmt: skip
    across = x("busy", "at work while its requests run; grey: waiting for a sibling",
               domain=(0, 1.42), percents=[0, 0.25, 0.5, 0.75, 1])  # fmt: skip
    up = y("row", names=[row["row"] for row in rows])
    shown = tips("row", "busy: at work: .0%", "last: was the slowest: .0%")
    text = ", ".join(f"{row['row']} {row['text']}" for row in rows)
    bar: dict[str, Any] = {"height": {"band": 0.68}}
    return layered(
        mark("bar", rows, across, up, alt.X2("all:Q"), color=palette.MUTED, opacity=0.3, **bar),
        mark("bar", rows, across, up, color=palette.KINDS["drive"], tips=shown, **bar),
        mark("text", rows, alt.X("all:Q"), up, alt.Text("text:N"), align="left", dx=4),
        height=20 * len(rows),
        says=f"Share of its requests' time in which each member works: {text}.",
    )  # fmt: skip


def scaling(waits: Waits) -> Drawing:
    """Throughput of n members that wait for one another over n times one, for reads and writes."""
    rows: list[dict[str, Any]] = [
        {"n": p.members, "op": f"{p.op}s", "share": round(p.efficiency, 4)} for p in waits.scaling
    ]
    names = [n for n in ("reads", "writes") if any(row["op"] == n for row in rows)]
    colours = {"reads": palette.READ, "writes": palette.WRITE}
    look = series("op", names, colours=[colours[n] for n in names], lines=True, shown=True,
                  dashes=[{"reads": (6, 3), "writes": (1, 0)}[n] for n in names])  # fmt: skip
    least = min(float(row["share"]) for row in rows)
    across = x("n", "members", zero=False)
    up = y("share", "throughput, share of members x one", domain=(min(0.7, least - 0.05), 1.02),
           labels=PERCENT_LABELS)  # fmt: skip
    shown = tips("op: requests", "n: members: d", "share: of members x one: .1%")
    text = ", ".join(f"{r['op']} of {r['n']} {words.percent(float(r['share']))}" for r in rows)
    return layered(
        *level(up, 1.0, light=True),
        mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2),
        mark("point", rows, across, up, look.colour, filled=True, size=40, tips=shown),
        height=230, says=f"Throughput as a share of members times one: {text}.",
    )  # fmt: skip
