"""`nvmesim describe`: a scenario from a server's own dumps."""

from __future__ import annotations

from pathlib import Path

import click

from nvmesim.cli.output import check_writable, json_option, output_path, print_json, write_text


@click.command(
    epilog="Example: nvmesim describe lscpu.txt lspci-vv.txt nvme-list.json -o server.toml"
)
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--collect", is_flag=True, help="Print the script to run on the server, as root.")
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
    if collect:
        if files:
            raise click.UsageError("--collect prints a script and reads no FILE")
        if output is None:
            click.echo(collecting_script(), nl=False)
        else:
            write_text(output, collecting_script())
            click.echo(
                f"nvmesim: wrote {output}; on the server, as root: sh {output.name} > server.txt"
            )
        return 0
    if not files:
        raise click.UsageError(
            "give dumps of a server, or --collect for the script that makes them"
        )
    found = description(files)
    if output is not None:
        write_text(output, found.text)
    if as_json:
        print_json(found.to_json())
    elif output is None:
        click.echo(found.text, nl=False)
    else:
        click.echo(f"nvmesim: wrote {output}; check what it assumes, and put your load there")
        for text in found.ignored:
            click.echo(f"ignored: {text}")
        for text in found.missing:
            click.echo(f"missing: {text}")
    return 0
