"""Sockets, interconnect, adapters and drives of a scenario, looked up and checked together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from nvmesim import units
from nvmesim.catalog import links
from nvmesim.catalog import load as catalog
from nvmesim.catalog.links import Link
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Profile
from nvmesim.catalog.toml import show_quantity
from nvmesim.errors import CatalogError, ScenarioError, UnitError, nearest
from nvmesim.scenario.resolved import Adapter, Drive, Interconnect, Root, Socket
from nvmesim.scenario.schema import (
    AdapterSpec,
    DriveSpec,
    MemorySpec,
    Scenario,
    ServerSpec,
    SocketSpec,
)

VMD_CYCLES: Final = 5000.0
"""Host cycles that a command through a VMD domain costs more. Assumed: a fifth of the 25.1k of
Windows Server 2019, as switching VMD on costs 10 to 25 % (Team, 2019 scaling article)."""
VMD_DRIVE_COMMANDS_PER_S: Final = 384e3
"""Commands per second of each drive that come through VMD. Assumed: what one drive and four lose
alike, idle cycles or not, lies in each drive's own path (its remapped interrupts, its driver);
17.5 %, the middle of 10 to 25 % (Team, 2019 scaling article), of the P4510's 465k."""
VMD_DOMAINS: Final = 3
VMD_LANES: Final = 16
"""Of each CPU. Source: Team, 2019 scaling article; chipict.com/tag/nvme, Skylake-SP."""
CONTROLLER_COMMANDS_PER_S: Final = 1.65e6
"""Commands a controller takes. Source: Team, 2019: LSI 9460-16i stops at 1.5 to 1.8 M."""
_RARELY: Final = (
    "turbo_ghz", "tdp_w", "power_active_w", "power_idle_w", "price", "workers", "bitmap_file",
    "per_child", "per_batch", "scsi", "sqpoll", "remote",
)  # fmt: skip
_ONLY_IF_USED: Final = ("filesystems.", "guests.", "sections.")
Part = TypeVar("Part", Root, Adapter)


@dataclass
class ResolveNotes:
    """Warnings beside the answer; filled while a scenario is resolved."""

    assumptions: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    _named: set[str] = field(default_factory=set)

    def assume(self, text: str) -> None:
        """Add *text* once."""
        if text not in self.assumptions:
            self.assumptions.append(text)

    def profile(self, profile: Profile, *used: str) -> None:
        """Name the numbers of *profile* that are assumed, once for each profile.

        Those that few runs use (a turbo frequency, a guest's cost) are named if they are *used*.
        """
        key = f"{profile.kind} {profile.name}"
        if key in self._named:
            return
        self._named.add(key)
        for name, quantity in catalog.assumed(profile):
            if name not in used and (name in _RARELY or name.startswith(_ONLY_IF_USED)):
                continue
            if isinstance(profile, DriveProfile) and not profile.counts(name):
                continue
            because = f" ({quantity.source})" if quantity.source else ""
            shown = show_quantity(profile, name)
            self.assume(f"{key}: {name} = {shown} is assumed{because}")


def profile(
    kind: catalog.Kind, reference: str | Mapping[str, Any], base: Path, key: str
) -> Profile:
    """Return the profile that *reference* means; ScenarioError naming *key* if there is none."""
    try:
        return catalog.load(kind, reference, base)
    except CatalogError as error:
        raise ScenarioError(f"{key}: {error}") from None


def resolve_sockets(scenario: Scenario, notes: ResolveNotes) -> tuple[Socket, ...]:
    """Return the sockets with frequency and memory; one of them at least has memory."""
    sockets = tuple(
        _socket(index, spec, scenario.base, notes)
        for index, spec in enumerate(scenario.server.sockets)
    )
    if not any(socket.has_memory for socket in sockets):
        raise ScenarioError("server.sockets: memory is false on every socket; one needs DIMMs")
    return sockets


