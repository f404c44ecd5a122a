"""The joint distribution of fitted numbers, as a profile carries it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, Frozen, JointDraws, Quantity, StackProfile

Model = TypeVar("Model", bound=Frozen)
Profile = TypeVar("Profile", DriveProfile, StackProfile)

ROWS = 64
"""Draws that a profile carries; a file of them stays below 6 kB."""


def with_draws(
    profile: Profile, columns: Mapping[str, Floats], source: str, assumed: Collection[str] = ()
) -> Profile:
    """Return *profile* with the 95 % interval of each dotted key in *columns*, and its *source*.

    Keys in *assumed* get an interval too, and stay assumed.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> new = with_draws(drive, {"read.die": np.linspace(50e6, 70e6, 201)}, "a capture")
    >>> new.read.die.basis, new.read.die.low, new.read.die.value
    ('fitted', 50500000.0, 60000000.0)
    """
    for key, column in columns.items():
        low, high = (float(v) for v in np.quantile(column, (0.025, 0.975)))
        profile = _stamped(profile, key.split("."), (low, high), "" if key in assumed else source)
    return profile


def with_span(profile: Profile, key: str, span: tuple[float, float], source: str) -> Profile:
    """Return *profile* with the 95 % interval *span* of the number at dotted *key*."""
    return _stamped(profile, key.split("."), span, source)


def _stamped(model: Model, path: list[str], span: tuple[float, float], source: str) -> Model:
    value = getattr(model, path[0])
    if isinstance(value, Quantity):
        low, high = min(span[0], value.value), max(span[1], value.value)
        new: Frozen = Quantity(
            value=value.value, low=low, high=high, source=source,
            basis="fitted" if source else "assumed",
        )  # fmt: skip
    else:
        new = _stamped(value, path[1:], span, source)
    return model.model_copy(update={path[0]: new})


def joint_of(
    profile: DriveProfile | StackProfile, columns: Mapping[str, Floats]
) -> JointDraws | None:
    """Return *columns* (dotted key -> float64[n_draws]) as factors of the profile's own values.

    None without columns.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> joint_of(drive, {"read.die": np.array([57e6, 63e6])}).factors
    ((0.95,), (1.05,))
    """
    if not columns:
        return None
    values = {key: q.value for key, q in quantities(profile)}
    names = tuple(columns)
    table = np.stack([columns[n] / values[n] for n in names], axis=1)
    chosen = np.unique(np.linspace(0, len(table) - 1, ROWS).round().astype(int))
    rows = tuple(tuple(float(f"{f:.4g}") for f in table[i]) for i in chosen)
    return JointDraws(names=names, factors=rows)
