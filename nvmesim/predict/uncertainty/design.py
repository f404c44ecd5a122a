"""How far the doubt about numbers moves an answer: a two-level design of short runs.

Every number that may be otherwise goes one standard deviation up in half of the runs and down in
the other half, no two of them alike (the columns of a Hadamard matrix), all with the random numbers
of the base run. The spread of the answers is then that of independent draws, without the noise of
drawing: to first order it does not depend on a seed. Numbers that were fitted together are another
draw of their table in each run. Which number carries how much is not read from
it (main effects and interactions share columns): `nvmesim sensitivity` asks each by itself.
Sources: Plackett and Burman, "The design of optimum multifactorial experiments", Biometrika 33,
1946; two points a standard deviation away carry the mean and variance of a normal (Rosenblueth,
"Point estimates for probability moments", PNAS 72(10), 1975); JCGM 101:2008 for the propagation.
"""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from nvmesim.errors import InputError
from nvmesim.measure import paired
from nvmesim.measure.control import Progress
from nvmesim.measure.latency import samples
from nvmesim.measure.steady import Collector
from nvmesim.predict.uncertainty.numbers import Z95, alternatives, draws, factors, moved, profiles
from nvmesim.predict.uncertainty.parts import NONE, Span
from nvmesim.scenario.resolved import ResolvedScenario

Item = TypeVar("Item")
Found = TypeVar("Found")
RUNS: Final = 32
"""Runs of the design: 31 numbers have a column of their own; more share columns, which for small
effects of either sign adds up to as much."""
JOINT_RUNS: Final = 60
"""The same of two designs together, at most: those that share a column would pass for alike."""
PRIMES: Final = (3, 7, 11, 19, 23, 31)
"""A prime of the form 4 k + 3 makes a design of one run more for as many numbers."""
DRAWN: Final = 19
"""Numbers that a design has room for where a joint table is drawn from, at least: 20 draws."""
THREADS: Final = min(4, os.cpu_count() or 1)
BEYOND: Final = 30
"""Samples beyond a percentile of a short run, at least: both runs draw the same, so that few tell
how far it moves."""
PERCENTS: Final = (50.0, 90.0, 95.0, 99.0, 99.9)


Numbers = Mapping[str, Span]
"""Effect of the profiles' uncertain numbers on an answer: figure ("iops", "mean", "p50" ...) -> how
far its logarithm may lie below and above, 95 %; without what short runs do not tell."""


def design(n_factors: int, most: int = RUNS, least: int = 0) -> npt.NDArray[np.int64]:
    """int64[runs, n_factors] of 1 and -1: as few runs as give each factor a column, *most* at most.

    There are more runs than *least*.

    Columns of a Hadamard matrix by Paley's construction: quadratic residues modulo a prime.

    >>> design(3).shape, design(40).shape
    ((4, 3), (32, 40))
    >>> bool((design(11).T @ design(11) == 12 * np.eye(11)).all())
    True
    """
    prime = next((p for p in PRIMES if p >= max(n_factors, least) and p < most), most - 1)
    residues = {k * k % prime for k in range(prime)}
    row = np.array([1 if k in residues else -1 for k in range(prime)])
    turned = np.array([np.roll(row, k) for k in range(prime)])
    whole = np.vstack([turned, -np.ones((1, prime), np.int64)])
    return whole[:, np.arange(n_factors) % prime]


def overlapped(
    run: Callable[[Item], Found], items: Sequence[Item], progress: Progress | None,
    what: Callable[[Item], str], threads: int = THREADS,
) -> list[Found]:  # fmt: skip
    """*run* of each item in threads; the kernel holds no lock. An interrupt ends it."""
    out = []
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item, found in zip(items, pool.map(run, items), strict=True):
                out.append(found)
                if progress is not None:
                    progress(what(item), len(out) / len(items))
        except KeyboardInterrupt:  # or a page that wants no more
            pool.shutdown(cancel_futures=True)
            raise
    return out


def numbers(
    scenario: ResolvedScenario,
    run: Callable[[ResolvedScenario], Collector],
    progress: Progress | None = None,
) -> Numbers:
    """Effect of the uncertain numbers of *scenario*, simulated shortly by *run*.

    A combination that cannot be simulated is left out.
    """
    others, (changed,) = alternatives(scenario), _moves([scenario])
    if not changed and not others:
        return {}
    scenarios = [scenario, *changed, *(other for other, _ in others)]
    collected = overlapped(lambda s: _tried(run, s), scenarios, progress,
                           lambda _: "moving the profiles' numbers")  # fmt: skip
    base, rest = collected[0], collected[1:]
    if base is None or not any(kept is not None for kept in rest):
        return {}
    is_open = any(group.is_open for group in scenario.workload)
    levels = _levels(base)
    rows = [_answers(base, levels, kept, is_open=is_open) for kept in rest if kept is not None]
    likely = zip(others, rest[len(changed) :], strict=True)
    weights = [weight for (_, weight), kept in likely if kept]
    first = len(rows) - len(weights)
    names = [n for n in rows[0] if all(n in row for row in rows)]
    return {
        n: _with_alternatives(
            two_sides([row[n] for row in rows[:first]]) if first > 1 else NONE,
            [(row[n][0], weight) for row, weight in zip(rows[first:], weights, strict=True)],
        )
        for n in names
    }


