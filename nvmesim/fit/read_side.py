"""Fit how a drive reads: constant part, dies, controller; and its large commands.

What the data determine depends on how many depths there are. One depth gives the constant part and
a spread; two add the ceiling; from three on the number of dies and their time are fitted too: a
grid over the number of dies (it is a count), least squares over the rest at each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity, ReadSide
from nvmesim.fit.bench import Host, effort, measure
from nvmesim.fit.evidence import drawn, intervals
from nvmesim.fit.points import Point
from nvmesim.fit.search import Floats, Solution, misfit, solve

US = 1e6
CHANNEL_PS = 3 * US
"""Channel time of 4 KiB. Assumed: 1.2 GB/s and overhead; with few dies it hardly shows."""
ASSUMED_DIES = 64
DIES_GRID = (0.8, 1.0, 1.25, 1.6, 2.2)
"""Tried numbers of dies, in units of ceiling x die time (Little's law: what keeps it busy)."""
FAST = 800e3
"""Controller's commands per second where no point shows a ceiling. Assumed: a PCIe 4.0 drive."""
DIES_NEAR = (1.0, 0.88, 1.12)
"""Tried again around the best, with more requests."""
STEPS = (0.015, 0.25, 0.1, 0.015)
"""Finite differences of latency, base / die, cv and commands."""
REQUESTS = 25_000
ENGINES = (1, 2, 3, 4, 5, 6)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ReadFit:
    """Fitted values with their intervals, ps and 1/s."""

    values: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    dies: int
    fitted_dies: bool
    cost: float
    draws: Mapping[str, Floats] = field(default_factory=dict)
    """Name -> float64[n_draws]: joint draws of what was fitted, and of the dies"""

    def quantity(self, name: str, source: str) -> Quantity:
        """Return the named value with its interval; assumed if it was not fitted."""
        if name not in self.bounds:
            return Quantity(value=self.values[name], basis="assumed")
        low, high = self.bounds[name]
        return Quantity(value=self.values[name], low=low, high=high, basis="fitted", source=source)


def fit_reads(
    template: DriveProfile, host: Host, points: Sequence[Point], tell: Progress
) -> ReadFit:
    """Fit the read side on 4 KiB *points* (more depths, more parameters)."""
    return _Search(template, host, points, tell).fit()


@dataclass(frozen=True)
class _Try:
    """A number of dies with the best values of the rest."""

    dies: int
    found: Solution
    fixed: tuple[float, ...] = ()

    @property
    def cost(self) -> float:
        return self.found.cost

    @property
    def free(self) -> list[float]:
        return [float(v) for v in self.found.values]


class _Search:
    """Least squares over (latency, base / die, cv, commands) for every number of dies.

    Latency is base + die: the shallowest point pins it whatever the two shares are, so that the
    search does not run along the valley where one grows as the other falls.
    """

    def __init__(
        self, template: DriveProfile, host: Host, points: Sequence[Point], tell: Progress
    ) -> None:
        self.template, self.host, self.points, self.tell = template, host, points, tell
        ordered = sorted(points, key=lambda p: p.outstanding)
        self.fixed: list[float] = []
        self.depths = len({p.outstanding for p in points})
        self.ceiling = 1.02 * max(p.iops for p in points)
        self.held = held_ps(template)
        self.latency = _first_latency(ordered) * 1e12 - _host_ps(host) - self.held
        self.latency = max(0.2 * self.held, 1.0, self.latency)

    @property
    def full(self) -> bool:
        """Whether the deepest point shows a ceiling: each request got half of what one alone gets.

        Without one the controller's rate cannot be told, and is not fitted.
        """
        each = [p.iops / p.outstanding for p in self.points]
        return min(each) < 0.5 * max(each)

    def fit(self) -> ReadFit:
        rate = self.ceiling if self.full else max(FAST, 4 * self.ceiling)
        start, self.fixed = [self.latency, 0.1, 0.1], [rate]
        if self.full:
            start, self.fixed = [*start, rate], []
        if self.depths < 3:
            self.tell("reads: the constant part" + (" and the ceiling" if self.full else ""))
            found = self._at(ASSUMED_DIES, start, 10, fine=True)
            return self._result(found)
        near = self._near(self._coarse(start))
        vertex, spread = _vertex(near)
        best = min(near, key=lambda t: t.cost)
        if vertex not in [t.dies for t in near]:
            self.tell(f"reads: {vertex} dies, more requests")
            near.append(self._at(vertex, best.free, 8, fine=True))
        best = min(near, key=lambda t: t.cost)
        # once more from there, with fresh differences: the intervals rest on them
        last = self._at(best.dies, best.free, 6, fine=True)
        return self._result(last, _Valley(tuple(near), spread))

    def _coarse(self, start: list[float]) -> _Try:
        """The best of a grid that spans what Little's law allows, with few requests."""
        busy = max(1.0, self.ceiling * self.latency / 1.1e12)
        tries: list[_Try] = []
        for dies in dict.fromkeys(max(1, round(busy * f)) for f in DIES_GRID):
            self.tell(f"reads: {dies} dies")
            # too few dies push commands away, where a search that starts there would stay
            guess = [*tries[-1].free[:3], *start[3:]] if tries else start
            tries.append(self._at(dies, guess, 5, fine=False))
            if tries[-1].cost > 6 * min(t.cost for t in tries):
                break
        return min(tries, key=lambda t: t.cost)

    def _near(self, about: _Try) -> list[_Try]:
        """Its neighbours, with more requests."""
        tries: list[_Try] = []
        for dies in dict.fromkeys(max(1, round(about.dies * f)) for f in DIES_NEAR):
            self.tell(f"reads: {dies} dies, more requests")
            first = self._at(dies, about.free, 6, fine=True)
            tries.append(self._at(dies, first.free, 5, fine=True))
        return tries

    def _at(self, dies: int, start: Sequence[float], rounds: int, *, fine: bool) -> _Try:
        sizes = [effort(p, fine=fine) for p in self.points]

        def residuals(x: Floats) -> list[float]:
            made = with_reads(self.template, _values([*x, *self.fixed], self.held), dies)
            out: list[float] = []
            for p, n in zip(self.points, sizes, strict=True):
                out += misfit(p, measure(made, self.host, p, requests=n))
            return out

        free = len(start)
        low = [0.2 * self.latency, 2e-3, 0.01, self.ceiling / 1.3][:free]
        high = [1.5 * self.latency, 2.0, 1.2, 30 * self.ceiling][:free]
        found = solve(residuals, start, rounds=rounds, low=low, high=high, step=STEPS[:free])
        return _Try(dies, found, tuple(self.fixed))

    def _result(self, best: _Try, valley: _Valley | None = None) -> ReadFit:
        """The values with their intervals: from the curvature, and from the dies' own doubt."""
        free = len(best.found.values)
        values = _values([*best.found.values, *best.fixed], self.held)
        names = NAMES[:free]
        at = np.array([values[n] for n in names])
        spread = dict(intervals(names, at, best.found.jacobian @ self._turn(values, free),
                                best.found.residuals))  # fmt: skip
        if valley is None:
            return ReadFit(
                values, spread, best.dies, False, best.cost, self._draws(best, names, None)
            )
        for name, move in self._moves(valley, [n for n in names if n != "commands"]).items():
            low, high = spread[name]
            half = min(1.0, float(np.hypot(np.log(high / low) / 2, 1.96 * move * valley.sigma)))
            spread[name] = values[name] * float(np.exp(-half)), values[name] * float(np.exp(half))
        factor = float(np.exp(1.96 * valley.sigma))
        spread["dies"] = best.dies / factor, best.dies * factor
        return ReadFit(values, spread, best.dies, True, best.cost, self._draws(best, names, valley))

    def _draws(self, best: _Try, names: Sequence[str], valley: _Valley | None) -> dict[str, Floats]:
        """Joint draws of *names*: from the curvature, and along the valley of the dies."""
        logs = np.log(best.found.values) + drawn(best.found.jacobian, best.found.residuals)
        columns: dict[str, Floats] = {}
        if valley is not None and len({t.dies for t in valley.tries}) > 1:
            moved = valley.sigma * np.random.default_rng(2).standard_normal(len(logs))
            at = np.log([t.dies for t in valley.tries])
            follow = np.polyfit(at, np.log([t.found.values for t in valley.tries]), 1)[0]
            logs = logs + np.outer(moved, follow)
            columns["dies"] = best.dies * np.exp(moved)
        rows = [_values([*row, *best.fixed], self.held) for row in np.exp(logs)]
        return {n: np.array([row[n] for row in rows]) for n in names} | columns

    def _turn(self, values: dict[str, float], free: int) -> Floats:
        """Derivatives of the search's logarithms to those of the profile's numbers."""
        turn = np.eye(free)
        own = values["base"] - self.held
        share = own / (own + values["die"])
        turn[0, :2] = share, 1 - share
        turn[1, :2] = 1.0, -1.0
        turn[:, 0] *= values["base"] / own
        return turn

    def _moves(self, valley: _Valley, names: Sequence[str]) -> dict[str, float]:
        """How far each number follows the dies: d log(value) / d log(dies)."""
        if len({t.dies for t in valley.tries}) < 2:
            return {}
        logs: dict[str, list[float]] = {n: [] for n in names}
        for t in valley.tries:
            values = _values([*t.found.values, *t.fixed], self.held)
            for n in names:
                logs[n].append(float(np.log(values[n])))
        at = np.log([t.dies for t in valley.tries])
        return {n: abs(float(np.polyfit(at, y, 1)[0])) for n, y in logs.items()}


@dataclass(frozen=True)
class _Valley:
    """The tried numbers of dies that the points can hardly tell apart."""

    tries: tuple[_Try, ...]
    sigma: float
    """Standard error of log(dies)."""


NAMES = ("base", "die", "cv", "commands")
LEAST_SIGMA = 0.02
"""Standard error of log(dies) at least: the simulation's own noise moves the best by so much."""


def held_ps(template: DriveProfile) -> float:
    """Host time that the constant parts hold, ps: they cannot be shorter."""
    return template.host_submit.value if template.host_submit is not None else 0.0


def _values(x: Sequence[float] | Floats, held: float) -> dict[str, float]:
    """Parameters of the search as those of the profile."""
    latency, share = float(x[0]), float(x[1])
    die = latency / (1 + share)
    return {
        "base": held + latency - die, "die": die, "cv": float(x[2]), "commands": float(x[3]),
    }  # fmt: skip


def _vertex(tries: Sequence[_Try]) -> tuple[int, float]:
    """Where a parabola through the costs, over log(dies), is lowest, and the standard error there.

    Half the chi-square rises by 1/2 at one standard error.
    """
    best = min(tries, key=lambda t: t.cost)
    dies = [t.dies for t in tries]
    if len(set(dies)) < 3:
        return best.dies, 1.0 / best.dies
    a, b, _ = np.polyfit(np.log(dies), [t.cost for t in tries], 2)
    if a <= 0:
        return best.dies, 0.15
    freedom = max(1, len(best.found.residuals) - len(best.found.values) - 1)
    scale = max(1.0, 2 * best.cost / freedom)
    sigma = max(LEAST_SIGMA, float(np.sqrt(scale / 2 / a)))
    at = round(float(np.exp(np.clip(-b / 2 / a, 0.0, 12.0))))
    return int(np.clip(at, min(dies), max(dies))), sigma


def with_reads(template: DriveProfile, values: dict[str, float], dies: int) -> DriveProfile:
    """Return *template* with a read side of these values (ps, 1/s)."""
    q = Quantity
    read = template.read.model_copy(
        update={
            "base": q(value=values["base"]),
            "die": q(value=values["die"]),
            "die_cv": q(value=values["cv"]),
        }
    )
    return template.model_copy(
        update={
            "dies": q(value=dies),
            "channels": q(value=min(8, dies)),
            "commands": q(value=values["commands"]),
            "read": read,
        }
    )


def blank_reads() -> ReadSide:
    """Return a read side to start from."""
    q = Quantity
    return ReadSide(base=q(value=US), die=q(value=50 * US), channel=q(value=CHANNEL_PS))


def fit_large_reads(
    profile: DriveProfile, host: Host, points: Sequence[Point], tell: Progress
) -> tuple[DriveProfile, dict[str, tuple[float, float]]]:
    """Fit the data engines on points of one size above 4 KiB, after the 4 KiB side.

    For every number of engines the time of a unit follows; the number with the least misfit wins.
    """
    best: tuple[float, int, Solution] | None = None
    units = points[0].block_size / 4096
    for count in ENGINES:
        tell(f"large reads: {count} data engines")
        start = count / (1.05 * max(p.iops for p in points)) / units * 1e12

        def residuals(x: Floats, count: int = count) -> list[float]:
            made = _with_engines(profile, count, float(x[0]))
            return [
                r
                for p in points
                for r in misfit(p, measure(made, host, p, requests=max(4000, REQUESTS // 4)))
            ]

        found = solve(residuals, [start], rounds=5)
        if best is None or found.cost < best[0]:
            best = (found.cost, count, found)
    if best is None:
        return profile, {}
    _, count, found = best
    spread = intervals(["split"], found.values, found.jacobian, found.residuals)
    return _with_engines(profile, count, float(found.values[0])), dict(spread)


def _with_engines(profile: DriveProfile, count: int, split_ps: float) -> DriveProfile:
    q = Quantity
    update = {"engines": q(value=count), "split": q(value=split_ps)}
    return profile.model_copy(update={"read": profile.read.model_copy(update=update)})


def _first_latency(ordered: Sequence[Point]) -> float:
    """Latency of the shallowest point, s: its mean, or what Little's law says."""
    first = ordered[0]
    return first.mean_s or first.outstanding / first.iops


def _host_ps(host: Host) -> float:
    """Host CPU time of a request that shares nothing, ps."""
    s = host.stack
    cycles = s.submit.value + s.complete.value
    if not s.polled:
        cycles += s.wakeup.value + s.interrupt.value
    return float(np.round(cycles * 1e3 / host.ghz))
