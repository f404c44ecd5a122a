"""What predictions of held-out rows add up to, and what is learned from them.

`nvmesim validate --held-out` prints the table.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from held_cases import find_cases
from held_out import CaseAnswer, Prediction, held_out

from nvmesim.predict.uncertainty.model_error import (
    GROUPS,
    TABLES,
    Miss,
    model_error,
    table_of,
    write_learned,
)
from nvmesim.predict.uncertainty.parts import Parts
from nvmesim.show.blocks import Block, table
from nvmesim.study.validate.coverage import Coverage, CoveredRow, coverage
from nvmesim.study.validate.score import known_of

DISK: Final = "hdd-7200"
"""What stands for a hard disk in the catalog, as `catalog` or `like` of a case."""
MOST_NAMED: Final = 12
"""Cases whose sources are listed one by one."""
HEADINGS: Final = (
    "", "rows", "from", "error, p90", "naive, p90", "closer", "worst", "inside", "half", "score",
    "CRPS",
)  # fmt: skip
"""Sources that the rows are from; share that is closer than the naive rule or equal; the source
that is worst beside it; share inside the 95 % interval; that interval's half-width."""


@dataclass(frozen=True)
class Group:
    """One line of the table."""

    name: str
    found: Coverage

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the line, as `HEADINGS`."""
        f = self.found
        return (
            self.name, str(f.rows), str(f.sources), f"{_percent(f.error)}, {_percent(f.error_p90)}",
            _percent(f.naive_error) and f"{_percent(f.naive_error)}, {_percent(f.naive_p90)}",
            _percent(f.closer), "" if f.worst != f.worst else f"{f.worst:.2f} x",
            _percent(f.covered), _percent(f.half_width), f"{f.score:.2f}", f"{f.crps:.3f}",
        )  # fmt: skip


@dataclass(frozen=True)
class Failed:
    """Rows and fits of which nothing was said, by reason."""

    what: str
    why: str
    rows: int


def groups(answers: Sequence[CaseAnswer]) -> list[Group]:
    """Return the lines of the table: all, by kind, by class and by information."""
    rows = [p for answer in answers for p in answer.predictions if not p.is_restated]
    rates = [p for p in rows if p.metric == "iops"]
    servers = {p.source for p in rates if p.split == "small rows"}
    found = [
        _group("throughputs", rates),
        _group("  servers", [p for p in rates if p.source in servers]),
        _group("  single drives", [p for p in rates if p.source not in servers]),
        *_by(rates, lambda p: p.split), *_by(rates, lambda p: p.standing.model_class),
        *_by(rates, lambda p: f"at: {p.limit}"),
        *(_group(f"latency, {metric}", [p for p in rows if p.metric == metric])
          for metric in ("mean", "p99", "p99.9")),
    ]  # fmt: skip
    return [group for group in found if group.found.rows]


def by_source(answers: Sequence[CaseAnswer]) -> list[Group]:
    """Return a line for each source's throughputs."""
    rows = [p for a in answers for p in a.predictions if not p.is_restated and p.metric == "iops"]
    return _by(rows, lambda p: p.source)


def _by(rows: Sequence[Prediction], name: Callable[[Prediction], str]) -> list[Group]:
    names = sorted({name(p) for p in rows})
    return [_group(f"  {n}", [p for p in rows if name(p) == n]) for n in names]


def _group(name: str, rows: Sequence[Prediction]) -> Group:
    return Group(name, coverage(_covered(p) for p in rows))


def _covered(p: Prediction) -> CoveredRow:
    return CoveredRow(p.source, p.measured, p.predicted, p.low, p.high, p.naive)


def failures(answers: Sequence[CaseAnswer]) -> list[Failed]:
    """Return what could not be asked, fitted or predicted, the most frequent reason first."""
    count: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        for f in answer.failures:
            why = f"{f.case} {f.split}: {f.why}" if f.what != "row" or f.split else f.why
            count[f.what, why] += f.rows
    return [Failed(what, why, rows) for (what, why), rows in count.most_common()]


def json_rows(answers: Sequence[CaseAnswer]) -> Iterator[dict[str, Any]]:
    """Yield the objects of `validate --held-out --json`."""
    for answer in answers:
        for p in answer.predictions:
            yield {
                "set": p.case, "source": p.source, "information": p.split, "config": p.row,
                "metric": p.metric, "limit": p.limit, "model_class": p.standing.model_class,
                "measured": p.measured,
                "predicted": {"value": p.predicted, "low": p.low, "high": p.high},
                "error": p.predicted / p.measured - 1, "naive": p.naive,
                "inside_interval": p.low <= p.measured <= p.high, "crps": _covered(p).crps,
                "counted": not p.is_restated, "standing": vars(p.standing),
            }  # fmt: skip


def _percent(share: float) -> str:
    if share != share:
        return ""
    return f"{100 * share:.1f} %" if share < 0.095 else f"{100 * share:.0f} %"


def held_misses(answers: Sequence[CaseAnswer]) -> list[Miss]:
    """Return how far the model was off on each held-out row that tells about it.

    Hard disks, and rows of a controller's cache, are left out: the numbers are learned for flash.
    Mailed captures too: they tell whether intervals hold for hosts that are hardly described.
    So are fits that are refused: no prediction is made with them unless it is forced.
    """
    other = {
        c.name for c in find_cases()
        if c.facts.get("cached") or c.facts.get("mailed")
        or c.facts.get("catalog", c.facts.get("like")) == DISK
    }  # fmt: skip
    refused = {(f.case, f.split) for a in answers for f in a.failures if f.what == "refused"}
    return [
        Miss(p.source, p.case, f"{p.split}: {p.row}", p.metric, math.log(p.measured / p.predicted),
             known_of(Parts(**p.parts), 0.0), p.standing, Parts(**p.parts).room)
        for a in answers for p in a.predictions
        if p.case not in other and (p.case, p.split) not in refused
        and not p.is_restated and p.metric in GROUPS
        and p.measured > 0 and p.predicted > 0
    ]  # fmt: skip


def held_relearned(answers: Sequence[CaseAnswer]) -> list[CaseAnswer]:
    """Return *answers* with the model's part of every interval learned from the other sources."""
    table = (*table_of(TABLES[0]), *held_misses(answers))

    def learned(p: Prediction) -> Prediction:
        if p.metric not in GROUPS:
            return p
        error = model_error(p.standing, p.metric, without=p.source, table=table)
        low, high = replace(Parts(**p.parts), model=error.span).around(p.predicted)
        return replace(p, low=low, high=high)

    return [replace(a, predictions=tuple(map(learned, a.predictions))) for a in answers]


def answer(
    names: Sequence[str], progress: Callable[[str, float], None] | None, *, write: bool
) -> tuple[Callable[[], list[Block]], Callable[[], dict[str, Any]]]:
    """Predict the rows of the sources called *names*, or of all; return tables and JSON of them."""
    answers = held_out(names, progress)
    if write and not names:
        print(f"nvmesim: wrote {write_learned(TABLES[1], held_misses(answers))}", file=sys.stderr)
    answers = held_relearned(answers) if not names else answers
    failed = failures(answers)

    def blocks() -> list[Block]:
        lines = [*groups(answers), *([] if len(answers) > MOST_NAMED else by_source(answers))]
        return [
            table("Held-out rows", HEADINGS, [line.cells() for line in lines]),
            table("Not predicted", ("", "rows", "<why"),
                  [(f.what, str(f.rows), f.why) for f in failed]),
        ]  # fmt: skip

    return blocks, lambda: {
        "rows": list(json_rows(answers)), "failures": [vars(f) for f in failed]
    }  # fmt: skip
