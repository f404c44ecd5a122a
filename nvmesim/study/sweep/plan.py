"""Which points a sweep has: every combination of the values of its keys.

Values are written as people write them: ``4,8,16`` is a list, ``4..24`` a range, ``4..24..4`` one
with a step, ``1..256..x2`` one that doubles, ``50 us..80 us..10 us`` one with units; mixtures such
as ``1,2,4..24..4`` are joined.
"""

import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from nvmesim.errors import InputError
from nvmesim.scenario.load import scenario_from_dict, toml_or_text, with_values
from nvmesim.study.sweep.point import content_of

TRIES: Final = 64
"""Combinations that a value is tried in before it counts as impossible; values of a key tried."""
MOST_POINTS: Final = 1_000_000
MOST_VALUES: Final = 1_000_000
MOST_DIGITS: Final = 18
_NUMBER: Final = re.compile(r"\s*([-+]?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_CLOSING: Final = {"[": "]", "{": "}"}


def parse_values(text: str, message: str = "") -> tuple[Any, ...]:
    """Return the values that *text* means: a list of values and ranges.

    >>> parse_values("raid0, raid5"), parse_values("1,2..4,8..32..x2")
    (('raid0', 'raid5'), (1, 2, 3, 4, 8, 16, 32))
    """
    message = message or repr(text)
    parts = [part.strip() for part in split_commas(text)]
    if not all(parts):
        what = "has no values" if len(parts) == 1 else "a value is empty"
        raise InputError(f"{message}: {what}")
    out: list[Any] = []
    for part in parts:
        found = _range(part, message)
        out += [toml_or_text(part)] if found is None else found
    return _distinct(out, message)


def _listed(values: Any, text: str) -> tuple[Any, ...]:
    """Values of the Python interface: a text as on the command line, or any values."""
    if isinstance(values, str):
        return parse_values(values, text)
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


def _range(text: str, message: str) -> list[Any] | None:
    """Values of ``low..high[..step]``; None if *text* is not a range."""
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
        if not _is_whole(low, high):
            raise InputError(f"{message}: a range of fractions needs its step, as 0..1..0.1")
        return _steps(low, high, Decimal(1), unit, message)
    stated = parts[2].strip()
    is_factor = stated[:1] in ("x", "*", "×")
    found = _NUMBER.fullmatch(stated[1:] if is_factor else parts[2])
    if found is None or found[2] not in same_units or (is_factor and found[2]):
        raise InputError(f"{message}: the step {stated!r} is not a number such as 4 or x2")
    return _steps(low, high, _decimal(found[1], message), unit, message, is_factor=is_factor)


def _steps(
    low: Decimal, high: Decimal, step: Decimal, unit: str, message: str, *, is_factor: bool = False
) -> list[Any]:
    """From *low* to *high*, both included, as a scenario has them: texts if they have a unit."""
    if low > high:
        raise InputError(f"{message}: the range is empty: {low} is above {high}")
    if step <= (1 if is_factor else 0):
        raise InputError(f"{message}: a step is above 0 and a factor above 1")
    if is_factor and low <= 0:
        raise InputError(f"{message}: a range by factors starts above 0")
    is_whole = _is_whole(low, high, step)
    out: list[Any] = []
    number = low
    while number <= high:
        if len(out) >= MOST_VALUES:
            raise InputError(f"{message}: has more than {MOST_VALUES:,} values")
        whole = is_whole and number % 1 == 0
        text = f"{number.normalize():f} {unit}"
        out.append(text if unit else int(number) if whole else float(number))
        number = number * step if is_factor else number + step
    return out


def _is_whole(*written: Decimal) -> bool:
    """True if only whole numbers are meant: none is written with a decimal point."""
    return not any("." in f"{number:f}" for number in written)


def _decimal(text: str, message: str) -> Decimal:
    """The number in *text*; InputError if it is larger or finer than anything that is swept."""
    number = Decimal(text.replace("_", ""))
    if number and not -MOST_DIGITS < number.adjusted() < MOST_DIGITS:
        raise InputError(f"{message}: {text[:30]} is out of any range; stay below 1e18")
    return number


@dataclass(frozen=True)
class SweepPlan:
    """The points of a sweep, in order: every combination of the values of its keys."""

    over: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return math.prod(map(len, self.over.values()))

    @property
    def keys(self) -> tuple[str, ...]:
        """The swept parameters."""
        return tuple(self.over)

    def points(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of the keys, point by point; the last key changes fastest."""
        return itertools.product(*self.over.values())

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield key -> value, point by point."""
        return (dict(zip(self.over, values, strict=True)) for values in self.points())

    def describe(self) -> dict[str, Any]:
        """Return what makes this plan this plan, as plain values."""
        return {key: content_of(values) for key, values in self.over.items()}


def make_plan(over: Mapping[str, Any]) -> SweepPlan:
    """Return the plan for *over* (parameter -> values); InputError if it has no points."""
    if not over:
        raise InputError("there is nothing to sweep over; name a key and its values")
    plan = SweepPlan({key.strip(): _listed(values, key) for key, values in over.items()})
    if "" in plan.over:
        raise InputError("a swept key is empty; name one such as drives.0.count")
    if len(plan) > MOST_POINTS:
        raise InputError(
            f"{len(plan):,} points are too many; {MOST_POINTS:,} at most: make a sweep "
            "of each value of the first key, and read the tables together"
        )
    return plan


def parse_over(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return key -> values of several ``KEY=V1,V2``.

    >>> parse_over(["drives.0.count=4,8"])
    {'drives.0.count': (4, 8)}
    """
    out: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--over {text!r} is not KEY=V1,V2 such as drives.0.count=4,8")
        if key.strip() in out:
            raise InputError(f"--over {key.strip()} is there twice; join its values with commas")
        out[key.strip()] = parse_values(values, f"--over {text!r}")
    return out


def check(tables: Mapping[str, Any], base: str, plan: SweepPlan) -> str:
    """Raise the error of a key that takes none of its values; return a digest of what they mean."""
    digests: list[str] = []
    for key, values in plan.over.items():
        tried = values if len(values) <= TRIES else (values[0], values[-1])
        found = [_meaning(tables, base, plan, {key: value}) for value in tried]
        if all(isinstance(meaning, InputError) for meaning in found):
            raise InputError(f"{key} = {tried[0]!r}: {found[0]}")
        digests += map(str, found)
    return content_of(digests)


def _meaning(
    tables: Mapping[str, Any], base: str, plan: SweepPlan, change: Mapping[str, Any]
) -> str | InputError:
    """The scenario with *change*, alone or in the first of some points that can be."""
    rng = random.Random(0)
    first: InputError | None = None
    for number in range(TRIES):
        others = {key: rng.choice(values) for key, values in plan.over.items()} if number else {}
        try:
            return content_of(scenario_from_dict(with_values(tables, {**others, **change}), base))
        except InputError as error:
            first = first or error
    assert first is not None
    return first
