"""`nvmesim trace`: what is in a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nvmesim.cli.output import json_option, to_text, verbose_option
from nvmesim.cli.progress import bytes_read

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nvmesim.capture.capture import Capture, Captures

BAD_INPUT = 2
LISTED = 20
"""Measurements of a file that are printed unless --verbose asks for all."""


@click.command(
    epilog="Example: nvmesim trace fio/qd1.json fio/qd32.json   (or a folder, or 'fio/*.json')"
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@json_option
@verbose_option
def trace(captures: tuple[str, ...], as_json: bool, verbose: bool) -> int:
    """Show what is in a capture.

    Format, conditions, counts, latencies and warnings of each file. CAPTURE is a file, a folder or
    a glob; formats are recognised by content. With --json it prints one object per file, one
    per line. A file that cannot be read is reported on stderr, the others are shown, and the
    exit code is 2.
    """
    from nvmesim.capture.registry import read_captures

    refused: list[str] = []
    with bytes_read("reading captures") as progress:
        found = read_captures(captures, progress=progress, refused=refused)
    if as_json:
        from nvmesim.capture.describe import describe_capture

        for capture in found.files:
            click.echo(to_text(describe_capture(capture), indent=None))
        for reason in found.unread:
            click.echo(f"nvmesim: not read: {reason}", err=True)
    else:
        _print(found, verbose)
    for reason in refused:
        click.echo(f"nvmesim: {one_line(reason)}", err=True)
    return BAD_INPUT if refused else 0


def one_line(text: str) -> str:
    """*text* without what would end a line."""
    from nvmesim.show.words import one_line as shortened

    return shortened(text)


def _print(found: Captures, verbose: bool) -> None:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import show, warnings_view

    for number, capture in enumerate(found.files):
        show(Group(*([Text()] if number else []), *_view(capture, verbose)))
    if found.unread:
        show(Group(*warnings_view([f"not read: {reason}" for reason in found.unread])))


def _view(capture: Capture, verbose: bool) -> list[RenderableType]:
    from rich.text import Text

    from nvmesim.show.capture_view import HEADINGS, headline, rows
    from nvmesim.show.terminal import plain, rows_view, warnings_view

    parts: list[RenderableType] = [
        plain(str(capture.file), "bold"),
        plain(headline(capture), "dim"),
    ]
    every = rows(capture)
    shown = every if verbose else every[:LISTED]
    parts += [Text(), rows_view(HEADINGS, shown, left=3)]
    if len(shown) < len(every):
        parts.append(Text(f"{len(every) - len(shown)} more (--verbose lists them)", "dim"))
    warnings = [*capture.warnings]
    for measurement in capture.measurements:
        warnings += [f"{measurement.label}: {w}" for w in measurement.warnings]
    return [*parts, *warnings_view(warnings)]
