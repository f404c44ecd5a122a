"""The numbers of a scenario's profiles that are not known exactly, and scenarios with others.

Every number has a distribution: its stated interval, or one by its basis. Numbers that were fitted
together move together: they are as in a draw of their profile's joint table.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from pydantic import BaseModel

from nvmesim.array_types import Floats
from nvmesim.catalog.load import quantities, with_alternative
from nvmesim.catalog.profile import DriveProfile, Frozen, JointDraws, Quantity, StackProfile
from nvmesim.catalog.quantity import number_at, with_numbers
from nvmesim.model.host import batch_of
from nvmesim.scenario.resolved import ResolvedScenario

Z95: Final = 1.959964
"""Half-width of a 95 % interval in standard deviations."""
SPREAD: Final = {"datasheet": 1.1, "measured": 1.1, "fitted": 1.1, "assumed": 1.5}
"""95 %: a number without an interval may be so many times more or less. A datasheet rates what it
sells; a constant from a text, or one that is assumed, was seen on other hardware. The
catalog has no measured or fitted number without an interval of its own; users' profiles may."""
NEVER: Final = (
    "price", "tdp_w", "power_active_w", "power_idle_w", "capacity", "turbo_ghz", "ghz",
    "physical_sector", "tags", "read.unit", "write.unit", "max_transfer",
    "latencies.block_size", "interleave", "workers",
)  # fmt: skip
"""Numbers that are what they are: facts of a part, or no part of a prediction."""
WHOLE: Final = ("dies", "channels")
VARIATION: Final = ("die_cv", "base_cv", "program_cv", "wait_cv", "cv")
"""Last words of how much a time varies: of one profile they move together, as one number."""
SUBSETS: Final = 200
"""Choices of as many draws as there are runs, of which the one that is most like all is taken."""


@dataclass(frozen=True)
class Factor:
    """One number that may be otherwise, or several spreads that move as one."""

    name: str
    """As "intel-p4610-1.6tb read.die"."""
    profile: str
    moves: Mapping[str, tuple[float, float]]
    """Dotted key -> what one standard deviation up, and down, adds to the number's logarithm."""
    adds: tuple[float, float] | None = None
    """Of a single number that may be zero: what one up, and one down, add to the number itself."""


def spread_of(quantity: Quantity) -> float:
    """Return the factor, 95 %, by which *quantity* may be off where it states no interval.

    >>> spread_of(Quantity(value=5.0, basis="datasheet")), spread_of(Quantity(value=5.0))
    (1.1, 1.5)
    """
    return SPREAD[quantity.basis]


def factors(scenario: ResolvedScenario) -> list[Factor]:
    """Uncertain numbers of *scenario* that no joint table has, and that its load can use."""
    found: list[Factor] = []
    for label, profile in profiles(scenario).items():
        joint = getattr(profile, "joint", None)
        together = set(joint.names if joint else ())
        singles = [
            factor
            for key, quantity in quantities(profile)
            if key not in together and _counts(scenario, profile, key, quantity)
            and (factor := _single(label, key, quantity)) is not None
        ]  # fmt: skip
        found += _with_variations_joined(label, singles)
    return found


def _with_variations_joined(label: str, singles: Sequence[Factor]) -> list[Factor]:
    """*singles*, those that are about how much times vary as one; stated intervals stay apart."""
    ends = tuple(f".{word}" for word in VARIATION)
    joined = [f for f in singles if f.adds is None and f".{next(iter(f.moves))}".endswith(ends)]
    if len(joined) < 2:
        return list(singles)
    moves = {key: sides for factor in joined for key, sides in factor.moves.items()}
    one = Factor(f"{label.partition(' ')[2]} variation of times", label, moves)
    return [f for f in singles if f not in joined] + [one]


def profiles(scenario: ResolvedScenario) -> dict[str, Frozen]:
    """Profiles in use by "kind name": those of one name move together."""
    used: list[Frozen] = [
        *(d.profile for d in scenario.drives),
        scenario.stack,
        *(s.cpu for s in scenario.sockets),
        *(v.engine for v in scenario.volumes),
    ]
    return {label_of(profile): profile for profile in used}


