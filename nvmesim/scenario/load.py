"""Scenario files: TOML and ``--set`` changes in, a `Scenario` or one good error out, and back."""

import copy
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from nvmesim.catalog import load as catalog
from nvmesim.catalog.problems import first_problem
from nvmesim.catalog.toml import checked_toml, outside, read_toml
from nvmesim.catalog.toml import to_text as to_text
from nvmesim.errors import CatalogError, GeometryError, InputError, ScenarioError
from nvmesim.limits import MOST_KEY_PARTS
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.loads import diskspd
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.workload_keys import presets

_LISTS: Final = ("volume", "workload", "drives", "adapters")


def load_scenario(path: str | Path, sets: Iterable[str] = ()) -> Scenario:
    """Return the scenario in the TOML file *path*, changed by *sets* ("volume.chunk=64 KiB").

    It is checked as a whole, names and geometry included; ScenarioError or GeometryError says in
    one line where, what was found and what would do.
    """
    file = Path(path)
    tables = read_toml(file, ScenarioError)
    changes = list(sets)
    try:
        changed = apply_sets(tables, changes)
        typed = [toml_or_text(change.partition("=")[2].strip()) for change in changes]
        elsewhere = outside(changed, file.parent, trusted=typed)
        if elsewhere:
            raise ScenarioError(elsewhere)
        return scenario_from_dict(changed, base=file.parent)
    except InputError as error:
        raise error.at(file) from None


def scenario_from_dict(tables: Mapping[str, Any], base: str | Path = ".") -> Scenario:
    """Return the scenario in *tables*, shaped as the file is; checked as `load_scenario` does.

    Relative paths are resolved against *base*.

    >>> scenario = scenario_from_dict({"server": {"sockets": [{"cpu": "xeon-gold-6130"}]},
    ...     "drives": [{"profile": "sata-ssd", "count": 2}], "workload": {"outstanding": 32}})
    >>> scenario.drives[0].count
    2
    """
    try:
        scenario = Scenario.model_validate(_with_platform(tables))
    except ValidationError as error:
        raise ScenarioError(first_problem(error, Scenario)) from None
    scenario._base = Path(base)
    resolve(scenario)
    return scenario


def apply_sets(tables: Mapping[str, Any], sets: Iterable[str]) -> dict[str, Any]:
    """Return a copy of *tables* with each ``key=value`` of *sets* put in place.

    Elements of lists are addressed by number, ``*`` stands for each of them, and a part of a
    profile that is named by a text through that text:
    ``drives.0.profile.read.die=50 us`` changes one number of a catalog entry. Another RAID level
    leaves out what only the old one has; threads and depth of a DiskSpd line change the line.

    >>> apply_sets({"drives": [{"count": 4}]}, ["drives.0.count=8", "run.seed=2"])
    {'drives': [{'count': 8}], 'run': {'seed': 2}}
    """
    changes = []
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ScenarioError(f"--set {text!r} is not KEY=VALUE, such as drives.0.count=8")
        changes.append((key.strip(), toml_or_text(value.strip()), f"--set {text!r}"))
    return _changed(tables, changes)


def expanded(tables: Any, key: str) -> list[str]:
    """Return the keys that *key* stands for.

    >>> expanded({"drives": [{}, {}]}, "drives.*.count")
    ['drives.0.count', 'drives.1.count']
    >>> expanded({"volume": {}}, "volume.*.chunk")  # the only one may be a table
    ['volume.0.chunk']
    """
    if key.count(".") >= MOST_KEY_PARTS:
        raise ScenarioError(f"{key[:40]}...: a key has {MOST_KEY_PARTS} parts at most")
    before, star, after = key.partition("*")
    if not star:
        return [key]
    found = tables
    for part in [p for p in before.split(".") if p]:
        if isinstance(found, list):
            found = found[int(part)] if part.isdecimal() and int(part) < len(found) else None
        else:
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping) and before.rstrip(".") in _LISTS:
        found = [found]
    if not isinstance(found, list) or not found:
        raise ScenarioError(f"{key}: there is no list at {before.rstrip('.') or 'the top'!r}")
    return [k for i in range(len(found)) for k in expanded(tables, f"{before}{i}{after}")]


