"""Progress on a terminal, silence in a pipe, and the one notice that the engine is compiled."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

Report = Callable[[str, float], None]
"""Called with what is being done and how far it is, 0 to 1."""


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


@contextmanager
def steps(what: str) -> Iterator[Callable[[str], None]]:
    """Give what names the step in hand beside a spinner on stderr; silent if no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    from nvmesim.result.summary import one_line

    with Console(stderr=True).status(Text(what)) as status:
        yield lambda step: status.update(Text(one_line(f"{what}: {step}")))


@contextmanager
def progress_bar() -> Iterator[Report | None]:
    """Give what moves a bar on stderr, None if that is no terminal; the bar goes when done."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from nvmesim.result.summary import one_line

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def report(what: str, share: float) -> None:
            bar.update(task, description=escape(one_line(what)), completed=share)

        yield report


@contextmanager
def bytes_read(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what shows how many bytes of how many are read, None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    speed = (TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, *speed, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def noting_interrupt() -> Iterator[list[int]]:
    """Give a list that is empty unless Ctrl-C was pressed; the body still sees KeyboardInterrupt.

    A body that keeps what was finished may swallow the exception: the exit code still tells.
    Where it is ignored (a script's job in the background) it stays so.
    """
    pressed: list[int] = []
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def say_if_compiling(engine: str) -> None:
    """Say on stderr that the engine is compiled now, if no earlier run has left it compiled."""
    from nvmesim.engine.native import is_compiled

    if engine == "compiled" and not is_compiled():
        click.echo("nvmesim: compiling the engine (once, about 20 s)…", err=True)
