"""Fit garbage collection in batches that stall writes, where rows of an offered rate show it.

Rows below the knee wait for nothing, those beyond it for the rest of a batch, and saturated ones as
long as a batch takes for all that is outstanding. The numbers begin with the closed forms of
`docs/equations.md`; what rows leave open is as three drives have it. Source: the figures of SSD-iq
(PVLDB 18(11), 2025; github gabriel-haas/ssdiq-pub @8a0a3f4, paper/finallat10).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import MOST_OUTSTANDING, BenchHost
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.evidence import Side, with_draws
from nvmesim.calibrate.infer.optimum import Values, covariance, solve, solved
from nvmesim.calibrate.infer.problem import DRAWS, Parameter
from nvmesim.calibrate.points import Point, sources
from nvmesim.catalog.profile import Collection, DriveProfile, Quantity
from nvmesim.catalog.quantity import with_numbers
from nvmesim.units import PS_PER_S

UNIT: Final = 4096
"""Bytes of the writes that batches are counted in."""
FEW_READS: Final = 0.05
"""Share of reads up to which a row tells how a drive writes."""
STALLED: Final = 20.0
"""p99 over median from which writes of an offered rate wait for batches: others take 1.2 to 6."""
PLATEAU: Final = 3.0
"""p99 over mean of a saturated row from which it is the wait for a batch."""
LENGTH_S, LENGTH_SD = 11e-3, 0.35
"""Length of a batch, and the deviation of its logarithm. Source: 8.9, 10.7 and 12.2 ms of a Micron
7450 PRO, a Kioxia CM7-R and an SK Hynix PE8110 (SSD-iq)."""
SLOTS, SLOTS_SD = 132.0, 0.15
"""Writes that the buffer holds, likewise: 112, 145 and 140 of the same drives."""
CV, CV_SD = 0.2, 0.8
"""Variation of a batch's length, likewise: 0.05, 0.29 and 0.58."""
RATE_SD: Final = 0.5
"""Deviation of the logarithm of the rate during a batch, as the rows lead to expect it. Assumed."""
FLUID: Final = 0.2
"""Error of the logarithm of what the closed forms say. Source: the three drives' rows, in
`docs/equations.md`, and what simulations of the same numbers give."""
ROUNDS: Final = 60
"""Steps of a search: a step takes no simulation."""
EVERY, EVERY_SD = 1.6, 0.35
"""Writes between batches, in units of what a saturated drive does during one, likewise: 1.3, 1.4
and 1.9."""
LENGTHS_S: Final = (7e-3, 11e-3, 17e-3)
"""Lengths that searches begin with: several may explain a row."""
UNSEEN: Final = 3.0
"""Ceiling of a drive of which no row is saturated, in units of the highest rate. Assumed."""
KNEE: Final = 0.8
"""Rate during a batch of such a drive, in units of the highest at which nothing waits. Source: the
knee of the CM7-R, 80k writes/s, and its 68k during a batch."""
RATE: Final = 0.97
"""The same in units of the ceiling, at most."""
LEAST_EVERY: Final = 1.02
"""Least writes between batches, in units of what a saturated drive does during one."""
TAIL: Final = 90.0
"""Least percentile that a saturated row tells."""
LEAST_BUSY_S, BUSIEST = 1e-8, 0.9
"""Least time of a write that reads may find, and the most share of the time that all take."""
HELD_UP: Final = 3.0
"""Mean of a row of reads over that of the fastest, from which more than programs hold it up."""
PROGRAM_S: Final = 500e-6
"""Rest of a program that a read waits for at most, where a search begins. Source: 550, 530 and 400
us of the same drives."""
REPLACED: Final = ("write.program", "write.commands", "write.suspend")
"""Numbers of a drain of dies that mean nothing, or something else, beside batches."""


