"""What files and names say of a server beside what was measured: reasons for and against a cause.

Which words tell what is data: ``facts`` of each mistake in ``mistakes.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import PathText, read_captures
from nvmesim.capture.text import shown
from nvmesim.errors import CaptureError

MOST: Final = 1 << 20
"""Bytes of a file that are looked at."""
QUOTED: Final = 70
Patterns = Mapping[str, Sequence[tuple[str, float]]]
"""Code of a mistake -> patterns, each with how many times as common it is where one is found."""


def read_files(paths: PathText | Iterable[PathText]) -> tuple[Captures, dict[str, str], list[str]]:
    """Return captures of *paths*, name -> text of all that are files, and why others tell nothing.

    A named file that is no capture may say something of the server. CaptureError if none is one.
    """
    named = [paths] if isinstance(paths, str | PathLike) else list(paths)
    refused: list[str] = []
    found = read_captures(named, refused=refused)
    if not found.files:
        raise CaptureError(refused[0])
    files = [path for path in map(Path, named) if path.is_file()]
    files += [c.file for c in found.files if c.file is not None and c.file not in files]
    texts = {str(path): _text(path) for path in files}
    return found, texts, refused


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST).decode("utf-8", "replace")


def told_by(texts: Mapping[str, str], patterns: Patterns) -> tuple[dict[str, float], list[str]]:
    """Return code -> how many times as common it is by *texts*, and quotes of what tells for one.

    Of several reasons for a cause the best counts, and of several against it.

    >>> told_by({"a.txt": "zd0: ios=12"}, {"zfs": [[r"zd[0-9]", 30.0], ["mdadm", 0.1]]})
    ({'zfs': 30.0}, ['a.txt: zd0 (zfs)'])
    """
    told: dict[str, float] = {}
    quotes: list[str] = []
    for code, listed in patterns.items():
        found = [(times, name, match) for pattern, times in listed for name, text in texts.items()
                 if (match := re.search(pattern, text, re.IGNORECASE | re.MULTILINE))]  # fmt: skip
        if not found:
            continue
        most = max(found, key=lambda one: one[0])
        told[code] = max(most[0], 1.0) * min(1.0, *(times for times, *_ in found))
        if most[0] > 1:
            said = shown(most[2][0].strip().splitlines()[-1], QUOTED)
            quotes.append(f"{most[1]}: {said} ({code})")
    return told, quotes
