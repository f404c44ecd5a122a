"""Charts of a sweep's frame: how a design scales, where it bends, what it costs (Altair).

Frames come from `nvmesim.sweep`: one row a point, latencies in us, shares from 0 to 1. Points that
have an error are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import polars as pl

from nvmesim.result import palette
from nvmesim.result.charts import LOG_LABELS, inline, layered, log_ticks, rounded

SERIES: Final = ("#2a78b8", "#d55e00", "#009e73", "#8a5fa8", "#1c1f24", "#e69f00")
DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 2, 2, 2), (4, 4), (1, 3))
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
MOST_SERIES: Final = len(SERIES)
BUSY: Final = {
    "busy_cpu": "CPU",
    "busy_thread": "threads",
    "busy_raid_engine": "RAID engine",
    "busy_link": "links",
    "busy_drive": "drives",
}


def scaling(
    frame: pl.DataFrame, over: str, *, by: str | None = None, title: str = ""
) -> alt.LayerChart:
    """IOPS with their intervals against *over*, a line for each value of *by*, under n x one."""
    known = frame.filter(pl.col("iops").is_not_null()).sort(over)
    rows = [
        {
            "n": row[over],
            "series": _name(row, by),
            **{k: rounded(row[v] / 1e3) for k, v in _BAND.items()},
        }
        for row in known.to_dicts()
    ]
    shown = list(dict.fromkeys(r["series"] for r in rows))[:MOST_SERIES]
    rows = [r for r in rows if r["series"] in shown]
    if not rows:
        return layered(alt.Chart(inline([])).mark_point(), height=60)
    x = alt.X("n:Q", title=title or over, scale=alt.Scale(zero=True, nice=False),
              axis=alt.Axis(values=sorted({float(r["n"]) for r in rows}), format="~g"))  # fmt: skip
    y = alt.Y("kiops:Q", title="kIOPS", scale=alt.Scale(zero=True))
    shared = alt.Chart(inline(rows))
    layers = [_ideal(rows, x, y), *_series(shared, rows, x, y, legend=by)]
    whiskers = shared.mark_rule(strokeWidth=1.5).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"))
    return layered(*layers, whiskers, height=270)


_BAND: Final = {"kiops": "iops", "low": "iops_low", "high": "iops_high"}


def _name(row: Mapping[str, Any], by: str | None) -> str:
    return "" if by is None else str(row[by])


def _ideal(rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y) -> alt.Chart:
    """The line of n x one, from the smallest count of each series."""
    out: list[dict[str, Any]] = []
    for name in dict.fromkeys(r["series"] for r in rows):
        own = [r for r in rows if r["series"] == name]
        one = own[0]["kiops"] / max(own[0]["n"], 1e-300)
        ends = (own[0]["n"], own[-1]["n"])
        out += [{"n": n, "kiops": rounded(one * n), "line": f"n × one {name}"} for n in ends]
    drawn: alt.Chart = alt.Chart(inline(out)).mark_line(strokeDash=[3, 3], color=palette.MUTED)
    tips = [alt.Tooltip("line:N", title="if")]
    return drawn.encode(x, y, detail=alt.Detail("line:N"), tooltip=tips)


def _series(
    shared: alt.Chart, rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, legend: str | None
) -> list[alt.Chart]:
    """A line and points for each series; colour, dash and shape all tell them apart."""
    names = list(dict.fromkeys(r["series"] for r in rows))[:MOST_SERIES]
    shown = None if legend is None else alt.Legend(orient="top", title=legend, symbolOpacity=1)

    def scale(choices: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=[choices[i] for i in range(len(names))])

    kept = shared.transform_filter(alt.FieldOneOfPredicate(field="series", oneOf=names))
    colour = alt.Color("series:N", sort=names, scale=scale(SERIES), legend=shown)
    dash = alt.StrokeDash("series:N", sort=names, scale=scale(DASHES), legend=shown)
    shape = alt.Shape("series:N", sort=names, scale=scale(SHAPES), legend=shown)
    tips = [alt.Tooltip("series:N"), alt.Tooltip("n:Q"), alt.Tooltip("kiops:Q", format=",.0f")]
    return [
        kept.mark_line(strokeWidth=2).encode(x, y, colour, dash),
        kept.mark_point(filled=True, size=45, opacity=1).encode(x, y, colour, shape, tooltip=tips),
    ]


def load_curve(frame: pl.DataFrame, *, percentile: str = "p99", by: str | None = None) -> Any:
    """A latency *percentile* ("mean", "p50", "p99", "p99_9") against throughput: the hockey stick.

    The dashed line is the bound at the highest load: what the fullest station allows.
    """
    column = f"lat_{percentile}_us"
    known = frame.filter(pl.col(column).is_not_null()).sort("iops")
    rows: list[dict[str, Any]] = [
        {"kiops": rounded(r["iops"] / 1e3), "us": rounded(r[column]), "series": _name(r, by),
         "n": i}
        for i, r in enumerate(known.to_dicts())
    ]  # fmt: skip
    ticks = log_ticks([r["us"] for r in rows])
    x = alt.X("kiops:Q", title="kIOPS", scale=alt.Scale(zero=True, nice=False))
    y = alt.Y("us:Q", title=f"{percentile.replace('_', '.')} latency, us (log)",
              scale=alt.Scale(type="log", nice=False, padding=12),
              axis=alt.Axis(values=ticks, labelExpr=LOG_LABELS))  # fmt: skip
    layers = _series(alt.Chart(inline(rows)), rows, x, y, legend=by)
    # At the highest load: a light load's own bound is what its few outstanding requests allow.
    bound = known["bound_iops"].tail(1).drop_nulls()
    if len(bound) and by is None:
        at = inline([{"kiops": rounded(bound[0] / 1e3), "text": "bound"}])
        rule = alt.Chart(at).mark_rule(strokeDash=[4, 3], color=palette.ACCENT).encode(x)
        text = alt.Chart(at).mark_text(align="right", dx=-4, fontSize=10)
        layers += [rule, text.encode(x, alt.Text("text:N"), y=alt.value(8))]
    return layered(*layers, height=260)


def heat(frame: pl.DataFrame, over: str, *, title: str = "") -> alt.LayerChart:
    """How busy each kind of station is at each value of *over*: the busier, the darker."""
    known = frame.filter(pl.col("iops").is_not_null()).sort(over)
    rows = [
        {"case": str(row[over]), "station": name, "busy": round(row[key], 4),
         "text": f"{row[key] * 100:.0f}"}
        for row in known.to_dicts()
        for key, name in BUSY.items()
        if row[key] is not None
    ]  # fmt: skip
    cases = list(dict.fromkeys(r["case"] for r in rows))
    stations = [name for name in BUSY.values() if any(r["station"] == name for r in rows)]
    limits = [limit for limit, _ in palette.LOAD_STEPS if limit is not None]
    scale = alt.Scale(type="threshold", domain=limits, range=[c for _, c in palette.LOAD_STEPS])
    legend = alt.Legend(orient="top", title="busy", format=".0%")
    base = alt.Chart(inline(rows)).encode(
        alt.X("case:N", title=title or over, sort=cases, axis=alt.Axis(labelAngle=0)),
        alt.Y("station:N", title=None, sort=stations),
    )
    cells = base.mark_rect(stroke="#ffffff").encode(alt.Color("busy:Q", scale=scale, legend=legend))
    texts = base.mark_text(fontSize=10).encode(
        alt.Text("text:N"),
        color=alt.condition("datum.busy > 0.75", alt.value("#ffffff"), alt.value("#1c1f24")),
    )
    return layered(cells, texts, height=26 * max(1, len(stations)))


def pareto(
    frame: pl.DataFrame, cost: str, gain: str, *, label: str | None = None, units: str = ""
) -> alt.LayerChart:
    """*gain* against *cost*: no point left of the line brings as much for less."""
    known = frame.filter(pl.col(cost).is_not_null() & pl.col(gain).is_not_null())
    front = pareto_front(known, cost, gain)
    marked = {tuple(r) for r in front.select(cost, gain).rows()}
    rows = [
        {"cost": rounded(r[cost]), "gain": rounded(r[gain]), "name": str(r[label]) if label else "",
         "front": (r[cost], r[gain]) in marked}
        for r in known.to_dicts()
    ]  # fmt: skip
    best = [r for r in rows if r["front"]]
    x = alt.X("cost:Q", title=units or cost, scale=alt.Scale(zero=False, padding=20))
    y = alt.Y("gain:Q", title=gain, scale=alt.Scale(zero=False, padding=20))
    tips = [alt.Tooltip("name:N"), alt.Tooltip("cost:Q"), alt.Tooltip("gain:Q", format=",.4~g")]
    others = alt.Chart(inline([r for r in rows if not r["front"]]))
    found = alt.Chart(inline(best))
    line = found.mark_line(interpolate="step-after", color=palette.READ, strokeDash=[4, 3])
    return layered(
        others.mark_point(color=palette.MUTED, size=40).encode(x, y, tooltip=tips),
        line.encode(x, y),
        found.mark_point(filled=True, size=70, opacity=1, color=palette.READ).encode(
            x, y, tooltip=tips
        ),
        found.mark_text(align="left", dx=8, dy=-6, fontSize=10).encode(x, y, alt.Text("name:N")),
        height=280,
    )


def pareto_front(frame: pl.DataFrame, cost: str, gain: str) -> pl.DataFrame:
    """Rows that no other row beats: cheaper and better, cheapest first.

    >>> frame = pl.DataFrame({"eur": [1, 2, 3], "iops": [5, 4, 9]})
    >>> pareto_front(frame, "eur", "iops")["eur"].to_list()
    [1, 3]
    """
    ordered = frame.sort([cost, gain], descending=[False, True])
    before = pl.col(gain).cum_max().shift(1)
    return ordered.filter(before.is_null() | (pl.col(gain) > before))


def tornado(frame: pl.DataFrame, *, most: int = 12) -> alt.LayerChart:
    """What each input moves the answer by, from its low to its high value; widest first.

    *frame* comes from `nvmesim.sweep.sensitivity`: input, basis, change_low, change_high (shares).
    """
    top = frame.sort("swing", descending=True).head(most).to_dicts()
    order = [str(row["input"]) for row in top]
    rows = [
        {"input": row["input"], "end": end, "change": round(100 * row[f"change_{end}"], 3),
         "value": row[end], "basis": row["basis"]}
        for row in top
        for end in ("low", "high")
        if row[f"change_{end}"] is not None
    ]  # fmt: skip
    names = ["low", "high"]
    y = alt.Y("input:N", title=None, sort=order, axis=alt.Axis(labelLimit=260))
    colour = alt.Color("end:N", sort=names, title=None,
                       scale=alt.Scale(domain=names, range=[palette.WRITE, palette.READ]),
                       legend=alt.Legend(orient="top", title="input at its"))  # fmt: skip
    tips = [alt.Tooltip(f"{k}:N") for k in ("input", "end", "value", "basis")]
    bars = alt.Chart(inline(rows)).mark_bar(height={"band": 0.62}).encode(
        alt.X("change:Q", title="change of the answer, %", stack=None), y, colour,
        tooltip=[*tips, alt.Tooltip("change:Q", title="change, %")],
    )  # fmt: skip
    zero = alt.Chart(inline([{"zero": 0}])).mark_rule(color=palette.MUTED)
    return layered(bars, zero.encode(alt.X("zero:Q")), height=24 * max(1, len(order)))
