"""The chart of `ns.choose`: throughput against the objective, the winner named."""

from __future__ import annotations

from typing import Any, Final

import altair as alt

from nvmesim.show import palette
from nvmesim.show.charts.base import Drawing, inline, layered, legend, nothing, rounded
from nvmesim.study.choose.search import Choice

STATES: Final = {"chosen": "chosen", "runner-up": "meets the goal", "rejected": "rejected"}
COLOURS: Final = (palette.WRITE, palette.READ, palette.MUTED)
SHAPES: Final = ("diamond", "circle", "cross")
MOST_TICKS: Final = 14
CAPTION: Final = (
    "All that were simulated. The line leads through those that meet the goal and are beaten by "
    "none: more throughput costs as much as it shows. Dashed: the throughput asked for."
)


def chart(choice: Choice) -> Drawing:
    """Throughput against the objective of all candidates that were simulated (Altair)."""
    what = choice.goal.objective.minimize
    rows: list[dict[str, Any]] = [
        {"name": choice.named(c), "state": STATES[c.state], "cost": rounded(c.cost(what)),
         "kiops": rounded(c.row["iops"] / 1e3), "why": c.reason,
         "label": f"chosen: {choice.named(c)}" if c.state == "chosen" else choice.named(c)}
        for c in choice.candidates
        if c.state in STATES and c.row.get("iops") and c.cost(what) < float("inf")
    ]  # fmt: skip
    if not rows:
        return nothing("no candidate was simulated")
    front = _front([r for r in rows if r["state"] != STATES["rejected"]])
    x = alt.X("cost:Q", title=_title(choice), scale=alt.Scale(zero=False, padding=24),
              axis=_axis(rows, what))  # fmt: skip
    y = alt.Y("kiops:Q", title="kIOPS", scale=alt.Scale(zero=True, nice=True))
    shown = [s for s in STATES.values() if any(r["state"] == s for r in rows)]
    picked = [list(STATES.values()).index(s) for s in shown]
    colours = alt.Scale(domain=shown, range=[COLOURS[i] for i in picked])
    shapes = alt.Scale(domain=shown, range=[SHAPES[i] for i in picked])
    colour = alt.Color("state:N", legend=legend(), sort=shown, scale=colours)
    shape = alt.Shape("state:N", legend=legend(), sort=shown, scale=shapes)
    tips = [
        alt.Tooltip("name:N"), alt.Tooltip("cost:Q", title=what),
        alt.Tooltip("kiops:Q", format=",.4~g"), alt.Tooltip("why:N", title="why not"),
    ]  # fmt: skip
    points = alt.Chart(inline(rows)).mark_point(filled=True, size=75, opacity=1)
    line = alt.Chart(inline(front)).mark_line(
        interpolate="step-after", color=palette.READ, strokeDash=[4, 3]
    )
    text = "; ".join(f"{r['label']} {r['kiops']:,.4g} kIOPS for {r['cost']:,.6g}" for r in front)
    return layered(
        *_goal(choice, y),
        line.encode(x, y),
        points.encode(x, y, colour, shape, tooltip=tips),
        *_labels(front, rows, x, y),
        height=300,
        says=f"kIOPS against {_title(choice)}: {text or 'no candidate meets the goal'}.",
    )


def _title(choice: Choice) -> str:
    what = choice.goal.objective.minimize
    return {"price": f"price, {choice.goal.currency}", "power": "power, W"}.get(what, what)


def _axis(rows: list[dict[str, Any]], what: str) -> alt.Axis:
    """Whole numbers of drives; else a few ticks, so that none collide."""
    values = sorted({float(r["cost"]) for r in rows})
    if what == "drives" and len(values) <= MOST_TICKS:
        return alt.Axis(values=values, format="d")
    return alt.Axis(tickCount=6, format=",~r")


def _front(met: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Candidates that no other one beats: cheaper and with more throughput."""
    out: list[dict[str, Any]] = []
    for row in sorted(met, key=lambda r: (r["cost"], -r["kiops"])):
        if not out or row["kiops"] > out[-1]["kiops"]:
            out.append(row)
    return out


def _goal(choice: Choice, y: alt.Y) -> list[alt.Chart]:
    asked = choice.goal.constraints.iops
    if asked is None:
        return []
    at = alt.Chart(inline([{"kiops": rounded(asked / 1e3)}]))
    rule = at.mark_rule(strokeDash=[7, 4], strokeWidth=1.5, color=palette.ACCENT).encode(y)
    text = at.mark_text(align="left", dx=4, dy=-7, fontSize=11, color=palette.ACCENT)
    return [rule, text.encode(y, x=alt.value(0), text=alt.value("goal"))]


def _labels(
    front: list[dict[str, Any]], rows: list[dict[str, Any]], x: alt.X, y: alt.Y
) -> list[alt.Chart]:
    """Names beside the points of the line, towards the middle of the chart; the winner in bold."""
    middle = (min(r["cost"] for r in rows) + max(r["cost"] for r in rows)) / 2
    layers = []
    for row in front:
        left = row["cost"] <= middle
        text = alt.Chart(inline([row])).mark_text(
            align="left" if left else "right", dx=9 if left else -9, dy=12 if left else -10,
            fontSize=11, fontWeight="bold" if row["state"] == STATES["chosen"] else "normal",
        )  # fmt: skip
        layers.append(text.encode(x, y, alt.Text("label:N")))
    return layers
