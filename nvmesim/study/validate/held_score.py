"""What the predictions of held-out rows add up to: errors beside the naive rule, and intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nvmesim.study.validate.coverage import Coverage, CoveredRow, coverage
from nvmesim.study.validate.held_out import CaseAnswer, Prediction

RATE = "iops"
HEADINGS = (
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
    rates = [p for p in rows if p.metric == RATE]
    found = [_group("throughputs", rates)]
    servers = {p.source for p in rates if p.split == "small rows"}
    found += [_group("  servers", [p for p in rates if p.source in servers])]
    found += [_group("  single drives", [p for p in rates if p.source not in servers])]
    found += _by(rates, lambda p: p.split)
    found += _by(rates, lambda p: p.model_class)
    found += _by(rates, lambda p: f"at: {p.limit}")
    for metric in ("mean", "p99", "p99.9"):
        found.append(_group(f"latency, {metric}", [p for p in rows if p.metric == metric]))
    return [group for group in found if group.found.rows]


def by_source(answers: Sequence[CaseAnswer]) -> list[Group]:
    """Return a line for each source's throughputs."""
    rows = [p for a in answers for p in a.predictions if not p.is_restated and p.metric == RATE]
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
                "metric": p.metric, "limit": p.limit, "model_class": p.model_class,
                "measured": p.measured,
                "predicted": {"value": p.predicted, "low": p.low, "high": p.high},
                "error": p.predicted / p.measured - 1, "naive": p.naive,
                "inside_interval": p.low <= p.measured <= p.high, "crps": _covered(p).crps,
                "counted": not p.is_restated, "near": dict(p.near), "rows": p.rows,
            }  # fmt: skip


def _percent(share: float) -> str:
    if share != share:
        return ""
    return f"{100 * share:.1f} %" if share < 0.095 else f"{100 * share:.0f} %"
