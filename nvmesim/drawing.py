"""Answers that draw themselves: as charts, in a notebook, or when printed.

`nvmesim.show.notebook`, which stands above all answers, tells what each looks like. It is looked up
by its name when something is drawn, so that no room below it imports it.
"""

from importlib import import_module
from typing import Any


class Charted:
    """Base of answers that have charts."""

    def chart(self, *args: Any, **options: Any) -> Any:
        """Return all charts, one below the other (Altair)."""
        return _drawn(self, "chart", *args, **options)


class Drawable(Charted):
    """Base of answers that also show themselves in a notebook."""

    def _repr_html_(self) -> str:
        return str(_drawn(self, "html"))


class Printable(Drawable):
    """A `Drawable` whose `str` is what its command prints."""

    def __str__(self) -> str:
        """Return what the command prints."""
        return str(_drawn(self, "text"))


def _drawn(answer: object, form: str, *args: Any, **options: Any) -> Any:
    return import_module("nvmesim.show.notebook").drawn(answer, form, *args, **options)
