"""`nvmesim trace` shows what is in a capture; `nvmesim describe` reads a server's own dumps."""

from __future__ import annotations

from pathlib import Path

import click

from nvmesim.cli.output import (
    bytes_read,
    check_writable,
    json_option,
    option,
    output_path,
    print_json,
    to_text,
    verbose_option,
)
from nvmesim.files import write_text


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
    from nvmesim.capture.as_json import describe_capture
    from nvmesim.capture.registry import read_captures
    from nvmesim.show.blocks import Warnings
    from nvmesim.show.terminal import show
    from nvmesim.show.views.measured import capture_blocks
    from nvmesim.show.words import one_line

    refused: list[str] = []
    with bytes_read("reading captures") as progress:
        found = read_captures(captures, progress=progress, refused=refused)
    unread = tuple(f"not read: {reason}" for reason in found.unread)
    for number, capture in enumerate(found.files):
        if as_json:
            click.echo(to_text(describe_capture(capture), indent=None))
        else:
            if number:
                click.echo()
            show(capture_blocks(capture), verbose=verbose)
    if unread and not as_json:
        show([Warnings(unread)])
    for reason in (*unread, *refused) if as_json else refused:
        click.echo(f"nvmesim: {one_line(reason)}", err=True)
    return 2 if refused else 0


@click.command(
    epilog="Example: nvmesim describe lscpu.txt lspci-vv.txt nvme-list.json -o server.toml"
)
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@option("--collect", "Print the script to run on the server, as root.", is_flag=True)
@output_path("The scenario to write; default: print it.", "-o", "--output")
@json_option
def describe(files: tuple[Path, ...], collect: bool, output: Path | None, as_json: bool) -> int:
    """Write a scenario from a server's own dumps.

    FILE is what `describe --collect` prints a script for, or any of its parts: what lscpu (text or
    -J), lspci -vv, lstopo --of xml, nvme list (text or JSON), lsblk -J, mdadm --detail printed, or
    a copy of /proc/mdstat. Several may stand in one file. Comments say what was read, ignored and
    assumed.
    """
    from nvmesim.describe import collecting_script, description

    check_writable(output)
    if collect and files:
        raise click.UsageError("--collect prints a script and reads no FILE")
    if not collect and not files:
        raise click.UsageError(
            "give dumps of a server, or --collect for the script that makes them"
        )
    found = None if collect else description(files)
    text = collecting_script() if found is None else found.text
    if output is not None:
        write_text(output, text)
        what = "check what it assumes, and put your load there"
        if collect:
            what = f"on the server, as root: sh {output.name} > server.txt"
        if collect or not as_json:
            click.echo(f"nvmesim: wrote {output}; {what}")
    if found is not None and as_json:
        print_json(found.to_json())
    elif output is None:
        click.echo(text, nl=False)
    elif found is not None:
        for line in (*(f"ignored: {t}" for t in found.ignored),
                     *(f"missing: {t}" for t in found.missing)):  # fmt: skip
            click.echo(line)
    return 0
