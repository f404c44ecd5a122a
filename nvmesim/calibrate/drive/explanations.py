"""Explanations of the same rows, and how much weight each has.

Rows of pure reads and pure writes cannot tell whether a ceiling is of the dies, which programs
share, or of the controller, or of the reads' own path, nor whether a read suspends a program or
waits for it: for a mix that is worth tens of percent. Each is fitted; what rows there are of mixes
decide, and what they leave open is carried on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.drive.read_side import CEILINGS, Ceiling, ReadFit
from nvmesim.calibrate.drive.suspension import SUSPENDS
from nvmesim.calibrate.drive.write_side import LIMITS, Limit, WriteFit
from nvmesim.calibrate.evidence import joint_of
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import Alternative, DriveProfile, Quantity
from nvmesim.catalog.toml import quantity_table

PRIOR: Final[dict[tuple[Ceiling | None, Limit | None], float]] = {
    ("dies", "drain"): 0.5, ("controller", "controller"): 0.3, ("controller", "drain"): 0.2,
    ("path", "drain"): 0.2, (None, "drain"): 0.6, (None, "controller"): 0.4,
    ("dies", "through"): 0.2, ("controller", "through"): 0.2, (None, "through"): 0.2,
    ("dies", None): 0.6, ("controller", None): 0.4, (None, None): 1.0,
}  # fmt: skip
"""Weights before mixes are looked at. Assumed, by the two drives whose mixes are published beside
their pure rows: with one shared bound (dies and drain, or the controller for both) mixes were off
by 6 %, with a bound of each its own by 13 to 45 %."""
LEAST: Final = 0.03
"""An explanation of less weight is left out."""
MODEL_ERROR: Final = 4.0
"""Misfit of a good model in standard errors of its figures: what tells two explanations apart must
be more. Assumed."""


@dataclass(frozen=True)
class Explanation:
    """A drive that explains the rows, with the distribution of its numbers."""

    ceiling: Ceiling | None
    limit: Limit | None
    profile: DriveProfile
    cost: float
    """Half a chi-square of all rows that tell explanations apart"""
    joint: Mapping[str, Floats]
    reads: ReadFit | None = None
    writes: WriteFit | None = None
    notes: tuple[str, ...] = ()
    unidentified: Mapping[str, str] = field(default_factory=dict)
    suspends: bool | None = None
    """True if reads suspend programs, false if they wait for them; None: there is no choice"""

    @property
    def pair(self) -> tuple[Ceiling | None, Limit | None]:
        """What limits reads, and what writes."""
        return self.ceiling, self.limit

    @property
    def prior(self) -> float:
        """Weight before mixes are looked at."""
        share = {None: 1.0, True: SUSPENDS, False: 1 - SUSPENDS}[self.suspends]
        odds = self.reads.odds if self.reads is not None else 1.0
        return PRIOR.get(self.pair, 0.1) * share * odds

    @property
    def name(self) -> str:
        """The explanation in words.

        >>> from nvmesim.catalog.load import get
        >>> drive = get("drive", "intel-p4610-1.6tb")
        >>> Explanation("dies", "drain", drive, 0.0, {}).name
        'the ceiling of reads is of the dies, that of writes of the drain of the buffer'
        """
        said = [f"the ceiling of reads is of {CEILINGS[self.ceiling]}"] if self.ceiling else []
        if (
            self.ceiling is None
            and self.reads is not None
            and "commands" in self.reads.unidentified
        ):
            said = ["no read reached a ceiling: only latency was measured"]
        if self.limit is not None:
            said.append(f"that of writes of {LIMITS[self.limit]}")
        if self.suspends is not None:
            said.append("a read suspends a program" if self.suspends else
                        "a read waits for the end of a program")  # fmt: skip
        text = ", ".join(said)
        return text if self.ceiling else text.replace("that of writes", "the ceiling of writes is")


def weights(tried: Sequence[Explanation]) -> list[float]:
    """Probability of each of *tried*: what was assumed beforehand, and how it fits."""
    costs = np.array([e.cost for e in tried]) / MODEL_ERROR**2
    priors = np.array([e.prior for e in tried])
    found = priors * np.exp(-np.minimum(costs - costs.min(), 500.0))
    out: list[float] = (found / found.sum()).tolist()
    return out


def chosen(tried: Sequence[Explanation]) -> tuple[Explanation, list[tuple[Explanation, float]]]:
    """The explanation of most weight, and the others that count, with their weights.

    First what limits has the most weight in all, then what of it has.
    """
    whole: dict[tuple[Ceiling | None, Limit | None], float] = {}
    found = weights(tried)
    for e, w in zip(tried, found, strict=True):
        whole[e.pair] = whole.get(e.pair, 0.0) + w
    most = max(whole, key=lambda pair: whole[pair])
    best = max((i for i, e in enumerate(tried) if e.pair == most), key=lambda i: found[i])
    others = sorted(((w, i) for i, w in enumerate(found) if i != best and w >= LEAST), reverse=True)
    total = found[best] + sum(w for w, _ in others)
    return tried[best], [(tried[i], w / total) for w, i in others]


def alternative(of: Explanation, main: DriveProfile, weight: float) -> Alternative:
    """*of* as a profile carries it: what differs from *main*."""
    joint = joint_of(of.profile, of.joint)
    return Alternative(
        name=of.name, weight=round(weight, 4), values=difference(main, of.profile), joint=joint
    )


def difference(main: DriveProfile, other: DriveProfile) -> dict[str, Any]:
    """Dotted key -> number of *other*, as a table, where it is not that of *main*."""
    mine, theirs = dict(quantities(main)), dict(quantities(other))
    found: dict[str, Any] = {
        key: quantity_table(other, key)
        for key, q in theirs.items()
        if key not in mine or mine[key].value != q.value
    }
    if "write.commands" in mine and "write.commands" not in theirs:
        found["write.commands"] = quantity_table(_with_commands(other), "write.commands")
    if "write.suspend" in mine and "write.suspend" not in theirs:
        found["write.suspend"] = False
    if main.write.through != other.write.through:
        found["write.through"] = other.write.through
    return found


def _with_commands(profile: DriveProfile) -> DriveProfile:
    """Return *profile* with write commands that are no fewer than its commands: as without."""
    commands = Quantity(value=profile.commands.value, basis="assumed")
    write = profile.write.model_copy(update={"commands": commands})
    return profile.model_copy(update={"write": write})
