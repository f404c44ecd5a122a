"""Calibration from single requests: an empirical drive, or one fitted to a trace's arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from nvmesim.catalog.load import quantities
from nvmesim.catalog.text import show_quantity
from nvmesim.errors import FitError
from nvmesim.result.summary import microseconds
from nvmesim.result.terminal import plain, rows_view, warnings_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from nvmesim.fit.classes import JudgedClass
    from nvmesim.fit.empirical import EmpiricalFit
    from nvmesim.fit.trace_fit import TraceFit
    from nvmesim.trace.capture import Captures

    Tell = Callable[[str], None]


def is_trace(captures: Captures) -> bool:
    """Whether *captures* hold single requests of which nobody stated the depth."""
    stated = any(m.conditions.outstanding for m in captures.measurements)
    return not stated and any(c.requests is not None for c in captures.files)


def empirical(captures: Captures, name: str) -> EmpiricalFit:
    """Return the empirical drive of the one capture; FitError if there are several."""
    from nvmesim.fit.empirical import fit_empirical

    if len(captures.files) != 1:
        raise FitError(
            f"--empirical: {len(captures.files)} captures; name the one whose latencies are drawn"
        )
    return fit_empirical(captures.files[0], name=name)


def from_trace(captures: Captures, name: str, captured_on: str | None, tell: Tell) -> TraceFit:
    """Return a drive fitted to the longest capture of single requests, its last third held out."""
    from dataclasses import replace

    from nvmesim.fit.arrivals import arrivals_of
    from nvmesim.fit.episodes import suggestions
    from nvmesim.fit.host import parse_host
    from nvmesim.fit.trace_fit import fit_trace

    host = parse_host(captured_on).host if captured_on else None
    longest = max((c for c in captures.files if c.requests is not None), key=lambda c: c.rows)
    said: list[str] = []
    arrivals = arrivals_of(longest, said)
    said += suggestions(captures)
    cut = len(arrivals) * 2 // 3
    fit = fit_trace(
        arrivals.part(0, cut), name=name, host=host, captured_on=captured_on,
        held_out=arrivals.part(cut, len(arrivals)), tell=tell,
    )  # fmt: skip
    return replace(fit, warnings=(*said, *fit.warnings))


def samples_view(fit: EmpiricalFit | TraceFit) -> RenderableType:
    """What a person needs to trust such a profile, or not to."""
    profile = fit.profile
    parts: list[RenderableType] = [plain(f"{profile.name}: {profile.kind}", "bold"), Text()]
    table = profile.latencies
    if table is not None:
        parts.append(
            plain(
                f"{len(table.read_us):,} reads and {len(table.write_us):,} writes, drawn in runs "
                f"of {table.block} at queue depth {table.queue_depth}"
            )
        )
    else:
        rows = [_row(c) for c in getattr(fit, "classes", ())]
        heads = ("requests", "", "number", "p50 us", "p90 us", "p99 us")
        parts += [rows_view(heads, rows, left=2), Text()]
        numbers = [
            (key, show_quantity(profile, key), q.basis)
            for key, q in quantities(profile)
            if q.basis == "fitted"
        ]
        parts.append(rows_view(("number", "value", "basis"), numbers))
    return Group(*parts, *warnings_view(fit.warnings))


def _row(c: JudgedClass) -> tuple[str, ...]:
    cells = [
        f"{microseconds(c.measured_s[p])} {100 * c.residual[p]:+5.1f} %"
        if p in c.measured_s
        else ""
        for p in (50.0, 90.0, 99.0)
    ]
    return (c.label, "held out" if c.held_out else "", f"{c.requests:,}", *cells)
