"""Output of commands: JSON on stdout, files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nvmesim.errors import InputError
from nvmesim.files import plain_json
from nvmesim.files import write_text as write_text
from nvmesim.files import written as written

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Print everything known.")
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**62),
    help="Seed of the random numbers; default: the scenario's.",
)  # fmt: skip
workers_option = click.option(
    "--workers", type=click.IntRange(1, 1024), help="Processes; default: one per CPU."
)


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
