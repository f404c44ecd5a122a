"""One decorator for the commands that simulate: their common options, and how an answer leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import (
    check_writable,
    json_option,
    output_path,
    print_json,
    seed_option,
    verbose_option,
    workers_option,
    write_text,
)
from nvmesim.cli.progress import say_if_compiling, working

if TYPE_CHECKING:
    from nvmesim.show.blocks import Block

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Answer:
    """What a command found: as blocks, as JSON, as a page, and its exit code."""

    blocks: Callable[[], Sequence[Block]]
    json: Callable[[], Any]
    page: Callable[[], str] | None = None
    code: int = 0


set_option = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE",
    help="Change one value of the scenario, such as server.interconnect.links=3; repeatable.",
)  # fmt: skip


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
        @functools.wraps(command)
        def run(
            *args: Any, as_json: bool, report: Path | None = None, verbose: bool = False,
            **options: Any,
        ) -> int:  # fmt: skip
            written = (v for v in options.values() if isinstance(v, Path))
            check_writable(report, *written)
            say_if_compiling(options.get("engine", "compiled"))
            answer: Answer = command(*args, **options | _passed(command, as_json, report))
            try:
                if report is not None and answer.page is not None:
                    _write(report, answer.page)
            finally:
                _print(answer, as_json, verbose)
            return answer.code

        found: Any = bounded(usual_time)(run)
        options = [
            (report, output_path(report, "--report")), (sets, set_option), (seed, seed_option),
            (workers, workers_option), (verbose, verbose_option), (True, json_option),
        ]  # fmt: skip
        for asked, option in reversed(options):
            found = option(found) if asked else found
        return cast(Command, found)

    return decorated


def _passed(command: Callable[..., Any], as_json: bool, report: Path | None) -> dict[str, Any]:
    """Those of the common options that *command* itself asks for."""
    names = command.__code__.co_varnames[: command.__code__.co_argcount]
    return {k: v for k, v in (("as_json", as_json), ("report", report)) if k in names}


def _write(path: Path, page: Callable[[], str]) -> None:
    with working("writing the report"):
        write_text(path, page())
    click.echo(f"nvmesim: wrote {path}", err=True)


def _print(answer: Answer, as_json: bool, verbose: bool) -> None:
    if as_json:
        print_json(answer.json())
        return
    from nvmesim.show.terminal import show

    show(answer.blocks(), verbose=verbose)
