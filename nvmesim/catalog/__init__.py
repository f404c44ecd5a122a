"""Parts with sourced numbers: drives, CPUs, stacks, RAID engines, platforms."""

from nvmesim.catalog.load import find, get, names

__all__ = ["find", "get", "names"]
