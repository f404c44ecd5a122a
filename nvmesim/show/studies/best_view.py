"""The answer of `nvmesim best` on the terminal, in a notebook and as a page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from nvmesim.show import page as html
from nvmesim.show import words as summary
from nvmesim.show.page import escaped
from nvmesim.show.terminal import bullets, plain, rows_view
from nvmesim.study.best import Best, LevelDesign, StateAnswer

HEADINGS = ("design", "state", "goal", "IOPS", "95 %", "p99 us", "CPU", "load", "rebuild h",
            "held back by")  # fmt: skip


def best_view(found: Best) -> RenderableType:
    """The answer in a sentence, a row for every design and state, and why the others fail."""
    parts: list[RenderableType] = [
        plain(found.scenario, "bold"),
        plain(f"largest load with {found.goal.words()}", "dim"),
        Text(),
        plain(str(found), "bold"),
        Text(),
        rows_view(HEADINGS, [row for d in found.designs for row in rows(d)], left=2),
    ]
    reasons = list(why_not(found))
    if reasons:
        parts += [Text(), *bullets(reasons)]
    parts += [Text(), *(plain(note, "dim") for note in found.notes)]
    return Group(*parts)


def rows(design: LevelDesign) -> list[tuple[str, ...]]:
    """Cells of `HEADINGS`; the design is named once."""
    if design.error:
        return [(design.name, "cannot be built", "no", *[""] * 7)]
    return [
        (design.name if number == 0 else "", *_row(answer))
        for number, answer in enumerate(design.states)
    ]


def _row(answer: StateAnswer) -> tuple[str, ...]:
    result = answer.result
    met = "met" if answer.met else ("data lost" if answer.lost else "not met")
    if result is None:
        load = "" if answer.applied is None else answer.applied.words()
        held = _limit(answer)
        return (answer.state, met, "-", "", "-", "-", load, "", held)
    hours = answer.rebuild_hours
    return (
        answer.state, met, summary.kiops(result.total.iops.value),
        summary.plus_minus(result.total.iops),
        summary.microseconds(result.total.latency.percentiles[99.0]),
        summary.percent(result.cpu.logical_utilization),
        answer.applied.words() if answer.applied else "",
        "" if hours is None else f"{hours:.2g}",
        answer.why if answer.met else _limit(answer),
    )  # fmt: skip


def _limit(answer: StateAnswer) -> str:
    """The limit that is missed, as a word."""
    if answer.missed is None:
        return ""
    return (
        answer.missed.what.upper() if answer.missed.what in ("iops", "cpu") else answer.missed.what
    )


def why_not(found: Best) -> Iterator[str]:
    """Yield why each design and state that does not meet the goal does not."""
    for design in found.designs:
        if design.error:
            yield f"{design.name}: {design.error}"
        for answer in design.states:
            if not answer.met:
                yield f"{design.name}, {answer.state}: {answer.why}"


def fragment(found: Best) -> str:
    """The answer and its table, as HTML."""
    body = [[escaped(c) for c in row] for d in found.designs for row in rows(d)]
    headings = [h.replace(" us", ", µs") for h in HEADINGS]
    table = html.table(headings, body, left=(1, 2, 7, 9), name="Largest loads")
    reasons = list(why_not(found))
    failed = f"<h3>Not met</h3>{html.listing(reasons)}" if reasons else ""
    return f'<p class="why">{escaped(found)}</p>{table}{failed}'


def best_page(found: Best) -> str:
    """Return one HTML page that loads nothing: answer, table, charts."""
    from nvmesim.show.charts.best import CAPTIONS, all_charts

    charts = {t: (c, CAPTIONS[t]) for t, c in all_charts(found).items()}
    notes = "".join(f'<p class="soft">{escaped(n)}.</p>' for n in found.notes)
    goal = escaped(f"The largest load with {found.goal.words()}")
    head = f'<h1>{escaped(found.scenario)}</h1><p class="soft">{goal}</p>'
    body = f"{head}{fragment(found)}{html.section('Charts', html.figures(charts))}{notes}"
    return html.document(f"{found.scenario} · nvmesim best", body)
