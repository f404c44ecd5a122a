"""Charts of several points: how a design scales, where it bends, where its load moves (Altair).

Frames come from `ns.sweep`: one row a point, latencies in us, shares from 0 to 1. Points that
have an error are left out. Where it makes sense results by name or number do as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import altair as alt
import polars as pl

from nvmesim.errors import InputError, nearest
from nvmesim.predict.result import Result
from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.charts.base import (
    LOG_LABELS,
    PASSED,
    Drawing,
    inline,
    layered,
    legend,
    log_ticks,
    nothing,
    rounded,
)

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
LOAD_HEIGHT: Final = 260
_BAND: Final = {"kiops": "iops", "low": "iops_low", "high": "iops_high"}
_NONE: Final = "no point without an error"

Rows: TypeAlias = list[dict[str, Any]]


# How it scales ------------------------------------------------------------------------------------


def scaling(
    data: pl.DataFrame | Mapping[int, Result],
    over: str = "drives",
    *,
    by: str | None = None,
    title: str = "",
    ideal: bool = True,
) -> Drawing:
    """IOPS with their intervals against *over*, a line for each value of *by*, under n x one.

    *data* is a sweep's frame, or results by number (then *over* only names the axis). Without
    *ideal* the line of n x one is left out, and wide ranges have a logarithmic axis.

    >>> frame = pl.DataFrame({"drives": [1, 2, 4], "iops": [600e3, 1.2e6, 1.9e6]})
    >>> scaling(frame, "drives").description
    'kIOPS against drives: 600 at 1, 1,200 at 2, 1,900 at 4.'
    """
    frame = _of_results(data, over) if isinstance(data, Mapping) else _known(data, over, by, "iops")
    ends = {k: v if v in frame.columns else "iops" for k, v in _BAND.items()}
    rows = [
        {"n": r[over], "series": _name(r, by), **{k: rounded(r[v] / 1e3) for k, v in ends.items()}}
        for r in frame.sort(over).to_dicts()
    ]
    rows = _few(rows)
    if not rows:
        return nothing(_NONE)
    numbers = sorted({float(r["n"]) for r in rows})
    is_log = not ideal and 0 < 16 * numbers[0] <= numbers[-1]
    scale = (
        alt.Scale(type="log", base=2, nice=False) if is_log else alt.Scale(zero=True, nice=False)
    )
    x = alt.X("n:Q", title=f"{title or over} (log)" if is_log else title or over, scale=scale,
              axis=alt.Axis(values=numbers, labelExpr="format(datum.value, '~r')"))  # fmt: skip
    y = alt.Y("kiops:Q", title="kIOPS", scale=alt.Scale(zero=True))
    shared = alt.Chart(inline(rows))
    whiskers = shared.mark_rule(strokeWidth=1.5).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"))
    lines = _ideal(rows, x, y) if ideal else []
    layers = [*lines, whiskers, *_series(shared, rows, x, y, key=by)]
    says = _said(rows, "n", "kiops", f"kIOPS against {title or over}")
    return layered(*layers, height=270, says=says)


def _of_results(results: Mapping[int, Result], over: str) -> pl.DataFrame:
    rates = {n: r.total.iops for n, r in results.items()}
    rows = [{over: n, "iops": i.value, "iops_low": i.low, "iops_high": i.high}
            for n, i in rates.items()]  # fmt: skip
    return pl.DataFrame(rows)


def _known(frame: pl.DataFrame, over: str, by: str | None, value: str) -> pl.DataFrame:
    """Rows with a *value*; InputError for a column that is not there."""
    for column in (over, value, *([] if by is None else [by])):
        if column not in frame.columns:
            raise InputError(
                f"the frame has no column {column!r}; {nearest(column, frame.columns)}"
            )
    return frame.filter(pl.col(value).is_not_null())


def _name(row: Mapping[str, Any], by: str | None) -> str:
    return "" if by is None else str(row[by])


def _few(rows: Rows) -> Rows:
    """Rows of as many series as colours, dashes and shapes tell apart."""
    shown = list(dict.fromkeys(r["series"] for r in rows))[:MOST_SERIES]
    return [r for r in rows if r["series"] in shown]


def _said(rows: Rows, x: str, y: str, what: str) -> str:
    """The points in words, a sentence for each series."""
    parts = []
    for name in dict.fromkeys(r["series"] for r in rows):
        points = [f"{r[y]:,.4g} at {r[x]:,.4g}" for r in rows if r["series"] == name]
        parts.append(f"{name}: {', '.join(points)}" if name else ", ".join(points))
    return f"{what}: {'; '.join(parts)}."


def _ideal(rows: Rows, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The line of n x one, from the smallest count of each series, with its name once."""
    out: Rows = []
    for name in dict.fromkeys(r["series"] for r in rows):
        own = [r for r in rows if r["series"] == name]
        one = own[0]["kiops"] / max(own[0]["n"], 1e-300)
        ends = (own[0]["n"], own[-1]["n"])
        out += [{"n": n, "kiops": rounded(one * n), "line": f"n × one {name}"} for n in ends]
    drawn: alt.Chart = alt.Chart(inline(out)).mark_line(strokeDash=[3, 3], color=palette.MUTED)
    tips = [alt.Tooltip("line:N", title="if")]
    highest = max(out, key=lambda r: float(r["kiops"]))
    name = alt.Chart(inline([highest])).mark_text(align="right", dx=-14, fontSize=10)
    return [
        drawn.encode(x, y, detail=alt.Detail("line:N"), tooltip=tips),
        name.encode(x, y, text=alt.value("n × one")),
    ]


