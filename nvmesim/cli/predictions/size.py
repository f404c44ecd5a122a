"""`nvmesim size`: how many GHz a load needs, and which CPUs carry it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli.output import check_writable, json_option, output_path, print_json, write_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nvmesim.study.size import Sizing

EXAMPLE = "Example: nvmesim size --iops 3M --utilization 50% --stack windows-2019"


@click.command(epilog=EXAMPLE)
@click.option("--iops", required=True, metavar="RATE", help="Requests per second, such as 3M.")
@click.option(
    "--utilization", default="50%", show_default=True, metavar="SHARE",
    help="CPU load as the operating system shows it.",
)  # fmt: skip
@click.option("--stack", metavar="NAME", help="Catalog name of the stack; default windows-2019.")
@click.option(
    "--from", "stack_file", metavar="STACK.toml", type=click.Path(path_type=Path),
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
@output_path(
    "Write GHz against MIOPS, and utilization against MIOPS of every CPU, as an HTML page.",
    "--report",
)
@json_option
def size(
    iops: str, utilization: str, stack: str | None, stack_file: Path | None, headroom: str,
    read: str, filesystem: str, cpus: tuple[str, ...], report: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Show how many GHz a load needs.

    By the published rule, and with SMT; then every CPU of the catalog, with one and two sockets,
    and the utilization that it would show.
    """
    from nvmesim.errors import InputError
    from nvmesim.study.size import size_cpu
    from nvmesim.units import parse_fraction, parse_rate

    check_writable(report)
    if stack is not None and stack_file is not None:
        raise InputError("--stack and --from exclude each other; keep one")
    sizing = size_cpu(
        parse_rate(iops), parse_fraction(utilization), stack_file or stack or "windows-2019",
        headroom=parse_fraction(headroom), read=parse_fraction(read), filesystem=filesystem,
        cpus=cpus or None,
    )  # fmt: skip
    if as_json:
        print_json(sizing.to_json())
    else:
        from nvmesim.show.terminal import show

        show(_view(sizing))
    if report is not None:
        from nvmesim.show.page import chart_page

        write_text(report, chart_page(sizing.chart(), "GHz and CPU utilization against MIOPS"))
        click.echo(f"nvmesim: wrote {report}", err=True)
    return 0


def _view(sizing: Sizing) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import plain, rows_view
    from nvmesim.units import format_iops

    load = sizing.load
    head = f"{format_iops(load.iops)} at {load.utilization:.0%} CPU, {load.stack.name}"
    answers = [
        ("published rule", f"{sizing.ghz_per_miops:.1f}", f"{sizing.ghz:.0f}"),
        ("SMT counted", f"{sizing.smt_ghz_per_miops:.1f}", f"{sizing.smt_ghz:.0f}"),
    ]
    rows = [
        (
            f"{cpu.sockets} x {cpu.name}", f"{cpu.ghz:.0f}", f"{cpu.rule_utilization:.0%}",
            f"{cpu.logical_utilization:.0%}", f"{cpu.physical_utilization:.0%}",
            format_iops(cpu.most_iops), cpu.words(),
        )
        for cpu in sizing.cpus
    ]  # fmt: skip
    headings = (
        "CPUs", "GHz", "% by the rule", "% as shown", "% of the cores", "full at", "carries it",
    )  # fmt: skip
    asked = (
        f"% as shown: by the operating system at {format_iops(load.iops)}; the margin is to the "
        f"{load.utilization:.0%} asked for, and up to 5 points over still count as carried"
    )
    return Group(
        plain(head, "bold"),
        Text(),
        rows_view(("", "GHz per MIOPS", "GHz"), answers, left=1),
        plain(sizing.reason, "dim"),
        Text(),
        rows_view(headings, rows, left=1),
        plain(asked, "dim"),
    )
