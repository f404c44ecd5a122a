"""Output of `nvmesim calibrate` on a terminal: the numbers, their points, the caveats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from nvmesim.catalog.load import quantities
from nvmesim.catalog.text import show_quantity, show_value
from nvmesim.show.terminal import plain, rows_view, warnings_view
from nvmesim.show.words import kiops, microseconds

if TYPE_CHECKING:
    from nvmesim.calibrate.evidence import DriveFit, Judged, StackFit
    from nvmesim.show.fit_page import AnyFit

UNITS: Final = {" us": "time", "k/s": "rate", " GB/s": "bandwidth"}
FIGURES: Final = {
    # key of the evidence: heading
    "iops": "IOPS",
    "mean_s": "mean us",
    "p50_s": "p50 us",
    "p99_s": "p99 us",
    "p99.9_s": "p99.9 us",
    "cpu_s": "CPU us",
}


def fit_view(fit: DriveFit | StackFit) -> RenderableType:
    """Everything a person needs to trust the profile, or not to."""
    parts: list[RenderableType] = [
        plain(f"{fit.profile.name}: {fit.profile.kind}", "bold"),
        *([plain(fit.verdict)] if hasattr(fit, "verdict") else []),
        Text(),
        _points(fit),
        Text(_legend(fit), "dim"),
        Text(),
        rows_view(("number", "value", "95 %", "basis"), numbers(fit)),
    ]
    return Group(*parts, *warnings_view(fit.warnings))


def _legend(fit: DriveFit | StackFit) -> str:
    """Columns of the table; roles only if there are any."""
    text = "measured, and how far off the fitted profile is"
    if any(j.point.held_out for j in fit.points):
        text += "; held out: predicted, not fitted"
    return text


def _points(fit: DriveFit | StackFit) -> RenderableType:
    known = {k for j in fit.points for k in j.residual}
    keys = [k for k in FIGURES if k in known]
    rows = [(j.point.name, _role(j), *(_cell(j, k) for k in keys)) for j in fit.points]
    return rows_view(("point", "", *(FIGURES[k] for k in keys)), rows, left=2)


def _role(judged: Judged) -> str:
    if judged.point.held_out:
        return "held out"
    return "" if judged.used else "not fitted"


def _cell(judged: Judged, key: str) -> str:
    """The measured figure and the model's relative difference.

    >>> from types import SimpleNamespace
    >>> _cell(SimpleNamespace(measured={"iops": 560e3}, residual={"iops": -0.021}), "iops")
    '560 k  -2.1 %'
    """
    measured = judged.measured.get(key)
    if measured is None:
        return ""
    shown = kiops(measured) if key == "iops" else microseconds(measured)
    off = judged.residual.get(key)
    return shown if off is None else f"{shown} {100 * off:+5.1f} %"


def numbers(fit: AnyFit) -> list[tuple[str, ...]]:
    """Fitted or measured numbers, with their intervals."""
    out: list[tuple[str, ...]] = []
    for key, q in quantities(fit.profile):
        if q.basis not in ("fitted", "measured", "datasheet"):
            continue
        text = show_quantity(fit.profile, key)
        what = next((w for end, w in UNITS.items() if text.endswith(end)), "number")
        span = ""
        if q.low is not None and q.high is not None:
            span = f"{_short(q.low, what)} .. {_short(q.high, what)}"
        out.append((key, _short(q.value, what), span, q.basis))
    return out


def _short(value: float, what: str) -> str:
    """Four digits and the unit."""
    return show_value(float(f"{value:.4g}"), what)
