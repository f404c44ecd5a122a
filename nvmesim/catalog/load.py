"""Profiles by catalog name, from a TOML file, or from a table in a scenario.

Servers and cloud instances of the catalog stand in two tables, a row a platform.
"""

import csv
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, overload

from pydantic import ValidationError

from nvmesim.catalog.problems import first_problem
from nvmesim.catalog.profile import (
    Alternative,
    CpuProfile,
    DriveProfile,
    Frozen,
    PlatformProfile,
    Profile,
    Quantity,
    RaidEngineProfile,
    StackProfile,
)
from nvmesim.catalog.toml import is_path as is_path
from nvmesim.catalog.toml import outside, read_toml
from nvmesim.errors import CatalogError, nearest

STACK: Final = "linux-io_uring"
INLINE: Final = "inline"
"""Name of a profile that is written in the scenario and names itself nowhere."""
INSTANCE_DRIVE: Final = "samsung-pm9a3-3.84tb"
"""What a provider's drive is taken for, below the limits that the provider states."""


@functools.cache
def platform_tables() -> dict[str, dict[str, Any]]:
    """Return the table of each platform by its name, as a profile's file would hold it.

    >>> platform_tables()["dell-r760"]["bay_link"]
    'pcie4 x4'
    """
    found = {row["name"]: _server(row) for row in _rows("servers.csv")}
    return found | {row["name"]: _instance(row) for row in _rows("instances.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    file = resources.files("nvmesim.catalog") / "data" / "platforms" / name
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


def _server(row: dict[str, str]) -> dict[str, Any]:
    lanes = row["bay_link"].rpartition("x")[2]
    stated = {"bays": "bays_basis", "bay_lanes": "link_basis", "socket_lanes": "lanes_basis"}
    values = {"bays": row["bays"], "bay_lanes": lanes, "socket_lanes": row["socket_lanes"]}
    numbers = {
        key: {"value": float(values[key]), "basis": row[basis]}
        | ({"source": row["source"]} if row[basis] != "assumed" else {})
        for key, basis in stated.items()
    }
    adapters = [  # "NAME KIND LINK SOCKET", the link of one or two words
        {"name": name, "kind": kind, "link": " ".join(link), "socket": int(socket)}
        for name, kind, *link, socket in (t.split() for t in row["adapters"].split(";") if t)
    ]
    return {
        "kind": "platform", "name": row["name"], "model": row["model"], **numbers,
        "bay_link": row["bay_link"],
        "server": {"stack": STACK, "sockets": [{"cpu": row["cpu"]}] * int(row["sockets"])},
        "adapters": adapters, "controllers": tuple(row["controllers"].split()),
        "sources": [row["source"]],
        "notes": f"The CPU is an example of those that it takes.\n{row['notes']}",
    }  # fmt: skip


def _instance(row: dict[str, str]) -> dict[str, Any]:
    """An instance: its vCPUs are threads of cores of *cpu*, its drives obey stated limits."""

    def limit(value: str) -> dict[str, Any]:
        return {"value": value, "basis": row["basis"], "source": row["source"]}

    # The time of a program at which flash is no limit: the stated writes take 0.8 of 64 dies.
    program_us = 0.8 * 64 / float(row["write_iops"]) * 1e6
    drive: dict[str, Any] = {
        "extends": INSTANCE_DRIVE, "name": f"{row['name']}-drive",
        "model": f"{row['model']}, {row['gb']} GB", "capacity": limit(f"{row['gb']} GB"),
        "commands": limit(f"{row['read_iops']}/s"),
        "write": {"commands": limit(f"{row['write_iops']}/s"), "program": {
            "value": f"{program_us:.0f} us", "basis": "assumed",
        }},
        "alternatives": [],
    }  # fmt: skip
    for key in ("read", "write"):
        if row[f"{key}_mbs"]:
            drive[f"{key}_bandwidth"] = limit(f"{row[f'{key}_mbs']} MB/s")
    count = int(row["drives"])
    cores = max(1, int(row["vcpus"]) // 2)
    cpu = {"extends": row["cpu"], "name": f"{row['vcpus']} vCPUs of {row['cpu']}", "cores": cores,
           "lanes": 16 * count}  # fmt: skip
    return {
        "kind": "platform", "name": row["name"], "model": row["model"],
        "bays": {"value": float(count), "basis": row["basis"], "source": row["source"]},
        "server": {"stack": STACK, "sockets": [{"cpu": cpu}]},
        "drives": [{"profile": drive, "count": count, "socket": 0}],
        "sources": [row["source"]],
        "notes": f"The kind of CPU, and what the limits do not say of the drives, is assumed.\n"
                 f"{row['notes']}",
    }  # fmt: skip


Kind = Literal["drive", "cpu", "stack", "raid-engine", "platform"]

MODELS: Final[dict[Kind, type[Profile]]] = {
    "drive": DriveProfile,
    "cpu": CpuProfile,
    "stack": StackProfile,
    "raid-engine": RaidEngineProfile,
    "platform": PlatformProfile,
}
Model = TypeVar("Model", bound=Frozen)
Calibrated = TypeVar("Calibrated", DriveProfile, StackProfile)


def names(kind: Kind) -> list[str]:
    """Return the names of the catalog entries of *kind*, sorted.

    >>> "xeon-gold-6130" in names("cpu")
    True
    """
    return sorted(_entries(kind))


@overload
def get(kind: Literal["drive"], name: str) -> DriveProfile: ...
@overload
def get(kind: Literal["cpu"], name: str) -> CpuProfile: ...
@overload
def get(kind: Literal["stack"], name: str) -> StackProfile: ...
@overload
def get(kind: Literal["raid-engine"], name: str) -> RaidEngineProfile: ...
@overload
def get(kind: Literal["platform"], name: str) -> PlatformProfile: ...
@overload
def get(kind: Kind, name: str) -> Profile: ...
def get(kind: Kind, name: str) -> Profile:
    """Return the catalog entry *name*; CatalogError with the nearest name if there is none.

    >>> get("cpu", "xeon-gold-6130").cores
    16
    """
    return _get(kind, name)


def find(name: str) -> Profile:
    """Return the catalog entry *name* of whatever kind; CatalogError if no kind has it.

    >>> find("linux-md").kind
    'raid-engine'
    """
    for kind in MODELS:
        if name in _entries(kind):
            return _get(kind, name)
    known = sorted(entry for kind in MODELS for entry in _entries(kind))
    raise CatalogError(
        f"the catalog has no {name!r}; {nearest(name, known)}; a profile of your own is named by "
        "its file, as my-drive.toml"
    )


def load(kind: Kind, reference: str | Mapping[str, Any], base: Path | None = None) -> Profile:
    """Return the profile that *reference* means: a catalog name, a TOML file, or a table.

    A relative path is resolved against *base*. CatalogError says what is wrong with it.

    >>> cpu = load("cpu", {"cores": 8, "ghz": 3.9, "lanes": 48})
    >>> cpu.name, cpu.ghz.value
    ('inline', 3.9)
    """
    if isinstance(reference, Mapping):
        return from_table(kind, reference, base=base)
    if is_path(reference):
        return read(kind, (base or Path()) / reference)
    return get(kind, reference)


def read(kind: Kind | None, path: Path) -> Profile:
    """Return the profile in the TOML file *path*, of *kind* or of the kind that it states."""
    table = read_toml(path, CatalogError)
    _check_bases(path, table)
    try:
        return from_table(kind, table, name=path.stem, base=path.parent)
    except CatalogError as error:
        raise CatalogError(f"{path}: {error}") from None


def _check_bases(path: Path, table: Mapping[str, Any]) -> None:
    """Follow ``extends`` from file to file: none may lead elsewhere, or back to one before."""
    seen = {path.resolve()}
    while isinstance(reference := table.get("extends"), str) and is_path(reference):
        elsewhere = outside({"extends": reference}, path.parent)
        if elsewhere:
            raise CatalogError(f"{path}: {elsewhere}")
        path = path.parent / reference
        if path.resolve() in seen:
            raise CatalogError(f"{path}: extends itself; extend a catalog entry")
        seen.add(path.resolve())
        table = read_toml(path, CatalogError)


def from_table(
    kind: Kind | None, table: Mapping[str, Any], *, name: str = INLINE, base: Path | None = None,
) -> Profile:  # fmt: skip
    """Return the profile in *table*, which may change another one: ``extends = "linux-libaio"``.

    >>> from_table("stack", {"cycles_per_io": 12000}).submit.value
    6000.0
    """
    values = dict(table)
    stated = values.get("kind", kind)
    if stated is None:
        raise CatalogError(f"kind is missing; one of {', '.join(MODELS)}")
    if stated not in MODELS:
        raise CatalogError(f"kind is {stated!r}; {nearest(str(stated), MODELS)}")
    if kind is not None and stated != kind:
        raise CatalogError(f"is a {stated} profile; a {kind} profile is needed here")
    known = cast(Kind, stated)
    if known == "stack" and "cycles_per_io" in values:
        rest = {key: value for key, value in values.items() if key != "cycles_per_io"}
        both = {"submit", "complete"} & rest.keys()
        if both:
            raise CatalogError(f"cycles_per_io and {both.pop()} say the same thing; write one")
        cycles = values["cycles_per_io"]
        if isinstance(cycles, bool) or not isinstance(cycles, int | float) or not cycles >= 0:
            raise CatalogError(f"cycles_per_io is {cycles!r}; a number of cycles, at least 0")
        half = {"value": cycles / 2, "basis": "assumed", "source": "cycles_per_io, halved"}
        values = {**rest, "submit": half, "complete": half}
    extends = values.pop("extends", None)
    if extends is not None and not isinstance(extends, str | Mapping):
        raise CatalogError(f"extends is {extends!r}; name a catalog entry or a file")
    if extends is not None:
        extended = load(known, extends, base).model_dump(exclude_unset=True)
        # what is stated holds for all: it is taken out of what differs by state, level and kernel
        if fresh := extended.get("fresh"):
            extended["fresh"] = {k: v for k, v in fresh.items() if not _is_stated(values, k)}
        until = list(extended.get("until", {}).values())
        levels = (each.get("by_level", {}).values() for each in (extended, *until))
        for differs in (*until, *chain.from_iterable(levels)):
            for key in values:
                differs.pop(key, None)
        values = merged(extended, values)
    return validated(MODELS[known], {"name": name, **values})


def with_state(profile: DriveProfile, state: Literal["fresh", "steady"]) -> DriveProfile:
    """Return *profile* in *state*: the values of its table ``fresh`` put in their places.

    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> with_state(drive, "fresh").commands.value > drive.commands.value
    True
    >>> sheet = get("drive", "samsung-pm9a3-3.84tb")  # 0.2 M random writes/s, 3.5 GB/s sequential
    >>> fresh = with_state(sheet, "fresh")
    >>> round(fresh.dies.value * 4096 / fresh.write.program.value * 1e3, 1)
    3.5
    """
    if state == profile.state or state == "steady" or not has_fresh(profile):
        return profile
    if profile.fresh:
        return _with_values(profile, profile.fresh, state="fresh", fresh=None)
    # Small writes are limited by nothing but the bandwidth of large ones. Source: random writes of
    # drives that were written once at most do 0.81 to 1.18 of the bytes/s of sequential ones
    # (`calibration/held-out`, G02-1, S01-1, S18-1, U01, U10; five of six sources).
    moved = profile.dies.value * profile.write.unit.value / profile.write_bandwidth.value
    program = Quantity(value=moved * 1e12, basis="assumed", source="the bytes/s of large writes")
    write = profile.write.model_copy(update={"program": program})
    update = {"write": write, "state": "fresh", "alternatives": ()}  # they explain what lasts
    return profile.model_copy(update=update)


def has_fresh(profile: DriveProfile) -> bool:
    """True if it is known what *profile* does while its flash is fresh.

    Stated, or of an NVMe drive by its data sheet: what is known of its writes is what lasts, and
    the bandwidth of large ones.
    """
    is_sheet = profile.captured is None or profile.captured.datasheet
    is_flash = profile.interface == "nvme" and profile.rounds is None and profile.latencies is None
    return bool(profile.fresh) or (is_sheet and is_flash and profile.write.collection is None)


def with_alternative(profile: Calibrated, alternative: Alternative) -> Calibrated:
    """Return *profile* as its *alternative* says it is, with the joint draws of that.

    >>> from nvmesim.catalog.profile import Alternative
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> other = Alternative(name="slow controller", weight=0.2, values={"commands": "500k/s"})
    >>> with_alternative(drive, other).commands.value
    500000.0
    """
    joint = alternative.joint if alternative.joint is not None else profile.joint
    plain = None if joint is None else joint.model_dump()
    return _with_values(profile, alternative.values, alternatives=(), joint=plain)


def _with_values(profile: Calibrated, changed: Mapping[str, Any], **update: Any) -> Calibrated:
    """Return *profile* with the numbers at the dotted keys of *changed*, and other fields.

    False in the place of a number: it has none.
    """
    values = profile.model_dump(exclude_unset=True)
    values.update(update)
    for key, value in changed.items():
        *path, last = key.split(".")
        target = values
        for part in path:
            if target.get(part) is None:  # as JSON has what a profile is without
                target[part] = {}
            target = target[part]
        if value is False and isinstance(target.get(last), Mapping):
            del target[last]
        else:
            target[last] = value
    return validated(type(profile), values)


def unmapped(profile: DriveProfile) -> DriveProfile:
    """Return *profile* with nothing written to it: reads of it ask no die.

    A controller that finds no mapping answers by itself. Source: a drive of which 0 B are used
    reads in 34 us less than its flash takes, md's hand-offs with it (linux-xfs, 12 Jul 2024).

    >>> unmapped(get("drive", "samsung-980pro-1tb")).read.unmapped
    True
    """
    if profile.latencies is not None or profile.rounds is not None:
        return profile
    read = profile.read.model_copy(update={"unmapped": True})
    return profile.model_copy(update={"read": read, "state": "fresh", "fresh": None})


def with_level(engine: RaidEngineProfile, level: str) -> RaidEngineProfile:
    """Return *engine* as it is for *level*: its table ``by_level`` put in place.

    >>> with_level(get("raid-engine", "linux-md"), "raid5").per_request.value
    3000.0
    """
    changes = engine.by_level.get(level)
    if not changes:
        return engine
    values = {**merged(engine.model_dump(exclude_unset=True), changes), "by_level": {}}
    return validated(RaidEngineProfile, values)


def version(text: str) -> tuple[int, int]:
    """Major and minor number of a kernel, whatever follows them; ValueError if there are none.

    >>> version("6.12.0-124.8.1.el10_1")
    (6, 12)
    """
    found = re.match(r"(\d{1,3})\.(\d{1,3})(?!\d)", text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), int(found[2])


def known_kernel(asked: str, known: Sequence[str]) -> str:
    """The newest of *known* that is not newer than *asked*; the oldest for what is older than all.

    Raises CatalogError for what is not a kernel, or later than the next major number, which means
    nothing: 7.0 follows 6.19.

    >>> known_kernel("5.15", ["4.18", "5.14", "6.1"]), known_kernel("7.0", ["6.1", "6.12"])
    ('5.14', '6.12')
    """
    listed = f"{', '.join(known)} are known"
    try:
        wanted = version(asked)
    except ValueError:
        raise CatalogError(f"is {asked!r}; a Linux kernel as {known[-1]!r}: {listed}") from None
    if wanted[0] > version(known[-1])[0] + 1:
        raise CatalogError(
            f"is {asked!r}, which was not measured; the nearest is {known[-1]!r}, and {listed}"
        )
    return max((name for name in known if version(name) <= wanted), key=version, default=known[0])


def with_kernel(engine: RaidEngineProfile, kernel: str) -> RaidEngineProfile:
    """Return *engine* as it is in *kernel*: what differs before later ones put in place.

    >>> old = with_level(with_kernel(get("raid-engine", "linux-md"), "4.18"), "raid5")
    >>> sorted(old.locks)
    ['device_lock of reads']
    """
    at = version(known_kernel(kernel, engine.kernels))
    later = [name for name in engine.until if version(name) > at]
    values = engine.model_dump(exclude_unset=True)
    values["until"] = {}
    for name in sorted(later, key=version, reverse=True):
        values = merged(values, engine.until[name])
    return validated(RaidEngineProfile, values)


def assumed(profile: Frozen) -> Iterator[tuple[str, Quantity]]:
    """Yield (dotted key, quantity) of each number in *profile* whose basis is "assumed".

    Numbers that are zero cost nothing and are not named.

    >>> [key for key, _ in assumed(get("cpu", "xeon-gold-6130"))]
    ['turbo_ghz', 'smt_yield', 'tdp_w']
    """
    for key, quantity in quantities(profile):
        if quantity.basis == "assumed" and quantity.value:
            yield key, quantity


def quantities(profile: Frozen, prefix: str = "") -> Iterator[tuple[str, Quantity]]:
    """Yield (dotted key, quantity) of each number in *profile*."""
    for name in type(profile).model_fields:
        value = getattr(profile, name)
        parts = {name: value}
        if isinstance(value, dict):
            parts = {f"{name}.{key}": inner for key, inner in value.items()}
        for key, part in parts.items():
            if isinstance(part, Quantity):
                yield prefix + key, part
            elif isinstance(part, Frozen):
                yield from quantities(part, f"{prefix}{key}.")


@functools.cache
def _entries(kind: Kind) -> dict[str, Traversable | dict[str, Any]]:
    if kind not in MODELS:
        raise CatalogError(f"the catalog has no kind {kind!r}; {nearest(kind, MODELS)}")
    rows = platform_tables() if kind == "platform" else {}
    folder = resources.files("nvmesim.catalog") / "data" / f"{kind.replace('-', '_')}s"
    return {f.name[:-5]: f for f in folder.iterdir() if f.name.endswith(".toml")} | rows


@functools.cache
def _get(kind: Kind, name: str) -> Profile:
    entry = _entries(kind).get(name)
    if entry is None:
        raise CatalogError(f"the catalog has no {kind} {name!r}; {nearest(name, names(kind))}")
    try:
        table = entry if isinstance(entry, dict) else tomllib.loads(entry.read_text("utf-8"))
        return from_table(kind, table, name=name)
    except CatalogError as error:
        raise CatalogError(f"catalog {kind} {name}: {error}") from None


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Return the profile that *values* make; CatalogError says what is wrong with the first."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise CatalogError(first_problem(error, model)) from None


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Put *new* over *old*, table by table; a quantity is replaced as a whole."""
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and "value" not in value:
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result


def _is_stated(values: Any, key: str) -> bool:
    first, _, rest = key.partition(".")
    is_here = isinstance(values, Mapping) and first in values
    return is_here and (not rest or _is_stated(values[first], rest))
