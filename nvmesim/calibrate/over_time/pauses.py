"""Pauses of a disk that serves in rounds: how often, how long, by time or by request, or none.

What stops the one server holds up all that are in flight together: n in flight count once, and
above the body P(latency > median + x) = hit P(length > x). A pause of the host comes as time passes
(hit = rate times the time of a round), a stall with a request (hit = n times its share).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.infer.posterior import one_thread, sampled
from nvmesim.calibrate.infer.problem import DRAWS
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import Pauses, Quantity, Rounds, Stalls

Part = Literal["pauses", "read_stalls", "write_stalls"]
Parts = tuple[Part, ...]

BODY: Final = 3.0
"""Beyond the median by so many times the way from there to p90 nothing of the body is left: 3.8
standard deviations of a normal one."""
FIRST: Final = 2.0
"""The same in medians of the shallowest depth, for bodies with a tail."""
FURTHEST, CLASSES = 120.0, 14
"""Classes of lengths, in units of the first: up to some ms where that is some tens of us."""
LEAST: Final = 20.0
"""Rounds that were held up, below which nothing is to be found."""
OWN: Final = 0.7
"""A percentile is of the body while fewer requests are held up than this of what is beyond it."""
STARTS: Final[dict[Part, tuple[tuple[float, float, float], ...]]] = {
    "pauses": ((100.0, 1e-4, 3.0), (1000.0, 2e-5, 8.0), (20.0, 1e-3, 1.0)),
    "read_stalls": ((2e-4, 2e-3, 0.5),),
    "write_stalls": ((5e-5, 1e-3, 0.5),),
}
"""Rate (1/s) or share, mean length (s) and its coefficient of variation where a search begins."""
BOUNDS: Final[dict[Part, tuple[tuple[float, float], ...]]] = {
    "pauses": ((0.05, 5000.0), (2e-6, 2e-2), (0.1, 30.0)),
    "read_stalls": ((1e-7, 2e-3), (2e-4, 5e-2), (0.1, 1.0)),
    "write_stalls": ((1e-7, 2e-3), (2e-4, 5e-2), (0.1, 1.0)),
}
"""A stall is a wait of a typical length; what is short and of any length are pauses."""
STEP: Final = 0.05
"""Standard deviation of a first proposal, in units of its logarithm, about."""
NUDGE: Final = 1e-6
"""Step of a logarithm that a slope is taken over."""
PROPOSALS: Final = 1500
GAIN: Final = 4.0
"""Log-likelihood that a further part must bring on depths left out, per width of the misfit."""


@dataclass(frozen=True)
class PauseTail:
    """Latencies of one point beyond its body."""

    depth: int
    write: bool
    cycle_s: float
    """Time of a round, all in flight."""
    beyond_s: Floats
    """float64[k]: how far the classes begin beyond the median"""
    rounds: Floats
    """float64[k + 1]: rounds in the body, and in each class"""


@dataclass(frozen=True)
class PauseFit:
    """Pauses of batches."""

    parts: Parts
    logs: Floats
    """float64[3 * n_parts]: logarithms of rate or share, mean (s), coefficient of variation"""
    draws: Floats
    """float64[n_draws, 3 * n_parts]"""

    @property
    def values(self) -> dict[Part, Floats]:
        """Part -> rate or share, mean (s), coefficient of variation."""
        return dict(zip(self.parts, np.exp(self.logs).reshape(-1, 3), strict=True))

    def columns(self) -> dict[str, Floats]:
        """Dotted key of the profile -> float64[n_draws]."""
        out: dict[str, Floats] = {}
        for i, part in enumerate(self.parts):
            rate, mean, cv = np.exp(self.draws[:, 3 * i : 3 * i + 3]).T
            often = {"every": 1e12 / rate} if part == "pauses" else {"share": rate}
            columns = {**often, "length": 1e12 * mean, "cv": cv}
            out |= {f"rounds.{part}.{name}": column for name, column in columns.items()}
        return out

    def without_tail(self, point: Point) -> Point:
        """Return *point* with the percentiles of its body alone: what stops it makes the others."""
        tails = _tails([point], point)
        if not tails or not self.parts:
            return point
        hit = float(_survivals(self.logs, self.parts, _Rows(tails))[0, 0])
        kept = {q: v for q, v in point.percentiles_s.items() if hit < OWN * (1 - q / 100)}
        return replace(point, percentiles_s=kept)

    def add_pauses(self, rounds: Rounds) -> Rounds:
        """Return *rounds* held up so."""
        stops: dict[str, Pauses | Stalls] = {}
        for part, (often, mean, spread) in self.values.items():
            length, cv = _fitted_number(1e12 * mean), _fitted_number(spread)
            if part == "pauses":
                every = _fitted_number(1e12 / often)
                stops[part] = Pauses(every=every, length=length, cv=cv, law="lognormal")
            else:
                stops[part] = Stalls(share=_fitted_number(often), length=length, cv=cv)
        return rounds.model_copy(update=stops)

    @property
    def text(self) -> str:
        """One line for a person."""
        if not self.parts:
            return "no pauses: without any, depths that were left out are predicted best"
        said = []
        for part, (often, mean, _) in self.values.items():
            length = f"{1e3 * mean:.2g} ms on average"
            if part == "pauses":
                said.append(f"{often:,.0f} pauses a second that stop everything, {length}")
            else:
                side = part.partition("_")[0]
                share = f"{100 * often:.2g} % of {side}s"
                said.append(f"{share} hold up all behind them, {length}")
        return f"{'; '.join(said)}: with these, depths that were left out are predicted best"


NONE: Final = PauseFit((), np.zeros(0), np.zeros((DRAWS, 0)))


@one_thread()
def fit_pauses(points: Sequence[Point]) -> PauseFit:
    """Choose and fit what holds up rounds; `NONE` below three depths, or if nothing hardly does."""
    if not points:
        return NONE
    tails = _tails(points, min(points, key=lambda p: p.outstanding))
    depths = sorted({t.depth for t in tails})
    if len(depths) < 3 or sum(float(t.rounds[1:].sum()) for t in tails) < LEAST:
        return NONE
    either: tuple[tuple[Part, bool], ...] = (("read_stalls", False), ("write_stalls", True))
    sides = [part for part, write in either if any(t.write == write for t in tails)]
    best: Parts = ()
    most = _held_out(best, np.zeros(0), tails, depths)
    known: dict[Parts, Floats] = {(): np.zeros(0)}
    first: Parts = ("pauses",)
    for parts in (first, *((*first, s) for s in sides), (*first, *sides)):
        if parts in known:
            continue
        known[parts] = _fitted(parts, _Rows(tails))
        score = _held_out(parts, known[parts], tails, depths)
        cells = sum(int((t.rounds > 0).sum()) for t in tails)
        width = max(1.0, -2 * most / cells)  # of the misfit, in units of chance
        if score > most + GAIN * width * max(0, len(parts) - len(best)):
            best, most = parts, score
    return PauseFit(best, known[best], _drawn(best, known[best], _Rows(tails)))


def _fitted_number(value: float) -> Quantity:
    return Quantity(value=float(value), basis="fitted")


def _tails(points: Sequence[Point], shallow: Point) -> list[PauseTail]:
    """Of those points whose whole distribution is known, or their percentiles far out."""
    body = shallow.percentiles_s.get(50.0)
    if body is None:
        return []
    return [t for t in [_tail(p, FIRST * body) for p in points] if t is not None]


def _tail(p: Point, first_s: float) -> PauseTail | None:
    if p.bins is None or p.read_fraction not in (0.0, 1.0):
        return None
    values, counts = np.asarray(p.bins.at_s, float), np.asarray(p.bins.count, float)
    cumulative = np.cumsum(counts)
    total = float(cumulative[-1]) if len(cumulative) else 0.0
    if total <= 0:
        return None
    median, p90 = (float(values[np.searchsorted(cumulative, s * total)]) for s in (0.5, 0.9))
    start = max(BODY * (p90 - median), first_s)
    beyond = start + np.concatenate([[0.0], first_s * np.geomspace(1, FURTHEST, CLASSES)])
    edges = np.concatenate([[-np.inf], median + beyond, [np.inf]])
    inside, _ = np.histogram(values, edges, weights=counts)
    n = p.outstanding
    return PauseTail(n, p.read_fraction == 0, n / p.iops, beyond, inside / n)


class _Rows:
    """Tails as arrays: a row a point, a column a class."""

    def __init__(self, tails: Sequence[PauseTail]) -> None:
        self.beyond = np.stack([t.beyond_s for t in tails])
        self.cycle = np.array([[t.cycle_s] for t in tails])
        depth, write = (np.array([[getattr(t, n)] for t in tails]) for n in ("depth", "write"))
        self.exposed = {"read_stalls": depth * ~write, "write_stalls": depth * write}
        self.seen = np.stack([t.rounds for t in tails])
        self.best = np.log(np.maximum(self.seen / self.seen.sum(axis=1, keepdims=True), 1e-300))


def _survivals(logs: Floats, parts: Parts, rows: _Rows) -> Floats:
    """float64[..., n_tails, k]: share of rounds held up for longer than each class begins.

    *logs*: float64[..., 3 * n_parts].
    """
    each = np.split(np.exp(logs), len(parts), axis=-1) if parts else []
    return sum((_held_up(p, v, rows) for p, v in zip(parts, each, strict=True)), 0 * rows.beyond)


def _held_up(part: Part, values: Floats, rows: _Rows) -> Floats:
    """Of one part: its rate or share, mean (s), coefficient of variation, float64[..., 3]."""
    from scipy.special import gammaincc, ndtr

    rate, mean, cv = np.moveaxis(values, -1, 0)[..., None, None]
    if part == "pauses":
        hit = rate * rows.cycle
        sigma = np.sqrt(np.log1p(cv * cv))
        longer = ndtr(-(np.log(rows.beyond / mean) + sigma * sigma / 2) / sigma)
    else:
        hit = rate * rows.exposed[part]
        longer = gammaincc(1 / cv**2, rows.beyond / (mean * cv**2))
    return np.asarray(np.minimum(hit, 0.5) * longer)


def _likelihood(logs: Floats, parts: Parts, rows: _Rows) -> Floats:
    """Logarithm, less that of a model that has every class's share right, of float64[..., n]."""
    return _of_survivals(_survivals(logs, parts, rows), rows)[0]


