"""Which tool wrote a file, told by its content, and clear words about those of no use here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nvmesim.capture.text import Head, Source, shown
from nvmesim.describe import cpus, disks, hwloc, md, pci, windows
from nvmesim.describe.facts import Facts
from nvmesim.errors import InputError

LARGEST: Final = 32 << 20
"""Bytes; lstopo of the largest machines writes 2 MB."""


@dataclass(frozen=True)
class Dump:
    """One kind of dump."""

    tool: str
    sniff: Callable[[Head], bool]
    read: Callable[[Source], Facts]


DUMPS: Final = (
    # Where two say the same thing, the earlier one is believed.
    Dump("lspci -vv", pci.sniff_lspci, pci.read_lspci),
    Dump("nvme list -o json", disks.sniff_nvme_list, disks.read_nvme_list),
    Dump("lscpu", cpus.sniff_lscpu, cpus.read_lscpu),
    Dump("lscpu -J", cpus.sniff_lscpu_json, cpus.read_lscpu_json),
    Dump("lscpu -p", cpus.sniff_lscpu_parsable, cpus.read_lscpu_parsable),
    Dump("numactl -H", cpus.sniff_numactl, cpus.read_numactl),
    Dump("lstopo --of xml", hwloc.sniff_lstopo, hwloc.read_lstopo),
    Dump("lspci -tv", pci.sniff_lspci_tree, pci.read_lspci_tree),
    Dump("mdadm --detail", md.sniff_detail, md.read_detail),
    Dump("/proc/mdstat", md.sniff_mdstat, md.read_mdstat),
    Dump("Windows storage", windows.sniff_windows, windows.read_windows),
)

_OTHERS: Final = (
    # pattern at the start of the file, what it is, what to give in its place
    (r"Node +(?:Generic +)?SN +Model", "the table of nvme list", "nvme list -o json"),
    (r"\w+ +Type +Transport|Subsystem +Subsystem-NQN", "nvme list -v", "nvme list -o json"),
    (r'\{\s*"(?:vid|critical_warning|nsze)"', "nvme's output for one drive", "nvme list -o json"),
    (r"NVME Identify ", "nvme id-ctrl or id-ns", "nvme list -o json"),
    (r"(?:Smart Log|SMART/Health)", "nvme smart-log", "nvme list -o json"),
    (r"MD_LEVEL=", "mdadm --detail --export", "mdadm --detail"),
    (r"ARRAY /dev/md", "mdadm --detail --scan", "mdadm --detail"),
    (r"/dev/\S+:\n\s+Magic :", "mdadm --examine", "mdadm --detail"),
    (r"Machine \(|\+-- Machine|Machine L#0", "the drawing of lstopo", "lstopo --of xml"),
    (r"policy: |physcpubind", "numactl -s", "numactl -H"),
    (r"NAME +\S+.*\n|\{\s*\"blockdevices\"", "lsblk", "nvme list -o json"),
    (r"# dmidecode", "dmidecode", "lscpu and lspci -vv"),
    (r"processor\s*: 0", "/proc/cpuinfo", "lscpu"),
    (r'\{\s*"fio version"', "a fio result", "nvmesim calibrate or nvmesim trace"),
    (
        r"[^:\uff1a\n]+[:\uff1a]\s+(?:x86_64|aarch64)\n",
        "lscpu in another language",
        "LC_ALL=C lscpu",
    ),
)


def read_dump(path: Path) -> tuple[Dump, Facts]:
    """Return what the file *path* says, and who wrote it.

    Raises
    ------
    InputError
        One line: the file, what was found, what would do.
    """
    source = Source(path)
    head = source.head
    if not head.raw.strip():
        raise source.error("is empty", "run the command again")
    source.raw(LARGEST)
    for dump in DUMPS:
        if dump.sniff(head):
            try:
                return dump, dump.read(source)
            except ValueError as error:  # of more digits than Python converts, or of other digits
                found = f"holds a number that cannot be read ({shown(error, 60)})"
                raise source.error(found, "run the command again") from None
    raise _unknown(source, head)


def _unknown(source: Source, head: Head) -> InputError:
    text = head.text.lstrip()
    for pattern, what, instead in _OTHERS:
        if re.match(pattern, text):
            return source.error(f"is {what}", f"give {instead}")
    known = ", ".join(dump.tool for dump in DUMPS)
    start = shown(text, 40)
    return source.error(f"is not a dump that nvmesim knows (it starts with {start!r})", known)
