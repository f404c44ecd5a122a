"""Which points a sweep has: every combination of a grid, or samples of it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from nvmesim.errors import InputError
from nvmesim.scenario.load import expanded, scenario_from_dict, with_values
from nvmesim.study.sweep.content import content_of
from nvmesim.study.sweep.values import Choice, SweptRange, as_choice, parse_values

Method = Literal["grid", "random", "lhs"]
METHODS: Final[tuple[Method, ...]] = ("grid", "random", "lhs")
TRIES: Final = 64
"""Combinations that a value is tried in before it counts as impossible."""
MOST_POINTS: Final = 1_000_000


@dataclass(frozen=True)
class Axis:
    """One swept parameter."""

    key: str
    choice: Choice

    def values(self) -> tuple[Any, ...]:
        """Return the values of the grid."""
        return self._values

    @functools.cached_property
    def _values(self) -> tuple[Any, ...]:
        """Made once: a sweep asks for their number at each point."""
        if isinstance(self.choice, SweptRange):
            return tuple(self.choice.values(self.key))
        return self.choice

    def at(self, share: float) -> Any:
        """Return the value at *share* (0 to 1) of the way through."""
        if isinstance(self.choice, SweptRange):
            return self.choice.between(share)
        return self.choice[min(len(self.choice) - 1, int(share * len(self.choice)))]

    def ends(self) -> tuple[Any, ...]:
        """Return values enough to try whether the parameter takes them."""
        if isinstance(self.choice, SweptRange) and self.choice.low <= self.choice.high:
            return self.at(0.0), self.at(1.0)
        return self.values()


@dataclass(frozen=True)
class SweepPlan:
    """The points of a sweep, in order."""

    axes: tuple[Axis, ...]
    samples: int | None = None
    """None: the whole grid."""
    method: Method = "grid"
    seed: int = 1

    def __len__(self) -> int:
        """Return the number of points."""
        if self.samples is not None:
            return self.samples
        return math.prod(len(axis.values()) for axis in self.axes)

    def points(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of the axes, point by point; the last axis changes fastest."""
        if self.samples is None:
            yield from itertools.product(*(axis.values() for axis in self.axes))
            return
        for shares in self._shares(self.samples):
            yield tuple(axis.at(s) for axis, s in zip(self.axes, shares, strict=True))

    def _shares(self, n: int) -> Any:
        """float64[n, axes] in [0, 1); Latin hypercube: one in each n-th part of every axis.

        Source: McKay, Beckman and Conover, Technometrics 21(2), 1979.
        """
        rng = np.random.Generator(np.random.PCG64(self.seed))
        shares = rng.random((n, len(self.axes)))
        if self.method == "lhs":
            for column in range(len(self.axes)):
                shares[:, column] = (rng.permutation(n) + shares[:, column]) / n
        return shares

    def describe(self) -> dict[str, Any]:
        """Return what makes this plan this plan, as plain values."""
        return {
            "over": [[axis.key, _plain_choice(axis.choice)] for axis in self.axes],
            "samples": self.samples,
            "method": self.method,
            "seed": self.seed if self.samples is not None else None,
        }


def _plain_choice(choice: Choice) -> Any:
    if isinstance(choice, SweptRange):
        return [str(v) for v in (choice.low, choice.high, choice.unit, choice.step, choice.factor)]
    return list(choice)


def make_plan(
    over: Mapping[str, Any], samples: int | None = None, method: str = "grid", seed: int = 1
) -> SweepPlan:
    """Return the plan for *over* (parameter -> values); InputError if it has no points."""
    if not over:
        raise InputError("there is nothing to sweep over; name a key and its values")
    methods = {known: known for known in METHODS}
    if method not in methods:
        raise InputError(f"method {method!r} is unknown; grid, random or lhs")
    if (samples is None) != (method == "grid"):
        raise InputError("a number of samples and the method random or lhs belong together")
    if samples is not None and samples < 1:
        raise InputError(f"{samples} samples were asked for; at least 1 is needed")
    axes = tuple(Axis(key.strip(), as_choice(v, key)) for key, v in over.items())
    for axis in axes:
        _check_axis(axis, samples is not None)
    plan = SweepPlan(axes, samples, methods[method], seed)
    if len(plan) > MOST_POINTS:
        raise InputError(
            f"{len(plan):,} points are too many; {MOST_POINTS:,} at most: make a sweep "
            "of each value of the first key, and read the tables together"
        )
    return plan


def _check_axis(axis: Axis, sampled: bool) -> None:
    if not axis.key:
        raise InputError("a swept key is empty; name one such as drives.0.count")
    span = axis.choice
    if isinstance(span, SweptRange) and (not sampled or span.low > span.high):
        axis.values()


def parse_over(texts: Sequence[str]) -> dict[str, Choice]:
    """Return key -> values of several ``KEY=V1,V2``.

    >>> parse_over(["drives.0.count=4,8"])
    {'drives.0.count': (4, 8)}
    """
    out: dict[str, Choice] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--over {text!r} is not KEY=V1,V2 such as drives.0.count=4,8")
        if key.strip() in out:
            raise InputError(f"--over {key.strip()} is there twice; join its values with commas")
        out[key.strip()] = parse_values(values, f"--over {text!r}")
    return out


def put(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *tables* with the *changes*; ``*`` stands for each element of a list.

    >>> put({"drives": [{"count": 1}, {"count": 2}]}, {"drives.*.count": 8})
    {'drives': [{'count': 8}, {'count': 8}]}
    """
    return with_values(
        tables, {path: value for key, value in changes.items() for path in expanded(tables, key)}
    )


def check(tables: Mapping[str, Any], base: str, plan: SweepPlan) -> str:
    """Raise the error of a key that takes none of its values; return a digest of what they mean.

    A value or combination that cannot be (a RAID6 of three drives, more lanes than a CPU has) is no
    error: its row says why.
    """
    digests: list[str] = []
    for number, axis in enumerate(plan.axes):
        found = [_meaning(tables, base, plan, number, value) for value in axis.ends()]
        if all(isinstance(meaning, InputError) for meaning in found):
            raise InputError(f"{axis.key} = {axis.ends()[0]!r}: {found[0]}")
        digests += map(str, found)
    return content_of(digests)


def _meaning(
    tables: Mapping[str, Any], base: str, plan: SweepPlan, number: int, value: Any
) -> str | InputError:
    """Scenario with a value of axis *number*, in the first point that can be."""
    axis = plan.axes[number]
    first: InputError | None = None
    for changes in itertools.chain([{axis.key: value}], _combinations(plan, number, value)):
        try:
            return content_of(scenario_from_dict(put(tables, changes), base))
        except InputError as error:
            first = first or error
    return first or InputError("cannot be")


def _combinations(plan: SweepPlan, number: int, value: Any) -> Iterator[dict[str, Any]]:
    """Points that have *value* on axis *number*: a sample spread over the other axes."""
    rng = np.random.Generator(np.random.PCG64(0))
    for shares in rng.random((TRIES, len(plan.axes))):
        changes = {a.key: a.at(float(s)) for a, s in zip(plan.axes, shares, strict=True)}
        changes[plan.axes[number].key] = value
        yield changes
