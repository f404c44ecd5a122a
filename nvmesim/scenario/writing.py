"""A scenario's tables as the TOML file that a person reads and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from nvmesim.catalog.toml import toml_key, toml_value

COLUMN: Final = 40
"""Comments stand from here on."""


def to_text(tables: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return *tables* as TOML; *comments* stand behind the keys that they are of.

    >>> print(to_text({"name": "one", "drives": [{"profile": "hdd-7200"}]}), end="")
    name = "one"
    <BLANKLINE>
    [[drives]]
    profile = "hdd-7200"
    """
    lines = list(_table(tables, "", comments or {}))
    while lines and not lines[0]:
        del lines[0]
    return "\n".join(lines) + "\n"


def _table(table: Mapping[str, Any], path: str, text: Mapping[str, str]) -> Iterator[str]:
    """Plain keys first, then the tables inside, as TOML needs."""
    inner: list[tuple[str, Any]] = []
    for key, value in table.items():
        here = f"{path}.{toml_key(key)}".lstrip(".")
        if (isinstance(value, Mapping) and _is_large(value)) or _is_listed(value):
            inner.append((here, value))
            continue
        line = f"{toml_key(key)} = {toml_value(value)}"
        comment = text.get(here, "")
        yield f"{line:<{COLUMN - 1}} # {comment}" if comment else line
    for here, value in inner:
        listed = isinstance(value, list | tuple)
        for part in value if listed else [value]:
            comment = text.get(here, "")
            head = f"[[{here}]]" if listed else f"[{here}]"
            yield ""
            yield f"{head:<{COLUMN - 1}} # {comment}" if comment else head
            yield from _table(part, here, text)


def _is_listed(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_table, value))


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_large(table: Mapping[str, Any]) -> bool:
    """True if a table is a section of its own: sizes with fractions, or a number, fit in a line."""
    if not table or "value" in table:
        return False
    plain = all(isinstance(v, int | float | str) for v in table.values())
    return not plain or any(toml_key(k) == k for k in table)