def _of_survivals(survivals: Floats, rows: _Rows) -> tuple[Floats, Floats]:
    """That logarithm, and its slope by each survival."""
    beyond = np.minimum(survivals, 0.99)
    share = np.maximum(-np.diff(beyond, prepend=1.0, append=0.0), 1e-12)
    slope = np.diff(rows.seen / share) * (survivals < 0.99)
    return np.asarray((rows.seen * (np.log(share) - rows.best)).sum(axis=(-2, -1))), slope


def _fitted(parts: Parts, rows: _Rows, start: Floats | None = None) -> Floats:
    """Where the likelihood is largest, from each start or from *start* alone, which is near."""
    from scipy.optimize import minimize

    bounds = np.log([b for part in parts for b in BOUNDS[part]])

    def cost(logs: Floats) -> tuple[Floats, Floats]:
        each = np.exp(logs).reshape(-1, 3)
        held = [_held_up(part, v, rows) for part, v in zip(parts, each, strict=True)]
        value, by = _of_survivals(sum(held, 0 * rows.beyond), rows)
        slopes = [
            ((_held_up(part, v * np.exp(NUDGE * unit), rows) - h) * by).sum() / NUDGE
            for part, v, h in zip(parts, each, held, strict=True) for unit in np.eye(3)
        ]  # fmt: skip
        return -value, -np.array(slopes)

    if start is not None:
        begins = [start]
    else:
        rest = [v for part in parts if part != "pauses" for v in STARTS[part][0]]
        firsts = STARTS["pauses"] if "pauses" in parts else ((),)
        begins = [np.log([*f, *rest]) for f in firsts]
    how: dict[str, Any] = {
        "fun": cost, "jac": True, "method": "L-BFGS-B", "bounds": bounds,
        "options": {"maxiter": 500, "ftol": 1e-10},
    }  # fmt: skip
    tried = [minimize(x0=begin, **how) for begin in begins]
    return np.asarray(min(tried, key=lambda found: found.fun).x, np.float64)


