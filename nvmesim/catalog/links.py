"""Links between the parts of a server: what they carry, and how long one transfer holds them.

Pure functions over a parsed `Link`. A full-duplex link is one server per direction: ``"up"`` is
towards the host (drive reads), ``"down"`` towards the drive (drive writes). Protocols are counted
byte by byte, so a ceiling such as "150k IOPS over SATA" comes out instead of being put in.

How close the published 4 KiB ceilings (Team, 2019 scaling article: SATA3 150k, SAS3 300k, NVMe over
4 GB/s 1,000k) come out: they are payload over the encoded wire rate and nothing else (600 MB/s,
1.2 GB/s, 4 GB/s over 4096 bytes give 146k, 293k, 977k). With frames and commands counted,
`command_ceiling` gives 142k, 276k and 850k: 6, 8 and 15 % below the published. With 128-byte
payloads PCIe 3.0 x4 carries 785k.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal

from nvmesim import units
from nvmesim.errors import UnitError, nearest

LinkKind = Literal["pcie", "sata", "sas", "dmi", "upi", "qpi", "xgmi"]
Direction = Literal["up", "down"]
Operation = Literal["read", "write"]

MPS_BYTES: Final = 256
"""Largest TLP payload. Assumed: server boards commonly set 256; 128 to 512 are seen."""
MRRS_BYTES: Final = 512
"""Largest read request of a device. Assumed: the default of the PCIe specification."""

PCIE_GT_PER_S: Final = {1: Fraction(5, 2), 2: Fraction(5), 3: Fraction(8), 4: Fraction(16)} | {
    5: Fraction(32),
    6: Fraction(64),
}
"""Transfers per second and lane, 10**9. Source: pcie-bench model (SIGCOMM 2018), PCIe Base Spec."""
PCIE_ENCODING: Final = {
    **dict.fromkeys((1, 2), Fraction(8, 10)),
    **dict.fromkeys((3, 4, 5), Fraction(128, 130)),
    6: Fraction(242, 256),
}
"""Payload bits per bit on the wire. Source: as PCIE_GT_PER_S."""
PCIE_LANES: Final = (1, 2, 4, 8, 16, 32)

WRITE_TLP_BYTES: Final = 24
"""Framing, sequence number, LCRC and header of a 64-bit memory write or read request (8 + 4 + 12).
Source: pcie-bench model."""
COMPLETION_TLP_BYTES: Final = 20
"""The same of a completion with data (8 + 4 + 8). Source: pcie-bench model."""
DLLP_BYTES: Final = 8
"""One acknowledgement or credit update on the wire. Source: pcie-bench model."""
PAYLOADS: Final = (128, 256, 512, 1024, 2048, 4096)
"""Largest payloads and read requests that devices can be set to. Source: PCIe Base Spec."""
_SKP_SHARE: Final = Fraction(4, 1538)
_ACK_DELAY_SYMBOLS: Final = {1: 19, 2: 70}
_SQE_BYTES, _CQE_BYTES, _WORD_BYTES = 64, 16, 4

# Source: Serial ATA specification, FIS layouts: register 5, setup 7, status 2 dwords, one dword of
# header on data, each between SOF, CRC and EOF (3 dwords). Handshake primitives between frames are
# not counted (assumed hidden), so the real ceiling is somewhat lower.
_FIS_FRAME: Final = {"register": 20 + 12, "setup": 28 + 12, "status": 8 + 12, "data": 4 + 12}

SSP_FRAME_BYTES: Final = 24 + 4 + 8
"""Header, CRC, SOF and EOF of an SSP frame of up to 1,024 bytes. Source: Fujitsu MBA3073RC SAS
interface manual, tables 1.32 and 1.33."""
_SSP_COMMAND, _SSP_READY, _SSP_RESPONSE = 28, 12, 24
_SSP_OPEN: Final = 40
"""Open and close of a connection. Assumed: an address frame of 32 bytes with its primitives."""

UPI_EFFICIENCY: Final = 0.82
"""Data bytes per raw byte between sockets. Measured: Memory Latency Checker read 50.9 GB/s across
3 x 20.8 and 34.4 across 2 x 20.8 GB/s (link counts assumed): 82 and 83 %."""
SOCKET_EFFICIENCY: Final = {"upi": UPI_EFFICIENCY, "qpi": UPI_EFFICIENCY, "xgmi": 8 / 9}
"""By kind. QPI assumed as UPI; xGMI loses 1/9 to CRC (xryan.net/p/295), the rest assumed free."""
SOCKET_BYTES_PER_TRANSFER: Final = 2
"""Per direction and link. Source: QPI 9.6 GT/s = 19.2 GB/s, UPI 10.4 GT/s = 20.8 GB/s."""
SOCKET_RATES: Final = {"upi": "10.4 GT/s", "qpi": "9.6 GT/s", "xgmi": "18 GT/s"}
SOCKET_RATES_KNOWN: Final = {
    "upi": (9.6, 10.4, 11.2, 12.8, 14.4, 16.0, 20.0, 24.0),
    "qpi": (4.8, 5.86, 6.4, 7.2, 8.0, 9.6),
    "xgmi": (10.6, 10.667, 13.0, 16.0, 18.0, 25.0, 32.0),
}
"""GT/s that a generation has; others are refused. Source: vendors; UPI 9.6 to 24 by generation."""
SOCKET_LATENCY_PS: Final = 50_000
"""Extra time of a memory access. Source: lowlat-ms.pages.dev/glossary/qpi, 40 to 50 ns."""
LINE_BYTES: Final = 64
"""A cache line: what a credit covers."""

MEMORY_RATES: Final = (200, 12_800)
"""MT/s from the first DDR to the fastest MRDIMM announced."""
MEMORY_EFFICIENCY: Final = 0.80
"""Usable share of channels x rate x 8 bytes. Measured 0.70 (6 x 2933: 98 of 140.8 GB/s), 0.84
(8 x 3200: 171.5 of 204.8; both xryan.net/p/295), 0.88 (6 x 2666: 113.1 of 128; MLC 8269CY)."""

USUAL_SERVERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "interconnect_links": (2, 3, 3), "interconnect_rate": ("10.4 GT/s", "11.2 GT/s", "16 GT/s"),
    "memory_channels": (6, 8, 8), "memory_rate": ("2666 MT/s", "3200 MT/s", "4800 MT/s"),
}  # fmt: skip
"""What joins and feeds a server's CPU of PCIe 3, 4 and 5. Source: the catalog's Xeon Gold 6130,
6338 and 6442Y; EPYCs of a generation have as many channels or more."""

USB_BYTES: Final = {"usb2": 40e6, "usb3": 450e6, "usb3.2": 1050e6}
"""Bytes/s that drives in a box move, protocol and bridge left out: at 480 Mb/s, 5 and 10 Gb/s.
Source: class figures of boxes with such bridges; one of 5 Gb/s did 384 MB/s (a mailed capture)."""
_USB = re.compile(r"^(usb(?:2|3(?:\.2)?))(?:\s+(?:bot|uas))?$")
_LINK = re.compile(r"^(pcie|sata|sas|dmi)\s*([0-9]{1,3})(?:\s*x\s*([0-9]{1,4}))?$")


@dataclass(frozen=True)
class Link:
    """One link, parsed: ``lanes`` are socket links for upi, qpi and xgmi."""

    kind: LinkKind
    generation: int
    lanes: int
    raw_bytes_per_s: float
    """Per direction, over all lanes, after encoding."""
    full_duplex: bool = True
    """False: both directions share one server (SATA sends one frame at a time)."""
    mps: int = MPS_BYTES
    """Largest TLP payload in bytes, of PCIe and DMI."""
    mrrs: int = MRRS_BYTES
    """Largest read request in bytes."""
    bridge: str = ""
    """Text of a USB link, whose bridge speaks SATA to the drive: "usb3", "usb3 bot", "usb3 uas"."""

    def __str__(self) -> str:
        """Return the text that `parse_link` reads.

        >>> str(parse_link("pcie3 x4"))
        'pcie3 x4'
        """
        if self.kind in SOCKET_RATES or self.bridge:
            return self.bridge or f"{self.lanes} x {self.kind}"
        return f"{self.kind}{self.generation}" + (f" x{self.lanes}" if self.kind != "sata" else "")

    @property
    def is_scsi(self) -> bool:
        """True if commands through it are SCSI's: SATA, SAS, a USB bridge."""
        return self.kind in ("sata", "sas")

    @property
    def pcie_lanes(self) -> int:
        """Lanes of a CPU that the link occupies: none unless it is PCIe."""
        return self.lanes if self.kind == "pcie" else 0


