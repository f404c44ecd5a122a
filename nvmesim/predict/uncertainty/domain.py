"""Where a prediction is asked beyond what its profiles were captured on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nvmesim.catalog.profile import Captured, DriveProfile
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import format_size


@dataclass(frozen=True)
class Outside:
    """One way in which the load lies outside."""

    what: str
    """As "depth", "block size", "share of reads", "stack"."""
    asked: str
    captured: str
    about: str = ""
    """Name of the profile."""

    def to_json(self) -> dict[str, str]:
        """Return what, asked, captured, about."""
        return dict(vars(self))

    def __str__(self) -> str:
        """Return it as words of a sentence."""
        return f"{self.what} {self.asked} (captured: {self.captured})"


def outside(scenario: ResolvedScenario) -> tuple[Outside, ...]:
    """Conditions of *scenario* outside of its drives' captures; each once."""
    found: dict[Outside, None] = {}
    for profile in {d.profile.name: d.profile for d in scenario.drives}.values():
        for item in _of_drive(profile, scenario):
            found.setdefault(item)
    return tuple(found)


def _of_drive(profile: DriveProfile, scenario: ResolvedScenario) -> Iterator[Outside]:
    captured = profile.captured
    if captured is None:
        if profile.writes_unmeasured and any(g.read < 1 for g in scenario.workload):
            yield Outside("writes", "asked", "reads alone", profile.name)
        return
    yield from _depths(profile.name, captured, scenario)
    yield from _sizes(profile.name, captured, scenario)
    yield from _shares(profile.name, captured, scenario)
    accesses = {group.access == "sequential" for group in scenario.workload}
    for sequential in sorted(accesses - set(captured.sequential) if captured.sequential else ()):
        words = ("random", "sequential")
        yield Outside("access", words[sequential], words[not sequential], profile.name)
    if captured.stack and captured.stack != scenario.stack.name:
        yield Outside("stack", scenario.stack.name, captured.stack, profile.name)
    most = max(captured.drives, default=0)
    if most and len(scenario.drives) > most:
        yield Outside("drives", str(len(scenario.drives)), _range(captured.drives), profile.name)


def _depths(name: str, captured: Captured, scenario: ResolvedScenario) -> Iterator[Outside]:
    closed = [g for g in scenario.workload if not g.is_open]
    if not closed or not captured.depths:
        return
    depth = sum(g.in_flight for g in closed) / max(1, len(scenario.drives))
    if not captured.depths[0] * 0.99 <= depth <= captured.depths[-1] * 1.01:
        yield Outside("depth", f"{depth:.3g}", _range(captured.depths), name)


def _sizes(name: str, captured: Captured, scenario: ResolvedScenario) -> Iterator[Outside]:
    known = captured.block_sizes
    asked = {size for g in scenario.workload for size, _ in g.write_block_sizes or g.block_sizes}
    asked |= {size for g in scenario.workload for size, _ in g.block_sizes}
    for size in sorted(asked):
        if known and not known[0] <= size <= known[-1]:
            yield Outside("block size", format_size(size), _sized(known), name)


def _shares(name: str, captured: Captured, scenario: ResolvedScenario) -> Iterator[Outside]:
    known = captured.read_shares
    for read in sorted({group.read for group in scenario.workload}):
        if known and not min(known) <= read <= max(known):
            shares = ", ".join(f"{share:.0%}" for share in known)
            yield Outside("share of reads", f"{read:.0%}", shares, name)


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _sized(values: Sequence[int]) -> str:
    low, high = format_size(min(values)), format_size(max(values))
    return low if low == high else f"{low} to {high}"
