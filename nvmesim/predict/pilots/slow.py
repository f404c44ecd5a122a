"""All slow states of a scenario, found once and remembered."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.model.lower import lower
from nvmesim.model.lowered import Lowered
from nvmesim.predict.pilots.bitmap import with_bitmaps
from nvmesim.predict.pilots.buffers import level_of
from nvmesim.predict.pilots.overload import lowered_rate
from nvmesim.predict.pilots.rebuild import with_rebuilds
from nvmesim.predict.upgrades import filled
from nvmesim.scenario.resolved import ResolvedScenario

REMEMBERED: Final = 16
"""Scenarios whose pilots are kept: a design and its neighbours, not a sweep."""


@dataclass(frozen=True)
class SlowStates:
    """Where what changes slowly will be."""

    scenario: ResolvedScenario
    """With the share of first writes of each bitmap, and the pace of each rebuild."""
    lowered: Lowered
    """Its network; write buffers as full as they will be."""
    level: float
    """Share of the write buffers that is taken at time 0, as it would be soon."""
    left_out: float
    """Requests/s of an overload that no run need show; the scenario's rates are so much lower."""


_remembered: deque[tuple[ResolvedScenario, SlowStates]] = deque(maxlen=REMEMBERED)
_lock = threading.Lock()


def found(scenario: ResolvedScenario, level: float | None = None) -> SlowStates:
    """Return the slow states of *scenario*, from pilots or from memory.

    With *level* the write buffers' state is given: a design that hardly differs from one that was
    run needs no pilot of its own.
    """
    if level is not None or any(group.trace is not None for group in scenario.workload):
        return _piloted(scenario, level)
    with _lock:
        for known, states in _remembered:
            if known == scenario:
                return states
    states = _piloted(scenario, None)
    with _lock:
        _remembered.append((scenario, states))
    return states


def _piloted(scenario: ResolvedScenario, level: float | None) -> SlowStates:
    scenario, lowered, left_out = lowered_rate(scenario, lower(scenario))
    changed, lowered = with_rebuilds(*with_bitmaps(scenario, lowered))
    if level is None:
        level = level_of(lowered)
    if level:
        lowered = replace(lowered, network=filled(lowered.network, level))
    return SlowStates(changed, lowered, level, left_out)
