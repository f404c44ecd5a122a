"""DiskSpd's words, for loads of a scenario and for command lines found in captures alike.

Source: microsoft/diskspd wiki, Command line and parameters (2.2).
"""

from __future__ import annotations

import re
from typing import Final

DEFAULT_BLOCK: Final = 64 * 1024
DEFAULT_OUTSTANDING: Final = 2
DEFAULT_THREADS: Final = 1
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(b|[kmgt](?:ib)?)?", re.IGNORECASE)
_SCALE: Final = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SLASHED: Final = re.compile(r"/(?:[A-Za-z]{1,2}[0-9,:.]*[KMGTBkmgtbi]?|Rxml|Rtext|Suw)")
_QUOTES: Final = "\"'"


def size_bytes(text: str, block: int = 1) -> int | None:
    """Return the bytes of a size as DiskSpd takes or prints it; None if it is none.

    K M G T are powers of 1024, ``b`` counts blocks of *block* bytes, no suffix is bytes.

    >>> size_bytes("4KiB"), size_bytes("4096"), size_bytes("64K"), size_bytes("2b", 4096)
    (4096, 4096, 65536, 8192)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    suffix = (match[2] or "")[:1].lower()
    return int(match[1]) * (block if suffix == "b" else _SCALE.get(suffix, 1))


def flags_and_targets(words: list[str]) -> tuple[list[str], list[str]]:
    r"""Return flags, each with a dash, and targets of the words behind the program's name.

    >>> flags_and_targets(["diskspd.exe", "-b4K", "/t8", "#1", '"C:\\a.dat"'])
    (['-b4K', '-t8'], ['#1', 'C:\\a.dat'])
    """
    bare = [word.strip(_QUOTES) for word in words]
    if bare and re.search(r"diskspd(64)?(\.exe)?$", bare[0], re.IGNORECASE):
        bare = bare[1:]
    targets = [word for word in bare if not _is_flag(word)]
    return [f"-{word[1:]}" for word in bare if _is_flag(word)], targets


def _is_flag(word: str) -> bool:
    """True if *word* is a flag; a slash begins one as well, and the path of a file on Linux."""
    return word.startswith("-") or _SLASHED.fullmatch(word) is not None
