"""Explanations of the same rows, and how much weight each has.

Rows of pure reads and pure writes cannot tell whether a ceiling is of the dies, which programs
share, or of the controller, or of the reads' own path: for a mix that is worth tens of percent.
Each is fitted; what rows there are of mixes decide, and what they leave open is carried on. Nor
does one row of a few threads at depth tell whether the drive was full or its threads: how near
these were to what the named stack does at the host's clock, and how common such a ceiling is behind
the link, weigh the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.open_ceilings import open_ceiling
from nvmesim.calibrate.drive.read_side import CEILINGS
from nvmesim.calibrate.drive.write_side import LIMITS, Limit
from nvmesim.calibrate.evidence import Ceiling, Judged, Side, joint_of
from nvmesim.calibrate.over_time.pauses import NONE, PauseFit
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.scaled import (
    ALIKE,
    LEAST_FULL,
    may_be_full,
    thread_share,
    threads_full,
)
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import Alternative, DriveProfile
from nvmesim.catalog.quantity import with_numbers
from nvmesim.catalog.toml import quantity_table

PRIOR: Final[dict[tuple[Ceiling | None, Limit | None], float]] = {
    ("dies", "drain"): 0.5, ("controller", "controller"): 0.3, ("controller", "drain"): 0.2,
    ("path", "drain"): 0.2, (None, "drain"): 0.6, (None, "controller"): 0.4,
    ("dies", "through"): 0.2, ("controller", "through"): 0.2, (None, "through"): 0.2,
    ("dies", None): 0.6, ("controller", None): 0.4, (None, None): 1.0,
}  # fmt: skip
"""Weights before mixes are looked at. Assumed, by the two drives whose mixes are published beside
their pure rows: with one shared bound (dies and drain, or the controller for both) mixes were off
by 6 %, with a bound of each its own by 13 to 45 %."""
OPEN_READS: Final[dict[Limit | None, float]] = {"drain": 0.4, "controller": 0.6}
"""The same where no read met a ceiling: then dies are only assumed, and what both share is the
controller. Mixes of five drives of `calibration/held-out` do 0.7 to 1.1 times what their time would
let them if reads and writes took it in turn."""
LEAST: Final = 0.03
"""An explanation of less weight is left out."""
MODEL_ERROR: Final = 4.0
"""Misfit of a good model in standard errors of its figures: what tells two explanations apart must
be more. Assumed."""


@dataclass(frozen=True)
class Explanation:
    """A drive that explains the rows, with the distribution of its numbers."""

    profile: DriveProfile
    ceiling: Ceiling | None = None
    limit: Limit | None = None
    cost: float = 0.0
    """Half a chi-square of all rows that tell explanations apart"""
    joint: Mapping[str, Floats] = field(default_factory=dict)
    reads: Side | None = None
    writes: Side | None = None
    notes: tuple[str, ...] = ()
    unidentified: Mapping[str, str] = field(default_factory=dict)
    pauses: PauseFit = NONE
    """Of a disk of rounds"""
    told_by_large: tuple[str, ...] = ()
    """Numbers that large reads tell, in words"""
    weight: float = 1.0
    """Factor of `prior`"""
    title: str = ""
    """In words, where `ceiling` and `limit` do not say it"""
    decides: str = ""
    """Rows that would tell it from others, where a mix is not what does"""

    @property
    def told(self) -> tuple[str, ...]:
        """Numbers that the rows tell, in words."""
        sides = (side.told for side in (self.reads, self.writes) if side is not None)
        return (*chain.from_iterable(sides), *self.told_by_large)

    def having(self, side: Side, **changed: Any) -> Explanation:
        """Reads or writes as *side* has them instead, and what else has *changed*."""
        return replace(
            self, profile=side.profile, cost=self.cost + side.cost,
            joint={**self.joint, **side.columns}, notes=(*self.notes, *side.notes),
            unidentified={**self.unidentified, **side.unidentified}, **changed,
        )  # fmt: skip

    @property
    def prior(self) -> float:
        """Weight before mixes are looked at."""
        weight = PRIOR.get((self.ceiling, self.limit), 0.1)
        if self._is_open:
            weight = OPEN_READS.get(self.limit, weight)
        return self.weight * weight * (self.reads.odds if self.reads is not None else 1.0)

    @property
    def _is_open(self) -> bool:
        """True if reads were fitted, and none of them reached a ceiling."""
        reads = self.reads
        return self.ceiling is None and reads is not None and "commands" in reads.unidentified

    @property
    def name(self) -> str:
        """The explanation in words.

        >>> from nvmesim.catalog.load import get
        >>> drive = get("drive", "intel-p4610-1.6tb")
        >>> Explanation(drive, "dies", "drain").name
        'the ceiling of reads is of the dies, that of writes of the drain of the buffer'
        """
        if self.title:
            return self.title
        said = [f"the ceiling of reads is of {CEILINGS[self.ceiling]}"] if self.ceiling else []
        if self._is_open:
            said = ["no read reached a ceiling: only latency was measured"]
        if self.limit is not None:
            said.append(f"that of writes of {LIMITS[self.limit]}")
        if self.profile.rounds is not None:
            said = ["all that is queued is served in batches"]
        text = ", ".join(said)
        return text if self.ceiling else text.replace("that of writes", "the ceiling of writes is")


def weights(tried: Sequence[Explanation]) -> list[float]:
    """Probability of each of *tried*: what was assumed beforehand, and how it fits."""
    costs = np.array([e.cost for e in tried]) / MODEL_ERROR**2
    found = np.array([e.prior for e in tried]) * np.exp(-np.minimum(costs - costs.min(), 500.0))
    out: list[float] = (found / found.sum()).tolist()
    return out


def chosen(tried: Sequence[Explanation]) -> tuple[Explanation, list[tuple[Explanation, float]]]:
    """The explanation of most weight, and the others that count, with their weights."""
    found = weights(tried)
    best = int(np.argmax(found))
    others = sorted(((w, i) for i, w in enumerate(found) if i != best and w >= LEAST), reverse=True)
    total = found[best] + sum(w for w, _ in others)
    return tried[best], [(tried[i], w / total) for w, i in others]


def alternative(of: Explanation, main: DriveProfile, weight: float) -> Alternative:
    """*of* as a profile carries it: what differs from *main*."""
    joint = joint_of(of.profile, of.joint)
    return Alternative(
        name=of.name, weight=round(weight, 4), values=difference(main, of.profile), joint=joint
    )


def difference(main: DriveProfile, other: DriveProfile) -> dict[str, Any]:
    """Dotted key -> number of *other*, as a table, where it is not that of *main*."""
    mine, theirs = dict(quantities(main)), dict(quantities(other))
    found: dict[str, Any] = {
        key: quantity_table(other, key)
        for key, q in theirs.items()
        if key not in mine or mine[key].value != q.value
    }
    if "write.commands" in mine and "write.commands" not in theirs:
        as_without = quantity_table(other, "commands")["value"]  # no fewer than all commands
        found["write.commands"] = {"value": as_without, "basis": "assumed"}
    if main.rounds is not None and other.rounds is None:
        found["rounds"] = False  # it has none
    if main.write.through != other.write.through:
        found["write.through"] = other.write.through
    if main.sorts != other.sorts:
        found["sorts"] = other.sorts
    return found


# The other reading of a ceiling: its threads were full, and not the drive ------------------------

FULL_THREADS: Final = {
    True: "the threads that read were full, and not the drive",
    False: "the threads that wrote were full, and not the drive",
}
PORT: Final = "port"
"""Resource of a drive's link: a row that filled it shows neither."""
EVEN: Final = 0.5
"""Weight of it at most: where a named host makes it likelier, it is taken for granted."""
FASTEST: Final = 4.0
"""The drive's ceiling in units of the row's, at most, where threads were full. Assumed."""


