"""Loads that people ask about, as the keys of a ``[[workload]]``: a place to start from.

The shapes are what the names commonly mean, not measurements of anybody's servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.errors import InputError, nearest

DRIVE: Final = "kioxia-cd6-r-15.36tb"
"""The drive to start from: of the data-centre drives the one with the fewest assumed numbers."""


@dataclass(frozen=True)
class Preset:
    """A named load."""

    title: str
    says: str
    keys: Mapping[str, Any]


PRESETS: Final[Mapping[str, Preset]] = {
    "oltp": Preset(
        "OLTP, 8 KiB 70/30",
        "a database that answers transactions: random 8 KiB, 70 % reads",
        {"block_size": "8 KiB", "access": "random", "read": 0.7, "threads": 16, "outstanding": 8},
    ),
    "vm-farm": Preset(
        "VM farm",
        "many virtual machines: random, mixed sizes, 65 % reads",
        {"block_size": {"4 KiB": 0.5, "8 KiB": 0.2, "32 KiB": 0.2, "64 KiB": 0.1},
         "access": "random", "read": 0.65, "threads": 32, "outstanding": 4},
    ),
    "log-writer": Preset(
        "log writer",
        "a transaction log: 16 KiB written in sequence, each on the media before the next",
        {"block_size": "16 KiB", "access": "sequential", "read": 0.0, "threads": 1,
         "outstanding": 1, "fdatasync": 1},
    ),
    "scan": Preset(
        "table scan",
        "analytics: 512 KiB read in sequence by several threads",
        {"block_size": "512 KiB", "access": "sequential", "read": 1.0, "threads": 8,
         "outstanding": 4},
    ),
    "backup": Preset(
        "backup",
        "one stream that reads everything: 1 MiB in sequence",
        {"block_size": "1 MiB", "access": "sequential", "read": 1.0, "threads": 1,
         "outstanding": 8},
    ),
}  # fmt: skip


def preset(name: str) -> Preset:
    """Return the preset *name*; InputError with the nearest known.

    >>> preset("oltp").keys["read"]
    0.7
    """
    found = PRESETS.get(name)
    if found is None:
        raise InputError(f"load {name!r} is unknown; {nearest(name, PRESETS)}")
    return found


def workload(name: str) -> dict[str, Any]:
    """Return a fresh ``[[workload]]`` table of the preset *name*."""
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in preset(name).keys.items()}
