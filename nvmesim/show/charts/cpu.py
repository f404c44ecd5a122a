"""The chart of CPUs under load: utilization against MIOPS (Altair)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt

from nvmesim.show import palette
from nvmesim.show.charts.base import Column, Drawing, column, inline, layered, legend, rounded
from nvmesim.show.charts.sweep import DASHES, SERIES, SHAPES
from nvmesim.study.size import Sizing

MOST_CPUS: Final = 5
FULL: Final = 99.9
"""Percent: beyond it a CPU cannot carry more, and no line goes on."""
_CROSS: Final[dict[str, Any]] = {
    "shape": "cross", "size": 160, "filled": True, "opacity": 1, "color": palette.ACCENT,
}  # fmt: skip


def chart(sizing: Sizing) -> Column:
    """GHz needed against MIOPS, and utilization against MIOPS of the nearest CPUs (Altair)."""
    return column({
        f"GHz needed against MIOPS, {sizing.load.stack.name}": cpu_ghz(sizing),
        "Utilization against MIOPS": cpu_load(sizing),
    })  # fmt: skip


def cpu_ghz(sizing: Sizing) -> Drawing:
    """GHz in all that are needed against MIOPS, by the published rule and with SMT counted."""
    words = {"ghz": "published rule", "smt_ghz": "SMT counted"}
    rows = [
        {"miops": rounded(point["miops"]), "ghz": rounded(point[key]), "by": text}
        for point in sizing.curve()
        for key, text in words.items()
    ]
    names = list(words.values())
    colours = alt.Scale(domain=names, range=[palette.READ, palette.WRITE])
    dashes = alt.Scale(domain=names, range=[[1, 0], [6, 3]])
    key = legend(lines=True)
    colour = alt.Color("by:N", sort=names, legend=key, scale=colours)
    dash = alt.StrokeDash("by:N", sort=names, legend=key, scale=dashes)
    x = alt.X(
        "miops:Q",
        title="MIOPS",
        scale=_room([r["miops"] for r in rows]),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y("ghz:Q", title=f"GHz in all at {sizing.load.utilization * 100:.0f} % CPU")
    asked = {"miops": sizing.load.iops / 1e6, "ghz": rounded(sizing.ghz)}
    lines = alt.Chart(inline(rows)).mark_line(strokeWidth=2).encode(x, y, colour, dash)
    here = alt.Chart(inline([asked])).mark_point(**_CROSS).encode(x, y)
    most = max((float(str(r["ghz"])) for r in rows), default=1.0)
    labels = _at_ends(_ends(rows, "by"), "by", x, y, "ghz", APART * most)
    says = f"GHz needed by the rule: {asked['ghz']:.4g} for {asked['miops']:.3g} MIOPS."
    return layered(lines, here, *labels, height=240, says=says)


def cpu_load(sizing: Sizing, *, cpus: Sequence[str] | None = None) -> Drawing:
    """Utilization against MIOPS of *cpus*, or of those nearest to what was asked for.

    Lines bend at 50 %: from there on hyper-threads share cores. The cross is the load asked for.
    """
    asked = {"miops": sizing.load.iops / 1e6, "utilization": 100 * sizing.load.utilization}
    curves = sizing.utilization_curves()
    names = _near(curves, asked, cpus)
    rows = [
        {"cpu": r["cpu"], "miops": rounded(r["miops"]), "utilization": rounded(r["utilization"])}
        for r in curves
        if r["cpu"] in names and r["utilization"] < FULL
    ]
    domain = [n for n in names if any(r["cpu"] == n for r in rows)]
    x = alt.X(
        "miops:Q",
        title="MIOPS",
        scale=_room([r["miops"] for r in rows]),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y("utilization:Q", title="CPU busy, as the operating system shows it, %",
              scale=alt.Scale(domain=[0, 100]))  # fmt: skip
    n = range(len(domain))
    colour = alt.Color("cpu:N", sort=domain, legend=_legend(),
                       scale=alt.Scale(domain=domain, range=[SERIES[i] for i in n]))  # fmt: skip
    shape = alt.Shape("cpu:N", sort=domain, legend=_legend(),
                      scale=alt.Scale(domain=domain, range=[SHAPES[i] for i in n]))  # fmt: skip
    dash = alt.StrokeDash("cpu:N", sort=domain, legend=_legend(),
                          scale=alt.Scale(domain=domain, range=[DASHES[i] for i in n]))  # fmt: skip
    shared = alt.Chart(inline(rows))
    here = alt.Chart(inline([asked])).encode(x, y)
    text = ", ".join(f"{name} {_at(curves, name, asked['miops'])}" for name in domain)
    return layered(
        shared.mark_line(strokeWidth=2).encode(x, y, colour, dash),
        shared.mark_point(filled=True, size=45, opacity=1).encode(x, y, colour, shape),
        here.mark_point(**_CROSS),
        *_at_ends(_ends(rows, "cpu"), "cpu", x, y, "utilization", APART * 100),
        height=290,
        says=f"CPU busy in percent at {asked['miops']:.3g} MIOPS: {text}.",
    )


def _room(miops: Sequence[Any]) -> alt.Scale:
    """A scale with room for names right of the lines' ends."""
    return alt.Scale(nice=False, domain=[0, 1.28 * max((float(m) for m in miops), default=1.0)])


