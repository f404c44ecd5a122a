"""Two measured runs, and how sure their difference is."""

from __future__ import annotations

from dataclasses import replace

from nvmesim.measure import paired
from nvmesim.measure.control import Progress
from nvmesim.measure.figures import Interval
from nvmesim.measure.paired import Comparison
from nvmesim.predict.answer import RunAnswer
from nvmesim.predict.prepare import Prepared
from nvmesim.predict.uncertainty.design import difference_of_numbers
from nvmesim.predict.uncertainty.difference import gain_of
from nvmesim.predict.uncertainty.parts import NONE, Span
from nvmesim.predict.what_ifs import WhatIfs


def difference(
    a: RunAnswer, b: RunAnswer, *, certainty: bool = True, progress: Progress | None = None
) -> Comparison:
    """Return what changes from *a* to *b*; with *certainty*, what they do not share counts."""
    warnings = tuple(dict.fromkeys([*a.warnings_of_run(), *b.warnings_of_run()]))
    plain = paired.compared(names(a.ready, b.ready), a.measured, b.measured, warnings)
    if not certainty or plain.iops_a.value <= 0 or plain.iops_b.value <= 0:
        return plain
    own = _numbers(a, b, progress)
    for answer in (a, b):
        answer.judge()
    return _sure(plain, a, b, own)


def names(a: Prepared, b: Prepared) -> tuple[str, str]:
    """Return what to call the two."""
    same = a.name == b.name
    return (f"{a.name} (a)", f"{b.name} (b)") if same else (a.name, b.name)


def _numbers(a: RunAnswer, b: RunAnswer, progress: Progress | None) -> Span:
    """Effect of uncertain numbers on the difference: both move together."""
    first, second = (
        WhatIfs(answer.ready, answer.measured, answer.totals, answer.warnings) for answer in (a, b)
    )
    for answer, what_ifs in ((a, first), (b, second)):
        if answer.measured.backlog_per_s is not None or what_ifs.ready.load.replayed:
            return NONE
    return difference_of_numbers(
        (a.ready.scenario, first.again), (b.ready.scenario, second.again), progress
    )


def _sure(plain: Comparison, a: RunAnswer, b: RunAnswer, own: Span) -> Comparison:
    known = [answer.known for answer in (a, b) if answer.known is not None]
    rest = [replace(k, numbers=None).parts("iops").total for k in known]
    alike = len({k.known.model_class for k in known}) == 1
    gain = gain_of(plain.gain, (rest[0], rest[1]), same_class=alike, own=own)
    iops_a, iops_b = (answer.whole(None) for answer in (a, b))
    value = iops_a.value
    low, high = gain.interval.low, gain.interval.high
    return replace(
        plain,
        iops_a=iops_a, iops_b=iops_b,
        iops=Interval(value * gain.interval.value, value * low, value * high),
        gain=gain.interval, p_better=gain.p_better,
    )  # fmt: skip
