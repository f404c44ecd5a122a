"""One decorator for the commands that simulate: their common options, and how an answer leaves."""

from __future__ import annotations

import _thread
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from nvmesim import limits
from nvmesim.cli import output as out
from nvmesim.cli.output import output_path
from nvmesim.errors import NvmesimError, UnitError

if TYPE_CHECKING:
    from nvmesim.show.blocks import Block

Command = TypeVar("Command", bound=Callable[..., Any])

LEAST_MEMORY: Final = 1 << 20
MOST_TIME_S: Final = 366 * 86_400.0


class Unbounded(click.Option):
    """A number in a range so wide that its help need not tell it."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what the help says of the option beside its text."""
        return {key: text for key, text in super().get_help_extra(ctx).items() if key != "range"}


@dataclass(frozen=True)
class Answer:
    """What a command found: as blocks, as JSON, as a page, and its exit code."""

    blocks: Callable[[], Sequence[Block]]
    json: Callable[[], Any]
    page: Callable[[], str] | None = None
    code: int = 0


class OutOfTimeError(NvmesimError):
    """There is no answer yet when the time is over."""

    exit_code = 1


def simulates(
    *, report: str = "", sets: bool = False, seed: bool = False, workers: bool = False,
    verbose: bool = False, usual_time: str = "",
) -> Callable[[Command], Command]:  # fmt: skip
    """Return what makes a function that returns an `Answer` a command's body.

    *report*: help of ``--report``, which writes the answer's page; the others add ``--set``,
    ``--seed``, ``--workers`` and ``--verbose``. All have ``--json``, ``--max-time`` (*usual_time*)
    and ``--max-memory``. Files are written before anything is printed: a reader of stdout may go
    away. The answer is printed in any case: a disk may be full.
    """

    def decorated(command: Command) -> Command:
        names = command.__code__.co_varnames[: command.__code__.co_argcount]

        def body(as_json: bool, report: Path | None, verbose: bool, **options: Any) -> int:
            out.check_writable(report, *(v for v in options.values() if isinstance(v, Path)))
            out.say_if_compiling(options.get("engine", "compiled"))
            common = {"as_json": as_json, "report": report}
            answer = command(**options, **{k: v for k, v in common.items() if k in names})
            try:
                if report is not None and answer.page is not None:
                    with out.steps("writing the report"):
                        page = answer.page()
                    out.save(report, page)
            finally:
                _print(answer, as_json, verbose)
            return int(answer.code)

        @functools.wraps(command)
        def run(
            as_json: bool, max_memory: str | None, max_time: str | None,
            report: Path | None = None, verbose: bool = False, **options: Any,
        ) -> int:  # fmt: skip
            time = max_time or usual_time
            with _memory(max_memory), _deadline(time) as over:
                try:
                    code = body(as_json, report, verbose, **options)
                except KeyboardInterrupt:
                    if over.is_set():
                        raise OutOfTimeError(f"stopped after --max-time {time}") from None
                    raise
            if over.is_set():
                what = "what was finished is printed"
                click.echo(f"nvmesim: stopped after --max-time {time}: {what}", err=True)
            return max(code, 1) if over.is_set() and code in (0, 1) else code

        found: Any = run
        for asked, option in reversed(_options(report, sets, seed, workers, verbose, usual_time)):
            found = option(found) if asked else found
        return cast(Command, found)

    return decorated


def _options(
    report: str, sets: bool, seed: bool, workers: bool, verbose: bool, usual_time: str
) -> list[tuple[object, Callable[[Any], Any]]]:
    """The common options in their order, each with whether it is asked for."""
    usual = f"  [default: {usual_time}]" if usual_time else ""
    return [
        (report, output_path(report, "--report")),
        (sets, click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE",
            help="Change one value of the scenario, such as server.interconnect.links=3; "
            "repeatable.")),
        (seed, click.option("--seed", metavar="N", type=click.IntRange(0, 2**62), cls=Unbounded,
                            help="Seed of the random numbers; default: the scenario's.")),
        (workers, click.option("--workers", metavar="N", type=click.IntRange(1, 1024),
                               cls=Unbounded, help="Processes; default: one per CPU.")),
        (verbose, out.verbose_option),
        (True, out.json_option),
        (True, click.option(
            "--max-memory", metavar="SIZE",
            help="Memory for requests in flight, per process.  [default: 4 GiB]")),
        (True, click.option(
            "--max-time", metavar="TIME",
            help=f"Stop after this time and print what is finished, as 10 s.{usual}")),
    ]  # fmt: skip


def _print(answer: Answer, as_json: bool, verbose: bool) -> None:
    if as_json:
        out.print_json(answer.json())
        return
    from nvmesim.show.terminal import show

    show(answer.blocks(), verbose=verbose)


@contextmanager
def _memory(text: str | None) -> Iterator[None]:
    """Let requests in flight take so much in the body, and in processes that it starts."""
    if text is None:
        yield
        return
    from nvmesim.units import parse_size

    size = parse_size(text)
    if size < LEAST_MEMORY:
        raise UnitError(f"--max-memory {text!r} is too little; at least 1 MiB")
    before = os.environ.get(limits.VARIABLE)
    os.environ[limits.VARIABLE] = str(size)
    try:
        yield
    finally:
        if before is None:
            del os.environ[limits.VARIABLE]
        else:
            os.environ[limits.VARIABLE] = before


@contextmanager
def _deadline(text: str) -> Iterator[threading.Event]:
    """Give what is set once so long has passed; then the body sees KeyboardInterrupt, once."""
    over = threading.Event()
    if not text or threading.current_thread() is not threading.main_thread():
        yield over
        return
    from nvmesim.units import PS_PER_S, parse_time_ps

    seconds = parse_time_ps(text) / PS_PER_S
    if not 1e-3 <= seconds <= MOST_TIME_S:
        raise UnitError(f"--max-time {text!r} is out of range; write 1 ms to a year")

    def late() -> None:
        over.set()
        _thread.interrupt_main()

    if not hasattr(signal, "setitimer"):  # Windows: as if Ctrl-C were pressed
        timer = threading.Timer(seconds, late)
        timer.daemon = True
        timer.start()
        try:
            yield over
        finally:
            timer.cancel()
        return

    def ring(number: int, frame: FrameType | None) -> None:
        over.set()
        raise KeyboardInterrupt  # work ends as it does after Ctrl-C

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield over
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
