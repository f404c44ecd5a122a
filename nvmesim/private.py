"""Folders that nobody but this user and root can write, and files in them.

What is executed from disk is only as good as everybody who may put a file there, or rename a
folder on the way. So every folder from the root on is opened without following links, and its
owner and mode are checked on the descriptor, as OpenSSH does with the folders of authorized_keys
(``StrictModes``); files are opened relative to that descriptor, and checked on their own. git
(``safe.directory``) and pip (its cache under sudo) look at the owner alone.

A folder that others may write is allowed on the way if it is sticky, as /tmp is: what belongs to
somebody else cannot be renamed there. Write permission for a group is allowed if this user is its
one member (the private groups of Debian and Red Hat, with umask 002), unless an access list may
say more. Access lists of macOS and NFSv4, which do not show in the mode, are not seen.

Windows has no owners and modes of this kind: there nothing is checked, and callers keep to the
user's own folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final

IS_CHECKED: Final = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
"""False where owners and modes tell nothing (Windows)."""
LARGEST: Final = 64 << 20
"""Bytes of a file that is read at most."""

_ROOT: Final = 0
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ACCESS_LIST: Final = "system.posix_acl_access"


def _flag(*names: str) -> int:
    """Return the flags of `os.open` among *names* that this system has."""
    return sum(getattr(os, name, 0) for name in names)


# O_PATH: a folder on the way may be one that can be passed, but not listed (/home, mode 711)
_FOLDER: Final = _flag("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
# O_NONBLOCK: a pipe of that name would wait for its writer
_READ: Final = os.O_RDONLY | _flag("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flag("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")


def cache_home() -> Path | None:
    """Return the user's folder for caches, None if there is none.

    XDG_CACHE_HOME if that is an absolute path (a relative one is to be ignored: XDG Base Directory
    Specification 0.8), else ``~/.cache``; on Windows %LOCALAPPDATA%.
    """
    stated = os.environ.get("XDG_CACHE_HOME", "")
    if stated and Path(stated).is_absolute():
        return Path(stated)
    if os.name == "nt" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and the user is in no table: a container's
        return None
    return home / ".cache" if home.is_absolute() else None


class PrivateFolder:
    """A folder that nobody but this user and root can write, open; leaving the block closes it.

    Raises
    ------
    OSError
        With the file name: the path is relative, somebody else could write in the folder or
        replace it, or it cannot be opened. PermissionError says what is wrong in words.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not path.is_absolute():
            raise _refused(path, "is not an absolute path")
        self.path = Path(os.path.realpath(path))
        self._descriptor = _descend(self.path, create) if IS_CHECKED else None
        if create and not IS_CHECKED:
            self.path.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self, name: str) -> bytes:
        """Return what is in the file *name*; OSError if others could have written that."""
        with _naming(self.path / name):
            descriptor = os.open(self._of(name), _READ, dir_fd=self._descriptor)
            with open(descriptor, "rb") as file:
                _check_file(os.fstat(descriptor), self.path / name)
                return file.read(LARGEST + 1)

    def write(self, name: str, data: bytes) -> None:
        """Write *data* to the file *name*, whole or not at all."""
        beside = f".{name}.{secrets.token_hex(8)}.part"
        with _naming(self.path / name):
            descriptor = os.open(self._of(beside), _NEW, 0o644, dir_fd=self._descriptor)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                os.replace(
                    self._of(beside), self._of(name),
                    src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor,
                )  # fmt: skip
            except BaseException:
                self._remove(beside)
                raise

    def keep_newest(self, start: str, end: str, count: int) -> None:
        """Remove the files whose names start and end so, but for the *count* newest."""
        names = [n for n in self._names() if n.startswith(start) and n.endswith(end)]
        for name in sorted(names, key=self._written_at)[:-count]:
            self._remove(name)

    def _of(self, name: str) -> str:
        """Return *name* as `os` wants it: relative to the descriptor where there is one."""
        return str(self.path / name) if self._descriptor is None else name

    def _names(self) -> list[str]:
        if self._descriptor is None:
            return os.listdir(self.path)
        listed = os.open(".", os.O_RDONLY | _flag("O_CLOEXEC"), dir_fd=self._descriptor)
        try:
            return os.listdir(listed)
        finally:
            os.close(listed)

    def _written_at(self, name: str) -> float:
        with contextlib.suppress(OSError):
            return os.stat(self._of(name), dir_fd=self._descriptor, follow_symlinks=False).st_mtime
        return 0.0

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._of(name), dir_fd=self._descriptor)


class _naming:  # noqa: N801 - used as a statement
    """OSErrors of the body name the whole path, not the last part of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(self._path), None


def _refused(path: Path, why: str) -> PermissionError:
    return PermissionError(errno.EPERM, why, str(path))


def _descend(path: Path, create: bool) -> int:
    """Return a descriptor of the folder *path*, every folder on the way checked."""
    here = Path(path.anchor)
    with _naming(here):
        descriptor = os.open(here, _FOLDER)
    try:
        _check_folder(os.fstat(descriptor), here, descriptor, is_last=here == path)
        for part in path.parts[1:]:
            here /= part
            with _naming(here):
                inner = _opened(part, descriptor, create)
            os.close(descriptor)
            descriptor = inner
            _check_folder(os.fstat(descriptor), here, descriptor, is_last=here == path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(part: str, outer: int, create: bool) -> int:
    """Return a descriptor of the folder *part* of the folder *outer*, made if it is to be."""
    if create:
        with contextlib.suppress(FileExistsError):
            try:
                os.mkdir(part, 0o700, dir_fd=outer)
            except OSError:
                return os.open(part, _FOLDER, dir_fd=outer)  # read-only, but there
    return os.open(part, _FOLDER, dir_fd=outer)


def _check_folder(found: os.stat_result, path: Path, descriptor: int, *, is_last: bool) -> None:
    """Raise PermissionError if somebody else could replace what is in a folder."""
    _check_owner(found, path)
    if found.st_mode & stat.S_ISVTX and not is_last:
        return
    if _others_write(found, descriptor):
        raise _refused(
            path, f"can be written by others (mode {stat.S_IMODE(found.st_mode):o}; chmod go-w)"
        )


def _check_file(found: os.stat_result, path: Path) -> None:
    """Raise PermissionError unless it is a regular file that only this user or root writes."""
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "is not a regular file")
    if not IS_CHECKED:
        return
    _check_owner(found, path)
    if found.st_mode & _OTHERS:
        raise _refused(path, f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})")
    if found.st_size > LARGEST:
        raise _refused(path, f"is larger than {LARGEST >> 20} MiB")


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in (_ROOT, os.geteuid()):
        raise _refused(path, f"belongs to {_user_name(found.st_uid)}")


def _others_write(found: os.stat_result, descriptor: int) -> bool:
    """Return whether a folder can be written by more than its owner."""
    if not found.st_mode & _OTHERS:
        return False
    is_private = not found.st_mode & stat.S_IWOTH and _is_alone(found.st_gid, found.st_uid)
    return not is_private or _may_have_access_list(descriptor)


def _may_have_access_list(descriptor: int) -> bool:
    """Return whether an access list may say who writes: then the group's bits are but its mask."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(f"/proc/self/fd/{descriptor}", _ACCESS_LIST)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True


@cache
def _is_alone(group: int, user: int) -> bool:
    """Return whether *user* is the one member of *group*, and it bears that user's name."""
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
