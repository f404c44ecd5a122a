"""The load of a DiskSpd line or a fio file, before it meets a server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_WHOLE: Final = re.compile(r"[0-9]{1,18}")


def whole(text: str) -> int | None:
    """Return the whole number that *text* is, None if it is none of at most 18 digits.

    `str.isdigit` takes a superscript two as a digit and `int` refuses thousands of them.

    >>> whole("32"), whole("-1"), whole("²"), whole("9" * 5000)
    (32, None, None, None)
    """
    return int(text) if _WHOLE.fullmatch(text) else None


@dataclass(frozen=True)
class ParsedLoad:
    """One group of threads as another tool's options describe it."""

    name: str
    fields: dict[str, Any]
    """Values of `resolved.WorkloadGroup`, but for name, targets and what the scenario adds."""
    files: tuple[str, ...] = ()
    """Targets as that tool names them; empty: none were named."""
    span_percent: float | None = None
    """Span as a share of each target; instead of ``fields["span"]``."""
    offset_percent: float | None = None
    ignored: tuple[str, ...] = ()
    """Options that do not shape the load, with the reason where it is not plain."""
    direct: bool | None = None
    """True if the file cache is bypassed."""