def parse_link(text: str) -> Link:
    """Return the link that *text* names: PCIe 1 to 6, SATA 1 to 3, SAS 1 to 4, DMI 3, USB 2 and 3.

    Raises UnitError with what would do.

    >>> link = parse_link("pcie3 x4")
    >>> link.generation, link.lanes, round(link.raw_bytes_per_s / 1e9, 3)
    (3, 4, 3.938)
    >>> parse_link("sas3").raw_bytes_per_s
    1200000000.0
    """
    plain = text.strip().lower()
    if usb := _USB.match(plain):
        return Link("sata", 3, 1, USB_BYTES[usb[1]], full_duplex=False, bridge=plain)
    match = _LINK.match(plain)
    if match is None:
        raise UnitError(f"{text!r} is not a link; write for example 'pcie3 x4' or 'sata3'")
    kind, generation, lanes = match.group(1), int(match.group(2)), int(match.group(3) or 0)
    if kind == "pcie":
        return pcie(generation, lanes)
    if kind == "dmi":  # 3 and 4 are PCIe 3 and 4 lanes, four unless said otherwise (Intel)
        if generation not in (3, 4):
            raise UnitError(f"'dmi{generation}' is not a generation; write 'dmi3 x4' or 'dmi4 x8'")
        return replace(pcie(generation, lanes or 4), kind="dmi")
    if kind == "sata":  # 1.5, 3, 6 Gb/s, half duplex
        if generation not in (1, 2, 3) or lanes not in (0, 1):
            raise UnitError(f"'sata{generation}' with {lanes} lanes is not a link; write 'sata3'")
        return Link("sata", generation, 1, 150e6 * 2 ** (generation - 1), full_duplex=False)
    if generation not in (1, 2, 3, 4):
        raise UnitError(f"'sas{generation}' is not a generation; SAS has 1 to 4")
    # 3, 6, 12, 22.5 Gb/s with their encodings
    rate = 300e6 * 2 ** (generation - 1) if generation < 4 else 22.5e9 * 128 / 150 / 8
    return Link("sas", generation, lanes or 1, rate * (lanes or 1))


