"""Values of a swept parameter: lists and ranges as people write them.

``4,8,16`` is a list, ``4..24`` a range, ``4..24..4`` one with a step, ``1..256..x2`` one that
doubles, ``50 us..80 us..10 us`` one with units; mixtures such as ``1,2,4..24..4`` are joined.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from nvmesim.catalog.load import checked_toml
from nvmesim.errors import InputError

MOST_VALUES: Final = 1_000_000
MOST_DIGITS: Final = 18
_NUMBER: Final = re.compile(r"\s*([-+]?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_OPEN: Final = {"[": "]", "{": "}"}


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
        if self.low > self.high:
            raise InputError(f"{text}: the range is empty: {self.low} is above {self.high}")
        step = self.step
        if step is None and self.factor is None:
            if not self.is_whole:
                raise InputError(f"{text}: a range of fractions needs its step, as 0..1..0.1")
            step = Decimal(1)
        if (step is not None and step <= 0) or (self.factor is not None and self.factor <= 1):
            raise InputError(f"{text}: a step is above 0 and a factor above 1")
        if self.factor is not None and self.low <= 0:
            raise InputError(f"{text}: a range by factors starts above 0")
        return [self.shown(n) for n in self._numbers(step, text)]

    def _numbers(self, step: Decimal | None, text: str) -> list[Decimal]:
        out: list[Decimal] = []
        n = self.low
        while n <= self.high:
            if len(out) >= MOST_VALUES:
                raise InputError(f"{text}: has more than {MOST_VALUES:,} values")
            out.append(n)
            n = n + step if step is not None else n * (self.factor or 2)
        return out

    def between(self, share: float) -> Any:
        """Return the value at *share* (0 to 1) of the way; whole where only whole ones are meant.

        >>> SweptRange(Decimal(4), Decimal(24), step=Decimal(4)).between(0.99)
        24
        """
        if self.step is not None or self.factor is not None:
            grid = self.values("a range")
            return grid[min(len(grid) - 1, int(share * len(grid)))]
        if self.is_whole:
            count = int(self.high - self.low) + 1
            return self.shown(self.low + min(count - 1, int(share * count)))
        n = float(self.low) + share * float(self.high - self.low)
        return self.shown(Decimal(f"{n:.6g}"))

    def shown(self, number: Decimal) -> Any:
        """Return *number* as a scenario file has it: a text if it has a unit."""
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
    if any(not part for part in parts):
        raise InputError(
            f"{message}: has no values" if len(parts) == 1 else f"{message}: a value is empty"
        )
    spans = [_span(part, message) for part in parts]
    if len(parts) == 1 and spans[0] is not None:
        return spans[0]
    out: list[Any] = []
    for part, span in zip(parts, spans, strict=True):
        out += span.values(message) if span is not None else [_value(part)]
    return distinct(out, message)


def as_choice(values: Any, text: str) -> Choice:
    """Return *values* of the Python interface: a text as on the command line, or any values."""
    if isinstance(values, str):
        return parse_values(values, text)
    if isinstance(values, SweptRange):
        return values
    if isinstance(values, dict) or not isinstance(values, Iterable):
        raise InputError(f"{text}: {values!r} is not a list of values; write [{values!r}]")
    return distinct([_plain(v) for v in values], text)


def distinct(values: Sequence[Any], message: str) -> tuple[Any, ...]:
    """Return *values* as a tuple; InputError if there is none, or one twice."""
    if not values:
        raise InputError(f"{message}: has no values")
    seen: set[str] = set()
    for value in values:
        text = repr(value)
        if text in seen:
            raise InputError(f"{message}: {value!r} is there twice")
        seen.add(text)
    return tuple(values)


def split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and quotes.

    >>> split_commas('a,[1, 2],"b,c"')
    ['a', '[1, 2]', '"b,c"']
    """
    parts, start, closing, quote = [], 0, [""], ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _OPEN:
            closing.append(_OPEN[letter])
        elif letter == closing[-1]:
            closing.pop()
        elif letter == "," and len(closing) == 1:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _value(text: str) -> Any:
    """A TOML value, or the text itself when it is none (as ``--set`` reads it)."""
    try:
        return tomllib.loads(checked_toml(f"value = {text}"))["value"]
    except (ValueError, RecursionError):  # no TOML, of too many digits, nested too deeply
        return text


def _plain(value: Any) -> Any:
    """A NumPy or Polars scalar as Python's own."""
    return value.item() if hasattr(value, "item") else value


def _span(text: str, message: str) -> SweptRange | None:
    """``lo..hi[..step]``; None if *text* is not a range."""
    parts = text.split("..")
    if len(parts) not in (2, 3) or text[:1] in "\"'[{":
        return None
    ends = [_NUMBER.fullmatch(part) for part in parts[:2]]
    if ends[0] is None or ends[1] is None:
        if any(ends):
            raise InputError(f"{message}: {text!r} is not a range; write for example 4..24..4")
        return None
    low, high = (_decimal(end[1], message) for end in ends if end)
    unit = ends[1][2]
    if ends[0][2] not in _alike(unit):
        raise InputError(f"{message}: {text!r} has two units, {ends[0][2]!r} and {unit!r}")
    step, factor = _step(parts[2], unit, message) if len(parts) == 3 else (None, None)
    return SweptRange(low, high, unit, step, factor)


def _decimal(text: str, message: str) -> Decimal:
    """The number in *text*; InputError if it is larger or finer than anything that is swept."""
    number = Decimal(text.replace("_", ""))
    if number and not -MOST_DIGITS < number.adjusted() < MOST_DIGITS:
        raise InputError(f"{message}: {text[:30]} is out of any range; stay below 1e18")
    return number


def _alike(unit: str) -> tuple[str, ...]:
    """Return the ways of writing *unit* that mean the same: "200k" beside "k/s"."""
    return ("", unit, unit.removesuffix("/s"))


def _step(text: str, unit: str, message: str) -> tuple[Decimal | None, Decimal | None]:
    is_factor = text.strip()[:1] in ("x", "*", "×")
    found = _NUMBER.fullmatch(text.strip()[1:] if is_factor else text)
    if found is None or (found[2] not in _alike(unit)) or (is_factor and found[2]):
        raise InputError(f"{message}: the step {text.strip()!r} is not a number such as 4 or x2")
    number = _decimal(found[1], message)
    return (None, number) if is_factor else (number, None)