def _series(
    shared: alt.Chart, rows: Rows, x: alt.X, y: alt.Y, key: str | None
) -> list[alt.Chart]:  # fmt: skip
    """A line and points for each series; colour, dash and shape all tell them apart."""
    names = sorted(dict.fromkeys(r["series"] for r in rows), key=_number_first)

    def scale(choices: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=[choices[i] for i in range(len(names))])

    shown = None if key is None else legend(key)
    if shown is not None:
        shown.symbolStrokeWidth = 0
    colour = alt.Color("series:N", sort=names, scale=scale(SERIES), legend=shown)
    shape = alt.Shape("series:N", sort=names, scale=scale(SHAPES), legend=shown)
    dash = alt.StrokeDash("series:N", sort=names, scale=scale(DASHES), legend=shown)
    tips = [alt.Tooltip("series:N", title=key or "series"),
            *(alt.Tooltip(f"{c.shorthand}", format=",.4~g") for c in (x, y))]  # fmt: skip
    return [
        shared.mark_line(strokeWidth=2).encode(x, y, colour, dash, order="n:Q"),
        shared.mark_point(filled=True, size=55, opacity=1).encode(
            x, y, colour, shape, tooltip=tips
        ),
    ]


def _number_first(name: str) -> tuple[float, str]:
    """Numbers by value, then words: the same series looks alike in every chart."""
    try:
        return float(name), name
    except ValueError:
        return float("inf"), name


# Where it bends -----------------------------------------------------------------------------------


def load_curve(
    frame: pl.DataFrame, *, percentile: str = "p99", by: str | None = None
) -> Drawing:  # fmt: skip
    """A latency *percentile* ("mean", "p50", "p99", "p99_9") against throughput: the hockey stick.

    Dashed lines are bounds: what the fullest station allows at the highest load of each series,
    and the latency of its lightest load.
    """
    column = f"lat_{percentile}_us"
    # By load: beyond saturation more of it brings no more throughput, only latency.
    order = [c for c in ("outstanding", "iops") if c in frame.columns]
    known = _known(frame, "iops", by, column).sort(order).to_dicts()
    rows: Rows = [
        {"kiops": rounded(r["iops"] / 1e3), "us": rounded(r[column]), "series": _name(r, by),
         "n": i, "bound": rounded(r["bound_iops"] / 1e3) if r.get("bound_iops") else None}
        for i, r in enumerate(known)
    ]  # fmt: skip
    rows = _few(rows)
    if not rows:
        return nothing(_NONE)
    name = percentile.replace("_", ".")
    x = alt.X(
        "kiops:Q", title="kIOPS", scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=8)
    )
    y = alt.Y("us:Q", title=f"{name} latency, µs (log)",
              scale=alt.Scale(type="log", nice=False, padding=12),
              axis=alt.Axis(values=log_ticks([r["us"] for r in rows]),
                            labelExpr=LOG_LABELS))  # fmt: skip
    layers = _series(alt.Chart(inline(rows)), rows, x, y, key=by)
    says = _said(rows, "kiops", "us", f"{name} latency in us at so many kIOPS")
    return layered(*_load_bounds(rows, x, y), *layers, height=LOAD_HEIGHT, says=says)


