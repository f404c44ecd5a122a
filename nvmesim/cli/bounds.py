"""``--max-memory`` and ``--max-time`` of the commands that simulate."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar, cast

import click

from nvmesim import limits
from nvmesim.errors import NvmesimError, UnitError

Command = TypeVar("Command", bound=Callable[..., int])

LEAST_MEMORY: Final = 1 << 20
MOST_TIME_S: Final = 366 * 86_400.0


class TimeIsUp(KeyboardInterrupt):
    """The time of ``--max-time`` is over: work ends as it does after Ctrl-C."""


class OutOfTimeError(NvmesimError):
    """There is no answer yet when the time is over."""

    exit_code = 1


def bounded(usual_time: str = "") -> Callable[[Command], Command]:
    """Return what gives a command both options; *usual_time* holds unless another is asked for."""

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, max_memory: str | None, max_time: str | None, **options: Any) -> int:
            time = max_time or usual_time
            with memory_of(max_memory), deadline(seconds_of(time)) as over:
                try:
                    code = command(*args, **options)
                except KeyboardInterrupt:
                    if over:
                        raise OutOfTimeError(f"stopped after --max-time {time}") from None
                    raise
            if over:
                click.echo(
                    f"nvmesim: stopped after --max-time {time}: what was finished is printed",
                    err=True,
                )
            return max(code, 1) if over and code in (0, 1) else code

        text = f"  [default: {usual_time}]" if usual_time else ""
        for option in (
            click.option("--max-time", metavar="TIME",
                         help=f"Stop after this time and print what is finished, as 10 s.{text}"),
            click.option("--max-memory", metavar="SIZE",
                         help="Memory for requests in flight, per process.  [default: 4 GiB]"),
        ):  # fmt: skip
            run = option(run)
        return cast(Command, run)

    return decorated


def seconds_of(text: str) -> float | None:
    """Return the seconds in an option; None without one.

    >>> seconds_of("90 s"), seconds_of("")
    (90.0, None)
    """
    if not text:
        return None
    from nvmesim.units import PS_PER_S, parse_time_ps

    seconds = parse_time_ps(text) / PS_PER_S
    if not 1e-3 <= seconds <= MOST_TIME_S:
        raise UnitError(f"--max-time {text!r} is out of range; write 1 ms to a year")
    return seconds


@contextmanager
def memory_of(text: str | None) -> Iterator[None]:
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
def deadline(seconds: float | None) -> Iterator[list[bool]]:
    """Give a list that is empty until so long has passed; then the body sees TimeIsUp, once."""
    over: list[bool] = []
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield over
        return
    if not hasattr(signal, "setitimer"):  # Windows
        yield from _by_thread(seconds, over)
        return

    def ring(number: int, frame: FrameType | None) -> None:
        over.append(True)
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield over
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _by_thread(seconds: float, over: list[bool]) -> Iterator[list[bool]]:
    """The same where there is no such signal: as if Ctrl-C were pressed."""
    import _thread

    def ring() -> None:
        over.append(True)
        _thread.interrupt_main()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()
