"""From what was read to sockets, uplinks, drives by number and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.capture.text import shown
from nvmesim.describe.facts import (
    Array,
    Disk,
    Facts,
    FoundCpu,
    Slot,
    Uplink,
    natural,
    pcie_parts,
)
from nvmesim.describe.parts import CatalogPart, cpu_part, drive_part, toml
from nvmesim.errors import InputError

NO_DRIVE: Final = "a drive that is in no dump"
STAND_IN_CPU: Final = "xeon-gold-6130"
ROOT_CPUS: Final = re.compile(r"EPYC 7[0-9A-Z]{2}[23]\b|Threadripper PRO [35]\d{3}WX")
"""CPUs with the I/O die of Zen 2 and 3, four root complexes each."""
ROOT_BANDWIDTH: Final = "39.7 GiB/s"
"""Source: docs/howto/pcie-tree.md, eight drives on one root complex of a published host."""
_UPLINK_LINK: Final = {"switch": "pcie3 x16", "vmd": "pcie3 x16", "controller": "pcie3 x8"}


@dataclass(frozen=True)
class PlacedDrive:
    """One drive with its profile and place."""

    disk: Disk
    part: CatalogPart
    socket: int
    link: str | None
    uplink: Uplink | None
    root: str | None = None
    """Address of the root complex, where the scenario has it."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Properties that equal drives share."""
        return self.part.toml, self.socket, self.link, self.uplink, self.root


@dataclass(frozen=True)
class PlacedArray:
    """An array all of whose roles have a drive, the missing ones named."""

    array: Array
    members: tuple[str, ...]
    degraded: tuple[int, ...]


@dataclass(frozen=True)
class NamedUplink:
    """An adapter of the scenario."""

    name: str
    kind: str
    link: str
    socket: int
    link_assumed: bool
    root: str | None = None
    """Address of the root complex, where the scenario has it."""


@dataclass(frozen=True)
class Server:
    """Everything that a scenario says, but for its load."""

    cpu: CatalogPart
    memory: list[bool]
    """Of each socket."""
    uplinks: dict[str, NamedUplink]
    """By address."""
    roots: dict[str, tuple[str, int]]
    """Name and socket by address."""
    drives: list[PlacedDrive]
    """In the order of their numbers."""
    arrays: list[PlacedArray]
    read: list[str]
    assumed: list[str]
    missing: list[str]
    """Facts that no dump has, and the command that would tell."""
    packets: tuple[int, int] | None = None
    """Largest PCIe payload and read request, bytes."""


class Sockets:
    """How many sockets there are, and which node belongs to which."""

    def __init__(self, facts: Facts, assumed: list[str]) -> None:
        self._nodes = sorted(facts.nodes.memory) if facts.nodes else []
        self._known = dict(facts.nodes.socket_of) if facts.nodes else {}
        self._facts, self._assumed = facts, assumed
        self.count = self._count()

    def _count(self) -> int:
        if self._facts.cpu:
            return self._facts.cpu.sockets
        named = [socket for socket in self._known.values() if socket is not None]
        if named:
            return max(named) + 1
        seen = [slot.node for slot in self._facts.slots if slot.node is not None]
        count = len(self._nodes) or max(seen, default=0) + 1
        known = bool(self._nodes or seen)
        what = f"{count}, one for each NUMA node seen" if known else "one"
        self._assumed.append(f"sockets: {what}; lscpu counts them")
        return count

    def of_node(self, node: int, what: str) -> int:
        """Return the socket of *node*, on which *what* is."""
        socket = self._known.get(node)
        if socket is not None:
            return socket
        nodes = self._nodes or list(range(self.count))
        if node not in nodes:
            listed = ", ".join(str(known) for known in nodes)
            raise InputError(
                f"{what} is on NUMA node {node}; the server has {listed}: "
                "are these dumps of one server?"
            )
        if self.count > 1:
            self.assume("NUMA nodes are taken to be numbered socket by socket")
        return nodes.index(node) * self.count // max(len(nodes), self.count)

    def of(self, place: Slot | Uplink, what: str) -> int:
        """Return the socket of a slot or an uplink; 0 if nothing says it."""
        if place.socket is not None:
            return place.socket
        if place.node is not None:
            return self.of_node(place.node, what)
        if self.count > 1:
            self.assume(f"where {what} is attached is not in the dumps: socket 0")
        return 0

    def memory(self) -> list[bool]:
        """True if each socket has memory; all have where nothing is said."""
        sizes = dict(self._facts.nodes.memory) if self._facts.nodes else {}
        has: dict[int, bool] = {}
        for node, size in sizes.items():
            socket = self.of_node(node, "memory")
            has[socket] = has.get(socket, False) or size is None or size > 0
        return [has.get(socket, True) for socket in range(self.count)]

    def assume(self, text: str) -> None:
        """Note *text* once."""
        if text not in self._assumed:
            self._assumed.append(text)


