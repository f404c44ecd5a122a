"""A server that was measured, and changes of its scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nvmesim.catalog.toml import quantity_at, show_value
from nvmesim.scenario.loads.fio_options import synchronous_engines
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.diagnosis.evidence import MeasuredRow, mean_size
from nvmesim.study.diagnosis.short_runs import Change

STATED: Final = 60.0
"""Times as common the page cache is where all rows state it (assumed)."""
IGNORED: Final = 1000.0
"""The same of a depth without effect, where engines on which it has none asked for more than one
request: fio documentation, iodepth. A row may be as slow for another reason besides."""
NOT_VIRTUAL: Final = 0.05
"""The same of a guest where no device has the name of a virtual disk (assumed)."""
DEEP: Final = 4
"""Requests in flight of a job from which latencies tell whether they were."""
FEW: Final = 0.4
"""Share of the requests asked that are in flight, or of a job's time, up to which it is few."""
IN_TURN: Final = 60.0
NOT_IN_TURN: Final = 0.02
"""How many times as common a depth without effect is, where few are in flight, and where not."""
HELD: Final = 10.0
NOT_HELD: Final = 0.1
"""The same of ZFS and the page cache, where jobs are held up as they submit, and where not; all of
these are assumed."""
ROUND: Final = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0, 10.0)
"""First digits of what people set limits to: 4.7 % of all rates lie so near one (`NEAR_ROUND`)."""
NEAR_ROUND: Final = 0.005
IS_SET: Final = (6.0, 0.5)
"""How much oftener limits are at a round rate than others, and at another: of seven public ones
four are (3000/s, 6004/s, 125.2 and 9.99 MiB/s), of other rates 9 % in requests or MiB."""
MIB: Final = 1 << 20
WHOLE: Final = 64 * 1024
"""Bytes of a write from which on most of its units are whole, wherever it begins."""
VIRTUAL: Final = ("vd", "xvd", "sd")
"""How names of virtual disks begin (Linux, virtio_blk.c, xen-blkfront.c and sd.c)."""