def _load_bounds(rows: Rows, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Per series: its lightest latency, and the bound at its highest load if it is in reach."""
    names = list(dict.fromkeys(r["series"] for r in rows))
    own = {name: [r for r in rows if r["series"] == name] for name in names}
    most = {name: max(r["kiops"] for r in found) for name, found in own.items()}
    top = 1.5 * max(most.values())
    light = [{"us": found[0]["us"]} for found in own.values()]
    last = [(name, found[-1]["bound"]) for name, found in own.items()]
    full = [
        {"kiops": bound, "text": f"bound {name}".strip()}
        for name, bound in last
        if bound and PASSED * most[name] <= bound <= top
    ]
    across = alt.Chart(inline(light)).mark_rule(strokeDash=[2, 3], color=palette.MUTED)
    rule = alt.Chart(inline(full)).mark_rule(strokeDash=[4, 3], color=palette.ACCENT)
    text = alt.Chart(inline(full)).mark_text(align="right", dx=-5, fontSize=10)
    return [
        across.encode(y),
        rule.encode(x),
        text.encode(x, alt.Text("text:N"), y=alt.value(LOAD_HEIGHT - 9)),
    ]


# Where its load moves -----------------------------------------------------------------------------


def heat(
    data: pl.DataFrame | Mapping[str, Result], over: str = "load", *, title: str = ""
) -> Drawing:
    """How busy each station is at each value of *over*: the busier, the darker.

    A frame knows the fullest station of each kind; results by name tell every group of stations.

    >>> frame = pl.DataFrame({"qd": [1, 64], "iops": [13e3, 6e5], "busy_drive": [0.02, 0.93]})
    >>> heat(frame, "qd").description
    'Busy, in percent, against qd. drives: 2 at 1, 93 at 64.'
    """
    rows = _busy_of_results(data) if isinstance(data, Mapping) else _busy_of_frame(data, over)
    if not rows:
        return nothing(_NONE)
    cases = list(dict.fromkeys(r["case"] for r in rows))
    stations = list(dict.fromkeys(r["station"] for r in rows))
    words, colours = zip(*palette.load_legend(), strict=True)
    scale = alt.Scale(domain=list(words), range=list(colours))
    for row in rows:
        row["load"] = palette.load_words(float(row["busy"]))
    base = alt.Chart(inline(rows)).encode(
        alt.X("case:N", title=title or over, sort=cases, axis=alt.Axis(labelAngle=0)),
        alt.Y("station:N", title=None, sort=stations, axis=alt.Axis(labelLimit=230)),
    )
    colour = alt.Color("load:N", scale=scale, legend=legend("busy"))
    cells = base.mark_rect(stroke="#ffffff").encode(colour)
    texts = base.mark_text(fontSize=10).encode(
        alt.Text("text:N"),
        color=alt.condition("datum.busy >= 0.75", alt.value("#ffffff"), alt.value("#1c1f24")),
    )
    notes = []
    for station in stations:
        points = [f"{r['text']} at {r['case']}" for r in rows if r["station"] == station]
        notes.append(f"{station}: {', '.join(points)}")
    says = f"Busy, in percent, against {title or over}. {'; '.join(notes)}."
    return layered(cells, texts, height=26 * len(stations), says=says)


def _busy_of_frame(frame: pl.DataFrame, over: str) -> Rows:
    known = _known(frame, over, None, "iops").sort(over).to_dicts()
    return [
        {"case": str(row[over]), "station": name, "busy": round(row[key], 4),
         "text": f"{row[key] * 100:.0f}"}
        for key, name in BUSY.items()
        for row in known
        if row.get(key) is not None
    ]  # fmt: skip


def _busy_of_results(results: Mapping[str, Result]) -> Rows:
    """Of equal stations the busiest; delays and slots are not work."""
    rows: Rows = []
    for label, result in results.items():
        for group in summary.station_groups(result.stations):
            if group.kind not in ("delay", "gate"):
                busy = group.busiest.utilization
                rows.append({"case": str(label), "station": group.label, "busy": round(busy, 4),
                             "text": f"{busy * 100:.0f}"})  # fmt: skip
    return rows


# What it costs ------------------------------------------------------------------------------------


def pareto(
    frame: pl.DataFrame, cost: str, gain: str, *, label: str | None = None, units: str = ""
) -> Drawing:
    """*gain* against *cost*: no point left of the line brings as much for less.

    >>> frame = pl.DataFrame({"eur": [1, 2, 3], "iops": [5, 4, 9], "name": ["a", "b", "c"]})
    >>> pareto(frame, "eur", "iops", label="name").description
    'iops against eur, not beaten: a 5 for 1, c 9 for 3.'
    """
    known = _known(frame, cost, label, gain).filter(pl.col(cost).is_not_null())
    front = pareto_front(known, cost, gain)
    marked = {tuple(r) for r in front.select(cost, gain).rows()}
    rows: Rows = [
        {"cost": rounded(r[cost]), "gain": rounded(r[gain]), "name": str(r[label]) if label else "",
         "front": (r[cost], r[gain]) in marked}
        for r in known.to_dicts()
    ]  # fmt: skip
    if not rows:
        return nothing(_NONE)
    best = sorted((r for r in rows if r["front"]), key=lambda r: float(r["cost"]))
    x = alt.X("cost:Q", title=units or cost, scale=alt.Scale(zero=False, padding=20))
    y = alt.Y("gain:Q", title=gain, scale=alt.Scale(zero=False, padding=20),
              axis=alt.Axis(format="~s"))  # fmt: skip
    tips = [alt.Tooltip("name:N"), alt.Tooltip("cost:Q"), alt.Tooltip("gain:Q", format=",.4~g")]
    others = alt.Chart(inline([r for r in rows if not r["front"]]))
    found = alt.Chart(inline(best))
    line = found.mark_line(interpolate="step-after", color=palette.READ, strokeDash=[4, 3])
    text = ", ".join(f"{r['name']} {r['gain']:,.4g} for {r['cost']:,.6g}".strip() for r in best)
    return layered(
        others.mark_point(color=palette.MUTED, size=40).encode(x, y, tooltip=tips),
        line.encode(x, y),
        found.mark_point(filled=True, size=70, opacity=1, color=palette.READ).encode(
            x, y, tooltip=tips
        ),
        *_names(best, x, y),
        height=300,
        says=f"{gain} against {units or cost}, not beaten: {text}.",
    )


def _names(best: Rows, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Names beside the points, towards the middle of the chart, so that none is cut."""
    middle = (float(best[0]["cost"]) + float(best[-1]["cost"])) / 2
    sides: dict[Literal["left", "right"], Rows] = {
        "left": [r for r in best if r["cost"] <= middle],
        "right": [r for r in best if r["cost"] > middle],
    }
    return [
        alt.Chart(inline(rows))
        .mark_text(
            align=side,
            baseline="top" if side == "left" else "bottom",
            dx=9 if side == "left" else -9,
            dy=2 if side == "left" else -2,
            fontSize=10,
            lineBreak=", ",
        )
        .encode(x, y, alt.Text("name:N"))
        for side, rows in sides.items()
        if rows
    ]


def pareto_front(frame: pl.DataFrame, cost: str, gain: str) -> pl.DataFrame:
    """Rows that no other row beats: cheaper and better, cheapest first.

    >>> frame = pl.DataFrame({"eur": [1, 2, 3], "iops": [5, 4, 9]})
    >>> pareto_front(frame, "eur", "iops")["eur"].to_list()
    [1, 3]
    """
    ordered = frame.sort([cost, gain], descending=[False, True])
    before = pl.col(gain).cum_max().shift(1)
    return ordered.filter(before.is_null() | (pl.col(gain) > before))


def tornado(frame: pl.DataFrame, *, most: int = 12) -> Drawing:
    """Change of the answer by each input, from its low to its high value; widest first.

    *frame* comes from `nvmesim.sensitivity`: input, basis, change_low, change_high (shares).
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
    if not rows:
        return nothing("no uncertain input")
    names = ["low", "high"]
    y = alt.Y("input:N", title=None, sort=order, axis=alt.Axis(labelLimit=260))
    colour = alt.Color("end:N", sort=names,
                       scale=alt.Scale(domain=names, range=[palette.WRITE, palette.READ]),
                       legend=legend("input at its"))  # fmt: skip
    tips = [alt.Tooltip(f"{k}:N") for k in ("input", "end", "value", "basis")]
    bars = alt.Chart(inline(rows)).mark_bar(height={"band": 0.62}).encode(
        alt.X("change:Q", title="change of the answer, %", stack=None), y, colour,
        tooltip=[*tips, alt.Tooltip("change:Q", title="change, %")],
    )  # fmt: skip
    zero = alt.Chart(inline([{"zero": 0}])).mark_rule(color=palette.MUTED)
    text = "; ".join(f"{r['input']} at its {r['end']} {r['change']:+.2g} %" for r in rows)
    return layered(bars, zero.encode(alt.X("zero:Q")), height=24 * max(1, len(order)),
                   says=f"Change of the answer: {text}.")  # fmt: skip
