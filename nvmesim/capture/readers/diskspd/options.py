"""What a DiskSpd command line says about the load, where the input parameters were cut away."""

from __future__ import annotations

import re
from typing import Final

from nvmesim.capture.readers.diskspd.common import Target

_SIZE = re.compile(r"(\d{1,15})\s*(B|[KMGT](?:iB)?)?$", re.I)
_POWERS: Final = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
DEFAULT_BLOCK: Final = 65536
DEFAULT_OUTSTANDING: Final = 2


def size_bytes(text: str) -> int | None:
    """Bytes of a size as DiskSpd prints or takes it; None if it is none.

    >>> size_bytes("4KiB"), size_bytes("4096"), size_bytes("64K"), size_bytes("1b")
    (4096, 4096, 65536, 1)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    return int(match[1]) << (10 * _POWERS[(match[2] or "b")[0].lower()])


def command_targets(command: str) -> list[Target]:
    r"""The targets of a command line with their load; empty if there is no command line.

    Source: microsoft/diskspd wiki, Command line and parameters (2.2).

    >>> [t.block_size for t in command_targets("diskspd.exe -b4K -r -o8 -w30 D:\\t.dat")]
    [4096]
    """
    words = command.split()[1:]
    flags = {word[1:2]: word[2:] for word in words if word[:1] in "-/"}
    paths = [word for word in words if word[:1] not in "-/"]
    return [
        Target(
            path=path,
            block_size=size_bytes(flags["b"]) if "b" in flags else DEFAULT_BLOCK,
            outstanding=_integer(flags.get("o"), DEFAULT_OUTSTANDING),
            threads=None if "F" in flags else _integer(flags.get("t"), 1),
            write_pct=float(_integer(flags.get("w"), 0) or 0),
            random="r" in flags if not flags.get("r", "").startswith("s") else None,
            direct="S" in flags and not set(flags["S"]) & set("bmr"),
        )
        for path in paths
    ]


def _integer(text: str | None, default: int) -> int | None:
    if not text:
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
