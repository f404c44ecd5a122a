"""`nvmesim run` predicts what a scenario does; `nvmesim sweep` at many values of its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli import output as out
from nvmesim.cli.output import option, output_path
from nvmesim.cli.simulating import Answer, simulates

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario
    from nvmesim.study.sweep.api import SweepTally

ENGINES = ("compiled", "simpy")
CAPTION = (
    "Recorded by the SimPy engine from the first moment of the load. Thin: waiting, thick: being "
    "served; a command is what one drive is asked to do for its request."
)


@click.command(
    epilog="Example: nvmesim run server.toml --set drives.0.count=8 --report server.html"
)
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option("--engine", type=click.Choice(ENGINES), default="compiled", show_default=True)
@option("--precision SHARE", "Simulate until chance moves IOPS by no more than this, as 1%.")
@output_path("Write one row per request (Parquet).", "--requests")
@output_path("Write every step of some requests as an HTML chart.", "--timeline")
@simulates(report="Write one self-contained HTML page.", sets=True, seed=True, verbose=True,
           usual_time="1 h")  # fmt: skip
def run(
    scenario: str, sets: tuple[str, ...], engine: str, seed: int | None, precision: str | None,
    report: Path | None, requests: Path | None, timeline: Path | None, as_json: bool,
) -> Answer:  # fmt: skip
    """Predict what a scenario does.

    IOPS, GB/s, latency, CPU, what the bottleneck is, and what would help. --verbose shows how it is
    known.
    """
    from nvmesim.predict.simulate import simulate

    share = _share(precision)
    with _saying_failure(as_json):
        loaded = out.scenario_of(scenario, sets)
    with out.noting_interrupt() as pressed, _saying_failure(as_json), out.progress_bar() as bar:
        result = simulate(
            loaded, engine=engine, seed=seed, precision=share, curve=report is not None,
            requests_file=requests, progress=bar,
        )  # fmt: skip
    result = replace(result, changes=sets)
    if timeline is not None and not pressed.is_set():
        _write_timeline(timeline, loaded, result.seed)

    def page() -> str:
        from nvmesim.show.report import page

        text = Path(scenario).read_text("utf-8-sig", errors="replace")
        return page(result, scenario_text=text, changes=sets)

    from nvmesim.show.answer import blocks_of

    ended = result.converged and result.bottleneck.verdict != "unstable"
    code = 130 if pressed.is_set() else 0 if ended else 1
    return Answer(lambda: blocks_of(result), result.to_json, page, code)


@contextmanager
def _saying_failure(as_json: bool) -> Iterator[None]:
    """With --json print an object also where the answer is that the array has failed."""
    from nvmesim.errors import FailedArrayError

    try:
        yield
    except FailedArrayError as failed:
        if as_json:
            out.print_json(failed.to_json())
        raise


def _share(text: str | None) -> float | None:
    """Return the share in the option --precision; UnitError if it is out of range."""
    if text is None:
        return None
    from nvmesim.errors import UnitError
    from nvmesim.units import parse_fraction

    share = parse_fraction(text)
    if not 1e-4 <= share <= 0.5:
        raise UnitError(f"--precision {text!r} is out of range; write 0.01% to 50%")
    return share


def _write_timeline(path: Path, scenario: Scenario, seed: int) -> None:
    """Simulate until the first requests are done and draw what each met, and when."""
    from nvmesim.show.blocks import Line
    from nvmesim.show.page import chart_page
    from nvmesim.study.timeline import timeline as recorded

    with out.steps("recording every step"):
        title = f"{scenario.name or path.stem}: every step of the first requests"
        page = chart_page(recorded(scenario, seed=seed).chart(), title, Line(CAPTION, "soft"))
    out.save(path, page)


@click.command(
    epilog="Example: nvmesim sweep server.toml --over drives.0.count=4..24..4 "
    "--over volume.raid=raid0,raid10,raid5 -o sweep.parquet"
)
@click.argument("scenario", metavar="SCENARIO.toml")
@option("--over KEY=VALUES", "Values of one key: a list 4,8,16, a range 4..24, 0..1..0.1 or "
        "1..256..x2; repeatable, every combination is simulated. * in KEY stands for each element "
        "of a list.", multiple=True, required=True)  # fmt: skip
@output_path("The table of points to write: .parquet or .csv; else it is only printed.",
             "-o", "--output")  # fmt: skip
@option("--resume", "Continue an interrupted sweep.", is_flag=True)
@option("--dask ADDRESS", "Simulate on the Dask cluster of this scheduler.")
@option("--precision SHARE", "Simulate each point until chance moves IOPS by no more, as 1%.")
@option("--requests", "Simulate exactly so many requests at each point.", type=click.IntRange(1))
@option("--no-cache", "Do not use the cache of finished points.", is_flag=True)
@option("--no-certainty", "No intervals; a short point takes a tenth of the time.", is_flag=True)
@simulates(report="Write pictures and points as one HTML page.", sets=True, seed=True, workers=True)
def sweep(
    scenario: str, over: tuple[str, ...], sets: tuple[str, ...], output: Path | None,
    precision: str | None, no_cache: bool, no_certainty: bool, **options: Any,
) -> Answer:  # fmt: skip
    """Simulate a scenario at many values of its parameters.

    Prints the points, and writes one row per point with -o: its parameters and all results.
    Finished points are kept beside the output until the sweep is complete; --resume continues
    after an interruption. A combination that cannot be built is a row with its reason in the column
    error. Exit code 1: points did not reach the precision, or no point with one of the values can
    be built.
    """
    from nvmesim.show.blocks import Line
    from nvmesim.show.views.sweep_tables import never, sweep_blocks, sweep_page
    from nvmesim.study.sweep.api import SweepTally
    from nvmesim.study.sweep.api import sweep as swept
    from nvmesim.study.sweep.plan import parse_over

    loaded, parsed = out.scenario_of(scenario, sets), parse_over(over)
    tally = SweepTally()
    with _kept(output), out.progress_bar(left=True) as progress:
        frame = swept(
            loaded, parsed, output=output, precision=_share(precision),
            cache=not no_cache, certainty=not no_certainty, progress=progress, tally=tally,
            **options,
        )  # fmt: skip
    keys = [key.strip() for key in parsed]
    lost, asked = never(frame, keys), out.asked_of(loaded)
    if no_certainty:
        asked += "; without intervals (--no-certainty)"
    title = loaded.name or Path(scenario).stem
    code = 1 if tally.unconverged or lost or tally.failed == len(frame) else 0
    return Answer(
        lambda: [
            Line(_counted(tally, output)),
            *sweep_blocks(frame, keys, asked=asked),
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
