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


EVERY_S = 10.0
"""Off a terminal work that takes long says so often where it is."""


@contextmanager
def spoken(what: str) -> Iterator[Report]:
    """Give what notes the step in hand; every 10 s it is a line on stderr, for logs."""
    from nvmesim.show.words import one_line

    now = [what, ""]
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(EVERY_S):
            click.echo(f"nvmesim: {one_line(' '.join(n for n in now if n))}", err=True)

    def report(step: str, share: float) -> None:
        now[0] = step
        now[1] = f"({100 * share:.0f} %)" if share > 0 else ""

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        ended.set()
        speaker.join()


@contextmanager
def steps(what: str) -> Iterator[Callable[[str], None]]:
    """Give what names the step in hand beside a spinner on stderr; lines without a terminal."""
    if not sys.stderr.isatty():
        with spoken(what) as report:
            yield lambda step: report(f"{what}: {step}", 0.0)
        return
    from rich.console import Console
    from rich.text import Text

    from nvmesim.show.words import one_line

    with Console(stderr=True).status(Text(what)) as status:
        yield lambda step: status.update(Text(one_line(f"{what}: {step}")))


@contextmanager
def progress_bar(lines: str = "") -> Iterator[Report | None]:
    """Give what moves a bar on stderr; the bar goes when done.

    If that is not a terminal: None, or with *lines*, what the work is, a line every 10 s.
    """
    if not sys.stderr.isatty():
        if not lines:
            yield None
            return
        with spoken(lines) as report:
            yield report
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from nvmesim.show.words import one_line

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def report(what: str, share: float) -> None:
            bar.update(task, description=escape(one_line(what)), completed=share)

        yield report


@contextmanager
def points_bar() -> Iterator[Report | None]:
    """Give what moves a bar with the time left on stderr, None if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def report(what: str, share: float) -> None:
            bar.update(task, description=escape(what), completed=share)

        yield report


@contextmanager
def bytes_read(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what shows how many bytes of how many are read, None if stderr is not a terminal."""
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


@contextmanager
def first_interrupt(what: str) -> Iterator[threading.Event]:
    """Give what the first Ctrl-C sets, saying *what* it does; the second interrupts as usual.

    Where Ctrl-C is ignored (a script's job in the background) it stays so.
    """
    pressed = threading.Event()
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        click.echo(f"nvmesim: {what}; Ctrl-C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def say_if_compiling(engine: str) -> None:
    """Say on stderr that the engine is compiled now, if no earlier run has left it compiled."""
    from nvmesim.engine.compiled.native import is_compiled

    if engine == "compiled" and not is_compiled():
        click.echo("nvmesim: compiling the engine (once, about 20 s)…", err=True)
