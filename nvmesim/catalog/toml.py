"""TOML files: read with care, and profiles written as the TOML that loads them.

A scenario or profile that came by mail may not reach around for other files: a name is followed
into the folder of the file that has it, or the folder that the user stands in; anywhere else only
the user may point, with ``--set`` or from Python.
"""

import codecs
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from nvmesim import units
from nvmesim.catalog.quantity import Frozen, Quantity, UnitOf
from nvmesim.limits import MOST_KEY_PARTS

MAX_TOML_BYTES: Final = 1 << 24
"""Sixteen times the whole catalog; a larger file is neither a scenario nor a profile."""
_PROFILES: Final = frozenset({"stack", "cpu", "profile", "engine", "extends", "scenario"})
DIGITS: Final = 6
"""Significant digits of a fitted number: a thousandth of a per mille, far below its interval."""
_LONG_NUMBER: Final = re.compile(r"^\d+\.\d+")
_LONG_KEY: Final = re.compile(
    r"""(?:\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+)"""
    f"{{{MOST_KEY_PARTS}}}"
)


def read_toml(path: Path, error: type[Exception]) -> dict[str, Any]:
    """Return the tables of *path*; *error* in one line if there is no such file or it is broken."""
    try:
        # UTF-8, or the UTF-16 that PowerShell writes with ">".
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError("it is a device or a pipe; write a file")
        with path.open("rb") as file:
            data = file.read(MAX_TOML_BYTES + 1)
        if len(data) > MAX_TOML_BYTES:
            raise ValueError(f"it is larger than {MAX_TOML_BYTES >> 20} MiB")
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return tomllib.loads(checked_toml(data.decode("utf-16" if is_wide else "utf-8-sig")))
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except IsADirectoryError:
        raise error(f"{path}: is a folder, not a TOML file") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read: {reason.strerror}") from None
    except RecursionError:
        raise error(f"{path}: is nested too deeply; write it as plain tables") from None
    except UnicodeDecodeError:
        raise error(f"{path}: not TOML: it is no text; name a TOML file") from None
    except ValueError as reason:  # no TOML, or a number of thousands of digits
        raise error(f"{path}: not TOML: {' '.join(str(reason).split())}") from None


def checked_toml(text: str) -> str:
    """Return *text*, ValueError if a dotted key in it is too long to be read in reasonable time.

    >>> checked_toml("a.b = 1")
    'a.b = 1'
    """
    found = _LONG_KEY.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line} has a key of more than {MOST_KEY_PARTS} parts")
    return text


def is_path(reference: str) -> bool:
    """Say whether *reference* names a file and not a catalog entry.

    >>> is_path("my-drive.toml"), is_path("linux-md")
    (True, False)
    """
    return reference.endswith(".toml") or "/" in reference or "\\" in reference


def outside(tables: Mapping[str, Any], base: Path, trusted: Collection[object] = ()) -> str | None:
    """Return what is wrong with the first file that *tables* names elsewhere; None if none is.

    Elsewhere is neither below *base* nor below the current folder. What is *trusted* was typed by
    the user and may lead anywhere, as may the files in a goal's list of candidates.

    >>> outside({"drives": [{"profile": "../../../p.toml"}]}, Path("/srv/mail"))[:42]
    "drives.0.profile names '../../../p.toml', "
    """
    inside = tuple(os.path.join(os.path.abspath(folder), "") for folder in (base, Path()))
    for key, reference in references(tables):
        # Not resolved: a link within the folder is the user's own.
        there = os.path.abspath(base / reference)
        is_file = not reference.startswith(("--", "fio "))  # a command line
        listed = key.rpartition(".")[2].isdecimal()
        if is_file and not listed and reference not in trusted and not there.startswith(inside):
            return (
                f"{key} names {reference!r}, outside the file's folder and the one you are in; "
                f"run from a folder above both, or type it yourself: --set {key}={reference}"
            )
    return None


