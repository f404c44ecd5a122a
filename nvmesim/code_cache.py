"""The user's cache folder: what is compiled, and points of sweeps. Never needed, never trusted.

Code that is loaded from here is executed, so the folder and its files are used only if nobody but
this user and root can write them. Every folder from the root on is checked, in that order: where
others cannot write, they cannot replace what is checked next (OpenSSH does the same with the
folders of authorized_keys). A folder that others may write is allowed on the way if it is sticky,
as /tmp is; so is one of a group whose one member is this user. Access lists of macOS and NFSv4,
which do not show in the mode, are not seen; Windows has no modes of this kind, nothing is checked.

The digest in front of each file is against damage (a full disk, a cut copy); against people it
would be no help, as anybody can compute it. Whatever goes wrong with code costs a compilation, and
one line in the log (on stderr, if no handler is configured); nothing is raised.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import platformdirs

IS_CHECKED: Final = hasattr(os, "geteuid")
"""False where owners and modes tell nothing (Windows)."""
LARGEST: Final = 64 << 20
"""Bytes of a file that is read at most."""
DIGEST: Final = 32
"""Bytes before the content of a file: SHA-256 of the rest."""
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
# O_NONBLOCK: a pipe of that name would wait for its writer
_READ: Final = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)

_log: Final = logging.getLogger("nvmesim.code_cache")
_said: Final[set[str]] = set()
"""Kinds of trouble that have been logged: each once a process."""


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


# Files that only this user and root can write -----------------------------------------------------


def read_private(file: Path) -> bytes:
    """Return what *file* holds; OSError if others could have written it, or if it is damaged."""
    folder = _checked(file.parent)
    descriptor = os.open(folder / file.name, _READ)
    with open(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(file, "is not a regular file")
        if found.st_size > LARGEST:
            raise _refused(file, f"is larger than {LARGEST >> 20} MiB")
        if IS_CHECKED:
            _check_owner(found, file)
            if found.st_mode & _OTHERS:
                raise _open_to_others(found, file)
        data = opened.read()
    if hashlib.sha256(data[DIGEST:]).digest() != data[:DIGEST]:
        raise OSError(errno.EIO, "is damaged", str(file))
    return data[DIGEST:]


def write_private(file: Path, data: bytes) -> None:
    """Write *data* to *file*, whole or not at all; OSError if others could write it, too."""
    for place in reversed((file.parent, *file.parent.parents)) if file.is_absolute() else ():
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)
    folder = _checked(file.parent)
    descriptor, beside = tempfile.mkstemp(dir=folder, prefix=f".{file.name}.")
    try:
        with open(descriptor, "wb") as opened:
            opened.write(hashlib.sha256(data).digest() + data)
        os.replace(beside, folder / file.name)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(file), None
        raise


def _checked(path: Path) -> Path:
    """Return *path* without links; PermissionError if others could replace what is in it."""
    if not path.is_absolute():
        raise _refused(path, "is not an absolute path")
    path = Path(os.path.realpath(path))
    for place in reversed((path, *path.parents)) if IS_CHECKED else ():
        found = place.stat()
        _check_owner(found, place)
        is_sticky = found.st_mode & stat.S_ISVTX and place != path
        if found.st_mode & _OTHERS and not is_sticky and not _is_own_group(found, place):
            raise _open_to_others(found, place)
    return path


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise _refused(path, f"belongs to {_user_name(found.st_uid)}")


def _is_own_group(found: os.stat_result, path: Path) -> bool:
    """True if the group's bits let in nobody but the owner: no access list, no other member."""
    if found.st_mode & stat.S_IWOTH or not _is_alone(found.st_gid, found.st_uid):
        return False
    try:
        os.getxattr(path, "system.posix_acl_access")
    except OSError as error:
        return error.errno in (errno.ENODATA, errno.ENOTSUP)
    except AttributeError:  # not Linux
        return True
    return False


@cache
def _is_alone(group: int, user: int) -> bool:
    """True if *user* is the one member of *group*, and it bears that user's name."""
    import grp
    import pwd

    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    first = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group}
    return found.gr_name == name and set(found.gr_mem) <= {name} and first <= {user}


def _user_name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _refused(path: Path, why: str) -> PermissionError:
    return PermissionError(errno.EPERM, why, str(path))


def _open_to_others(found: os.stat_result, path: Path) -> PermissionError:
    mode = stat.S_IMODE(found.st_mode)
    return _refused(path, f"can be written by others (mode {mode:o}; chmod go-w)")


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


def unusable(error: Exception) -> None:
    """Log that code which was whole could not be linked: another version of a library wrote it."""
    _say("unusable", f"compiled code cannot be used, and is made anew: {type(error).__name__}")


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
