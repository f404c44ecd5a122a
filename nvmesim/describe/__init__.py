"""A scenario from a server's own dumps: lscpu, lspci, lstopo, nvme list, lsblk, md."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
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
    ignored: tuple[str, ...] = ()
    """Text in the files that is no dump that nvmesim reads."""
    missing: tuple[str, ...] = ()
    """Facts that no dump has, and the command that would tell."""
    assumed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that `describe --json` prints."""
        found = {key: list(value) for key, value in vars(self).items() if key != "text"}
        return {**found, "scenario": tomllib.loads(self.text), "toml": self.text}


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
    from nvmesim.describe.place import place
    from nvmesim.describe.scenario_file import scenario_text, supposed_of
    from nvmesim.describe.sections import merged, read_file
    from nvmesim.scenario.load import scenario_from_dict
    from nvmesim.scenario.resolve import resolve

    paths = [Path(file) for file in files]
    if not paths:
        raise InputError("no file is named; give dumps such as lscpu.txt and nvme-list.json")
    found = [read_file(path) for path in paths]
    facts = merged([dump for each in found for dump in each.dumps])
    if not (facts.cpu or facts.slots or facts.disks or facts.arrays):
        raise InputError(
            f"{paths[0]}: names no CPU, drive or array; run what nvmesim describe --collect prints "
            "on the server itself"
        )
    server = place(facts)
    tools = dict.fromkeys(command.split()[0] for each in found for command in each.absent)
    ran = {dump.dump.tool.split()[0] for each in found for dump in each.dumps}
    server.missing.extend(f"{tool} did not run there" for tool in tools if tool not in ran)
    ignored = [text for each in found for text in each.ignored]
    text = scenario_text(server, [path.name for path in paths], ignored)
    try:
        resolve(scenario_from_dict(tomllib.loads(text)))
    except InputError as error:
        raise InputError(f"the dumps describe no server that can be modelled: {error}") from None
    return Description(
        text=text,
        files=tuple(path.name for path in paths),
        read=tuple(server.read),
        ignored=tuple(ignored),
        missing=tuple(server.missing),
        assumed=tuple(supposed_of(server)),
    )


def collecting_script() -> str:
    """Return the shell script that prints all dumps of a server, which `describe` reads."""
    return resources.files(__name__).joinpath("collect.sh").read_text(encoding="utf-8")


__all__ = ["Description", "collecting_script", "describe", "description"]