def label_of(profile: BaseModel) -> str:
    """Return how a profile is told from others."""
    return f"{getattr(profile, 'kind', '')} {getattr(profile, 'name', '')}".strip()


def _counts(scenario: ResolvedScenario, profile: Frozen, key: str, quantity: Quantity) -> bool:
    has_room = quantity.high is not None and quantity.high > 0
    if key in NEVER or not (quantity.value or has_room):
        return False
    part = key.partition(".")[0]
    if part in ("filesystems", "sections", "guests"):
        name = key.split(".")[1]
        named = {"filesystems": ("filesystem",), "guests": ("guest",)}
        places = named.get(part, ("filesystem", "guest"))  # sections are of either
        return any(name == getattr(g, place) for g in scenario.workload for place in places)
    if isinstance(profile, DriveProfile):
        writes = any(g.read < 1 for g in scenario.workload)
        writes |= any(v.rebuild for v in scenario.volumes)
        of_writes = key.startswith("write.") or key == "write_bandwidth"
        is_idle = (of_writes and not writes) or (key == "host_submit" and not profile.host_included)
        return not is_idle and profile.counts(key)
    used = _USED.get("parity_rate" if key.startswith("rows.wakeup") else key)
    return used is None or used(scenario)


_USED: Final[Mapping[str, Callable[[ResolvedScenario], bool]]] = {
    "remote": lambda s: len(s.sockets) > 1,
    "per_child": lambda s: bool(s.volumes),
    "scsi": lambda s: any(d.link.is_scsi for d in s.drives),
    "sqpoll": lambda s: any(g.sqpoll for g in s.workload),
    "per_batch": lambda s: any(batch_of(s.stack, g) > 1 for g in s.workload),
    "bitmap_file": lambda s: any(v.bitmap == "external" for v in s.volumes),
    "parity_rate": lambda s: any(v.raid.parity for v in s.volumes),
}
"""Number of a stack or an engine -> what a scenario must have for it to be of use."""


def _single(label: str, key: str, q: Quantity) -> Factor | None:
    name = f"{label.partition(' ')[2]} {key}"
    if q.low is not None and q.high is not None:
        up, down = (q.high - q.value) / Z95, (q.low - q.value) / Z95
        if up <= 0 and down >= 0:
            return None
        return Factor(name, label, {key: (0.0, 0.0)}, (max(up, 0.0), min(down, 0.0)))
    sigma = math.log(spread_of(q)) / Z95
    return Factor(name, label, {key: (sigma, -sigma)})


Drawn = Mapping[str, float]
"""Dotted key -> what a draw of a joint table adds to the number's logarithm."""


def draws(scenario: ResolvedScenario, runs: int) -> dict[str, list[Drawn]]:
    """Profile with a joint table -> a draw of it for each of *runs*, as like all as so few can be.

    Directions of such a table are no substitute: where two of them meet, numbers contradict the
    captures that each by itself allows. The same profile has the same draws in every scenario.
    """
    found: dict[str, list[Drawn]] = {}
    for label, profile in profiles(scenario).items():
        joint: JointDraws | None = getattr(profile, "joint", None)
        if joint is not None:
            logs = np.log(np.array(joint.factors))
            chosen = logs[_like_all(logs, runs, zlib.crc32(label.encode()))]
            found[label] = [dict(zip(joint.names, row, strict=True)) for row in chosen.tolist()]
    return found


def _like_all(logs: Floats, runs: int, seed: int) -> Any:
    """int64[runs]: rows whose mean and covariance are nearest those of all."""
    rng, n = np.random.default_rng(seed), len(logs)
    if runs >= n:
        return rng.permutation(np.arange(runs) % n)
    unit = (logs - logs.mean(axis=0)) / np.maximum(logs.std(axis=0), 1e-12)
    whole = unit.T @ unit / n

    def distance(rows: Any) -> float:
        some = unit[rows]
        off, spread = some.mean(axis=0), some.T @ some / runs - whole
        return float((off**2).sum() + (spread**2).sum())

    return min((rng.permutation(n)[:runs] for _ in range(SUBSETS)), key=distance)


