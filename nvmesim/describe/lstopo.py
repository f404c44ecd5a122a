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
_NVME, _RAID, _SAS, _SATA = "0108", "0104", "0107", "0106"
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
    facts = Facts(cpu=_cpu(source, packages), nodes=_nodes(root))
    facts.read.append(cpu_text(facts.cpu) if facts.cpu else "")
    for device, place in _devices(root):
        _attach(device, place, facts)
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
    for info in element.findall("info"):
        if info.get("name") == name:
            return info.get("value", "")
    return ""


def _count(element: ET.Element, kind: str) -> int:
    return sum(child.get("type") == kind for child in element.iter("object"))


def _cpu(source: Source, packages: list[ET.Element]) -> FoundCpu:
    first = packages[0]
    cores, threads = _count(first, "Core"), _count(first, "PU")
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


def _nodes(root: ET.Element) -> Nodes | None:
    memory: dict[int, int | None] = {}
    socket_of: dict[int, int | None] = {}
    for element, place in _walk(root):
        index = _number(element.get("os_index"))
        if element.get("type") != "NUMANode" or index is None:
            continue
        memory[index] = _number(element.get("local_memory"))
        below = next((o for o in element.iter("object") if o.get("type") in _PACKAGES), None)
        socket = place.socket if below is None else _number(below.get("os_index"))
        socket_of[index] = socket
    return Nodes(memory, socket_of) if memory else None


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


def _devices(root: ET.Element) -> Iterator[tuple[ET.Element, _Place]]:
    for element, place in _walk(root):
        if element.get("type") == "PCIDev":
            yield element, place


def _attach(device: ET.Element, place: _Place, facts: Facts) -> None:
    """Add the drives of one PCI device to *facts*."""
    kind = device.get("pci_type", "")[:4]
    blocks = [o for o in device.iter("object") if _BLOCK.match(o.get("name", ""))]
    address = device.get("pci_busid", "")
    if kind == _NVME:
        names = tuple(_plain(o.get("name", "")) for o in blocks)
        facts.disks += [_disk(o, "nvme", address) for o in blocks]
        facts.slots.append(
            Slot(
                address=address,
                model=_info(device, "PCIDevice"),
                link=_link_of(device, place),
                node=place.node,
                socket=place.socket,
                uplink=_switch(place),
                root=place.root,
                disks=names,
            )
        )
    elif kind in (_RAID, _SAS, _SATA, "0101"):
        _behind_controller(device, kind, blocks, place, facts)


def _behind_controller(
    device: ET.Element, kind: str, blocks: list[ET.Element], place: _Place, facts: Facts
) -> None:
    address = device.get("pci_busid", "")
    on_chipset = kind in (_SATA, "0101")
    interface: Interface = "sata" if on_chipset else "sas"
    uplink = None
    if not on_chipset:
        link = pcie_from_bandwidth(_speed(device), (8, 16, 4, 2, 1))
        uplink = Uplink("controller", address, link, place.node, place.socket)
    for block in blocks:
        if _plain(block.get("name", "")).startswith("nvme"):
            continue
        name = block.get("name", "")
        facts.disks.append(_disk(block, interface, f"{address}/{name}"))
        facts.slots.append(
            Slot(
                address=f"{address}/{name}",
                node=place.node,
                socket=place.socket,
                uplink=uplink,
                disks=(name,),
            )
        )


def _plain(name: str) -> str:
    """Return the namespace's own name: nvme0c1n1 is a path of nvme0n1."""
    return re.sub(r"^(nvme\d+)c\d+(n\d+)$", r"\1\2", name)


def _disk(block: ET.Element, interface: Interface, address: str) -> Disk:
    kib, sector = _number(_info(block, "Size")), _number(_info(block, "SectorSize"))
    return Disk(
        name=_plain(block.get("name", "")),
        model=_info(block, "Model"),
        size=kib * 1024 if kib and sector else None,
        interface=interface,
        address=address,
    )


def _speed(element: ET.Element) -> float:
    text = element.get("pci_link_speed", "")
    return float(text) if re.fullmatch(r"\d{1,6}(?:\.\d{1,12})?", text) else 0.0


def _link_of(device: ET.Element, place: _Place) -> str | None:
    own = pcie_from_bandwidth(_speed(device), _DRIVE_WIDTHS)
    if own is None or not place.bridges:
        return own
    return slower_link(own, pcie_from_bandwidth(_speed(place.bridges[-1]), _DRIVE_WIDTHS))


def _switch(place: _Place) -> Uplink | None:
    """Root port, upstream port, downstream port: the second is the uplink of a switch."""
    if len(place.bridges) < 3:
        return None
    top = place.bridges[1]
    link = pcie_from_bandwidth(_speed(top), _UPLINK_WIDTHS)
    return Uplink("switch", top.get("pci_busid", ""), link, place.node, place.socket)
