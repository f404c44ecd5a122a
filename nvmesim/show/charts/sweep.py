"""Charts of several points: how a design scales, where it bends, where its load moves (Altair)."""

from collections.abc import Mapping
from typing import Any, Final

import altair as alt
import polars as pl

from nvmesim.errors import InputError, nearest
from nvmesim.show import palette
from nvmesim.show.charts import base as c
from nvmesim.show.charts.base import Drawing, Rows, Series, rounded

BUSY: Final = {
    "busy_cpu": "CPU", "busy_thread": "threads", "busy_raid_engine": "RAID engine",
    "busy_link": "links", "busy_drive": "drives",
}  # fmt: skip
_BAND: Final = {"kiops": "iops", "low": "iops_low", "high": "iops_high"}
_NONE: Final = "no point without an error"


def scaling(
    frame: pl.DataFrame, over: str = "drives", *, by: str | None = None, title: str = "",
    ideal: bool = True,
) -> Drawing:  # fmt: skip
    """IOPS with their intervals as bands against *over*, a line for each *by*, under n x one.

    *frame* is a sweep's. Without *ideal* the line of n x one is left out, and wide ranges have a
    logarithmic axis.

    >>> frame = pl.DataFrame({"drives": [1, 2, 4], "iops": [600e3, 1.2e6, 1.9e6]})
    >>> scaling(frame, "drives").description
    'kIOPS against drives: 600 at 1, 1,200 at 2, 1,900 at 4.'
    """
    frame = _known(frame, over, by, "iops")
    known = [v in frame.columns and frame[v].null_count() == 0 for v in _BAND.values()]
    ends = _BAND if all(known) else {"kiops": "iops"}
    rows, look = _series([
        {"n": r[over], "series": "" if by is None else str(r[by]),
         **{k: rounded(r[v] / 1e3) for k, v in ends.items()}}
        for r in frame.sort(over).to_dicts()
    ], by)  # fmt: skip
    if not rows:
        return c.nothing(_NONE)
    name = title or over
    numbers = sorted({float(r["n"]) for r in rows})
    is_log = not ideal and 0 < 16 * numbers[0] <= numbers[-1]
    how: dict[str, Any] = {"log2": numbers} if is_log else {"ticks": numbers}
    across = c.x("n", name, labels="format(datum.value, '~r')", **how)
    up = c.y("kiops", "kIOPS")
    banded = rows if "low" in ends else []
    within = (f"low: 95 % from, kIOPS: {c.NUMBER}", f"high: to, kIOPS: {c.NUMBER}")
    shown = c.tips(f"series: {by or 'series'}", f"n: {name}: {c.NUMBER}",
                   f"kiops: kIOPS: {c.NUMBER}", *(within if banded else ()))  # fmt: skip
    return c.layered(
        c.mark("area", banded, across, alt.Y("low:Q"), alt.Y2("high:Q"), look.colour, opacity=0.13),
        *(_ideal(rows, across, up) if ideal else []), *_lines(rows, across, up, look, shown),
        height=270, says=_in_words(rows, "n", "kiops", f"kIOPS against {name}"),
    )  # fmt: skip


def _known(frame: pl.DataFrame, over: str, by: str | None, value: str) -> pl.DataFrame:
    """Rows with a *value*; InputError for a column that is not there."""
    for column in filter(None, (over, value, by)):
        if column not in frame.columns:
            raise InputError(
                f"the frame has no column {column!r}; {nearest(column, frame.columns)}"
            )
    return frame.filter(pl.col(value).is_not_null())


def _series(rows: Rows, by: str | None) -> tuple[Rows, Series]:
    """Rows of as many series as colours, dashes and shapes tell apart, and their encodings."""

    def number_first(name: str) -> tuple[float, str]:
        try:
            return float(name), name
        except ValueError:
            return float("inf"), name

    names = list(dict.fromkeys(r["series"] for r in rows))[: c.MOST_SERIES]
    look = c.series("series", sorted(names, key=number_first), title=by, shown=by is not None)
    return [r for r in rows if r["series"] in names], look


def _lines(
    rows: Rows, across: alt.X, up: alt.Y, look: Series, shown: list[alt.Tooltip]
) -> list[alt.Chart]:
    """A line and its points for each series, in the order of "n"."""
    return [
        c.mark("line", rows, across, up, look.colour, look.dash, alt.Order("n:Q"), strokeWidth=2),
        c.mark("point", rows, across, up, look.colour, look.shape, filled=True, size=55, opacity=1,
               tips=shown),
    ]  # fmt: skip


def _by_series(rows: Rows) -> dict[str, Rows]:
    names = dict.fromkeys(r["series"] for r in rows)
    return {name: [r for r in rows if r["series"] == name] for name in names}


