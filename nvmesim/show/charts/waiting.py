"""Charts of what a striped volume loses to its slowest member (`nvmesim.predict.stragglers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from nvmesim import units
from nvmesim.predict.stragglers import BUSY, LATENCY, SCALING, MemberWait, SizeWait, Waits
from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.charts.base import (
    LOG_LABELS,
    PERCENT_LABELS,
    Drawing,
    inline,
    layered,
    legend,
    log_ticks,
    rounded,
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
        "row": f"{_label(size)}: {summary.one_line(name)}",
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
    data = inline(rows)
    kinds = ["member", "volume"]
    ticks = log_ticks([row[key] for row in rows for key in ("low", "high")])
    x = alt.X(
        "low:Q",
        title="latency, µs (log)",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks),
    )
    order = [row["row"] for row in rows]
    y = alt.Y("row:N", title=None, sort=order, axis=alt.Axis(labelLimit=230))
    colour = alt.Color(
        "what:N",
        sort=kinds,
        scale=alt.Scale(domain=kinds, range=[palette.READ, palette.ACCENT]),
        legend=legend(),
    )
    tips = [alt.Tooltip(f"{key}:Q", format=",.0f") for key in ("low", "middle", "mean", "high")]
    base = alt.Chart(data).encode(y, colour, tooltip=[alt.Tooltip("row:N"), *tips])
    bars = base.mark_bar(opacity=0.35, height={"band": 0.55}).encode(x, alt.X2("high:Q"))
    middles = base.mark_tick(thickness=2, size=14).encode(alt.X("middle:Q"))
    means = base.mark_point(filled=True, size=34).encode(alt.X("mean:Q"))
    text = "; ".join(f"{r['row']} {r['low']:,.4g} to {r['high']:,.4g} us, median {r['middle']:,.4g}"
                     for r in rows)  # fmt: skip
    return layered(bars, middles, means, height=20 * len(rows), says=f"Latency of {text}.")


def busy(waits: Waits) -> Drawing:
    """Share of its requests' time in which each member works, for each request size.

    Sizes that no two members share are left out: nobody waits.
    """
    shared = [s for s in waits.sizes if any(m.last > 0 for m in s.members)]
    rows: list[dict[str, Any]] = [
        {
            "row": f"{_label(size)}: {summary.one_line(name)}",
            "busy": round(m.busy, 4),
            "all": 1,
            "last": round(m.last, 4),
            "text": f"{summary.percent(m.busy)}, last in {summary.percent(m.last)}",
        }
        for size in shared
        for name, m in _shown(
            size.members, MOST_AT_WORK if size is shared[-1] else MOST_MEMBERS
        ).items()
    ]
    order = [row["row"] for row in rows]
    x = alt.X(
        "busy:Q",
        title="at work while its requests run; grey: waiting for a sibling",
        scale=alt.Scale(domain=[0, 1.42], nice=False),
        axis=alt.Axis(labelExpr=PERCENT_LABELS, values=[0, 0.25, 0.5, 0.75, 1]),
    )
    y = alt.Y("row:N", title=None, sort=order, axis=alt.Axis(labelLimit=230))
    base = alt.Chart(inline(rows)).encode(
        x,
        y,
        tooltip=[
            alt.Tooltip("row:N"),
            alt.Tooltip("busy:Q", format=".0%"),
            alt.Tooltip("last:Q", format=".0%", title="was the slowest"),
        ],
    )
    bars = base.mark_bar(height={"band": 0.68}, color=palette.KINDS["drive"])
    waiting = base.mark_bar(height={"band": 0.68}, color=palette.MUTED, opacity=0.3).encode(
        alt.X2("all:Q")
    )
    texts = base.mark_text(align="left", dx=4).encode(alt.Text("text:N"), alt.X("all:Q"))
    text = ", ".join(f"{row['row']} {row['text']}" for row in rows)
    says = f"Share of its requests' time in which each member works: {text}."
    return layered(waiting, bars, texts, height=20 * len(rows), says=says)


def scaling(waits: Waits) -> Drawing:
    """Throughput of n members that wait for one another over n times one, for reads and writes."""
    rows: list[dict[str, Any]] = [
        {"n": p.members, "op": f"{p.op}s", "share": round(p.efficiency, 4)} for p in waits.scaling
    ]
    names = [n for n in ("reads", "writes") if any(row["op"] == n for row in rows)]
    colours = {"reads": palette.READ, "writes": palette.WRITE}
    dashes = {"reads": [6, 3], "writes": [1, 0]}
    least = min(float(row["share"]) for row in rows)
    x = alt.X("n:Q", title="members", scale=alt.Scale(zero=False, nice=False))
    y = alt.Y(
        "share:Q",
        title="throughput, share of members x one",
        scale=alt.Scale(domain=[min(0.7, least - 0.05), 1.02], nice=False),
        axis=alt.Axis(labelExpr=PERCENT_LABELS),
    )
    shown = legend(lines=True)
    colour = alt.Color(
        "op:N",
        sort=names,
        scale=alt.Scale(domain=names, range=[colours[n] for n in names]),
        legend=shown,
    )
    dash = alt.StrokeDash(
        "op:N",
        sort=names,
        scale=alt.Scale(domain=names, range=[dashes[n] for n in names]),
        legend=shown,
    )
    base = alt.Chart(inline(rows)).encode(
        x, y, colour, tooltip=[alt.Tooltip("n:Q"), alt.Tooltip("share:Q", format=".1%")]
    )
    line = base.mark_line(strokeWidth=2).encode(dash)
    full = alt.Chart(inline([{"all": 1}])).mark_rule(strokeDash=[4, 3], color=palette.MUTED)
    points = base.mark_point(filled=True, size=40)
    text = ", ".join(f"{r['op']} of {r['n']} {summary.percent(float(r['share']))}" for r in rows)
    says = f"Throughput as a share of members times one: {text}."
    return layered(full.encode(alt.Y("all:Q")), line, points, height=230, says=says)
