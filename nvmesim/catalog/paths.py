"""Files that a file names: a scenario or profile that came by mail may not reach around for others.

A name is followed into the folder of the file that has it, or the folder that the user stands in;
anywhere else only the user may point, with ``--set`` or from Python.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_PROFILES: Final = frozenset({"stack", "cpu", "profile", "engine", "extends", "scenario"})
_FILES: Final = frozenset({"fio", "trace"})
_COMMAND_LINES: Final = ("--", "fio ")


def is_path(reference: str) -> bool:
    """Say whether *reference* names a file and not a catalog entry.

    >>> is_path("my-drive.toml"), is_path("linux-md")
    (True, False)
    """
    return reference.endswith(".toml") or "/" in reference or "\\" in reference


def leads_outside(reference: str, base: Path) -> bool:
    """True if *reference*, relative to *base*, is neither below *base* nor the current folder.

    >>> leads_outside("a/b.toml", Path("/x")), leads_outside("../../etc/b", Path("/x/y"))
    (False, True)
    """
    # Not resolved: a link within the folder is the user's own.
    there = os.path.abspath(base / reference)
    return not any(
        there.startswith(os.path.join(os.path.abspath(folder), "")) for folder in (base, Path())
    )


def outside(tables: Mapping[str, Any], base: Path, trusted: Collection[object] = ()) -> str | None:
    """Return what is wrong with the first file that *tables* names elsewhere; None if none is.

    What is *trusted* was typed by the user and may lead anywhere.

    >>> outside({"drives": [{"profile": "../../../p.toml"}]}, Path("/srv/mail"))[:42]
    "drives.0.profile names '../../../p.toml', "
    """
    for key, reference in _references(tables, ""):
        if reference not in trusted and leads_outside(reference, base):
            return (
                f"{key} names {reference!r}, outside the file's folder and the one you are in; "
                f"run from a folder above both, or type it yourself: --set {key}={reference}"
            )
    return None


def _references(item: object, key: str) -> Iterator[tuple[str, str]]:
    """Yield key and text of everything that names a file."""
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield from _references(value, f"{key}.{name}".lstrip("."))
    elif isinstance(item, list):
        for number, value in enumerate(item):
            yield from _references(value, f"{key}.{number}")
    elif isinstance(item, str):
        name = key.rpartition(".")[2]
        is_file = name in _FILES and not item.startswith(_COMMAND_LINES)
        if is_file or (name in _PROFILES and is_path(item)):
            yield key, item
