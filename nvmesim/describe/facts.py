"""Facts about a server from dumps, whichever tool printed them, and links as tools write them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from nvmesim.catalog.links import PCIE_ENCODING, PCIE_GT_PER_S, PCIE_LANES

Interface = Literal["nvme", "sata", "sas"]
UplinkKind = Literal["switch", "vmd", "controller"]


@dataclass(frozen=True)
class FoundCpu:
    """The packages of a server, all alike."""

    model: str
    sockets: int
    cores: int
    """Of one socket."""
    threads_per_core: int
    base_ghz: float | None = None
    """As the model's name states it."""
    bogomips: float | None = None
    guest: bool = False
    """True if a hypervisor was seen: then sockets and cores are what it shows."""


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
    link: str | None = None
    node: int | None = None
    socket: int | None = None


@dataclass(frozen=True)
class Slot:
    """Where one drive is attached."""

    address: str
    model: str = ""
    link: str | None = None
    node: int | None = None
    socket: int | None = None
    uplink: Uplink | None = None
    root: str | None = None
    """PCI domain and bus of the root complex that it is below."""
    disks: tuple[str, ...] = ()
    """Block devices that the dump itself ties to this place."""


@dataclass(frozen=True)
class Disk:
    """One drive as the operating system names it."""

    name: str
    model: str = ""
    size: int | None = None
    interface: Interface | None = None
    rotates: bool = False
    address: str | None = None
    """PCI address, where the dump says it."""


@dataclass(frozen=True)
class Array:
    """A RAID volume."""

    name: str
    level: str
    members: tuple[str | None, ...]
    """Disks in the order of their roles; None where one is missing."""
    layout: str | None = None
    chunk: int | None = None
    spares: tuple[str, ...] = ()
    faulty: tuple[str, ...] = ()
    replacing: tuple[str, ...] = ()
    """Disks that are being rebuilt in the place of missing members."""
    rebuild: bool = False
    bitmap: Literal["none", "internal", "external"] | None = None


@dataclass(frozen=True)
class Assumption:
    """What a dump leaves open and how it is taken."""

    text: str
    unless: str = ""
    """Tool whose dump answers it."""
    array: str = ""
    """The array that it is about, which that dump must have; blank: any."""


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
    read: list[str] = field(default_factory=list)
    """Facts found, for a person."""
    assumed: list[Assumption] = field(default_factory=list)

    def assume(self, text: str, *, unless: str = "", array: str = "") -> None:
        """Note an assumption once."""
        found = Assumption(text, unless, array)
        self.assumed += [] if found in self.assumed else [found]


LONGEST_NAME: Final = 400
"""Characters of a name that are looked at in sorting: Python converts no number of 5,000 digits."""


def natural(text: str) -> list[int | str]:
    """Sort key that counts: nvme2n1 stands before nvme10n1.

    >>> sorted(["nvme10n1", "nvme2n1"], key=natural)
    ['nvme2n1', 'nvme10n1']
    """
    parts = re.split(r"(\d+)", text[:LONGEST_NAME])
    return [int(part) if part.isdecimal() else part for part in parts]


def whole_disk(device: str) -> str:
    """Return the disk that a device node or a partition belongs to.

    >>> whole_disk("/dev/nvme0n1p2"), whole_disk("/dev/sda3"), whole_disk("nvme1n1")
    ('nvme0n1', 'sda', 'nvme1n1')
    """
    name = device.rsplit("/", 1)[-1]
    match = re.match(r"(nvme\d+n\d+|mmcblk\d+)p\d+$|((?:[shv]d|xvd)[a-z]+)\d+$", name)
    return (match.group(1) or match.group(2)) if match else name


def pcie_text(gigatransfers: float, lanes: int) -> str | None:
    """Return the link of that speed and width, None if PCIe has none such.

    >>> pcie_text(8, 4), pcie_text(2.5, 1), pcie_text(8, 0), pcie_text(7, 4)
    ('pcie3 x4', 'pcie1 x1', None, None)
    """
    generations = [g for g, rate in PCIE_GT_PER_S.items() if abs(float(rate) - gigatransfers) < 0.1]
    if not generations or lanes not in PCIE_LANES:
        return None
    return f"pcie{generations[0]} x{lanes}"


def pcie_from_bandwidth(gigabytes_per_s: float, widths: tuple[int, ...]) -> str | None:
    """Return the link that carries so much, with the first of *widths* that fits a generation.

    >>> pcie_from_bandwidth(3.938462, (4, 2, 1)), pcie_from_bandwidth(31.507692, (16, 8, 4))
    ('pcie3 x4', 'pcie4 x16')
    """
    for lanes in widths:
        for generation, rate in PCIE_GT_PER_S.items():
            encodings = {float(PCIE_ENCODING[generation]), 128 / 130 if generation > 2 else 0.8}
            for encoding in encodings:
                if abs(float(rate) * encoding * lanes / 8 - gigabytes_per_s) < 0.01 * lanes:
                    return f"pcie{generation} x{lanes}"
    return None


def slower_link(first: str | None, second: str | None) -> str | None:
    """Return the lower generation and width of two PCIe links; an unknown one does not count.

    >>> slower_link("pcie4 x4", "pcie3 x16"), slower_link(None, "pcie3 x4")
    ('pcie3 x4', 'pcie3 x4')
    """
    if first is None or second is None:
        return first or second
    one, other = pcie_parts(first), pcie_parts(second)
    return f"pcie{min(one[0], other[0])} x{min(one[1], other[1])}"


def pcie_parts(link: str) -> tuple[int, int]:
    """Return (generation, lanes) of a text that `pcie_text` made.

    >>> pcie_parts("pcie4 x16")
    (4, 16)
    """
    generation, lanes = link.removeprefix("pcie").split(" x")
    return int(generation), int(lanes)
