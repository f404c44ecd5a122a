"""From what was read to sockets, uplinks, drives by number and volumes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.capture.text import natural, shown
from nvmesim.catalog.links import Link, pcie
from nvmesim.describe.facts import (
    Array,
    CatalogPart,
    Disk,
    Facts,
    FoundCpu,
    Slot,
    Uplink,
    cpu_part,
    drive_part,
)
from nvmesim.errors import InputError

NO_DRIVE: Final = "a drive that is in no dump"
STAND_IN_CPU: Final = "xeon-gold-6130"
ROOT_CPUS: Final = re.compile(r"EPYC 7[0-9A-Z]{2}[23]\b|Threadripper PRO [35]\d{3}WX")
"""CPUs with the I/O die of Zen 2 and 3, four root complexes each."""
ROOT_BANDWIDTH: Final = "39.7 GiB/s"
"""Source: docs/howto/pcie-tree.md, eight drives on one root complex of a published host."""
_UPLINK_LANES: Final = {"switch": 16, "vmd": 16, "controller": 8}


@dataclass(frozen=True)
class PlacedDrive:
    """One drive with its profile and place."""

    disk: Disk
    part: CatalogPart
    socket: int
    link: Link | None = None
    uplink: Uplink | None = None
    root: str | None = None  # address of the root complex, where the scenario has it

    @property
    def shape(self) -> tuple[object, ...]:
        """Properties that equal drives share."""
        return str(self.part.profile), self.socket, self.link, self.uplink, self.root

    @property
    def lanes(self) -> int:
        """PCIe lanes; x4 where the link is not known, none for SATA and SAS."""
        if self.link:
            return self.link.lanes
        return 4 if self.disk.interface in ("nvme", None) else 0


@dataclass(frozen=True)
class Server:
    """Everything that a scenario says, but for its load."""

    cpu: CatalogPart
    memory: list[bool]  # of each socket
    uplinks: dict[str, Uplink]  # by address, named
    roots: dict[str, tuple[str, int]]  # name and socket by address
    drives: list[PlacedDrive]  # in the order of their numbers
    arrays: list[Array]  # all of whose roles have a drive
    read: list[str]
    assumed: list[str]
    missing: list[str]  # facts that no dump has, and the command that would tell
    packets: tuple[int, int] | None = None  # largest PCIe payload and read request, bytes


class Sockets:
    """How many sockets there are, and which node belongs to which."""

    def __init__(self, facts: Facts, assumed: list[str]) -> None:
        self._memory = facts.nodes.memory if facts.nodes else {}
        self._known = facts.nodes.socket_of if facts.nodes else {}
        self._assumed = assumed
        named = [socket for socket in self._known.values() if socket is not None]
        seen = [slot.node for slot in facts.slots if slot.node is not None]
        self.count = max(named, default=-1) + 1
        if facts.cpu:
            self.count = facts.cpu.sockets
        elif not named:
            self.count = len(self._memory) or max(seen, default=0) + 1
            is_known = bool(self._memory or seen)
            what = f"{self.count}, one for each NUMA node seen" if is_known else "one"
            self._assumed.append(f"sockets: {what}; lscpu counts them")

    def of_node(self, node: int, what: str) -> int:
        """Return the socket of *node*, on which *what* is."""
        socket = self._known.get(node)
        if socket is not None:
            return socket
        nodes = sorted(self._memory) or list(range(self.count))
        if node not in nodes:
            raise InputError(
                f"{what} is on NUMA node {node}; the server has {', '.join(map(str, nodes))}: "
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
        has: dict[int, bool] = {}
        for node, size in self._memory.items():
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
    placed = [_complete(array, drives, assumed) for array in arrays]
    below: dict[str, list[PlacedDrive]] = {}
    for drive in drives:
        below.setdefault(drive.root or "", []).append(drive)
    read, roots = list(facts.read), {}
    if "" not in below and len(below) > 1:
        names = {r: ", ".join(shown(d.disk.name) for d in below[r]) for r in sorted(below)}
        listed = "; ".join(f"{root} has {name}" for root, name in names.items())
        read.append(f"{len(below)} PCIe root complexes: {listed}")
    if "" not in below and facts.cpu and ROOT_CPUS.search(facts.cpu.model):
        sockets.assume(
            f"each PCIe root complex carries {ROOT_BANDWIDTH} in each direction, as was measured "
            "of a Threadripper PRO"
        )
        roots = {r: (f"root{n}", below[r][-1].socket) for n, r in enumerate(sorted(below))}
    else:  # they are no limit
        drives = [replace(drive, root=None) for drive in drives]
    uplinks = _uplinks(drives, sockets)
    cpu = _cpu(facts.cpu, drives, uplinks.values(), sockets)
    for drive in drives:
        if drive.part.assumed:
            sockets.assume(drive.part.assumed)
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
        return PlacedDrive(disk, drive_part(disk, None), 0)
    disk = replace(disk, model=disk.model or slot.model)
    socket = sockets.of(slot.uplink or slot, shown(disk.name))
    link = slot.link if disk.interface in ("nvme", None) else None
    return PlacedDrive(disk, drive_part(disk, link), socket, link, slot.uplink, slot.root)


def _complete(array: Array, drives: list[PlacedDrive], assumed: list[str]) -> Array:
    """Give each missing member a drive: the one being rebuilt, a faulty one, one like the rest.

    The last kind is added to *drives*.
    """
    members, there = list(array.members), [*array.replacing, *array.faulty]
    degraded = tuple(role for role, name in enumerate(members) if name is None)
    for role in degraded:
        if there:
            members[role] = there.pop(0)
            continue
        like = next(drive for drive in drives if drive.disk.name in array.members)
        members[role] = missing = f"{array.name}-missing-{role}"
        drives.append(replace(like, disk=replace(like.disk, name=missing)))
        assumed.append(f"{shown(array.name)}: the missing member {role} is taken to be as the rest")
    return replace(array, members=tuple(members), degraded=degraded)


def _ordered(drives: list[PlacedDrive], arrays: list[Array]) -> list[PlacedDrive]:
    """Number members first, then spares, then the rest; equal drives next to each other."""
    rank: dict[str | None, tuple[int, int]] = {}
    for index, array in enumerate(arrays):
        rank |= dict.fromkeys(array.members, (0, index))
        for name in array.spares:
            rank.setdefault(name, (1, index))
    shapes: dict[tuple[object, ...], int] = {}
    for drive in drives:
        shapes.setdefault(drive.shape, len(shapes))

    def key(drive: PlacedDrive) -> tuple[tuple[int, int], int, list[int | str]]:
        return rank.get(drive.disk.name, (2, 0)), shapes[drive.shape], natural(drive.disk.name)

    return sorted(drives, key=key)


def _uplinks(drives: Iterable[PlacedDrive], sockets: Sockets) -> dict[str, Uplink]:
    """Name the uplinks by kind, in the order of their addresses."""
    behind: dict[str, list[PlacedDrive]] = {}
    for drive in drives:
        if drive.uplink:
            behind.setdefault(drive.uplink.address, []).append(drive)
    named: dict[str, Uplink] = {}
    for address in sorted(behind, key=natural):
        last = behind[address][-1]
        uplink = last.uplink
        assert uplink is not None
        number = sum(other.kind == uplink.kind for other in named.values())
        link = uplink.link or pcie(3, _UPLINK_LANES[uplink.kind])
        same = [drive for drive in behind[address] if drive.uplink == uplink]
        if uplink.kind == "vmd":  # as wide as its drives need: the dump shows that they fit
            while link.lanes < min(sum(drive.lanes for drive in same), 32):
                link = pcie(link.generation, 2 * link.lanes)
        name = f"{uplink.kind}{number}"
        if uplink.link is None:
            sockets.assume(f"{name} at {shown(address)}: {link}")
        named[address] = replace(
            uplink, name=name, link=link, socket=last.socket, root=same[0].root
        )
    return named


def _cpu(
    cpu: FoundCpu | None, drives: list[PlacedDrive], uplinks: Iterable[Uplink],
    sockets: Sockets,
) -> CatalogPart:  # fmt: skip
    """Return the CPU, with at least the lanes and the generation that the drives prove."""
    if cpu is None:
        sockets.assume(f"no dump names the CPU (lscpu does): {STAND_IN_CPU} stands in for it")
        return CatalogPart(STAND_IN_CPU)
    used = [0] * sockets.count
    generations = [3, *(drive.link.generation for drive in drives if drive.link)]
    for drive in drives:
        used[drive.socket] += 0 if drive.uplink else drive.lanes
    for uplink in uplinks:
        if uplink.link:
            generations.append(uplink.link.generation)
            used[uplink.socket or 0] += uplink.link.lanes
    part = cpu_part(cpu, max(used), max(generations))
    if part.assumed:
        sockets.assume(part.assumed)
    if cpu.guest:
        sockets.assume("lscpu ran in a guest: sockets, cores and clock are what it was given")
    return part
