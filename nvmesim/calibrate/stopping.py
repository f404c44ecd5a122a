"""A fit that is asked to stop ends with the best that it has, not with nothing.

Searches look here between their steps: a signal that came in the middle of one would lose it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

EARLY: Final = (
    "stopped early: the best found so far; searches had not ended, intervals are rough and other "
    "explanations may not have been tried"
)
"""What a profile says of a fit that was stopped."""

_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)


@contextmanager
def stoppable(asked: threading.Event) -> Iterator[None]:
    """Let fits in the body stop as soon as *asked* is set.

    >>> event = threading.Event()
    >>> with stoppable(event):
    ...     event.set()
    ...     is_stopping()
    True
    """
    before = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(before)


def is_stopping() -> bool:
    """True if the fit in hand was asked to stop.

    >>> is_stopping()
    False
    """
    asked = _asked.get()
    return asked is not None and asked.is_set()


__all__ = ["EARLY", "is_stopping", "stoppable"]
