"""The error tree; every error a user can cause is one line: where, what was found, what would do.

NvmesimError                exit code 2 unless said otherwise
+-- InputError              something the user gave is wrong
|   +-- UnitError           a text with a unit does not parse
|   +-- ScenarioError       a scenario file, a --set, or a workload in it
|   +-- CatalogError        an unknown or broken profile
|   +-- CaptureError        a capture that cannot be read
|   +-- GeometryError       a RAID that cannot be built
|   |   +-- FailedArrayError    a RAID that has lost more members than it survives
|   +-- FitError            captures that cannot determine a profile
|   +-- LimitError          more than `nvmesim.limits` allows
+-- NetworkError            a lowered network breaks a rule of `network`
+-- DeadlockError           requests are left and no event is
+-- InfrastructureError     exit code 3: a scheduler or a worker is gone
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final


class NvmesimError(Exception):
    """Base of every error nvmesim raises on purpose; its text is one line."""

    exit_code = 2


class InputError(NvmesimError):
    """Something the user gave is wrong; the text says where, what was found and what would do."""

    def at(self, place: object) -> InputError:
        """Return the same error with the file that it is in.

        >>> str(InputError("drives is missing").at("lab.toml"))
        'lab.toml: drives is missing'
        """
        return type(self)(f"{place}: {self}")


class UnitError(InputError):
    """A text such as ``"80 us"`` does not parse."""


class ScenarioError(InputError):
    """A scenario file, a ``--set`` or a workload in it is wrong."""


class CatalogError(InputError):
    """A profile is unknown or broken."""


class CaptureError(InputError):
    """A capture cannot be read."""


class GeometryError(InputError):
    """A RAID cannot be built so, or has lost more members than it survives."""


class FailedArrayError(GeometryError):
    """A RAID has lost more members than it survives: no mistake, but the answer.

    ``missing`` are the member numbers that are gone.
    """

    def __init__(self, text: str, missing: Iterable[int] = ()) -> None:
        super().__init__(text)
        self.missing = tuple(missing)

    def at(self, place: object) -> InputError:
        """Return the same error with the file that it is in."""
        return FailedArrayError(f"{place}: {self}", self.missing)

    def to_json(self) -> dict[str, object]:
        """Return what `run --json` prints in place of a prediction."""
        return {"failed": True, "sentence": str(self), "missing_members": list(self.missing)}


class FitError(InputError):
    """Captures do not determine what was asked of them."""


class LimitError(InputError):
    """An input asks for more than `nvmesim.limits` allows; the text says the limit and the key."""


class InfrastructureError(NvmesimError):
    """A scheduler or its workers are gone; what is finished stays."""

    exit_code = 3


class NetworkError(NvmesimError):
    """A lowered network breaks a rule of `nvmesim.network.network`."""


class DeadlockError(NvmesimError):
    """Requests are left and no event is: every one of them waits at a gate."""


LISTED: Final = 16
"""Names that a hint lists; of more it gives the number."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint naming what *name* may have meant, or what there is.

    >>> nearest("raid55", ["raid5", "raid6"])
    "did you mean 'raid5'?"
    >>> nearest("RAID5", ["raid5", "raid6"])
    "did you mean 'raid5'?"
    >>> nearest("zzz", ["raid5", "raid6"])
    'known: raid5, raid6'
    """
    names = list(known)
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    more = len(names) - LISTED
    listed = ", ".join(names[:LISTED] if more > 1 else names)
    return f"known: {listed} and {more} more" if more > 1 else f"known: {listed}"
