"""What a DiskSpd line or a fio file says about the load, before it meets a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
    ignored: tuple[str, ...] = field(default=())
    """Options that do not shape the load, with the reason where it is not plain."""