def _socket(index: int, spec: SocketSpec, base: Path, notes: ResolveNotes) -> Socket:
    key = f"server.sockets.{index}"
    cpu = cast(CpuProfile, profile("cpu", spec.cpu, base, f"{key}.cpu"))
    notes.profile(cpu, *(["turbo_ghz"] if spec.ghz == "turbo" else []))
    stated = cpu.turbo_ghz if spec.ghz == "turbo" else cpu.ghz
    if stated is None:
        raise ScenarioError(
            f"{key}.ghz is 'turbo', which {cpu.name} does not state; write a number"
        )
    ghz = stated.value if isinstance(spec.ghz, str) else float(spec.ghz)
    if not ghz > 0:
        raise ScenarioError(f"{key}.ghz is {ghz:g}; write a number above 0")
    return Socket(index, cpu, ghz, _memory(spec, cpu, key, notes))


def _memory(spec: SocketSpec, cpu: CpuProfile, key: str, notes: ResolveNotes) -> float:
    """Bytes per second of the DIMMs; 0 if there are none."""
    if spec.memory is False:
        return 0.0
    stated = MemorySpec() if spec.memory is True else spec.memory
    if stated.bandwidth is not None:
        return float(stated.bandwidth)
    channels, rate = stated.channels or cpu.memory_channels, stated.rate or cpu.memory_rate
    if spec.memory is True:
        is_stated = "memory_channels" in cpu.model_fields_set
        why = f"all that {cpu.name} has" if is_stated else f"usual with PCIe {cpu.pcie_generation}"
        notes.assume(f"{key}.memory: {channels} channels of {rate}, {why}")
    try:
        return links.memory_bandwidth(channels, rate)
    except UnitError as error:
        raise ScenarioError(f"{key}.memory: {error}") from None


def resolve_interconnect(
    scenario: Scenario, sockets: tuple[Socket, ...], notes: ResolveNotes
) -> Interconnect | None:
    """Return what joins the sockets; None if there is one socket."""
    if len(sockets) < 2:
        return None
    spec = scenario.server.interconnect
    cpu = sockets[0].cpu
    count = spec.links or min(socket.cpu.interconnect_links for socket in sockets)
    kind = spec.kind or cpu.interconnect
    same_kind = kind == cpu.interconnect
    rate = spec.rate or (cpu.interconnect_rate if same_kind else None)
    left_out = [key for key in ("kind", "links", "rate") if getattr(spec, key) is None]
    if left_out:
        stated = ", ".join(left_out)
        notes.assume(f"server.interconnect: {stated} from {cpu.name}: {count} x {kind} at {rate}")
    if kind == "none" or count < 1:
        raise ScenarioError(f"server.interconnect: {cpu.name} joins no second socket; state kind")
    try:
        link = links.socket_link(kind, count, rate)
    except UnitError as error:
        raise ScenarioError(f"server.interconnect: {error}") from None
    if spec.latency is None:
        notes.assume(f"server.interconnect: crossing adds {links.SOCKET_LATENCY_PS / 1000:g} ns")
    latency = links.SOCKET_LATENCY_PS if spec.latency is None else spec.latency
    if spec.credits is not None and latency == 0:
        raise ScenarioError(
            "server.interconnect: credits bound the bandwidth to lines per round trip; latency is "
            "0, so state a latency or leave out credits"
        )
    return Interconnect(link, links.SOCKET_EFFICIENCY[kind], latency, spec.credits)


def resolve_roots(scenario: Scenario, sockets: tuple[Socket, ...]) -> tuple[Root, ...]:
    """Return the root complexes; their names differ and their sockets exist."""
    roots: list[Root] = []
    for index, spec in enumerate(scenario.server.roots):
        key = f"server.roots.{index}"
        if spec.name in (root.name for root in roots):
            raise ScenarioError(f"{key}.name is {spec.name!r}, which another root has")
        check_socket(spec.socket, sockets, f"{key}.socket")
        roots.append(Root(index, spec.name, spec.socket, spec.bandwidth))
    return tuple(roots)


