"""Fit how a drive writes: acknowledgement, and what limits it when it is pressed.

A ceiling on writes is the drain (programs behind a full buffer, which reads then wait for), or the
controller (write commands per second, which reads do not feel but for their share of it), or there
is not a buffer and writes queue for the dies as reads do (virtual disks). The write points tell the
last from the others by how the ceiling is approached; captures of a mix tell the first two apart.
Where no row shows a ceiling, it is open.

Linux sends no flush to a device without a volatile cache, so what a row of writes that wait for one
each costs more is the host's; a volatile drive executes one at a time. Source: Linux
block/blk-core.c (submit_bio_noacct) and block/blk-flush.c.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive import laws, open_ceilings
from nvmesim.calibrate.drive.read_side import BEYOND, UNIT, Progress, held_ps, host_ps
from nvmesim.calibrate.evidence import Side, with_draws
from nvmesim.calibrate.infer.optimum import Values, solved
from nvmesim.calibrate.infer.problem import Parameter, efforts
from nvmesim.calibrate.points import LONE_S, Point, sources
from nvmesim.calibrate.smallest.line import line_of
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import with_numbers

US = 1e6
BUFFER = 4 << 20
"""Write buffer, bytes. Assumed: in the steady state its size does not matter to the rate."""
SLOTS = 8
"""Of the buffer for each die, at least: fewer would leave dies idle."""
AHEAD = 2
"""Of the bytes that move while a write is acknowledged, what the buffer has room for. Assumed."""
CV, CV_DOUBT = 0.15, 0.7
"""Variation of an acknowledgement, and the doubt of its logarithm where no percentiles tell it."""
ACKNOWLEDGED = 0.8
"""Of a lone write's latency, what the acknowledgement takes; the rest is the way. A start."""
OPEN_SD: Final = 0.85
"""Standard deviation of the logarithm of a ceiling that no row shows, about `BEYOND` times the
highest rate in the rows: 95 % of it is below 20 times. Assumed."""
MOST_OPEN: Final = 64.0
"""Such a ceiling in units of that rate, at most."""
TOTAL = 30_000
"""Requests of one candidate at most, about: no tail is fitted, and a rate hardly scatters."""
Limit = Literal["drain", "controller", "through"]
LIMITS: dict[Limit, str] = {
    "drain": "the drain of the buffer",
    "controller": "the controller",
    "through": "no buffer",
}


def fit_writes(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], limit: Limit, tell: Progress,
    reads: Mapping[str, Floats],
) -> Side:  # fmt: skip
    """Fit the write side on *points* of one size, its ceiling taken to be of *limit*.

    *reads*: dotted key -> float64[n_draws]; a program's time is open as far as the number of dies.
    """
    tell(f"writes: limited by {LIMITS[limit]}")
    parameters = write_parameters(template, host, points, limit)

    def make(at: Values) -> DriveProfile:
        return with_writes(template, at["base"], at["cv"], at["rate"], limit)

    found = solved(points, host, make, parameters, effort=min(1.0, TOTAL / sum(efforts(points))))
    shaped = [p for p in points if p.percentiles_s]
    if any(_misses(make(found.best), host, p) for p in shaped):
        plain = [replace(p, percentiles_s={}, body_s={}) for p in points]
        side = fit_writes(template, host, plain, limit, tell, reads)
        return replace(side, notes=(*side.notes, f"{shaped[0].name}: {UNSHAPED}"))
    told = [p.name for p in parameters if p.told]
    spread = "write.program_cv" if limit == "through" else "write.base_cv"
    key = "write.commands" if limit == "controller" else "write.program"
    names = {"write.base": "base", spread: "cv", key: "rate"}
    columns = found.columns(names)
    if key == "write.program":
        dies = reads.get("dies", np.full(len(columns[key]), template.dies.value))
        columns[key] = np.maximum(dies, 1.0) / columns[key] * 1e12
    loose = [k for k, name in names.items() if name not in told]
    shown = {k: c for k, c in columns.items() if k not in loose or k != "write.program"}
    profile = with_draws(make(found.best), shown, sources(points), loose)
    unidentified = {} if "base" in told else {"write.base": "a write at depth 1"}
    if "rate" not in told:
        unidentified["write.program"] = "writes at a depth where IOPS no longer grow"
    words = tuple(f"write {name}" for name in told)
    return Side(profile, columns, found.optimum.cost, words, unidentified)


