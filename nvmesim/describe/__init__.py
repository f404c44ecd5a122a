"""A scenario from a server's own dumps: lscpu, lspci, lstopo, nvme list, md, numactl, Windows."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from nvmesim.errors import InputError


@dataclass(frozen=True)
class Description:
    """A scenario written from dumps, and what it rests on."""

    text: str
    """The scenario file."""
    files: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    """Facts found, dump by dump."""
    missing: tuple[str, ...] = ()
    """Facts that no dump has, and the command that would tell."""
    assumed: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the object that `describe --json` prints."""
        return {
            "files": list(self.files),
            "read": list(self.read),
            "missing": list(self.missing),
            "assumed": list(self.assumed),
            "scenario": tomllib.loads(self.text),
            "toml": self.text,
        }


def describe(files: Sequence[str | PathLike[str]]) -> str:
    """Return a scenario file that says what the dumps in *files* say, and what they leave open.

    Where no dump names a drive one stands in for them, and the file says so.

    Raises
    ------
    InputError
        One line: a file that is no such dump, is cut, or contradicts another one.
    """
    return description(files).text


def description(files: Sequence[str | PathLike[str]]) -> Description:
    """Return what `describe` writes, and apart from it what was read, missing and assumed."""
    from nvmesim.describe.dumps import read_dump
    from nvmesim.describe.merge import merged
    from nvmesim.describe.place import place
    from nvmesim.describe.text import scenario_text, supposed_of
    from nvmesim.scenario.load import scenario_from_dict
    from nvmesim.scenario.resolve import resolve

    paths = [Path(file) for file in files]
    if not paths:
        raise InputError("no file is named; give dumps such as lscpu.txt and nvme-list.json")
    server = place(merged([(path, *read_dump(path)) for path in paths]))
    text = scenario_text(server, [path.name for path in paths])
    try:
        resolve(scenario_from_dict(tomllib.loads(text)))
    except InputError as error:
        raise InputError(f"the dumps describe no server that can be modelled: {error}") from None
    return Description(
        text=text,
        files=tuple(path.name for path in paths),
        read=tuple(server.read),
        missing=tuple(server.missing),
        assumed=tuple(supposed_of(server)),
    )


__all__ = ["Description", "describe", "description"]
