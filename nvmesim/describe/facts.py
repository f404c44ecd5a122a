"""Facts about a server from dumps, whichever tool printed them, and what the catalog has of them.

Drives and CPUs have the names that machines give them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from nvmesim.capture.text import shown
from nvmesim.catalog import load as catalog
from nvmesim.catalog.links import PCIE_ENCODING, PCIE_GT_PER_S, PCIE_LANES, Link, pcie

Interface = Literal["nvme", "sata", "sas"]
UplinkKind = Literal["switch", "vmd", "controller"]


@dataclass(frozen=True)
class FoundCpu:
    """The packages of a server, all alike."""

    model: str
    sockets: int
    cores: int  # of one socket
    threads_per_core: int
    base_ghz: float | None = None  # as the model's name states it
    bogomips: float | None = None
    guest: bool = False  # True if a hypervisor was seen: then sockets and cores are what it shows


@dataclass(frozen=True)
class Nodes:
    """NUMA nodes: their memory in bytes (None: not said) and their socket (None: not said)."""

    memory: dict[int, int | None]
    socket_of: dict[int, int | None]


@dataclass(frozen=True)
class Uplink:
    """Part that several drives share on their way to the CPU."""

    kind: UplinkKind
    address: str
    link: Link | None = None
    node: int | None = None
    socket: int | None = None
    root: str | None = None  # address of the root complex, where the scenario has it
    name: str = ""  # its adapter's in the scenario


@dataclass(frozen=True)
class Slot:
    """Where one drive is attached."""

    address: str
    model: str = ""
    link: Link | None = None
    node: int | None = None
    socket: int | None = None
    uplink: Uplink | None = None
    root: str | None = None  # PCI domain and bus of the root complex that it is below
    disks: tuple[str, ...] = ()  # block devices that the dump itself ties to this place


@dataclass(frozen=True)
class Disk:
    """One drive as the operating system names it."""

    name: str
    model: str = ""
    size: int | None = None
    interface: Interface | None = None
    rotates: bool = False
    address: str | None = None  # PCI address, where the dump says it


@dataclass(frozen=True)
class Array:
    """A RAID volume."""

    name: str
    level: str
    members: tuple[str | None, ...]  # disks in the order of their roles; None where one is missing
    layout: str | None = None
    chunk: int | None = None
    spares: tuple[str, ...] = ()
    faulty: tuple[str, ...] = ()
    degraded: tuple[int, ...] = ()  # roles of missing members, once drives stand in for them
    replacing: tuple[str, ...] = ()  # disks that are being rebuilt in the place of missing members
    rebuild: bool = False
    bitmap: Literal["none", "internal", "external"] | None = None


@dataclass(frozen=True)
class Assumption:
    """What a dump leaves open and how it is taken."""

    text: str
    unless: str = ""  # tool whose dump answers it
    array: str = ""  # the array that it is about, which that dump must have; blank: any


@dataclass
class Facts:
    """Facts of one dump, or of all together."""

    cpu: FoundCpu | None = None
    nodes: Nodes | None = None
    packets: tuple[int, int] | None = None
    """Largest PCIe payload and read request of the drives, bytes."""
    slots: list[Slot] = field(default_factory=list)
    disks: list[Disk] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    read: list[str] = field(default_factory=list)  # facts found, for a person
    assumed: list[Assumption] = field(default_factory=list)

    def assume(self, text: str, *, unless: str = "", array: str = "") -> None:
        """Note an assumption once."""
        found = Assumption(text, unless, array)
        self.assumed += [] if found in self.assumed else [found]


def whole_disk(device: str) -> str:
    """Return the disk that a device node or a partition belongs to.

    >>> whole_disk("/dev/nvme0n1p2"), whole_disk("/dev/sda3"), whole_disk("nvme1n1")
    ('nvme0n1', 'sda', 'nvme1n1')
    """
    name = device.rsplit("/", 1)[-1]
    match = re.match(r"(nvme\d+n\d+|mmcblk\d+)p\d+$|((?:[shv]d|xvd)[a-z]+)\d+$", name)
    return (match.group(1) or match.group(2)) if match else name


def pcie_at(gigatransfers: float, lanes: int) -> Link | None:
    """Return the link of that speed and width, None if PCIe has none such.

    >>> str(pcie_at(8, 4)), str(pcie_at(2.5, 1)), pcie_at(8, 0), pcie_at(7, 4)
    ('pcie3 x4', 'pcie1 x1', None, None)
    """
    generations = [g for g, rate in PCIE_GT_PER_S.items() if abs(float(rate) - gigatransfers) < 0.1]
    return pcie(generations[0], lanes) if generations and lanes in PCIE_LANES else None


def pcie_from_bandwidth(gigabytes_per_s: float, widths: tuple[int, ...]) -> Link | None:
    """Return the link that carries so much, with the first of *widths* that fits a generation.

    >>> str(pcie_from_bandwidth(3.938462, (4, 2, 1)))
    'pcie3 x4'
    """
    for lanes in widths:
        for generation, rate in PCIE_GT_PER_S.items():
            encodings = {float(PCIE_ENCODING[generation]), 128 / 130 if generation > 2 else 0.8}
            for encoding in encodings:
                if abs(float(rate) * encoding * lanes / 8 - gigabytes_per_s) < 0.01 * lanes:
                    return pcie(generation, lanes)
    return None


def slower_link(first: Link | None, second: Link | None) -> Link | None:
    """Return the lower generation and width of two PCIe links; an unknown one does not count.

    >>> str(slower_link(pcie(4, 4), pcie(3, 16))), str(slower_link(None, pcie(3, 4)))
    ('pcie3 x4', 'pcie3 x4')
    """
    if first is None or second is None:
        return first or second
    return pcie(min(first.generation, second.generation), min(first.lanes, second.lanes))


SAME_SIZE: Final = 0.1  # drives of one series and capacity differ less: 3.84 and 4 TB do not

_SERIES: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (re.compile(r"SSDPE2KE0(?:16|32|64)T8|\bP4610\b"), ("intel-p4610-1.6tb", "intel-p4610-6.4tb")),
    (re.compile(r"SSDPE2KX0\d0T8|\bP4510\b"), ("intel-p4510-1tb",)),
    (re.compile(r"7450.*MTFDK\w\w\d+T\dTFR|7450[ _]PRO", re.I), ("micron-7450-pro-3.84tb",)),
    (re.compile(r"Samsung SSD 980 PRO", re.I), ("samsung-980pro-1tb",)),
)
"""Model strings of catalog drives. Source: the vendors' part numbers (Intel SSDPE2KE: P4600 and
P4610, T8 the latter; SSDPE2KX: P4510; Micron MTFDK..TFR: 7450 PRO, TFS: MAX)."""

_NAMED: Final = re.compile(r"[a-z]{2}\d|[a-z]\d\w")
"""What names a series: PM1743, CD6, P5510; not D7."""

_STAND_INS: Final = {
    "disk": ("hdd-7200", "a 7,200 rpm disk"),
    "sata": ("sata-ssd", "a SATA SSD"),
    "sas": ("sas-ssd", "a SAS SSD"),
    "pcie4": ("micron-7450-pro-3.84tb", "a data-centre drive on PCIe 4.0"),
    "pcie3": ("intel-p4510-1tb", "a data-centre drive on PCIe 3.0"),
}
"""Profile and what it is, for drives that are not in the catalog."""


@dataclass(frozen=True)
class CatalogPart:
    """A part's name in the catalog or table in a scenario, and what had to be supposed for it."""

    profile: str | dict[str, Any]
    assumed: str = ""