def fit_stalls(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress
) -> Side | None:
    """Fit `write.collection` on the writes of *points*; None where none of them stalls.

    What reads beside them wait for programs is fitted then.
    """
    writes = [p for p in points if p.read_fraction <= FEW_READS and p.random]
    own = [p for p in writes if p.block_size <= UNIT and p.targets == 1 and not p.raid]
    rows = [p for p in own if 99.0 in p.percentiles_s]
    alone = min((p.percentiles_s.get(50.0, p.percentiles_s[99.0]) for p in rows), default=0.0)
    stalled = [p for p in rows if _stalls(p, alone)]
    if not stalled or not any(map(_is_offered, rows)):
        return None
    tell("writes: batches of collection")
    parameters = _parameters(rows, stalled)
    best, draws = _solved([p for p in rows if _is_offered(p) or p in stalled], parameters, alone)
    best, draws = _refined(profile, host, [p for p in stalled if _is_offered(p)], best, draws)
    made = [_numbers(at) for at in draws]
    columns = {key: np.array([numbers[key] for numbers in made]) for key in made[0]}
    found = with_draws(with_collection(profile, best), columns, sources(rows))
    return Side(_beside(found, host, points), columns, told=("batches of collection",))


def _is_offered(p: Point) -> bool:
    """True if the clock submits *p*, all together or each of its threads."""
    return p.rate is not None or p.rate_limit is not None


def _stalls(p: Point, alone: float) -> bool:
    """True if writes of *p* wait for batches; *alone*: the least median of all rows, s."""
    if not _is_offered(p):
        return p.percentiles_s[99.0] > PLATEAU * p.outstanding / p.iops
    return p.percentiles_s[99.0] > STALLED * alone


def _parameters(rows: Sequence[Point], stalled: Sequence[Point]) -> list[Parameter]:
    """What the rows of writes may tell of batches, and what three drives say beforehand."""
    top = max(rows, key=lambda p: p.iops)
    is_full = not _is_offered(top)
    ceiling = top.iops if is_full else UNSEEN * top.iops
    free = [p.iops for p in rows if _is_offered(p) and p not in stalled]
    rate = KNEE * max(free, default=min(p.iops for p in rows))
    if is_full and top in stalled:
        rate = top.outstanding / top.percentiles_s[99.0]
    return [
        Parameter("ceiling", ceiling, ceiling / 2, 10 * ceiling, prior_sd=0.01 if is_full else 0.7),
        Parameter("rate", rate, rate / 20, min(4 * rate, RATE * ceiling), prior_sd=RATE_SD),
        Parameter("length", LENGTH_S, LENGTH_S / 5, 5 * LENGTH_S, prior_sd=LENGTH_SD),
        Parameter("slots", SLOTS, SLOTS / 2, 2 * SLOTS, prior_sd=SLOTS_SD),
        Parameter("every", EVERY, LEAST_EVERY, 30.0, prior_sd=EVERY_SD),
    ]


