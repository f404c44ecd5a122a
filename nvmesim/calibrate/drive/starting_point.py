"""Where a fit starts, its streams, and its numbers put into a profile with intervals and sources.

It starts from rows that measure the drive, doubts about their host, and a blank drive. Bandwidths
are of sequential rows; rows that no drive's link carries are said.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.drive import laws, open_ceilings
from nvmesim.calibrate.drive.read_side import CHANNEL_PS, PAGE, US, Progress
from nvmesim.calibrate.drive.write_side import BUFFER
from nvmesim.calibrate.infer.optimum import Values, solved
from nvmesim.calibrate.infer.problem import Parameter
from nvmesim.calibrate.points import LONE_S, Point, sources
from nvmesim.catalog.links import command_ceiling
from nvmesim.catalog.profile import DriveProfile, Quantity, ReadSide, WriteSide
from nvmesim.catalog.quantity import with_numbers

Key = Literal["read_bandwidth", "write_bandwidth"]
STREAM_ROUNDS: Final = 4
SLOWEST_FLASH_S: Final = 1e-3
"""Latency of a lone read above which the media is not flash: disks take 3 ms and more."""
SMALL: Final = 4096
"""Bytes up to which a sequential row's ceiling is of requests/s, and not of bytes/s."""
FEW_BYTES: Final = 0.3
"""Share of the bytes/s of the fastest row, or of data sheets, below which a stream is not what
limits. Assumed."""
SEQUENTIAL: Final = (0.42, 0.5)
"""Most small sequential reads/s of many readers of flash behind PCIe as a share of the bytes of its
link, and the deviation of its logarithm. Source: six drives of `calibration/held-out` (0.22 to
0.59, 0.33), with some doubt more."""
MANY_BYTES: Final = 0.8
"""Share of a bandwidth from which on it may be what limits. Assumed."""
FEW_REQUESTS: Final = 16
"""Requests in flight of a drive up to which such a row tells a time, and not commands/s."""
LEAST_WAIT_PS: Final = 0.1e6
"""Least time before the data of a sequential request. Assumed."""
LARGE: Final = 128 << 10
"""Bytes of the smallest sequential read that tells `read.stream_large`."""
LARGE_WAIT: Final = (1.8, 0.5, 4.0)
"""What comes before the data of a lone large sequential read, in random reads
of 4 KiB: middle, standard deviation of the logarithm, and most. Source: nine drives, see
`ReadSide.stream_ps`."""
ALIKE: Final = 0.1
"""Difference of the logarithm up to which sequential reads did as random ones. Assumed."""
SHOWN_OF_LINK: Final = 0.83
"""Share of the bytes/s of a link up to which a drive's own bandwidth shows. Assumed: some 0.9 of it
is data."""
LARGER_PAYLOAD: Final = 512
"""Largest TLP payload that is assumed where a row needs more than the usual one carries."""


STREAMED: Final[dict[bool, Key]] = {True: "read_bandwidth", False: "write_bandwidth"}


def with_streams(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress,
    given: Sequence[Point] = (),
) -> DriveProfile:  # fmt: skip
    """*profile* with the bandwidths that sequential rows tell; no open one is below *given* rows'.

    Those are of random requests and of full threads, too.
    """
    if profile.rounds is not None:
        return profile
    for is_read, key in STREAMED.items():
        rows = streams(points, read=is_read)
        alone = [p for p in points if p.random and p.read_fraction == float(is_read)]
        alike = [p for p in rows if is_read and _is_as_random(p, alone)]
        if alike and len(alike) == len(rows):  # no reader found its data read ahead
            profile = with_numbers(profile, {"read.ahead": False})
            continue
        lone = laws.unloaded_latency_s(alone, read=is_read)[0] if alone else LONE_S[is_read]
        small = [p for p in rows if p.block_size <= SMALL]
        if small and not alone:
            lone = max(lone, min(p.outstanding / p.iops for p in small))
        if not alone:
            profile = with_stream_commands(profile, host, rows, given, read=is_read)
        if rows:
            tell(f"sequential {'reads' if is_read else 'writes'}")
            if alone and is_read:
                profile = with_slower_streams(profile, rows, alone)
            moved = _most_moved(given, read=is_read)
            profile = fit_stream(profile, host, rows, key, sources(rows), lone, moved)
    return _written_no_faster(profile, host, points)


