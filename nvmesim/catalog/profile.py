"""The profiles a scenario refers to: drives, CPUs, stacks, RAID engines, platforms.

Every number is a *quantity*: a text with its unit, and how far to trust it. A profile file is TOML;
`calibrate` writes one, `nvmesim catalog show` prints one, and a scenario may hold one as a table.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from nvmesim.catalog.engine_profile import CYCLES as CYCLES
from nvmesim.catalog.engine_profile import FileSection as FileSection
from nvmesim.catalog.engine_profile import RaidEngineProfile as RaidEngineProfile
from nvmesim.catalog.engine_profile import StackProfile as StackProfile
from nvmesim.catalog.links import usual_server
from nvmesim.catalog.quantity import Alternative as Alternative
from nvmesim.catalog.quantity import Bandwidth as Bandwidth
from nvmesim.catalog.quantity import Basis as Basis
from nvmesim.catalog.quantity import Captured as Captured
from nvmesim.catalog.quantity import Frozen as Frozen
from nvmesim.catalog.quantity import JointDraws as JointDraws
from nvmesim.catalog.quantity import Number as Number
from nvmesim.catalog.quantity import Quantity as Quantity
from nvmesim.catalog.quantity import Rate as Rate
from nvmesim.catalog.quantity import Residual as Residual
from nvmesim.catalog.quantity import Size as Size
from nvmesim.catalog.quantity import Time as Time
from nvmesim.catalog.quantity import UnitOf as UnitOf
from nvmesim.units import PS_PER_S

FLASH_PS: Final = 20e6
"""Latency of a lone read from which on the media reads and writes by turns: a mix moves what the
harmonic mean of both bandwidths says. Phase change (7 to 10 us) does both at once. Sources: 50/50
of 1 MiB, 1.79 GB/s where reads alone do 1.72 and writes 1.35 (chris-sanders/ceph-fio-results);
70/30 of 1 MiB, 3.5 GiB/s where reads do 9.8 and writes 1.8 (AIHomeLab, a Samsung 9100 PRO)."""
WAIT_CV: Final = 0.4
"""Variation of waits where a controller or a link is full. Source: p99 of full drives is 2.1 times
the mean, half of them 1.4 to 3 times (90 rows of random reads of 31 sources, 55 of random writes of
13, `calibration/held-out`); in order it is 1.0."""
SMALL: Final = 4096
"""Bytes of a small read."""
BUFFERED: Final = 64 << 10
"""Bytes of the largest sequential read that finds all of its data read ahead. Found: one reader of
64 KiB of a 980 PRO does 2,079 MiB/s (`calibration/published/980pro-raid0-reader`), 31 us each."""
AHEAD: Final = 256 << 10
"""Bytes of a sequential read from which on it waits as long as a random one. Found: reads of 4 KiB
to 256 KiB of a drive (W01 of `calibration/held-out`) take 11 us, and from 64 KiB on 0.2 us a KiB
more, beside their bytes, where random ones take 42 us and more."""


class Collection(Frozen):
    """Garbage collection that stalls writes: one drain behind the buffer, with batches.

    Between batches the drain takes ``drain`` writes a second; after every ``every`` writes comes a
    batch in which it takes ``rate``. The numbers describe what hosts see, not the firmware. Dies
    keep serving reads: what those wait is ``busy``. Sources: the figures of SSD-iq (PVLDB 18(11),
    2025), whose delayed writes wait uniformly long, once in so many writes whatever the rate is;
    that a drive divides its buffer between user and collector by its free blocks: pblk
    (drivers/lightnvm/pblk-rl.c in Linux 4.12).
    """

    drain: Rate
    """4 KiB writes a second that leave the buffer between two batches."""
    every: Number
    """Writes of 4 KiB from batch to batch."""
    length: Time
    """Mean length of a batch."""
    length_cv: Number = Quantity(value=0.05)
    """Its coefficient of variation."""
    law: Literal["gamma", "uniform"] = "gamma"
    """Distribution of a batch's length; uniform: from 0 to twice the mean."""
    rate: Rate
    """4 KiB writes a second that leave the buffer during a batch."""
    slots: Number
    """Writes of 4 KiB that the buffer holds before others wait."""
    busy: Time = Quantity(value=0)
    """Die time of each 4 KiB write that reads may find: beside x writes a second a read waits for
    the rest of a ``program`` with probability x times this."""
    queue: Number | None = None
    """Reads wait behind the writes that wait for the buffer, except for the last so many; None:
    reads pass them."""

    @property
    def ceiling(self) -> float:
        """4 KiB writes a second at saturation, of steady arrivals: V / (T + (V - r0 T) / mu)."""
        length = self.length.value / PS_PER_S
        between = (self.every.value - self.rate.value * length) / self.drain.value
        return self.every.value / (length + between)

    @model_validator(mode="after")
    def _goes_on(self) -> Collection:
        if not self.rate.value <= self.drain.value or self.rate.value <= 0:
            raise ValueError("write.collection: rate must be above 0 and not above drain")
        taken = self.rate.value * self.length.value / PS_PER_S
        if self.every.value < max(1.0, taken) or self.slots.value < 1:
            raise ValueError("write.collection: every must be what a batch takes, or more")
        if self.busy.value * self.ceiling >= PS_PER_S:
            raise ValueError("write.collection: busy keeps dies busy beyond all time")
        return self


