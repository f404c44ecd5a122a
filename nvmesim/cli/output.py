"""What commands share: scenarios, JSON on stdout, files whole or not at all, progress on stderr."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from nvmesim.errors import CaptureError, CatalogError, InputError, ScenarioError
from nvmesim.files import plain_json, write_text

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_INSTEAD: Final = {
    # kind of a file that is no scenario: what to do with it
    "profile": "; a scenario names it: profile = '{path}'",
    "goal": "; give it to nvmesim choose",
    "job": "; a scenario names it: [[workload]] with fio = '{path}'",
}


def option(names: str, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option: *names* as "--set sets KEY=VALUE", *text* its help, *more* as in click."""
    words = names.split()
    called = [word for word in words if word.startswith("-") or word.islower()]
    metavar = next((word for word in words if word not in called), None)
    return click.option(*called, metavar=metavar, help=text, **more)


json_option = option("--json as_json", "Print JSON instead of a table.", is_flag=True)
verbose_option = option("-v --verbose", "Print everything known.", is_flag=True)


def output_path(help_text: str, *names: str) -> Callable[[Decorated], Decorated]:
    """Return an option whose value is a file to write."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=kind, metavar="FILE", help=help_text)


def to_text(value: Any, *, indent: int | None = 2) -> str:
    """Return *value* as JSON; numbers that JSON has no name for become null.

    >>> to_text({"p99": float("nan"), "n": 1}, indent=None)
    '{"p99": null, "n": 1}'
    """
    return json.dumps(plain_json(value), indent=indent, ensure_ascii=False, allow_nan=False)


def print_json(value: Any) -> None:
    """Print *value* as one JSON object over several lines."""
    click.echo(to_text(value))


def save(path: Path | None, text: str, more: str = "") -> None:
    """Write *text* to *path*, whole or not at all, and say so on stderr, with *more*; or print it.

    The latter without a path.
    """
    if path is None:
        click.echo(text, nl=False)
    else:
        write_text(path, text)
        click.echo(f"nvmesim: wrote {path}{more}", err=True)


def check_writable(*paths: Path | None) -> None:
    """Raise InputError now if one of *paths* could not be written later."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file to write")
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}; create it first")
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"{path}: the folder {path.parent} cannot be written")


def scenario_of(path: str, sets: Iterable[str] = ()) -> Scenario:
    """Return the scenario in *path* changed by *sets*; ScenarioError says what else it is."""
    from nvmesim.scenario.load import load_scenario

    try:
        return load_scenario(path, sets)
    except ScenarioError as error:
        other = _what_instead(Path(path))
        if other is None:
            raise
        raise ScenarioError(f"{path}: {other}") from error


def asked_of(scenario: Scenario) -> str:
    """Return the load of a scenario in words."""
    from nvmesim.scenario.resolve import resolve
    from nvmesim.show.answer import asked

    return asked(resolve(scenario))


def _what_instead(path: Path) -> str | None:
    """Say what *path* is if it is surely no scenario, and what to do with it; else None."""
    from nvmesim.catalog.load import find

    if not path.exists():
        try:
            kind = find(str(path)).kind
        except CatalogError:
            return None
        shown = f"'nvmesim catalog show {path}' shows it"
        return f"is a {kind} of the catalog, no scenario file; {shown}"
    if not path.is_file():
        return None
    from nvmesim.capture.registry import find_reader
    from nvmesim.capture.text import Source
    from nvmesim.capture.unrecognised import what_else

    source = Source(path)
    try:
        reader = find_reader(source)
    except CaptureError:
        pass
    else:
        return (
            f"is a capture ({reader.name}), no scenario; fit a drive to it with "
            f"'nvmesim calibrate {path} -o drive.toml', look at it with 'nvmesim trace {path}'"
        )
    try:
        found = what_else(source.head)
    except CaptureError:
        return None
    if found is None or found.kind == "scenario":
        return None
    return f"{found.text}, no scenario{_INSTEAD.get(found.kind, '').format(path=path)}"


Report = Callable[[str, float], None]
"""Called with what is being done and how far it is, 0 to 1."""
EVERY_S = 10.0
"""Off a terminal work that takes long says so often where it is."""


@contextmanager
def progress_bar(lines: str = "", *, left: bool = False) -> Iterator[Report | None]:
    """Give what moves a bar on stderr, with *left* also the time left; the bar goes when done.

    If that is not a terminal: None, or with *lines*, what the work is, a line every 10 s, for logs.
    """
    if not sys.stderr.isatty():
        with _spoken(lines) if lines else nullcontext() as report:
            yield report
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from nvmesim.show.words import one_line

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    rest = (TextColumn("left"), Remaining()) if left else ()
    with Progress(*columns, *rest, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(one_line(lines or "starting")), total=None)
        # a step that ends is not the end: the bar's clock would stop
        yield lambda what, share: bar.update(
            task, description=escape(one_line(what)), completed=min(share, 0.999),
            total=1.0 if share else None,
        )  # fmt: skip


@contextmanager
def _spoken(what: str) -> Iterator[Report]:
    """Give what notes the step in hand; every 10 s it is a line on stderr."""
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
    """Give what names the step in hand beside a bar on stderr; lines without a terminal."""
    with progress_bar(what) as report:
        assert report is not None
        yield lambda step: report(f"{what}: {step}", 0.0)


@contextmanager
def bytes_read(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what shows how many bytes of how many are read, None if stderr is not a terminal."""
    with progress_bar(left=True) as report:

        def moved(done: int, total: int) -> None:
            if report is not None:
                report(f"{what}: {done >> 20} MiB", done / total)

        yield moved if report is not None else None


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
