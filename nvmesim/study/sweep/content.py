"""Addresses by content: equal inputs, code and catalog have equal addresses, others do not."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nvmesim.version import __version__

_IGNORED = ("name", "ignored")
"""Parts of a scenario that no number depends on."""
_NO_MATTER = ("__pycache__", "assets", "cli", "choose", "describe", "fit", "validate")
"""Packages that a point does not pass: how it is asked for, drawn or printed."""


def content_of(value: Any) -> str:
    """Return 32 hexadecimal digits that stand for *value*.

    >>> content_of({"a": 1, "b": 2}) == content_of({"b": 2, "a": 1})
    True
    """
    plain = _Plain().of(value)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def about() -> tuple[str, str]:
    """Return the version of the program and the fingerprint of program and catalog.

    >>> about()[0] == __version__
    True
    """
    return __version__, fingerprint()


@functools.cache
def fingerprint() -> str:
    """Return what stands for this version of the program with its catalog.

    The text of every module that a point passes and of the catalog goes in, so that an edited one
    counts as another version.
    """
    digest = hashlib.sha256(__version__.encode())
    for name, file in sorted(_files(resources.files("nvmesim"), "")):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files(folder: Traversable, path: str) -> list[tuple[str, Traversable]]:
    found = []
    for item in folder.iterdir():
        name = f"{path}/{item.name}"
        if item.is_dir():
            if item.name not in _NO_MATTER:
                found += _files(item, name)
        elif item.name.endswith((".py", ".toml")) and "charts" not in item.name:
            found.append((name, item))
    return found


class _Plain:
    """Turns models, dataclasses and paths into what JSON has; equal parts only once."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, BaseModel):
            key = id(value)
            if key not in self._known:
                self._known[key] = value.model_dump(mode="json")
            return self._known[key]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {
                f.name: self.of(getattr(value, f.name))
                for f in dataclasses.fields(value)
                if f.name not in _IGNORED
            }
        if isinstance(value, Mapping):
            return {str(k): self.of(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(v) for v in value]
        if isinstance(value, Path):
            return _file_digest(value, *_stamp(value))
        return str(value)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=64)
def _file_digest(path: Path, changed_ns: int, size: int) -> str:
    """Digest of a file (or of its name if it is none); read again when it has changed."""
    if not path.is_file():
        return str(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
