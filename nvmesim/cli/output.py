"""Input and output of commands: scenarios, JSON on stdout, files whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from nvmesim.errors import CaptureError, CatalogError, InputError, ScenarioError
from nvmesim.files import plain_json, write_text

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_INSTEAD: Final = {
    # kind of a file that is no scenario: what to do with it
    "profile": "; a scenario names it: profile = '{path}'",
    "goal": "; give it to nvmesim choose",
    "job": "; a scenario names it: [[workload]] with fio = '{path}'",
}


def option(names: str, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option: *names* as "--set sets KEY=VALUE", *text* its help, *more* as in click."""
    words = names.split()
    called = [word for word in words if word.startswith("-") or word.islower()]
    metavar = next((word for word in words if word not in called), None)
    return click.option(*called, metavar=metavar, help=text, **more)


json_option = option("--json as_json", "Print JSON instead of a table.", is_flag=True)
verbose_option = option("-v --verbose", "Print everything known.", is_flag=True)


def output_path(
    help_text: str, *names: str, required: bool = False
) -> Callable[[Decorated], Decorated]:
    """Return an option whose value is a file to write."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=kind, required=required, metavar="FILE", help=help_text)


def to_text(value: Any, *, indent: int | None = 2) -> str:
    """Return *value* as JSON; numbers that JSON has no name for become null.

    >>> to_text({"p99": float("nan"), "n": 1}, indent=None)
    '{"p99": null, "n": 1}'
    """
    return json.dumps(plain_json(value), indent=indent, ensure_ascii=False, allow_nan=False)


def print_json(value: Any) -> None:
    """Print *value* as one JSON object over several lines."""
    click.echo(to_text(value))


def save(path: Path, text: str) -> None:
    """Write *text* to *path*, whole or not at all, and say so on stderr."""
    write_text(path, text)
    click.echo(f"nvmesim: wrote {path}", err=True)


def check_writable(*paths: Path | None) -> None:
    """Raise InputError now if one of *paths* could not be written later."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file to write")
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}; create it first")
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"{path}: the folder {path.parent} cannot be written")


def scenario_of(path: str, sets: Iterable[str] = ()) -> Scenario:
    """Return the scenario in *path* changed by *sets*; ScenarioError says what else it is."""
    from nvmesim.scenario.load import load_scenario

    try:
        return load_scenario(path, sets)
    except ScenarioError as error:
        other = _what_instead(Path(path))
        if other is None:
            raise
        raise ScenarioError(f"{path}: {other}") from error


def asked_of(scenario: Scenario) -> str:
    """Return the load of a scenario in words."""
    from nvmesim.scenario.resolve import resolve
    from nvmesim.show.answer import asked

    return asked(resolve(scenario))


def _what_instead(path: Path) -> str | None:
    """Say what *path* is if it is surely no scenario, and what to do with it; else None."""
    from nvmesim.catalog.load import find

    if not path.exists():
        try:
            kind = find(str(path)).kind
        except CatalogError:
            return None
        shown = f"'nvmesim catalog show {path}' shows it"
        return f"is a {kind} of the catalog, no scenario file; {shown}"
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
    return f"{found.text}, no scenario{_INSTEAD.get(found.kind, '').format(path=path)}"
