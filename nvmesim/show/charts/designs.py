"""Charts of designs: the largest load of each, what to buy, several side by side, CPUs (Altair)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import altair as alt

from nvmesim.predict.result import Result
from nvmesim.show import palette, words
from nvmesim.show.charts import base as c
from nvmesim.show.charts.base import Drawing, Rows, rounded
from nvmesim.show.charts.sweep import beside
from nvmesim.study.best import STATES, Best
from nvmesim.study.choose import Choice
from nvmesim.study.size import Sizing

STATE_LOOKS: Final = {"healthy": ("#0072b2", "circle"), "degraded": ("#e69f00", "square"),
                      "rebuilding": ("#882255", "triangle-up")}  # fmt: skip


def best_charts(found: Best) -> dict[str, Drawing]:
    """Title -> chart: the answers, and the loads that were tried."""
    shown = [s for s in STATES if s in found.states]
    colours, shapes = zip(*(STATE_LOOKS[s] for s in shown), strict=True)
    look = c.series("state", shown, colours=colours, shapes=shapes, shown=True)
    return {
        "Most IOPS within the goal": _most(found, look.colour),
        "p99 against throughput, with the goal": _tried(found, look.colour, look.shape),
    }


def _most(found: Best, colour: alt.Color) -> Drawing:
    """A bar for every design and state that has an answer."""
    rows: Rows = [
        {"design": d.name, "state": s.state,
         **{k: rounded(v / 1e3) for k, v in s.result.total.iops.to_json().items()}}
        for d in found.designs for s in d.states if s.result is not None
    ]  # fmt: skip
    if not rows:
        return c.nothing("no load meets the goal")
    up = c.y("design", names=[d.name for d in found.designs])
    offset = alt.YOffset("state:N", sort=list(STATES))
    top = _top(rows)
    cut = [row | {"high": min(row["high"], top)} for row in rows]
    across = c.x("value", "kIOPS", domain=(0, 1.05 * top))
    shown = c.tips("design", "state", f"value: kIOPS: {c.NUMBER}", f"low: 95 % from: {c.NUMBER}",
                   f"high: to: {c.NUMBER}")  # fmt: skip
    says = "; ".join(f"{r['design']} {r['state']}: {r['value']:,.4g} kIOPS" for r in rows)
    return c.layered(
        c.mark("bar", rows, across, up, offset, colour, tips=shown),
        c.mark("rule", cut, alt.X("low:Q"), alt.X2("high:Q"), up, offset, strokeWidth=1.5,
               color=palette.MUTED),
        *([] if found.goal.iops is None else c.level(across, found.goal.iops / 1e3)),
        height=30 + 22 * len(found.states) * len({r["design"] for r in rows}),
        says=f"Most IOPS within the goal: {says}.",
    )  # fmt: skip


def _top(rows: Rows) -> float:
    """Where intervals are cut that would make the bars invisible."""
    return min(max(float(r["high"]) for r in rows), 2.5 * max(float(r["value"]) for r in rows))


def _tried(found: Best, colour: alt.Color, shape: alt.Shape) -> Drawing:
    """p99 against IOPS of all loads that were tried, and the goal's line."""
    rows: Rows = [
        {"kiops": rounded(t.iops / 1e3), "us": rounded(t.p99_s * 1e6), "state": s.state,
         "series": f"{d.name} {s.state}", "load": t.applied.words(), "design": d.name,
         "run": "long" if t.decides else "short"}
        for d in found.designs for s in d.states for t in s.trials if t.p99_s
    ]  # fmt: skip
    if not rows:
        return c.nothing("no load was tried that has a p99")
    limit = found.goal.p99
    goal = [] if limit is None else [limit * 1e6]
    up = c.y("us", "p99, µs", log=[*(float(r["us"]) for r in rows), *goal])
    across = c.x("kiops", "kIOPS", zero=False, ticks=6)
    size = alt.Size("run:N", legend=None,
                    scale=alt.Scale(domain=["short", "long"], range=[30, 150]))  # fmt: skip
    shown = c.tips("design", "state", "load", f"kiops: kIOPS: {c.NUMBER}",
                   f"us: p99, µs: {c.NUMBER}")  # fmt: skip
    above = sum(float(r["us"]) > end for r in rows for end in goal)
    return c.layered(
        c.mark("line", rows, across, up, colour, alt.Detail("series:N"), alt.Order("us:Q"),
               strokeWidth=1, opacity=0.6),
        c.mark("point", rows, across, up, colour, shape, size, filled=True, opacity=1, tips=shown),
        *(c.level(up, goal[0]) if goal else []),
        height=280, says=f"p99 against kIOPS of {len(rows)} loads, {above} of them above the goal.",
    )  # fmt: skip


