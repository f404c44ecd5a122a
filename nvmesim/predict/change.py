"""A changed scenario, and what makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nvmesim.catalog.profile import Quantity
from nvmesim.scenario.resolved import ResolvedScenario


@dataclass(frozen=True)
class Change:
    """A changed scenario, and what was changed in words that follow "with"."""

    text: str
    scenario: ResolvedScenario
    set: Mapping[str, Any] = field(default_factory=dict)
    """The same as keys and values of a scenario file; empty: no key says it exactly."""


ChangeFactory = Callable[[ResolvedScenario], Change | None]
"""Returns None where the change does not apply."""


def times(quantity: Quantity, factor: float) -> Quantity:
    """*quantity* multiplied, as an assumed number.

    >>> times(Quantity(value=10.0, basis="fitted"), 0.5).value
    5.0
    """
    return Quantity(value=quantity.value * factor, basis="assumed", source="what-if")
