"""Reader of ``lstopo --of xml`` (hwloc 1.11, 2 and 3)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.capture.text import Source, shown
from nvmesim.describe.facts import (
    Disk,
    Facts,
    FoundCpu,
    Interface,
    Nodes,
    Slot,
    Uplink,
    pcie_from_bandwidth,
    slower_link,
)
from nvmesim.describe.machine import cpu_text, named_ghz

LARGEST: Final = 32 << 20
MAX_DEPTH: Final = 64
"""lstopo nests about 20 objects on the largest machines."""
_SUBSET: Final = re.compile(r"<!ENTITY|<!DOCTYPE[^>\[]*\[", re.I)
_TAG: Final = re.compile(r"<(/?)[A-Za-z][^<>]*?(/?)>")
_NVME: Final = "0108"
_BEHIND: Final[dict[str, Interface]] = {
    "0104": "sas",
    "0107": "sas",
    "0106": "sata",
    "0101": "sata",
}
"""Interface of the drives behind a controller of that PCI class."""
_DRIVE_WIDTHS: Final = (4, 2, 1, 8, 16)
_UPLINK_WIDTHS: Final = (16, 8, 4, 2, 1)
_PACKAGES: Final = ("Package", "Socket")
"""hwloc 2 and 1."""
_BUSES: Final = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-")
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
    root = _parsed(source)
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


def _parsed(source: Source) -> ET.Element:
    text = source.text(LARGEST)
    if _SUBSET.search(text):
        raise source.error("declares entities", "give the XML as lstopo wrote it")
    depth = deepest = 0
    for tag in _TAG.finditer(text):
        depth += -1 if tag[1] else 0 if tag[2] else 1
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise source.error("is nested too deeply for lstopo", "run lstopo --of xml again")
    try:
        return ET.fromstring(re.sub(r"^[ \t]*<\?xml[^>]*\?>", "", text))
    except (ET.ParseError, ValueError) as error:
        again = "run lstopo --of xml again"
        raise source.error(f"is cut or broken XML ({shown(error)})", again) from None


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
            buses = _BUSES.match(element.get("bridge_pci", ""))
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
    if kind == _NVME:
        disks = [_disk(block, "nvme", address) for block in blocks]
        link = pcie_from_bandwidth(speed, _DRIVE_WIDTHS)
        if link and place.bridges:
            bridge = pcie_from_bandwidth(_speed(place.bridges[-1]), _DRIVE_WIDTHS)
            link = slower_link(link, bridge)
        uplink = None
        if len(place.bridges) > 2:  # root port, upstream port of a switch, downstream port
            top = place.bridges[1]
            width = pcie_from_bandwidth(_speed(top), _UPLINK_WIDTHS)
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