def _named(name: str | None, parts: Sequence[Part], key: str, what: str) -> Part | None:
    """The one of *parts* called *name*; ScenarioError naming *key* if there is none."""
    if name is None:
        return None
    found = {part.name: part for part in parts}
    if name not in found:
        hint = nearest(name, found) if found else "the scenario has none"
        raise ScenarioError(f"{key} is {name!r}, which is not {what}; {hint}")
    return found[name]


def resolve_adapters(
    scenario: Scenario, sockets: tuple[Socket, ...], roots: tuple[Root, ...], notes: ResolveNotes
) -> tuple[Adapter, ...]:
    """Return the adapters; their names differ and their sockets exist."""
    adapters: list[Adapter] = []
    for index, spec in enumerate(scenario.adapters):
        key = f"adapters.{index}"
        if spec.name in (adapter.name for adapter in adapters):
            raise ScenarioError(f"{key}.name is {spec.name!r}, which another adapter has")
        root = _named(spec.root, roots, f"{key}.root", "a root complex")
        check_socket(spec.socket, sockets, f"{key}.socket")
        if root is None and "socket" not in spec.model_fields_set and len(sockets) > 1:
            notes.assume(f"{key}: socket not stated, 0 taken")
        socket = sockets[spec.socket if root is None else root.socket]
        adapter = _adapter(index, spec, socket, scenario.server, notes)
        adapters.append(replace(adapter, root=None if root is None else root.index))
    return tuple(adapters)


def _adapter(
    index: int, spec: AdapterSpec, socket: Socket, server: ServerSpec, notes: ResolveNotes
) -> Adapter:
    link = links.parse_link(spec.link)
    if link.kind not in ("pcie", "dmi"):
        raise ScenarioError(f"adapters.{index}.link is {spec.link!r}; an uplink is PCIe or DMI")
    link = _packets(link, server, spec.max_payload)
    link = _trained(
        link, links.pcie(socket.cpu.pcie_generation, 16), spec.name, socket.cpu.name, notes
    )
    cycles, commands = spec.cycles_per_command, spec.commands
    if spec.kind == "vmd" and cycles is None:
        cycles = VMD_CYCLES
        notes.assume(f"adapter {spec.name}: a command through VMD costs {cycles:g} cycles more")
    if spec.kind == "controller" and commands is None:
        commands = CONTROLLER_COMMANDS_PER_S
        notes.assume(f"adapter {spec.name}: the controller takes {commands / 1e6:g} M commands/s")
    each = spec.drive_commands
    if spec.kind == "vmd" and not spec.model_fields_set & {"drive_commands", "cycles_per_command"}:
        each = VMD_DRIVE_COMMANDS_PER_S
        notes.assume(f"adapter {spec.name}: VMD lets {each / 1e3:g}k commands/s of a drive through")
    return Adapter(
        index, spec.name, spec.kind, link, socket.index, spec.latency or 0, commands, cycles or 0.0,
        each, bytes_per_s=spec.bandwidth,
    )  # fmt: skip


