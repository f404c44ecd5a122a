"""From captures of one drive to a profile with its evidence.

Time is counted once (DESIGN 5): with a host (`captured_on`) the bench is simulated with that host's
costs and link, so the profile holds the drive alone; without one, the host stays in the profile's
constants (`host_included`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.errors import FitError
from nvmesim.fit.bench import Host, free_host, measure
from nvmesim.fit.buffer import buffers_of
from nvmesim.fit.course import courses_of
from nvmesim.fit.episodes import suggestions
from nvmesim.fit.evidence import DriveFit, Judged, percentiles_missed
from nvmesim.fit.host import parse_host
from nvmesim.fit.joint import joint_of, with_draws
from nvmesim.fit.limits import FoundLimits, bursts_of, find_limits
from nvmesim.fit.notes import drifts, law_of_rounds, mixed_devices
from nvmesim.fit.pauses import NONE, fit_pauses
from nvmesim.fit.points import Point, hold_out, points_of
from nvmesim.fit.read_side import (
    Progress,
    ReadFit,
    blank_reads,
    fit_large_reads,
    fit_reads,
    with_reads,
)
from nvmesim.fit.rounds_fit import choose, fit_rounds, fit_writes_in_rounds
from nvmesim.fit.write_side import WriteFit, blank_writes, fit_writes
from nvmesim.trace.capture import Captures

FINAL_REQUESTS = 120_000
MOST_REQUESTS = 1_600_000
BEHIND = 4
"""Drain of a disk behind a rate limit, in units of the limit. Assumed: it is seldom what limits."""
UNIT = 4096
READ_KEYS = {
    "base": "read.base", "die": "read.die", "cv": "read.die_cv", "commands": "commands",
    "dies": "dies",
}  # fmt: skip


def fit_drive(
    captures: Captures | Sequence[Point],
    *,
    name: str = "fitted",
    host: Host | None = None,
    captured_on: str | None = None,
    held_out: Sequence[str] = (),
    tell: Progress = lambda _: None,
) -> DriveFit:
    """Fit a drive on the points of *captures* that are not held out.

    *captured_on* names what measured them, ``"STACK[,LINK[,CPU]]"``, unless *host* is that; with
    neither it stays in the profile. *held_out* are rules such as ``"QD=16"``; *tell* is called with
    what is being done. Raises FitError when the captures do not determine a drive.
    """
    if isinstance(captures, Captures):
        points, notes = points_of(captures)
        notes += suggestions(captures)
        bursts = bursts_of(captures)
        courses = courses_of(captures)
        buffer, said = buffers_of(captures)
        stepped = {b.name for b in bursts} | {text.partition(": ")[0] for text in said}
        notes += mixed_devices(captures) + drifts(captures, stepped)
    else:
        points, notes, bursts, courses = list(captures), [], [], ()
        buffer, said = None, []
    if captured_on is not None and host is None:
        asked = parse_host(captured_on)
        host, captured_on = asked.host, asked.text
        notes += asked.notes
    points = hold_out(points, held_out)
    fitting = _Fitting(points, notes, name, host, captured_on, tell)
    fitting.limits = find_limits([p for p in points if not p.held_out], bursts)
    if fitting.limits is None:
        notes += said
    fit = replace(fitting.fit(), courses=courses)
    if buffer is None or fitting.limits is not None:
        return fit
    size = buffer.quantity("the step in the rate of a long write")
    write = fit.profile.write.model_copy(update={"buffer": size})
    return replace(fit, profile=fit.profile.model_copy(update={"write": write}))


FAR_OFF: Final = 0.1
"""Relative error on IOPS from which a point is missed: beyond what captures scatter."""


class _Fitting:
    def __init__(
        self,
        points: Sequence[Point],
        notes: list[str],
        name: str,
        host: Host | None,
        captured_on: str | None,
        tell: Progress,
    ) -> None:
        self.points = [p.with_totals() for p in points] if host is None else list(points)
        self.notes = notes
        self.name = name
        self.included = host is None
        self.host = host or free_host()
        self.captured_on = captured_on
        self.tell = tell
        self.limits: FoundLimits | None = None
        self.pauses = NONE
        self.free: list[str] = []
        self.joint: dict[str, npt.NDArray[np.float64]] = {}

    def fit(self) -> DriveFit:
        self._check_host()
        used = [p for p in self.points if not p.held_out and self._is_of_the_drive(p)]
        free = used if self.limits is None else self.limits.below(used)
        reads = [p for p in free if p.read_fraction == 1]
        writes = [p for p in free if p.read_fraction == 0]
        mixes = [p for p in free if 0 < p.read_fraction < 1]
        if not reads and not writes:
            raise FitError(
                "no point measures the drive alone: all are mixes, held out or CPU-bound; "
                "add a capture of reads or of writes with more jobs or less depth"
            )
        profile = self._template()
        if self.limits is not None:
            self.notes += self.limits.notes
            profile = profile.model_copy(update={"limits": self.limits.profile})
        if reads:
            profile = self._reads(profile, reads)
        if writes:
            profile = self._writes(profile, writes, mixes)
        profile = profile.model_copy(update={"joint": joint_of(profile, self.joint)})
        judged = [self._judge(profile, p, p in used) for p in self.points]
        self._doubt(used, reads, writes, judged)
        profile = profile.model_copy(update={"missed": self._missed(judged)})
        return DriveFit(profile, tuple(judged), tuple(dict.fromkeys(self.notes)), tuple(self.free))

    def _check_host(self) -> None:
        """Say where the captures contradict the host or the link that they are said to be of."""
        top = max(self.points, key=lambda p: p.iops * p.block_size)
        moved = top.iops * top.block_size
        rate = self.host.link.raw_bytes_per_s
        if moved > rate:
            self.notes.append(
                f"{top.name}: {moved / 1e9:.3g} GB/s are more than {self.host.link} carries "
                f"({rate / 1e9:.3g}): name the link, --captured-on STACK,'pcie5 x4'"
            )
        shallow = [p for p in self.points if p.outstanding == 1 and p.cpu_s]
        if self.included or not shallow:
            return
        stack = self.host.stack
        cycles = stack.submit.value + stack.complete.value
        if not stack.polled:
            cycles += stack.wakeup.value + stack.interrupt.value
        named, measured = cycles / self.host.ghz / 1e9, shallow[0].cpu_s or 0.0
        if not 0.7 < named / measured < 1.4:
            self.notes.append(
                f"{shallow[0].name}: {1e6 * measured:.3g} us of CPU a request, where "
                f"{stack.name} at {self.host.ghz:g} GHz takes {1e6 * named:.3g}: it is not the "
                "stack that measured, and the drive is off by the difference; fit it with "
                "calibrate --stack"
            )

    def _is_of_the_drive(self, point: Point) -> bool:
        """Whether *point* measures the drive: a CPU-bound one does only with a host to simulate."""
        if point.is_cpu_bound and self.included:
            self.notes.append(
                f"{point.name}: a job was {point.per_job_pct:.0f} % busy, so the host was measured "
                "and not the drive; the point is not fitted"
            )
            return False
        return True

    def _template(self) -> DriveProfile:
        q = Quantity
        top = max(p.iops * p.block_size for p in self.points)
        cpu = [p.cpu_s for p in self.points if p.iodepth == 1 and p.cpu_s]
        said = "usr + sys at depth 1"
        held = q(value=round(1e12 * max(cpu, default=0.0)), basis="measured", source=said)
        return DriveProfile(
            name=self.name,
            link=str(self.host.link),
            capacity=q(value=1e12, basis="assumed"),
            host_included=self.included,
            captured_on=self.captured_on,
            host_submit=held if self.included and cpu else None,
            dies=q(value=64),
            channels=q(value=8),
            commands=q(value=1e6),
            read_bandwidth=q(value=max(7e9, 2 * top), basis="assumed"),
            write_bandwidth=q(value=max(5e9, 2 * top), basis="assumed"),
            read=blank_reads(),
            write=blank_writes(),
        )

    # -- reads ----------------------------------------------------------------------------------

    def _reads(self, template: DriveProfile, reads: Sequence[Point]) -> DriveProfile:
        small = [p for p in reads if p.block_size <= UNIT]
        large = [p for p in reads if p.block_size > UNIT]
        if not small:
            size = min(p.block_size for p in large)
            small = [p for p in large if p.block_size == size]
            large = [p for p in large if p.block_size != size]
            read = template.read.model_copy(update={"unit": Quantity(value=size, basis="assumed")})
            template = template.model_copy(update={"read": read})
            self.notes.append(f"no reads of 4 KiB: {size} bytes are taken as the drive's unit")
        found = fit_reads(template, self.host, small, self.tell)
        if not found.explains and self._are_rounds(template, small, "reads"):
            profile = self._in_rounds(template, small)
        else:
            profile = self._with_sources(template, found, small)
        if large and profile.rounds is None:
            size = max(p.block_size for p in large)
            chosen = [p for p in large if p.block_size == size]
            profile, bounds = fit_large_reads(profile, self.host, chosen, self.tell)
            profile = self._large_sources(profile, bounds, chosen)
        return profile

    def _are_rounds(self, template: DriveProfile, points: Sequence[Point], what: str) -> bool:
        """Whether *points* are served in rounds, by a depth that is left out to judge by."""
        law = law_of_rounds([p.outstanding for p in points], [p.iops for p in points])
        if law is None:
            return False
        chosen = choose(template, self.host, points, self.tell)
        self.notes.append(f"{what}: {chosen.text}")
        return chosen.is_rounds

    def _in_rounds(self, template: DriveProfile, points: Sequence[Point]) -> DriveProfile:
        """A disk of rounds fitted to *points*: reads, or writes where there are no reads."""
        self.tell("pauses, by depths left out")
        size = points[0].block_size
        alone = [p for p in self.points if not p.held_out and p.block_size == size]
        self.pauses = fit_pauses([p for p in alone if p.read_fraction in (0, 1)])
        self.notes.append(self.pauses.text)
        self.tell("rounds, all depths")
        found = fit_rounds(template, self.host, points, pauses=self.pauses)
        columns = found.columns()
        self.joint |= columns
        self.free += list(columns)
        return with_draws(found.profile, columns, _sources(points))

    def _writes_in_rounds(self, profile: DriveProfile, points: Sequence[Point]) -> DriveProfile:
        self.tell("writes in rounds")
        profile, column = fit_writes_in_rounds(profile, self.host, points, self.pauses)
        self.joint["rounds.write"] = column
        self.free.append("rounds.write")
        return with_draws(profile, {"rounds.write": column}, _sources(points))

    def _with_sources(
        self, template: DriveProfile, found: ReadFit, points: Sequence[Point]
    ) -> DriveProfile:
        source = _sources(points)
        profile = with_reads(template, found.values, found.dies)
        dies = Quantity(value=found.dies, basis="assumed", source="too few depths to tell")
        if found.fitted_dies:
            low, high = found.bounds["dies"]
            dies = Quantity(value=found.dies, low=low, high=high, basis="fitted", source=source)
        read = profile.read.model_copy(
            update={
                "base": found.quantity("base", source),
                "die": found.quantity("die", source),
                "die_cv": found.quantity("cv", source),
            }
        )
        self.free += ["dies" if n == "dies" else f"read {n}" for n in found.bounds]
        self.joint |= {READ_KEYS[n]: column for n, column in found.draws.items()}
        self.notes += found.notes
        if not found.fitted_dies:
            self.notes.append(
                f"reads at {len({p.outstanding for p in points})} depth(s): the number of dies "
                f"({found.dies}) is assumed, so the tail at other depths is not to be trusted"
            )
        if "commands" not in found.bounds:
            self.notes.append(
                "no point reaches a ceiling: the commands per second of the drive are assumed; "
                "a deeper queue would tell"
            )
        return profile.model_copy(
            update={"dies": dies, "commands": found.quantity("commands", source), "read": read}
        )

    def _large_sources(
        self,
        profile: DriveProfile,
        bounds: dict[str, tuple[float, float]],
        points: Sequence[Point],
    ) -> DriveProfile:
        if profile.read.engines is None:
            return profile
        source = _sources(points)
        low, high = bounds["split"]
        update = {
            "engines": Quantity(value=profile.read.engines.value, basis="fitted", source=source),
            "split": Quantity(
                value=profile.read.split.value, low=low, high=high, basis="fitted", source=source
            ),
        }
        self.free += ["read engines", "read split"]
        return profile.model_copy(update={"read": profile.read.model_copy(update=update)})

    # -- writes ---------------------------------------------------------------------------------

    def _writes(
        self, template: DriveProfile, writes: Sequence[Point], mixes: Sequence[Point]
    ) -> DriveProfile:
        size = min(p.block_size for p in writes)
        chosen = [p for p in writes if p.block_size == size]
        if size > UNIT:
            write = template.write.model_copy(
                update={"unit": Quantity(value=size, basis="assumed")}
            )
            template = template.model_copy(update={"write": write})
        if template.rounds is not None:
            return self._writes_in_rounds(template, chosen)
        if not self.joint and self._are_rounds(template, chosen, "writes"):
            return self._in_rounds(template, chosen)
        if self.limits is not None and self.limits.stops(self.points, size):
            return self._writes_behind(self.limits, template, chosen, mixes)
        found = fit_writes(template, self.host, chosen, mixes, self.tell)
        if not found.told_by_mix:
            self.notes.append(
                "no capture of a mix: what limits writes is taken to be the drain, which reads "
                "wait for; a 70/30 capture would tell"
            )
        return self._write_sources(found, chosen)

    def _writes_behind(
        self, limits: FoundLimits, template: DriveProfile, points: Sequence[Point],
        mixes: Sequence[Point],
    ) -> DriveProfile:  # fmt: skip
        """Acknowledgement from the shallowest point; no point tells what the disk could drain."""
        shallow = [p for p in points if p.outstanding == min(p.outstanding for p in points)]
        found = fit_writes(template, self.host, shallow, mixes, self.tell)
        profile = self._write_sources(found, shallow)
        unit = round(profile.write.unit.value)
        rate = BEHIND * max(limits.allowed(size) * size for size in (unit, 1 << 20)) / unit
        said = f"{BEHIND} times the limit: no capture tells"
        program = Quantity(value=profile.dies.value / rate * 1e12, basis="assumed", source=said)
        self.notes.append(
            "all deeper writes are at the limit: what the disk behind it could write is assumed "
            f"({BEHIND} times the limit)"
        )
        write = profile.write.model_copy(update={"program": program, "commands": None})
        return profile.model_copy(update={"write": write})

    def _write_sources(self, found: WriteFit, points: Sequence[Point]) -> DriveProfile:
        source = _sources(points)
        profile, w = found.profile, found.profile.write

        def fitted(name: str, value: float) -> Quantity:
            if name not in found.bounds:
                return Quantity(value=value, basis="assumed")
            low, high = found.bounds[name]
            return Quantity(value=value, low=low, high=high, basis="fitted", source=source)

        update: dict[str, Quantity | None] = {
            "base": fitted("base", w.base.value),
        }
        if found.limit == "through":
            update["program_cv"] = fitted("cv", w.program_cv.value)
        else:
            update["base_cv"] = fitted("cv", w.base_cv.value)
        if found.limit == "controller" and w.commands is not None:
            update["commands"] = fitted("rate", w.commands.value)
        elif "rate" in found.bounds:
            low, high = (profile.dies.value / r * 1e12 for r in found.bounds["rate"][::-1])
            update["program"] = Quantity(
                value=w.program.value, low=low, high=high, basis="fitted", source=source
            )
        self.free += [f"write {n}" for n in found.bounds]
        self._join_writes(found)
        return profile.model_copy(update={"write": w.model_copy(update=update)})

    def _join_writes(self, found: WriteFit) -> None:
        """Draws of the write side, by the profile's own keys."""
        through, w = found.limit == "through", found.profile.write
        self.joint["write.base"] = found.draws["base"]
        self.joint["write.program_cv" if through else "write.base_cv"] = found.draws["cv"]
        if "rate" not in found.draws:
            return
        rate = found.draws["rate"]
        if found.limit == "controller" and w.commands is not None:
            self.joint["write.commands"] = rate
        else:
            dies = self.joint.get("dies", np.full(len(rate), found.profile.dies.value))
            self.joint["write.program"] = dies / rate * 1e12

    # -- evidence -------------------------------------------------------------------------------

    def _judge(self, profile: DriveProfile, point: Point, used: bool) -> Judged:
        self.tell(f"checking {point.name}")
        answer = measure(profile, self.host, point, requests=judging(profile, point))
        return Judged(point, replace(answer, cpu_s=None) if self.included else answer, used)

    def _doubt(
        self,
        used: Sequence[Point],
        reads: Sequence[Point],
        writes: Sequence[Point],
        judged: Sequence[Judged],
    ) -> None:
        if self.included:
            self.notes.append(
                "no --captured-on: the host's constant part stays in the profile "
                "(host_included = true)"
            )
        if not writes:
            self.notes.append("no writes were measured: the write side is assumed")
        if not reads:
            self.notes.append("no reads were measured: the read side is assumed")
        for j in self._far_off(judged):
            self.notes.append(
                f"{j.point.name}: the fitted drive does {100 * j.residual['iops']:+.0f} % IOPS; a "
                "mechanism is missing there, or the point was disturbed"
            )
        self.notes += percentiles_missed(judged)
        if len(used) == 1:
            self.notes.append("one point: every number but the latency at its depth is a guess")

    def _far_off(self, judged: Sequence[Judged]) -> list[Judged]:
        """Points that the drive misses; one that measured its host's full thread is none."""
        of_drive = [j for j in judged if not (j.point.is_cpu_bound and self.included)]
        return [j for j in of_drive if abs(j.residual["iops"]) > FAR_OFF]

    def _missed(self, judged: Sequence[Judged]) -> dict[str, float]:
        """Largest error on IOPS of each operation that is missed: predictions repeat it."""
        found: dict[str, float] = {}
        for j in self._far_off(judged):
            error = j.residual["iops"]
            found[j.point.op] = max(found.get(j.point.op, 0.0), error, key=abs)
        return {op: round(float(error), 3) for op, error in found.items()}


def judging(profile: DriveProfile, point: Point) -> int:
    """Requests to judge *point* with: a round of all in flight tells of a tail but once."""
    rounds = 25_000 * point.outstanding if profile.rounds is not None else 0
    return max(FINAL_REQUESTS, min(rounds, MOST_REQUESTS))


def _sources(points: Sequence[Point]) -> str:
    files = dict.fromkeys(p.source for p in points if p.source)
    where = [p.name for p in points]
    named = ", ".join(files) if len(files) <= 4 else f"{len(files)} captures"
    return f"{named or 'points'}: {', '.join(where)}"


__all__ = ["DriveFit", "fit_drive"]
