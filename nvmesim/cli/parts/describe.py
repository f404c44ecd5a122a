"""`nvmesim describe`: a scenario from a server's own dumps."""

from __future__ import annotations

from pathlib import Path

import click

from nvmesim.cli.output import check_writable, json_option, output_path, print_json, write_text


@click.command(
    epilog="Example: nvmesim describe lscpu.txt lspci-vv.txt nvme-list.json -o server.toml"
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@output_path("The scenario to write; default: print it.", "-o", "--output")
@json_option
def describe(files: tuple[Path, ...], output: Path | None, as_json: bool) -> int:
    """Write a scenario from a server's own dumps.

    FILE is what lscpu (text, -J, -p), lspci -vv or -tv, lstopo --of xml, nvme list -o json,
    mdadm --detail, numactl -H, Get-PhysicalDisk, Get-StoragePool or Get-VirtualDisk printed, or a
    copy of /proc/mdstat; which one is recognised by its content. Comments say what was read and
    what had to be assumed.
    """
    from nvmesim.describe import description

    check_writable(output)
    found = description(files)
    if output is not None:
        write_text(output, found.text)
    if as_json:
        print_json(found.to_json())
    elif output is None:
        click.echo(found.text, nl=False)
    else:
        click.echo(f"{output} written; check what it lists as assumed, and put your load there")
        for text in found.missing:
            click.echo(f"missing: {text}")
    return 0