def resolve_drives(
    scenario: Scenario, sockets: tuple[Socket, ...], adapters: tuple[Adapter, ...],
    roots: tuple[Root, ...], interconnect: Interconnect | None, notes: ResolveNotes,
) -> tuple[Drive, ...]:  # fmt: skip
    """Return one entry per physical drive; each is attached to something that is there."""
    drives: list[Drive] = []
    lists = (*(v.members for v in scenario.volume), *(w.targets for w in scenario.workload))
    is_numbered = any(named is not None for named in lists)
    for number, spec in enumerate(scenario.drives):
        key, first = f"drives.{number}", len(drives)
        part = cast(DriveProfile, profile("drive", spec.profile, scenario.base, f"{key}.profile"))
        in_state = _in_state(part, spec.state, key, notes)
        notes.profile(in_state)
        adapter = _named(spec.behind, adapters, f"{key}.behind", "an adapter")
        root = _named(spec.root, roots, f"{key}.root", "a root complex")
        socket, holder = spec.socket or 0, root or adapter
        if holder is not None:
            socket = holder.socket
        elif spec.socket is None and len(sockets) > 1:
            notes.assume(f"{key}: socket not stated, 0 taken")
        check_socket(socket, sockets, f"{key}.socket")
        link = _drive_link(in_state, spec, adapter, sockets[socket], scenario.server, key, notes)
        if link.kind == "pcie":
            link = _packets(link, scenario.server, None if adapter is None else adapter.link.mps)
        at = None if adapter is None else adapter.index
        above = adapter.root if adapter else root.index if root else None
        name, many = spec.name, spec.count > 1
        drives += [
            Drive(
                i, f"drive{i}" if name is None else f"{name}{i - first}" if many else name,
                in_state, socket, at, link, spec.delay, above, key, is_numbered,
            )
            for i in range(first, first + spec.count)
        ]  # fmt: skip
    names = [drive.name for drive in drives]
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError(f"drives: {name!r} is the name of two drives")
    _note_platform(scenario.server, len(drives), notes)
    check_lanes(sockets, adapters, tuple(drives), interconnect)
    return tuple(drives)


def _in_state(part: DriveProfile, state: str, key: str, notes: ResolveNotes) -> DriveProfile:
    if state == "empty":
        return catalog.unmapped(_in_state(part, "fresh", key, notes) if part.fresh else part)
    if state != part.state and not (state == "fresh" and catalog.has_fresh(part)):
        notes.assume(f"{key}: {part.name} has no values for state {state}; {part.state} taken")
        return part
    try:
        return catalog.with_state(part, "fresh" if state == "fresh" else "steady")
    except CatalogError as error:
        raise ScenarioError(f"{key}.profile: fresh: {error}") from None


def _drive_link(
    part: DriveProfile, spec: DriveSpec, adapter: Adapter | None, socket: Socket,
    server: ServerSpec, key: str, notes: ResolveNotes,
) -> Link:  # fmt: skip
    """Return the drive's port at the generation that both of its ends, and the bays, have."""
    try:
        link = links.parse_link(spec.link or part.link)
    except UnitError as error:
        raise ScenarioError(f"{key}.link: {error}") from None
    if link.kind != {"nvme": "pcie"}.get(part.interface, part.interface):
        raise ScenarioError(
            f"{key}.link is {str(link)!r}; {part.name} has {part.interface.upper()}, "
            f"write for example {part.link!r}"
        )
    platform = catalog.get("platform", server.platform) if server.platform else None
    if platform and platform.bay_link and spec.link is None and link.kind == "pcie":
        bays = links.parse_link(platform.bay_link)
        narrow = links.pcie(link.generation, min(link.lanes, bays.lanes))
        link = _trained(narrow, bays, key, "the platform's bays", notes)
    if adapter is None:
        other, at = links.pcie(socket.cpu.pcie_generation, 16), socket.cpu.name
    elif adapter.kind in ("adapter", "vmd"):
        other, at = adapter.link, adapter.name
    else:
        return link
    return _trained(link, other, key, at, notes)


def bays_of(server: ServerSpec) -> int | None:
    """Bays of the server's platform; None where nothing is known of them."""
    found = None if server.platform is None else catalog.get("platform", server.platform).bays
    return None if found is None else round(found.value)


def _note_platform(server: ServerSpec, drives: int, notes: ResolveNotes) -> None:
    """Say what of the server's platform is assumed, and whether it has a bay for each drive."""
    if server.platform is None:
        return
    found = catalog.get("platform", server.platform)
    facts = {"bays": found.bays, "lanes of a bay": found.bay_lanes,
             "lanes of a socket": found.socket_lanes}  # fmt: skip
    assumed = [name for name, q in facts.items() if q is not None and q.basis == "assumed"]
    if assumed:
        notes.assume(f"platform {found.name}: {', '.join(assumed)}: from memory, not read")
    if found.bays is not None and drives > found.bays.value:
        notes.assume(f"platform {found.name}: has {found.bays.value:.0f} bays for {drives} drives; "
                     "the others are attached alike")  # fmt: skip


