"""`nvmesim sensitivity`: which uncertain input the answer depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from nvmesim.cli.output import output_path
from nvmesim.cli.progress import points_bar
from nvmesim.cli.simulating import Answer, simulates


@click.command(epilog="Example: nvmesim sensitivity server.toml --metric lat_p99_us")
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option("--metric", default="iops", show_default=True, help="A column of `nvmesim sweep`.")
@click.option(
    "--all/--assumed", "everything", default=True,
    help="Measured and fitted numbers too (the default), or assumed ones alone.",
)  # fmt: skip
@click.option(
    "--spread", metavar="SHARE",
    help="Range of numbers that state no interval; default: by their basis.",
)  # fmt: skip
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
    from nvmesim.cli.mistaken import asked_of, scenario_of
    from nvmesim.study.sensitivity import sensitivity as study
    from nvmesim.study.sweep.output import check_format, write_frame
    from nvmesim.units import parse_fraction

    if output is not None:
        check_format(output)
    loaded = scenario_of(scenario, sets)
    share = None if spread is None else parse_fraction(spread)
    which: Literal["assumed", "all"] = "all" if everything else "assumed"
    with points_bar() as progress:
        frame = study(
            loaded, metric=metric, which=which, spread=share, requests=requests, seed=seed,
            workers=workers, progress=progress,
        )  # fmt: skip
    if output is not None:
        write_frame(frame, output)
    from nvmesim.show.studies.input_views import sensitivity_blocks, sensitivity_page

    name, asked = loaded.name or Path(scenario).stem, asked_of(loaded)
    return Answer(
        lambda: sensitivity_blocks(frame, metric, share, asked),
        lambda: {"metric": metric, "inputs": frame.to_dicts()},
        lambda: sensitivity_page(frame, metric, share, name, asked),
    )
