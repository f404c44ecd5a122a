"""Finished points in the user's cache folder, one small JSON file each, found by their content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Final

from nvmesim.private import PrivateFolder, cache_home
from nvmesim.study.sweep.content import fingerprint

KEPT_VERSIONS: Final = 4
"""Folders of other versions that are kept, newest first."""


DIGEST: Final = 32
"""Bytes before the JSON in a file: against damage, a digit that flipped is JSON, too."""


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


class PointCache:
    """Points of this version of program and catalog; what cannot be read is not there.

    None is kept without a home folder, or where others could write them (`nvmesim.private`).
    """

    def __init__(self, home: Path | None = None) -> None:
        home = home or cache_home()
        self.all = None if home is None else home / "nvmesim" / "points"
        self._ready = False

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the point at *key*, None if there is none or it is damaged."""
        if self.all is None:
            return None
        file = self._file(self.all, key)
        try:
            with PrivateFolder(file.parent) as folder:
                data = folder.read(file.name)
            text = data[DIGEST:]
            found = json.loads(text) if _digest(text) == data[:DIGEST] else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and "iops" in found else None

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Keep *row*; a full disk or a folder that cannot be written only costs time later."""
        if self.all is None:
            return
        file = self._file(self.all, key)
        with contextlib.suppress(OSError), PrivateFolder(file.parent, create=True) as folder:
            text = json.dumps(row).encode()
            folder.write(file.name, _digest(text) + text)
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