WRITTEN: Final = Expected(0.8, 0.5)
"""Bytes/s that a drive writes at most, in units of those it reads, where only these are shown and
far below its link. Sources: data sheets (0.2 to 0.9 of flash behind PCIe), volumes of clouds (1.0;
`calibration/held-out`)."""


def _written_no_faster(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point]
) -> DriveProfile:
    """*profile* whose writes, of which no row tells, are no faster than reads at a ceiling."""
    shown, assumed = profile.read_bandwidth, profile.write_bandwidth
    if shown.basis != "fitted" or assumed.basis != "assumed" or shown.value >= assumed.value:
        return profile
    stated = Expected(WRITTEN.value * shown.value, WRITTEN.sd)
    quantity = blank_bandwidth(points, replace(host, sheet={SHEET_KEYS[False]: stated}), read=False)
    assumed = quantity.model_copy(update={"basis": "assumed"})
    return with_numbers(profile, {"write_bandwidth": assumed})


def with_slower_streams(
    profile: DriveProfile, points: Sequence[Point], alone: Sequence[Point]
) -> DriveProfile:
    """*profile* with the most small sequential reads/s of *points*, if random ones were faster.

    *alone*: random reads. With as many in flight, or fewer, one of them did more. A row of few
    requests tells how long one takes, and no ceiling.
    """
    deep = [p for p in points if laws.in_flight(p) > laws.SHALLOW * p.targets]
    small = [p for p in deep if p.block_size <= SMALL]
    top = max(small, key=lambda p: p.iops / p.targets, default=None)
    if top is None or not any(
        q.block_size == top.block_size
        and laws.in_flight(q) / q.targets <= laws.in_flight(top) / top.targets
        and math.log(q.iops / q.targets / (top.iops / top.targets)) > ALIKE
        for q in alone
    ):  # fmt: skip
        return profile
    rate = Quantity(value=top.iops / top.targets, basis="fitted", source=sources([top]))
    return with_numbers(profile, {"read.stream_commands": rate})


def _is_as_random(point: Point, others: Sequence[Point]) -> bool:
    """True if a sequential *point* of many readers did as a random one of *others* of that load."""
    p = point
    return any(
        (q.block_size, q.jobs, q.iodepth, q.targets) == (p.block_size, p.jobs, p.iodepth, p.targets)
        and abs(math.log(q.iops / p.iops)) < ALIKE and p.jobs > laws.SHALLOW * p.targets
        for q in others
    )  # fmt: skip


def streams(points: Sequence[Point], *, read: bool) -> list[Point]:
    """Sequential rows of one operation, without flushes; a full thread tells no bandwidth."""
    share = 1.0 if read else 0.0
    return [
        p for p in points
        if not (p.random or p.sync or p.is_cpu_bound) and p.read_fraction == share
    ]  # fmt: skip