CHOICE_STATES: Final = {
    "chosen": "chosen", "runner-up": "meets the goal", "rejected": "rejected"
}  # fmt: skip
MOST_TICKS: Final = 14


def choice_chart(choice: Choice) -> Drawing:
    """Throughput against the objective of all candidates that were simulated."""
    what = choice.goal.objective.minimize
    title = {"price": f"price, {choice.goal.currency}", "power": "power, W"}.get(what, what)
    rows: Rows = [
        {"name": c.name, "state": CHOICE_STATES[c.state], "cost": rounded(c.cost(what)),
         "kiops": rounded(c.row["iops"] / 1e3), "why": c.reason, "strong": c.state == "chosen",
         "label": f"chosen: {c.name}" if c.state == "chosen" else c.name}
        for c in choice.candidates
        if c.state in CHOICE_STATES and c.row.get("iops") and c.cost(what) < float("inf")
    ]  # fmt: skip
    if not rows:
        return c.nothing("no candidate was simulated")
    front: Rows = []  # candidates that no other one beats: cheaper and with more throughput
    for row in sorted(rows, key=lambda r: (r["cost"], -r["kiops"])):
        is_better = not front or row["kiops"] > front[-1]["kiops"]
        if is_better and row["state"] != CHOICE_STATES["rejected"]:
            front.append(row)
    values = sorted({float(r["cost"]) for r in rows})
    counts = what == "drives" and len(values) <= MOST_TICKS
    across = c.x("cost", title, zero=False, padding=24, ticks=values if counts else 6)
    up = c.y("kiops", "kIOPS")
    look = c.series("state", list(CHOICE_STATES.values()), shapes=("diamond", "circle", "cross"),
                    colours=(palette.WRITE, palette.READ, palette.MUTED), shown=True)  # fmt: skip
    shown = c.tips("name: candidate", "state", f"cost: {title}: ,.6~g", f"kiops: kIOPS: {c.NUMBER}",
                   "why: why not")  # fmt: skip
    asked = choice.goal.constraints.iops
    text = "; ".join(f"{r['label']} {r['kiops']:,.4g} kIOPS for {r['cost']:,.6g}" for r in front)
    return c.layered(
        *([] if asked is None else c.level(up, asked / 1e3, "goal")),
        c.mark("line", front, across, up, interpolate="step-after", color=palette.READ,
               strokeDash=[4, 3]),
        c.mark("point", rows, across, up, look.colour, look.shape, filled=True, size=75, opacity=1,
               tips=shown),
        *beside(front, rows, across, up),
        height=300, says=f"kIOPS against {title}: {text or 'no candidate meets the goal'}.",
    )  # fmt: skip


def side_by_side(results: Mapping[str, Result]) -> dict[str, Drawing]:
    """Title -> chart, of results by name; p99 only where each has one."""
    iops: Rows = [
        {"design": name, **{k: v / 1e3 for k, v in r.total.iops.to_json().items()}}
        for name, r in results.items()
    ]
    tails: Rows = []
    for name, r in results.items():
        p99 = r.total.latency.percentiles[99.0]
        if p99 is not None:
            low, high = r.total.latency.intervals.get("p99", (p99, p99))
            tails.append({"design": name, "value": p99 * 1e6, "low": low * 1e6, "high": high * 1e6})
    found = {"Throughput": _bars(iops, "kIOPS", palette.READ)}
    if len(tails) == len(iops):
        found["p99 latency"] = _bars(tails, "p99, µs", palette.WRITE)
    return found


