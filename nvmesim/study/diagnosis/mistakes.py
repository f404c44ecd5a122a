"""What usually makes a server slower than it should be, each as a change of the scenario.

A mistake is one or several changes (``--set`` keys and values), simulated like any scenario. The
list, with its sources, the changes that are the same on every server, and the words in files that
tell for and against each (``facts``), is ``mistakes.toml``.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import PathText, read_captures
from nvmesim.capture.text import shown
from nvmesim.errors import CaptureError
from nvmesim.study.diagnosis.forms import MADE, Variants
from nvmesim.study.diagnosis.ranges import Range, range_of
from nvmesim.study.diagnosis.server import Server, Variant
from nvmesim.study.diagnosis.short_runs import Change

MOST: Final = 1 << 20
"""Bytes of a file that are looked at."""
QUOTED: Final = 70
Patterns = Mapping[str, Sequence[tuple[str, float]]]
"""Code of a mistake -> patterns, each with how many times as common it is where one is found."""


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
    ranges: tuple[Range, ...] = ()
    """What of it is free."""
    where: tuple[str, ...] = ()
    """Properties of a server that can have its ranges."""

    def ranges_on(self, server: Server) -> list[Range]:
        """Return `ranges` that *server* can have."""
        if server.is_windows and not self.windows:
            return []
        return [one for one in self.ranges
                if all(getattr(server, name) for name in (*self.where, *one.where))]  # fmt: skip

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
    score: float = -math.inf
    """Log likelihood."""
    mean: float | None = None
    """Log of the mean likelihood of the range of which it is the likeliest point; None: a form."""

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

    @property
    def kind(self) -> tuple[str, ...]:
        """Its family, or its own name."""
        return self.family or (self.code, self.name, str(self.change))


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
                    windows=table.get("windows", {}), where=tuple(table.get("where", ())),
                    ranges=tuple(map(range_of, table.get("ranges", ()))),
                    **{key: table[key] for key in texts})
            for table in every
        ),
        {"healthy": listed["healthy"], "unknown": listed["unknown"]}
        | {table["code"]: table["weight"] for table in every},
        listed["best"],
        {table["code"]: table["facts"] for table in every if "facts" in table},
    )  # fmt: skip


# -- what files and names say of a server: reasons for and against a cause ------------------------


def read_files(paths: PathText | Iterable[PathText]) -> tuple[Captures, dict[str, str], list[str]]:
    """Return captures of *paths*, name -> text of all that are files, and why others tell nothing.

    A named file that is no capture may say something of the server. CaptureError if none is one.
    """
    named = [paths] if isinstance(paths, str | PathLike) else list(paths)
    refused: list[str] = []
    found = read_captures(named, refused=refused)
    if not found.files:
        raise CaptureError(refused[0])
    files = [path for path in map(Path, named) if path.is_file()]
    files += [c.file for c in found.files if c.file is not None and c.file not in files]
    texts = {str(path): _text(path) for path in files}
    return found, texts, refused


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST).decode("utf-8", "replace")


def told_by(texts: Mapping[str, str], patterns: Patterns) -> tuple[dict[str, float], list[str]]:
    """Return code -> how many times as common it is by *texts*, and quotes of what tells for one.

    Of several reasons for a cause the best counts, and of several against it.

    >>> told_by({"a.txt": "zd0: ios=12"}, {"zfs": [[r"zd[0-9]", 30.0], ["mdadm", 0.1]]})
    ({'zfs': 30.0}, ['a.txt: zd0 (zfs)'])
    """
    told: dict[str, float] = {}
    quotes: list[str] = []
    for code, listed in patterns.items():
        found = [(times, name, match) for pattern, times in listed for name, text in texts.items()
                 if (match := re.search(pattern, text, re.IGNORECASE | re.MULTILINE))]  # fmt: skip
        if not found:
            continue
        most = max(found, key=lambda one: one[0])
        told[code] = max(most[0], 1.0) * min(1.0, *(times for times, *_ in found))
        if most[0] > 1:
            said = shown(most[2][0].strip().splitlines()[-1], QUOTED)
            quotes.append(f"{most[1]}: {said} ({code})")
    return told, quotes
