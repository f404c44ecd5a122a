"""Progress on a terminal, silence in a pipe, and the one notice that the engine is compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show *what* with a spinner on stderr while the body runs, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)):
        yield


def say_if_compiling(engine: str) -> None:
    """Say on stderr that the engine is compiled now, if no earlier run has left it compiled."""
    if engine == "compiled" and not _is_compiled():
        click.echo("nvmesim: compiling the engine (once, about 20 s)…", err=True)


def _is_compiled() -> bool:
    """Whether Numba's index for the kernel holds code for the kernel's present source."""
    from nvmesim.engine import kernel

    cache = getattr(kernel.advance, "_cache", None)
    file = getattr(cache, "_cache_file", None)
    if file is None:  # the JIT is off, or a Numba that keeps its index elsewhere
        return True
    return bool(file._load_index())