def fit_stream(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], key: Key, source: str,
    lone_s: float = 0.0, moved: float = 0.0,
) -> DriveProfile:  # fmt: skip
    """Return *profile* with the bandwidth at *key* that *points* tell; *moved* bytes/s are less.

    A row of a request or two tells how long one takes, and not how many bytes move at most, and so
    does a row that moves few. With such rows what comes before the data is fitted too, up to
    *lone_s* (the latency of a random request), and bandwidths are as likely as data sheets have
    them. Small rows that met the ceiling of commands, or of threads, tell neither.
    """
    is_read = key == "read_bandwidth"
    top = max(p.iops * p.block_size / p.targets for p in points)
    width = Parameter("bandwidth", 1.02 * top, low=0.9 * top, high=20 * top)
    parameters = [width]
    usual, sd = SATA_BANDWIDTH[is_read], SATA_SD
    if host.link.kind == "pcie":
        stated = host.sheet.get(SHEET_KEYS[is_read])
        shown = max(top, moved)
        usual, sd = open_ceilings.open_bandwidth(host.link, shown, read=is_read, stated=stated)
        if stated:  # what the link hides is not found from above
            usual = min(usual, max(1.02 * top, SHOWN_OF_LINK * host.link.raw_bytes_per_s))
    points = [p for p in points if not _meets_commands(p, usual)] or points
    full = [p for p in points if _is_full(p, points, usual, lone_s)]
    waiting = [p for p in points if p not in full and _tells_wait(p, max(top, usual))]
    is_deep = len(waiting) < len(points)
    # behind SATA an arm may be waited for
    is_quick = 0 < lone_s < SLOWEST_FLASH_S and not streams_slowly(points)
    may_wait = {"pcie": lone_s > 0, "sata": is_quick}
    if waiting and may_wait.get(host.link.kind, False):
        if not is_deep:
            low = max(width.low, moved)
            is_told = any(p.block_size > SMALL for p in waiting)
            width = replace(width, start=usual, low=low, high=20 * usual, prior_sd=sd, told=is_told)
            parameters = [width]
        kinds = _waits(waiting) if is_read else {"write.base": waiting}
        width_then = top if is_deep else usual
        parameters += [
            _wait(key, rows, lone_s * 1e12, width_then, is_read=is_read, is_deep=is_deep)
            for key, rows in kinds.items()
        ]

    def made(at: Values) -> DriveProfile:
        update: dict[str, Quantity | float] = {key: at["bandwidth"]}
        waits = {name: at[name] for name in at if name != "bandwidth"}
        update |= {k: Quantity(value=v, basis="fitted", source=source) for k, v in waits.items()}
        return with_numbers(profile, update)

    found = solved(points, host, made, parameters, rounds=STREAM_ROUNDS, shape=False)
    rate, drawn = found.best["bandwidth"], [at["bandwidth"] for at in found.draws]
    ends = found.ends.get("bandwidth", np.quantile(drawn, (0.025, 0.975)))
    low, high = min(0.98 * rate, ends[0]), max(1.02 * rate, ends[1], _beyond(full, points))
    basis: Literal["fitted", "assumed"] = "fitted" if is_deep or len(parameters) == 1 else "assumed"
    quantity = Quantity(value=rate, low=low, high=high, basis=basis, source=source)
    return with_numbers(made(found.best) if is_read else profile, {key: quantity})


SLOW_BYTES: Final = 250e6
"""Bytes/s of large sequential requests that a disk's arm does, and lone ones of flash behind SATA
or NVMe are above. Source: data sheets of disks state up to 285 MB/s at the rim; solid-state drives
behind a USB bridge did 340 and more (a mailed capture), behind SATA 350 to 560."""


def streams_slowly(points: Sequence[Point]) -> bool:
    """True if *points* are sequential, large ones among them, and none faster than a disk's arm.

    >>> rows = [Point("", 1.0, False, 1 << 20, 1, 1, iops, None) for iops in (73.0, 540.0)]
    >>> streams_slowly(rows[:1]), streams_slowly(rows)
    (True, False)
    """
    return not any(p.random for p in points) and (
        0 < max((p.iops * p.block_size / p.targets for p in points if p.block_size >= LARGE),
                default=0.0) < SLOW_BYTES
    )  # fmt: skip


def _waits(waiting: Sequence[Point]) -> dict[str, list[Point]]:
    """Constant parts of sequential reads, and those of *waiting* that tell each."""
    kinds: dict[str, list[Point]] = {}
    for p in waiting:
        name = "read.stream_large" if p.block_size >= LARGE else "read.stream"
        kinds.setdefault(name, []).append(p)
    return kinds


