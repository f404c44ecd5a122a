"""Charts of single requests: distributions with residuals, and latency over time with episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.over_time.episodes import Episodes, episodes_of_requests
from nvmesim.show import palette
from nvmesim.show.charts.base import LOG_LABELS, Drawing, inline, layered, log_ticks, rounded
from nvmesim.show.charts.result import TAIL_LABELS

Row = dict[str, Any]

BEYOND: Final = 10
"""A tail is drawn as far as this many requests lie beyond it."""
LEVELS: Final = 120
WINDOWS: Final = 120
COLOURS: Final = {"measured": palette.READ, "fitted": palette.WRITE}


def nines_of(samples: Floats) -> Floats:
    """float64[k]: how far out a distribution of these samples can be drawn, in nines."""
    most = math.log10(max(len(samples) / BEYOND, 2.0))
    return np.linspace(0.02, most, LEVELS)


def distributions(tables: Mapping[str, Floats]) -> Drawing:
    """Share of requests that are faster, against latency: name -> seconds."""
    rows: list[Row] = []
    for name, samples in tables.items():
        nines = nines_of(samples)
        values = np.quantile(samples, 1 - 10.0**-nines)
        rows += [
            {"of": name, "us": rounded(float(v) * 1e6), "nines": round(float(n), 4)}
            for n, v in zip(nines, values, strict=True)
        ]
    names = list(tables)
    ticks = log_ticks([r["us"] for r in rows])
    x = alt.X("us:Q", title="latency, µs (log)", scale=alt.Scale(type="log", nice=False),
              axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks))  # fmt: skip
    y = alt.Y("nines:Q", title="share of requests that are faster",
              scale=alt.Scale(domainMin=0, nice=False),
              axis=alt.Axis(values=list(range(7)), labelExpr=TAIL_LABELS))  # fmt: skip
    line = alt.Chart(inline(rows)).mark_line(strokeWidth=2)
    colour, dash = _named(names)
    return layered(line.encode(x, y, colour, dash), height=280, says=f"Latency of {names}")


def residuals(measured: Floats, fitted: Floats) -> Drawing:
    """By how much the fitted latency is off, at each percentile; the band is 10 % either way."""
    nines = nines_of(measured)
    levels = 1 - 10.0**-nines
    off = np.quantile(fitted, levels) / np.quantile(measured, levels) - 1
    rows = [
        {"nines": round(float(n), 4), "off": round(100 * float(o), 2)}
        for n, o in zip(nines, off, strict=True)
    ]
    top = max(25.0, float(np.abs(100 * off).max()))
    x = alt.X("nines:Q", title="share of requests that are faster",
              scale=alt.Scale(domainMin=0, nice=False),
              axis=alt.Axis(values=list(range(7)), labelExpr=TAIL_LABELS))  # fmt: skip
    y = alt.Y("off:Q", title="fitted / measured - 1, %", scale=alt.Scale(domain=[-top, top]))
    band = alt.Chart(inline([{"low": -10, "high": 10}])).mark_rect(opacity=0.12)
    zero = alt.Chart(inline([{"off": 0}])).mark_rule(color=palette.MUTED)
    line = alt.Chart(inline(rows)).mark_line(strokeWidth=2, color=palette.WRITE)
    return layered(
        band.encode(y=alt.Y("low:Q"), y2="high:Q"), zero.encode(y="off:Q"), line.encode(x, y),
        height=160, says=f"Residuals of latency, at most {top:.0f} %",
    )  # fmt: skip


def over_time(at_s: Floats, tables: Mapping[str, Floats], found: Episodes | None) -> Drawing:
    """Median and p99 in windows of time; episodes shaded."""
    edges = np.linspace(float(at_s[0]), float(at_s[-1]), min(WINDOWS, max(4, len(at_s) // 50)) + 1)
    window = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, len(edges) - 2)
    rows: list[Row] = []
    for name, samples in tables.items():
        for i in range(len(edges) - 1):
            part = samples[window == i]
            if len(part) < 5:
                continue
            at = rounded(float(edges[i]))
            p50, p99 = (rounded(float(v) * 1e6) for v in np.percentile(part, (50, 99)))
            rows += [
                {"s": at, "of": f"{name} p50", "us": p50},
                {"s": at, "of": f"{name} p99", "us": p99},
            ]
    names = [f"{name} p{percent}" for name in tables for percent in (50, 99)]
    x = alt.X("s:Q", title="time in the capture, s", scale=alt.Scale(nice=False))
    ticks = log_ticks([r["us"] for r in rows])
    y = alt.Y("us:Q", title="latency, µs (log)", scale=alt.Scale(type="log", nice=False),
              axis=alt.Axis(labelExpr=LOG_LABELS, values=ticks))  # fmt: skip
    colour, dash = _named(names)
    lines = alt.Chart(inline(rows)).mark_line(strokeWidth=1.5).encode(x, y, colour, dash)
    shaded = [] if found is None else [_spans(found, x)]
    return layered(*shaded, lines, height=220, says="Latency over time")


def episodes_in(at_s: Floats, latency_s: Floats) -> Episodes | None:
    """Episodes of requests in order of completion; None if there are none."""
    done = at_s + latency_s
    order = np.argsort(done, kind="stable")
    return episodes_of_requests(done[order], latency_s[order])


def _spans(found: Episodes, x: alt.X) -> alt.Chart:
    turns = np.flatnonzero(np.diff(np.concatenate([[0], found.slow.astype(int), [0]])))
    last = len(found.times_s) - 1
    rows = [
        {"s": rounded(float(found.times_s[a])), "end": rounded(float(found.times_s[min(b, last)]))}
        for a, b in zip(turns[::2], turns[1::2], strict=True)
    ]
    box = alt.Chart(inline(rows)).mark_rect(opacity=0.25, color=palette.ACCENT)
    drawn: alt.Chart = box.encode(x, x2="end:Q")
    return drawn


def _named(names: Sequence[str]) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dash by name: what was measured is solid."""
    palette_ = [palette.READ, palette.WRITE, "#009e73", "#cc79a7", "#56b4e9", "#7a7f87"]
    colours = [palette_[i % len(palette_)] for i in range(len(names))]
    dashes = [[1, 0] if n.startswith("measured") else [6, 3] for n in names]
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1, columns=4, labelLimit=240)
    return (
        alt.Color("of:N", sort=list(names), legend=legend,
                  scale=alt.Scale(domain=list(names), range=colours)),
        alt.StrokeDash("of:N", sort=list(names), legend=legend,
                       scale=alt.Scale(domain=list(names), range=dashes)),
    )  # fmt: skip
