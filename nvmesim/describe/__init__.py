"""A scenario from a server's own dumps: lscpu, lspci, lstopo, nvme list, lsblk, md."""

from __future__ import annotations

import itertools
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nvmesim import units
from nvmesim.capture.text import shown
from nvmesim.catalog.toml import toml_value
from nvmesim.describe.place import (
    NO_DRIVE,
    ROOT_BANDWIDTH,
    NamedUplink,
    PlacedDrive,
    Server,
    place,
)
from nvmesim.describe.sections import merged, read_file
from nvmesim.errors import InputError
from nvmesim.raid.levels import level_of

STACK: Final = "linux-io_uring"


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
    blocks = [
        _header(server, [path.name for path in paths], ignored), _server(server),
        *_adapters(server), *_drives(server), *_volumes(server), _workload(server),
    ]  # fmt: skip
    text = "\n".join("\n".join(block) + "\n" for block in blocks)
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
        assumed=tuple(_supposed_of(server)),
    )


def collecting_script() -> str:
    """Return the shell script that prints all dumps of a server, which `describe` reads."""
    return resources.files(__name__).joinpath("collect.sh").read_text(encoding="utf-8")


# -- the scenario file -----------------------------------------------------------------------------


def _header(server: Server, names: list[str], ignored: list[str]) -> list[str]:
    listed = ", ".join(shown(name) for name in names)
    lines = list(_wrapped(f"Written by nvmesim describe from {listed}.", "# ", "# "))
    for title, texts in (
        ("Read:", server.read),
        ("Ignored:", ignored),
        ("Missing in the dumps:", server.missing),
        ("Assumed; check each:", _supposed_of(server)),
    ):
        lines += ["#", f"# {title}"] if texts else []
        for text in texts:
            lines += _wrapped(shown(text, 400), "# - ", "#   ")
    title = f"{len(server.drives)} drive{'s' * (len(server.drives) != 1)}, as described"
    if any(drive.disk.name == NO_DRIVE for drive in server.drives):
        title = "a server without its drives, as described"
    return [*lines, f"name = {toml_value(title)}"]


def _supposed_of(server: Server) -> list[str]:
    """Assumptions: about the dumps, and about what no dump says."""
    return [
        *server.assumed,
        f"stack {STACK}: the dumps do not say how the drives are driven",
        "state steady: the drives are taken to be filled and written",
        "the whole [[workload]]: put your own there",
    ]


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent=first, subsequent_indent=rest)


def _noted(key: str, value: str, note: str) -> str:
    return f"{f'{key} = {toml_value(value)}':<40}# {note}"


def _server(server: Server) -> list[str]:
    lines = ["[server]", _noted("stack", STACK, "assumed")]
    if server.packets is not None:
        payload, request = server.packets
        lines += [f'max_payload = "{payload} B"', f'max_read_request = "{request} B"']
    for has_memory in server.memory:
        lines += ["[[server.sockets]]", f"cpu = {server.cpu.toml}"]
        lines += [] if has_memory else ["memory = false"]
    for address, (name, socket) in server.roots.items():
        lines += [
            "[[server.roots]]",
            _noted("name", name, shown(address)),
            f"socket = {socket}",
            _noted("bandwidth", ROOT_BANDWIDTH, "assumed"),
        ]
    return lines


def _adapters(server: Server) -> Iterator[list[str]]:
    for address, uplink in server.uplinks.items():
        yield [
            "[[adapters]]",
            _noted("name", uplink.name, shown(address)),
            f"kind = {toml_value(uplink.kind)}",
            f"link = {toml_value(uplink.link)}{'  # assumed' if uplink.link_assumed else ''}",
            _place(server, uplink),
        ]


def _drives(server: Server) -> Iterator[list[str]]:
    first = 0
    for _, same in itertools.groupby(server.drives, key=lambda drive: drive.shape):
        group = list(same)
        drive, model = group[0], shown(group[0].disk.model)
        names = ", ".join(f"{first + i} {shown(d.disk.name)}" for i, d in enumerate(group))
        behind = drive.uplink and toml_value(server.uplinks[drive.uplink.address].name)
        yield [
            "[[drives]]",
            *_wrapped(f"{names}: {model}" if model else names, "# ", "# "),
            f"profile = {drive.part.toml}",
            f"count = {len(group)}",
            f"behind = {behind}" if behind else _place(server, drive),
            *([f"link = {toml_value(drive.link)}"] if drive.link else []),
        ]
        first += len(group)


def _place(server: Server, part: PlacedDrive | NamedUplink) -> str:
    """Say where *part* is attached: to a root complex if the scenario has it, else to a socket."""
    if part.root is None:
        return f"socket = {part.socket}"
    return f"root = {toml_value(server.roots[part.root][0])}"


def _volumes(server: Server) -> Iterator[list[str]]:
    number = {drive.disk.name: index for index, drive in enumerate(server.drives)}
    for placed in server.arrays:
        array = placed.array
        has_chunk = array.chunk and level_of(array.level).has_chunks
        keys = {
            "name": toml_value(shown(array.name)),
            "raid": toml_value(array.level),
            "layout": array.layout and toml_value(array.layout),
            "chunk": toml_value(units.format_size(array.chunk or 0)) if has_chunk else None,
            "engine": '"linux-md"',
            "members": str([number[name] for name in placed.members]),
            "degraded": str(list(placed.degraded)) if placed.degraded else None,
            "rebuild": "true" if array.rebuild and placed.degraded else None,
            "bitmap": toml_value(array.bitmap) if array.bitmap not in (None, "none") else None,
            "spares": str(len(array.spares)) if array.spares else None,
        }
        table = "[[volume]]" if len(server.arrays) > 1 else "[volume]"
        yield [table, *(f"{key} = {value}" for key, value in keys.items() if value)]


def _workload(server: Server) -> list[str]:
    where = "each volume" if server.arrays else "each drive"
    return [
        "[[workload]]",
        f"# assumed: 4 threads of 16 requests each on {where}; put your own load here",
        'block_size = "4 KiB"',
        'access = "random"',
        "read = 0.7",
        "threads = 4",
        "outstanding = 16",
    ]


__all__ = ["Description", "collecting_script", "describe", "description"]
