"""Measures implementations against each other: in rounds, in turn, so that noise hits all alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks import c_program, ciw_model, engines, plain_simpy, salabim_model
from benchmarks.models import Full, Pool, network
from benchmarks.sample import Piece, Sample

Make = Callable[[], Piece]

MEAN_WITHIN = 0.01
P99_WITHIN = 0.03
LEAST_REQUESTS = 20_000
"""Fewer say too little about a p99."""
BASE = "compiled"

POOL_MAKERS: Mapping[str, Callable[[Pool, int, int], Piece]] = {
    "compiled": engines.compiled_pool,
    "simpy_engine": engines.simpy_engine_pool,
    "simpy_plain": plain_simpy.simpy_plain,
    "salabim": salabim_model.salabim,
    "ciw": ciw_model.ciw,
    "c_heap": c_program.c_heap,
    "c_wheel": c_program.c_wheel,
}
NAMES = tuple(POOL_MAKERS)
FAST = ("compiled", "c_heap", "c_wheel")
"""Run at large outstanding too."""
OUTSTANDING = (64, 4096, 65536)
MOST_TOKENS = 500_000


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int = 5
    fast_s: float = 0.4
    """CPU time of a piece of compiled code."""
    slow_s: float = 1.2
    """... of Python."""


QUICK = Effort(2, 0.15, 0.5)


@dataclass
class Measured:
    """One workload, every implementation."""

    name: str
    what: str
    outstanding: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    visits: float = 0.0
    """Station visits of a request."""
    same: bool | None = None
    """Whether the two engines gave equal results; None: not looked at."""

    def rate(self, name: str) -> float | None:
        """Median requests per CPU second; None where it could not run."""
        taken = self.samples.get(name)
        return median(s.rate for s in taken) if taken else None

    def spread(self, name: str) -> float:
        """(max - min) / median."""
        rates = [s.rate for s in self.samples[name]]
        return (max(rates) - min(rates)) / median(rates)

    def ratio(self, name: str) -> float | None:
        """Median over the rounds of compiled / *name*."""
        taken = self.samples.get(name)
        if not taken or BASE not in self.samples:
            return None
        pairs = zip(self.samples[BASE], taken, strict=True)
        return median(x.rate / y.rate for x, y in pairs)

    def latency(self, name: str) -> tuple[float, float]:
        """Mean and p99 over the rounds, in us."""
        taken = self.samples[name]
        n = sum(s.requests for s in taken)
        mean = sum(s.mean_us * s.requests for s in taken) / n
        return mean, sum(s.p99_us * s.requests for s in taken) / n

    def disagreements(self) -> list[str]:
        """What differs: engines at all, other implementations by more than their noise."""
        out = [] if self.same in (None, True) else [f"{self.name}: the two engines differ"]
        mean, p99 = self.latency(BASE)
        for name, taken in self.samples.items():
            its_mean, its_p99 = self.latency(name)
            if name == "simpy_engine" or sum(s.requests for s in taken) < LEAST_REQUESTS:
                continue
            if abs(its_mean / mean - 1) > MEAN_WITHIN:
                out.append(f"{self.name}: mean of {name} is {its_mean:.2f} us, not {mean:.2f}")
            if abs(its_p99 / p99 - 1) > P99_WITHIN:
                out.append(f"{self.name}: p99 of {name} is {its_p99:.1f} us, not {p99:.1f}")
        return out

    @property
    def simulated_per_s(self) -> float:
        """Simulated seconds per CPU second of the compiled engine."""
        taken = self.samples[BASE]
        return median(s.rate / s.iops for s in taken)

    def row(self) -> dict[str, float | None]:
        """Requests per second by implementation."""
        return {name: self.rate(name) for name in NAMES}

    def detail(self) -> dict[str, object]:
        """Everything else, for JSON."""
        names = list(self.samples)
        return {
            "what": self.what,
            "outstanding": self.outstanding,
            "visits_per_request": self.visits,
            "visits_per_s": (self.rate(BASE) or 0.0) * self.visits,
            "simulated_s_per_s": self.simulated_per_s,
            "spread": {n: self.spread(n) for n in names},
            "compiled_over": {n: self.ratio(n) for n in names if n != BASE},
            "mean_us": {n: self.latency(n)[0] for n in names},
            "p99_us": {n: self.latency(n)[1] for n in names},
            "engines_equal": self.same,
            "missing": self.missing,
        }


def measure_pool(model: Pool, outstanding: int, effort: Effort) -> Measured:
    """Measure every implementation of *model*; only the fast ones off its own outstanding."""
    own = outstanding == model.outstanding
    name = model.name if own else f"{model.name}@{outstanding}"
    out = Measured(name, model.what, outstanding)

    def maker(key: str) -> Make:
        warm = 4 * outstanding + (2000 if key in FAST else 0)
        return lambda: POOL_MAKERS[key](model, outstanding, warm)

    _measure(out, {key: maker(key) for key in NAMES if own or key in FAST}, effort)
    if own:
        out.same = engines.same(network(model))
    return out


def measure_full(model: Full, outstanding: int, effort: Effort, slow: bool) -> Measured:
    """Measure both engines on a lowered scenario; the SimPy one only if *slow*."""
    own = outstanding == model.outstanding
    name = model.name if own else f"{model.name}@{outstanding}"
    out = Measured(name, model.what, outstanding)
    net = model.lowered(outstanding).network
    makers: dict[str, Make] = {BASE: lambda: engines.compiled(net, 4 * outstanding + 2000)}
    if slow:
        makers["simpy_engine"] = lambda: engines.simpy_engine(net, outstanding)
        out.same = engines.same(net)
    _measure(out, makers, effort)
    return out


def _measure(out: Measured, makers: Mapping[str, Make], effort: Effort) -> None:
    pieces: dict[str, tuple[Piece, int]] = {}
    for name, make in makers.items():
        try:
            piece = make()
            # not many yet: the slowest does 200 a second
            pilot = piece(4000 if name in FAST else 100)
        except ImportError:
            out.missing[name] = "not installed"
            continue
        except (ValueError, c_program.NoCompilerError) as error:
            out.missing[name] = str(error)
            continue
        seconds = effort.fast_s if name in FAST else effort.slow_s
        pieces[name] = piece, max(100, int(pilot.rate * seconds))
    for _ in range(effort.rounds):
        for name, (piece, requests) in pieces.items():
            gc.collect()
            gc.freeze()  # nobody pays for looking at what the others keep
            out.samples.setdefault(name, []).append(piece(requests))
    base = pieces[BASE][0]
    assert isinstance(base, engines.Timed)
    out.visits = base.visits
