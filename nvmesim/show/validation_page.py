"""The scoreboard as one HTML page: charts of predicted against measured, tables, what is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvmesim.show import page as html
from nvmesim.show.charts.base import layered
from nvmesim.show.page import escaped
from nvmesim.show.validation_markdown import (
    GRADES,
    catalog,
    counted_words,
    measured,
    naive,
    off,
    predicted,
    verdict,
    what,
)
from nvmesim.study.validate.score import Line, Score, summary


def page(scores: Sequence[Score]) -> str:
    """Return the whole page."""
    charts: dict[str, tuple[Any, str]] = {}
    if _points(scores):
        charts["Predicted against measured, IOPS"] = (
            _against(scores),
            "Both axes logarithmic; bars are 95 % intervals; the line is a perfect prediction.",
        )
    if any(row["role"] == "target" for row in _points(scores)):
        charts["Errors by what stopped the prediction"] = (
            _residuals(scores),
            "Each dot is a target; what the simulator says is full there.",
        )
    found = summary(scores)
    text = "Shown, not scored."
    if found.targets:
        text = (
            f"{found.met} of {found.targets} targets within their budgets; "
            f"{counted_words(found.calibrated)}."
        )
    head = f"<h1>Predicted against measured</h1><p>{text}</p>"
    body = head + (html.figures(charts) if charts else "") + "".join(_set(s) for s in scores)
    return html.document("Predicted against measured", body)


def _points(scores: Sequence[Score]) -> list[dict[str, Any]]:
    return [
        {
            "set": s.published.name, "row": line.row.config, "measured": line.row.measured,
            "predicted": line.predicted.value, "low": line.predicted.low,
            "high": line.predicted.high, "error": 100 * line.error, "stopped by": line.verdict,
            "role": line.row.role,
        }
        for s in scores for line in s.lines
        if line.row.role != "input" and line.row.metric == "iops" and line.row.measured
    ]  # fmt: skip


def _against(scores: Sequence[Score]) -> Any:
    import altair as alt
    import polars as pl

    rows = _points(scores)
    data = pl.DataFrame(rows)
    ends = [min(r["measured"] for r in rows) / 2, 2 * max(r["measured"] for r in rows)]
    scale = alt.Scale(type="log", domain=ends, clamp=True)
    x = alt.X("measured:Q", scale=scale, title="measured IOPS")
    y = alt.Y("predicted:Q", scale=scale, title="predicted IOPS")
    points = alt.Chart(data).mark_point(filled=True, size=60).encode(
        x=x, y=y, color=alt.Color("set:N"), tooltip=["set", "row", "measured", "predicted", "error"]
    )  # fmt: skip
    bars = alt.Chart(data).mark_rule().encode(
        x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=alt.Color("set:N")
    )  # fmt: skip
    line = alt.Chart(pl.DataFrame({"measured": ends, "predicted": ends})).mark_line(
        color="gray", strokeDash=[4, 4]
    ).encode(x=x, y=y)  # fmt: skip
    says = f"Predicted against measured IOPS of {len(rows)} rows."
    return layered(line, bars, points, height=420, says=says)


def _residuals(scores: Sequence[Score]) -> Any:
    import altair as alt
    import polars as pl

    targets = [row for row in _points(scores) if row["role"] == "target"]
    dots = alt.Chart(pl.DataFrame(targets)).mark_circle(size=60).encode(
        x=alt.X("error:Q", title="error of IOPS, %"),
        y=alt.Y("stopped by:N", title="stopped by"),
        color=alt.Color("set:N"),
        tooltip=["set", "row", "error"],
    )  # fmt: skip
    zero = alt.Chart(pl.DataFrame({"error": [0.0]})).mark_rule(color="gray").encode(x="error:Q")
    worst = max((abs(row["error"]) for row in targets), default=0.0)
    says = f"Errors of IOPS of {len(targets)} targets, at most {worst:.3g} %."
    return layered(zero, dots, height=220, says=says)


def _set(score: Score) -> str:
    file = score.published.file
    facts = html.facts([
        ("source", file.source), ("trust", GRADES[file.grade]), ("hardware", file.hardware),
        ("method", file.method),
        ("fitted", f"{len(score.prediction.fitted)} numbers on {len(score.published.inputs)} "
                   "input values"),
    ])  # fmt: skip
    rows = [_row(line) for line in score.lines]
    headings = ("", "role", "measured", "predicted (95 %)", "error", "within budget",
                "from the catalog (95 %)", "naive", "counted")  # fmt: skip
    notes = [f"{what(line)}: {line.row.note}" for line in score.lines if line.row.note]
    doubts = [" ".join(text.split()) for text in (*file.open, *notes)]
    unexplained = f"<h3>What is not explained</h3>{html.listing(doubts)}" if doubts else ""
    return (
        f"<h2>{escaped(file.title)}</h2><p>{escaped(' '.join(file.story.split()))}</p>{facts}"
        f"{html.table(headings, rows, left=(0, 1))}{_parameters(score)}{unexplained}"
    )


def _row(line: Line) -> tuple[str, ...]:
    cells = (
        what(line), line.row.role, measured(line), predicted(line), off(line), verdict(line),
        catalog(line), naive(line), line.not_counted or "yes",
    )  # fmt: skip
    return tuple(escaped(cell) for cell in cells)


def _parameters(score: Score) -> str:
    fitted = score.prediction.fitted
    if not fitted:
        return "<p>Nothing is fitted.</p>"
    rows = [
        (escaped(f.name), escaped(f"{f.value:.4g} {f.unit}".strip()),
         "this set alone" if f.only_here else "")
        for f in fitted
    ]  # fmt: skip
    return html.table(("fitted", "value", "exists for"), rows, left=(0, 2))
