"""A scenario as a command is given it; a capture or a profile in its place is told what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nvmesim.errors import CaptureError, CatalogError, ScenarioError

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario


def scenario_of(path: str, sets: Iterable[str] = ()) -> Scenario:
    """Return the scenario in *path* changed by *sets*; ScenarioError says what else it is."""
    from nvmesim.scenario.load import load_scenario

    try:
        return load_scenario(path, sets)
    except ScenarioError as error:
        other = what_instead(Path(path))
        if other is None:
            raise
        raise ScenarioError(f"{path}: {other}") from error


def asked_of(scenario: Scenario) -> str:
    """Return the load of a scenario in words."""
    from nvmesim.scenario.resolve import resolve
    from nvmesim.show.asked import asked

    return asked(resolve(scenario))


def what_instead(path: Path) -> str | None:
    """Say what *path* is if it is surely no scenario, and what to do with it; else None."""
    if not path.exists():
        return _in_catalog(str(path))
    if not path.is_file():
        return None
    from nvmesim.capture.registry import find_reader
    from nvmesim.capture.text import Source
    from nvmesim.capture.unrecognised import what_else

    source = Source(path)
    try:
        reader = find_reader(source)
    except CaptureError:
        pass
    else:
        return (
            f"is a capture ({reader.name}), no scenario; fit a drive to it with "
            f"'nvmesim calibrate {path} -o drive.toml', look at it with 'nvmesim trace {path}'"
        )
    try:
        found = what_else(source.head)
    except CaptureError:
        return None
    if found is None or found.kind == "scenario":
        return None
    instead = _INSTEAD.get(found.kind, "").format(path=path)
    return f"{found.text}, no scenario{instead}"


_INSTEAD: Final = {
    # kind of what it is: what to do with it
    "profile": "; a scenario names it: profile = '{path}'",
    "goal": "; give it to nvmesim choose",
    "job": "; a scenario names it: [[workload]] with fio = '{path}'",
}


def _in_catalog(name: str) -> str | None:
    from nvmesim.catalog.load import find

    try:
        kind = find(name).kind
    except CatalogError:
        return None
    return f"is a {kind} of the catalog, no scenario file; 'nvmesim catalog show {name}' shows it"
