"""`nvmesim describe`: a scenario from a server's own dumps."""

from __future__ import annotations

from pathlib import Path

import click

from nvmesim.cli.output import check_writable, output_path, write_text


@click.command(
    epilog="Example: nvmesim describe lscpu.txt lspci-vv.txt nvme-list.json -o server.toml"
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@output_path("The scenario to write; left out: printed.", "-o", "--output")
def describe(files: tuple[Path, ...], output: Path | None) -> int:
    """Write a scenario from a server's own dumps.

    FILE is what lscpu (text, -J, -p), lspci -vv or -tv, lstopo --of xml, nvme list -o json,
    mdadm --detail, numactl -H, Get-PhysicalDisk, Get-StoragePool or Get-VirtualDisk printed, or a
    copy of /proc/mdstat; which one is told by its content. Comments say what was read and what had
    to be assumed.
    """
    from nvmesim.describe import describe as scenario_of

    check_writable(output)
    text = scenario_of(files)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
        click.echo(f"{output} written; check what it lists as assumed, and put your load there")
    return 0
