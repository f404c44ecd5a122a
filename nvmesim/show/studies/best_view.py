"""The answer of `nvmesim best`: the largest load of each design and state."""

from __future__ import annotations

from collections.abc import Iterator

from nvmesim.show import words
from nvmesim.show.blocks import Block, Bullets, Charts, Line, Section, Table, table
from nvmesim.show.page import document, html
from nvmesim.study.best import Best, LevelDesign, StateAnswer

HEADINGS = ("design", "<state", "<goal", "IOPS", "95 % within", "p99 [us]", "CPU", "<load",
            "rebuild [h]", "<held back by")  # fmt: skip


def best_page(found: Best) -> str:
    """Return one HTML page that loads nothing: answer, table, charts."""
    return document(f"{found.scenario} · nvmesim best", blocks_of(found))


def fragment(found: Best) -> str:
    """The answer and its table, as HTML."""
    return html([Line(str(found), "head"), designs(found), *_failed(found)])


def blocks_of(found: Best) -> list[Block]:
    """The answer in a sentence, a row for every design and state, and why the others fail."""
    from nvmesim.show.charts.designs import BEST_CAPTIONS, best_charts

    charts = {title: (drawn, BEST_CAPTIONS[title]) for title, drawn in best_charts(found).items()}
    return [
        Line(found.scenario, "title"),
        Line(f"largest load with {found.goal.words()}", "soft"),
        Line(str(found), "head"),
        designs(found),
        *_failed(found),
        Section("Charts", (Charts(charts),)),
        *(Line(note, "soft") for note in found.notes),
    ]


def designs(found: Best) -> Table:
    """A row for every design and state; the design is named once."""
    rows = [row for design in found.designs for row in _rows(design)]
    return table("Largest loads", HEADINGS, rows)


def _rows(design: LevelDesign) -> Iterator[list[str]]:
    if design.error:
        yield [design.name, "cannot be built", "no", *[""] * 7]
    for number, answer in enumerate(design.states):
        yield [design.name if number == 0 else "", *_row(answer)]


def _row(answer: StateAnswer) -> list[str]:
    result, hours = answer.result, answer.rebuild_hours
    met = "met" if answer.met else ("data lost" if answer.lost else "not met")
    if answer.met and answer.probability is not None:
        met = f"met, {answer.probability:.0%} sure"
    load = "" if answer.applied is None else answer.applied.words()
    if result is None:
        return [answer.state, met, "-", "", "-", "-", load, "", _limit(answer)]
    return [
        answer.state, met, words.kiops(result.total.iops.value), words.span(result.total.iops),
        words.microseconds(result.total.latency.percentiles[99.0]),
        words.percent(result.cpu.logical_utilization), load,
        "" if hours is None else f"{hours:.2g}", answer.why if answer.met else _limit(answer),
    ]  # fmt: skip


def _limit(answer: StateAnswer) -> str:
    """The limit that is missed, as a word."""
    what = "" if answer.missed is None else answer.missed.what
    return what.upper() if what in ("iops", "cpu") else what


def _failed(found: Best) -> list[Block]:
    """Why each design and state that does not meet the goal does not."""
    lines = [f"{d.name}: {d.error}" for d in found.designs if d.error]
    lines += [f"{d.name}, {s.state}: {s.why}" for d in found.designs for s in d.states if not s.met]
    return [Bullets(tuple(lines), "Not met")] if lines else []