def place(facts: Facts) -> Server:
    """Return the server that *facts* describe; where they name no drive, with a stand-in."""
    assumed = [assumption.text for assumption in facts.assumed]
    sockets = Sockets(facts, assumed)
    arrays = _without_shared(facts.arrays, assumed)
    disks = _all_disks(facts, arrays, assumed)
    missing = _missing(facts, disks)
    disks = disks or [Disk(NO_DRIVE, interface="nvme")]
    pairs = _paired(disks, facts.slots, assumed)
    drives = [_placed(disk, pairs.get(disk.name), sockets) for disk in disks]
    placed = []
    for array in arrays:
        complete, added = _complete(array, drives, assumed)
        placed.append(complete)
        drives += added
    read = [*facts.read, *_roots_text(drives)]
    roots = _roots(drives, facts.cpu, sockets)
    if not roots:
        drives = [replace(drive, root=None) for drive in drives]
    uplinks = _uplinks(drives)
    cpu = _cpu(facts.cpu, drives, uplinks.values(), sockets)
    for text in dict.fromkeys(drive.part.assumed for drive in drives if drive.part.assumed):
        sockets.assume(text)
    return Server(
        cpu=cpu,
        memory=sockets.memory(),
        uplinks=uplinks,
        roots=roots,
        drives=_ordered(drives, placed),
        arrays=placed,
        read=read,
        assumed=assumed,
        missing=missing,
        packets=facts.packets,
    )


def _roots_text(drives: list[PlacedDrive]) -> list[str]:
    """Say which drives share a root complex, if that is known of all and there are several."""
    below: dict[str, list[str]] = {}
    for drive in drives:
        below.setdefault(drive.root or "", []).append(shown(drive.disk.name))
    if "" in below or len(below) < 2:
        return []
    listed = "; ".join(f"{root} has {', '.join(below[root])}" for root in sorted(below))
    return [f"{len(below)} PCIe root complexes: {listed}"]


def _roots(
    drives: list[PlacedDrive], cpu: FoundCpu | None, sockets: Sockets
) -> dict[str, tuple[str, int]]:
    """Return the root complexes of a CPU whose own bandwidth is known; empty: they are no limit."""
    if cpu is None or not ROOT_CPUS.search(cpu.model) or not all(d.root for d in drives):
        return {}
    sockets.assume(
        f"each PCIe root complex carries {ROOT_BANDWIDTH} in each direction, as was measured of a "
        "Threadripper PRO"
    )
    found = {drive.root or "": drive.socket for drive in drives}
    return {root: (f"root{n}", found[root]) for n, root in enumerate(sorted(found))}


def _missing(facts: Facts, disks: list[Disk]) -> list[str]:
    """Facts that no dump has, and the command that would tell."""
    found = []
    if not disks:
        found.append(
            "drives: no dump names one, so one stands in for them; add nvme list -o json, lspci "
            "-vv, lsblk -J or mdadm --detail"
        )
    if facts.cpu is None:
        found.append("the CPU and its sockets: add lscpu")
    if disks and not facts.slots and any(d.interface in ("nvme", None) for d in disks):
        found.append("links, adapters and sockets of the drives: add lspci -vv, as root")
    if facts.nodes is None or all(size is None for size in facts.nodes.memory.values()):
        found.append("which sockets have memory: add lstopo --of xml")
    return found


