"""Progress on a terminal, silence in a pipe, and the one notice that the engine is compiled."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Report = Callable[[str, float], None]
"""Called with what is being done and how far it is, 0 to 1."""
EVERY_S = 10.0
"""Off a terminal work that takes long says so often where it is."""


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None] | None]:
    """Show *what* with a spinner on stderr while the body runs, if that is a terminal.

    Gives what changes the text there.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)) as status:
        yield lambda text: status.update(Text(text))


@contextmanager
def spoken(what: str) -> Iterator[Report]:
    """Give what notes the step in hand; every 10 s it is a line on stderr, for logs."""
    from nvmesim.show.words import one_line

    now = what
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(EVERY_S):
            click.echo(f"nvmesim: {one_line(now)}", err=True)

    def report(step: str, share: float) -> None:
        nonlocal now
        now = f"{step} ({100 * share:.0f} %)" if share > 0 else step

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
    from nvmesim.show.words import one_line

    with working(what) as update:
        if update is not None:
            yield lambda step: update(one_line(f"{what}: {step}"))
            return
        with spoken(what) as report:
            yield lambda step: report(f"{what}: {step}", 0.0)


@contextmanager
def progress_bar(lines: str = "", *, left: bool = False) -> Iterator[Report | None]:
    """Give what moves a bar on stderr, with *left* also the time left; the bar goes when done.

    If that is not a terminal: None, or with *lines*, what the work is, a line every 10 s.
    """
    if not sys.stderr.isatty():
        if not lines:
            yield None
            return
        with spoken(lines) as report:
            yield report
        return
    from rich.markup import escape
    from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from nvmesim.show.words import one_line

    rest = (TextColumn("left"), TimeRemainingColumn()) if left else ()
    with _bar(TimeElapsedColumn(), *rest) as bar:
        task = bar.add_task("" if left else "starting", total=1.0)
        yield lambda what, share: bar.update(
            task, description=escape(one_line(what)), completed=share
        )


@contextmanager
def bytes_read(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what shows how many bytes of how many are read, None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with _bar(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _bar(*columns: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    first = (TextColumn("{task.description}"), BarColumn())
    return Progress(*first, *columns, console=Console(stderr=True), transient=True)


@contextmanager
def noting_interrupt(what: str = "") -> Iterator[threading.Event]:
    """Give what Ctrl-C sets; the body still sees KeyboardInterrupt.

    A body that keeps what was finished may swallow the exception: the exit code still tells. With
    *what*, what it does instead, the first is only said and set; the second interrupts as usual.
    Where Ctrl-C is ignored (a script's job in the background) it stays so.
    """
    pressed = threading.Event()
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set() or not what:
            pressed.set()
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