def _wait(
    name: str, waiting: Sequence[Point], lone_ps: float, width: float, *, is_read: bool,
    is_deep: bool,
) -> Parameter:  # fmt: skip
    """What comes before the data, up to a random request's latency; of large reads up to more.

    A remote disk's large reads take longer than those of any drive: what their rows take, less the
    time of their bytes at *width* bytes/s.
    """
    if not is_read or any(p.block_size < LARGE for p in waiting):
        return Parameter(name, lone_ps / 2, low=min(LEAST_WAIT_PS, lone_ps / 4), high=lone_ps)
    start, most = LARGE_WAIT[0] * lone_ps, LARGE_WAIT[2] * lone_ps
    sd = 0.0 if is_deep else LARGE_WAIT[1]
    took = min(laws.in_flight(p) / p.iops - p.block_size * p.targets / width for p in waiting)
    if (took_ps := 1e12 * took) > most:
        start, most = (took_ps, 2 * took_ps) if is_deep else (start, took_ps)
    return Parameter(name, start, low=min(LEAST_WAIT_PS, lone_ps / 4), high=most, prior_sd=sd)


def with_written_bytes(
    profile: DriveProfile, host: BenchHost, writes: Sequence[Point]
) -> DriveProfile:
    """*profile* with the bandwidth of large *writes*, which its programs do not limit."""
    rate = max(p.iops * p.block_size / p.targets for p in writes)
    drain = max(profile.dies.value / profile.write.program.value, 2e-12 * rate / 4096)
    profile = with_numbers(profile, {"write.program": profile.dies.value / drain})
    profile = fit_stream(profile, host, writes, "write_bandwidth", sources(writes), LONE_S[False])
    if not all(p.outstanding <= laws.SHALLOW * p.targets for p in writes):
        return profile

    def made(at: Values) -> DriveProfile:  # alone they wait for no drain
        return with_numbers(profile, {"write.base": at["base"]})

    took = 1e12 * min(p.outstanding / p.iops for p in writes)
    base = Parameter("base", took / 2, low=took / 100, high=took)
    return made(solved(writes, host, made, [base], rounds=STREAM_ROUNDS, shape=False).best)


def with_stream_commands(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], given: Sequence[Point], *,
    read: bool,
) -> DriveProfile:  # fmt: skip
    """*profile* with the commands/s that deep, small, sequential *points* end at.

    For drives whose random requests nobody measured: what is far from any bandwidth, and took many
    times a lone request, met the ceiling of commands. Where no row did, reads as *given* end where
    random ones usually do, and sequential ones at `SEQUENTIAL`; those of a data sheet as it says.
    """
    usual = getattr(profile, "read_bandwidth" if read else "write_bandwidth").value
    full = [p for p in points if _meets_commands(p, usual)]
    most = max((p.iops / p.targets for p in given if p.read_fraction == 1), default=0.0)
    if full:
        top = max(full, key=lambda p: p.iops / p.targets)
        rate = Quantity(value=top.iops / top.targets, basis="fitted", source=sources([top]))
    elif read and most and host.link.kind == "pcie":
        link, stated = host.link, host.sheet.get("random_read")
        if any(p.is_stated for p in given):
            sheets = open_ceilings.usual_ceiling(link, read=True)
            stated = stated or open_ceilings.of_link(link, *sheets)
        else:
            usual = open_ceilings.of_link(link, *SEQUENTIAL)
            found = open_ceilings.open_ceiling(link, SMALL, most, read=True, stated=usual)
            each = likely(*found, "assumed", least=most)
            profile = with_numbers(profile, {"read.stream_commands": each})
        found = open_ceilings.open_ceiling(link, SMALL, most, read=True, stated=stated)
        rate = likely(*found, "assumed", least=most)
    else:
        return profile
    return with_numbers(profile, {"commands" if read else "write.commands": rate})


def _meets_commands(point: Point, usual: float) -> bool:
    """True if *point* took many times a lone request, and moved few of the *usual* bytes/s."""
    p = point
    waited = laws.in_flight(p) / p.iops > laws.WAITED * LONE_S[p.read_fraction == 1]
    is_deep = p.block_size <= SMALL and laws.in_flight(p) > FEW_REQUESTS * p.targets
    return waited and is_deep and p.iops * p.block_size / p.targets < MANY_BYTES * usual