def _without_shared(arrays: list[Array], assumed: list[str]) -> list[Array]:
    """Leave out arrays on drives that a wider one has: a model has no partitions."""
    kept: list[Array] = []
    for array in sorted(arrays, key=lambda a: (-len(a.members), natural(a.name))):
        names = {name for name in array.members if name}
        if not names:
            assumed.append(f"{shown(array.name)} is left out: its drives are not in the dumps")
            continue
        stacked = next((n for n in names if n.startswith(("md", "dm-"))), None)
        if stacked:
            raise InputError(
                f"{shown(array.name)} has {shown(stacked)} as a member; arrays of arrays are not "
                "modelled, leave its file out"
            )
        other = next((k for k in kept if names & set(k.members)), None)
        if other is None:
            kept.append(array)
        else:
            assumed.append(
                f"{shown(array.name)} shares drives with {shown(other.name)} and is left out"
            )
    return sorted(kept, key=lambda a: natural(a.name))


def _all_disks(facts: Facts, arrays: list[Array], assumed: list[str]) -> list[Disk]:
    """Return the disks of all dumps; where none lists them, the slots or the members."""
    disks = list(facts.disks)
    named = {disk.name for disk in disks}
    for array in arrays:
        for name in (*array.members, *array.spares, *array.faulty, *array.replacing):
            if name and name not in named:
                disks.append(Disk(name, interface="nvme" if name.startswith("nvme") else "sata"))
                named.add(name)
                if not name.startswith("nvme"):
                    assumed.append(f"{shown(name)} is taken to be a SATA drive")
    if not disks:
        disks = [
            Disk(slot.address, slot.model, interface="nvme", address=slot.address)
            for slot in facts.slots
        ]
    return sorted(disks, key=lambda disk: natural(disk.name))


def _paired(disks: list[Disk], slots: list[Slot], assumed: list[str]) -> dict[str, Slot]:
    """Return the slot of each disk: by address or name, else in order, which is said."""
    by_address = {slot.address: slot for slot in slots}
    by_name = {name: slot for slot in slots for name in slot.disks}
    pairs: dict[str, Slot] = {}
    for disk in disks:
        found = by_name.get(disk.name) or by_address.get(disk.address or "")
        if found:
            pairs[disk.name] = found
    taken = {slot.address for slot in pairs.values()}
    free = sorted((s for s in slots if s.address not in taken), key=lambda s: natural(s.address))
    loose = [d for d in disks if d.name not in pairs and d.interface in ("nvme", None)]
    if not free or not loose:
        return pairs
    shapes = {(slot.node, slot.socket, slot.link, slot.uplink) for slot in free}
    if len(shapes) > 1:
        assumed.append(
            "which NVMe drive is at which PCI address is not in the dumps: both are taken in order "
            "(nvme list -v -o json or lstopo --of xml says it)"
        )
    if len(free) > len(loose):
        assumed.append(
            f"{len(free) - len(loose)} NVMe controllers have no drive in the list and are left out"
        )
    pairs |= {disk.name: slot for disk, slot in zip(loose, free, strict=False)}
    return pairs


def _placed(disk: Disk, slot: Slot | None, sockets: Sockets) -> PlacedDrive:
    if slot is None:
        if sockets.count > 1:
            sockets.assume("where drives are attached that only their list names: socket 0")
        return PlacedDrive(disk, drive_part(disk, None), 0, None, None)
    what = shown(disk.name)
    if not disk.model:
        disk = replace(disk, model=slot.model)
    socket = sockets.of(slot.uplink or slot, what) if slot.uplink else sockets.of(slot, what)
    link = slot.link if disk.interface in ("nvme", None) else None
    return PlacedDrive(disk, drive_part(disk, link), socket, link, slot.uplink, slot.root)


