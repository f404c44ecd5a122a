"""The load of a DiskSpd command line, where the input parameters were cut away."""

from __future__ import annotations

from nvmesim.capture.readers.diskspd.common import DiskspdTarget
from nvmesim.scenario.loads import diskspd_words as words


def command_targets(command: str) -> list[DiskspdTarget]:
    r"""The targets of a command line with their load; empty if there is no command line.

    >>> [t.block_size for t in command_targets("diskspd.exe -b4K -r -o8 -w30 D:\\t.dat")]
    [4096]
    """
    found, paths = words.flags_and_targets(command.split())
    flags = {flag[1:2]: flag[2:] for flag in found}
    return [
        DiskspdTarget(
            path=path,
            block_size=words.size_bytes(flags.get("b", ""))
            if "b" in flags
            else words.DEFAULT_BLOCK,
            outstanding=_integer(flags.get("o"), words.DEFAULT_OUTSTANDING),
            threads=None if "F" in flags else _integer(flags.get("t"), words.DEFAULT_THREADS),
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