def _tells_wait(point: Point, top: float) -> bool:
    """True if *point* tells how long a request takes: few at once, or far from *top* bytes/s."""
    moved = point.iops * point.block_size / point.targets
    few = laws.in_flight(point) / point.targets <= laws.SHALLOW
    return few or (
        moved < FEW_BYTES * top and laws.in_flight(point) <= FEW_REQUESTS * point.targets
    )


def _is_full(point: Point, others: Sequence[Point], usual: float, lone_s: float) -> bool:
    """True if a large sequential *point* was at a ceiling.

    It did hardly more than one of *others* of fewer requests (its rate grew by less than half as
    much as its depth, as logarithms), or several took longer than any drive's of *usual* bytes/s
    whose lone random read takes *lone_s*, and no row of more did more.
    """
    p = point
    if p.block_size < LARGE:
        return False
    grew = [
        (math.log(q.iops / p.iops), math.log(q.outstanding / p.outstanding)) for q in others
        if (q.block_size, q.targets) == (p.block_size, p.targets)
    ]  # fmt: skip
    if any(deeper < 0 and 2 * more > deeper for more, deeper in grew):
        return True
    flight = laws.in_flight(p)
    slowest = LARGE_WAIT[2] * lone_s + flight * p.block_size / p.targets / usual
    is_slow = flight > laws.SHALLOW * p.targets and flight / p.iops > slowest
    return is_slow and not any(more > ALIKE and deeper > 0 for more, deeper in grew)


def _beyond(full: Sequence[Point], others: Sequence[Point]) -> float:
    """Bytes/s that *full* rows leave open: where the time of a request goes on as it grew.

    A queue before one server is as fast as its busiest row; requests that meet by chance at one of
    many servers wait longer with each further one, and are never quite at their ceiling.
    """
    open_ = 0.0
    for p in full:
        for q in others:
            deeper = p.outstanding - q.outstanding
            longer = p.outstanding / p.iops - q.outstanding / q.iops
            if (q.block_size, q.targets) == (p.block_size, p.targets) and min(deeper, longer) > 0:
                open_ = max(open_, deeper / longer * p.block_size / p.targets)
    return open_


def with_payload(host: BenchHost, points: Sequence[Point], notes: list[str]) -> BenchHost:
    """*host* with a link whose payload carries *points*, if it is only assumed; *notes* get why.

    A row beyond any payload of the link names the row.
    """
    for p in sorted(points, key=lambda p: -p.iops * p.block_size):
        op: Literal["read", "write"] = "read" if p.read_fraction >= 0.5 else "write"
        needed = p.iops * max(p.read_fraction, 1 - p.read_fraction) / p.targets
        if needed <= command_ceiling(host.link, op, p.block_size):
            continue
        wide = replace(host.link, mps=LARGER_PAYLOAD)
        if needed <= 1.001 * command_ceiling(wide, op, p.block_size):
            notes.append(
                f"{p.name}: {needed * p.block_size / 1e9:.3g} GB/s need payloads of "
                f"{LARGER_PAYLOAD} bytes on {host.link}; the usual {host.link.mps} carry "
                f"{command_ceiling(host.link, op, p.block_size) * p.block_size / 1e9:.3g}"
            )
            return replace(host, link=wide)
    return host


SHEET_KEYS: Final = {True: "sequential_read", False: "sequential_write"}
"""What data sheets call the bandwidth of reads (true) and of writes."""


def blank_bandwidth(points: Sequence[Point], host: BenchHost, *, read: bool) -> Quantity:
    """Bandwidth to begin with, bytes/s: data sheets', and no less than what *points* move."""
    link, stated = host.link, host.sheet.get(SHEET_KEYS[read])
    moved = _most_moved(points, read=read)
    known = stated or open_ceilings.bandwidth_by_small(link, points, read=read)
    if link.kind == "sata" and not known:
        return Quantity(value=max(SATA_BANDWIDTH[read], 1.05 * moved))
    if link.kind != "pcie" and not known:
        return Quantity(value=max(7e9 if read else 5e9, 2 * moved))  # the link is less
    usual, sd = open_ceilings.open_bandwidth(link, moved, read=read, stated=known)
    return likely(usual, sd, "datasheet" if stated else "assumed")


