"""`nvmesim sweep`: a scenario at many values of its parameters, as one table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import (
    check_writable,
    json_option,
    output_path,
    print_json,
    seed_option,
    workers_option,
)
from nvmesim.cli.progress import Report, say_if_compiling

if TYPE_CHECKING:
    import polars as pl

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
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE",
    help="Change one value at every point; repeatable.",
)  # fmt: skip
@output_path(
    "The table of points to write: .parquet, .csv or .json.", "-o", "--output", required=True
)
@output_path("Write pictures and points as one HTML page.", "--report")
@click.option("--resume", is_flag=True, help="Continue an interrupted sweep.")
@workers_option
@click.option("--dask", metavar="ADDRESS", help="Simulate on the Dask cluster of this scheduler.")
@click.option(
    "--samples",
    type=click.IntRange(1),
    metavar="N",
    help="Sample so many points instead of the whole grid.",
)
@click.option(
    "--method", type=click.Choice(("lhs", "random")), help="How points are sampled.  [default: lhs]"
)
@click.option("--sample-seed", type=click.IntRange(0, 2**62), default=1, show_default=True)
@seed_option
@click.option(
    "--precision", metavar="SHARE", help="Stop each point at this 95 % interval of IOPS, as 1%."
)
@click.option(
    "--requests", type=click.IntRange(1), help="Simulate exactly so many requests at each point."
)
@click.option("--no-cache", is_flag=True, help="Do not use the cache of finished points.")
@click.option(
    "--no-certainty",
    is_flag=True,
    help="Intervals of the simulation alone; a short point takes a tenth of the time.",
)
@json_option
@bounded()
def sweep(
    scenario: str, over: tuple[str, ...], sets: tuple[str, ...], output: Path,
    report: Path | None, resume: bool, workers: int | None, dask: str | None,
    samples: int | None, method: str | None, sample_seed: int, seed: int | None,
    precision: str | None, requests: int | None, no_cache: bool, no_certainty: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Simulate a scenario at many values of its parameters.

    Writes one row per point: its parameters and all results. Finished points are kept beside the
    output until the sweep is complete; --resume continues after an interruption. A combination that
    cannot be built is a row with its reason in the column error. Exit code 1: points did not reach
    the precision, or no point with one of the values can be built.
    """
    check_writable(output, report)
    from nvmesim.cli.mistaken import scenario_of
    from nvmesim.cli.predictions.run import share_of
    from nvmesim.show.studies.sweep_view import never
    from nvmesim.study.sweep import SweepTally
    from nvmesim.study.sweep import sweep as run
    from nvmesim.study.sweep.plan import parse_over

    loaded, parsed = scenario_of(scenario, sets), parse_over(over)
    say_if_compiling("compiled")
    tally = SweepTally()
    with _kept(output), points_bar() as progress:
        frame = run(
            loaded, parsed, output=output, resume=resume, samples=samples, method=method,
            sample_seed=sample_seed, workers=workers, dask=dask, seed=seed,
            precision=share_of(precision), requests=requests, cache=not no_cache,
            certainty=not no_certainty, progress=progress, tally=tally,
        )  # fmt: skip
    keys = [key.strip() for key in parsed]
    if report is not None:
        _write_report(report, frame, keys, loaded.name or Path(scenario).stem, sets)
    lost = never(frame, keys)
    if as_json:
        rows = frame.to_dicts()
        print_json({"output": str(output), **vars(tally), "never": lost, "rows": rows})
    else:
        _print(frame, tally, output, keys, grid=samples is None)
    return 1 if tally.unconverged or lost or tally.failed == len(frame) else 0


def _write_report(
    path: Path, frame: pl.DataFrame, keys: list[str], title: str, sets: tuple[str, ...]
) -> None:
    from nvmesim.cli.output import write_text
    from nvmesim.show.studies.sweep_page import sweep_page

    write_text(path, sweep_page(frame, keys, title=title, changes=sets))


@contextmanager
def _kept(output: Path) -> Iterator[None]:
    """Say after Ctrl-C or a full disk where the finished points are."""
    try:
        yield
    except (KeyboardInterrupt, OSError):
        partial = output.with_name(f"{output.name}.partial")
        if partial.exists():
            click.echo(
                f"nvmesim: finished points are kept in {partial}; --resume continues", err=True
            )
        raise


@contextmanager
def points_bar() -> Iterator[Report | None]:
    """Give what moves a bar with the time left on stderr, None if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def report(what: str, share: float) -> None:
            bar.update(task, description=escape(what), completed=share)

        yield report


def _print(
    frame: pl.DataFrame, tally: SweepTally, output: Path, keys: list[str], grid: bool
) -> None:
    from nvmesim.show.studies.sweep_view import sweep_view
    from nvmesim.show.terminal import show
    from nvmesim.show.words import plural

    parts = [plural(tally.points, "point")]
    parts += [f"{tally.kept:,} kept from before"] if tally.kept else []
    parts += [f"{tally.cached:,} from the cache"] if tally.cached else []
    parts += [f"{tally.failed:,} that cannot be built (column error)"] if tally.failed else []
    parts += [f"{tally.unconverged:,} short of the precision (~)"] if tally.unconverged else []
    click.echo(f"{output} written: {', '.join(parts)}")
    show(sweep_view(frame, keys, grid=grid))
