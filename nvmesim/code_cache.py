"""Compiled code on disk, so that it is compiled once: never needed, and never trusted blindly.

What is loaded from here is executed. So it stays in folders, and in files, that nobody but this
user and root can write (`nvmesim.private`). The digest in front of each file is against damage (a
full disk, a cut copy); against people it would be no help, as anybody can compute it.

Whatever goes wrong here costs a compilation, and one line in the log (on stderr, if no handler is
configured); nothing is raised.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

from nvmesim.private import IS_CHECKED, PrivateFolder, cache_home

DIGEST: Final = 32
"""Bytes before the code in a file: SHA-256 of the rest."""

_log: Final = logging.getLogger("nvmesim.code_cache")
_said: Final[set[str]] = set()
"""Kinds of trouble that have been logged: each once a process."""


def folders(beside: Path) -> list[Path]:
    """Return where compiled code may be, in the order it is looked for.

    NUMBA_CACHE_DIR alone if it is set; else ``__pycache__`` in *beside*, the folder of the sources
    that it is made of, and ``nvmesim`` in the user's cache folder.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen and IS_CHECKED:
        return [Path(chosen)]
    home = cache_home()
    return [beside / "__pycache__"] * IS_CHECKED + ([home / "nvmesim"] if home else [])


def load(name: str, beside: Path) -> bytes | None:
    """Return the code of the file *name*; None if there is none that can be trusted and is whole.

    >>> from tempfile import mkdtemp
    >>> load("never-kept.o", Path(mkdtemp())) is None
    True
    """
    for path in folders(beside):
        try:
            with PrivateFolder(path) as folder:
                data = folder.read(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            _say("not used", f"compiled code is not used: {_reason(error)}")
            continue
        code = data[DIGEST:]
        if hashlib.sha256(code).digest() == data[:DIGEST]:
            return code
        _say("damaged", f"compiled code is damaged, and is made anew: {str(path / name)!r}")
    return None


def save(name: str, code: bytes, beside: Path, *, keep: int) -> None:
    """Keep *code* as the file *name*, and of the files of its kind the *keep* newest.

    The kind is what stands before the first hyphen and after the last dot.
    """
    start, end = name.split("-")[0] + "-", Path(name).suffix
    reasons = []
    for path in folders(beside):
        try:
            with PrivateFolder(path, create=path.name != "__pycache__") as folder:
                folder.write(name, hashlib.sha256(code).digest() + code)
                folder.keep_newest(start, end, keep)
        except OSError as error:
            reasons.append(_reason(error))
            continue
        return
    if cache_home() is None and not os.environ.get("NUMBA_CACHE_DIR"):
        reasons.append("there is no home folder")
    _say(
        "not kept",
        f"compiled code is not kept, every run compiles: {reasons[-1]}; XDG_CACHE_HOME may name a "
        "folder that only you can write",
    )


def unusable(error: Exception) -> None:
    """Log that code which was whole could not be linked: another version of a library wrote it."""
    _say("unusable", f"compiled code cannot be used, and is made anew: {type(error).__name__}")


def _say(kind: str, text: str) -> None:
    if kind not in _said:
        _said.add(kind)
        _log.warning("nvmesim: %s", text)


def _reason(error: OSError) -> str:
    return f"{error.filename!r} {error.strerror}" if error.filename else str(error)
