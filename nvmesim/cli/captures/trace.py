"""`nvmesim trace`: what is in a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nvmesim.cli.output import json_option, to_text, verbose_option
from nvmesim.cli.progress import bytes_read

if TYPE_CHECKING:
    from nvmesim.capture.capture import Captures

BAD_INPUT = 2


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
        from nvmesim.capture.as_json import describe_capture

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
    from nvmesim.show.blocks import Warnings
    from nvmesim.show.evidence.capture_view import blocks_of
    from nvmesim.show.terminal import show

    for number, capture in enumerate(found.files):
        if number:
            click.echo()
        show(blocks_of(capture), verbose=verbose)
    if found.unread:
        show([Warnings(tuple(f"not read: {reason}" for reason in found.unread))])
