"""What a fitted drive makes of its own rows: those it misses, and what they leave open."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log
from typing import Final

import numpy as np

from nvmesim.array_types import Bools, Floats
from nvmesim.calibrate.drive.explanations import Explanation
from nvmesim.calibrate.drive.read_side import ENOUGH, OR_MIX
from nvmesim.calibrate.evidence import Judged, percentiles_missed
from nvmesim.calibrate.notes import named
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import Captured, DriveProfile, Residual, StackProfile

MISS: Final = 0.10
"""Relative error on a fitted row's IOPS beyond which a smaller model is tried."""
GROSS: Final = 0.35
"""The same beyond which a profile is not written. A smaller error is carried: a prediction at a row
equals it, and near it moves by what the row was missed by."""
FAR_OFF: Final = 0.1
"""Relative error on IOPS from which a row counts as missed: beyond what captures scatter."""
NOISES: Final = 3.0
"""The same in standard errors of the row, where its repeats tell them."""
MOST_NOISE: Final = 2.0
"""Factor beyond which a row is missed, however unlike its repeats are: then they are of several
drives or states. Assumed."""
ALIKE: Final = 2.0
"""Standard error of a mean of latencies that follow each other, in units of what it would be were
they independent. Assumed."""
IN_THE_WAY: Final = {
    "dies": "dies and the time of a die", "commands": "commands per second of the controller",
    "channels": "the channels' time", "read_bandwidth": "the read bandwidth",
    "write_bandwidth": "the write bandwidth", "port": "the drive's link", "buffer": "the drain of "
    "the write buffer (write.program)", "rounds": "the time of a batch",
    "volume-limit": "the volume's limit",
}  # fmt: skip


def misses(
    judged: Sequence[Judged], is_included: bool, clock_sd: float = 0.0
) -> tuple[list[str], list[str]]:
    """One line for each fitted row that the drive misses: by how much, by which number, what helps.

    The second list has rows for which others need not be refused: predictions of their kind move by
    what they were missed by, and no others do. They are mixes that are slower than reads and writes
    alone make them, which is no number of one row, and streams beside random rows: how far a drive
    reads ahead, and merges what is written in order, is its own.

    *is_included*: the host is in the profile, so that a row of a full thread is none of the drive.
    Of a host it is known as well as *clock_sd* what a thread does. Rows with flushes beside rows
    without are none either: journals and merging are the host's. Nor are rows beside another load:
    what reads and writes do to each other is no number of one row.
    """
    found: list[str] = []
    carried: list[str] = []
    has_random = any(j.used and j.point.random for j in judged)
    is_plain = any(not j.point.sync for j in judged if j.point.read_fraction == 0)
    for j in judged:
        p, off = j.point, j.residual["iops"]
        if not j.used or p.held_out or (p.is_cpu_bound and is_included) or (p.sync and is_plain):
            continue
        if p.beside is not None:
            continue
        noise = max(p.noise, clock_sd if p.is_cpu_bound else 0.0)
        if abs(log(1 + off)) <= max(log(1 + GROSS), min(NOISES * noise, log(MOST_NOISE))):
            continue
        is_carried = (0 < p.read_fraction < 1 and off > 0) or (has_random and not p.random)
        (carried if is_carried else found).append(
            f"{p.where}: the fitted drive does {j.answer.iops:,.0f} IOPS ({off:+.0%})"
            f"{_limiting_parameter(j)}"
        )
    return found, carried


def missed_means(source: str, write: Bools, measured_s: Floats, model_s: Floats) -> list[str]:
    """One line for each operation of a trace whose mean latency the fitted drive misses.

    All arrays have one row a request, in order: bool[n], float64[n], float64[n].
    """
    found = []
    for name, rows in (("reads", ~write), ("writes", write)):
        if not rows.any():
            continue
        took, model = measured_s[rows], float(model_s[rows].mean())
        noise = ALIKE * float(took.std()) / np.sqrt(len(took)) / took.mean()
        off = model / took.mean() - 1
        if abs(off) > max(MISS, NOISES * noise):
            found.append(
                f"{source}: {name} take {1e6 * model:.3g} us on average on the fitted drive, "
                f"{1e6 * took.mean():.3g} were measured ({off:+.0%}); was the drive disturbed, or "
                "near its limit, where a replay of arrivals waits too long or too little? A sweep "
                "at fixed depths would tell"
            )
    return found


