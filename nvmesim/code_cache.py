"""The user's cache folder: what is compiled, and points of sweeps. Never needed, never trusted.

Code that is loaded from here is executed, so the folder (made with mode 0700) and each file are
used only if they belong to this user or root and nobody else can write them; Windows has no modes
of this kind, nothing is checked. The digest in front of each file is against damage (a full disk, a
cut copy). Whatever goes wrong with code costs a compilation, and one line in the log (on stderr, if
no handler is configured); nothing is raised.
"""

import contextlib
import errno
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import platformdirs

IS_CHECKED: Final = hasattr(os, "geteuid")  # False where owners and modes tell nothing (Windows)
DIGEST: Final = 32  # bytes before the content of a file: SHA-256 of the rest

_log: Final = logging.getLogger("nvmesim.code_cache")
_said: Final[set[str]] = set()  # kinds of trouble that have been logged: each once a process


def cache_folder() -> Path:
    """Return the folder that the platform has for this user's caches of nvmesim."""
    try:
        return platformdirs.user_cache_path("nvmesim", appauthor=False)
    except RuntimeError:  # no HOME, and the user is in no table: a container's
        return Path("~", ".cache")  # is not absolute, and so not used


def code_folder() -> Path:
    """Return the folder of compiled code: NUMBA_CACHE_DIR if that is set, else `cache_folder`."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else cache_folder()


def read_private(file: Path) -> bytes:
    """Return what *file* holds; OSError if others could have written it, or if it is damaged."""
    _check(file.parent, stat.S_ISDIR, "folder")
    _check(file, stat.S_ISREG, "regular file")
    data = file.read_bytes()
    if hashlib.sha256(data[DIGEST:]).digest() != data[:DIGEST]:
        raise OSError(errno.EIO, "is damaged", str(file))
    return data[DIGEST:]


def write_private(file: Path, data: bytes) -> None:
    """Write *data* to *file*, whole or not at all; OSError if others could write it, too."""
    if file.is_absolute():  # else it is refused
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check(file.parent, stat.S_ISDIR, "folder")
    descriptor, beside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "wb") as opened:
            opened.write(hashlib.sha256(data).digest() + data)
        os.replace(beside, file)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(file), None
        raise


def _check(path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    """Raise PermissionError unless *path* is of that *kind*, this user's or root's, and closed."""
    if not path.is_absolute():
        raise PermissionError(errno.EPERM, "is not an absolute path", str(path))
    found = path.stat() if kind == "folder" else path.lstat()
    mode, why = stat.S_IMODE(found.st_mode), ""
    if not is_kind(found.st_mode):
        why = f"is not a {kind}"
    elif IS_CHECKED and found.st_uid not in (0, os.geteuid()):
        why = f"belongs to user {found.st_uid}"
    elif IS_CHECKED and mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"can be written by others (mode {mode:o}; chmod go-w)"
    if why:
        raise PermissionError(errno.EPERM, why, str(path))


# Compiled code ------------------------------------------------------------------------------------


def load(name: str) -> bytes | None:
    """Return the code of the file *name*; None if there is none that can be trusted and is whole.

    >>> load("never-kept.o") is None
    True
    """
    try:
        return read_private(code_folder() / name)
    except FileNotFoundError:
        pass
    except OSError as error:
        _say("not used", f"compiled code is not used: {_reason(error)}")
    return None


def save(name: str, code: bytes, *, keep: int) -> None:
    """Keep *code* as the file *name*, and of the files of its kind the *keep* newest.

    The kind is what stands before the first hyphen and after the last dot.
    """
    folder = code_folder()
    try:
        write_private(folder / name, code)
        kind = folder.glob(f"{name.split('-')[0]}-*{Path(name).suffix}")
        for old in sorted(kind, key=_written_at)[:-keep]:
            old.unlink(missing_ok=True)
    except OSError as error:
        _say(
            "not kept",
            f"compiled code is not kept, every run compiles: {_reason(error)}; XDG_CACHE_HOME may "
            "name a folder that only you can write",
        )


def _written_at(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except OSError:
        return 0.0


def _say(kind: str, text: str) -> None:
    if kind not in _said:
        _said.add(kind)
        _log.warning("nvmesim: %s", text)


def _reason(error: OSError) -> str:
    return f"{error.filename!r} {error.strerror}" if error.filename else str(error)