@dataclass(frozen=True)
class Server:
    """The server as its scenario describes it, and the rows that were measured on it."""

    tables: Mapping[str, Any]
    resolved: ResolvedScenario
    rows: Sequence[MeasuredRow]

    def has_several(self, key: str) -> bool:
        """True if a row's load has more than one of *key*."""
        return any(row.workload.get(key, 0) > 1 for row in self.rows)

    @property
    def has_writes(self) -> bool:
        """True if a row writes."""
        return any(row.workload["read"] < 1 for row in self.rows)

    @property
    def has_small_writes(self) -> bool:
        """True if a row writes, and none that does writes `WHOLE` bytes or more."""
        loads = [row.workload for row in self.rows if row.workload["read"] < 1]
        return bool(loads) and max(map(mean_size, loads)) < WHOLE

    @property
    def is_linux(self) -> bool:
        """True if the stack is of a Linux kernel."""
        return self.resolved.stack.name.startswith("linux")

    @property
    def is_windows(self) -> bool:
        """True if the stack is of Windows."""
        return self.resolved.stack.name.startswith("windows")

    @property
    def is_buffered(self) -> bool:
        """True if all rows state that the page cache was in the way."""
        return all(row.is_buffered for row in self.rows)

    @property
    def may_queue(self) -> bool:
        """True if requests pass queues of a kernel, and not its page cache."""
        return self.has_page_cache and not self.is_buffered

    @property
    def may_wait(self) -> bool:
        """True if a row's engine may wait for each request, and the page cache is not why."""
        waiting = {None, *synchronous_engines()}
        return self.may_queue and not waiting.isdisjoint(r.engine for r in self.rows)

    @property
    def has_page_cache(self) -> bool:
        """True if requests pass through a kernel."""
        return self.resolved.stack.name != "spdk"

    def contexts(self, is_inside: bool) -> tuple[bool, ...]:
        """Whether what tells of usual mistakes holds.

        Two requests in flight at most, 16 at least, all rows inside of their intervals
        (*is_inside*), one row, only writes, only `WHOLE` bytes and more, several drives.
        """
        loads, deep = [row.workload for row in self.rows], [row.asked for row in self.rows]
        large = min(map(mean_size, loads)) >= WHOLE
        writes = all(load["read"] == 0 for load in loads)
        several = len(self.resolved.drives) > 1
        return max(deep) <= 2, min(deep) >= 16, is_inside, len(loads) == 1, writes, large, several

    @property
    def told(self) -> dict[str, float]:
        """Code -> how many times as common a mistake is, as the rows state."""
        names = {name for row in self.rows for name in row.devices}
        engines = {row.engine for row in self.rows if row.workload.get("outstanding", 1) > 1}
        facts = {
            "page-cache": (self.is_buffered, STATED),
            "depth": (bool(engines) and engines <= synchronous_engines(), IGNORED),
            "guest": (bool(names) and not any(n.startswith(VIRTUAL) for n in names), NOT_VIRTUAL),
        }
        stated = {code: times for code, (holds, times) in facts.items() if holds}
        return self._told_by_latencies | stated | self._told_by_rates

    @property
    def _told_by_rates(self) -> dict[str, float]:
        """How much likelier a limit is where the highest rate is a round one; as it is if rounded.

        Who told it rounded a rate of two digits.
        """
        rates = [(row.iops, row.iops * mean_size(row.workload) / MIB) for row in self.rows]
        most = [max(kind) for kind in zip(*rates, strict=True)]
        if float(f"{most[0]:.2g}") == most[0]:
            return {}
        digits = [rate / 10 ** math.floor(math.log10(rate)) for rate in most]
        is_round = any(abs(d / r - 1) < NEAR_ROUND for d in digits for r in ROUND)
        return {"limit": IS_SET[0] if is_round else IS_SET[1]}

    @property
    def core_rate(self) -> float:
        """Requests/s whose interrupts fill a core; 0: polled."""
        stack = self.resolved.stack
        cycles = stack.complete.value + stack.interrupt.value
        return 0.0 if stack.polled or cycles <= 0 else self.resolved.sockets[0].ghz * 1e9 / cycles

    @property
    def _told_by_latencies(self) -> dict[str, float]:
        """What deep rows tell: whether as many are in flight as asked, and what submissions cost.

        A job that submits to a pool of ZFS or to the page cache is held up until it is served.
        """
        deep = [row for row in self.rows if row.workload.get("outstanding", 1) >= DEEP]
        shares = [row.in_flight / row.asked for row in deep if row.in_flight is not None]
        held = [row.submitting for row in deep if row.submitting is not None]
        told = {"depth": IN_TURN if max(shares) < FEW else NOT_IN_TURN} if shares else {}
        if held and max(held) < FEW:
            told |= {"zfs": NOT_HELD, "page-cache": NOT_HELD}
        elif held and min(held) > 1 - FEW and not any(row.spent_s for row in deep):
            told |= {"zfs": HELD, "page-cache": HELD}
        return told

    @property
    def is_md(self) -> bool:
        """True if there is a volume and all are of Linux md."""
        volumes = self.resolved.volumes
        return bool(volumes) and all(v.engine.name == "linux-md" for v in volumes)

    @property
    def has_parity(self) -> bool:
        """True if a volume has parity."""
        return any(v.raid.parity for v in self.resolved.volumes)

    @property
    def has_workers(self) -> bool:
        """True if a volume with parity has threads that compute it."""
        return self.has_parity and any(v.workers for v in self.resolved.volumes)

    @property
    def has_cache(self) -> bool:
        """True if writes end in the cache of a volume's engine."""
        return any(v.engine.cache.value > 0 for v in self.resolved.volumes)

    @property
    def is_redundant(self) -> bool:
        """True if every volume survives a failed member."""
        volumes = self.resolved.volumes
        return bool(volumes) and all(v.raid.survives(len(v.members), v.copies) > 0 for v in volumes)

    def changed(
        self, form: Mapping[str, Any], strength: float | None = None
    ) -> dict[str, Any] | None:
        """Return what *form* sets, multiplies, adds to and holds down; None if it cannot be.

        With *strength* it multiplies by powers of that. Numbers are those of ``server.stack``, and
        of ``drives.*.profile`` if all drives are alike.
        """
        change, stack, drives = dict(form.get("set", {})), self.resolved.stack, self.resolved.drives
        wanted = {how: form.get(how, {}) for how in ("times", "plus", "at_most")}
        for how, key, number in ((h, *item) for h in wanted for item in wanted[h].items()):
            of_drives = key.startswith("drives")
            if of_drives and len({drive.profile.name for drive in drives}) > 1:
                return None
            name = key.split(".", 2 + of_drives)[-1]
            quantity, what = quantity_at(drives[0].profile if of_drives else stack, name)
            now = math.inf if quantity is None else quantity.value
            times = number if strength is None else strength**number
            value = {"times": now * times, "plus": now + number, "at_most": min(now, number)}[how]
            change[key] = value if what == "number" else show_value(value, what)
        return change

    @property
    def direct_generation(self) -> int | None:
        """PCIe generation of drives that are all plugged in root ports; None: they are not."""
        drives = self.resolved.drives
        if any(d.adapter is not None or d.link.kind != "pcie" for d in drives):
            return None
        return max(d.link.generation for d in drives)

    def last_drive(self, **values: Any) -> Change:
        """Return the change that gives the last drive *values* of its own."""
        *others, last = [dict(spec) for spec in self.tables["drives"]]
        count = int(last.get("count", 1))
        if count > 1:
            others.append({**last, "count": count - 1})
            if "name" in last:
                last["name"] = f"{last['name']}-last"
        return {"drives": [*others, {**last, "count": 1, **values}]}

    def last_profile(self, **values: Any) -> Change:
        """Return the change of numbers of the last drive's profile."""
        profile = self.tables["drives"][-1]["profile"]
        table = {"extends": profile} if isinstance(profile, str) else dict(profile)
        return self.last_drive(profile={**table, **values})

    def behind(self, name: str, kind: str, lanes: int, most: int = 1000, **values: Any) -> Change:
        """Return the change that puts all drives behind new adapters, *most* behind each."""
        adapters = [dict(a) for a in self.tables.get("adapters", ())]
        placed: list[dict[str, Any]] = []
        full = most
        for spec in self.tables["drives"]:
            left = int(spec.get("count", 1))
            while left:
                if full == most:
                    full, n = 0, len(adapters)
                    adapters.append({
                        "name": f"{name}-{n}", "kind": kind, "socket": spec.get("socket", 0),
                        "link": f"pcie{self.direct_generation} x{lanes}", **values,
                    })  # fmt: skip
                count = min(left, most - full)
                left, full = left - count, full + count
                where = {"count": count, "behind": adapters[-1]["name"]}
                placed.append({**{k: v for k, v in spec.items() if k != "socket"}, **where})
        return {"adapters": adapters, "drives": placed}


class Variant(NamedTuple):
    """One form of a mistake."""

    name: str
    """In words, as an explanation is named."""
    change: Change
    family: str = ""
    """Forms of one family differ in how strong they are; neighbours in it have others between."""
    usual: float = 1.0
    """How often it is met beside the mistake's other families and forms (its family as a whole)."""