def _bars(found: Rows, title: str, colour: str) -> Drawing:
    """A bar for each design; thin: its 95 % interval, its text beyond all of them."""
    top = _top(found)
    beyond = {r["design"]: f" (to {rounded(r['high']):,.6g})" for r in found if r["high"] > top}
    rows: Rows = [
        {"design": words.one_line(r["design"]), "value": rounded(r["value"]), "end": 1.03 * top,
         "low": rounded(r["low"]), "high": rounded(min(r["high"], top)),
         "text": f"{r['value']:,.4g}{beyond.get(r['design'], '')}",
         "within": f"{r['low']:,.4g} to {r['high']:,.4g}"}
        for r in found
    ]  # fmt: skip
    up = c.y("design", names=[r["design"] for r in rows])
    across = c.x("value", title, domain=(0, top * (1.5 if beyond else 1.22) or 1), ticks=6)
    text = ", ".join(f"{r['design']} {r['text']}" for r in rows)
    return c.layered(
        c.mark("bar", rows, across, up, height={"band": 0.6}, color=colour,
               tips=c.tips("design", f"value: {title}: {c.NUMBER}", "within: 95 %")),
        c.mark("rule", rows, alt.X("low:Q"), alt.X2("high:Q"), up, strokeWidth=1.5),
        c.mark("text", rows, alt.X("end:Q"), up, alt.Text("text:N"), align="left"),
        height=34 * len(rows), says=f"{title}: {text}.",
    )  # fmt: skip


MOST_CPUS: Final = 5
FULL: Final = 99.9
"""Percent: beyond it a CPU cannot carry more, and no line goes on."""
LETTER: Final = 0.021
"""Width of a letter of a name, as a share of the lines', where two charts stand side by side."""
APART: Final = 0.06
"""Between two names, as a share of the axis, so that they do not touch."""
_CROSS: Final[dict[str, Any]] = {
    "shape": "cross", "size": 160, "filled": True, "opacity": 1, "color": palette.ACCENT,
}  # fmt: skip


def sizing_charts(sizing: Sizing) -> dict[str, Drawing]:
    """GHz needed against MIOPS, and utilization against MIOPS of the nearest CPUs."""
    title = f"GHz needed against MIOPS, {sizing.load.stack.name}"
    return {title: cpu_ghz(sizing), "Utilization against MIOPS": cpu_load(sizing)}


def cpu_ghz(sizing: Sizing) -> Drawing:
    """GHz in all that are needed against MIOPS, by the published rule and with SMT counted."""
    names = {"ghz": "published rule", "smt_ghz": "hyper-threads counted"}
    rows: Rows = [
        {"miops": rounded(point["miops"]), "ghz": rounded(point[key]), "by": text}
        for point in sizing.curve()
        for key, text in names.items()
    ]
    look = c.series("by", list(names.values()), colours=[palette.READ, palette.WRITE], lines=True)
    across = _miops(rows, names.values())
    up = c.y("ghz", f"GHz in all at {sizing.load.utilization * 100:.0f} % CPU")
    asked = {"miops": sizing.load.iops / 1e6, "ghz": rounded(sizing.ghz)}
    most = max((float(r["ghz"]) for r in rows), default=1.0)
    shown = c.tips("by", f"miops: MIOPS: {c.NUMBER}", f"ghz: GHz: {c.NUMBER}")
    return c.layered(
        c.mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2, tips=shown),
        c.mark("point", [asked], across, up, **_CROSS,
               tips=c.tips(f"ghz: asked for, GHz: {c.NUMBER}")),
        *_at_ends(rows, "by", across, up, "ghz", APART * most),
        height=240,
        says=f"GHz needed by the rule: {asked['ghz']:.4g} for {asked['miops']:.3g} MIOPS.",
    )  # fmt: skip


