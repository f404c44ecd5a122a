"""Designs named by the values that they differ in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_BY_VALUE: Final = ("raid", "cpu", "profile", "engine", "stack", "layout")
"""Last words of keys whose values say what they are of."""


def design_name(values: Mapping[str, Any]) -> str:
    """Return the values of a design in words.

    >>> design_name({"volume.raid": "raid5", "drives.0.count": 8})
    'raid5, 8 drives'
    >>> design_name({"drives.*.count": 6, "server.interconnect.links": 2})
    '6 drives each, links 2'
    """
    short = short_keys(values)
    return ", ".join(_word(k, s, v) for (k, v), s in zip(values.items(), short, strict=True))


def _word(key: str, short: str, value: Any) -> str:
    parts = key.split(".")
    plain = [p for p in parts if not p.isdigit() and p != "*"]
    if plain == ["drives", "count"] and short == "count":
        return f"{value} drives each" if "*" in parts else f"{value} drives"
    return str(value) if short in _BY_VALUE else f"{short} {value}"


def short_keys(keys: Iterable[str]) -> list[str]:
    """Return the last word of each key, or the whole where two share it."""
    named: Sequence[str] = list(keys)
    last = [k.rpartition(".")[2] for k in named]
    return [
        short if last.count(short) == 1 else key for short, key in zip(last, named, strict=True)
    ]