def drive_part(disk: Disk, link: Link | None) -> CatalogPart:
    """Return the profile of *disk*: a catalog entry, or a stand-in that says that it is one."""
    series = of_series(disk.model)
    capacities = {name: catalog.get("drive", name).capacity.value for name in series}
    what = shown(disk.model) or "a drive without a model's name"
    for name, capacity in capacities.items():
        if disk.size is None or abs(disk.size - capacity) <= SAME_SIZE * capacity:
            why = f"{what}: its capacity is not in the dumps; {name} is taken"
            return CatalogPart(name, "" if disk.size else why)
    if capacities:
        name = min(capacities, key=lambda n: abs(capacities[n] - (disk.size or 0)))
        why = f"{what} is of that series, of another capacity"
    else:
        is_fast = link is not None and link.generation >= 4
        kind = "disk" if disk.rotates else disk.interface
        name, like = _STAND_INS.get(kind or "", _STAND_INS["pcie4" if is_fast else "pcie3"])
        why = f"{what} is not in the catalog; {like} stands in for it"
    table = {"extends": name, "name": f"stand-in for {shown(disk.model) or 'an unnamed drive'}"}
    table |= {"capacity": f"{disk.size} B"} if disk.size else {}
    text = f"{why} ({name}): calibrate on captures of it, and name that profile"
    return CatalogPart(table, text)


