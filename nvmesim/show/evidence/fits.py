"""A fit and what it rests on: points measured and fitted, charts, the numbers of the profile."""

from __future__ import annotations

from typing import Any, Final, Protocol

from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, Quantity, StackProfile
from nvmesim.catalog.text import show_quantity, show_value, to_toml
from nvmesim.show import words
from nvmesim.show.blocks import (
    Block,
    Cards,
    Cell,
    Charts,
    Facts,
    Fold,
    Line,
    Section,
    Source,
    Table,
    Warnings,
    table,
)
from nvmesim.show.page import document, html
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
    "iops": "IOPS", "mean_s": "mean [us]", "p50_s": "p50 [us]", "p99_s": "p99 [us]",
    "p99.9_s": "p99.9 [us]", "cpu_s": "CPU [us]",
}  # fmt: skip
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
_ENDINGS: Final = {" us": "time", "k/s": "rate", " GB/s": "bandwidth"}


def fit_page(fit: DriveFit | StackFit) -> str:
    """Return the evidence of *fit* as one HTML page."""
    return document(f"{fit.profile.name} · nvmesim calibrate", blocks_of(fit))


def evidence(fit: DriveFit | StackFit) -> str:
    """Return what a fit rests on, without its name, as part of a page."""
    return html(blocks_of(fit)[1:])


def fragment(fit: DriveFit | StackFit) -> str:
    """HTML that a notebook shows of *fit*: the points, and how far off the profile is."""
    return f"<div>{html([Line(fit.profile.name, 'title'), points(fit)])}</div>"


def blocks_of(fit: DriveFit | StackFit) -> list[Block]:
    """All that a person needs to trust the profile, or not to."""
    files = list(dict.fromkeys(j.point.source for j in fit.points if j.point.source))
    of = f" of {words.joined(files)}" if files else ""
    count = words.plural(len(fit.points), "point")
    return [
        Line(fit.profile.name, "title"),
        *([Line(fit.verdict, "head")] if isinstance(fit, DriveFit) else []),
        Line(f"A {fit.profile.kind} fitted to {count}{of}", "soft"),
        _cards(fit),
        Warnings(tuple(fit.warnings)),
        Section("Point by point", (points(fit),), on_terminal=True),
        Section("Charts", (_charts(fit),)),
        *profile_blocks(fit),
    ]


def _cards(fit: DriveFit | StackFit) -> Block:
    """The worst of each figure, over the points that were fitted or held out."""
    judged = [j for j in fit.points if j.used or j.point.held_out]
    held = [j for j in judged if j.point.held_out]
    whom = "of what was held out" if held else "of the fitted points"
    found = []
    for key in ("iops", "p50_s", "p99_s", "p99.9_s"):
        errors = [abs(j.residual[key]) for j in held or judged if key in j.residual]
        if errors:
            name = FIGURES[key].partition(" [")[0]
            found.append((f"{100 * max(errors):.1f} %", f"worst error on {name}, {whom}"))
    return Cards(tuple(found))


def points(fit: DriveFit | StackFit) -> Table:
    """Each point as it was measured, and how far off the fitted profile is."""
    known = {k for j in fit.points for k in j.residual}
    keys = [k for k in FIGURES if k in known]
    rows = [[Cell(j.point.name), Cell(_role(j)), *(_cell(j, k) for k in keys)] for j in fit.points]
    note = "measured, and how far off the fitted profile is; green: met, amber: near, red: missed"
    if any(j.point.held_out for j in fit.points):
        note += "; held out: predicted, not fitted"
    heads = ("point", "<", *(FIGURES[k] for k in keys))
    return table("Measured against fitted", heads, rows, notes=[note])


def _role(judged: Judged) -> str:
    if judged.point.held_out:
        return "held out"
    return "" if judged.used else "not fitted"


def _cell(judged: Judged, key: str) -> Cell:
    """The measured figure and the model's relative difference.

    >>> from types import SimpleNamespace
    >>> _cell(SimpleNamespace(measured={"iops": 560e3}, residual={"iops": -0.021}), "iops")
    Cell(text='560k', small='-2.1 %', grade='good')
    """
    value, off = judged.measured.get(key), judged.residual.get(key)
    if value is None:
        return Cell("")
    shown = words.kiops(value) if key == "iops" else words.microseconds(value)
    if off is None:
        return Cell(shown)
    met, near = NEAR.get(key, NEAR_TAIL)
    grade = "good" if abs(off) <= met else "near" if abs(off) <= near else "off"
    return Cell(shown, f"{100 * off:+.1f} %", grade)  # type: ignore[arg-type]


def _charts(fit: DriveFit | StackFit) -> Block:
    from nvmesim.show.charts.fit_points import all_charts

    def caption(title: str) -> str:
        return CAPTIONS.get("Over time" if " over time" in title else title.split()[0], "")

    return Charts({title: (drawn, caption(title)) for title, drawn in all_charts(fit).items()})


def profile_blocks(fit: AnyFit) -> list[Block]:
    """The numbers of the profile with intervals and sources, and the file that loads it."""
    stated = [(k, q) for k, q in quantities(fit.profile) if q.value or q.basis != "assumed"]
    known = [_number(fit, k, q) for k, q in stated if q.basis != "assumed"]
    rest = [_number(fit, k, q) for k, q in stated if q.basis == "assumed"]
    heads = ("number", "value", "95 % interval", "<basis")
    sources: dict[str, list[str]] = {}
    for key, q in stated:
        sources.setdefault(q.source, []).append(key)
    of = [[words.joined(keys, 3), source] for source, keys in sources.items()]
    return [
        Section("The profile", (table("Numbers of the profile", heads, known),), on_terminal=True),
        Fold("assumed numbers", (table("Assumed numbers", heads, rest),)),
        Fold("sources of the numbers", (table("Sources", ("numbers", "<source"), of),)),
        Fold("As a file (TOML)", (
            Facts((("nvmesim", __version__),)), Source(to_toml(fit.profile)),
        ), is_listed=False),
    ]  # fmt: skip


def _number(fit: AnyFit, key: str, q: Quantity) -> list[str]:
    text = show_quantity(fit.profile, key)
    unit: Any = next((w for end, w in _ENDINGS.items() if text.endswith(end)), "number")

    def short(value: float) -> str:
        return show_value(float(f"{value:.4g}"), unit)

    span = "" if q.low is None or q.high is None else f"{short(q.low)} to {short(q.high)}"
    return [key, text if key == "capacity" else short(q.value), span, q.basis]
