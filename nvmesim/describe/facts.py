"""Facts about a server from dumps, whichever tool printed them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

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

    memory: Mapping[int, int | None]
    socket_of: Mapping[int, int | None]


@dataclass(frozen=True)
class Uplink:
    """Part that several drives share on their way to the CPU."""

    kind: UplinkKind
    address: str
    link: str | None = None
    node: int | None = None
    socket: int | None = None
    model: str = ""


@dataclass(frozen=True)
class Slot:
    """Where one drive is attached."""

    address: str
    model: str = ""
    link: str | None = None
    node: int | None = None
    socket: int | None = None
    uplink: Uplink | None = None
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
    pooled: bool | None = None
    """True if it belongs to a Storage Spaces pool; None: not said."""


@dataclass(frozen=True)
class Array:
    """A RAID volume."""

    name: str
    level: str
    members: tuple[str | None, ...] = ()
    """Disks in the order of their roles; None where one is missing. Empty: not said."""
    layout: str | None = None
    chunk: int | None = None
    spares: tuple[str, ...] = ()
    faulty: tuple[str, ...] = ()
    replacing: tuple[str, ...] = ()
    """Disks that are being rebuilt in the place of missing members."""
    rebuild: bool = False
    bitmap: Literal["none", "internal", "external"] | None = None
    engine: str = "linux-md"
    columns: int | None = None


@dataclass
class Facts:
    """Facts of one dump, or of all together."""

    system: Literal["linux", "windows"] | None = None
    cpu: FoundCpu | None = None
    nodes: Nodes | None = None
    packets: tuple[int, int] | None = None
    """Largest PCIe payload and read request of the drives, bytes."""
    slots: list[Slot] = field(default_factory=list)
    disks: list[Disk] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    """Facts found, for a person."""
    assumed: list[str] = field(default_factory=list)
    """Facts that the dump leaves open and that are assumed."""


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