def with_values(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *tables* with *values* put at their keys, as `apply_sets` does with texts.

    >>> with_values({"drives": [{"count": 4}]}, {"drives.*.count": 8})
    {'drives': [{'count': 8}]}
    """
    return _changed(tables, [(k, copy.deepcopy(v), k) for k, v in values.items()])


def _changed(tables: Mapping[str, Any], changes: Iterable[tuple[str, Any, str]]) -> dict[str, Any]:
    """A copy of *tables* with values at their keys; another RAID level comes first."""
    changed = copy.deepcopy(dict(tables))
    for key, value, text in sorted(changes, key=lambda change: not change[0].endswith(".raid")):
        # What ``server.platform`` stands for is written out, if *key* is a part of that.
        first, _, rest = key.partition(".")
        if first in ("drives", "adapters") or rest.startswith(("sockets", "interconnect")):
            found = _with_platform(changed).get(first)
            if found is not None:
                changed[first] = copy.deepcopy(found)
        for one in expanded(changed, key):
            _put(changed, one.split("."), value, text)
    return changed


def toml_or_text(text: str) -> Any:
    """A TOML value, or the text itself when it is none ("512 KiB" needs no quotes)."""
    try:
        return tomllib.loads(checked_toml(f"value = {text}"))["value"]
    except (ValueError, RecursionError):  # no TOML, of too many digits, nested too deeply
        return text


def _put(tables: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    """Walk *path*, making tables on the way, and put *value* at its end."""
    path = _numbered(tables, path)
    current: Any = tables
    for depth, part in enumerate(path):
        here = ".".join(path[:depth])
        slot = _position(part, current, here, text) if isinstance(current, list) else part
        if depth == len(path) - 1:
            if part == "raid" and path[0] == "volume":
                _leave_out(current, value)
            if path[0] == "workload" and "diskspd" in current and part in diskspd.flag_of_key():
                slot, value = "diskspd", diskspd.with_key(str(current["diskspd"]), part, value)
            is_load = path[0] == "workload" and isinstance(current, dict)
            if is_load and (name := current.get("name")):
                _rename(current, part, value, str(name))
            if value is None and isinstance(current, dict):  # as if it were not stated
                current.pop(slot, None)
            else:
                current[slot] = value
        else:
            name = path[depth - 1] if isinstance(current, list) else part
            current = _inner(current, slot, name, f"{here}.{part}".strip("."), text)


def _leave_out(volume: dict[str, Any], raid: Any) -> None:
    """Leave out what goes with the level that *volume* had, and not with *raid*."""
    level = LEVELS.get(str(raid))
    if level is None or level.records:
        return
    if not level.stripe_cache:
        volume.pop("group_thread_cnt", None)
        volume.pop("stripe_cache", None)
    try:
        level.layout(volume.get("layout"))
    except GeometryError:
        del volume["layout"]


def _rename(workload: dict[str, Any], key: str, value: Any, name: str) -> None:
    """Leave out the title of a preset whose requests are changed: "OLTP, 8 KiB" of 4 KiB."""
    own = next((p.keys for p in presets().values() if p.title == name), {})
    if key not in ("threads", "outstanding") and own.get(key, value) != value:
        del workload["name"]


def _numbered(tables: Mapping[str, Any], path: list[str]) -> list[str]:
    """Let ``workload.read`` and ``workload.0.read`` both mean the only workload there is.

    The same for volumes, drives and adapters: a list of one needs no number.
    """
    if path[0] not in _LISTS or len(path) < 2:
        return path
    holder = tables.get(path[0], {})
    if isinstance(holder, list) and len(holder) == 1 and not path[1].isdecimal():
        return [path[0], "0", *path[1:]]
    if isinstance(holder, Mapping) and path[1] == "0" and len(path) > 2:
        return [path[0], *path[2:]]
    return path


def _inner(holder: Any, slot: Any, name: str, here: str, text: str) -> Any:
    """Return the table or list in *slot*; a named profile becomes a table that extends it."""
    if isinstance(holder, dict):
        holder.setdefault(slot, {})
    found = holder[slot]
    if isinstance(found, str) and name in ("stack", "cpu", "profile", "engine"):
        found = holder[slot] = {"extends": found}
    if not isinstance(found, dict | list):
        raise ScenarioError(f"{text}: {here} is {found!r}, which has no parts")
    return found


def _position(part: str, items: list[Any], here: str, text: str) -> int:
    if not part.isdecimal() or len(part) > 9 or int(part) >= len(items):
        there = f"elements 0 to {len(items) - 1}" if items else "no elements"
        if items and part.isidentifier():
            there += f" ({here}.*.{part}: of each, {here}.0.{part}: of the first)"
        raise ScenarioError(f"{text}: {here} has {there}, not {part!r}")
    return int(part)


def _with_platform(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Put the server, adapters and drives of ``server.platform`` under what the scenario says."""
    merged = dict(tables)
    server = merged.get("server")
    name = server.get("platform") if isinstance(server, Mapping) else None
    if not isinstance(server, Mapping) or not isinstance(name, str):
        return merged
    try:
        platform = catalog.get("platform", name)
    except CatalogError as error:
        raise ScenarioError(f"server.platform: {error}") from None
    merged["server"] = {**platform.server, **server}
    for key, parts in (("adapters", platform.adapters), ("drives", platform.drives)):
        if parts:
            merged.setdefault(key, [dict(part) for part in parts])
    return merged