def likely(
    usual: float, sd: float, basis: Literal["datasheet", "assumed"], least: float = 0.0
) -> Quantity:
    """Return a number that is *usual*, *sd* the deviation of its logarithm, and *least* at least.

    >>> likely(100.0, 0.5, "assumed", least=50.0).low
    50.0
    """
    low, high = max(least, usual * math.exp(-1.96 * sd)), usual * math.exp(1.96 * sd)
    return Quantity(value=usual, low=low, high=high, basis=basis)


def _most_moved(points: Sequence[Point], *, read: bool) -> float:
    """Most bytes/s that a drive moved in a row of *points*, of reads or of writes."""
    shares = [p.read_fraction if read else 1 - p.read_fraction for p in points]
    moved = (p.iops * p.block_size * s / p.targets for p, s in zip(points, shares, strict=True))
    return max(moved, default=0.0)


SATA_SD: Final = 0.1
"""Standard deviation of the logarithm of `SATA_BANDWIDTH`. Assumed: twice what data sheets show."""
SATA_BANDWIDTH: Final = {True: 550e6, False: 510e6}
"""Bytes/s of reads (true) and writes of a SATA drive that no row shows. Source: data sheets state
520 to 560 and 480 to 530 MB/s (Samsung 860 EVO, PM863a; Intel S4510; Micron 5300)."""
INTERFACES: Final[dict[str, Literal["sata", "sas"]]] = {"sata": "sata", "sas": "sas"}
"""Kind of a link -> what its drives speak; all others speak NVMe."""


SATA_COMMANDS: Final = 100e3
"""Commands/s of a drive behind SATA that no row shows: data sheets state 95,000 to 100,000 random
reads/s (Samsung 860 EVO, PM863a; Intel S4510; Micron 5300)."""


def blank_drive(
    name: str, link: str, captured_on: str | None = None, included: bool = True
) -> DriveProfile:
    """A drive of which nothing but its *link* is known, the host in it where it is *included*."""
    q = Quantity
    return DriveProfile(
        name=name, link=link, capacity=q(value=1e12), host_included=included,
        captured_on=captured_on, dies=q(value=64), channels=q(value=8), commands=q(value=1e6),
        read_bandwidth=q(value=7e9), write_bandwidth=q(value=5e9),
        read=ReadSide(base=q(value=US), die=q(value=50 * US), channel=q(value=CHANNEL_PS),
                      unit=q(value=PAGE)),
        write=WriteSide(base=q(value=15 * US), program=q(value=100 * US), buffer=q(value=BUFFER)),
    )  # fmt: skip


def drive_of_rows(
    points: Sequence[Point], host: BenchHost, name: str, captured_on: str | None, included: bool
) -> DriveProfile:
    """A blank drive behind the link of *host*, and the CPU time that it holds."""
    q, link = Quantity, host.link
    least = min(p.block_size for p in points)  # larger ones add the time of their pages
    rows = [p for p in points if p.iodepth == 1 and p.block_size == least and not p.sync]
    cpu = [p.cpu_s for p in rows if p.cpu_s]
    said = "usr + sys at depth 1"
    held = q(value=round(1e12 * max(cpu, default=0.0)), basis="measured", source=said)
    return with_numbers(blank_drive(name, str(link), captured_on, included), {
        "interface": INTERFACES.get(link.kind, "nvme"),
        "host_submit": held if included and cpu else None, "wait_cv": 0.0,
        "commands": SATA_COMMANDS if link.kind == "sata" else 1e6,
        **({"tags": 1.0} if link.bridge.endswith("bot") else {}),
        "read_bandwidth": blank_bandwidth(points, host, read=True),
        "write_bandwidth": blank_bandwidth(points, host, read=False),
    })  # fmt: skip
