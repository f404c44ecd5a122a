"""Profiles as text: numbers with their units, and a whole profile as the TOML that loads it."""

from __future__ import annotations

import json
from typing import Any, get_args

from pydantic.fields import FieldInfo

from nvmesim import units
from nvmesim.catalog.quantity import Frozen, Quantity, UnitOf


def show_quantity(profile: Frozen, key: str) -> str:
    """Return the number at dotted *key* of *profile* with its unit.

    >>> from nvmesim.catalog.load import get
    >>> show_quantity(get("drive", "intel-p4610-1.6tb"), "read.die")
    '60 us'
    """
    current: Any = profile
    what = "number"
    for part in key.split("."):
        if isinstance(current, dict):
            current = current[part]
        else:
            what = what_is(type(current).model_fields[part])
            current = getattr(current, part)
    return show_value(current.value, what)


def quantity_table(profile: Frozen, key: str) -> dict[str, str]:
    """The number at dotted *key* of *profile* as a table of texts, which loads as it is.

    >>> from nvmesim.catalog.load import get
    >>> quantity_table(get("drive", "intel-p4610-1.6tb"), "read.die")["value"]
    '60 us'
    """
    current: Any = profile
    what = "number"
    for part in key.split("."):
        what = what_is(type(current).model_fields[part])
        current = getattr(current, part)
    table = {
        name: show_value(number, what)
        for name in ("value", "low", "high")
        if (number := getattr(current, name)) is not None
    }
    table["basis"] = current.basis
    return table | ({"source": current.source} if current.source else {})


def show_value(value: float, what: str) -> str:
    """Return *value* with the unit of what it is, exact to 12 digits.

    >>> show_value(54_000_000, "time"), show_value(640e3, "rate"), show_value(2.08e9, "bandwidth")
    ('54 us', '640k/s', '2.08 GB/s')
    """
    if what == "time":
        return f"{value / units.PS_PER_US:.12g} us"
    if what == "size":
        size = round(value)
        # drives are sold in powers of ten
        is_decimal = size and size % 10**9 == 0 and size % 2**30 != 0
        return f"{size // 10**9} GB" if is_decimal else units.format_size(size)
    if what == "bandwidth":
        return f"{value / 1e9:.12g} GB/s"
    if what == "rate":
        return f"{value / 1e3:.12g}k/s"
    return f"{value:.12g}"


def what_is(field: FieldInfo) -> str:
    """Return what the numbers of *field* are: time, size, bandwidth, rate or number."""
    marks = list(field.metadata)
    for argument in get_args(field.annotation):
        marks += getattr(argument, "__metadata__", ())
    return next((mark.what for mark in marks if isinstance(mark, UnitOf)), "number")


def to_toml(profile: Frozen) -> str:
    """Return the TOML file that loads *profile* again: what was set, texts with units.

    >>> from nvmesim.catalog.load import get
    >>> print(to_toml(get("drive", "hdd-7200")).splitlines()[0])
    kind = "drive"
    """
    head = [f'kind = "{profile.kind}"'] if hasattr(profile, "kind") else []
    return "\n".join(head + _lines(profile, "")) + "\n"


def _lines(model: Frozen, path: str) -> list[str]:
    """Plain keys first, then one table for each part, as TOML needs."""
    plain: list[str] = []
    tables: list[str] = []
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if name not in model.model_fields_set or name == "kind" or value in (None, ()):
            continue
        inner = f"{path}.{name}" if path else name
        if isinstance(value, Quantity):
            plain.append(f"{name} = {_quantity(value, what_is(field))}")
        elif isinstance(value, Frozen):
            tables += ["", f"[{inner}]", *_lines(value, inner)]
        elif isinstance(value, tuple) and value and isinstance(value[0], Frozen):
            tables += _rows(value, inner)
        elif isinstance(value, dict):
            parts = {k: v for k, v in value.items() if isinstance(v, Frozen)}
            parts = {k: v for k, v in parts.items() if not isinstance(v, Quantity)}
            if len(parts) < len(value) or not value:
                tables += ["", f"[{inner}]"]
            plain_keys = {k: v for k, v in value.items() if k not in parts}
            tables += [f"{toml_key(k)} = {toml_value(v)}" for k, v in plain_keys.items()]
            for key, part in parts.items():
                here = f"{inner}.{toml_key(key)}"
                tables += ["", f"[{here}]", *_lines(part, here)]
        else:
            plain.append(f"{name} = {toml_value(value)}")
    return plain + tables


def _rows(rows: tuple[Frozen, ...], path: str) -> list[str]:
    """One table for each of *rows*: ``[[path]]``."""
    return [line for row in rows for line in ("", f"[[{path}]]", *_lines(row, path))]


def _quantity(quantity: Quantity, what: str) -> str:
    """Return an inline table; numbers in base units stay numbers."""
    parts = []
    for key in ("value", "low", "high"):
        number = getattr(quantity, key)
        if number is not None:
            text = show_value(number, what)
            parts.append(f"{key} = {repr(float(number)) if what == 'number' else toml_text(text)}")
    parts.append(f"basis = {toml_text(quantity.basis)}")
    if quantity.source:
        parts.append(f"source = {toml_text(quantity.source)}")
    return "{ " + ", ".join(parts) + " }"


def toml_value(value: Any) -> str:
    """Return *value* as TOML writes it after the ``=``.

    >>> toml_value({"4 KiB": 0.7, "on": True}), toml_value(["a", 1])
    ('{ "4 KiB" = 0.7, on = true }', '["a", 1]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Quantity):
        return _quantity(value, "number")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, str) and "\n" in value:
        return '"""\n' + "\n".join(toml_text(line)[1:-1] for line in value.split("\n")) + '"""'
    return toml_text(value) if isinstance(value, str) else repr(value)


def toml_key(key: str) -> str:
    """Return *key*, in quotes where TOML needs them."""
    return (
        key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else toml_text(key)
    )


def toml_text(text: str) -> str:
    r"""Return *text* as a TOML basic string, on one line: JSON's escapes are TOML's.

    >>> print(toml_text('a "b"'))
    "a \"b\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
