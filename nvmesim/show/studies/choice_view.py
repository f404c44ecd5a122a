"""The answer of `nvmesim choose` as HTML: the winner, all that was looked at, and the chart."""

from __future__ import annotations

from nvmesim.show import page as html
from nvmesim.show import words as summary
from nvmesim.show.charts.choice import CAPTION, STATES, chart
from nvmesim.show.page import escaped
from nvmesim.study.choose.search import Choice

MOST_ROWS = 60
"""Candidates in the table; the chart has all."""


def fragment(choice: Choice) -> str:
    """Return the answer, the chart, and a row for every candidate that was looked at."""
    what = choice.goal.objective.minimize
    rows = []
    looked = [c for c in choice.candidates if c.state != "not simulated"]
    for c in looked[:MOST_ROWS]:
        iops, p99, cost = c.row.get("iops"), c.row.get("lat_p99_us"), c.cost(what)
        rows.append([escaped(text) for text in (
            choice.named(c), STATES.get(c.state, c.state),
            f"{cost:,.6g}" if cost < float("inf") else "-",
            summary.kiops(iops) if iops else "-", f"{p99:,.0f}" if p99 else "-", c.reason,
        )])  # fmt: skip
    headings = ("candidate", "state", f"{what}, {choice.unit}".rstrip(", "), "IOPS", "p99, µs",
                "why not")  # fmt: skip
    faint = ["first" if c.state == "chosen" else "faint" if c.state == "rejected" else ""
             for c in looked[:MOST_ROWS]]  # fmt: skip
    table = html.table(headings, rows, left=(1, 5), classes=faint, name="Candidates")
    drawn = html.figures({f"Throughput against {what}": (chart(choice), CAPTION)})
    idle = len(choice.candidates) - len(looked)
    more = len(looked) - len(rows)
    notes = []
    if more > 0:
        notes.append(f"{more} more were rejected.")
    if idle:
        notes.append(f"{idle} were not simulated: they cost no less than those that were.")
    message = "".join(f'<p class="soft">{escaped(n)}</p>' for n in notes)
    return f'<p class="why">{escaped(choice)}</p>{drawn}{table}{message}'


def choice_page(choice: Choice, title: str) -> str:
    """Return one HTML page that loads nothing."""
    return html.document(
        f"{title} · nvmesim choose", f"<h1>{escaped(title)}</h1>{fragment(choice)}"
    )
