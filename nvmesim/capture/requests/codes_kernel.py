"""Numbers that compiled readers of requests share with those that do without Numba."""

from __future__ import annotations

from typing import Final

READ, WRITE, FLUSH, OTHER, UNKNOWN = range(5)
"""Operations."""
UNKNOWN_TIME: Final = -(2**62)
"""Stands for a time (or offset) that a format does not have; null in the table."""
