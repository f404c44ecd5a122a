"""Kernels of a RAID engine: what differs before each of them, put in place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nvmesim.catalog.engine_profile import RaidEngineProfile
from nvmesim.catalog.load import merged, validated
from nvmesim.errors import CatalogError


def version(text: str) -> tuple[int, int]:
    """Major and minor number of a kernel, whatever follows them; ValueError if there are none.

    >>> version("6.12.0-124.8.1.el10_1")
    (6, 12)
    """
    found = re.match(r"(\d{1,3})\.(\d{1,3})(?![\d])", text)
    if found is None:
        raise ValueError(text)
    return int(found.group(1)), int(found.group(2))


def known_kernel(asked: str, known: Sequence[str]) -> str:
    """The newest of *known* that is not newer than *asked*.

    Raises CatalogError for what is not a kernel, older than all, or of a later major number.

    >>> known_kernel("5.15", ["4.18", "5.14", "6.1"])
    '5.14'
    """
    try:
        wanted = version(asked)
    except ValueError:
        raise CatalogError(
            f"is {asked!r}; a Linux kernel as {known[-1]!r}: {', '.join(known)} are known"
        ) from None
    older = [name for name in known if version(name) <= wanted]
    if not older or wanted[0] > version(known[-1])[0]:
        near = known[-1] if older else known[0]
        raise CatalogError(
            f"is {asked!r}, which was not measured; the nearest is {near!r}, and "
            f"{', '.join(known)} are known"
        )
    return older[-1]


def with_kernel(engine: RaidEngineProfile, kernel: str) -> RaidEngineProfile:
    """Return *engine* as it is in *kernel*: what differs before later ones put in place.

    >>> from nvmesim.catalog.load import get, with_level
    >>> old = with_level(with_kernel(get("raid-engine", "linux-md"), "4.18"), "raid5")
    >>> sorted(old.locks)
    ['device_lock of reads']
    """
    at = version(known_kernel(kernel, engine.kernels))
    later = [name for name in engine.until if version(name) > at]
    values = engine.model_dump(exclude_unset=True)
    values["until"] = {}
    for name in sorted(later, key=version, reverse=True):
        values = merged(values, engine.until[name])
    return validated(RaidEngineProfile, values)
