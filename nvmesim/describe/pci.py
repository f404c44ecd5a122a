"""Readers of ``lspci -vv`` and ``lstopo --of xml`` (hwloc 1.11 to 3): where drives are, links."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.capture.checked_numbers import parsed_xml
from nvmesim.capture.text import Source, natural, shown
from nvmesim.catalog.links import PAYLOADS, Link, pcie
from nvmesim.describe.facts import (
    Disk,
    Facts,
    FoundCpu,
    Interface,
    Nodes,
    Slot,
    Uplink,
    pcie_at,
    pcie_from_bandwidth,
    slower_link,
)
from nvmesim.describe.listings import cpu_text, named_ghz

_ADDRESS: Final = re.compile(
    r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\n]+): (.*)$", re.M
)
_SPEED: Final = re.compile(r"Speed ([\d.]+) ?GT/s[^,]*, Width x(\d+)")
_BUSES: Final = re.compile(r"Bus: primary=([0-9a-f]+), secondary=([0-9a-f]+)")
_CONTROLLERS: Final = ("RAID bus controller", "Serial Attached SCSI controller")
VMD_NAME: Final = "Volume Management Device"
VMD_DOMAIN: Final = 0x10000  # Linux numbers the PCI domains behind VMD from here
VMD_LANES: Final = 16
_EMULATED: Final = re.compile(r"QEMU|Red Hat|VirtualBox|VMware", re.I)
"""Emulated devices state 2.5 GT/s x1 whatever carries them."""


@dataclass(frozen=True)
class Function:
    """One PCI function."""

    address: str
    kind: str
    model: str
    node: int | None = None
    link: Link | None = None
    fastest: Link | None = None
    port: str = ""  # Root Port, Upstream Port, Downstream Port, Endpoint; "" if it does not say
    secondary: int | None = None  # bus below a bridge
    denied: bool = False
    whole: bool = True  # True if nothing of its description is missing
    packets: tuple[int, int] | None = None  # largest payload and read request that are set, bytes

    @property
    def domain(self) -> int:
        """The PCI domain."""
        return int(self.address.split(":")[0], 16)

    @property
    def bus(self) -> int:
        """The bus it is on."""
        return int(self.address.split(":")[1], 16)

    @property
    def emulated(self) -> bool:
        """True if a hypervisor made it up."""
        return bool(_EMULATED.search(self.model))


def full_address(text: str) -> str:
    """Return *text* with its domain.

    >>> full_address("41:00.0"), full_address("10000:01:00.0")
    ('0000:41:00.0', '10000:01:00.0')
    """
    return text if text.count(":") == 2 else f"0000:{text}"


def read_lspci(source: Source) -> Facts:
    """Read ``lspci -vv``; of plain ``lspci`` no more than that the drives are there."""
    blocks = _ADDRESS.split(source.text())[1:]
    found = [_function(*blocks[at : at + 4]) for at in range(0, len(blocks), 4)]
    drives = [f for f in found if f.kind.startswith("Non-Volatile memory controller")]
    is_plain = not any(block.strip() for block in blocks[3::4])
    cut = next((drive for drive in drives if not (drive.whole or is_plain)), None)
    if cut:
        raise source.error(
            f"is cut: {cut.address} has no link status (LnkSta)", "run lspci -vv again"
        )
    return _facts(found, drives, is_plain=is_plain)


def _function(address: str, kind: str, model: str, details: str) -> Function:
    buses = _BUSES.search(details)
    port = re.search(r"Express \(v\d\) ([A-Z][A-Za-z]+(?: [A-Z][a-z]+)*)", details)
    node = re.search(r"^[ \t]*NUMA node: (\d+)$", details, re.M)
    # DevCtl sets these; DevCap has the largest
    packets = re.search(r"\bMaxPayload (\d{3,4}) bytes, MaxReadReq (\d{3,4}) bytes", details)
    sizes = (int(packets[1]), int(packets[2])) if packets else (0, 0)
    return Function(
        address=full_address(address),
        kind=re.sub(r" \[[0-9a-f]{4}\]$", "", kind),
        model=re.sub(r" \((?:rev|prog-if) .*$", "", model),
        node=int(node[1]) if node else None,
        link=_link(details, "LnkSta:"),
        fastest=_link(details, "LnkCap:"),
        port=port[1] if port else "",
        secondary=int(buses[2], 16) if buses else None,
        denied="<access denied>" in details,
        whole="LnkSta:" in details or ("Capabilities:" in details and "LnkCap:" not in details),
        packets=sizes if all(size in PAYLOADS for size in sizes) else None,
    )


def _link(block: str, key: str) -> Link | None:
    line = re.search(rf"^[ \t]*{key}\s*(.*)$", block, re.M)
    speed = _SPEED.search(line[1]) if line else None
    return pcie_at(float(speed[1]), int(speed[2])) if speed else None


def _facts(functions: list[Function], drives: list[Function], *, is_plain: bool) -> Facts:
    bridges = {(f.domain, f.secondary): f for f in functions if f.secondary is not None}
    vmds = sorted(
        (f for f in functions if VMD_NAME in f.model and f.secondary is None),
        key=lambda f: natural(f.address),
    )
    facts = Facts()
    facts.slots = [_slot(drive, bridges, vmds, facts) for drive in drives]
    shapes = [
        f"{slot.link or 'link unknown'}, "
        + ("NUMA node unknown" if slot.node is None else f"node {slot.node}")
        for slot in facts.slots
    ]
    places = "; ".join(f"{shapes.count(shape)} x {shape}" for shape in dict.fromkeys(shapes))
    many = "s" if len(drives) != 1 else ""
    facts.read.insert(0, f"{len(drives)} NVMe controller{many}{': ' if places else ''}{places}")
    sizes = [drive.packets for drive in drives if drive.packets and not drive.emulated]
    if sizes:
        facts.packets = min(p for p, _ in sizes), min(r for _, r in sizes)
        facts.read.append(
            f"packets of {facts.packets[0]} bytes, read requests of {facts.packets[1]}"
        )
    for function in functions:
        if function.kind in _CONTROLLERS and VMD_NAME not in function.model:
            facts.assume(
                f"the controller at {function.address} ({shown(function.model)}, "
                f"{function.link or 'pcie3 x8'}) is left out; if drives are behind it, give it an "
                "[[adapters]] table of kind controller"
            )
    if is_plain and drives:
        facts.assume("plain lspci shows no links: those of the drive profiles are used")
    if any(drive.denied for drive in drives):
        facts.assume("lspci was not run as root: links are those of the drive profiles")
    silent = [d.address for d in drives if not (d.link or d.denied or d.emulated or is_plain)]
    if silent:
        facts.assume(
            f"the link of {', '.join(silent)} is not in the dumps: that of its profile is used"
        )
    if any(drive.emulated for drive in drives):
        facts.assume("emulated NVMe reports no real links: those of the profiles are used")
    return facts


def _slot(
    drive: Function, bridges: Mapping[tuple[int, int], Function], vmds: list[Function],
    facts: Facts,
) -> Slot:  # fmt: skip
    path: list[Function] = []  # bridges to the CPU, the nearest first
    current = drive
    while (bridge := bridges.get((current.domain, current.bus))) and bridge not in path:
        path.append(bridge)
        current = bridge
    link = None if drive.emulated or drive.denied else drive.link
    if link and path and not path[0].emulated:
        link = slower_link(link, path[0].link)
    if link and drive.fastest and slower_link(link, drive.fastest) != drive.fastest:
        facts.read.append(f"{drive.address} runs at {link} of the {drive.fastest} it can")
    switches = [bridge for bridge in path if bridge.port.startswith("Upstream")]
    if switches:  # the one nearest to the CPU
        top = switches[-1]
        link_up = None if top.emulated else top.link
        uplink: Uplink | None = Uplink("switch", top.address, link_up, top.node)
    else:
        uplink = _vmd(drive, vmds, facts)
    node = next((f.node for f in [drive, *path] if f.node is not None), None)
    if uplink:
        node = uplink.node if node is None else node
        uplink = replace(uplink, node=node if uplink.node is None else uplink.node)
    return Slot(
        address=drive.address,
        model=re.sub(r"^(.*?) (?:Corporation|Co Ltd|Inc\.?) ", r"\1 ", drive.model),
        link=link,
        node=node,
        uplink=uplink,
        root=path[-1].address.rpartition(":")[0] if path and drive.domain < VMD_DOMAIN else None,
    )


def _vmd(drive: Function, vmds: list[Function], facts: Facts) -> Uplink | None:
    """Return the VMD domain of *drive*: Linux counts them as it finds the controllers."""
    number = drive.domain - VMD_DOMAIN
    if number < 0:
        return None
    link = pcie(drive.link.generation if drive.link else 3, VMD_LANES)
    facts.assume(f"a VMD domain is taken to have {VMD_LANES} lanes of its drives' generation")
    if number >= len(vmds):
        facts.assume(f"no VMD controller is listed for PCI domain {drive.domain:x}")
        return Uplink("vmd", f"{drive.domain:x}", link)
    return Uplink("vmd", vmds[number].address, link, vmds[number].node)


LARGEST: Final = 32 << 20
MAX_DEPTH: Final = 64  # lstopo nests about 20 objects on the largest machines
_SUBSET: Final = re.compile(r"<!ENTITY|<!DOCTYPE[^>\[]*\[", re.I)
_BEHIND: Final[dict[str, Interface]] = {
    "0104": "sas",
    "0107": "sas",
    "0106": "sata",
    "0101": "sata",
}
"""Interface of the drives behind a controller of that PCI class."""
_DRIVE_WIDTHS: Final = (4, 2, 1, 8, 16)
_PACKAGES: Final = ("Package", "Socket")  # hwloc 2 and 1
_ROOT_BUSES: Final = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-")
_BLOCK: Final = re.compile(r"(nvme\d+(?:c\d+)?n\d+|sd[a-z]+|hd[a-z]+)$")


@dataclass(frozen=True)
class _Place:
    """Where in the tree an object is."""

    node: int | None = None
    socket: int | None = None
    bridges: tuple[ET.Element, ...] = ()
    root: str | None = None


def read_lstopo(source: Source) -> Facts:
    """Read packages, NUMA nodes, PCI drives and their links."""
    text, again = source.text(LARGEST), "run lstopo --of xml again"
    if _SUBSET.search(text):
        raise source.error("declares entities", "give the XML as lstopo wrote it")
    text = re.sub(r"^[ \t]*<\?xml[^>]*\?>", "", text)
    root = parsed_xml(source, text, most=MAX_DEPTH, do=again)
    packages = [o for o in root.iter("object") if o.get("type") in _PACKAGES]
    if not packages:
        raise source.error("has no Package (socket)", "run lstopo --of xml on the server itself")
    for number, package in enumerate(packages):  # sockets count from 0, packages need not
        package.set("os_index", str(number))
    cpu = _cpu(source, packages)
    facts = Facts(cpu=cpu, read=[cpu_text(cpu)])
    nodes = Nodes({}, {})
    for element, place in _walk(root):
        index = _number(element.get("os_index"))
        if element.get("type") == "PCIDev":
            _attach(element, place, facts)
        elif element.get("type") == "NUMANode" and index is not None:
            below = next((o for o in element.iter("object") if o.get("type") in _PACKAGES), None)
            socket = place.socket if below is None else _number(below.get("os_index"))
            nodes.memory[index] = _number(element.get("local_memory"))
            nodes.socket_of[index] = socket
    facts.nodes = nodes if nodes.memory else None
    if facts.slots:
        facts.read.append(f"{len(facts.slots)} drives on PCI or behind a controller")
        facts.assume(
            "lstopo gives bandwidths, not widths: NVMe drives are taken to be x4, uplinks x16 or "
            "x8",
            unless="lspci -vv",
        )
    return facts


def _info(element: ET.Element, name: str) -> str:
    found = (info.get("value", "") for info in element.findall("info") if info.get("name") == name)
    return next(found, "")


def _cpu(source: Source, packages: list[ET.Element]) -> FoundCpu:
    first = packages[0]
    kinds = [element.get("type") for element in first.iter("object")]
    cores, threads = kinds.count("Core"), kinds.count("PU")
    if not threads:
        raise source.error("has a Package without PUs", "run lstopo --of xml without filters")
    model = _info(first, "CPUModel")
    return FoundCpu(
        model=model,
        sockets=len(packages),
        cores=cores or threads,
        threads_per_core=max(1, threads // cores) if cores else 1,
        base_ghz=named_ghz(model),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 19 else None


def _walk(root: ET.Element) -> Iterator[tuple[ET.Element, _Place]]:
    """Yield each object with what it is in."""
    todo = [(root, _Place())]
    while todo:
        element, place = todo.pop()
        kind = element.get("type")
        if element.tag == "object":
            yield element, place
        index = _number(element.get("os_index"))
        if kind in _PACKAGES:
            place = replace(place, socket=index)
        elif kind == "NUMANode":
            place = replace(place, node=index)
        elif kind == "Bridge" and element.get("bridge_type") == "0-1":
            buses = _ROOT_BUSES.match(element.get("bridge_pci", ""))
            place = replace(place, root=f"{buses[1]}:{buses[2]}" if buses else None)
        elif kind == "Bridge" and element.get("bridge_type") == "1-1":
            place = replace(place, bridges=(*place.bridges, element))
        beside = [o for o in element.findall("object") if o.get("type") == "NUMANode"]
        if kind in (*_PACKAGES, "Group") and len(beside) == 1:
            place = replace(place, node=_number(beside[0].get("os_index")))
        todo.extend((child, place) for child in reversed(element.findall("object")))


def _attach(device: ET.Element, place: _Place, facts: Facts) -> None:
    """Add the drives of one PCI device to *facts*."""
    kind = device.get("pci_type", "")[:4]
    blocks = [o for o in device.iter("object") if _BLOCK.match(o.get("name", ""))]
    address = device.get("pci_busid", "")
    speed = _speed(device)
    if kind == "0108":  # NVMe
        disks = [_disk(block, "nvme", address) for block in blocks]
        link = pcie_from_bandwidth(speed, _DRIVE_WIDTHS)
        if link and place.bridges:
            bridge = pcie_from_bandwidth(_speed(place.bridges[-1]), _DRIVE_WIDTHS)
            link = slower_link(link, bridge)
        uplink = None
        if len(place.bridges) > 2:  # root port, upstream port of a switch, downstream port
            top = place.bridges[1]
            width = pcie_from_bandwidth(_speed(top), (16, 8, 4, 2, 1))
            uplink = Uplink("switch", top.get("pci_busid", ""), width, place.node, place.socket)
        slot = Slot(
            address=address,
            model=_info(device, "PCIDevice"),
            link=link,
            node=place.node,
            socket=place.socket,
            uplink=uplink,
            root=place.root,
            disks=tuple(disk.name for disk in disks),
        )
        facts.disks += disks
        facts.slots.append(slot)
    elif kind in _BEHIND:
        uplink = None
        if _BEHIND[kind] == "sas":
            width = pcie_from_bandwidth(speed, (8, 16, 4, 2, 1))
            uplink = Uplink("controller", address, width, place.node, place.socket)
        for block in blocks:
            name = block.get("name", "")
            if not name.startswith("nvme"):
                place_of = f"{address}/{name}"
                facts.disks.append(_disk(block, _BEHIND[kind], place_of))
                facts.slots.append(
                    Slot(
                        address=place_of,
                        node=place.node,
                        socket=place.socket,
                        uplink=uplink,
                        disks=(name,),
                    )
                )


def _disk(block: ET.Element, interface: Interface, address: str) -> Disk:
    kib, sector = _number(_info(block, "Size")), _number(_info(block, "SectorSize"))
    return Disk(
        # the namespace's own name: nvme0c1n1 is a path of nvme0n1
        name=re.sub(r"^(nvme\d+)c\d+(n\d+)$", r"\1\2", block.get("name", "")),
        model=_info(block, "Model"),
        size=kib * 1024 if kib and sector else None,
        interface=interface,
        address=address,
    )


def _speed(element: ET.Element) -> float:
    text = element.get("pci_link_speed", "")
    return float(text) if re.fullmatch(r"\d{1,6}(?:\.\d{1,12})?", text) else 0.0
