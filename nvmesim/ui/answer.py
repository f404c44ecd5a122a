"""A result as the part of the page that follows the controls."""

from __future__ import annotations

import json
from typing import Final

from nvmesim.measure.figures import Relief
from nvmesim.predict.result import Result
from nvmesim.show import answer as shown
from nvmesim.show import words
from nvmesim.show.blocks import Cards
from nvmesim.show.page import escaped, figures, html
from nvmesim.show.report import live

SURE: Final = 0.9
"""Probability from which the page says that a goal is met, or missed below 1 minus it."""
WAIT: Final = '<span class="wait">…</span>'


def first(result: Result) -> str:
    """Return the figures of a first look: how sure they are is not known yet, and not shown."""
    total, p99 = result.total, words.latency_at(result.total.latency, "p99")
    goal = result.goal
    tail = "…" if p99 is None else f"{words.microseconds(p99)} µs"
    says = f"About {words.about(total.iops.value)} IOPS, how sure: {WAIT}"
    cards = Cards((
        (f"{words.kiops(total.iops.value)} IOPS", "probably …"),
        (f"{words.gigabytes(total.bytes_per_s.value)} GB/s", "moved, reads and writes"),
        (f"{words.microseconds(total.latency.mean)} µs", "mean latency"),
        (tail, "p99: 99 % of the requests are faster"),
        (words.percent(result.cpu.logical_utilization), "CPU as the system shows it"),
    ))  # fmt: skip
    verdict = ""
    if goal is not None:
        verdict = f'<p class="goal wait">Goal {words.time(goal.limit)}: …</p>'
    return f'<div class="fast"><div class="stick"><p class="why">{says}</p>{verdict}</div>' \
           f"{html([cards])}</div>"  # fmt: skip


def answer(result: Result) -> str:
    """Return the whole answer: headline and verdict, bars, figures, what would help, charts."""
    parts = live(result)
    fast = html([shown.ranges(result), shown.cards(result)])
    sections = [
        parts["warnings"],
        _section("What would help", parts["reliefs"] + _apply(result.bottleneck.reliefs)),
        _section("Latency", _charts(result)),
        _section("The server under this load", parts["server"]),
        _folded("How it is known", html([shown.facts(result), shown.known(result)])),
        _folded(words.plural(len(result.assumptions), "assumption"), parts["assumed"]),
    ]
    return (
        f'<div class="fast"><div class="stick"><p class="why">{escaped(shown.headline(result))}</p>'
        f'{_verdict(result)}</div>{fast}</div><div class="slow">{"".join(sections)}</div>'
    )


def goal_probability(result: Result) -> tuple[str, float, float] | None:
    """Return what the goal is about, its limit in s, and the probability to meet it."""
    goal = result.goal
    if goal is None or goal.probability is None:
        return None
    return goal.what, goal.limit, goal.probability


def _verdict(result: Result) -> str:
    """Say how likely the goal is met; green from `SURE` on."""
    found = goal_probability(result)
    if found is None:
        return ""
    what, limit, p = found
    css = "met" if p >= SURE else "missed" if p <= 1 - SURE else "unsure"
    sign = {"met": "✓", "missed": "✗", "unsure": "?"}[css]
    text = f"Meets {what} within {words.time(limit)} with a probability of {words.chance(p)}"
    return f'<p class="goal {css}"><b aria-hidden="true">{sign}</b> {escaped(text)}</p>'


def _apply(reliefs: tuple[Relief, ...]) -> str:
    """Return a button for each change that has its exact setting."""
    buttons = []
    for relief in reliefs:
        if relief.set:
            data = escaped(json.dumps(dict(relief.set), default=str))
            buttons.append(
                f'<button type="button" class="apply" data-set="{data}">Apply: '
                f"{escaped(relief.change)}</button>"
            )
    return f'<p class="tools">{"".join(buttons)}</p>' if buttons else ""


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{body}</section>" if body else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escaped(title)}</summary>{body}</details>" if body else ""


def _charts(result: Result) -> str:
    # Altair takes a second to import, and a first look needs none.
    from nvmesim.show.charts.result import latency_cdf, latency_curve, utilization

    charts = {}
    if len(result.curve) > 1:
        caption = "Each point has another number outstanding; dashed red: the goal."
        charts["Latency against load"] = (latency_curve(result), caption)
    if len(result.total.latency.bin_s):
        charts["Share of requests within a latency"] = (latency_cdf(result), "")
    charts["Busy, along the path"] = (utilization(result), "")
    return figures(charts)
