"""Charts of CPUs under load: GHz needed and utilization against MIOPS (Altair)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt

from nvmesim.show import palette
from nvmesim.show.charts.base import (
    DASHES,
    MOST_SERIES,
    NUMBER,
    Column,
    Drawing,
    column,
    layered,
    mark,
    rounded,
    series,
    tips,
    x,
    y,
)
from nvmesim.study.size import Sizing

MOST_CPUS: Final = 5
FULL: Final = 99.9
"""Percent: beyond it a CPU cannot carry more, and no line goes on."""
APART: Final = 0.06
"""Between two names, as a share of the axis, so that they do not touch."""
_CROSS: Final[dict[str, Any]] = {
    "shape": "cross", "size": 160, "filled": True, "opacity": 1, "color": palette.ACCENT,
}  # fmt: skip
Rows = Sequence[Mapping[str, Any]]


def chart(sizing: Sizing) -> Column:
    """GHz needed against MIOPS, and utilization against MIOPS of the nearest CPUs."""
    return column({
        f"GHz needed against MIOPS, {sizing.load.stack.name}": cpu_ghz(sizing),
        "Utilization against MIOPS": cpu_load(sizing),
    })  # fmt: skip


def cpu_ghz(sizing: Sizing) -> Drawing:
    """GHz in all that are needed against MIOPS, by the published rule and with SMT counted."""
    names = {"ghz": "published rule", "smt_ghz": "hyper-threads counted"}
    rows: Rows = [
        {"miops": rounded(point["miops"]), "ghz": rounded(point[key]), "by": text}
        for point in sizing.curve()
        for key, text in names.items()
    ]
    look = series("by", list(names.values()), colours=[palette.READ, palette.WRITE], lines=True)
    across, up = _miops(rows), y("ghz", f"GHz in all at {sizing.load.utilization * 100:.0f} % CPU")
    asked = {"miops": sizing.load.iops / 1e6, "ghz": rounded(sizing.ghz)}
    most = max((float(r["ghz"]) for r in rows), default=1.0)
    shown = tips("by", f"miops: MIOPS: {NUMBER}", f"ghz: GHz: {NUMBER}")
    return layered(
        mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2, tips=shown),
        mark("point", [asked], across, up, tips=tips(f"ghz: asked for, GHz: {NUMBER}"), **_CROSS),
        *_at_ends(_ends(rows, "by"), "by", across, up, "ghz", APART * most),
        height=240,
        says=f"GHz needed by the rule: {asked['ghz']:.4g} for {asked['miops']:.3g} MIOPS.",
    )  # fmt: skip


def cpu_load(sizing: Sizing, *, cpus: Sequence[str] | None = None) -> Drawing:
    """Utilization against MIOPS of *cpus*, or of those nearest to what was asked for.

    Lines bend at 50 %: from there on hyper-threads share cores. The cross is the load asked for.
    """
    asked = {"miops": sizing.load.iops / 1e6, "utilization": 100 * sizing.load.utilization}
    curves = sizing.utilization_curves()
    names = _near(curves, asked, cpus)
    rows: Rows = [
        {"cpu": r["cpu"], "miops": rounded(r["miops"]), "utilization": rounded(r["utilization"])}
        for r in curves
        if r["cpu"] in names and r["utilization"] < FULL
    ]
    domain = [n for n in names if any(r["cpu"] == n for r in rows)]
    look = series("cpu", domain, dashes=DASHES, columns=3, shown=True)
    across = _miops(rows)
    up = y("utilization", "CPU busy, as the operating system shows it, %", domain=(0, 100))
    shown = tips("cpu: CPU", f"miops: MIOPS: {NUMBER}", "utilization: busy, %: .0f")
    text = ", ".join(f"{name} {_busy(curves, name, asked['miops']):.0f}" for name in domain)
    return layered(
        mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2),
        mark("point", rows, across, up, look.colour, look.shape, filled=True, size=45, opacity=1,
             tips=shown),
        mark("point", [asked], across, up, **_CROSS),
        *_at_ends(_ends(rows, "cpu"), "cpu", across, up, "utilization", APART * 100),
        height=290, says=f"CPU busy in percent at {asked['miops']:.3g} MIOPS: {text}.",
    )  # fmt: skip


def _miops(rows: Rows) -> alt.X:
    """The axis of load, with room for names right of the lines' ends."""
    most = max((float(r["miops"]) for r in rows), default=1.0)
    return x("miops", "MIOPS", domain=(0, 1.28 * most), ticks=8)


def _at_ends(
    ends: Rows, name: str, across: alt.X, up: alt.Y, value: str, gap: float
) -> list[alt.Chart]:
    """Names right of all lines, each led to from its line's end; *gap* keeps them apart."""
    last = max((float(e["miops"]) for e in ends), default=0.0)
    placed: list[dict[str, Any]] = []
    for end in sorted(ends, key=lambda e: (round(float(e["miops"]), 2), -float(e[value]))):
        at = min([float(end[value]), *(float(p[value]) - gap for p in placed)])
        placed.append({name: end[name], "miops": rounded(1.03 * last), value: rounded(at),
                       "end_x": end["miops"], "end_y": end[value]})  # fmt: skip
    return [
        mark("rule", placed, across, up, alt.X2("end_x"), alt.Y2("end_y"), strokeWidth=0.7,
             color=palette.MUTED),
        mark("text", placed, across, up, alt.Text(f"{name}:N"), align="left", dx=3, fontSize=10),
    ]  # fmt: skip


def _ends(rows: Rows, key: str) -> Rows:
    """The last point of each line."""
    names = dict.fromkeys(r[key] for r in rows)
    return [max((r for r in rows if r[key] == n), key=lambda r: float(r["miops"])) for n in names]


def _near(curves: Rows, asked: Mapping[str, float], cpus: Sequence[str] | None) -> list[str]:
    """Names to draw: those that contain one of *cpus*, or those nearest to what was asked."""
    names = list(dict.fromkeys(str(r["cpu"]) for r in curves))
    if cpus is not None:
        return [n for n in names if any(c in n for c in cpus)][:MOST_SERIES]
    busy = {n: _busy(curves, n, asked["miops"]) for n in names}
    near = sorted(names, key=lambda n: abs(busy[n] - asked["utilization"]))[:MOST_CPUS]
    return sorted(near, key=lambda n: -busy[n])


def _busy(curves: Rows, name: str, miops: float) -> float:
    """Percent busy at the point nearest to *miops*."""
    own = [r for r in curves if r["cpu"] == name]
    return float(min(own, key=lambda r: abs(r["miops"] - miops))["utilization"])