def _limiting_parameter(j: Judged) -> str:
    """The number that limits, and what would help."""
    if j.residual["iops"] < 0:
        full = IN_THE_WAY.get(j.answer.full or "", "no number of the drive alone")
        return (
            f"; {full} limits it; a row that determines that, or a fit without this one, would help"
        )
    return (
        f"; nothing that the model knows slows a {j.point.op} so; was the drive disturbed, filled "
        "or throttled? Repeat the row, or leave it out"
    )


def residual(j: Judged, *, is_beside: bool = False) -> Residual:
    """*j* as a profile keeps it; *is_beside*: a data sheet's figure, beside measured rows."""
    p, off = j.point, j.residual

    def logarithm(name: str) -> float | None:
        return round(log(1 + off[name]), 4) if off.get(name, -1.0) > -1 else None

    return Residual(
        read=round(p.read_fraction, 3), block_size=p.block_size, sequential=not p.random,
        threads=p.jobs, outstanding=p.iodepth, drives=p.targets,
        drives_per_thread=1 if p.own_targets else p.targets,
        iops=round(log(1 + off["iops"]), 4), measured=float(f"{p.iops:.6g}"),
        mean=logarithm("mean_s"), p50=logarithm("p50_s"), p99=logarithm("p99_s"),
        p99_9=logarithm("p99.9_s"), cpu=logarithm("cpu_s"),
        noise=round(p.noise, 4) or None, held_out=p.held_out or not (j.used or is_beside),
        stated=is_beside,
        sync=p.sync, raid=p.raid, filesystem=p.filesystem, guest=p.guest,
    )  # fmt: skip


def captured(
    points: Sequence[Point], captured_on: str | None, stack: StackProfile, *,
    synchronous: bool = False,
) -> Captured:  # fmt: skip
    """Conditions that *points* were captured under, and what they told of *stack*."""
    name, _, link = (captured_on or "").partition(", ")
    pages = stack.per_kib

    def seen(values: set[int]) -> tuple[int, ...]:
        return tuple(sorted(values))

    return Captured(
        block_sizes=seen({p.block_size for p in points}),
        read_shares=tuple(sorted({round(p.read_fraction, 2) for p in points})),
        sequential=tuple(sorted({not p.random for p in points})),
        depths=seen({max(1, round(p.outstanding / p.targets)) for p in points}),
        threads=seen({p.jobs for p in points}), drives=seen({p.targets for p in points}),
        stack=name, link=link.partition(",")[0], stack_cycles=round(stack.scale, 3),
        stack_per_kib=pages.value if pages.basis == "fitted" else None, synchronous=synchronous,
    )  # fmt: skip


def caveats(
    reads: Sequence[Point], writes: Sequence[Point], judged: Sequence[Judged], included: bool
) -> Iterator[str]:
    """Yield a sentence for each thing that the rows leave in doubt, and one of the missed rows.

    *included*: the host's constant part is in the profile.
    """
    if included and not all(p.is_stated for p in (*reads, *writes)):
        yield (
            "no --captured-on: the time that the host took counts as the drive's, so name the host "
            "that measured"
        )
    if not writes:
        yield "no random writes were measured: the time of one is assumed"
    if not reads:
        yield "no random reads were measured: the time of one is assumed"
    if far := far_off(judged, included):
        listed = [f"{j.point.name} {100 * j.residual['iops']:+.0f} %" for j in far]
        yield (
            f"the fitted drive does other IOPS than measured ({named(listed)}); the model has no "
            f"cause for that, or {'the rows were' if far[1:] else 'the row was'} disturbed"
        )
    yield from percentiles_missed(judged, included)