def references(item: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield key and text of everything in tables that names a file, or is a fio command line.

    >>> list(references({"candidates": {"drives.0.profile": ["sata-ssd", "mine.toml"]}}))
    [('candidates.drives.0.profile.1', 'mine.toml')]
    """
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield from references(value, f"{key}.{name}".lstrip("."))
    elif isinstance(item, list | tuple):
        for number, value in enumerate(item):
            yield from references(value, f"{key}.{number}")
    elif isinstance(item, str):
        name = next((part for part in reversed(key.split(".")) if not part.isdecimal()), "")
        if name in ("fio", "trace") or (name in _PROFILES and is_path(item)):
            yield key, item


def show_quantity(profile: Frozen, key: str) -> str:
    """Return the number at dotted *key* of *profile* with its unit.

    >>> from nvmesim.catalog.load import get
    >>> show_quantity(get("drive", "intel-p4610-1.6tb"), "read.die")
    '60 us'
    """
    quantity, what = quantity_at(profile, key)
    return show_value(quantity.value, what)


def quantity_table(profile: Frozen, key: str) -> dict[str, Any]:
    """The number at dotted *key* of *profile* as a table, which loads as it is.

    >>> from nvmesim.catalog.load import get
    >>> quantity_table(get("drive", "intel-p4610-1.6tb"), "read.die")["value"]
    '60 us'
    """
    table: dict[str, Any] = _plain(*quantity_at(profile, key))
    return table


def quantity_at(profile: Frozen, key: str) -> tuple[Quantity, str]:
    """The number at dotted *key*, and what it is: a time, a size, a number.

    >>> from nvmesim.catalog.load import get
    >>> quantity_at(get("drive", "intel-p4610-1.6tb"), "read.die")[1]
    'time'
    """
    current: Any = profile
    what = "number"
    for part in key.split("."):
        if isinstance(current, dict):
            current = current[part]
        else:
            what = what_is(type(current).model_fields[part])
            current = getattr(current, part)
    return current, what


def show_value(value: float, what: str) -> str:
    """Return *value* with the unit of what it is, exact to 12 digits.

    >>> show_value(54_000_000, "time"), show_value(640e3, "rate"), show_value(2.08e9, "bandwidth")
    ('54 us', '640k/s', '2.08 GB/s')
    """
    if what == "size":
        size = round(value)
        # drives are sold in powers of ten
        is_decimal = size and size % 10**9 == 0 and size % 2**30 != 0
        return f"{size // 10**9} GB" if is_decimal else units.format_size(size)
    scale, unit = {
        "time": (units.PS_PER_US, " us"), "bandwidth": (1e9, " GB/s"), "rate": (1e3, "k/s"),
    }.get(what, (1, ""))  # fmt: skip
    return f"{value / scale:.12g}{unit}"


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
    return to_text(_tables(profile))


def fitted_toml(profile: Frozen) -> str:
    """Return `to_toml` of a fitted *profile*, its numbers with as many digits as a fit may tell.

    >>> from nvmesim.catalog.load import get
    >>> '"527.507 us"' in fitted_toml(get("drive", "intel-d7-p5600-6.4tb"))
    True
    """
    tables: dict[str, Any] = _short(_tables(profile))
    return to_text(tables)


def _tables(profile: Frozen) -> dict[str, Any]:
    kind = {"kind": profile.kind} if hasattr(profile, "kind") else {}
    tables: dict[str, Any] = _plain(profile)
    return kind | tables


def _short(value: Any, key: str = "") -> Any:
    """Tables whose numbers have `DIGITS` digits: those that are whole keep theirs."""
    if isinstance(value, Mapping):
        return {name: _short(inner, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    if key not in ("value", "low", "high"):
        return value
    if isinstance(value, float):
        return value if value.is_integer() else float(f"{value:.{DIGITS}g}")
    return _LONG_NUMBER.sub(lambda found: f"{float(f'{float(found[0]):.{DIGITS}g}'):.12g}", value)


def _plain(value: Any, what: str = "number") -> Any:
    """What was set of a profile as tables and texts; *what* is a quantity's kind of number."""
    if isinstance(value, Quantity):
        numbers = {name: getattr(value, name) for name in ("value", "low", "high")}
        table: dict[str, Any] = {
            name: float(n) if what == "number" else show_value(n, what)
            for name, n in numbers.items() if n is not None
        }  # fmt: skip
        return table | {"basis": value.basis} | ({"source": value.source} if value.source else {})
    if isinstance(value, Frozen):
        stated = ((name, f, getattr(value, name)) for name, f in type(value).model_fields.items())
        return {
            name: _plain(inner, what_is(field)) for name, field, inner in stated
            if name in value.model_fields_set and inner not in (None, ())
        }  # fmt: skip
    if isinstance(value, dict):
        return {key: _plain(inner, what) for key, inner in value.items()}
    return [_plain(inner, what) for inner in value] if isinstance(value, tuple) else value


def toml_value(value: Any) -> str:
    """Return *value* as TOML writes it after the ``=``.

    >>> toml_value({"4 KiB": 0.7, "on": True}), toml_value(["a", 1])
    ('{ "4 KiB" = 0.7, on = true }', '["a", 1]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, str) and "\n" in value:
        return '"""\n' + "\n".join(toml_text(line)[1:-1] for line in value.split("\n")) + '"""'
    return toml_text(value) if isinstance(value, str) else repr(value)


def toml_key(key: str) -> str:
    """Return *key*, in quotes where TOML needs them."""
    is_bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if is_bare else toml_text(key)


def toml_text(text: str) -> str:
    r"""Return *text* as a TOML basic string, on one line: JSON's escapes are TOML's.

    >>> print(toml_text('a "b"'))
    "a \"b\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


COLUMN: Final = 40  # comments stand from here on


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
        if _is_section(value):
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
            if listed or comment or not all(map(_is_section, part.values())):
                yield ""
                yield f"{head:<{COLUMN - 1}} # {comment}" if comment else head
            yield from _table(part, here, text)


def _is_section(value: Any) -> bool:
    """True if *value* is a section: sizes with fractions, or a number, fit in a line."""
    if not isinstance(value, Mapping):
        is_list = isinstance(value, list | tuple) and bool(value)
        return is_list and all(isinstance(inner, Mapping) for inner in value)
    if not value or "value" in value:
        return False
    plain = all(isinstance(v, int | float) for v in value.values())
    return not plain or any(toml_key(k) == k for k in value)
