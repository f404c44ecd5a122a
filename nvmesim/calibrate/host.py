"""The host that measured, as a text: ``linux-io_uring,pcie4 x4,2.4 GHz``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from nvmesim.calibrate.bench import BenchHost
from nvmesim.catalog import load
from nvmesim.catalog.links import Link, parse_link
from nvmesim.catalog.profile import CpuProfile, StackProfile
from nvmesim.errors import InputError, UnitError
from nvmesim.units import FREQUENCY_HZ

LINK: Final = "pcie4 x4"
GHZ: Final = 2.4
"""Clock of a host that nobody stated. Assumed: base of common two-socket servers, 2.1 to 2.8."""
GHZ_RANGE: Final = (0.5, 8.0)
MOST_SOCKETS: Final = 8


@dataclass(frozen=True)
class AskedHost:
    """A host and what of it was assumed."""

    host: BenchHost
    text: str
    notes: tuple[str, ...] = ()


def parse_host(text: str) -> AskedHost:
    """Return the host that ``STACK[,LINK[,CPU]]`` names; InputError says what is wrong with it.

    STACK is a catalog name or a stack's TOML file, CPU a catalog name or a clock.

    >>> asked = parse_host("linux-io_uring,pcie3 x4")
    >>> asked.host.stack.name, str(asked.host.link), asked.notes
    ('linux-io_uring', 'pcie3 x4', ('captured on linux-io_uring: a CPU of 2.4 GHz is assumed',))
    """
    parts = [part.strip() for part in text.split(",")]
    if not 1 <= len(parts) <= 3 or not parts[0]:
        raise InputError(f"--captured-on {text!r}: write STACK, STACK,LINK or STACK,LINK,CPU")
    stack = cast(StackProfile, load.load("stack", parts[0]))
    notes = []
    link_text = parts[1] if len(parts) > 1 and parts[1] else ""
    if not link_text:
        notes.append(f"captured on {stack.name}: a link of {LINK} is assumed")
    cpu_text = parts[2] if len(parts) > 2 else ""
    if not cpu_text:
        notes.append(f"captured on {stack.name}: a CPU of {GHZ:g} GHz is assumed")
    link = parse_drive_link(link_text or LINK)
    ghz = parse_clock(cpu_text) if cpu_text else GHZ
    said = f"{stack.name}, {link}, {ghz:g} GHz" + (" (assumed)" if notes else "")
    return AskedHost(BenchHost(stack, ghz, link), said, tuple(notes))


def parse_drive_link(text: str) -> Link:
    """Return the link of a drive; UnitError with the option's name."""
    try:
        return parse_link(text)
    except UnitError as error:
        raise UnitError(f"link of the captures: {error}") from None


def parse_cpu(text: str) -> tuple[float, CpuProfile | None]:
    """Return GHz, and all cores of ``"2 x xeon-gold-6130"`` as one CPU; a clock names no cores.

    >>> ghz, cpu = parse_cpu("2 x xeon-gold-6130")
    >>> ghz, cpu.cores, cpu.threads_per_core
    (2.1, 32, 2)
    >>> parse_cpu("2.4 GHz")
    (2.4, None)
    """
    count, times, name = text.partition(" x ")
    if not times:
        count, name = "1", text
    if not count.strip().isdecimal() or not 1 <= int(count) <= MOST_SOCKETS:
        raise InputError(f"--cpu {text!r}: write a clock, a catalog CPU, or '2 x xeon-gold-6130'")
    ghz = parse_clock(name)
    if name.strip().lower().endswith("hz"):
        return ghz, None
    cpu = cast(CpuProfile, load.load("cpu", name.strip()))
    return ghz, cpu.model_copy(update={"cores": int(count) * cpu.cores})


def parse_clock(text: str) -> float:
    """Return GHz of ``"2.4 GHz"`` or of the catalog CPU *text* (its base frequency).

    >>> parse_clock("2.4 GHz"), parse_clock("xeon-gold-6130")
    (2.4, 2.1)
    """
    number, _, unit = text.strip().partition(" ")
    if not unit and number.lower().endswith("ghz"):
        number, unit = number[:-3], "GHz"
    if unit.strip() not in FREQUENCY_HZ:
        return cast(CpuProfile, load.load("cpu", text.strip())).ghz.value
    try:
        ghz = float(number) * FREQUENCY_HZ[unit.strip()] / FREQUENCY_HZ["GHz"]
    except ValueError:
        raise UnitError(f"{text!r} is not a clock; write for example '2.4 GHz'") from None
    low, high = GHZ_RANGE
    if not low <= ghz <= high:
        raise UnitError(f"{text!r} is out of range; a CPU has {low:g} to {high:g} GHz")
    return ghz
