"""Warnings: a sentence for people, a code for programs, and what it is about."""

from collections.abc import Iterable
from typing import Any

OTHER = "other"
"""Code of a warning that nothing acts on."""


class Warning(str):
    """A sentence that goes with an answer; it is the text, and carries a code.

    Code that must decide by a warning asks for `code`, never for words of the text.

    >>> one = Warning("interrupted", "interrupted: 3 requests were finished", about="run")
    >>> one, one.code
    ('interrupted: 3 requests were finished', 'interrupted')
    """

    __slots__ = ("about", "code")
    code: str
    about: str
    """A drive, a station, a file or a workload; empty: the whole answer."""

    def __new__(cls, code: str, text: str, about: str = "") -> Warning:
        """Return *text* as a warning with *code*."""
        made = super().__new__(cls, text)
        made.code, made.about = code, about
        return made

    def __reduce__(self) -> tuple[type[Warning], tuple[str, str, str]]:
        """Return what a copy is made of."""
        return Warning, (self.code, str(self), self.about)

    def to_json(self) -> dict[str, Any]:
        """Return {"code", "text", "about"}."""
        return {"code": self.code, "text": str(self), "about": self.about or None}


def coded(texts: Iterable[str]) -> tuple[Warning, ...]:
    """Return *texts* as warnings, each once, those without a code under `OTHER`.

    >>> [w.code for w in coded(["short run", Warning("drift", "it drifts"), "short run"])]
    ['other', 'drift']
    """
    return tuple(t if isinstance(t, Warning) else Warning(OTHER, t) for t in dict.fromkeys(texts))


def has(warnings: Iterable[str], *codes: str) -> bool:
    """Return True if one of *warnings* has one of *codes*."""
    return any(isinstance(w, Warning) and w.code in codes for w in warnings)