STREAM_PS = 8e6
"""Constant part of a sequential read where nothing tells it. Source: 6.4 us of a 980 PRO
(`calibration/published/980pro-raid0-reader`), 9 to 10 of an Intel data center SSD (15.6 us with the
host, `calibration/held-out`, S04)."""


class ReadSide(Frozen):
    """How the drive reads: bank of dies, channel, controller."""

    base: Time
    """Constant part of a 4 KiB read: controller firmware, and the host when host_included."""
    die: Time
    """Mean time a die is busy for one unit."""
    die_cv: Number = Quantity(value=0.1)
    """Coefficient of variation of the die time (gamma distributed)."""
    channel: Time
    """Time a channel is busy for one unit of 4 KiB."""
    unit: Size = Quantity(value=4096)
    """Bytes that one die reads at once: a larger command forks into units."""
    large: Time | None = None
    """What a random read of 64 KiB or more takes longer than one of 4 KiB, beside its bytes: whole
    pages, and the slowest of several; see `large_ps`. None: as its channel takes."""
    engines: Number | None = None
    """Data engines that serve commands larger than ``unit``, one engine a command: after one die
    read the command's units go through its engine one by one, ``split`` each. None: the command
    forks instead, each unit on its own die."""
    split: Time = Quantity(value=0)
    """Time of one unit in a data engine."""
    serial: Number | None = None
    """Of the time between two random reads of 4 KiB at their ceiling, less that of their bytes, the
    share for which a larger read holds the way of the data, too. 1: commands and bytes take turns;
    None or 0: they overlap, and the slower of the two is the ceiling at every size."""
    ahead: bool = True
    """A sequential reader finds its data read ahead: no die is waited for, ``read_bandwidth`` and
    the constant part are what it gets. Found: one 980 PRO does 76k sequential reads of 4 KiB a
    second at depth 1, and 15k random ones."""
    stream: Time | None = None
    """Constant part of a read that was read ahead. None: see `stream_ps`."""
    unmapped: bool = False
    """Nothing was written: the controller answers by itself, and waits for no die."""
    stream_large: Time | None = None
    """The same of a read of `AHEAD` bytes or more. None: see `stream_ps`."""
    stream_commands: Number | None = None
    """Reads per second of what was read ahead, at most, where that is less than of random ones."""

    @property
    def is_flash(self) -> bool:
        """True if a lone read takes what flash takes."""
        return self.base.value + self.die.value > FLASH_PS

    def large_ps(self, n_bytes: int) -> float:
        """Part of `large` that a random read of *n_bytes* takes beside its channel's time, ps.

        In steps of a doubling. Found: of what 64 KiB take more 16 KiB take 0.1 to 1, half of it in
        the middle (R22, S12, S17, U02, U07, W01, W07, B07 of `calibration/held-out`).
        """
        if self.large is None or n_bytes <= SMALL:
            return 0.0
        share = min(1.0, math.log(n_bytes / SMALL) / math.log(BUFFERED / SMALL))
        channel = self.channel.value * (min(n_bytes, self.unit.value) / SMALL - 1)
        return max(0.0, self.large.value * share - max(0.0, channel))

    def stream_ps(self, n_bytes: int) -> float:
        """Constant part of a sequential read of *n_bytes*, ps.

        What was read ahead takes a random read's, or `STREAM_PS` if more; no longer than a random
        read, whose data is not there yet. Of a large read the last page is waited for, too: alone
        it takes 76 to 340 us more than its bytes, 0.8 to 3.4 random reads of 4 KiB (nine drives of
        `calibration/held-out`: S02, U10, Y06 to Y10, Y14); between `BUFFERED` and `AHEAD` bytes in
        part (W01). A disk's arm is not waited for: of one, ask for 0 bytes.
        """
        lone = self.base.value + self.die.value
        small = max(self.base.value, min(STREAM_PS, lone))
        small = small if self.stream is None else self.stream.value
        last = self.die_cv.value * math.sqrt(2 * math.log(max(1.0, AHEAD / self.unit.value)))
        more = last * self.die.value + self.channel.value * self.unit.value / SMALL
        large = lone + max(more, 0.0 if self.large is None else self.large.value)
        large = large if self.stream_large is None else self.stream_large.value
        share = (n_bytes - BUFFERED) / (AHEAD - BUFFERED)
        return small + max(0.0, large - small) * min(max(share, 0.0), 1.0)


