"""`nvmesim sweep`: a scenario at many values of its parameters, as one table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli.output import output_path
from nvmesim.cli.progress import points_bar
from nvmesim.cli.simulating import Answer, simulates

if TYPE_CHECKING:
    from nvmesim.study.sweep import SweepTally

EXAMPLE = (
    "Example: nvmesim sweep server.toml --over drives.0.count=4..24..4 "
    "--over volume.raid=raid0,raid10,raid5 -o sweep.parquet"
)


@click.command(epilog=EXAMPLE)
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option(
    "--over", multiple=True, required=True, metavar="KEY=VALUES",
    help="Values of one key: a list 4,8,16, a range 4..24, 0..1..0.1 or 1..256..x2; repeatable, "
    "every combination is simulated. * in KEY stands for each element of a list.",
)  # fmt: skip
@output_path("The table of points to write: .parquet, .csv or .json; else it is only printed.",
             "-o", "--output")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue an interrupted sweep.")
@click.option("--dask", metavar="ADDRESS", help="Simulate on the Dask cluster of this scheduler.")
@click.option(
    "--samples", type=click.IntRange(1), metavar="N",
    help="Sample so many points instead of the whole grid.",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice(("lhs", "random")), help="How points are sampled.  [default: lhs]"
)
@click.option("--sample-seed", type=click.IntRange(0, 2**62), default=1, show_default=True)
@click.option(
    "--precision", metavar="SHARE", help="Stop each point at this 95 % interval of IOPS, as 1%."
)
@click.option(
    "--requests", type=click.IntRange(1), help="Simulate exactly so many requests at each point."
)
@click.option("--no-cache", is_flag=True, help="Do not use the cache of finished points.")
@click.option(
    "--no-certainty", is_flag=True,
    help="Intervals of the simulation alone; a short point takes a tenth of the time.",
)  # fmt: skip
@simulates(report="Write pictures and points as one HTML page.", sets=True, seed=True, workers=True)
def sweep(
    scenario: str, over: tuple[str, ...], sets: tuple[str, ...], output: Path | None,
    resume: bool, workers: int | None, dask: str | None, samples: int | None, method: str | None,
    sample_seed: int, seed: int | None, precision: str | None, requests: int | None,
    no_cache: bool, no_certainty: bool,
) -> Answer:  # fmt: skip
    """Simulate a scenario at many values of its parameters.

    Prints the points, and writes one row per point with -o: its parameters and all results.
    Finished points are kept beside the output until the sweep is complete; --resume continues
    after an interruption. A combination that cannot be built is a row with its reason in the column
    error. Exit code 1: points did not reach the precision, or no point with one of the values can
    be built.
    """
    from nvmesim.cli.mistaken import asked_of, scenario_of
    from nvmesim.cli.predictions.run import share_of
    from nvmesim.show.blocks import Line
    from nvmesim.show.studies.sweep_view import never, sweep_blocks, sweep_page
    from nvmesim.study.sweep import SweepTally
    from nvmesim.study.sweep import sweep as run
    from nvmesim.study.sweep.plan import parse_over

    loaded, parsed = scenario_of(scenario, sets), parse_over(over)
    tally = SweepTally()
    with _kept(output), points_bar() as progress:
        frame = run(
            loaded, parsed, output=output, resume=resume, samples=samples, method=method,
            sample_seed=sample_seed, workers=workers, dask=dask, seed=seed,
            precision=share_of(precision), requests=requests, cache=not no_cache,
            certainty=not no_certainty, progress=progress, tally=tally,
        )  # fmt: skip
    keys = [key.strip() for key in parsed]
    lost, asked = never(frame, keys), asked_of(loaded)
    if no_certainty:
        asked += "; intervals hold the simulation's chance alone (--no-certainty)"
    title = loaded.name or Path(scenario).stem
    code = 1 if tally.unconverged or lost or tally.failed == len(frame) else 0
    return Answer(
        lambda: [
            Line(_counted(tally, output)),
            *sweep_blocks(frame, keys, grid=samples is None, asked=asked),
        ],
        lambda: {"output": output and str(output), **vars(tally), "never": lost,
                 "rows": frame.to_dicts()},
        lambda: sweep_page(frame, keys, title=title, asked=asked, changes=sets), code,
    )  # fmt: skip


@contextmanager
def _kept(output: Path | None) -> Iterator[None]:
    """Say after Ctrl-C or a full disk where the finished points are."""
    try:
        yield
    except (KeyboardInterrupt, OSError):
        partial = output and output.with_name(f"{output.name}.partial")
        if partial and partial.exists():
            click.echo(
                f"nvmesim: finished points are kept in {partial}; --resume continues", err=True
            )
        raise


def _counted(tally: SweepTally, output: Path | None) -> str:
    """Where the points are written, and how many there are of each kind."""
    from nvmesim.show.words import plural

    parts = [plural(tally.points, "point")]
    parts += [f"{tally.kept:,} kept from before"] if tally.kept else []
    parts += [f"{tally.cached:,} from the cache"] if tally.cached else []
    parts += [f"{tally.failed:,} that cannot be built (column error)"] if tally.failed else []
    parts += [f"{tally.unconverged:,} short of the precision (~)"] if tally.unconverged else []
    written = f"{output} written: " if output else ""
    return written + ", ".join(parts)