def _packets(link: Link, server: ServerSpec, most: int | None = None) -> Link:
    """*link* with the packets that all on its way allow; *most* is an adapter's payload."""
    payload = min(server.max_payload or links.MPS_BYTES, most or links.PAYLOADS[-1])
    return replace(link, mps=payload, mrrs=server.max_read_request or links.MRRS_BYTES)


def _trained(link: Link, other: Link, name: str, at: str, notes: ResolveNotes) -> Link:
    trained = links.slower(link, other)
    if trained != link:
        notes.assume(f"{name}: {link} runs as {trained} at {at}")
    return trained


def check_socket(socket: int, sockets: tuple[Socket, ...], key: str) -> None:
    """Raise ScenarioError naming *key* if the server has no such socket."""
    if socket >= len(sockets):
        there = "socket 0 only" if len(sockets) == 1 else f"sockets 0 to {len(sockets) - 1}"
        raise ScenarioError(f"{key} is {socket}; the server has {there}")


def free_lanes(cpu: CpuProfile, interconnect: Interconnect | None) -> int:
    """Return the lanes that devices may use: each xGMI link takes 16 of an EPYC's own.

    Source: prime-wow.com/?p=263980, EPYC: 128 lanes also with two sockets, 64 of each join them.
    """
    if interconnect is None or interconnect.link.kind != "xgmi":
        return cpu.lanes
    return max(0, cpu.lanes - 16 * interconnect.link.lanes)


def check_lanes(
    sockets: tuple[Socket, ...], adapters: tuple[Adapter, ...], drives: tuple[Drive, ...],
    interconnect: Interconnect | None = None,
) -> None:  # fmt: skip
    """Raise ScenarioError if the links at a socket need more lanes than its CPU has."""
    for socket in sockets:
        own = [drive for drive in drives if drive.adapter is None and drive.socket == socket.index]
        uplinks = [adapter for adapter in adapters if adapter.socket == socket.index]
        domains = sum(adapter.kind == "vmd" for adapter in uplinks)
        if domains > VMD_DOMAINS:
            raise ScenarioError(
                f"socket {socket.index} has {domains} VMD domains; a CPU has {VMD_DOMAINS}, "
                f"of {VMD_LANES} lanes each: put several drives behind one"
            )
        lanes = {"drives": sum(drive.link.pcie_lanes for drive in own)} if own else {}
        lanes |= {adapter.name: adapter.link.pcie_lanes for adapter in uplinks}
        used, free = sum(lanes.values()), free_lanes(socket.cpu, interconnect)
        if used > free:
            parts = ", ".join(f"{name} {n}" for name, n in lanes.items() if n)
            raise ScenarioError(
                f"socket {socket.index} needs {used} PCIe lanes ({parts}); {socket.cpu.name} has "
                f"{free}"
            )
    for adapter in (adapter for adapter in adapters if adapter.kind == "vmd"):
        if adapter.link.pcie_lanes > VMD_LANES:
            raise ScenarioError(
                f"adapter {adapter.name}: link is {adapter.link}; "
                f"a VMD domain has {VMD_LANES} lanes"
            )
        behind = sum(drive.link.pcie_lanes for drive in drives if drive.adapter == adapter.index)
        if behind > adapter.link.pcie_lanes:
            raise ScenarioError(
                f"adapter {adapter.name}: {behind} lanes of drives; "
                f"a VMD domain of {adapter.link} has {adapter.link.pcie_lanes}"
            )


def capacity_bytes(drive: Drive) -> int:
    """Return the size of *drive* in bytes, whole 4 KiB pages."""
    return int(drive.profile.capacity.value) // units.SIZE_BYTES["KiB"] // 4 * 4096