class WriteSide(Frozen):
    """How the drive writes: acknowledged from a buffer, programmed behind it."""

    base: Time
    """Time to acknowledge a 4 KiB write while the buffer has room."""
    base_cv: Number = Quantity(value=0.1)
    program: Time
    """Time one die is busy to program one unit; dies x unit / program is the sustained rate."""
    program_cv: Number = Quantity(value=0.1)
    unit: Size = Quantity(value=4096)
    """Bytes that one program puts on a die."""
    buffer: Size
    """Power-protected buffer: writes wait when the backlog is larger."""
    through: bool = False
    """No buffer: a write is acknowledged when its die has programmed it (disks without a write
    cache, virtual disks)."""
    volatile: bool = False
    """The buffer is lost with the power: it must be flushed. With capacitors: false; Linux then
    sends neither flushes nor FUA (block/blk-core.c, submit_bio_noacct)."""
    flush: Time | None = None
    """Time of a flush command, or of a write that must reach a volatile drive's media, beside
    what it waits for; None: as ``base``."""
    flush_serial: Time | None = None
    """Of ``flush``, what the drive does for one flush at a time, whatever was written; writes wait
    behind it. None: all of it, and a flush first waits until the buffer is empty, a FUA write until
    its die has programmed it."""
    commands: Rate | None = None
    """Write commands per second the controller can take, where fewer than ``commands``. Of a disk:
    random writes that its own cache sorts, at any depth."""
    suspend: Time | None = None
    """A read waits this long for a program in service to be suspended, or until its end, if that is
    sooner; the program ends later by this and the read. None: for its end."""
    collection: Collection | None = None
    """Garbage collection in batches; then ``buffer`` and ``program`` do not limit writes."""

    @model_validator(mode="after")
    def _one_collection(self) -> WriteSide:
        if self.collection is not None and self.through:
            raise ValueError("write.collection does not go with write.through")
        return self


class Pauses(Frozen):
    """Pauses of a server: a host that gives its thread's CPU to another."""

    every: Time
    """Mean busy time between two pauses (a Poisson process)."""
    length: Time
    """Mean of a pause."""
    cv: Number = Quantity(value=1.0)
    """Its coefficient of variation: above 1, many are short and some long."""
    law: Literal["gamma", "lognormal"] = "gamma"
    """Distribution of its length."""


class Stalls(Frozen):
    """Requests that hold up the whole round: what the host must fetch or wait for itself."""

    share: Number
    """Share of the requests of one operation that stall."""
    length: Time
    """Mean of a stall (gamma distributed)."""
    cv: Number = Quantity(value=1.0)
    """Its coefficient of variation."""


class Rounds(Frozen):
    """A disk whose one server takes all that is queued as one round: a virtual disk's host thread.

    The thread wakes ``base`` after a request came to an idle disk, and serves all that came until
    then: n requests in flight take ``base`` and n times what each adds, and are answered together.
    What a request adds beyond 4 KiB is its bytes over ``read_bandwidth`` or ``write_bandwidth``.
    """

    base: Time
    """Time of a batch besides its requests."""
    base_cv: Number = Quantity(value=0.1)
    read: Time
    """Time that each read in it adds, up to 4 KiB of data."""
    write: Time | None = None
    """Time that each write adds; None: as a read."""
    cv: Number = Quantity(value=0.1)
    """Coefficient of variation of what a request adds."""
    most: Number = Quantity(value=256)
    """Requests that one round takes at most."""
    pauses: Pauses | None = None
    read_stalls: Stalls | None = None
    write_stalls: Stalls | None = None


