"""Content addresses, and finished points in the user's cache folder found by them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import shutil
from collections.abc import Container, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from nvmesim.code_cache import cache_folder, read_private, write_private
from nvmesim.version import __version__

KEPT_VERSIONS: Final = 4
"""Folders of other versions that are kept, newest first."""
_IGNORED: Final = ("name", "ignored", "table")
"""Parts of a scenario that no number depends on."""
_NOT_PASSED: Final = {"__pycache__", "calibrate", "cli", "describe", "show", "study", "ui"}
"""Packages that a point does not pass: how it is asked for, drawn or printed."""
_PASSED: Final = "nvmesim/study/sweep/point.py"
"""The one module of theirs that it does."""


def content_of(value: Any) -> str:
    """Return 32 hexadecimal digits that stand for *value*: models, dataclasses, files, plain parts.

    >>> content_of({"a": 1, "b": 2}) == content_of({"b": 2, "a": 1})
    True
    """
    models: dict[int, Any] = {}  # equal parts are written out once

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, BaseModel):
            if id(value) not in models:
                models[id(value)] = value.model_dump(mode="json")
            return models[id(value)]
        if dataclasses.is_dataclass(value):
            fields = (f.name for f in dataclasses.fields(value) if f.name not in _IGNORED)
            return {name: plain(getattr(value, name)) for name in fields}
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if isinstance(value, Path) and value.is_file():
            found = value.stat()
            return file_digest(value, found.st_mtime_ns, found.st_size)
        return str(value)

    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=64)
def file_digest(path: Path, changed_ns: int, size: int) -> str:
    """Return the digest of a file; it is read again when its time or size has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def about() -> tuple[str, str]:
    """Return the version of the program and the fingerprint of program and catalog."""
    return __version__, fingerprint()


@functools.cache
def fingerprint() -> str:
    """What stands for the text of every module that a point passes, and of the catalog."""
    return digest_of(passed_files())[:16]


def passed_files() -> dict[str, Traversable]:
    """Return the modules and tables that a point depends on, by their path."""
    own = resources.files("nvmesim").joinpath("study/sweep/point.py")
    return {**dict(package_files(_NOT_PASSED)), _PASSED: own}


def package_files(skipped: Container[str]) -> Iterator[tuple[str, Traversable]]:
    """Yield path and file of each module and table of the package but those in *skipped* rooms."""

    def below(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
        for item in folder.iterdir():
            name = f"{path}/{item.name}"
            if item.is_dir() and item.name not in skipped:
                yield from below(item, name)
            elif item.name.endswith((".py", ".toml", ".csv")):
                yield name, item

    yield from below(resources.files("nvmesim"), "nvmesim")


def digest_of(files: Mapping[str, Traversable]) -> str:
    """Return what stands for this version with the content of *files*."""
    digest = hashlib.sha256(__version__.encode())
    for name, file in sorted(files.items()):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


class PointCache:
    """Points of this version of program and catalog; what cannot be read is not there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.all = (folder or cache_folder()) / "points"
        self._is_pruned = False

    def _file(self, key: str) -> Path:
        return self.all / fingerprint() / key[:2] / f"{key[2:]}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the point at *key*, None if there is none or it is damaged."""
        try:
            found = json.loads(read_private(self._file(key)))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and "iops" in found else None

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Keep *row*; a full disk or a folder that cannot be written only costs time later."""
        with contextlib.suppress(OSError):
            write_private(self._file(key), json.dumps(row).encode())
            if self._is_pruned:
                return
            self._is_pruned = True
            others = [f for f in self.all.iterdir() if f.is_dir() and f.name != fingerprint()]
            others.sort(key=lambda f: f.stat().st_mtime, reverse=True)
            for old in others[KEPT_VERSIONS - 1 :]:
                shutil.rmtree(old, ignore_errors=True)