def with_threads_full(
    profile: DriveProfile, host: BenchHost, judged: Sequence[Judged], notes: list[str]
) -> DriveProfile:
    """*profile* with the explanation that threads were full where *judged* rows allow it.

    Who reads and who writes are the same threads: where both may have been full, the less likely
    were so only if the others were.
    """
    likely: list[tuple[float, bool, float]] = []
    for is_read in (True, False):
        top = _ceiling(host, judged, is_read)
        if top is None or thread_share(host, top) < LEAST_FULL:
            continue
        weight = min(threads_full(host, top), EVEN)
        if weight < LEAST:
            continue
        rate = top.iops / top.targets
        usual, _ = open_ceiling(
            host.link, top.block_size, rate, read=is_read,
            stated=host.sheet.get("random_read" if is_read else "random_write"),
        )  # fmt: skip
        likely.append((weight, is_read, min(usual / rate, FASTEST)))
        clock = "name the CPU's clock (--captured-on STACK,LINK,'2.4 GHz'), or "
        notes.append(
            f"{top.name}: {weight:.0%} likely {FULL_THREADS[is_read]}; "
            f"{clock if host.clock_sd else ''}add a row of more threads, which decides"
        )
    if not likely:
        return profile
    likely.sort(reverse=True)
    left = 1.0 - likely[0][0]
    known = [a.model_copy(update={"weight": a.weight * left}) for a in profile.alternatives]
    able = [j.point for j in judged if j.used and may_be_full(j.point)]
    faster, said = profile, list[str]()
    for (weight, is_read, ratio), rarer in zip(likely, [*likely[1:], (0.0,)], strict=True):
        faster, said = _faster(faster, ratio, is_read), [*said, FULL_THREADS[is_read]]
        if weight == rarer[0]:
            continue  # both or neither
        values = difference(profile, faster)
        if profile.captured is not None:
            factor = 1 / max(thread_share(host, p) for p in able)  # its fastest thread was full
            values["captured.stack_cycles"] = round(profile.captured.stack_cycles * factor, 3)
        share = round(weight - rarer[0], 4)
        known.append(Alternative(name=" and ".join(said), weight=share, values=values))
    return profile.model_copy(update={"alternatives": tuple(known)})


def _ceiling(host: BenchHost, judged: Sequence[Judged], is_read: bool) -> Point | None:
    """The row at a ceiling of the fitted drive whose threads were least busy; None without any.

    Threads that did less than those of another row had time left.
    """
    able = [j for j in judged if j.used and may_be_full(j.point)]
    most = max((j.point.iops / j.point.jobs for j in able), default=0.0)
    found = [
        j.point for j in able
        if j.point.read_fraction == float(is_read) and j.answer.full not in (None, PORT)
        and not j.point.is_cpu_bound and j.point.iops / j.point.jobs > most / ALIKE
    ]  # fmt: skip
    return min(found, key=lambda p: thread_share(host, p), default=None)


def _faster(profile: DriveProfile, ratio: float, is_read: bool) -> DriveProfile:
    """*profile* with a ceiling of reads, or of writes, *ratio* as high."""
    write, commands, program = profile.write, profile.commands, profile.write.program.value
    if is_read:  # writes keep their ceiling
        return with_numbers(profile, {
            "commands": commands.value * ratio, "dies": profile.dies.value * ratio,
            "write.program": program * ratio, "write.commands": write.commands or commands,
        })  # fmt: skip
    own = write.commands and write.commands.value * ratio
    return with_numbers(profile, {"write.program": program * (1 / ratio), "write.commands": own})
