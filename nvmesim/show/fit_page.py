"""Measured against fitted, as one HTML page that loads nothing."""

from __future__ import annotations

from typing import Final, Protocol

from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, StackProfile
from nvmesim.catalog.text import show_quantity, show_value, to_toml
from nvmesim.show import page as html
from nvmesim.show import words as summary
from nvmesim.show.page import escaped
from nvmesim.version import __version__


class AnyFit(Protocol):
    """Fields of every fit."""

    @property
    def profile(self) -> DriveProfile | StackProfile:
        """The fitted profile."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Caveats."""
        ...


FIGURES: Final = {
    # key of the evidence: heading
    "iops": "IOPS",
    "mean_s": "mean, µs",
    "p50_s": "p50, µs",
    "p99_s": "p99, µs",
    "p99.9_s": "p99.9, µs",
    "cpu_s": "CPU, µs",
}
NEAR: Final = {"iops": (0.03, 0.10), "mean_s": (0.03, 0.10), "cpu_s": (0.05, 0.15)}
"""Key -> |residual| up to which a figure is met, and up to which it is near."""
NEAR_TAIL: Final = (0.12, 0.30)
CAPTIONS: Final = {
    "Throughput": "Dots: measured. Lines: the fitted profile, simulated at the same points.",
    "Latency": "Completion latency if the file has it. Dots: measured, lines: fitted.",
    "CPU": "Dots: usr + sys of the captures, lines: the fitted stack.",
    "Residuals": "Fitted / measured - 1. Band: 10 % either way; hollow diamonds: held out.",
    "Over time": "Means of windows. Shaded: slower episodes. Dashed: a step down for good.",
    "Distribution": "Solid: measured, dashed: fitted. Each grid line up is one more nine.",
}


def fit_page(fit: DriveFit | StackFit) -> str:
    """Return the evidence of *fit* as one HTML page."""
    body = f"<h1>{escaped(fit.profile.name)}</h1>\n{evidence(fit)}"
    return html.document(f"{fit.profile.name} · nvmesim calibrate", body)


def evidence(fit: DriveFit | StackFit) -> str:
    """Return what a fit rests on, as parts of a page: verdict, points, charts, numbers."""
    parts = [
        f"<p><b>{escaped(fit.verdict)}</b></p>" if isinstance(fit, DriveFit) else "",
        f'<p class="soft">{escaped(_subtitle(fit))}</p>',
        _cards(fit),
        warnings_part(fit),
        _points(fit),
        _charts(fit),
        numbers(fit),
        provenance(fit),
    ]
    return "\n".join(p for p in parts if p)


def fragment(fit: DriveFit | StackFit) -> str:
    """HTML that a notebook shows of *fit*: the points, and how far off the profile is."""
    return f"<div><h3>{escaped(fit.profile.name)}</h3>{_table(fit)}</div>"


def _subtitle(fit: DriveFit | StackFit) -> str:
    files = list(dict.fromkeys(j.point.source for j in fit.points if j.point.source))
    count = summary.plural(len(fit.points), "point")
    return f"A {fit.profile.kind} fitted to {count}" + (
        f" of {summary.joined(files)}" if files else ""
    )


def _cards(fit: DriveFit | StackFit) -> str:
    """The worst of each figure, over the points that were fitted or held out."""
    judged = [j for j in fit.points if j.used or j.point.held_out]
    held = [j for j in judged if j.point.held_out]
    chosen = held or judged
    whom = "of what was held out" if held else "of the fitted points"
    cards = []
    for key in ("iops", "p50_s", "p99_s", "p99.9_s"):
        errors = [abs(j.residual[key]) for j in chosen if key in j.residual]
        if errors:
            name = FIGURES[key].partition(",")[0]
            cards.append((f"{100 * max(errors):.1f} %", f"worst error on {name}, {whom}"))
    shown = "".join(
        f'<div class="card"><b>{escaped(b)}</b><span>{escaped(s)}</span></div>' for b, s in cards
    )
    return f'<div class="cards">{shown}</div>'


def warnings_part(fit: AnyFit) -> str:
    """Caveats, as a part of a page."""
    if not fit.warnings:
        return ""
    count = summary.plural(len(fit.warnings), "warning")
    return f'<div class="warnings"><p class="head">{count}</p>{html.listing(fit.warnings)}</div>'


def _points(fit: DriveFit | StackFit) -> str:
    text = (
        "Measured, and below it how far off the fitted profile is. "
        "Green: met, amber: near, red: missed. Held-out points were predicted, not fitted."
    )
    return f"<h2>Point by point</h2>{_table(fit)}<p class='soft'>{text}</p>"


def _table(fit: DriveFit | StackFit) -> str:
    known = {k for j in fit.points for k in j.residual}
    keys = [k for k in FIGURES if k in known]
    rows = [
        [escaped(j.point.name), escaped(_role(j)), *(_cell(j, k) for k in keys)] for j in fit.points
    ]
    headings = ("point", "", *(FIGURES[k] for k in keys))
    return html.table(headings, rows, left=(1,), name="Measured against fitted")


def _role(judged: Judged) -> str:
    if judged.point.held_out:
        return "held out"
    return "" if judged.used else "not fitted"


def _cell(judged: Judged, key: str) -> str:
    value = judged.measured.get(key)
    if value is None:
        return ""
    shown = summary.kiops(value) if key == "iops" else summary.microseconds(value)
    off = judged.residual.get(key)
    if off is None:
        return escaped(shown)
    return f'{escaped(shown)}<small class="{_grade(key, off)}">{100 * off:+.1f} %</small>'


def _grade(key: str, off: float) -> str:
    """The class of a residual: its colour holds on white and dark paper, its weight in grey."""
    met, near = NEAR.get(key, NEAR_TAIL)
    if abs(off) <= met:
        return "good"
    return "near" if abs(off) <= near else "off"


def _charts(fit: DriveFit | StackFit) -> str:
    from nvmesim.show.charts.fit import all_charts

    drawn = {t: (c, _caption(t)) for t, c in all_charts(fit).items()}
    return "<h2>Charts</h2>" + html.figures(drawn)


def _caption(title: str) -> str:
    return CAPTIONS.get("Over time" if " over time" in title else title.split()[0], "")


def numbers(fit: AnyFit) -> str:
    """All numbers of the profile, with intervals and sources."""
    rows = []
    for key, q in quantities(fit.profile):
        if not q.value and q.basis == "assumed":
            continue
        text = show_quantity(fit.profile, key)
        what = "time" if text.endswith(" us") else "rate" if text.endswith("k/s") else "number"
        span = ""
        if q.low is not None and q.high is not None:
            span = f"{_short(q.low, what)} .. {_short(q.high, what)}"
        value = text if key == "capacity" else _short(q.value, what)
        name = f'<span style="white-space:nowrap">{escaped(key)}</span>'
        rows.append([name, *(escaped(t) for t in (value, span, q.basis, q.source))])
    faint = ["faint" if row[3] == "assumed" else "" for row in rows]
    headings = ("number", "value", "95 %", "basis", "source")
    return "<h2>The profile</h2>" + html.table(
        headings, rows, classes=faint, left=(4,), name="Numbers of the profile"
    )


def _short(value: float, what: str) -> str:
    return show_value(float(f"{value:.4g}"), what)


def provenance(fit: AnyFit) -> str:
    """The profile as the file that loads it."""
    facts = html.facts([("nvmesim", __version__)])
    text = f"<pre>{html.lines_escaped(to_toml(fit.profile))}</pre>"
    return f"<h2>As a file</h2>{facts}<details><summary>The profile, TOML</summary>{text}</details>"
