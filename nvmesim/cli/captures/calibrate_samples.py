"""Calibration from single requests: an empirical drive, or one fitted to a trace's arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvmesim.errors import FitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.trace.fit import TraceFit
    from nvmesim.capture.capture import Captures

    Tell = Callable[[str], None]


def is_trace(captures: Captures) -> bool:
    """True if *captures* hold single requests of which nobody stated the depth."""
    stated = any(m.conditions.outstanding for m in captures.measurements)
    return not stated and any(c.requests is not None for c in captures.files)


def empirical(captures: Captures, name: str) -> EmpiricalFit:
    """Return the empirical drive of the one capture; FitError if there are several."""
    from nvmesim.calibrate.drive.empirical import fit_empirical

    if len(captures.files) != 1:
        raise FitError(
            f"--empirical: {len(captures.files)} captures; name the one whose latencies are drawn"
        )
    return fit_empirical(captures.files[0], name=name)


def from_trace(
    captures: Captures, name: str, captured_on: str | None, held_out: tuple[str, ...], tell: Tell
) -> TraceFit:
    """Return a drive fitted to the longest capture of single requests; its end is held out."""
    from dataclasses import replace

    from nvmesim.calibrate.arrivals import arrivals_of
    from nvmesim.calibrate.host import parse_host
    from nvmesim.calibrate.over_time.episodes import suggestions
    from nvmesim.calibrate.trace.fit import fit_trace

    host = parse_host(captured_on).host if captured_on else None
    longest = max((c for c in captures.files if c.requests is not None), key=lambda c: c.rows)
    notes: list[str] = []
    arrivals = arrivals_of(longest, notes)
    notes += suggestions(captures)
    cut = round(len(arrivals) * (1 - _last(held_out)))
    fit = fit_trace(
        arrivals.part(0, cut), name=name, host=host, captured_on=captured_on,
        held_out=arrivals.part(cut, len(arrivals)), tell=tell,
    )  # fmt: skip
    return replace(fit, warnings=(*notes, *fit.warnings))


def _last(rules: tuple[str, ...]) -> float:
    """Share of a trace that is held out, at its end; InputError for a rule of points."""
    from nvmesim.units import parse_fraction

    share = 1 / 3
    for rule in rules:
        key, _, value = rule.partition("=")
        if key.strip().upper() != "LAST":
            raise FitError(
                f"--hold-out {rule}: of a trace of single requests the end is held out; write "
                "LAST=50%"
            )
        share = parse_fraction(value)
        if not 0 <= share <= 0.9:
            raise FitError(f"--hold-out {rule}: out of range; write LAST=0% to 90%")
    return share
