"""Limits of memory and time for one input, so that a small file cannot take all of a machine.

Counts are limits in total, checked before anything of their size is made. Memory is that of the
requests and commands in flight, which is what grows: ``--max-memory`` changes it.
"""

import os
from typing import Final

from nvmesim.errors import LimitError

MOST_DRIVES: Final = 4096
MOST_ADAPTERS: Final = 1024
MOST_VOLUMES: Final = 512
MOST_WORKLOADS: Final = 256
MOST_TARGETS: Final = 4096  # of one workload
MOST_SIZES: Final = 64  # block sizes of one mix
MOST_THREADS: Final = 65_536  # of all workloads
MOST_IN_FLIGHT: Final = 1 << 18  # requests that closed loops keep outstanding in all
MOST_KINDS: Final = 32_768
"""Targets x block sizes x (reads, writes) of all workloads: each has a program of its own."""
MOST_PLANNED: Final = 1 << 24
"""Pieces of requests that volumes are planned for, over all places where requests may start."""
MOST_COMMANDS: Final = 4095
"""Commands of one request, and units of one split: both fit 12 bits of a token's order."""
MOST_CHILDREN: Final = 1 << 22  # commands of all different plans
MOST_POINTS: Final = 10_000  # rows of a table of points
MOST_KEY_PARTS: Final = 32
"""Parts of a dotted key of TOML: reading time grows with the square of their number."""
MEMORY: Final = 4 << 30
"""Bytes that requests in flight may take, unless something else is asked for."""
VARIABLE: Final = "NVMESIM_MAX_MEMORY"  # tells processes that this one starts


def memory() -> int:
    """Return the bytes that requests in flight may take in this process."""
    stated = os.environ.get(VARIABLE, "")
    return int(stated) if stated.isdecimal() else MEMORY


def need(n_bytes: int, what: str) -> None:
    """Raise LimitError if *what* would take more than `memory`.

    >>> need(1 << 20, "10 requests in flight")
    >>> need(1 << 40, "9 requests in flight")
    Traceback (most recent call last):
    ...
    nvmesim.errors.LimitError: 9 requests in flight need 1024 GiB; the limit is 4 GiB (--max-memory)
    """
    most = memory()
    if n_bytes > most:
        raise LimitError(f"{what} need {_text(n_bytes)}; the limit is {_text(most)} (--max-memory)")


def _text(n_bytes: int) -> str:
    big = n_bytes >= 1 << 30
    return f"{n_bytes / (1 << 30):.4g} GiB" if big else f"{n_bytes / (1 << 20):.4g} MiB"


def at_most(count: int, most: int, key: str, what: str) -> None:
    """Raise LimitError, naming *key*, if there are more than *most* of *what*.

    >>> at_most(5000, 4096, "drives", "drives")
    Traceback (most recent call last):
    ...
    nvmesim.errors.LimitError: drives: 5,000 drives in all; 4,096 at most
    """
    if count > most:
        raise LimitError(f"{key}: {count:,} {what} in all; {most:,} at most")
