"""Meaning of fio's words, for loads of a scenario and for options found in captures alike.

Sizes, times, lists and modes as fio reads them; who asks decides what to do where a word is none.
Source: fio HOWTO, parameter types and job options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from nvmesim import units

Access = Literal["random", "sequential"]
Direction = Literal["read", "write", "mixed"]

ALIASES: Final = {
    "readwrite": "rw",
    "blocksize": "bs",
    "blocksize_range": "bsrange",
    "blockalign": "ba",
    "zone_size": "zonesize",
    "bs_split": "bssplit",
    "io_limit": "io_size",
}
SYNC_ENGINES: Final = frozenset(
    {"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "falloc", "ftruncate"}
)
"""They have one request outstanding whatever iodepth says."""
DEFAULT_ENGINE: Final = "psync"
DEFAULT_BLOCK_BYTES: Final = 4096
DEFAULT_READ_PERCENT: Final = 50
MODES: Final[dict[str, tuple[Access, Direction]]] = {
    "read": ("sequential", "read"),
    "write": ("sequential", "write"),
    "randread": ("random", "read"),
    "randwrite": ("random", "write"),
    "rw": ("sequential", "mixed"),
    "readwrite": ("sequential", "mixed"),
    "randrw": ("random", "mixed"),
}
"""Access and direction of what stands before the colon of ``rw``; trims are none."""
_SIZE: Final = re.compile(
    r"(0x[0-9a-f]{1,15}|[0-9]{1,18}(?:\.[0-9]{1,9})?)([kmgtp]?)(i?)b?", re.IGNORECASE
)
_TIME: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)", re.IGNORECASE)
_TIME_PS: Final = {
    **{name: units.TIME_PS[name] for name in ("us", "ms", "s", "h")},
    **{"usec": units.TIME_PS["us"], "msec": units.TIME_PS["ms"], "sec": units.TIME_PS["s"]},
    **{"m": units.TIME_PS["min"], "min": units.TIME_PS["min"], "hour": units.TIME_PS["h"]},
    **{"d": 24 * units.TIME_PS["h"], "day": 24 * units.TIME_PS["h"]},
}


def parse_bytes(text: str, kb_base: int = 1024) -> int | None:
    """Return the bytes that fio reads in *text*, None if it is not a size.

    With the usual *kb_base* of 1024 ``4k`` and ``4kb`` are 4096 and ``4ki`` is 4000; with 1000 it
    is the other way round.

    >>> parse_bytes("4k"), parse_bytes("1M"), parse_bytes("4ki"), parse_bytes("4k", 1000)
    (4096, 1048576, 4000, 4000)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    digits, prefix, inverted = match.groups()
    base = (1000 if kb_base == 1024 else 1024) if inverted else kb_base
    scale: int = base ** ("kmgtp".find(prefix.lower()) + 1 if prefix else 0)
    if "." in digits:
        return int(float(digits) * scale)
    return int(digits, 16 if digits.lower().startswith("0x") else 10) * scale


def parse_time_ps(text: str, bare_ps: int) -> int | None:
    """Return the ps that fio reads in *text*, None if it is no time; *bare_ps* without a unit.

    >>> parse_time_ps("100us", 1), parse_time_ps("30", units.PS_PER_S), parse_time_ps("x", 1)
    (100000000, 30000000000000, None)
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    unit = _TIME_PS.get(match[2].lower()) if match[2] else bare_ps
    return None if unit is None else round(float(match[1]) * unit)


def per_op(text: str) -> tuple[str, str]:
    """Return the read and write parts of an ``a,b,c`` option; a missing part inherits.

    >>> per_op("4k,8k"), per_op("4k"), per_op("4k,,16k")
    (('4k', '8k'), ('4k', '4k'), ('4k', '4k'))
    """
    parts = [part.strip() for part in text.split(",")]
    return parts[0], parts[1] if len(parts) > 1 and parts[1] else parts[0]


def mix_option(options: Mapping[str, str]) -> str | None:
    """Return which of rwmixread and rwmixwrite decides: the later one; None if neither is given.

    >>> mix_option({"rwmixread": "70", "rwmixwrite": "10"}), mix_option({})
    ('rwmixwrite', None)
    """
    given = [name for name in options if name in ("rwmixread", "rwmixwrite")]
    return given[-1] if given else None


def split_sizes(text: str, kb_base: int = 1024) -> dict[int, float] | None:
    """Return bytes -> fraction of a ``bssplit``; None if it is none or does not sum to 100 %.

    Sizes without a percentage share the rest evenly.

    >>> split_sizes("4k/60:64k/40"), split_sizes("4k/50:8k:16k"), split_sizes("4k/50")
    ({4096: 0.6, 65536: 0.4}, {4096: 0.5, 8192: 0.25, 16384: 0.25}, None)
    """
    sizes: list[tuple[int, float | None]] = []
    for part in filter(None, text.split(":")):
        size_text, _, share = part.partition("/")
        size = parse_bytes(size_text, kb_base)
        if not size or (share and not (share.isdecimal() and len(share) <= 3)):
            return None
        sizes.append((size, float(share) if share else None))
    blanks = sum(share is None for _, share in sizes)
    rest = 100 - sum(share or 0 for _, share in sizes)
    if not sizes or rest < 0 or (not blanks and rest > 0):
        return None
    found: dict[int, float] = {}
    for size, given in sizes:
        weight = rest / blanks if given is None else given
        found[size] = found.get(size, 0.0) + weight / 100
    return {size: weight for size, weight in found.items() if weight > 0}


def filenames(text: str) -> tuple[str, ...]:
    r"""Return the files or drives of ``filename``, which stand between colons.

    >>> filenames("/dev/nvme0n1:/dev/nvme1n1"), filenames("C\\:/a.dat")
    (('/dev/nvme0n1', '/dev/nvme1n1'), ('C:/a.dat',))
    """
    parts = (part.replace("\\:", ":").strip() for part in re.split(r"(?<!\\):", text))
    return tuple(part for part in parts if part)
