"""How the kernel's functions are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

# Nothing here allocates; counting references to arrays that others own would cost 10 to 25 %.
# Nothing divides by zero either: `Network.check` has seen to it.
# What is compiled is typed by Numba from its arguments; Numba has no types for mypy, and signatures
# would only move the complaint to the decorator. So those functions, no others, say no-untyped-def.
LEAN: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
compiled: Any = njit(**LEAN)
inlined: Any = njit(forceinline=True, **LEAN)
part: Any = njit(inline="always", **LEAN)
"""For the body of `entry`'s function: compiled once, as a part of it."""
entry: Any = njit(nogil=True, **LEAN)
"""For the loop where it checks bounds; else its machine code is made by `kernel_object`."""