def alternatives(scenario: ResolvedScenario) -> list[tuple[ResolvedScenario, float]]:
    """*scenario* under each other explanation of its profiles' captures, and its probability."""
    found: list[tuple[ResolvedScenario, float]] = []
    for label, profile in profiles(scenario).items():
        if isinstance(profile, DriveProfile):
            made = [(with_alternative(profile, a), a.weight) for a in profile.alternatives]
            found += [(_captured_by(scenario, label, profile, n), weight) for n, weight in made]
        if isinstance(profile, StackProfile):
            others = [(with_alternative(profile, a), a.weight) for a in profile.alternatives]
            found += [(_replaced(scenario, label, new), weight) for new, weight in others]
    return found


def _captured_by(
    scenario: ResolvedScenario, label: str, old: DriveProfile, new: DriveProfile
) -> ResolvedScenario:
    """*scenario* with *new* in the place of *old*, and the stack as its threads were by it."""
    changed = _replaced(scenario, label, new)
    if old.captured is None or new.captured is None or old.captured.stack != scenario.stack.name:
        return changed
    factor = new.captured.stack_cycles / old.captured.stack_cycles
    return changed.with_cycles(factor) if factor != 1 else changed


def _replaced(scenario: ResolvedScenario, label: str, changed: Frozen) -> ResolvedScenario:
    return _with_each(scenario, lambda p: changed if label_of(p) == label else p)


def _with_each(scenario: ResolvedScenario, new: Callable[[Any], Any]) -> ResolvedScenario:
    """*scenario* with what *new* makes of each of its profiles."""
    return replace(
        scenario,
        stack=new(scenario.stack),
        sockets=tuple(replace(s, cpu=new(s.cpu)) for s in scenario.sockets),
        drives=tuple(replace(d, profile=new(d.profile)) for d in scenario.drives),
        volumes=tuple(replace(v, engine=new(v.engine)) for v in scenario.volumes),
    )


def moved(
    scenario: ResolvedScenario, found: Sequence[Factor], signs: Sequence[int],
    drawn: Mapping[str, Drawn] | None = None,
) -> ResolvedScenario:  # fmt: skip
    """Return *scenario* with every factor one standard deviation up (1) or down (-1), or as it is.

    Profiles of *drawn* have the numbers of that draw. Raises ValueError if *found* and *signs* do
    not match.
    """
    by_profile: dict[str, list[tuple[Factor, int]]] = {}
    for label, logs in (drawn or {}).items():
        of_draw = Factor("", label, {key: (log, -log) for key, log in logs.items()})
        by_profile[label] = [(of_draw, 1)]
    for factor, sign in zip(found, signs, strict=True):
        if sign:
            by_profile.setdefault(factor.profile, []).append((factor, sign))
    made: dict[int, Any] = {}

    def new(profile: Frozen) -> Any:
        if id(profile) not in made:
            changes = by_profile.get(label_of(profile))
            made[id(profile)] = _moved(profile, _steps(changes)) if changes else profile
        return made[id(profile)]

    return _with_each(scenario, new)


def _steps(changes: Sequence[tuple[Factor, int]]) -> dict[str, tuple[float, float]]:
    """Dotted key -> what is added to its logarithm, and to it."""
    steps: dict[str, tuple[float, float]] = {}
    for factor, sign in changes:
        side = 0 if sign > 0 else 1
        for key, sides in factor.moves.items():
            log, add = steps.get(key, (0.0, 0.0))
            steps[key] = log + sides[side], add + (factor.adds[side] if factor.adds else 0.0)
    return steps


def _moved(profile: Frozen, steps: Mapping[str, tuple[float, float]]) -> Frozen:
    known = ((key, number_at(profile, key), step) for key, step in steps.items())
    return with_numbers(profile, {
        key: _moved_quantity(number, *step, key.rpartition(".")[2])
        for key, number, step in known if number is not None
    })  # fmt: skip


def _moved_quantity(q: Quantity, log: float, add: float, name: str) -> Quantity:
    value = max(q.value + add, q.value * 1e-3) * math.exp(log)
    if name in WHOLE:
        value = max(1.0, float(round(value)))
    return q.model_copy(update={"value": value})