def _at_ends(
    ends: Sequence[Mapping[str, Any]], name: str, x: alt.X, y: alt.Y, value: str, gap: float
) -> list[alt.Chart]:
    """Names right of all lines, each led to from its line's end; *gap* keeps them apart."""
    last = max((float(e["miops"]) for e in ends), default=0.0)
    placed: list[dict[str, Any]] = []
    for end in sorted(ends, key=lambda e: (round(float(e["miops"]), 2), -float(e[value]))):
        at = min([float(end[value]), *(float(p[value]) - gap for p in placed)])
        placed.append({name: end[name], "miops": rounded(1.03 * last), value: rounded(at),
                       "end_x": end["miops"], "end_y": end[value]})  # fmt: skip
    shared = alt.Chart(inline(placed))
    led = shared.mark_rule(strokeWidth=0.7, color=palette.MUTED).encode(
        x, y, x2="end_x", y2="end_y"
    )
    texts = shared.mark_text(align="left", dx=3, fontSize=10).encode(x, y, alt.Text(f"{name}:N"))
    return [led, texts]


APART: Final = 0.06
"""Between two names, as a share of the axis, so that they do not touch."""


def _ends(rows: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """The last point of each line."""
    names = dict.fromkeys(r[key] for r in rows)
    return [max((r for r in rows if r[key] == n), key=lambda r: float(r["miops"])) for n in names]


def _legend() -> alt.Legend:
    shown = legend()
    shown.columns, shown.symbolStrokeWidth = 3, 0
    return shown


def _near(
    curves: Sequence[Mapping[str, Any]], asked: Mapping[str, float], cpus: Sequence[str] | None
) -> list[str]:
    """Names to draw: those that contain one of *cpus*, or those nearest to what was asked."""
    names = list(dict.fromkeys(str(r["cpu"]) for r in curves))
    if cpus is not None:
        return [n for n in names if any(c in n for c in cpus)][: len(SERIES)]
    off = {n: abs(_busy(curves, n, asked["miops"]) - asked["utilization"]) for n in names}
    return sorted(sorted(names, key=lambda n: off[n])[:MOST_CPUS], key=lambda n: -_busy(
        curves, n, asked["miops"]))  # fmt: skip


def _busy(curves: Sequence[Mapping[str, Any]], name: str, miops: float) -> float:
    """Percent busy at the point nearest to *miops*."""
    own = [r for r in curves if r["cpu"] == name]
    return float(min(own, key=lambda r: abs(r["miops"] - miops))["utilization"])


def _at(curves: Sequence[Mapping[str, Any]], name: str, miops: float) -> str:
    return f"{_busy(curves, name, miops):.0f}"
