"""Charts of published sets: predicted against measured, and errors by what stopped (Altair)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from nvmesim.show.charts.base import NUMBER, Drawing, layered, level, mark, tips, x, y
from nvmesim.study.validate.score import Score

Rows = list[dict[str, Any]]


def all_charts(scores: Sequence[Score]) -> dict[str, tuple[Drawing, str]]:
    """Title -> (chart, caption), of those that there are rows for."""
    rows: Rows = [
        {"set": s.published.name, "row": line.row.config, "measured": line.row.measured,
         "predicted": line.predicted.value, "low": line.predicted.low,
         "high": line.predicted.high, "error": 100 * line.error, "stop": line.verdict,
         "role": line.row.role}
        for s in scores for line in s.lines
        if line.row.role != "input" and line.row.metric == "iops" and line.row.measured
    ]  # fmt: skip
    targets = [row for row in rows if row["role"] == "target"]
    found = {}
    if rows:
        found["Predicted against measured, IOPS"] = (
            _against(rows),
            ("Both axes logarithmic; bars are 95 % intervals; the line is a perfect prediction."),
        )
    if targets:
        found["Errors by what stopped the prediction"] = (
            _errors(targets),
            ("Each dot is a target; what the simulator says is full there."),
        )
    return found


def _against(rows: Rows) -> Drawing:
    ends = [min(r["measured"] for r in rows) / 2, 2 * max(r["measured"] for r in rows)]
    scale = alt.Scale(type="log", domain=ends, clamp=True)
    across = alt.X("measured:Q", scale=scale, title="measured IOPS")
    up = alt.Y("predicted:Q", scale=scale, title="predicted IOPS")
    perfect = [{"measured": end, "predicted": end} for end in ends]
    shown = tips("set", "row", f"measured: measured, IOPS: {NUMBER}",
                 f"predicted: predicted, IOPS: {NUMBER}", "error: error, %: +.3~g")  # fmt: skip
    return layered(
        mark("line", perfect, across, up, color="gray", strokeDash=[4, 4]),
        mark("rule", rows, across, alt.Y("low:Q", scale=scale), alt.Y2("high:Q"),
             alt.Color("set:N")),
        mark("point", rows, across, up, alt.Color("set:N"), filled=True, size=60, tips=shown),
        height=420, says=f"Predicted against measured IOPS of {len(rows)} rows.",
    )  # fmt: skip


def _errors(targets: Rows) -> Drawing:
    across = x("error", "error of IOPS, %")
    worst = max((abs(row["error"]) for row in targets), default=0.0)
    return layered(
        *level(across, 0.0, light=True),
        mark("circle", targets, across, y("stop", "stopped by", names=()), alt.Color("set:N"),
             size=60, tips=tips("set", "row", "error: error, %: +.3~g")),
        height=220, says=f"Errors of IOPS of {len(targets)} targets, at most {worst:.3g} %.",
    )  # fmt: skip
