"""What usually makes a server slower than it should be, each as a change of the scenario.

A mistake is one or several changes (``--set`` keys and values), simulated like any scenario. The
list, with its sources and the changes that are the same on every server, is ``mistakes.toml``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.study.diagnosis.evidence import Change
from nvmesim.study.diagnosis.facts import Patterns
from nvmesim.study.diagnosis.forms import MADE, Variants
from nvmesim.study.diagnosis.server import Server, Variant


@dataclass(frozen=True)
class Mistake:
    """One explanation, in one or several forms."""

    code: str
    check: str
    """Where to look."""
    mend: str
    source: str
    variants: Variants
    """Gives its forms; none where the scenario cannot have it."""
    is_exact: bool = False
    """True if its number is stated by a specification, and not measured on some server."""
    windows: Mapping[str, str] = field(default_factory=dict)
    """Its check and mend on Windows; empty: it is none of such a server."""

    def on(self, server: Server) -> Mapping[str, str]:
        """Return where to look, how to mend it on *server*, and the source."""
        texts = {"check": self.check, "mend": self.mend, "source": self.source}
        return {**texts, **(self.windows if server.is_windows else {})}


@dataclass(frozen=True)
class Trial:
    """A form of one mistake, or of two at once, and what it leaves of the rows' differences."""

    mistakes: tuple[Mistake, ...]
    variants: tuple[Variant, ...]
    ratios: Floats
    """log(measured / predicted) under it: float64[n], as `log_ratios`; NaN: not simulated."""
    counts: Floats | None = None
    """How much drives and CPUs count for each figure, of what they do as the server is."""
    score: float = -math.inf
    """Log likelihood; of one that is not whole, less that of the best under as many rows."""

    @property
    def is_whole(self) -> bool:
        """True if it was simulated under all rows."""
        return bool(np.isfinite(self.ratios).all())

    @property
    def code(self) -> str:
        """Of its mistakes, joined by "+"."""
        return "+".join(m.code for m in self.mistakes)

    @property
    def name(self) -> str:
        """In words."""
        return " and ".join(v.name for v in self.variants)

    @property
    def change(self) -> Change:
        """All that it changes of the scenario."""
        return {key: value for v in self.variants for key, value in v.change.items()}

    @property
    def family(self) -> tuple[str, ...]:
        """What it is a form of; () if it stands by itself."""
        return (self.code, self.variants[0].family) if self.variants[0].family else ()


def _listed(table: Mapping[str, Any], server: Server) -> Iterator[Variant]:
    """Forms that are data."""
    for form in table.get("forms", ()):
        if all(getattr(server, name) for name in form.get("where", ())):
            family = form.get("family", table.get("family", ""))
            for strength in form.get("strengths", (None,)):
                change = server.changed(form, strength)
                if change is not None:
                    name = form["name"].format(strength)
                    yield Variant(name, change, family, form.get("usual", 1.0))


def _variants(table: Mapping[str, Any]) -> Variants:
    """Those that are made for the server, and then those that are data."""
    made = MADE.get(table["code"])

    def variants(server: Server) -> Iterator[Variant]:
        if server.is_windows and "windows" not in table:
            return
        if made is not None:
            yield from made(server)
        if all(getattr(server, name) for name in table.get("where", ())) and all(
            server.has_several(key) for key in table.get("several", ())
        ):
            yield from _listed(table, server)

    return variants


@dataclass(frozen=True)
class Known:
    """All mistakes, and how common they are."""

    mistakes: tuple[Mistake, ...]
    weights: Mapping[str, Sequence[float]]
    """Code -> how common it is, and how many times as common in each of `Server.contexts`."""
    best: float
    """How much the form of a mistake that fits best counts, beside the mean of all."""
    facts: Patterns


@cache
def known() -> Known:
    """Return what ``mistakes.toml`` lists; it is read once, when it is first needed."""
    listed = tomllib.loads((files(__package__) / "mistakes.toml").read_text("utf-8"))
    every = listed["mistake"]
    texts = ("code", "check", "mend", "source")
    return Known(
        tuple(
            Mistake(variants=_variants(table), is_exact=table.get("exact", False),
                    windows=table.get("windows", {}), **{key: table[key] for key in texts})
            for table in every
        ),
        {"healthy": listed["healthy"], "unknown": listed["unknown"]}
        | {table["code"]: table["weight"] for table in every},
        listed["best"],
        {table["code"]: table["facts"] for table in every if "facts" in table},
    )  # fmt: skip