MISSED: Final = 0.2
"""Difference of a rate's logarithm from which on percentiles are given up for it. Assumed."""
UNSHAPED: Final = (
    "percentiles of writes are not fitted, with them the rate is missed (requests sent in batches, "
    "or a limit that lets bursts pass)"
)


def _misses(profile: DriveProfile, host: BenchHost, point: Point) -> bool:
    made = measure(profile, host, point, requests=4 * point.outstanding + 4000).iops
    return abs(math.log(made / point.iops)) > MISSED


def write_parameters(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], limit: Limit
) -> list[Parameter]:
    """The acknowledgement, its variation and the highest rate, as far as *points* tell them."""
    is_remote = template.read.base.value + template.read.die.value > laws.SLOW_READ_S * 1e12
    lone, is_known = laws.unloaded_latency_s(
        points, read=False, stated=host.sheet.get("write_latency"), remote=is_remote
    )
    top = 1.02 * max(p.iops / p.targets for p in points)
    has_percentiles = any(p.percentiles_s for p in points)
    has_depths = len({p.outstanding for p in points}) > 1
    latency = lone * 1e12
    least = max(0.02 * latency, held_ps(template))
    share = 0.2 if limit == "through" and has_depths else ACKNOWLEDGED
    begin = max(0.5 * US, 1.1 * least, share * latency)
    most = max(1.5 * latency, 2 * begin)
    lone_sd = 0.0 if is_known else laws.LONE_DOUBT[False]
    cv_sd = 0.0 if has_percentiles else CV_DOUBT
    rate = Parameter("rate", top, low=top / 1.4, high=30 * top)
    if limit != "through" and not _shows_ceiling(points, lone, is_known):
        usual, sd = BEYOND * top, OPEN_SD
        if is_remote:
            usual, sd = open_ceilings.open_ceiling(
                host.link, UNIT, top, read=False,
                stated=host.sheet.get("random_write", open_ceilings.REMOTE),
            )  # fmt: skip
        elif host.link.kind in open_ceilings.SHEET_CEILING:
            size, width = points[0].block_size, template.write_bandwidth
            is_known_width = width.basis == "fitted" or "sequential_write" in host.sheet
            usual, sd = open_ceilings.open_writes(
                host.link, size, top, width.value / size if is_known_width else None,
                stated=host.sheet.get("random_write"),
            )  # fmt: skip
        rate = Parameter("rate", usual, top, MOST_OPEN * usual, prior_sd=sd, told=False)
    return [
        Parameter("base", begin, least, most, prior_sd=lone_sd, told=is_known),
        Parameter("cv", CV, 0.01, 1.5, 0.2, cv_sd, has_percentiles), rate,
    ]  # fmt: skip


def _shows_ceiling(points: Sequence[Point], lone: float, is_known: bool) -> bool:
    """True if a row of *points* waited for more than its own service.

    Of rows at several depths the evidence of a ceiling must be strong: N / X grows with N.
    """
    row_kinds = {laws.row_kind(p, lone, is_known=is_known) for p in points}
    if laws.RowKind.CEILING in row_kinds or (laws.RowKind.EITHER in row_kinds and not is_known):
        return True
    free = [p for p in points if not p.is_cpu_bound]
    return bool(free) and line_of(free).has_ceiling


def with_writes(
    template: DriveProfile, base_ps: float, cv: float, rate: float, limit: Limit
) -> DriveProfile:
    """Return *template* with writes acknowledged after *base_ps*, at most *rate* a second."""
    w = template.write
    drain = 20 * rate if limit == "controller" else rate
    # assumed, the buffer must not cap what dies drain, nor bytes: they stay until acknowledged
    held = AHEAD * template.write_bandwidth.value * base_ps / 1e12
    buffer = max(w.buffer.value, SLOTS * template.dies.value * w.unit.value, held)
    return with_numbers(template, {
        "write.base": base_ps, "write.buffer": buffer, "write.through": limit == "through",
        "write.base_cv": cv if limit != "through" else 0.1,
        "write.program_cv": cv if limit == "through" else 0.1,
        "write.program": template.dies.value / drain * 1e12,
        "write.commands": rate if limit == "controller" else None,
    })  # fmt: skip


