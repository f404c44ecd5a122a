"""The compiled engine: a Numba kernel, its state, and its machine code on disk."""
