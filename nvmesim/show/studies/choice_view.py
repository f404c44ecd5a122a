"""The answer of `nvmesim choose`: the winner, those that come next, and why others do not."""

from __future__ import annotations

from nvmesim.show import words
from nvmesim.show.blocks import Block, Bullets, Charts, Line, Look, Table, Warnings, table
from nvmesim.show.charts.designs import CHOICE_CAPTION, CHOICE_STATES, choice_chart
from nvmesim.show.page import document, html
from nvmesim.study.choose import Candidate, Choice

MOST_ROWS = 60
"""Candidates in the table; the chart has all."""
REASONS = 12
"""Rejected candidates whose reasons a terminal shows."""


def choice_page(choice: Choice, title: str) -> str:
    """Return one HTML page that loads nothing."""
    return document(f"{title} · nvmesim choose", [Line(title, "title"), *_page(choice)])


def fragment(choice: Choice) -> str:
    """Return the answer, the chart, and a row for every candidate that was looked at."""
    return html(_page(choice))


def _page(choice: Choice) -> list[Block]:
    title = f"Throughput against {choice.goal.objective.minimize}"
    drawn = Charts({title: (choice_chart(choice), CHOICE_CAPTION)})
    return [Line(str(choice), "head"), drawn, _candidates(choice)]


def _candidates(choice: Choice) -> Table:
    what = choice.goal.objective.minimize
    looked = [c for c in choice.candidates if c.state != "not simulated"]
    shown = looked[:MOST_ROWS]
    looks: list[Look] = [
        "strong" if c.state == "chosen" else "faint" if c.state == "rejected" else "" for c in shown
    ]
    rows = [
        [choice.named(c), CHOICE_STATES.get(c.state, c.state), *_figures(c, what), c.reason]
        for c in shown
    ]
    notes = []
    if len(looked) > len(shown):
        notes.append(f"{len(looked) - len(shown)} more were rejected.")
    if idle := len(choice.candidates) - len(looked):
        notes.append(f"{idle} were not simulated: they cost no less than those that were.")
    cost = f"{what} [{choice.unit}]" if choice.unit else what
    heads = ("candidate", "<state", cost, "IOPS", "p99 [us]", "<why not")
    return table("Candidates", heads, rows, looks=looks, notes=notes)


def _figures(c: Candidate, what: str) -> list[str]:
    iops, p99, cost = c.row.get("iops"), c.row.get("lat_p99_us"), c.cost(what)
    return [
        f"{cost:,.6g}" if cost < float("inf") else "-", words.kiops(iops) if iops else "-",
        f"{p99:,.0f}" if p99 else "-",
    ]  # fmt: skip


def blocks_of(choice: Choice) -> list[Block]:
    """What the terminal shows: the answer, those that meet the goal, why others do not."""
    met = [c for c in (choice.chosen, *choice.runner_ups) if c is not None]
    parts: list[Block] = [Line(choice.goal.name or "goal", "title"), Line(str(choice), "head")]
    if met:
        warnings = str(met[0].row.get("warnings") or "").split("; ")
        parts += [_met(choice, met), Warnings(tuple(text for text in warnings if text))]
    rejected = [c for c in choice.candidates if c.state == "rejected"]
    if rejected:
        lines = [f"{choice.named(c)}: {c.reason}" for c in rejected[:REASONS]]
        parts.append(Bullets(tuple(lines), f"{len(rejected)} rejected"))
    if len(rejected) > REASONS:
        more = len(rejected) - REASONS
        parts.append(Line(f"{more} more (-o writes all, with the reason of each)", "soft"))
    if idle := sum(c.state == "not simulated" for c in choice.candidates):
        parts.append(Line(f"{idle} not simulated: no better than those above (--all)", "soft"))
    return parts


def _met(choice: Choice, met: list[Candidate]) -> Table:
    what = choice.goal.objective.minimize
    cost = f"{what} [{choice.unit}]" if choice.unit else what
    heads = ["candidate", cost, "drives", "power [W]", "IOPS", "p99 [us]", "CPU", "meets the goal",
             "<stopped by"]  # fmt: skip
    rows = []
    for c in met:
        watts, n = (c.fixed.power, str(c.fixed.drives)) if c.fixed else (None, "")
        figures = _figures(c, what)
        rows.append([
            choice.named(c), figures[0], n, "-" if watts is None else f"{watts:,.0f}", *figures[1:],
            words.percent(c.row["cpu_logical"]), words.chance(c.p_meets), str(c.row["station"]),
        ])  # fmt: skip
    return table("Candidates that meet the goal", heads, rows)
