"""What one scenario may have planned: pieces of requests, and the commands that are kept of them.

Both are counted while plans are made, so that a small file is refused before it takes the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from nvmesim.errors import LimitError
from nvmesim.limits import MOST_COMMANDS, MOST_PLANNED, need

COMMAND_BYTES: Final = 512
"""Memory of one command of a plan, from the planner to the engine. Measured, rounded up."""
REQUEST_PIECES: Final = 8
"""Planning a request takes as long as planning so many pieces more. Measured."""
OFFSET_BYTES: Final = 64
"""Memory of one place where requests may start, while places of one class are found."""


@dataclass
class _Budget:
    most: int
    pieces: int = 0
    commands: int = 0


_budget: Final[ContextVar[_Budget | None]] = ContextVar("what has been planned", default=None)


@contextmanager
def planning(most: int = MOST_PLANNED) -> Iterator[None]:
    """Let the body plan so many pieces of requests in all, then raise LimitError.

    A piece is a row of 4 KiB where the level has a stripe cache, else a chunk of each copy.

    >>> with planning(16):
    ...     spend(17)
    Traceback (most recent call last):
    ...
    nvmesim.errors.LimitError: requests are cut into too many pieces in too many ways to be \
planned: more than 16 in all; a smaller block_size, a larger chunk or align, or fewer sizes
    """
    token = _budget.set(_Budget(most))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(pieces: int, ahead: int = 0) -> None:
    """Count *pieces* that are about to be planned; LimitError if `planning` allows no more.

    *ahead*: as many more would follow, so what is too much is refused before any of it is done.
    """
    budget = _budget.get()
    if budget is None:
        return
    budget.pieces += pieces
    if budget.pieces + ahead > budget.most:
        raise LimitError(
            "requests are cut into too many pieces in too many ways to be planned: more than "
            f"{budget.most:,} in all; a smaller block_size, a larger chunk or align, or fewer sizes"
        )


def keep(commands: int) -> None:
    """Count *commands* of plans that are about to be kept; LimitError if they take too much."""
    budget = _budget.get()
    if budget is None:
        return
    budget.commands += commands
    need(budget.commands * COMMAND_BYTES, f"{budget.commands:,} commands of all plans")


def check_commands(commands: int) -> None:
    """Raise LimitError if one request is more *commands* than an engine has under way at once."""
    if commands > MOST_COMMANDS and _budget.get() is not None:
        raise LimitError(
            f"a request is {commands:,} commands at once; {MOST_COMMANDS:,} at most: a smaller "
            "block_size, or a larger chunk"
        )


def check_offsets(count: int) -> None:
    """Raise LimitError if *count* places where requests may start take too much memory."""
    if _budget.get() is not None:
        need(count * OFFSET_BYTES, f"{count:,} places where requests may start")
