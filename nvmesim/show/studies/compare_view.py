"""What `nvmesim compare` found: the difference of two designs, or the best of several."""

from __future__ import annotations

import math

from nvmesim.measure.figures import Interval
from nvmesim.measure.paired import Comparison
from nvmesim.show import words
from nvmesim.show.blocks import Block, Line, Range, Ranges, Warnings, table
from nvmesim.study.rank import Ranking


def blocks_of(found: Comparison) -> list[Block]:
    """Two bars, the probability that one beats the other, and the differences."""
    gain = found.gain
    rows = [
        ("IOPS", words.kiops(found.iops_a.value), words.kiops(found.iops_b.value),
         words.gain(gain.value), words.gain_span(gain.low, gain.high)),
        ("mean latency", "", "", *_us(found.mean_s)),
    ]  # fmt: skip
    if found.p99_s is not None:
        rows.append(("p99", "", "", *_us(found.p99_s)))
    times = "chance does the same to both" if math.isinf(found.saved) else (
        f"independent runs would need {found.saved:.2g} times the requests for this interval"
    )  # fmt: skip
    return [
        Line(f"{found.b} against {found.a}", "title"),
        Line(_answer(found), "head"),
        Ranges(tuple(_range(n, i) for n, i in ((found.a, found.iops_a), (found.b, found.iops_b))),
               shared=True),
        table("Differences", ("", "before", "after", "change", "95 % within"), rows,
              notes=[f"{found.requests:,} requests of each; {times}"]),
        Warnings(tuple(found.warnings)),
    ]  # fmt: skip


def _answer(found: Comparison) -> str:
    a, b = words.about(found.iops_a.value), words.about(found.iops_b.value)
    sure = ""
    if found.p_better is not None:
        sure = f"; {found.b} is faster with a probability of {words.chance(found.p_better)}"
    return f"{b} IOPS against {a}, {words.gain(found.gain.value)}{sure}."


def _range(name: str, interval: Interval) -> Range:
    return Range(name, interval, f"{words.kiops(interval.value)} ({words.span(interval)})")


def _us(interval: Interval) -> tuple[str, str]:
    middle, low, high = (1e6 * v for v in (interval.value, interval.low, interval.high))
    return f"{middle:+.4g} us", f"{low:+.4g} to {high:+.4g} us"


def ranking_blocks(ranking: Ranking) -> list[Block]:
    """The choice in a sentence, and a row for each design."""
    rows = ranking.table.to_dicts()
    cells = [
        (str(r["candidate"]), f"{r['mean']:,.6g}", f"{r['low']:,.6g} to {r['high']:,.6g}",
         str(r["rounds"]), f"{r['requests']:,}",
         "" if r["dropped_after"] is None else str(r["dropped_after"]))
        for r in rows
    ]  # fmt: skip
    heads = ("design", ranking.metric, "95 % within", "replications", "requests", "dropped after")
    bars: list[Block] = []
    if ranking.metric == "iops":
        bars.append(Ranges(tuple(
            _range(str(r["candidate"]), Interval(r["mean"], r["low"], r["high"])) for r in rows
        ), shared=True))  # fmt: skip
    return [Line(str(ranking), "head"), *bars, table("Designs", heads, cells)]
