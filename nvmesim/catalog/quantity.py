"""Numbers with their units and how far to trust them, and what a calibration leaves beside them.

Records of a calibration: how numbers vary together, what was measured, what the fitted model misses
of that, and other explanations of it. A prediction draws from them, and says where it is asked
beyond what was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nvmesim import units
from nvmesim.errors import UnitError

Basis = Literal["measured", "fitted", "datasheet", "assumed"]
Model = TypeVar("Model", bound="Frozen")


class Frozen(BaseModel):
    """Immutable; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, use_attribute_docstrings=True
    )


class Quantity(Frozen):
    """A number >= 0 and its basis: ``value`` in its field's unit, ``low``..``high`` 95 %."""

    model_config = ConfigDict(allow_inf_nan=False)

    value: float = Field(ge=0)
    low: float | None = None
    high: float | None = None
    basis: Basis = "assumed"
    source: str = ""


def with_numbers(profile: Model, numbers: Mapping[str, Any]) -> Model:
    """Return *profile* with other values at the dotted keys of *numbers*; a plain one is assumed.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> with_numbers(drive, {"read.die": 5e7, "sorts": True}).read.die.value
    50000000.0
    """
    return profile.model_copy(update=_changed(dict(profile), numbers))


def _changed(fields: Mapping[str, Any], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Those of *fields*, of a profile or a table in it, that *numbers* change."""
    update: dict[str, Any] = {}
    for key, value in numbers.items():
        part, _, rest = key.partition(".")
        if rest:
            inner = update.get(part, fields[part])
            is_table = isinstance(inner, dict)
            new = _changed(inner if is_table else dict(inner), {rest: value})
            value = inner | new if is_table else inner.model_copy(update=new)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = Quantity(value=value)
        update[part] = value
    return update


def number_at(profile: Any, key: str) -> Quantity | None:
    """Return the number at dotted *key* of *profile*; None where a part or the number is absent.

    >>> from nvmesim.catalog.load import get
    >>> number_at(get("drive", "hdd-7200"), "limits.iops") is None
    True
    """
    for part in key.split("."):
        table = isinstance(profile, dict)
        profile = profile.get(part) if table else getattr(profile, part, None)
    found: Quantity | None = profile
    return found


def parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Return what *parse* makes of *text*; ValueError, which pydantic reports, if it is no such."""
    try:
        return parse(text)
    except UnitError as error:
        raise ValueError(str(error)) from None


def _quantity(parse: Callable[[str], float], example: str = "") -> Callable[[Any], Any]:
    """Let a field be a text, or a table with value, low, high, basis, source.

    With an *example* of its unit a bare number is refused: 54 could be ps or us.
    """

    def number(value: Any) -> Any:
        return parsed(parse, value) if isinstance(value, str) else value

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


class JointDraws(Frozen):
    """How numbers that were fitted together vary together: draws from what the captures allow."""

    names: tuple[str, ...]
    """Dotted keys of the profile: "read.die"."""
    factors: tuple[tuple[float, ...], ...] = Field(min_length=2)
    """A row a draw: what each of ``names`` is multiplied by."""

    @model_validator(mode="after")
    def _is_a_table(self) -> JointDraws:
        for row in self.factors:
            if len(row) != len(self.names) or not all(0 < f < 1e6 for f in row):
                raise ValueError(f"joint.factors needs rows of {len(self.names)} factors above 0")
        return self


class Residual(Frozen):
    """One captured row, and how far the profile is from it: logarithms of model / measured."""

    read: float = Field(ge=0, le=1)
    """Share of reads."""
    block_size: int = Field(ge=1)
    """Bytes."""
    sequential: bool = False
    threads: int = Field(ge=1)
    """Of the whole load."""
    outstanding: int = Field(ge=1)
    """Of each thread."""
    drives: int = Field(default=1, ge=1)
    drives_per_thread: int = Field(default=1, ge=1)
    iops: float
    measured: float | None = Field(default=None, gt=0)
    """Requests/s that were measured; None in profiles written before 0.9."""
    mean: float | None = None
    p50: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    cpu: float | None = None
    noise: float | None = Field(default=None, ge=0)
    """Relative standard error of the row's IOPS, by its repeats or its sample; None: not known."""
    held_out: bool = False
    stated: bool = False
    """True of a figure of the drive's data sheet beside what was measured."""
    sync: str = ""
    """Flush after each of its writes: fsync, fdatasync or sync; blank: none."""
    raid: str = ""
    """Array of ``drives`` members that was measured, as "raid0:524288"; blank: single drives."""
    filesystem: str = "raw"
    guest: str = "none"
    """Virtual machine that it was measured in."""

    @property
    def depth(self) -> float:
        """Requests in flight at each drive, on average."""
        return self.threads * self.outstanding / self.drives


class Captured(Frozen):
    """Conditions that a profile was captured under: a prediction outside of them says so."""

    block_sizes: tuple[int, ...] = ()
    """Bytes, ascending."""
    read_shares: tuple[float, ...] = ()
    sequential: tuple[bool, ...] = ()
    """Which of random (false) and sequential (true) access there was."""
    depths: tuple[int, ...] = ()
    """Requests in flight at each drive, ascending."""
    threads: tuple[int, ...] = ()
    drives: tuple[int, ...] = ()
    kernel: str = ""
    stack: str = ""
    stack_cycles: float = Field(default=1.0, gt=0)
    """Cycles of a request in that stack, in units of its profile's: its threads did more, or less,
    than the profile allows."""
    stack_per_kib: float | None = Field(default=None, ge=0)
    """Cycles per KiB moved in that stack; None: as its profile has them."""
    synchronous: bool = False
    """True if its threads waited for each request, whatever depth they were asked for."""
    link: str = ""
    tool: str = ""
    datasheet: bool = False
    """True if the rows are a vendor's figures and not measurements."""


class Alternative(Frozen):
    """Another explanation of the same rows, which they cannot tell from the profile's own."""

    name: str
    """The explanation in words, as "read ceiling in the controller"."""
    weight: float = Field(gt=0, le=1)
    """Its probability. The profile's own numbers have what all alternatives leave of 1."""
    values: dict[str, Any]
    """Dotted key -> the number instead of the profile's, written as in the profile; false: none."""
    joint: JointDraws | None = None
    """How the numbers of this explanation vary together; None: as the profile's."""
