"""A scenario from a server's own dumps: lscpu, lspci, lstopo, nvme list, lsblk, md."""

import itertools
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nvmesim import units
from nvmesim.capture.text import shown
from nvmesim.describe.facts import Array, Uplink
from nvmesim.describe.place import NO_DRIVE, ROOT_BANDWIDTH, PlacedDrive, Server, place
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


def description(files: Sequence[str | PathLike[str]]) -> Description:
    """Return a scenario file that says what the dumps in *files* say, and what they leave open.

    Where no dump names a drive one stands in for them, and the file says so. InputError in one
    line for a file that is no such dump, is cut, or contradicts another one.
    """
    from nvmesim.scenario.load import scenario_from_dict, to_text
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
    title = f"{len(server.drives)} drive{'s' * (len(server.drives) != 1)}, as described"
    if any(drive.disk.name == NO_DRIVE for drive in server.drives):
        title = "a server without its drives, as described"
    tables = {"name": title, **_tables(server)}
    header = _header(server, [path.name for path in paths], ignored)
    text = "\n".join(header) + "\n" + to_text(tables, _COMMENTS)
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


def _header(server: Server, names: list[str], ignored: list[str]) -> list[str]:
    listed = ", ".join(shown(name) for name in names)
    lines = list(_wrapped(f"Written by nvmesim describe from {listed}.", "# ", "# "))
    for title, texts in (
        ("Read:", server.read),
        ("Drives by number:", _numbered(server.drives)),
        ("Ignored:", ignored),
        ("Missing in the dumps:", server.missing),
        ("Assumed; check each:", _supposed_of(server)),
    ):
        lines += ["#", f"# {title}"] if texts else []
        for text in texts:
            lines += _wrapped(shown(text, 400), "# - ", "#   ")
    return lines


def _numbered(drives: list[PlacedDrive]) -> list[str]:
    """Which drive has which number in the scenario, and of what model it is."""
    lines, first = [], 0
    for same in _alike(drives):
        names = ", ".join(f"{first + i} {shown(d.disk.name)}" for i, d in enumerate(same))
        model = shown(same[0].disk.model)
        lines.append(f"{names}: {model}" if model else names)
        first += len(same)
    return lines


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


_COMMENTS: Final = {
    "server.stack": "assumed",
    "server.roots.bandwidth": "assumed",
    "workload": "assumed, for each volume or drive; put your own load here",
}


def _tables(server: Server) -> dict[str, Any]:
    """The scenario but for its name; what is plain is left out."""
    payload, request = server.packets or (None, None)
    volumes = [_volume(array, server.drives) for array in server.arrays]
    return _stated(
        server=_stated(
            stack=STACK,
            max_payload=payload and f"{payload} B",
            max_read_request=request and f"{request} B",
            sockets=[
                {"cpu": server.cpu.profile} | ({} if has_memory else {"memory": False})
                for has_memory in server.memory
            ],
            roots=[
                {"name": name, "socket": socket, "bandwidth": ROOT_BANDWIDTH}
                for name, socket in server.roots.values()
            ],
        ),
        adapters=[
            {"name": up.name, "kind": up.kind, "link": str(up.link), **_at(server, up)}
            for up in server.uplinks.values()
        ],
        drives=[
            _stated(
                profile=same[0].part.profile,
                count=len(same),
                **_at(server, same[0]),
                link=same[0].link and str(same[0].link),
            )
            for same in _alike(server.drives)
        ],
        volume=volumes if len(volumes) > 1 else volumes[0] if volumes else None,
        workload=[
            {
                "block_size": "4 KiB", "access": "random", "read": 0.7, "threads": 4,
                "outstanding": 16,
            }
        ],
    )  # fmt: skip


def _stated(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [])}


def _alike(drives: list[PlacedDrive]) -> list[list[PlacedDrive]]:
    """Runs of drives that differ in name alone, in the order of their numbers."""
    return [list(same) for _, same in itertools.groupby(drives, key=lambda drive: drive.shape)]


def _at(server: Server, part: PlacedDrive | Uplink) -> dict[str, Any]:
    """Say where *part* is attached: to an adapter, to a root complex that is told, to a socket."""
    if isinstance(part, PlacedDrive) and part.uplink:
        return {"behind": server.uplinks[part.uplink.address].name}
    if part.root is None:
        return {"socket": part.socket}
    return {"root": server.roots[part.root][0]}


def _volume(array: Array, drives: list[PlacedDrive]) -> dict[str, Any]:
    number = {drive.disk.name: index for index, drive in enumerate(drives)}
    has_chunk = array.chunk and level_of(array.level).has_chunks
    return _stated(
        name=shown(array.name),
        raid=array.level,
        layout=array.layout,
        chunk=units.format_size(array.chunk or 0) if has_chunk else None,
        engine="linux-md",
        members=[number[name] for name in array.members if name],
        degraded=list(array.degraded),
        rebuild=True if array.rebuild and array.degraded else None,
        bitmap=None if array.bitmap == "none" else array.bitmap,
        spares=len(array.spares) or None,
    )
