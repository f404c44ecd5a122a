"""What a fit says of the files it read, and of points that no drive of this model makes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from nvmesim.trace.capture import Captures

_TAIL: Final = re.compile(r"rest on fewer than \d+ of \d+ samples")
"""The reader's word on every percentile of a file; a fit looks at three, and says so itself."""
LISTED: Final = 4
ROUNDS_WITHIN: Final = 0.08


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


def law_of_rounds(depths: Sequence[int], iops: Sequence[float]) -> tuple[float, float] | None:
    """What serves its queue in rounds takes a + b n for n requests: (a, b), s.

    Such a disk (one thread of a hypervisor behind one queue) is slower between the depths than dies
    are, which work while others wait. None if the points are not so within 8 %.

    >>> a, b = law_of_rounds([1, 4, 16], [17.6e3, 43.6e3, 69.4e3])
    >>> round(a * 1e6, 1), round(b * 1e6, 1)
    (45.3, 11.6)
    >>> law_of_rounds([1, 4, 16], [17.6e3, 70e3, 210e3])
    """
    n = np.asarray(depths, float)
    cycle = n / np.asarray(iops, float)
    if len(set(depths)) < 3:
        return None
    terms = np.stack([1 / cycle, n / cycle], axis=1)
    (a, b), *_ = np.linalg.lstsq(terms, np.ones(len(n)), rcond=None)
    off = float(np.abs(terms @ np.array([a, b]) - 1).max())
    if off > ROUNDS_WITHIN or a <= 0 or b <= 0 or b * n.max() < a:
        return None
    return float(a), float(b)
