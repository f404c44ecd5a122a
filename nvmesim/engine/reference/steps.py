"""Steps of requests in the reference engine, for timelines."""

from __future__ import annotations

from typing import NamedTuple

from nvmesim.engine.contract import ORDER_SHIFT
from nvmesim.engine.reference.tokens import Token, Visit


class Step(NamedTuple):
    """A token's stay at a station, or its hold of a gate's slots.

    ``depart_ps`` is -1 while a gate is held, and for good if a program releases it.
    """

    request: int
    child: int
    unit: int
    station: int
    arrive_ps: int
    start_ps: int
    depart_ps: int


class Steps:
    """Every step of the first *requests*."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._steps: list[Step] = []
        self._open: dict[tuple[int, int], list[int]] = {}

    def note(self, visit: Visit, station: int, start_ps: int, depart_ps: int) -> None:
        """Record a step; departure -1: a gate, left by `release`."""
        request, child, unit = visit.token.name
        if request >= self._requests:
            return
        if depart_ps < 0:
            self._open.setdefault((visit.token.order, station), []).append(len(self._steps))
        self._steps.append(
            Step(request, child, unit, station, visit.arrive_ps, start_ps, depart_ps)
        )

    def release(self, token: Token, station: int, now: int) -> None:
        """Close the step that holds the gate *station*: the token's own, else its request's."""
        for order in (token.order, token.request.number << ORDER_SHIFT):
            held = self._open.get((order, station))
            if held:
                at = held.pop(0)
                self._steps[at] = self._steps[at]._replace(depart_ps=now)
                return

    def ordered(self) -> list[Step]:
        """By start."""
        return sorted(self._steps, key=lambda step: (step.start_ps, step))