def _solved(
    rows: Sequence[Point], parameters: Sequence[Parameter], alone: float
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Numbers by the closed forms, and joint draws about them; *alone*: a write that waits not."""
    names = [p.name for p in parameters]

    def residuals(x: Floats) -> list[float]:
        at = dict(zip(names, x.tolist(), strict=True))
        off = [
            math.log((alone + waits) / measured) / FLUID
            for p in rows
            for waits, measured in _compared(p, at)
        ]
        return off + [math.log(at[p.name] / p.start) / p.prior_sd for p in parameters]

    low, high = ([getattr(p, end) for p in parameters] for end in ("low", "high"))
    tries = []
    for length in LENGTHS_S:
        start = [length if p.name == "length" else p.start for p in parameters]
        tries.append(solve(residuals, start, step=0.01, rounds=ROUNDS, low=low, high=high))
    found = min(tries, key=lambda t: t.cost)
    normal = np.random.default_rng(4).multivariate_normal(
        np.zeros(len(names)), covariance(found), DRAWS
    )
    moved = np.clip(found.values * np.exp(np.clip(normal, -1.0, 1.0)), low, high)
    at_best, *draws = (dict(zip(names, x.tolist(), strict=True)) for x in (found.values, *moved))
    return at_best, draws


def _refined(
    profile: DriveProfile, host: BenchHost, rows: Sequence[Point], best: dict[str, float],
    draws: list[dict[str, float]],
) -> tuple[dict[str, float], list[dict[str, float]]]:  # fmt: skip
    """Length and variation with which simulated *rows*, beyond the knee, meet what was measured."""
    if not rows:
        return best, draws
    length = best["length"]
    parameters = [
        Parameter("length", length, length / 3, 3 * length, 0.05),
        Parameter("cv", CV, 0.02, 0.6, 0.2, CV_SD),
    ]
    found = solved(rows, host, lambda at: with_collection(profile, {**best, **at}), parameters)
    moved = [
        {**at, "length": at["length"] * new["length"] / length, "cv": new["cv"]}
        for at, new in zip(draws, found.draws, strict=True)
    ]
    return {**best, **found.best}, moved


def _compared(p: Point, at: Values) -> Iterator[tuple[float, float]]:
    """Waits of row *p* by the closed forms, and what was measured, s: percentiles and mean.

    A saturated row tells the tail: its median says where requests were, and not when.
    """
    numbers = _numbers(at)
    rate, length = numbers["write.collection.rate"], at["length"]
    in_flight = p.outstanding
    if p.rate is not None:
        in_flight = p.most_outstanding or MOST_OUTSTANDING * p.jobs
    most = in_flight / rate
    if not _is_offered(p):
        yield from ((most, s) for percent, s in p.percentiles_s.items() if percent >= TAIL)
        return
    held = max(0.0, length - at["slots"] / (p.iops - rate)) if p.iops > rate else 0.0
    longest = min(most, held * (1 - rate / p.iops))
    share = min(1.0, p.iops * held / numbers["write.collection.every"])
    for percent, measured in p.percentiles_s.items():
        beyond = 1 - percent / 100
        yield longest * max(0.0, 1 - beyond / share) if share else 0.0, measured
    if p.mean_s:
        yield longest * share / 2, p.mean_s


def _numbers(at: Values) -> dict[str, float]:
    """Dotted key -> number of the batches *at* these values; the drain follows from the ceiling."""
    ceiling, length = at["ceiling"], at["length"]
    rate = min(at["rate"], RATE * ceiling)
    return {
        "write.collection.drain": (at["every"] * ceiling - rate) / (at["every"] - 1),
        "write.collection.every": at["every"] * ceiling * length,
        "write.collection.length": length * PS_PER_S,
        "write.collection.length_cv": at.get("cv", CV),
        "write.collection.rate": rate,
        "write.collection.slots": at["slots"],
    }


def with_collection(profile: DriveProfile, at: Values) -> DriveProfile:
    """Return *profile* with batches at these values, and one drain in place of its dies'."""
    fields: dict[str, Any] = {
        key.rpartition(".")[2]: Quantity(value=value) for key, value in _numbers(at).items()
    }
    none = {"write.commands": None, "write.suspend": None, "write.through": False}
    return with_numbers(profile, {"write.collection": Collection(**fields), **none})


def _beside(profile: DriveProfile, host: BenchHost, points: Sequence[Point]) -> DriveProfile:
    """*profile* with the programs that reads beside writes meet, by those of *points*."""
    rows = [p for p in points if p.read_fraction == 1 and p.rate and p.beside and p.beside.rate]
    if not rows:
        return profile
    alone = min(p.mean_s or 1 / p.iops for p in rows)
    rows = [p for p in rows if (p.mean_s or alone) < HELD_UP * alone]
    most = max(rows, key=lambda p: p.beside.rate if p.beside and p.beside.rate else 0.0)
    waited = max(0.0, (most.mean_s or alone) - alone)
    rate = most.beside.rate if most.beside and most.beside.rate else 1.0
    ceiling = profile.write.collection.ceiling if profile.write.collection else rate
    busy = min(max(LEAST_BUSY_S, 2 * waited / PROGRAM_S / rate), BUSIEST / ceiling)

    def make(at: Values) -> DriveProfile:
        return with_numbers(profile, {
            "write.program": at["program"] * PS_PER_S, "write.program_cv": 0.01,
            "write.collection.busy": at["busy"] * PS_PER_S,
        })  # fmt: skip

    parameters = [
        Parameter("program", PROGRAM_S, PROGRAM_S / 5, 5 * PROGRAM_S, 0.03, 0.5),
        Parameter("busy", busy, LEAST_BUSY_S / 10, 1.05 * BUSIEST / ceiling, 0.05),
    ]
    found = solved(rows, host, make, parameters)
    keys = {"write.program": "program", "write.collection.busy": "busy"}
    columns = {key: PS_PER_S * column for key, column in found.columns(keys).items()}
    return with_draws(make(found.best), columns, sources(rows))