class VolumeLimits(Frozen):
    """Rate limits of a provider's volume: token buckets that reads and writes share.

    A prediction is of the steady state: what an idle volume has saved up is spent, so ``burst`` is
    said and not simulated.
    """

    iops: Rate | None = None
    """Commands per second."""
    bandwidth: Bandwidth | None = None
    """Bytes per second."""
    burst: Time | None = None
    """How much unused limit is saved up at most, as time at the limit; None: not known."""

    @model_validator(mode="after")
    def _limits_something(self) -> VolumeLimits:
        rates = (self.iops, self.bandwidth)
        if all(q is None for q in rates) or any(q is not None and q.value <= 0 for q in rates):
            raise ValueError("limits needs iops or bandwidth, above 0")
        return self


class DriveProfile(Frozen):
    """One drive: mechanistic (dies, channels, controller) unless ``latencies`` are given.

    The structure was tried against a measured Samsung 980 PRO (docs/model.md).
    """

    kind: Literal["drive"] = "drive"
    name: str
    model: str = ""
    interface: Literal["nvme", "sata", "sas"] = "nvme"
    link: str = "pcie3 x4"
    capacity: Size
    state: Literal["fresh", "steady"] = "steady"
    physical_sector: Size = Quantity(value=4096, basis="assumed")
    host_included: bool = False
    """True if ``read.base`` and ``write.base`` still hold the host that measured them."""
    captured_on: str | None = None
    """The stack whose time was taken out of the captures."""
    host_submit: Time | None = None
    """With host_included: the host CPU time per request that is inside the bases."""
    dies: Number
    channels: Number
    commands: Rate
    """Commands per second the controller can take."""
    wait_cv: Number = Quantity(value=WAIT_CV, basis="assumed")
    """Variation of waits for the controller or link: 0 in order of arrival, 1 at random."""
    read_bandwidth: Bandwidth
    write_bandwidth: Bandwidth
    tags: Number = Quantity(value=1024, basis="assumed")
    """Commands the drive holds at once, over all its queues."""
    sorts: bool = False
    """A disk: each die is an arm that serves the nearest of the commands it holds (`tags` at most)
    first. Its writes are on the media when they are answered (``write.through``)."""
    max_transfer: Size | None = None
    """Largest command; None: no less than the host's own limit."""
    read: ReadSide
    write: WriteSide
    fresh: dict[str, Any] | None = None
    """Values that differ in state "fresh", by dotted key: {"read.unit" = "32 KiB"}."""
    power_active_w: Number | None = None
    power_idle_w: Number | None = None
    price: Number | None = None
    rounds: Rounds | None = None
    """The disk serves in rounds: dies, channels and the write buffer do not count then."""
    limits: VolumeLimits | None = None
    """A volume that is let through so much and no more, whatever the disk behind it could do."""
    latencies: EmpiricalLatencies | None = None
    joint: JointDraws | None = None
    """The fitted numbers' joint distribution: their own intervals leave out how they compensate."""
    alternatives: tuple[Alternative, ...] = ()
    """Other explanations of the same rows, with their weights; predictions draw from all."""
    residuals: tuple[Residual, ...] = ()
    """Residuals of the rows that it was fitted to, and of those held out."""
    captured: Captured | None = None
    untold: dict[str, str] = Field(default_factory=dict)
    """Dotted key of a number that the rows do not tell -> what would tell it."""
    missed: dict[str, float] = Field(default_factory=dict)
    """Largest relative error on IOPS of the calibration, of operations that it missed by 10 %."""
    write_caveat: str = ""
    """Said with every prediction that writes: what is known to be wrong with these numbers."""
    notes: str = ""

    @model_validator(mode="after")
    def _sorts_what_it_holds(self) -> DriveProfile:
        if self.sorts and not self.write.through:
            raise ValueError("sorts = true needs write.through = true: programs are not sorted")
        return self

    def counts(self, number: str) -> bool:
        """True if *number*, a dotted key, is one that a prediction with this drive uses.

        Dies, channels, the controller and the write buffer are not part of a disk of rounds, nor of
        one that gives the latencies of a capture.
        """
        if self.rounds is None and self.latencies is None:
            return True
        part, _, side = number.partition(".")
        if part in ("read", "write"):
            return side == "base" and self.rounds is not None
        return part not in ("dies", "channels", "commands")

    @property
    def takes_turns(self) -> bool:
        """True if a mix of reads and writes does no more than they would one after the other.

        So flash does: mixes of 4 KiB of 16 drives, 14 of `calibration` and two data sheets' (P3600,
        CM7), do 0.18 to 1.1 times that, half of them 0.84 to 1.0 times.
        """
        w = self.write
        return self.read.is_flash and not (self.sorts or w.through or w.collection is not None)

    @property
    def serial_ps(self) -> float:
        """Time that a random read holds the way of the data beside its bytes, ps."""
        return self._serial_ps()[0]

    def engine_ps(self, units: int, n_bytes: int) -> float:
        """Time of each of *units* of a random read of *n_bytes* in its data engine, ps.

        What is between 4 KiB and a unit takes a time between theirs.
        """
        command, most, small = self._serial_ps()
        each = self.read.split.value + command / units
        if units > 1:
            return each
        least = min(most, command + small)
        return least + (each - least) * (n_bytes - SMALL) / max(1.0, self.read.unit.value - SMALL)

    def _serial_ps(self) -> tuple[float, float, float]:
        """`serial_ps`, the most that 4 KiB leave for a command, and what their bytes take, ps.

        Of several data engines each holds a command longer for the same ceiling.
        """
        count, small = 1.0, SMALL * PS_PER_S / self.read_bandwidth.value
        if self.read.engines is not None:
            count, small = (
                self.read.engines.value,
                self.read.split.value * SMALL / self.read.unit.value,
            )
        most = count * max(PS_PER_S / self.commands.value, self.read.die.value / self.dies.value)
        share = 0.0 if self.read.serial is None else self.read.serial.value
        return share * max(0.0, most - small), most, small

    @property
    def writes_unmeasured(self) -> bool:
        """True if reads were measured and writes were not: those are no more than a guess."""
        reads, writes = [self.read.base, self.read.die], [self.write.base, self.write.program]
        if self.rounds is not None:
            reads, writes = [self.rounds.read], [self.rounds.write or self.rounds.read]
        measured = any(q.basis in ("fitted", "measured") for q in reads)
        return measured and all(q.basis == "assumed" for q in writes) and self.latencies is None


