"""The answer of `nvmesim diagnose` as lines of text, the same on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator

from nvmesim.measure.figures import Interval
from nvmesim.study.diagnosis.diagnose import ComparedRow, Diagnosis, Explanation
from nvmesim.units import format_iops


def diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    """Yield the answer: rows beside their predictions, explanations, what to measure next."""
    yield headline(found)
    yield ""
    widest = max(len(row.label) for row in found.rows)
    for row in found.rows:
        yield _row(row, widest)
    if not found.is_healthy:
        yield ""
        for one in [e for e in found.explanations if e.probability >= 0.01]:
            yield from _explanation(one)
        yield f"{found.healthy:4.0%}  nothing is wrong"
    if not found.is_healthy:
        yield ""
        yield _next(found)
    for reason in found.left_out:
        yield f"left out: {reason}"


def headline(found: Diagnosis) -> str:
    """Return the answer in one sentence."""
    if found.is_healthy:
        inside = sum(row.is_inside for row in found.rows)
        return (
            f"Nothing is wrong, as far as {len(found.rows)} rows tell ({found.healthy:.0%}); "
            f"{inside} of them lie inside their intervals."
        )
    worst = max(found.rows, key=lambda row: abs(row.measured / row.predicted.value - 1))
    return (
        f"Measured {format_iops(worst.measured)}, predicted {format_iops(worst.predicted.value)} "
        f"({_around(worst.predicted)}): something is different on this server."
    )


def _around(interval: Interval) -> str:
    down, up = (100 * (end / interval.value - 1) for end in (interval.low, interval.high))
    return f"{down:+.0f}/{up:+.0f} %"


def _row(row: ComparedRow, widest: int) -> str:
    change = 100 * (row.measured / row.predicted.value - 1)
    inside = "" if row.is_inside else "   outside"
    measured, predicted = format_iops(row.measured), format_iops(row.predicted.value)
    return (
        f"{row.label:{widest}}   measured {measured:>10}   predicted {predicted:>10} "
        f"({_around(row.predicted)})   {change:+.0f} %{inside}"
    )


def _explanation(one: Explanation) -> Iterator[str]:
    rate = "" if one.iops is None else f"   would do {format_iops(one.iops.value)}"
    yield f"{one.probability:4.0%}  {one.name}{rate}"
    if one.check:
        yield f"      check: {one.check}"
        yield f"      mend:  {one.mend}"


def _next(found: Diagnosis) -> str:
    if found.next is None:
        return "No quick measurement tells the likeliest apart: look where the lines above say."
    told = found.next.to_json()
    where = "one drive alone" if found.next.drives else "the whole"
    first, second = found.next.tells
    rates = [format_iops(rate) for rate in found.next.iops]
    return (
        f"Measure next: {where} with {told['op']} of {told['block_size']}, {told['jobs']} x "
        f"{told['iodepth']}. {rates[0]} if {first}; {rates[1]} if {second}."
    )
