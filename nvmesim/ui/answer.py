"""A result as the part of the page that follows the controls."""

from __future__ import annotations

from nvmesim.predict.result import Result
from nvmesim.show import page as html
from nvmesim.show import report
from nvmesim.show import words as summary
from nvmesim.show.page import escaped


def figures(result: Result, *, stage: str) -> str:
    """Return number, interval, reason, and whether the goal is met: what follows a slider.

    *stage* says how much is simulated so far.
    """
    return (
        f'<div class="fast"><p class="soft stage">{escaped(stage)}</p>'
        f"{report.live(result)['figures']}{_goal(result)}</div>"
    )


def answer(result: Result, *, stage: str) -> str:
    """Return the figures, and warnings, reliefs, latency against load, the server's picture."""
    parts = report.live(result)
    sections = [
        parts["warnings"],
        _section("What would relieve it", parts["reliefs"]),
        _section("Latency", _charts(result)),
        _section("The server under this load", parts["server"]),
        _folded(f"{summary.plural(len(result.assumptions), 'assumption')}", parts["assumed"]),
    ]
    return f'{figures(result, stage=stage)}<div class="slow">{"".join(sections)}</div>'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{body}</section>" if body else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escaped(title)}</summary>{body}</details>" if body else ""


def _goal(result: Result) -> str:
    """Return whether p99 is within the goal that the load states (slo), and how surely."""
    groups = () if result.resolved is None else result.resolved.workload
    limit = next((g.slo_ps for g in groups if g.slo_ps is not None), None)
    p99 = summary.latency_at(result.total.latency, "p99")
    if limit is None or p99 is None:
        return ""
    goal = limit / 1e12
    low, high = result.total.latency.intervals.get("p99", (p99, p99))
    met, sure = p99 <= goal, high <= goal or low > goal
    sign = "✓" if met else "✗"
    us = summary.microseconds
    text = (
        f"Goal {'met' if met else 'missed'}: p99 {us(p99)} µs is {_off(p99, goal)} of {us(goal)} µs"
    )
    if not sure:
        text += f"; not for sure, its 95 % interval is {us(low)} to {us(high)} µs"
    css = "unsure" if not sure else "met" if met else "missed"
    return f'<p class="goal {css}"><b aria-hidden="true">{sign}</b> {escaped(text)}</p>'


def _off(value: float, goal: float) -> str:
    """How far a latency is from its goal.

    >>> _off(0.5e-3, 1e-3), _off(4.9e-3, 1e-3)
    ('50 % below the goal', '4.9 times the goal')
    """
    ratio = value / goal
    if ratio >= 2:
        return f"{ratio:.2g} times the goal"
    return f"{100 * abs(ratio - 1):.0f} % {'above' if ratio > 1 else 'below'} the goal"


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
    return html.figures(charts)
