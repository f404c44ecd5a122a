"""Field types of a scenario: text with a unit in the file, a number inside, text when dumped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from nvmesim import units
from nvmesim.catalog import links
from nvmesim.errors import UnitError


class Strict(BaseModel):
    """Immutable, unknown keys refused, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def text_of(parse: Callable[[str], Any], what: str, example: str) -> BeforeValidator:
    """Parse a text; anything else lacks its unit, and the error says how to write it."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"{what} needs its unit; write for example {example!r}")
        try:
            return parse(value)
        except UnitError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


def _fraction(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return units.parse_fraction(value)
    except UnitError as error:
        raise ValueError(str(error)) from None


def _rate_text(per_s: float) -> str:
    return f"{per_s!r}/s"


def _link_text(value: str) -> str:
    links.parse_link(value)
    return value


Size = Annotated[
    int, text_of(units.parse_size, "a size", "64 KiB"), PlainSerializer(units.format_size)
]
"""Bytes; written "64 KiB"."""
Duration = Annotated[
    int, text_of(units.parse_time_ps, "a time", "2 s"), PlainSerializer(lambda ps: f"{ps} ps")
]
"""Picoseconds; written "2 s"."""
PerSecond = Annotated[
    float, text_of(units.parse_rate, "a rate", "500k/s"), PlainSerializer(_rate_text)
]
"""Requests per second; written "500k/s"."""
BytesPerSecond = Annotated[
    int, text_of(units.parse_bandwidth, "a bandwidth", "200 MB/s"),
    PlainSerializer(lambda value: f"{value} B/s"),
]  # fmt: skip
"""Bytes per second; written "200 MB/s"."""
Fraction = Annotated[float, BeforeValidator(_fraction)]
"""A fraction; written 0.01 or "1%"."""
LinkText = Annotated[str, text_of(_link_text, "a link", "pcie3 x4")]
"""A link as `links.parse_link` reads it; kept as text."""
