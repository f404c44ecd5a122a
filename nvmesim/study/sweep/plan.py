"""Which points a sweep has: every combination of a grid, or samples of it.

Values are written as people write them: ``4,8,16`` is a list, ``4..24`` a range, ``4..24..4`` one
with a step, ``1..256..x2`` one that doubles, ``50 us..80 us..10 us`` one with units; mixtures such
as ``1,2,4..24..4`` are joined.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Final, Literal, get_args

import numpy as np

from nvmesim.errors import InputError
from nvmesim.scenario.load import scenario_from_dict, toml_or_text, with_values
from nvmesim.study.sweep.point import content_of

Method = Literal["grid", "random", "lhs"]
TRIES: Final = 64
"""Combinations that a value is tried in before it counts as impossible."""
MOST_POINTS: Final = 1_000_000
MOST_VALUES: Final = 1_000_000
MOST_DIGITS: Final = 18
_NUMBER: Final = re.compile(r"\s*([-+]?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_CLOSING: Final = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class SweptRange:
    """From *low* to *high*, both included: steps of a grid, or anywhere between for samples."""

    low: Decimal
    high: Decimal
    unit: str = ""
    step: Decimal | None = None
    factor: Decimal | None = None
    """Each value so many times the one before, in place of a step."""

    @property
    def is_whole(self) -> bool:
        """True if only whole numbers are meant: none is written with a decimal point."""
        written = (self.low, self.high, self.step or Decimal(1), self.factor or Decimal(1))
        return not any("." in f"{n:f}" for n in written)

    def values(self, text: str) -> list[Any]:
        """Return the values of the grid; InputError if there are none or a step is missing."""
        step, factor = self.step, self.factor
        if self.low > self.high:
            raise InputError(f"{text}: the range is empty: {self.low} is above {self.high}")
        if step is None and factor is None:
            if not self.is_whole:
                raise InputError(f"{text}: a range of fractions needs its step, as 0..1..0.1")
            step = Decimal(1)
        if (step is not None and step <= 0) or (factor is not None and factor <= 1):
            raise InputError(f"{text}: a step is above 0 and a factor above 1")
        if factor is not None and self.low <= 0:
            raise InputError(f"{text}: a range by factors starts above 0")
        out: list[Any] = []
        number = self.low
        while number <= self.high:
            if len(out) >= MOST_VALUES:
                raise InputError(f"{text}: has more than {MOST_VALUES:,} values")
            out.append(self._shown(number))
            number = number * (factor or 1) + (step or 0)
        return out

    def between(self, share: float) -> Any:
        """Return the value at *share* (0 to 1) of the way; whole where whole ones are meant."""
        if self.step is not None or self.factor is not None:
            grid = self.values("a range")
            return grid[min(len(grid) - 1, int(share * len(grid)))]
        if self.is_whole:
            count = int(self.high - self.low) + 1
            return self._shown(self.low + min(count - 1, int(share * count)))
        n = float(self.low) + share * float(self.high - self.low)
        return self._shown(Decimal(f"{n:.6g}"))

    def _shown(self, number: Decimal) -> Any:
        """*number* as a scenario file has it: a text if it has a unit."""
        if self.unit:
            return f"{number.normalize():f} {self.unit}"
        return int(number) if self.is_whole and number % 1 == 0 else float(number)


Choice = tuple[Any, ...] | SweptRange
"""Values of one swept parameter."""


def parse_values(text: str, message: str = "") -> Choice:
    """Return what *text* means: one range as a `SweptRange`, else the list of its values.

    >>> parse_values("raid0, raid5"), parse_values("1,2..4,8..32..x2")
    (('raid0', 'raid5'), (1, 2, 3, 4, 8, 16, 32))
    """
    message = message or repr(text)
    parts = [part.strip() for part in split_commas(text)]
    if not all(parts):
        what = "has no values" if len(parts) == 1 else "a value is empty"
        raise InputError(f"{message}: {what}")
    ranges = [_range(part, message) for part in parts]
    if len(parts) == 1 and ranges[0] is not None:
        return ranges[0]
    out: list[Any] = []
    for part, found in zip(parts, ranges, strict=True):
        out += found.values(message) if found is not None else [toml_or_text(part)]
    return _distinct(out, message)


def _as_choice(values: Any, text: str) -> Choice:
    """Values of the Python interface: a text as on the command line, or any values."""
    if isinstance(values, str):
        return parse_values(values, text)
    if isinstance(values, SweptRange):
        return values
    if isinstance(values, dict) or not isinstance(values, Iterable):
        raise InputError(f"{text}: {values!r} is not a list of values; write [{values!r}]")
    # scalars of NumPy and Polars as Python's own
    return _distinct([v.item() if hasattr(v, "item") else v for v in values], text)


def _distinct(values: Sequence[Any], message: str) -> tuple[Any, ...]:
    """*values* as a tuple; InputError if there is none, or one twice."""
    if not values:
        raise InputError(f"{message}: has no values")
    seen: set[str] = set()
    for value in values:
        if repr(value) in seen:
            raise InputError(f"{message}: {value!r} is there twice")
        seen.add(repr(value))
    return tuple(values)


def split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, start, closing, quote = [], 0, [""], ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _CLOSING:
            closing.append(_CLOSING[letter])
        elif letter == closing[-1]:
            closing.pop()
        elif letter == "," and len(closing) == 1:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _range(text: str, message: str) -> SweptRange | None:
    """``low..high[..step]``; None if *text* is not a range."""
    parts = text.split("..")
    if len(parts) not in (2, 3) or text[:1] in "\"'[{":
        return None
    first, last = (_NUMBER.fullmatch(part) for part in parts[:2])
    if first is None or last is None:
        if first is not last:
            raise InputError(f"{message}: {text!r} is not a range; write for example 4..24..4")
        return None
    unit = last[2]
    same_units = ("", unit, unit.removesuffix("/s"))  # "200k" beside "k/s"
    if first[2] not in same_units:
        raise InputError(f"{message}: {text!r} has two units, {first[2]!r} and {unit!r}")
    low, high = _decimal(first[1], message), _decimal(last[1], message)
    if len(parts) == 2:
        return SweptRange(low, high, unit)
    stated = parts[2].strip()
    is_factor = stated[:1] in ("x", "*", "×")
    found = _NUMBER.fullmatch(stated[1:] if is_factor else parts[2])
    if found is None or found[2] not in same_units or (is_factor and found[2]):
        raise InputError(f"{message}: the step {stated!r} is not a number such as 4 or x2")
    step = _decimal(found[1], message)
    return SweptRange(low, high, unit, factor=step) if is_factor else SweptRange(
        low, high, unit, step
    )  # fmt: skip


def _decimal(text: str, message: str) -> Decimal:
    """The number in *text*; InputError if it is larger or finer than anything that is swept."""
    number = Decimal(text.replace("_", ""))
    if number and not -MOST_DIGITS < number.adjusted() < MOST_DIGITS:
        raise InputError(f"{message}: {text[:30]} is out of any range; stay below 1e18")
    return number


@dataclass(frozen=True)
class Axis:
    """One swept parameter."""

    key: str
    choice: Choice

    @functools.cached_property
    def values(self) -> tuple[Any, ...]:
        """The values of the grid, made once: a sweep asks for their number at each point."""
        if isinstance(self.choice, SweptRange):
            return tuple(self.choice.values(self.key))
        return self.choice

    def at(self, share: float) -> Any:
        """Return the value at *share* (0 to 1) of the way; whole where whole ones are meant."""
        if isinstance(self.choice, SweptRange):
            return self.choice.between(share)
        return self.choice[min(len(self.choice) - 1, int(share * len(self.choice)))]

    def ends(self) -> tuple[Any, ...]:
        """Return values enough to try whether the parameter takes them."""
        if isinstance(self.choice, SweptRange) and self.choice.low <= self.choice.high:
            return self.at(0.0), self.at(1.0)
        return self.values


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
        return math.prod(len(axis.values) for axis in self.axes)

    @property
    def keys(self) -> tuple[str, ...]:
        """Key of each axis."""
        return tuple(axis.key for axis in self.axes)

    def points(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of the axes, point by point; the last axis changes fastest.

        A Latin hypercube has one sample in each n-th part of every axis. Source: McKay, Beckman and
        Conover, Technometrics 21(2), 1979.
        """
        if self.samples is None:
            yield from itertools.product(*(axis.values for axis in self.axes))
            return
        rng = np.random.Generator(np.random.PCG64(self.seed))
        shares = rng.random((self.samples, len(self.axes)))
        if self.method == "lhs":
            for column in shares.T:
                column[:] = (rng.permutation(self.samples) + column) / self.samples
        for row in shares:
            yield tuple(axis.at(s) for axis, s in zip(self.axes, row, strict=True))

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield key -> value, point by point."""
        keys = self.keys
        return (dict(zip(keys, values, strict=True)) for values in self.points())

    def describe(self) -> dict[str, Any]:
        """Return what makes this plan this plan, as plain values."""
        return {
            "over": [
                [a.key, list(a.choice) if isinstance(a.choice, tuple)
                 else [str(v) for v in asdict(a.choice).values()]] for a in self.axes
            ],
            "samples": self.samples,
            "method": self.method,
            "seed": self.seed if self.samples is not None else None,
        }  # fmt: skip


def make_plan(
    over: Mapping[str, Any], samples: int | None = None, method: str = "grid", seed: int = 1
) -> SweepPlan:
    """Return the plan for *over* (parameter -> values); InputError if it has no points."""
    if not over:
        raise InputError("there is nothing to sweep over; name a key and its values")
    known: dict[str, Method] = {name: name for name in get_args(Method)}
    if method not in known:
        raise InputError(f"method {method!r} is unknown; grid, random or lhs")
    if (samples is None) != (method == "grid"):
        raise InputError("a number of samples and the method random or lhs belong together")
    if samples is not None and samples < 1:
        raise InputError(f"{samples} samples were asked for; at least 1 is needed")
    axes = tuple(Axis(key.strip(), _as_choice(v, key)) for key, v in over.items())
    if not all(axis.key for axis in axes):
        raise InputError("a swept key is empty; name one such as drives.0.count")
    for axis in axes:
        if isinstance(axis.choice, SweptRange) and axis.choice.low > axis.choice.high:
            axis.choice.values(axis.key)  # says that it is empty
    plan = SweepPlan(axes, samples, known[method], seed)
    if len(plan) > MOST_POINTS:
        raise InputError(
            f"{len(plan):,} points are too many; {MOST_POINTS:,} at most: make a sweep "
            "of each value of the first key, and read the tables together"
        )
    return plan


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
    return with_values(tables, changes)


def check(tables: Mapping[str, Any], base: str, plan: SweepPlan) -> str:
    """Raise the error of a key that takes none of its values; return a digest of what they mean."""
    digests: list[str] = []
    for axis in plan.axes:
        found = [_meaning(tables, base, plan, axis, value) for value in axis.ends()]
        if all(isinstance(meaning, InputError) for meaning in found):
            raise InputError(f"{axis.key} = {axis.ends()[0]!r}: {found[0]}")
        digests += map(str, found)
    return content_of(digests)


def _meaning(
    tables: Mapping[str, Any], base: str, plan: SweepPlan, axis: Axis, value: Any
) -> str | InputError:
    """The scenario with *value* on *axis*, alone or in the first sample of points that can be."""
    rng = np.random.Generator(np.random.PCG64(0))
    first: InputError | None = None
    for shares in (None, *rng.random((TRIES, len(plan.axes)))):
        changes = {}
        if shares is not None:
            changes = {a.key: a.at(float(s)) for a, s in zip(plan.axes, shares, strict=True)}
        try:
            return content_of(scenario_from_dict(put(tables, changes | {axis.key: value}), base))
        except InputError as error:
            first = first or error
    assert first is not None
    return first