def _in_words(rows: Rows, at: str, value: str, what: str) -> str:
    """The points in words, a sentence for each series."""
    parts = [
        (f"{name}: " if name else "") + ", ".join(f"{r[value]:,.4g} at {r[at]:,.4g}" for r in own)
        for name, own in _by_series(rows).items()
    ]
    return f"{what}: {'; '.join(parts)}."


def _ideal(rows: Rows, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """The line of n x one, from the smallest count of each series, with its name once."""
    top = 1.15 * max(float(r["high"] if "high" in r else r["kiops"]) for r in rows)
    out: Rows = []
    for name, own in _by_series(rows).items():
        first, last = own[0], own[-1]
        one = first["kiops"] / max(first["n"], 1e-300)
        end = min(float(last["n"]), max(top / max(one, 1e-300), float(first["n"])))
        out += [{"n": n, "kiops": rounded(one * n), "line": f"n × one {name}"}
                for n in (first["n"], end)]  # fmt: skip
    highest = max(out, key=lambda r: float(r["kiops"]))
    return [
        c.mark("line", out, across, up, alt.Detail("line:N"), strokeDash=[3, 3],
               color=palette.MUTED, tips=c.tips("line: if")),
        c.mark("text", [highest], across, up, alt.TextValue("n × one"), align="right", dx=-10,
               fontSize=10),
    ]  # fmt: skip


def load_curve(frame: pl.DataFrame, *, percentile: str = "p99", by: str | None = None) -> Drawing:
    """A latency *percentile* ("mean", "p50", "p99", "p99_9") against throughput: the hockey stick.

    Dashed lines are bounds: what the fullest station allows at the highest load of each series,
    and the latency of its lightest load.
    """
    column = f"lat_{percentile}_us"
    # By load: beyond saturation more of it brings no more throughput, only latency.
    order = [c for c in ("outstanding", "iops") if c in frame.columns]
    rows, look = _series([
        {"kiops": rounded(r["iops"] / 1e3), "us": rounded(r[column]), **_ends(r, percentile),
         "series": "" if by is None else str(r[by]), "n": i,
         "bound": rounded(r["bound_iops"] / 1e3) if r.get("bound_iops") else None}
        for i, r in enumerate(_known(frame, "iops", by, column).sort(order).to_dicts())
    ], by)  # fmt: skip
    if not rows:
        return c.nothing(_NONE)
    name = percentile.replace("_", ".")
    across = c.x("kiops", "kIOPS", ticks=8)
    banded = [r for r in rows if "us_low" in r]
    every = [r[key] for r in rows for key in ("us", "us_low", "us_high") if r.get(key)]
    up = c.y("us", f"{name} latency, µs", log=every, padding=12)
    ends = (f"us_low: 95 % from, µs: {c.NUMBER}", f"us_high: to, µs: {c.NUMBER}") if banded else ()
    shown = c.tips(f"series: {by or 'series'}", f"kiops: kIOPS: {c.NUMBER}",
                   f"us: {name}, µs: {c.NUMBER}", *ends)  # fmt: skip
    return c.layered(
        c.mark("rule", banded, across, alt.Y("us_low:Q"), alt.Y2("us_high:Q"), look.colour,
               opacity=0.35),
        c.mark("rule", banded, alt.X("low:Q"), alt.X2("high:Q"), up, look.colour, opacity=0.35),
        *_load_bounds(rows, across, up), *_lines(rows, across, up, look, shown),
        height=260, says=_in_words(rows, "kiops", "us", f"{name} latency in us at so many kIOPS"),
    )  # fmt: skip


def _ends(row: Mapping[str, Any], percentile: str) -> dict[str, float]:
    """Both 95 % intervals of a point, kIOPS and us, where it has them."""
    keys = {"low": "iops_low", "high": "iops_high", "us_low": f"lat_{percentile}_low_us",
            "us_high": f"lat_{percentile}_high_us"}  # fmt: skip
    found = {key: row.get(column) for key, column in keys.items()}
    if None in found.values():
        return {}
    return {k: rounded(v / (1 if "us" in k else 1e3)) for k, v in found.items() if v is not None}


def _load_bounds(rows: Rows, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """Per series: its lightest latency, and the bound at its highest load if it is in reach."""
    own = _by_series(rows)
    top = 1.5 * max(r["kiops"] for r in rows)
    layers = [layer for found in own.values() for layer in c.level(up, found[0]["us"], light=True)]
    drawn: list[float] = []
    for name, found in own.items():
        bound = found[-1]["bound"]
        if bound and c.PASSED * max(r["kiops"] for r in found) <= bound <= top:
            apart = all(abs(bound - other) > 0.1 * top for other in drawn)  # names do not overlap
            layers += c.level(across, bound, f"bound {name}".strip() if apart else "")
            drawn.append(bound)
    return layers


def heat(frame: pl.DataFrame, over: str, *, title: str = "") -> Drawing:
    """How busy the fullest station of each kind is at each value of *over*: the busier, the darker.

    >>> frame = pl.DataFrame({"qd": [1, 64], "iops": [13e3, 6e5], "busy_drive": [0.02, 0.93]})
    >>> heat(frame, "qd").description
    'Busy, in percent, against qd. drives: 2 at 1, 93 at 64.'
    """
    known = _known(frame, over, None, "iops").sort(over).to_dicts()
    found = [(row[over], name, row[key]) for key, name in BUSY.items() for row in known
             if row.get(key) is not None]  # fmt: skip
    if not found:
        return c.nothing(_NONE)
    rows: Rows = [
        {"case": str(case), "station": station, "busy": round(busy, 4), "text": f"{busy * 100:.0f}",
         "load": palette.load_step(round(busy, 4))[0]} for case, station, busy in found
    ]  # fmt: skip
    cases = list(dict.fromkeys(r["case"] for r in rows))
    stations = list(dict.fromkeys(r["station"] for r in rows))
    names, colours = zip(*((words, colour) for _, words, colour in palette.LOADS), strict=True)
    across = alt.X("case:N", title=title or over, sort=cases, axis=alt.Axis(labelAngle=0))
    up = c.y("station", names=stations)
    look = c.series("load", names, colours=colours, title="busy", shown=True)
    notes = (
        f"{s}: " + ", ".join(f"{r['text']} at {r['case']}" for r in rows if r["station"] == s)
        for s in stations
    )
    ink = alt.condition("datum.busy >= 0.75", alt.value("#ffffff"), alt.value("#1c1f24"))
    shown = c.tips("station", f"case: {title or over}", "busy: busy: .0%")
    return c.layered(
        c.mark("rect", rows, across, up, look.colour, stroke="#ffffff", tips=shown),
        c.mark("text", rows, across, up, alt.Text("text:N"), fontSize=10).encode(color=ink),
        height=26 * len(stations),
        says=f"Busy, in percent, against {title or over}. {'; '.join(notes)}.",
    )  # fmt: skip


def beside(named: Rows, every: Rows, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """Labels beside points of a front, towards the middle of the chart; those too close go."""
    costs = [float(r["cost"]) for r in every]
    low, high = min(costs), max(costs)
    layers, last = [], -float("inf")
    for row in named:
        at = (row["cost"] - low) / ((high - low) or 1)
        is_left, is_strong = at <= 0.5, bool(row.get("strong"))
        if at - last >= 0.08 or is_strong:
            last = at
            side: dict[str, Any] = {"align": "left", "dx": 9, "dy": 12} if is_left else (
                {"align": "right", "dx": -9, "dy": -10}
            )  # fmt: skip
            weight = "bold" if is_strong else "normal"
            layers.append(c.mark("text", [row], across, up, alt.Text("label:N"), **side,
                                 fontSize=11, fontWeight=weight, lineBreak=", "))  # fmt: skip
    return layers


def tornado(frame: pl.DataFrame, *, most: int = 12) -> Drawing:
    """Change of the answer by each input, from its low to its high value; widest first.

    *frame* comes from `nvmesim.sensitivity`: input, basis, change_low, change_high (shares).
    """
    rows: Rows = [
        {"input": row.get("name") or row["input"], "end": end, "value": row[end],
         "change": round(100 * row[f"change_{end}"], 3), "basis": row["basis"]}
        for row in frame.sort("swing", descending=True).head(most).to_dicts()
        for end in ("low", "high")
        if row[f"change_{end}"] is not None
    ]  # fmt: skip
    if not rows:
        return c.nothing("no uncertain input")
    names = list(dict.fromkeys(row["input"] for row in rows))
    up = c.y("input", names=names)
    look = c.series("end", ["low", "high"], colours=[palette.WRITE, palette.READ],
                    title="input at its")  # fmt: skip
    across = alt.X("change:Q", title="change of the answer, %", stack=None,
                   axis=alt.Axis(tickCount=8))  # fmt: skip
    shown = c.tips("input", "end: at its", f"value: value: {c.NUMBER}", "basis",
                   "change: change, %: +.3~g")  # fmt: skip
    text = "; ".join(f"{r['input']} at its {r['end']} {r['change']:+.2g} %" for r in rows)
    return c.layered(
        c.mark("bar", rows, across, up, look.colour, height={"band": 0.62}, tips=shown),
        c.mark("rule", [{"zero": 0}], alt.X("zero:Q"), color=palette.MUTED),
        height=24 * len(names), says=f"Change of the answer: {text}.",
    )  # fmt: skip
