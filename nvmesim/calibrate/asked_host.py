"""The host that measured a capture, as a user names it or as the captures tell it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, get_args

from nvmesim.calibrate.bench import BenchHost
from nvmesim.capture.capture import Captures, Measurement
from nvmesim.capture.caveats import CLAIMS
from nvmesim.catalog import load
from nvmesim.catalog.engine_profile import FileSystem, Guest
from nvmesim.catalog.links import Link, parse_link
from nvmesim.catalog.profile import CpuProfile, StackProfile
from nvmesim.errors import InputError, UnitError
from nvmesim.scenario.loads.fio_options import listed
from nvmesim.units import FREQUENCY_HZ

LINK: Final = "pcie4 x4"
GHZ: Final = 3.0
"""Clock of a busy thread of a host that nobody stated. Source: one full thread of libaio did 235k
to 387k reads/s on four servers (`calibration/held-out`: D, N02, N04) and 255k to 698k on eight
other hosts (G02, R18, R21, R22, S01, S03, S05, S08, S09); linux-libaio does the 318k that is the
servers' median at 3.0 GHz."""
GHZ_SD: Final = 0.34
"""Standard deviation of the logarithm of such clocks: the same hosts."""
GHZ_ENDS: Final = (GHZ * math.exp(-1.96 * GHZ_SD), GHZ * math.exp(1.96 * GHZ_SD))
"""95 % of such clocks."""
GHZ_RANGE: Final = (0.5, 8.0)
MOST_SOCKETS: Final = 8
USUAL: Final = "linux-libaio"
USUAL_SD: Final = 0.4
"""`BenchHost.clock_sd` of a host of which nothing is stated. Assumed: the catalog's stacks that
sleep differ by a factor of two."""


PATHS: Final[Mapping[str, Sequence[str]]] = {
    "filesystem": get_args(FileSystem)[1:], "guest": get_args(Guest)[1:],
}  # fmt: skip
"""What requests may pass before a device, by the key of a load that names it."""


def told_host(captures: Captures) -> tuple[str, str] | None:
    """Return the stack that measured *captures*, and why it is that, where nobody names one."""
    engines = {m.conditions.engine for m in captures.measurements}
    engine = engines.pop() if len(engines) == 1 else ""
    if stack := listed("fio", "engines").get(engine, ("",))[0]:
        return stack, f"the captures' engine is {engine}"
    is_table = all(file.format == CLAIMS for file in captures.files)
    return (USUAL, "the tables name no engine") if engine is None and is_table else None


def passed(captures: Captures, paths: Sequence[str]) -> Captures:
    """Return *captures* of which each passed *paths*, file systems or guests, where it says none.

    InputError for a path that is not known.
    """
    stated: dict[str, str] = {}
    for path in paths:
        kind = next((kind for kind, known in PATHS.items() if path in known), None)
        if kind is None or kind in stated:
            every = ", ".join(name for known in PATHS.values() for name in known)
            raise InputError(f"--through {path}: name one file system and one guest of {every}")
        stated[kind] = path

    def of(m: Measurement) -> Measurement:
        unsaid: dict[str, Any] = {
            key: path for key, path in stated.items() if getattr(m.conditions, key) is None
        }
        return replace(m, conditions=replace(m.conditions, **unsaid))

    files = [replace(c, measurements=tuple(map(of, c.measurements))) for c in captures.files]
    return replace(captures, files=tuple(files)) if stated else captures


def usual_host(link: Link) -> BenchHost:
    """Return what measures most often, where nobody says what did: it may be any."""
    return BenchHost(cast(StackProfile, load.load("stack", USUAL)), GHZ, link, clock_sd=USUAL_SD)


@dataclass(frozen=True)
class AskedHost:
    """A host and what of it was assumed."""

    host: BenchHost
    text: str
    notes: tuple[str, ...] = ()


def host_parts(text: str) -> list[str]:
    """Return stack, link and CPU that *text* names, blank where it does not; a clock is no link.

    >>> host_parts("linux-libaio, 2.4 GHz")
    ['linux-libaio', '', '2.4 GHz']
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 2 and parts[1].lower().endswith("hz"):
        parts.insert(1, "")
    return parts + [""] * (3 - len(parts))


def parse_host(text: str) -> AskedHost:
    """Return the host that ``STACK[,LINK[,CPU]]`` names; InputError says what is wrong with it.

    STACK is a catalog name or a stack's TOML file, CPU a catalog name or a clock, which may stand
    behind STACK.

    >>> asked = parse_host("linux-io_uring,pcie3 x4")
    >>> asked.host.stack.name, str(asked.host.link), asked.notes
    ('linux-io_uring', 'pcie3 x4', ('captured on linux-io_uring: a CPU of 3 GHz is assumed',))
    """
    parts = host_parts(text)
    if len(parts) > 3 or not parts[0]:
        raise InputError(f"--captured-on {text!r}: write STACK, STACK,LINK or STACK,LINK,CPU")
    name, link_text, cpu_text = parts
    stack = cast(StackProfile, load.load("stack", name))
    parts_assumed = ((link_text, f"a link of {LINK}"), (cpu_text, f"a CPU of {GHZ:g} GHz"))
    notes = tuple(
        f"captured on {stack.name}: {what} is assumed" for said, what in parts_assumed if not said
    )
    try:
        link = parse_link(link_text or LINK)
    except UnitError as error:
        raise UnitError(f"link of the captures: {error}") from None
    ghz = parse_clock(cpu_text) if cpu_text else GHZ
    said = f"{stack.name}, {link}, {ghz:g} GHz" + (" (assumed)" if notes else "")
    host = BenchHost(stack, ghz, link)
    return AskedHost(host if cpu_text else replace(host, clock_sd=GHZ_SD), said, notes)


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
    """Return GHz of ``"2.4 GHz"`` or of the catalog CPU *text* (its base frequency)."""
    number, _, unit = text.strip().partition(" ")
    if not unit and number.lower().endswith("ghz"):
        number, unit = number[:-3], "GHz"
    if unit.strip() not in FREQUENCY_HZ and not number[:1].isdigit():
        return cast(CpuProfile, load.load("cpu", text.strip())).ghz.value
    try:
        ghz = float(number) * FREQUENCY_HZ[unit.strip()] / FREQUENCY_HZ["GHz"]
    except (KeyError, ValueError):
        raise UnitError(f"{text!r} is not a clock; write for example '2.4 GHz'") from None
    low, high = GHZ_RANGE
    if not low <= ghz <= high:
        raise UnitError(f"{text!r} is out of range; a CPU has {low:g} to {high:g} GHz")
    return ghz
