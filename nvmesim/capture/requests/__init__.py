"""Tables of single requests: pairing, depth, statistics in flat memory; codes that they share."""

from __future__ import annotations

from typing import Final

READ, WRITE, FLUSH, OTHER, UNKNOWN = range(5)
"""Operations."""
UNKNOWN_TIME: Final = -(2**62)
"""Stands for a time (or offset) that a format does not have; null in the table."""