def _held_out(
    parts: Parts, logs: Floats, tails: Sequence[PauseTail], depths: Sequence[int]
) -> float:
    """Sum over depths of the likelihood of each under what the others give."""
    score = 0.0
    for depth in depths:
        rest = _Rows([t for t in tails if t.depth != depth])
        found = _fitted(parts, rest, logs) if parts else logs
        score += float(_likelihood(found, parts, _Rows([t for t in tails if t.depth == depth])))
    return score


def _drawn(parts: Parts, logs: Floats, rows: _Rows) -> Floats:
    """float64[n_draws, n_parameters]: what the captures allow within the bounds.

    The likelihood is flattened by as much as the misfit is wider than chance.
    """
    if not parts:
        return np.zeros((DRAWS, 0))
    bounds = np.log([b for part in parts for b in BOUNDS[part]])
    freedom = max(1, int((rows.seen > 0).sum()) - len(rows.seen) - len(logs))
    scale = max(1.0, -2 * float(_likelihood(logs, parts, rows)) / freedom)

    def cost(tried: Floats) -> Floats:
        inside = ((tried > bounds[:, 0]) & (tried < bounds[:, 1])).all(axis=1)
        out = np.full(len(tried), np.inf)
        out[inside] = -_likelihood(tried[inside], parts, rows) / scale
        return out

    kept = sampled(cost, logs, STEP**2 * 9 * np.eye(len(logs)), np.random.default_rng(1), PROPOSALS)
    return np.asarray(kept[np.linspace(0, len(kept) - 1, DRAWS).astype(int)])
