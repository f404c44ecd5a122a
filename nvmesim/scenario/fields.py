"""Field types of a scenario: text with a unit in the file, a number inside, text when dumped."""

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from nvmesim import units
from nvmesim.catalog import links
from nvmesim.catalog.quantity import Frozen, parsed
from nvmesim.errors import nearest
from nvmesim.raid.levels import LEVELS

PAGE_BYTES = 4096


class Strict(Frozen):
    """Immutable, unknown keys refused, no NaN."""

    model_config = ConfigDict(allow_inf_nan=False)


def shared(spec: BaseModel, record: type, *but: str) -> dict[str, Any]:
    """What *spec* states for fields of the dataclass *record* that have the same name, less *but*.

    >>> from nvmesim.scenario.resolved import Root
    >>> from nvmesim.scenario.schema import RootSpec
    >>> shared(RootSpec(name="root0", bandwidth="8 GB/s"), Root)
    {'name': 'root0', 'socket': 0}
    """
    names = {field.name for field in fields(record)}.intersection(type(spec).model_fields)
    found = ((name, getattr(spec, name)) for name in type(spec).model_fields if name in names)
    return {name: value for name, value in found if value is not None and name not in but}


def text_of(parse: Callable[[str], Any], what: str, example: str) -> BeforeValidator:
    """Parse a text; anything else lacks its unit, and the error says how to write it."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"{what} needs its unit; write for example {example!r}")
        return parsed(parse, value)

    return BeforeValidator(read)


def _fraction(value: Any) -> Any:
    return parsed(units.parse_fraction, value) if isinstance(value, str) else value


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
    float,
    text_of(units.parse_rate, "a rate", "500k/s"),
    PlainSerializer(lambda per_s: f"{per_s!r}/s", return_type=str),
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


def _raid_level(text: str) -> str:
    if text not in LEVELS:
        raise ValueError(nearest(text, LEVELS))
    return text


RaidLevel = Annotated[str, AfterValidator(_raid_level)]
"""A name of `nvmesim.raid.levels.LEVELS`."""


def _reference(value: Any) -> Any:
    if isinstance(value, str | dict):
        return value
    raise ValueError("a catalog name, the path of a TOML file, or a table is needed")


Reference = Annotated[Any, BeforeValidator(_reference)]
"""A profile: catalog name, path, or table."""


def _kernel(value: Any) -> Any:
    """A number is a kernel, too, where it can mean one only: 6.1 could be 6.10."""
    plain = isinstance(value, float) and not str(value).endswith((".1", ".2", ".3"))
    if isinstance(value, str) or plain:
        return str(value)
    raise ValueError(f"is {value!r}; a text is needed, as '6.1': 6.10 is another kernel")


Kernel = Annotated[str, BeforeValidator(_kernel)]
"""A Linux kernel by its number."""


def _mix(value: Any) -> Any:
    """Read one size, or a table of sizes with their fractions."""
    if isinstance(value, str):
        pairs: list[tuple[Any, Any]] = [(value, 1.0)]
    elif isinstance(value, dict) and value:
        pairs = list(value.items())
    else:
        raise ValueError("a size needs its unit; write '4 KiB' or { \"4 KiB\" = 0.7, ... }")
    return tuple(sorted(_mix_part(text, share) for text, share in pairs))


def _mix_part(text: Any, share: Any) -> tuple[int, float]:
    size = parsed(units.parse_size, str(text))
    if size < 512 or size % 512:
        raise ValueError(f"{text!r} is not a multiple of 512 B")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"the fraction of {text!r} is {share!r}; it must be above 0 and at most 1")
    return size, float(share)


def _mix_text(mix: tuple[tuple[int, float], ...]) -> Any:
    if len(mix) == 1:
        return units.format_size(mix[0][0])
    return {units.format_size(size): share for size, share in mix}


Mix = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_mix), PlainSerializer(_mix_text)]
"""((bytes, fraction), ...), sorted by size."""


def _packet(value: Any) -> Any:
    if isinstance(value, int) and value not in links.PAYLOADS:
        sizes = ", ".join(str(n) for n in links.PAYLOADS)
        raise ValueError(f"{value} B is not a size of PCIe packets; {sizes} B")
    return value


PacketSize = Annotated[Size, AfterValidator(_packet)]
