"""The scenario file: what was read and what was supposed as comments, then its tables."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from nvmesim import units
from nvmesim.capture.text import shown
from nvmesim.describe.parts import toml
from nvmesim.describe.place import (
    NO_DRIVE,
    ROOT_BANDWIDTH,
    NamedUplink,
    PlacedArray,
    PlacedDrive,
    Server,
)
from nvmesim.raid.levels import level_of

STACK: Final = "linux-io_uring"


def scenario_text(server: Server, names: list[str], ignored: list[str]) -> str:
    """Return *server* as a scenario file; *names* are the files that it was read from.

    *ignored* says what is in them that nvmesim does not read.
    """
    blocks = [
        _header(server, names, ignored),
        _server(server),
        *_adapters(server),
        *_drives(server),
        *_volumes(server),
        _workload(server),
    ]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _header(server: Server, names: list[str], ignored: list[str]) -> list[str]:
    listed = ", ".join(shown(name) for name in names)
    lines = list(_wrapped(f"Written by nvmesim describe from {listed}.", "# ", "# "))
    for title, texts in (
        ("Read:", server.read),
        ("Ignored:", ignored),
        ("Missing in the dumps:", server.missing),
        ("Assumed; check each:", supposed_of(server)),
    ):
        lines += ["#", f"# {title}"] if texts else []
        for text in texts:
            lines += _wrapped(shown(text, 400), "# - ", "#   ")
    title = f"{len(server.drives)} drives, as described"
    if any(drive.disk.name == NO_DRIVE for drive in server.drives):
        title = "a server without its drives, as described"
    return [*lines, f"name = {toml(title)}"]


def supposed_of(server: Server) -> list[str]:
    """Assumptions: about the dumps, and about what no dump says."""
    return [
        *server.assumed,
        f"stack {STACK}: the dumps do not say how the drives are driven",
        "state steady: the drives are taken to be filled and written",
        "the whole [[workload]]: put your own there",
    ]


def _wrapped(text: str, first: str, rest: str) -> Iterator[str]:
    yield from textwrap.wrap(text, 100, initial_indent=first, subsequent_indent=rest)


def _server(server: Server) -> list[str]:
    lines = ["[server]", f"{f'stack = {toml(STACK)}':<40}# assumed"]
    if server.packets is not None:
        payload, request = server.packets
        lines += [f'max_payload = "{payload} B"', f'max_read_request = "{request} B"']
    for has_memory in server.memory:
        lines += ["[[server.sockets]]", f"cpu = {server.cpu.toml}"]
        lines += [] if has_memory else ["memory = false"]
    for address, (name, socket) in server.roots.items():
        lines += [
            "[[server.roots]]",
            f"{f'name = {toml(name)}':<40}# {shown(address)}",
            f"socket = {socket}",
            f"{f'bandwidth = {toml(ROOT_BANDWIDTH)}':<40}# assumed",
        ]
    return lines


def _adapters(server: Server) -> Iterator[list[str]]:
    for address, uplink in server.uplinks.items():
        guess = "  # assumed" if uplink.link_assumed else ""
        yield [
            "[[adapters]]",
            f"{f'name = {toml(uplink.name)}':<40}# {shown(address)}",
            f"kind = {toml(uplink.kind)}",
            f"link = {toml(uplink.link)}{guess}",
            _place(server, uplink),
        ]


def _drives(server: Server) -> Iterator[list[str]]:
    first = 0
    for _, same in itertools.groupby(server.drives, key=lambda drive: drive.shape):
        group = list(same)
        drive = group[0]
        lines = ["[[drives]]"]
        lines += _wrapped(_numbered(first, group), "# ", "# ")
        lines += [f"profile = {drive.part.toml}", f"count = {len(group)}"]
        if drive.uplink:
            lines.append(f"behind = {toml(server.uplinks[drive.uplink.address].name)}")
        else:
            lines.append(_place(server, drive))
        lines += [f"link = {toml(drive.link)}"] if drive.link else []
        first += len(group)
        yield lines


def _place(server: Server, part: PlacedDrive | NamedUplink) -> str:
    """Say where *part* is attached: to a root complex if the scenario has it, else to a socket."""
    if part.root is None:
        return f"socket = {part.socket}"
    return f"root = {toml(server.roots[part.root][0])}"


def _numbered(first: int, group: list[PlacedDrive]) -> str:
    """Say which drive has which number."""
    names = (f"{first + i} {shown(drive.disk.name)}" for i, drive in enumerate(group))
    model = shown(group[0].disk.model)
    return ", ".join(names) + (f": {model}" if model else "")


def _volumes(server: Server) -> Iterator[list[str]]:
    number = {drive.disk.name: index for index, drive in enumerate(server.drives)}
    several = len(server.arrays) > 1
    for placed in server.arrays:
        lines = ["[[volume]]"] if several else ["[volume]"]
        yield lines + list(_volume(placed, number))


def _volume(placed: PlacedArray, number: dict[str, int]) -> Iterator[str]:
    array = placed.array
    yield f"name = {toml(shown(array.name))}"
    yield f"raid = {toml(array.level)}"
    if array.layout:
        yield f"layout = {toml(array.layout)}"
    if array.chunk and level_of(array.level).has_chunks:
        yield f"chunk = {toml(units.format_size(array.chunk))}"
    yield 'engine = "linux-md"'
    yield f"members = {_numbers(number[name] for name in placed.members)}"
    if placed.degraded:
        yield f"degraded = {_numbers(placed.degraded)}"
    if array.rebuild and placed.degraded:
        yield "rebuild = true"
    if array.bitmap and array.bitmap != "none":
        yield f"bitmap = {toml(array.bitmap)}"
    if array.spares:
        yield f"spares = {len(array.spares)}"


def _numbers(values: Iterable[int]) -> str:
    return "[" + ", ".join(str(value) for value in values) + "]"


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