def of_series(model: str) -> tuple[str, ...]:
    """Catalog drives of the series that *model* names, whose last digit lspci may leave open.

    >>> of_series("NVMe SSD Controller PM173X"), of_series("QEMU NVMe Ctrl")
    (('samsung-pm1733-15.36tb',), ())
    """
    for pattern, names in _SERIES:
        if pattern.search(model):
            return names
    words = [word.lower() for word in re.findall(r"[A-Za-z0-9]+", model)]
    known = [re.compile(re.sub("x$", r"[x\\d]", word)) for word in words if _NAMED.search(word)]
    return tuple(
        name for name in catalog.names("drive")
        if any(own.fullmatch(part) for own in known for part in name.split("-")[1:])
    )  # fmt: skip


def cpu_part(cpu: FoundCpu, lanes: int, generation: int) -> CatalogPart:
    """Return the CPU: a catalog entry where its name is known, else a table of what was read.

    *lanes* and *generation* are the least that the drives' links prove.
    """
    name = catalog_cpu(cpu.model)
    if name is None:
        return _unknown_cpu(cpu, lanes, generation)
    profile = catalog.get("cpu", name)
    changes: dict[str, Any] = {}
    if cpu.cores != profile.cores:
        changes["cores"] = cpu.cores
    if cpu.threads_per_core != profile.threads_per_core:
        changes["threads_per_core"] = cpu.threads_per_core
    joining = 16 * profile.interconnect_links if profile.interconnect == "xgmi" else 0
    if lanes > profile.lanes - (joining if cpu.sockets > 1 else 0):
        changes["lanes"] = lanes + (joining if cpu.sockets > 1 else 0)
    if not changes:
        return CatalogPart(name)
    listed = ", ".join(f"{key} {value}" for key, value in changes.items())
    return CatalogPart({"extends": name, **changes}, f"{name} as seen, not as sold: {listed}")


def catalog_cpu(model: str) -> str | None:
    """Return the catalog entry of a CPU by the name that it gives itself.

    >>> catalog_cpu("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"), catalog_cpu("AMD EPYC")
    ('xeon-gold-6130', None)
    """

    def words(text: str) -> list[str]:
        plain = re.sub(r"\((?:R|TM|C)\)|@.*$|\b\d+-Core\b", " ", text, flags=re.I)
        return [w for w in plain.lower().split() if w not in ("cpu", "processor", "intel")]

    same = (n for n in catalog.names("cpu") if words(catalog.get("cpu", n).model) == words(model))
    return next(same, None) if words(model) else None


def _unknown_cpu(cpu: FoundCpu, lanes: int, generation: int) -> CatalogPart:
    ghz = cpu.base_ghz
    text = "its clock is in its name"
    if ghz is None and cpu.bogomips:
        ghz, text = round(cpu.bogomips / 2000, 2), "its clock is taken as half its BogoMIPS"
    if ghz is None:
        ghz, text = 2.5, "its clock is not known and set to 2.5 GHz"
    table: dict[str, Any] = {
        "name": shown(cpu.model) or "unknown CPU",
        "cores": cpu.cores,
        "threads_per_core": cpu.threads_per_core,
        "ghz": ghz,
        "lanes": max(lanes, 48),
        "pcie_generation": generation,
    }
    if re.search(r"\bAMD\b|EPYC", cpu.model):  # its links to other sockets take lanes of its own
        joining = 16 * 3 if cpu.sockets > 1 else 0
        table |= {
            "lanes": max(lanes + joining, 128),
            "interconnect": "xgmi",
            "interconnect_links": 3,
            "interconnect_rate": "18 GT/s",
        }
    what = shown(cpu.model) or "the CPU"
    return CatalogPart(
        table,
        f"{what} is not in the catalog: {text}; its lanes, memory and socket links are guesses",
    )