def pcie(generation: int, lanes: int) -> Link:
    """Return a PCIe link; UnitError for a generation or width that does not exist.

    >>> str(pcie(4, 16))
    'pcie4 x16'
    """
    if generation not in PCIE_GT_PER_S:
        raise UnitError(f"'pcie{generation}' is not a generation; PCIe has 1 to 6")
    if lanes not in PCIE_LANES:
        widths = ", ".join(f"x{n}" for n in PCIE_LANES)
        raise UnitError(f"'pcie{generation} x{lanes}' has no such width; PCIe has {widths}")
    rate = PCIE_GT_PER_S[generation] * PCIE_ENCODING[generation] * 10**9 / 8
    return Link("pcie", generation, lanes, float(rate * lanes))


def socket_link(kind: str, links: int, rate: str | None = None) -> Link:
    """Return *links* links between two sockets as one; UnitError for a rate no generation has.

    >>> socket_link("upi", 2, "10.4 GT/s").raw_bytes_per_s
    41600000000.0
    """
    if kind not in SOCKET_RATES:
        raise UnitError(f"{kind!r} is not a link between sockets; {nearest(kind, SOCKET_RATES)}")
    per_s = units.parse_transfers(rate or SOCKET_RATES[kind])
    known = SOCKET_RATES_KNOWN[kind]
    if not any(abs(per_s / 1e9 - gt) < 0.01 for gt in known):
        rates = ", ".join(f"{gt:g}" for gt in known)
        raise UnitError(f"no {kind} runs at {rate!r}; its rates are {rates} GT/s")
    if not 1 <= links <= 8:
        raise UnitError(f"{links} {kind} links; sockets are joined by 1 to 8")
    known_kinds: dict[str, LinkKind] = {"upi": "upi", "qpi": "qpi", "xgmi": "xgmi"}
    return Link(known_kinds[kind], 0, links, float(per_s * SOCKET_BYTES_PER_TRANSFER * links))