class EmpiricalLatencies(Frozen):
    """Latencies drawn from a capture itself; honest only at the queue depth of that capture."""

    queue_depth: int = Field(ge=1)
    block_size: Size
    read_us: tuple[float, ...] = ()
    """Samples in the order they were measured, us."""
    write_us: tuple[float, ...] = ()
    block: int = Field(default=1, ge=1)
    """Draw runs of this many consecutive samples (1: independent draws); keeps episodes."""
    source: str = ""


DriveProfile.model_rebuild()


class CpuProfile(Frozen):
    """One CPU package."""

    kind: Literal["cpu"] = "cpu"
    name: str
    model: str = ""
    cores: int = Field(ge=1)
    threads_per_core: int = Field(default=2, ge=1, le=8)
    ghz: Number
    """Base frequency."""
    turbo_ghz: Number | None = None
    """All-core turbo."""
    smt_yield: Number = Quantity(value=1.25, low=1.15, high=1.35, basis="assumed")
    """Work of two busy siblings, in units of one busy thread on an idle core."""
    lanes: int = Field(default=128, ge=0)
    """Left out: the most that a server's CPU has, as nobody states the switches then."""
    pcie_generation: int = Field(default=5, ge=1, le=6)
    """Left out: the newest in servers, as in a fit. The next four, left out, are usual for it."""
    interconnect: Literal["upi", "xgmi", "qpi", "none"] = "upi"
    interconnect_links: int = Field(default_factory=usual_server("interconnect_links"), ge=0)
    interconnect_rate: str = Field(default_factory=usual_server("interconnect_rate"))
    memory_channels: int = Field(default_factory=usual_server("memory_channels"), ge=1)
    memory_rate: str = Field(default_factory=usual_server("memory_rate"))
    tdp_w: Number | None = None
    price: Number | None = None
    sources: tuple[str, ...] = ()
    notes: str = ""


class PlatformProfile(Frozen):
    """A server whose sockets, adapters and slots a scenario may take over."""

    kind: Literal["platform"] = "platform"
    name: str
    model: str = ""
    server: dict[str, Any]
    """The [server] table of a scenario."""
    adapters: tuple[dict[str, Any], ...] = ()
    controllers: tuple[str, ...] = ()
    """RAID engines of the catalog that its maker or its users have with it."""
    drives: tuple[dict[str, Any], ...] = ()
    """The [[drives]] of an instance of a provider."""
    bays: Number | None = None
    bay_lanes: Number | None = None
    socket_lanes: Number | None = None
    bay_link: str | None = None
    """The port of each bay: a drive without a stated link has no more."""
    slots: int | None = None
    sources: tuple[str, ...] = ()
    notes: str = ""


Profile = DriveProfile | CpuProfile | StackProfile | RaidEngineProfile | PlatformProfile
