"""The app's temporary folder; what a killed app left is removed by the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO, Any, Final

PREFIX: Final = "nvmesim-ui-"
LOCK: Final = "lock"
"""Held open, and locked, by the app that the folder belongs to."""

try:
    import fcntl
except ImportError:  # Windows: a file that is open cannot be removed
    locks: Any = None
else:
    locks = fcntl


class Scratch:
    """A folder of this app alone."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: IO[bytes] = open(self.path / LOCK, "wb")  # noqa: SIM115 - until `remove`
        _locked(self._lock)

    def remove(self) -> None:
        """Delete the folder."""
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the folders of this user in *place* whose app has ended without doing so."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
            if stat.S_ISDIR(found.st_mode) and own and _is_left(folder / LOCK):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(lock: Path) -> bool:
    """Return whether no app holds *lock*. An app that is just starting has none yet."""
    if locks is None:
        lock.unlink()
        return True
    with lock.open("r+b") as file:
        return _locked(file)


def _locked(file: IO[bytes]) -> bool:
    if locks is None:
        return True
    try:
        locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
    except OSError:
        return False
    return True