TOLD: Final = "read commands"
"""Name of the controller's rate among what was fitted: some explanations alone tell it."""


def left_open(
    unknown: Mapping[str, str], free: Collection[str], rows: Sequence[Point]
) -> dict[str, str]:
    """*unknown* without numbers that were fitted after all, nor asking for what is in *rows*.

    >>> left_open({"dies": "p99", "commands": f"p99{OR_MIX}"}, ["read commands"], [])
    {'dies': 'p99'}
    """
    if any(p.is_stated for p in rows):  # of a data sheet each figure is all there is
        return dict(unknown)
    has_mix = any(0 < p.read_fraction < 1 for p in rows)
    left = {k: text for k, text in unknown.items() if k != "commands" or TOLD not in free}
    return {k: text.removesuffix(OR_MIX) if has_mix else text for k, text in left.items()}


def undetermined(
    profile: DriveProfile, rows: Sequence[Judged], reads: Sequence[Point],
    unknown: Mapping[str, str], free: Collection[str],
    others: Sequence[tuple[Explanation, float]],
) -> Iterator[str]:  # fmt: skip
    """Yield what the *rows* do not determine, and the explanations predictions draw from.

    *unknown* are the numbers that they leave open, with what would tell; *free* what was fitted.
    """
    depths = len({p.outstanding for p in reads})
    if "dies" in unknown and "dies" not in free:
        yield (
            f"reads at {depths} depth{'s' * (depths != 1)}: the number of dies "
            f"({profile.dies.value:g}) is assumed, so do not trust p99 and beyond at other depths"
        )
    if "commands" in unknown and "read commands" not in free and depths:
        yield (
            "no point determines the drive's commands per second, they are assumed; "
            f"{unknown['commands']} would"
        )
    if others:
        listed = "; ".join(f"{100 * w:.0f} %: {e.name}" for e, w in others)
        yield (
            "these rows can be explained in several ways, and the intervals of predictions cover "
            f"them all ({listed}); {_would_decide(rows, depths, others)}"
        )
    if sum(j.used for j in rows) == 1:
        yield "one row: at other depths every prediction is a guess"


def _would_decide(
    rows: Sequence[Judged], depths: int, others: Sequence[tuple[Explanation, float]]
) -> str:
    """What tells *others* apart that *rows*, with reads at so many *depths*, do not."""
    if wanted := next((e.decides for e, _ in others if e.decides), ""):
        return f"{wanted} would decide"
    if any(e.reads is None and (e.ceiling or e.profile.rounds) for e, _ in others):
        return "reads at a depth where IOPS no longer grow would decide"  # of a few numbers each
    mixes = [j for j in rows if 0 < j.point.read_fraction < 1 and j.point.random]
    if not mixes:
        return "a 70/30 capture would decide"
    if not any(j.used for j in mixes):
        return f"{mixes[0].point.name} would decide if it were fitted"
    if depths < ENOUGH:
        return f"reads at {ENOUGH} depths would decide"
    return f"{mixes[0].point.name} does not decide"


def far_off(judged: Sequence[Judged], included: bool) -> list[Judged]:
    """Return the rows that the drive misses; one that measured its host's full thread is none."""
    of_drive = [j for j in judged if not (j.point.is_cpu_bound and included)]
    return [j for j in of_drive if abs(j.residual["iops"]) > FAR_OFF]


def missed(judged: Sequence[Judged], included: bool) -> dict[str, float]:
    """Return the largest error on IOPS of each operation that is missed: predictions repeat it."""
    found: dict[str, float] = {}
    for j in far_off(judged, included):
        error = j.residual["iops"]
        found[j.point.op] = max(found.get(j.point.op, 0.0), error, key=abs)
    return {op: round(float(error), 3) for op, error in found.items()}