LEAST_PS: Final = 0.2e6
"""Shortest flush that is fitted, ps."""
VOLATILE_PS: Final = 100e6
"""Time of a flush from which on a drive is taken to empty a volatile cache. Measured: 0.7 to 2 us
beside a drive with capacitors, 28 in a cloud guest, 450 to 900 on a consumer drive (github
mdcallag/mytools e1ba3d9, fio runs of December 2025)."""
SERIAL: Final = 0.25
"""Share of a flush for which the drive does nothing else, where one row alone tells the flush:
those that wait share the next one, so N threads do N / 2 writes in the time of a flush, 4 of 8
threads. Source: block/blk-flush.c (double buffering)."""
SERIAL_SD: Final = 0.6
"""Standard deviation of its logarithm: threads whose queues differ share no flush (1, measured on a
consumer drive, mdcallag as above), drives that flush several at a time have less. Assumed."""


def fit_flush(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress,
    notes: list[str],
) -> DriveProfile:  # fmt: skip
    """*profile* with the flush that the rows of *points* with fdatasync tell, else those of fsync.

    The two differ by a file system's journal; with both, the drive's flush is that of fdatasync.
    A drive whose flush is short has capacitors: it is sent none.
    """
    for kind in ("fdatasync", "fsync"):
        rows = [p for p in points if p.sync == kind]
        if rows:  # a flush takes as long whatever was written; large writes bring more than that
            least = min(p.block_size for p in rows)
            rows = [p for p in rows if p.block_size == least]
            break
    else:
        return profile
    tell("flushes")
    if kind == "fdatasync" and any(p.sync == "fsync" for p in points):
        notes.append(
            "rows with fsync were not fitted: what they take beyond fdatasync is the journal of a "
            "file system, which is no part of a drive"
        )
    alone = min(rows, key=lambda p: (p.outstanding, p.block_size))
    written = profile.write.base.value if alone.mean_s is None else alone.mean_s * 1e12
    took = max(alone.outstanding / alone.iops * 1e12 - written, 2 * LEAST_PS)
    if took < VOLATILE_PS:
        none = {"write.flush": None, "write.flush_serial": None}
        return with_numbers(profile, {"write.volatile": False, **none})
    # one flush at a time: the busiest row tells how long each of them holds the drive
    serial, sd = min(took, 1e12 / max(p.iops / p.targets for p in rows)), 0.0
    if len({p.outstanding for p in rows}) == 1:
        serial, sd = SERIAL * took, SERIAL_SD
    flush = max(took - host_ps(host), 2 * LEAST_PS)
    parameters = [
        Parameter("flush", flush, low=flush / 3, high=3 * flush),
        Parameter("flush_serial", serial, low=serial / 4, high=4 * serial, prior_sd=sd),
    ]

    def made(at: Values) -> DriveProfile:
        numbers = {f"write.{name}": value for name, value in at.items()}
        return with_numbers(profile, {"write.volatile": True, **numbers})

    plain = [replace(p, mean_s=None) for p in rows]
    found = solved(plain, host, made, parameters, effort=0.5, shape=False)
    columns = found.columns({f"write.{p.name}": p.name for p in parameters})
    return with_draws(made(found.best), columns, sources(rows))


def is_volatile(points: Sequence[Point], host: BenchHost) -> bool:
    """Return whether rows that all flush wait for flash: no cache takes a write for so long.

    A lone read that takes as long is of a disk behind a network, or of an arm.
    """
    lone = [p for p in points if p.outstanding == p.targets == 1 and not p.raid]
    flushed = [p for p in lone if p.read_fraction == 0 and p.sync == "fdatasync"]
    if not flushed or host.link.kind not in ("pcie", "sata", "sas"):
        return False
    reads = [1 / p.iops for p in lone if p.read_fraction == 1 and p.block_size <= 1 << 14]
    took = min(1 / p.iops for p in flushed) - LONE_S[False]
    return took > VOLATILE_PS / 1e12 and all(s < laws.SLOW_READ_S for s in reads)
