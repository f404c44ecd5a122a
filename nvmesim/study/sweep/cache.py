"""Finished points in the user's cache folder, one small JSON file each, found by their content."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any, Final

from nvmesim.code_cache import cache_folder, read_private, write_private
from nvmesim.study.sweep.content import fingerprint

KEPT_VERSIONS: Final = 4
"""Folders of other versions that are kept, newest first."""


class PointCache:
    """Points of this version of program and catalog; what cannot be read is not there.

    None is kept where others could write them (`nvmesim.code_cache`).
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.all = (folder or cache_folder()) / "points"
        self._ready = False

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the point at *key*, None if there is none or it is damaged."""
        try:
            found = json.loads(read_private(self._file(self.all, key)))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and "iops" in found else None

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Keep *row*; a full disk or a folder that cannot be written only costs time later."""
        with contextlib.suppress(OSError):
            write_private(self._file(self.all, key), json.dumps(row).encode())
            self._prune(self.all)

    def _file(self, everything: Path, key: str) -> Path:
        return everything / fingerprint() / key[:2] / f"{key[2:]}.json"

    def _prune(self, everything: Path) -> None:
        """Remove folders of old versions, once a process."""
        if self._ready:
            return
        self._ready = True
        present = everything / fingerprint()
        others = [f for f in everything.iterdir() if f.is_dir() and f != present]
        others.sort(key=lambda f: f.stat().st_mtime, reverse=True)
        for old in others[KEPT_VERSIONS - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