def _complete(
    array: Array, drives: list[PlacedDrive], assumed: list[str]
) -> tuple[PlacedArray, list[PlacedDrive]]:
    """Give each missing member a drive: the one being rebuilt, a faulty one, one like the rest."""
    members, there, added = list(array.members), [*array.replacing, *array.faulty], []
    degraded = tuple(role for role, name in enumerate(members) if name is None)
    for role in degraded:
        if there:
            members[role] = there.pop(0)
            continue
        like = next(drive for drive in drives if drive.disk.name in array.members)
        missing = f"{array.name}-missing-{role}"
        added.append(replace(like, disk=replace(like.disk, name=missing)))
        members[role] = missing
        assumed.append(f"{shown(array.name)}: the missing member {role} is taken to be as the rest")
    names = tuple(name for name in members if name is not None)
    return PlacedArray(array, names, degraded), added


def _ordered(drives: list[PlacedDrive], arrays: list[PlacedArray]) -> list[PlacedDrive]:
    """Number members first, then spares, then the rest; equal drives next to each other."""
    rank: dict[str, tuple[int, int]] = {}
    for index, placed in enumerate(arrays):
        rank |= dict.fromkeys(placed.members, (0, index))
        for name in placed.array.spares:
            rank.setdefault(name, (1, index))
    shapes: dict[tuple[object, ...], int] = {}
    for drive in drives:
        shapes.setdefault(drive.shape, len(shapes))

    def key(drive: PlacedDrive) -> tuple[tuple[int, int], int, list[int | str]]:
        return rank.get(drive.disk.name, (2, 0)), shapes[drive.shape], natural(drive.disk.name)

    return sorted(drives, key=key)


def _uplinks(drives: Iterable[PlacedDrive]) -> dict[str, NamedUplink]:
    """Name the uplinks by kind, in the order of their addresses."""
    found = {drive.uplink.address: (drive.uplink, drive.socket) for drive in drives if drive.uplink}
    named: dict[str, NamedUplink] = {}
    for address in sorted(found, key=natural):
        uplink, socket = found[address]
        number = sum(other.kind == uplink.kind for other in named.values())
        link = uplink.link or _UPLINK_LINK[uplink.kind]
        if uplink.kind == "vmd":
            link = _wide_enough(link, (d for d in drives if d.uplink == uplink))
        named[address] = NamedUplink(
            f"{uplink.kind}{number}", uplink.kind, link, socket, uplink.link is None,
            next((drive.root for drive in drives if drive.uplink == uplink), None),
        )  # fmt: skip
    return named


def _wide_enough(link: str, drives: Iterable[PlacedDrive]) -> str:
    """Widen the link of a VMD domain until its drives fit: the dump shows that they do."""
    generation, lanes = pcie_parts(link)
    needed = sum(_lanes(drive) for drive in drives)
    while lanes < min(needed, 32):
        lanes *= 2
    return f"pcie{generation} x{lanes}"


def _lanes(drive: PlacedDrive) -> int:
    """PCIe lanes of a drive; x4 where its link is not known, none for SATA and SAS."""
    if drive.link:
        return pcie_parts(drive.link)[1]
    return 4 if drive.disk.interface in ("nvme", None) else 0


def _cpu(
    cpu: FoundCpu | None,
    drives: list[PlacedDrive],
    uplinks: Iterable[NamedUplink],
    sockets: Sockets,
) -> CatalogPart:
    """Return the CPU, with at least the lanes and the generation that the drives prove."""
    if cpu is None:
        sockets.assume(f"no dump names the CPU (lscpu does): {STAND_IN_CPU} stands in for it")
        return CatalogPart(toml(STAND_IN_CPU))
    used = [0] * sockets.count
    generations = [3]
    for drive in drives:
        generations += [pcie_parts(drive.link)[0]] if drive.link else []
        used[drive.socket] += _lanes(drive) if drive.uplink is None else 0
    for uplink in uplinks:
        generation, lanes = pcie_parts(uplink.link)
        generations.append(generation)
        used[uplink.socket] += lanes
    part = cpu_part(cpu, max(used), max(generations))
    if part.assumed:
        sockets.assume(part.assumed)
    if cpu.guest:
        sockets.assume("lscpu ran in a guest: sockets, cores and clock are what it was given")
    return part
