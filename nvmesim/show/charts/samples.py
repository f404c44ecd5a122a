"""Charts of single requests: distributions with residuals, and latency over time with episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.over_time.episodes import Episodes, episodes_of_requests
from nvmesim.show.charts.base import Drawing, layered, mark, rounded, series, x, y
from nvmesim.show.charts.fit_points import COLOURS, nines_chart, residual_chart, shaded

Row = dict[str, Any]

BEYOND: Final = 10
"""A tail is drawn as far as this many requests lie beyond it."""
LEVELS: Final = 120
WINDOWS: Final = 120


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
            {"of": name, "what": name, "us": rounded(float(v) * 1e6), "nines": round(float(n), 4)}
            for n, v in zip(nines, values, strict=True)
        ]
    return nines_chart(rows, list(tables), tables, "")


def residuals(measured: Floats, fitted: Floats) -> Drawing:
    """By how much the fitted latency is off, at each percentile; the band is 10 % either way."""
    nines = nines_of(measured)
    levels = 1 - 10.0**-nines
    off = np.quantile(fitted, levels) / np.quantile(measured, levels) - 1
    rows = [
        {"nines": round(float(n), 4), "off": round(100 * float(o), 2), "of": "fitted"}
        for n, o in zip(nines, off, strict=True)
    ]
    across = x("nines", "share of requests that are faster", nines=True)
    worst = 100 * float(np.abs(off).max())
    return residual_chart(rows, ["fitted"], across, f"Residuals of latency, at most {worst:.0f} %")


def over_time(at_s: Floats, tables: Mapping[str, Floats], found: Episodes | None) -> Drawing:
    """Median and p99 in windows of time; episodes shaded."""
    edges = np.linspace(float(at_s[0]), float(at_s[-1]), min(WINDOWS, max(4, len(at_s) // 50)) + 1)
    window = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, len(edges) - 2)
    rows: list[Row] = []
    for name, samples in tables.items():
        for i in range(len(edges) - 1):
            part = samples[window == i]
            if len(part) >= 5:
                rows += [
                    {"s": rounded(float(edges[i])), "of": f"{name} p{p}", "us": rounded(v * 1e6)}
                    for p, v in zip((50, 99), np.percentile(part, (50, 99)).tolist(), strict=True)
                ]
    names = [f"{name} p{percent}" for name in tables for percent in (50, 99)]
    dashes = [(1, 0) if n.startswith("measured") else (6, 3) for n in names]
    look = series("of", names, colours=COLOURS, dashes=dashes, columns=4, lines=True, shown=True)
    across = x("s", "time in the capture, s", zero=False)
    up = y("us", "latency, µs", log=[r["us"] for r in rows])
    lines = mark("line", rows, across, up, look.colour, look.dash, strokeWidth=1.5)
    spans = [] if found is None else [shaded(_spans(found), across)]
    return layered(*spans, lines, height=220, says="Latency over time")


def episodes_in(at_s: Floats, latency_s: Floats) -> Episodes | None:
    """Episodes of requests in order of completion; None if there are none."""
    done = at_s + latency_s
    order = np.argsort(done, kind="stable")
    return episodes_of_requests(done[order], latency_s[order])


def _spans(found: Episodes) -> list[Row]:
    turns = np.flatnonzero(np.diff(np.concatenate([[0], found.slow.astype(int), [0]])))
    last = len(found.times_s) - 1
    return [
        {"s": rounded(float(found.times_s[a])), "end": rounded(float(found.times_s[min(b, last)]))}
        for a, b in zip(turns[::2], turns[1::2], strict=True)
    ]
