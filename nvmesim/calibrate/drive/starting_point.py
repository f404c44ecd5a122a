"""Where a fit starts: rows that measure the drive, doubts about their host, and a blank drive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.laws import shared_limit
from nvmesim.calibrate.drive.read_side import blank_reads
from nvmesim.calibrate.drive.streams import bandwidth
from nvmesim.calibrate.drive.write_side import blank_writes
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile, Quantity

INTERFACES: Final[dict[str, Literal["sata", "sas"]]] = {"sata": "sata", "sas": "sas"}
"""Kind of a link -> what its drives speak; all others speak NVMe."""


def alone_and_beside(reads: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Reads that ran alone, or beside the least load if none did, and others beside open loads.

    Beside a load that fills the drive they wait for what no number of it tells; they are judged.
    """
    least = min((p.beside.iops if p.beside else 0.0 for p in reads), default=0.0)
    alone = [p for p in reads if (p.beside.iops if p.beside else 0.0) <= least]
    others = [p for p in reads if p not in alone and p.beside and p.beside.rate is not None]
    return alone, others


def host_doubts(host: BenchHost, points: Sequence[Point], included: bool) -> Iterator[str]:
    """Yield where *points* contradict the *host* or the link that they are said to be of."""
    top = max(points, key=lambda p: p.iops * p.block_size)
    moved, rate = top.iops * top.block_size, host.link.raw_bytes_per_s
    if moved > rate:
        yield (
            f"{top.name}: {moved / 1e9:.3g} GB/s are more than {host.link} carries "
            f"({rate / 1e9:.3g}): name the link, --captured-on STACK,'pcie5 x4'"
        )
    shallow = [p for p in points if p.outstanding == 1 and p.cpu_s]
    if included or not shallow:
        return
    stack = host.stack
    cycles = stack.submit.value + stack.complete.value
    if not stack.polled:
        cycles += stack.wakeup.value + stack.interrupt.value
    named, measured = cycles / host.ghz / 1e9, shallow[0].cpu_s or 0.0
    if not 0.7 < named / measured < 1.4:
        yield (
            f"{shallow[0].name}: {1e6 * measured:.3g} us of CPU a request, where {stack.name} at "
            f"{host.ghz:g} GHz takes {1e6 * named:.3g}: it is not the stack that measured, and the "
            "drive is off by the difference; fit it with calibrate --stack"
        )


def of_the_drive(points: Sequence[Point], included: bool) -> tuple[list[Point], list[str]]:
    """Those of *points* that are fitted, and why others are not.

    A row of a full thread is one of the drive's only with a host to simulate.
    """
    found, notes = [], []
    for p in points:
        shared = shared_limit(p, points)
        if p.held_out:
            continue
        if p.is_cpu_bound and included:
            notes.append(
                f"{p.name}: a job was {p.per_job_pct:.0f} % busy, so the host was measured "
                "and not the drive; the point is not fitted (calibrate --stack would fit it)"
            )
        elif shared is not None:
            notes.append(
                f"{p.name} on {p.targets} drives: each does less than one did alone "
                f"({shared.name}), so that something they share was measured (an adapter, a root "
                "complex, memory, a core); the point is not fitted"
            )
        else:
            found.append(p)
    return found, notes


def blank_drive(
    points: Sequence[Point], host: BenchHost, name: str, captured_on: str | None, included: bool
) -> DriveProfile:
    """A drive of which nothing but its link, and the CPU time that it holds, is known."""
    q = Quantity
    least = min(p.block_size for p in points)  # larger ones add the time of their pages
    rows = [p for p in points if p.iodepth == 1 and p.block_size == least and not p.sync]
    cpu = [p.cpu_s for p in rows if p.cpu_s]
    said = "usr + sys at depth 1"
    held = q(value=round(1e12 * max(cpu, default=0.0)), basis="measured", source=said)
    return DriveProfile(
        name=name,
        link=str(host.link),
        interface=INTERFACES.get(host.link.kind, "nvme"),
        capacity=q(value=1e12, basis="assumed"),
        host_included=included,
        captured_on=captured_on,
        host_submit=held if included and cpu else None,
        dies=q(value=64),
        channels=q(value=8),
        commands=q(value=1e6),
        read_bandwidth=q(value=bandwidth(points, 7e9, read=True), basis="assumed"),
        write_bandwidth=q(value=bandwidth(points, 5e9, read=False), basis="assumed"),
        read=blank_reads(),
        write=blank_writes(),
    )


def least_link(points: Sequence[Point]) -> str:
    """The slowest PCIe 4.0 or later x4 link that carries *points*: the drive's own is not said."""
    moved = max((_one_way(p) for p in points), default=0.0)
    return "pcie4 x4" if moved < 7.5e9 else "pcie5 x4" if moved < 15e9 else "pcie6 x4"


def _one_way(p: Point) -> float:
    """Bytes per second in the busier direction of one drive's link."""
    return p.iops * p.block_size / p.targets * max(p.read_fraction, 1 - p.read_fraction)