def dllp_interval(link: Link) -> float:
    """Bytes that *link* moves one way while it sends one acknowledgement the other way.

    The acknowledgement latency limit, (MPS + 28) x factor / lanes + the internal delay, is in
    symbol times, and in a symbol time every lane moves a byte. The pcie-bench model counts symbols
    as if they were bytes of the whole link, so that it forbids what is measured: 56 of 63 GB/s
    between two devices on PCIe 5.0 x16 (82 % by that model), 3.5 of 3.94 on PCIe 3.0 x4 (84 %).
    Source: PCIe Base Spec 5.0, tables 2-46 to 2-48 and 3-7 to 3-9; the measurements:
    github voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md, and drives sold at 3,500 MB/s.

    >>> round(dllp_interval(parse_link("pcie3 x4")))
    858
    """
    factor = {8: 2.5, 16: 3.0, 32: 3.0} if link.mps <= 256 else {16: 2.0, 32: 2.0}
    usual = 1.4 if link.mps <= 256 else 1.0
    limit = (link.mps + 28) * factor.get(link.lanes, usual) / link.lanes
    return (limit + _ACK_DELAY_SYMBOLS.get(link.generation, 115)) * link.lanes


def dllp_bytes(link: Link, op: Operation, n_bytes: int, direction: Direction) -> int:
    """Bytes of acknowledgements and credit updates that a command causes in *direction*.

    They answer what comes the other way: a pair for each lone packet, one per `dllp_interval` of
    a burst of data (they collapse).

    >>> dllp_bytes(parse_link("pcie3 x4"), "read", 4096, "up")
    48
    >>> dllp_bytes(parse_link("pcie3 x4"), "read", 4096, "down")
    144
    """
    if link.kind not in ("pcie", "dmi"):
        return 0
    lone = 3  # up: two doorbells and the entry that was fetched answered; down: see _nvme_bytes
    other: Direction = "down" if direction == "up" else "up"
    burst = 0
    if other == ("up" if op == "read" else "down"):
        burst = math.ceil(data_bytes(link, n_bytes, other) / dllp_interval(link))
    elif op == "write" and other == "up":
        lone += _pieces(n_bytes, link.mrrs)
    return 2 * DLLP_BYTES * (lone + burst)


def data_bytes(link: Link, n_bytes: int, direction: Direction) -> int:
    """Bytes on the wire for *n_bytes* of data moving in *direction*: payload and headers.

    >>> data_bytes(parse_link("pcie3 x4"), 4096, "up"), data_bytes(parse_link("sata3"), 4096, "up")
    (4480, 4112)
    """
    if n_bytes <= 0:
        return 0
    if link.kind in ("pcie", "dmi"):
        header = WRITE_TLP_BYTES if direction == "up" else COMPLETION_TLP_BYTES
        return n_bytes + _pieces(n_bytes, link.mps) * header
    if link.kind == "sata":
        return n_bytes + _pieces(n_bytes, 8192) * _FIS_FRAME["data"]
    if link.kind == "sas":
        return n_bytes + _pieces(n_bytes, 1024) * SSP_FRAME_BYTES
    return _pieces(n_bytes, LINE_BYTES) * LINE_BYTES


def command_bytes(link: Link, op: Operation, n_bytes: int, direction: Direction) -> int:
    """Bytes on the wire in *direction* that one command of *n_bytes* needs beside its data.

    NVMe: doorbells, queue entries, the interrupt, the read requests that fetch a write's data, and
    what acknowledges the other direction. SATA (queued) and SAS: command, setup and status frames.
    Source: NVMe Base Specification: 64-byte submission, 16-byte completion entry, doorbells.

    >>> command_bytes(parse_link("pcie3 x4"), "read", 4096, "up")
    140
    """
    if link.kind == "sata":
        frames = {"up": ("register", "setup", "status"), "down": ("register",)}[direction]
        return sum(_FIS_FRAME[frame] for frame in frames)
    if link.kind == "sas":
        if direction == "down":
            return _SSP_OPEN + _SSP_COMMAND + SSP_FRAME_BYTES
        ready = _SSP_READY + SSP_FRAME_BYTES if op == "write" else 0
        return _SSP_OPEN + _SSP_RESPONSE + SSP_FRAME_BYTES + ready
    if link.kind not in ("pcie", "dmi"):
        return 0
    answers = dllp_bytes(link, op, n_bytes, direction)
    if direction == "down":
        doorbells = 2 * (_WORD_BYTES + WRITE_TLP_BYTES)
        return doorbells + _SQE_BYTES + COMPLETION_TLP_BYTES + answers
    fetch = WRITE_TLP_BYTES
    completion = _CQE_BYTES + WRITE_TLP_BYTES + _WORD_BYTES + WRITE_TLP_BYTES
    requests = _pieces(n_bytes, link.mrrs) * WRITE_TLP_BYTES if op == "write" else 0
    return fetch + completion + requests + answers


