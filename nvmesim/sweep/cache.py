"""Finished points in the user's cache folder, one small JSON file each, found by their content."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from nvmesim.sweep.content import fingerprint

KEPT_VERSIONS: Final = 4
"""Folders of other versions that are kept, newest first."""


def cache_home() -> Path:
    """Return the user's folder for caches: XDG_CACHE_HOME if it is an absolute path."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    if stated and Path(stated).is_absolute():
        return Path(stated)
    if os.name == "nt" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    return Path.home() / ".cache"


class PointCache:
    """Points of this version of program and catalog; what cannot be read is not there."""

    def __init__(self, home: Path | None = None) -> None:
        self.all = (home or cache_home()) / "nvmesim" / "points"
        self.folder = self.all / fingerprint()
        self._ready = False

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the point at *key*, None if there is none or it is damaged."""
        try:
            found = json.loads(self._file(key).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and "iops" in found else None

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Keep *row*; a full disk or a folder that cannot be written only costs time later."""
        file = self._file(key)
        beside = file.with_name(f"{file.name}.{os.getpid()}.part")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._prune()
            beside.write_text(json.dumps(row), encoding="utf-8")
            os.replace(beside, file)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"

    def _prune(self) -> None:
        """Remove folders of old versions, once a process."""
        if self._ready:
            return
        self._ready = True
        others = [f for f in self.all.iterdir() if f.is_dir() and f != self.folder]
        others.sort(key=lambda f: f.stat().st_mtime, reverse=True)
        for old in others[KEPT_VERSIONS - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
