"""`nvmesim size`: how many GHz a load needs, and which CPUs carry it."""

from __future__ import annotations

from pathlib import Path

import click

from nvmesim.cli.simulating import Answer, simulates

EXAMPLE = "Example: nvmesim size --iops 3M --utilization 50% --stack windows-2019"


@click.command(epilog=EXAMPLE)
@click.option("--iops", required=True, metavar="RATE", help="Requests per second, such as 3M.")
@click.option(
    "--utilization", default="50%", show_default=True, metavar="SHARE",
    help="CPU load as the operating system shows it.",
)  # fmt: skip
@click.option("--stack", metavar="NAME", help="Catalog name of the stack; default windows-2019.")
@click.option(
    "--from", "stack_file", metavar="STACK.toml", type=click.Path(),
    help="A stack fitted on your own captures instead.",
)  # fmt: skip
@click.option(
    "--headroom", default="0%", metavar="SHARE", help="Size for this much more load, as 20%."
)
@click.option("--read", default="100%", metavar="SHARE", help="Fraction of requests that read.")
@click.option("--filesystem", default="raw", metavar="NAME", help="raw, ntfs, ext4, xfs.")
@click.option(
    "--cpu", "cpus", multiple=True, metavar="NAME",
    help="Rank this CPU of the catalog only; repeatable.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Show every CPU, not the nearest five.")
@simulates(report="Write the load, the charts and every CPU as an HTML page.")
def size(
    iops: str, utilization: str, stack: str | None, stack_file: str | None, headroom: str,
    read: str, filesystem: str, cpus: tuple[str, ...], everything: bool,
) -> Answer:  # fmt: skip
    """Show how many GHz a load needs, without RAID.

    By the published rule, and with hyper-threads counted; then the CPUs of the catalog that are
    nearest to it, with one and two sockets, and how busy they would be.
    """
    from nvmesim.errors import InputError
    from nvmesim.study.size import size_cpu
    from nvmesim.units import parse_fraction, parse_rate

    if stack is not None and stack_file is not None:
        raise InputError("--stack and --from exclude each other; keep one")
    sizing = size_cpu(
        parse_rate(iops), parse_fraction(utilization),
        Path(stack_file) if stack_file else stack or "windows-2019",
        headroom=parse_fraction(headroom), read=parse_fraction(read), filesystem=filesystem,
        cpus=cpus or None,
    )  # fmt: skip
    from nvmesim.show.studies.input_views import sizing_blocks, sizing_page

    return Answer(
        lambda: sizing_blocks(sizing, everything=everything or bool(cpus)), sizing.to_json,
        lambda: sizing_page(sizing),
    )  # fmt: skip