def transfer_time_ps(link: Link, n_bytes: int, direction: Direction) -> int:
    """Picoseconds that *n_bytes* of data hold one direction of *link*, rounded up.

    >>> transfer_time_ps(parse_link("pcie3 x4"), 4096, "up")
    1140467
    >>> transfer_time_ps(socket_link("upi", 2), 4096, "up")
    120076
    """
    return _wire_time_ps(link, data_bytes(link, n_bytes, direction))


def command_time_ps(link: Link, op: Operation, n_bytes: int, direction: Direction) -> int:
    """Picoseconds that one whole command holds one direction of *link*: data and protocol.

    >>> drive = parse_link("pcie3 x4")
    >>> command_time_ps(drive, "read", 4096, "up"), command_time_ps(drive, "read", 4096, "down")
    (1176106, 72298)
    """
    moves = "up" if op == "read" else "down"
    wire = command_bytes(link, op, n_bytes, direction)
    if direction == moves:
        wire += data_bytes(link, n_bytes, direction)
    return _wire_time_ps(link, wire)


def command_ceiling(link: Link, op: Operation, n_bytes: int) -> float:
    """Commands per second that *link* alone allows.

    >>> for text in ("sata3", "sas3", "pcie3 x4"):
    ...     print(text, round(command_ceiling(parse_link(text), "read", 4096) / 1e3), "k")
    sata3 142 k
    sas3 276 k
    pcie3 x4 850 k
    """
    up, down = (command_time_ps(link, op, n_bytes, d) for d in ("up", "down"))
    return units.PS_PER_S / (max(up, down) if link.full_duplex else up + down)


def usual_server(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return what says *name* of a CPU that states its generation of PCIe alone.

    >>> usual_server("memory_rate")({"pcie_generation": 4})
    '3200 MT/s'
    """
    return lambda cpu: USUAL_SERVERS[name][min(max(cpu.get("pcie_generation", 5), 3), 5) - 3]


def memory_bandwidth(channels: int, rate: str) -> float:
    """Bytes per second that *channels* of memory carry, reads and writes together.

    UnitError for a rate that no DIMM has.

    >>> round(memory_bandwidth(6, "2933 MT/s") / 1e9, 1)
    112.6
    """
    per_s = units.parse_transfers(rate)
    slowest, fastest = MEMORY_RATES
    if not slowest * 1e6 <= per_s <= fastest * 1e6:
        raise UnitError(f"{rate!r} is a rate that no DIMM has; {slowest} to {fastest} MT/s")
    return channels * per_s * 8 * MEMORY_EFFICIENCY


def slower(first: Link, second: Link) -> Link:
    """Return *first* at the generation that both ends have: PCIe trains to the lower.

    >>> str(slower(parse_link("pcie4 x4"), parse_link("pcie3 x16")))
    'pcie3 x4'
    """
    if first.kind == second.kind == "pcie" and second.generation < first.generation:
        trained = pcie(second.generation, first.lanes)
        return replace(trained, mps=first.mps, mrrs=first.mrrs)
    return first


def _pieces(n_bytes: int, largest: int) -> int:
    return -(-n_bytes // largest)


def _wire_time_ps(link: Link, wire_bytes: int) -> int:
    """Round up, so that a link is never free too early."""
    share = SOCKET_EFFICIENCY.get(link.kind, 1.0)
    if link.kind in ("pcie", "dmi"):
        share = 1 - float(_SKP_SHARE)
    rate = round(link.raw_bytes_per_s * share)
    return -(-wire_bytes * units.PS_PER_S // rate)
