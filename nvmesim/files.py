"""Files are written beside their place and then renamed: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Give a file beside *path* to write, renamed to it at the end; none is left on an error.

    A link is followed. What is no regular file (/dev/null, a pipe) is written to, not replaced.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder) / path.name
            yield beside
            path.write_bytes(beside.read_bytes())
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write *text* to *path*, whole or not at all."""
    with written(path) as beside:
        beside.write_text(text, encoding="utf-8")
