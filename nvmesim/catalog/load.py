"""Profiles by catalog name, from a TOML file, or from a table in a scenario."""

from __future__ import annotations

import codecs
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, overload

from pydantic import ValidationError

from nvmesim.catalog import platforms
from nvmesim.catalog.paths import is_path as is_path
from nvmesim.catalog.paths import outside
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
from nvmesim.errors import CatalogError, nearest
from nvmesim.limits import MOST_KEY_PARTS

Kind = Literal["drive", "cpu", "stack", "raid-engine", "platform"]

MAX_TOML_BYTES: Final = 1 << 24
"""Sixteen times the whole catalog; a larger file is neither a scenario nor a profile."""
MODELS: Final[dict[Kind, type[Profile]]] = {
    "drive": DriveProfile,
    "cpu": CpuProfile,
    "stack": StackProfile,
    "raid-engine": RaidEngineProfile,
    "platform": PlatformProfile,
}
_FOLDERS: Final[dict[Kind, str]] = {
    "drive": "drives",
    "cpu": "cpus",
    "stack": "stacks",
    "raid-engine": "raid_engines",
    "platform": "platforms",
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


def read_toml(path: Path, error: type[Exception]) -> dict[str, Any]:
    """Return the tables of *path*; *error* in one line if there is no such file or it is broken."""
    try:
        return tomllib.loads(_toml_text(path))
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except IsADirectoryError:
        raise error(f"{path}: is a folder, not a TOML file") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read: {reason.strerror}") from None
    except RecursionError:
        raise error(f"{path}: is nested too deeply; write it as plain tables") from None
    except ValueError as reason:  # no TOML, no text, or a number of thousands of digits
        text = " ".join(str(reason).split())
        raise error(f"{path}: not TOML: {text}") from None


def _toml_text(path: Path) -> str:
    """The text of a small file, UTF-8 or the UTF-16 that PowerShell's ``>`` writes."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("it is a device or a pipe; write a file")
    with path.open("rb") as file:
        data = file.read(MAX_TOML_BYTES + 1)
    if len(data) > MAX_TOML_BYTES:
        raise ValueError(f"it is larger than {MAX_TOML_BYTES >> 20} MiB")
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return checked_toml(data.decode("utf-16" if is_wide else "utf-8-sig"))


_LONG_KEY: Final = re.compile(
    r"""(?:\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+)"""
    f"{{{MOST_KEY_PARTS}}}"
)


def checked_toml(text: str) -> str:
    """Return *text*, ValueError if a dotted key in it is too long to be read in reasonable time.

    >>> checked_toml("a.b = 1")
    'a.b = 1'
    """
    found = _LONG_KEY.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line} has a key of more than {MOST_KEY_PARTS} parts")
    return text


def from_table(
    kind: Kind | None,
    table: Mapping[str, Any],
    *,
    name: str = "inline",
    base: Path | None = None,
) -> Profile:
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
    if known == "stack":
        values = _split_cycles(values)
    extends = values.pop("extends", None)
    if extends is not None and not isinstance(extends, str | Mapping):
        raise CatalogError(f"extends is {extends!r}; name a catalog entry or a file")
    if extends is not None:
        extended = load(known, extends, base).model_dump(exclude_unset=True)
        _overruled(extended, values)
        values = merged(extended, values)
    return validated(MODELS[known], {"name": name, **values})


def _overruled(extended: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    """Take what is *stated* out of what differs by level and by kernel: it holds for all."""
    before = [extended, *extended.get("until", {}).values()]
    for table in before[1:]:
        for key in stated:
            table.pop(key, None)
    for at_level in (level for table in before for level in table.get("by_level", {}).values()):
        for key in stated:
            at_level.pop(key, None)


def with_state(profile: DriveProfile, state: Literal["fresh", "steady"]) -> DriveProfile:
    """Return *profile* in *state*: the values of its table ``fresh`` put in their places.

    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> with_state(drive, "fresh").commands.value > drive.commands.value
    True
    """
    if state == profile.state or not profile.fresh or state == "steady":
        return profile
    return _with_values(profile, profile.fresh, state="fresh", fresh=None)


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
            target = target.setdefault(part, {})
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
        if isinstance(value, Quantity):
            yield prefix + name, value
        elif isinstance(value, Frozen):
            yield from quantities(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, Quantity):
                    yield f"{prefix}{name}.{key}", inner
                elif isinstance(inner, Frozen):
                    yield from quantities(inner, f"{prefix}{name}.{key}.")


@functools.cache
def _entries(kind: Kind) -> dict[str, Traversable | dict[str, Any]]:
    if kind not in _FOLDERS:
        raise CatalogError(f"the catalog has no kind {kind!r}; {nearest(kind, MODELS)}")
    folder = resources.files("nvmesim.catalog") / "data" / _FOLDERS[kind]
    files = folder.iterdir() if folder.is_dir() else iter(())
    rows = platforms.tables() if kind == "platform" else {}
    return {file.name[:-5]: file for file in files if file.name.endswith(".toml")} | rows


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
        is_part = isinstance(before, Mapping) and isinstance(value, Mapping)
        if is_part and "value" not in value and isinstance(before, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result


def _split_cycles(values: dict[str, Any]) -> dict[str, Any]:
    """``cycles_per_io`` is half submission, half completion (assumed)."""
    if "cycles_per_io" not in values:
        return values
    rest = {key: value for key, value in values.items() if key != "cycles_per_io"}
    both = {"submit", "complete"} & rest.keys()
    if both:
        raise CatalogError(f"cycles_per_io and {both.pop()} say the same thing; write one")
    cycles = values["cycles_per_io"]
    if isinstance(cycles, bool) or not isinstance(cycles, int | float) or not cycles >= 0:
        raise CatalogError(f"cycles_per_io is {cycles!r}; a number of cycles, at least 0")
    half = {"value": cycles / 2, "basis": "assumed", "source": "cycles_per_io, halved"}
    return {**rest, "submit": half, "complete": half}
