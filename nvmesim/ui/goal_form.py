"""The form of the Choose page: each field is a key of the goal, whose TOML stands beside it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nvmesim.errors import InputError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.study.designs import goal_from_dict
from nvmesim.ui.controls import form
from nvmesim.ui.guard import NOWHERE

Tables = dict[str, Any]
START: Final[Tables] = {
    "name": "which drives, how many",
    "candidates": {
        "volume.raid": ["raid10", "raid5", "raid6"],
        "drives.0.count": [4, 6, 8, 12],
    },
    "constraints": {"iops": "400k/s", "p99": "1 ms", "capacity": "5 TB", "survives": 1},
    "objective": {"minimize": "drives"},
}
SEPARATE: Final = "/"
"""Between a table of the goal and its key, which may have dots."""
LISTS: Final = {"price": "prices", "power": "watts"}


def values(goal: Mapping[str, Any]) -> dict[str, Any]:
    """Return key -> value of every field of *goal*."""
    found: dict[str, Any] = {}
    for control in form("choose"):
        table, _, key = control.key.rpartition(SEPARATE)
        value = (_table(goal, table) if table else goal).get(key, "")
        if control.form == "ticks":
            found[control.key] = value if isinstance(value, list) else [value] if value else []
        else:
            found[control.key] = ", ".join(map(str, value)) if isinstance(value, list) else value
    return found | {"currency": goal.get("currency", "EUR")}


def put(goal: Mapping[str, Any], key: str, value: Any) -> Tables:
    """Return *goal* with the field *key* at *value*; an empty one is left out.

    >>> put(START, "constraints/p99", "2 ms")["constraints"]["p99"]
    '2 ms'
    >>> put(START, "candidates/drives.0.count", "8")["candidates"]["drives.0.count"]
    [8]
    """
    table, _, name = key.rpartition(SEPARATE)
    known = {control.key for control in form("choose")}
    if key not in known and table not in LISTS.values():
        raise InputError(f"{key[:60]!r} is not a field of this page; change it in the TOML")
    if not table:
        return {**goal, name: value}
    inner = {k: v for k, v in _table(goal, table).items() if k != name}
    if value not in ("", []):
        inner[name] = _read(table, name, value)
    return {**goal, table: inner}


def _table(goal: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = goal.get(name, {})
    if not isinstance(found, Mapping):
        raise InputError(f"{name}: a table is needed")
    return found


def _read(table: str, name: str, value: Any) -> Any:
    """The TOML value of what was typed."""
    if table in LISTS.values() or name in ("survives", "price", "power"):
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InputError(f"{name}: {str(value)[:40]!r} is not a number") from None
        return int(number) if number.is_integer() else number
    if table != "candidates" or not isinstance(value, str):
        return value
    if ".." in value:
        return value
    words = [word.strip() for word in value.split(",") if word.strip()]
    return [int(word) if word.isdecimal() and len(word) < 9 else word for word in words]


def parts(goal: Mapping[str, Any], design: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prices (or watts) that *goal* needs: key, label and value of each."""
    asked = _table(goal, "constraints").keys() | {_table(goal, "objective").get("minimize")}
    found = []
    for what, listed in LISTS.items():
        if what not in asked:
            continue
        stated = _table(goal, listed)
        unit = str(goal.get("currency", "EUR")) if what == "price" else "W"
        found += [
            {"key": f"{listed}{SEPARATE}{name}", "label": f"{label}, {unit} each",
             "value": stated.get(name, "")}
            for name, label in _names(goal, design).items()
        ]  # fmt: skip
    return found


def _names(goal: Mapping[str, Any], design: Mapping[str, Any]) -> dict[str, str]:
    """Parts that may have a price: those of the design, and the drives to choose from."""
    scenario = resolve(scenario_from_dict(design, NOWHERE))
    drives: Sequence[Any] = _table(goal, "candidates").get("drives.0.profile") or [
        drive.profile.name for drive in scenario.drives
    ]
    listed = drives if isinstance(drives, list) else [drives]
    names = [*map(str, listed), *(socket.cpu.name for socket in scenario.sockets)]
    return {"server": "the rest of the server"} | {name: name for name in names}


def problem(goal: Mapping[str, Any], design: Mapping[str, Any]) -> str:
    """Return why *goal* cannot be asked as it stands; "" if it can."""
    try:
        goal_from_dict({**goal, "scenario": dict(design)}, NOWHERE)
    except InputError as error:
        return str(error)
    return ""
