"""Commands about inputs: `nvmesim sensitivity`, `nvmesim size` and `nvmesim diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from nvmesim.cli.output import asked_of, option, output_path, scenario_of
from nvmesim.cli.progress import progress_bar
from nvmesim.cli.simulating import Answer, simulates


@click.command(epilog="Example: nvmesim sensitivity server.toml --metric lat_p99_us")
@click.argument("scenario", metavar="SCENARIO.toml")
@option("--metric", "A column of `nvmesim sweep`.", default="iops", show_default=True)
@option("--all/--assumed everything", "Measured and fitted numbers too (the default), or assumed "
        "ones alone.", default=True)  # fmt: skip
@option("--spread SHARE", "Range of numbers that state no interval; default: by their basis.")
@click.option("--requests", type=click.IntRange(1000), default=40_000, show_default=True)
@output_path("Write the table: .parquet, .csv or .json.", "-o", "--output")
@simulates(report="Write the tornado chart and the table (HTML).", sets=True, seed=True,
           workers=True, verbose=True)  # fmt: skip
def sensitivity(
    scenario: str, sets: tuple[str, ...], metric: str, everything: bool, spread: str | None,
    requests: int, seed: int | None, workers: int | None, output: Path | None,
) -> Answer:  # fmt: skip
    """Show which uncertain input the answer depends on.

    Each uncertain number of the profiles in use is set to the low and the high end of its range,
    one at a time, and simulated again with the same random numbers. The one that moves the answer
    most comes first.
    """
    from nvmesim.study.sensitivity import sensitivity as study
    from nvmesim.study.sweep.store import check_format, write_frame
    from nvmesim.units import parse_fraction

    if output is not None:
        check_format(output)
    loaded = scenario_of(scenario, sets)
    share = None if spread is None else parse_fraction(spread)
    which: Literal["assumed", "all"] = "all" if everything else "assumed"
    with progress_bar(left=True) as progress:
        frame = study(
            loaded, metric=metric, which=which, spread=share, requests=requests, seed=seed,
            workers=workers, progress=progress,
        )  # fmt: skip
    if output is not None:
        write_frame(frame, output)
    from nvmesim.show.views.inputs import sensitivity_blocks, sensitivity_page

    name, asked = loaded.name or Path(scenario).stem, asked_of(loaded)
    return Answer(
        lambda: sensitivity_blocks(frame, metric, share, asked),
        lambda: {"metric": metric, "inputs": frame.to_dicts()},
        lambda: sensitivity_page(frame, metric, share, name, asked),
    )


@click.command(epilog="Example: nvmesim size --iops 3M --utilization 50% --stack windows-2019")
@option("--iops RATE", "Requests per second, such as 3M.", required=True)
@option("--utilization SHARE", "CPU load as the operating system shows it.", default="50%",
        show_default=True)  # fmt: skip
@option("--stack NAME", "Catalog name of the stack; default windows-2019.")
@option("--from stack_file STACK.toml", "A stack fitted on your own captures instead.",
        type=click.Path())  # fmt: skip
@option("--headroom SHARE", "Size for this much more load, as 20%.", default="0%")
@option("--read SHARE", "Fraction of requests that read.", default="100%")
@option("--filesystem NAME", "raw, ntfs, ext4, xfs.", default="raw")
@option("--cpu cpus NAME", "Rank this CPU of the catalog only; repeatable.", multiple=True)
@option("--all everything", "Show every CPU, not the nearest five.", is_flag=True)
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
    from nvmesim.show.views.inputs import sizing_blocks, sizing_page

    return Answer(
        lambda: sizing_blocks(sizing, everything=everything or bool(cpus)), sizing.to_json,
        lambda: sizing_page(sizing),
    )  # fmt: skip


@click.command(epilog="Example: nvmesim diagnose server.toml fio/*.json")
@click.argument("scenario", metavar="SCENARIO.toml")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@simulates(sets=True, seed=True, workers=True)
def diagnose(
    scenario: str, captures: tuple[str, ...], sets: tuple[str, ...], seed: int | None,
    workers: int | None,
) -> Answer:  # fmt: skip
    """Say why a server does not do what was predicted.

    CAPTURE is what was measured on it: a file, a folder or a glob, as for `nvmesim trace`. Each row
    is compared with its prediction; usual mistakes are simulated under the load of every row and
    weighted by how well they explain them all. Exit code 1: something is different.
    """
    from nvmesim.capture.registry import read_captures
    from nvmesim.show.views.measured import diagnosis_lines
    from nvmesim.study.diagnosis.diagnose import diagnose as explain

    loaded, found = scenario_of(scenario, sets), read_captures(captures)
    with progress_bar() as progress:
        answer = explain(loaded, found, seed=seed, workers=workers, progress=progress)
    code = 0 if answer.is_healthy else 1
    return Answer(lambda: list(diagnosis_lines(answer)), answer.to_json, code=code)
