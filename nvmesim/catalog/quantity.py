"""Numbers with their units and how far to trust them: what every profile is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from nvmesim import units
from nvmesim.errors import UnitError

Basis = Literal["measured", "fitted", "datasheet", "assumed"]


class Frozen(BaseModel):
    """Immutable; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Quantity(Frozen):
    """A number >= 0 and its basis: ``value`` in its field's unit, ``low``..``high`` 95 %."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    value: float = Field(ge=0)
    low: float | None = None
    high: float | None = None
    basis: Basis = "assumed"
    source: str = ""


def _quantity(parse: Callable[[str], float], example: str = "") -> Callable[[Any], Any]:
    """Let a field be a text, or a table with value, low, high, basis, source.

    With an *example* of its unit a bare number is refused: 54 could be ps or us.
    """

    def number(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except UnitError as error:
            raise ValueError(str(error)) from None

    def coerce(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: number(v) if k in ("value", "low", "high") else v for k, v in value.items()}
        if isinstance(value, str):
            return {"value": number(value)}
        if isinstance(value, int | float) and not isinstance(value, bool):
            if example:
                raise ValueError(f"it needs its unit; write for example {example!r}")
            return {"value": value}
        return value

    return coerce


@dataclass(frozen=True)
class UnitOf:
    """Marks a field of quantities with what its numbers are, so that they can be written out."""

    what: Literal["time", "size", "bandwidth", "rate", "number"]


Time = Annotated[Quantity, BeforeValidator(_quantity(units.parse_time_ps, "54 us")), UnitOf("time")]
"""Picoseconds; written "54 us"."""
Size = Annotated[Quantity, BeforeValidator(_quantity(units.parse_size, "512 KiB")), UnitOf("size")]
"""Bytes; written "512 KiB"."""
Bandwidth = Annotated[
    Quantity, BeforeValidator(_quantity(units.parse_bandwidth, "3.2 GB/s")), UnitOf("bandwidth")
]
"""Bytes per second; written "3.2 GB/s"."""
Rate = Annotated[Quantity, BeforeValidator(_quantity(units.parse_rate, "640k/s")), UnitOf("rate")]
"""Per second; written "640k/s"."""
Number = Annotated[Quantity, BeforeValidator(_quantity(float)), UnitOf("number")]
"""A plain number: cycles, a count, a factor."""
