"""What a fit says of the files it read: each doubt once, with the files it is about."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from nvmesim.trace.capture import Captures

_TAIL: Final = re.compile(r"rest on fewer than \d+ of \d+ samples")
"""The reader's word on every percentile of a file; a fit looks at three, and says so itself."""
LISTED: Final = 4


def named(names: Sequence[str], limit: int = LISTED) -> str:
    """Return *names* once each, the first few of many.

    >>> named(["a", "b", "a", "c"], 2)
    'a, b and 1 more'
    """
    unique = list(dict.fromkeys(names))
    more = len(unique) - limit
    return ", ".join(unique[:limit]) + (f" and {more} more" if more > 0 else "")


def doubts(captures: Captures, used: Collection[str]) -> list[str]:
    """Warnings of the captures named in *used* (file names), each with all its files."""
    said: dict[str, list[str]] = {}
    for capture in captures.files:
        if capture.file.name not in used:
            continue
        texts = [*capture.warnings, *(w for m in capture.measurements for w in m.warnings)]
        for text in dict.fromkeys(texts):
            if not _TAIL.search(text):
                said.setdefault(text, []).append(capture.file.name)
    found = [f"{named(files)}: {text}" for text, files in said.items()]
    if captures.unread:
        names = [reason.split(": ")[0].rpartition("/")[2] for reason in captures.unread]
        found.append(f"no captures, not read: {named(names, 8)}")
    return found