def _moves(scenarios: Sequence[ResolvedScenario], most: int = RUNS) -> list[list[ResolvedScenario]]:
    """Each of *scenarios* in the runs of one design of all their uncertain numbers.

    Empty for one whose numbers are all certain.
    """
    own = [{f.name: f for f in factors(s)} for s in scenarios]
    names = sorted({name for mine in own for name in mine})
    used = [p for s in scenarios for p in profiles(s).values()]
    least = DRAWN if any(getattr(p, "joint", None) for p in used) else 0
    signs = [dict(zip(names, row, strict=True)) for row in design(len(names), most, least).tolist()]
    out = []
    for scenario, mine in zip(scenarios, own, strict=True):
        drawn, found = draws(scenario, len(signs)), list(mine.values())
        out.append([
            moved(scenario, found, [row[name] for name in mine],
                  {label: rows[i] for label, rows in drawn.items()})
            for i, row in enumerate(signs) if found or drawn
        ])  # fmt: skip
    return out


Half = tuple[ResolvedScenario, Callable[[ResolvedScenario], Collector]]
"""A scenario, and what runs it and others of its shape shortly."""


def shared_numbers(a: Half, b: Half, progress: Progress | None = None) -> float:
    """Correlation of what the doubt about numbers does to the logarithms of both IOPS.

    A number that both use moves both, each as far as its own profile leaves it open.
    """
    rows: list[list[float | None]] = []
    halves = zip((a, b), _moves([a[0], b[0]], JOINT_RUNS), strict=True)
    for (scenario, run), moves in halves:
        tried = functools.partial(_tried, run)
        base, *runs = overlapped(tried, [scenario, *moves], progress,
                                 lambda _: "moving the profiles' numbers")  # fmt: skip
        gains = (None if base is None or kept is None else _gain(base, kept)[0] for kept in runs)
        rows.append(list(gains))
    pairs = [(x, y) for x, y in zip(*rows, strict=False) if x is not None and y is not None]
    sizes = [math.sqrt(math.fsum(pair[i] ** 2 for pair in pairs)) for i in (0, 1)]
    if not min(sizes):
        return 0.0
    return math.fsum(x * y for x, y in pairs) / sizes[0] / sizes[1]


def _with_alternatives(span: Span, others: Sequence[tuple[float, float]]) -> Span:
    """*span* and what other explanations of the captures would move, by their probability.

    >>> _with_alternatives((0.3, 0.0), [(-0.4, 0.0)])
    (0.3, 0.0)
    """
    down = math.hypot(span[0], *(Z95 * math.sqrt(w) * -m for m, w in others if m < 0))
    up = math.hypot(span[1], *(Z95 * math.sqrt(w) * m for m, w in others if m > 0))
    return down, up


def _tried(run: Callable[[ResolvedScenario], Collector], s: ResolvedScenario) -> Collector | None:
    try:
        return run(s)
    except InputError:
        return None


def _answers(
    base: Collector, levels: Mapping[str, float], kept: Collector, *, is_open: bool
) -> dict[str, tuple[float, float]]:
    """Figure -> how far its logarithm moved from the *base*'s, and the standard error of that.

    *levels* are the base's own.
    """
    found = {"iops": _gain(base, kept)}
    moved_to = _levels(kept)
    found |= {name: (moved_to[name] - v, 0.0) for name, v in levels.items() if name in moved_to}
    if not is_open:  # what is outstanding is fixed
        found["mean"] = (-found["iops"][0], found["iops"][1])
    return found


def _gain(base: Collector, kept: Collector) -> tuple[float, float]:
    """Logarithm of the throughput of *kept* over the *base*'s, and its standard error.

    What chance does to one run it does to the other: their distance scatters by much less than
    either.
    """
    a, b = base.records, kept.records
    n, cut = min(len(a), len(b)), paired.common_warmup(a, b)
    change = paired.gain(a[cut:n], b[cut:n])
    share = max(1 + change.value, 1e-300)
    half = (change.high - change.low) / 2 / Z95 / share
    return math.log(share), half if math.isfinite(half) else 0.0


def _levels(kept: Collector) -> dict[str, float]:
    """Figure -> logarithm of it in one short run."""
    window = kept.window(kept.warmup()[0])
    found = {"mean": math.log(max(window.mean_latency_s(None).value, 1e-300))}
    data = samples(window, None)
    for percent in PERCENTS:
        if data is not None and data.size * (1 - percent / 100) >= BEYOND:
            found[f"p{percent:g}"] = math.log(max(data.quantile(percent / 100), 1e-300))
    return found


def two_sides(rows: Sequence[tuple[float, float]]) -> Span:
    """How far the figure's logarithm may lie below and above the base's: 95 %.

    *rows* are each run's distance from the base and its standard error. A two-piece normal about
    the base, by maximum likelihood: doubt that can only cost must not promise gains. Source: John,
    "The three-parameter two-piece normal family of distributions and its fitting", 1982, for a
    known mode.

    >>> [round(side, 3) for side in two_sides([(0.1, 0.0), (-0.1, 0.0)])]
    [0.196, 0.196]
    >>> two_sides([(-0.1, 0.0), (-0.2, 0.0)])[1]
    0.0
    """
    off, errors = np.array(rows).T
    own = float(np.mean(errors**2))
    sums = [max(0.0, float(np.sum(side**2 - own))) for side in (off[off < 0], off[off > 0])]
    roots = [total ** (1 / 3) for total in sums]
    below, above = (Z95 * root * math.sqrt(sum(roots) / len(off)) for root in roots)
    return below, above