def cpu_load(sizing: Sizing, *, cpus: Sequence[str] | None = None) -> Drawing:
    """Utilization against MIOPS of *cpus*, or of those nearest to what was asked for."""
    asked = {"miops": sizing.load.iops / 1e6, "utilization": 100 * sizing.load.utilization}
    curves: dict[str, Rows] = {}
    for r in sizing.utilization_curves():
        curves.setdefault(str(r["cpu"]), []).append(r)
    # Percent busy at the load asked for.
    busy = {name: float(min(own, key=lambda r: abs(r["miops"] - asked["miops"]))["utilization"])
            for name, own in curves.items()}  # fmt: skip
    if cpus is not None:
        names = [n for n in curves if any(c in n for c in cpus)][: c.MOST_SERIES]
    else:
        near = sorted(curves, key=lambda n: abs(busy[n] - asked["utilization"]))[:MOST_CPUS]
        names = sorted(near, key=lambda n: -busy[n])
    rows: Rows = [
        {"cpu": name, "miops": rounded(r["miops"]), "utilization": rounded(r["utilization"])}
        for name, own in curves.items() if name in names
        for r in own if r["utilization"] < FULL
    ]  # fmt: skip
    domain = [n for n in names if any(r["cpu"] == n for r in rows)]
    look = c.series("cpu", domain, dashes=c.DASHES, columns=3, shown=True)
    across = _miops(rows, domain)
    up = c.y("utilization", "CPU busy, as the operating system shows it, %", domain=(0, 100))
    shown = c.tips("cpu: CPU", f"miops: MIOPS: {c.NUMBER}", "utilization: busy, %: .0f")
    text = ", ".join(f"{name} {busy[name]:.0f}" for name in domain)
    return c.layered(
        c.mark("line", rows, across, up, look.colour, look.dash, strokeWidth=2),
        c.mark("point", rows, across, up, look.colour, look.shape, filled=True, size=45, opacity=1,
               tips=shown),
        c.mark("point", [asked], across, up, **_CROSS),
        *_at_ends(rows, "cpu", across, up, "utilization", APART * 100),
        height=290, says=f"CPU busy in percent at {asked['miops']:.3g} MIOPS: {text}.",
    )  # fmt: skip


def _miops(rows: Rows, names: Iterable[str]) -> alt.X:
    """The axis of load, with room for *names* right of the lines' ends."""
    most = max((float(r["miops"]) for r in rows), default=1.0)
    room = LETTER * max(map(len, names), default=0)
    return c.x("miops", "MIOPS", domain=(0, (1.05 + room) * most), ticks=8)


def _at_ends(
    rows: Rows, name: str, across: alt.X, up: alt.Y, value: str, gap: float
) -> list[alt.Chart]:
    """Names right of all lines, each led to from its line's end; *gap* keeps them apart."""
    ends = [max((r for r in rows if r[name] == n), key=lambda r: float(r["miops"]))
            for n in dict.fromkeys(r[name] for r in rows)]  # fmt: skip
    last = max((float(e["miops"]) for e in ends), default=0.0)
    placed: list[dict[str, Any]] = []
    for end in sorted(ends, key=lambda e: (round(float(e["miops"]), 2), -float(e[value]))):
        at = min([float(end[value]), *(float(p[value]) - gap for p in placed)])
        placed.append({name: end[name], "miops": rounded(1.03 * last), value: rounded(at),
                       "end_x": end["miops"], "end_y": end[value]})  # fmt: skip
    return [
        c.mark("rule", placed, across, up, alt.X2("end_x"), alt.Y2("end_y"), strokeWidth=0.7,
               color=palette.MUTED),
        c.mark("text", placed, across, up, alt.Text(f"{name}:N"), align="left", dx=3, fontSize=10),
    ]  # fmt: skip
