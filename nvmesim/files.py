"""Files are written beside their place and then renamed: whole or not at all; values for JSON.

Data files of the package are read on first use.
"""

import contextlib
import functools
import math
import os
import secrets
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any, Final

NAME_KEPT: Final = 40
"""Characters of a file's name that stand in that of the part beside it: 255 bytes are allowed."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


@functools.cache
def package_tables(package: str, *path: str) -> Mapping[str, Any]:
    """Return the tables of a TOML file of *package*; read once, and not when it is imported.

    >>> package_tables("nvmesim.scenario", "loads", "presets.toml")["oltp"]["title"]
    'OLTP, 8 KiB 70/30'
    """
    return tomllib.loads(resources.files(package).joinpath(*path).read_text("utf-8"))


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Give a file beside *path* to write, renamed to it at the end; none is left on an error.

    A link is followed, and a file that was there leaves its mode and, where that is allowed, its
    owner to the new one. Other than regular files (/dev/null, a pipe) are written to, not replaced.
    An OSError of the file beside names *path*.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder) / path.name
            yield beside
            with _naming(path, beside):
                path.write_bytes(beside.read_bytes())
        return
    beside = path.with_name(f".{path.name[:NAME_KEPT]}.{secrets.token_hex(8)}.part")
    try:
        with _naming(path, beside):
            _create(beside, path)
            yield beside
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write *text* to *path*, whole or not at all."""
    with written(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _create(beside: Path, path: Path) -> None:
    """Create *beside*, which nobody can have put there, with mode and owner of *path*."""
    descriptor = os.open(beside, _NEW, 0o666)
    try:
        with contextlib.suppress(FileNotFoundError):
            before = path.stat()
            if hasattr(os, "fchown"):
                with contextlib.suppress(OSError):  # only root gives files away
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
    finally:
        os.close(descriptor)


def locked(file: IO[bytes]) -> bool | None:
    """Lock *file* until it is closed; False if another process has, None where none can."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, or a file system without locks
        return None
    return True


@contextmanager
def _naming(path: Path, beside: Path) -> Iterator[None]:
    """OSErrors that name no file, or the one beside, name *path*."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename) == str(beside):
            error.filename, error.filename2 = str(path), None
        raise


def plain_json(value: Any) -> Any:
    """Return *value* in dicts, lists, text and numbers; NaN and infinity become None.

    A dataclass is its fields, unless it says itself what its JSON is (``to_json``).

    >>> plain_json({1: (float("nan"), 2.0), "x": float("inf")})
    {'1': [None, 2.0], 'x': None}
    """
    if hasattr(value, "to_json"):
        return plain_json(value.to_json())
    if isinstance(value, Mapping):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(v) for v in value]
    if isinstance(value, str | bool | int) or value is None:
        return value
    if hasattr(value, "item"):  # a NumPy scalar
        return plain_json(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return plain_json(vars(value)) if is_dataclass(value) else str(value)
