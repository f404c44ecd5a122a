"""`nvmesim run`: predict what a scenario does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
    verbose_option,
    write_text,
)
from nvmesim.cli.progress import noting_interrupt, progress_bar, say_if_compiling, working

if TYPE_CHECKING:
    from nvmesim.predict.result import Result
    from nvmesim.scenario.schema import Scenario

ENGINES = ("compiled", "simpy")
CAPTION = (
    "Recorded by the SimPy engine from the first moment of the load. Thin: waiting, thick: being "
    "served; a command is what one drive is asked to do for its request."
)
EXAMPLE = "Example: nvmesim run server.toml --set drives.0.count=8 --report server.html"


@click.command(epilog=EXAMPLE)
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE",
    help="Change one value of the scenario, such as server.interconnect.links=3; repeatable.",
)  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES), default="compiled", show_default=True)
@seed_option
@click.option("--precision", metavar="SHARE", help="Stop at this 95 % interval of IOPS, as 1%.")
@output_path("Write one self-contained HTML page.", "--report")
@output_path("Write one row per request (Parquet).", "--requests")
@output_path("Write every step of some requests as an HTML chart.", "--timeline")
@json_option
@verbose_option
@bounded("1 h")
def run(
    scenario: str, sets: tuple[str, ...], engine: str, seed: int | None, precision: str | None,
    report: Path | None, requests: Path | None, timeline: Path | None, as_json: bool, verbose: bool,
) -> int:  # fmt: skip
    """Predict what a scenario does.

    IOPS, GB/s, latency, CPU, what the bottleneck is, and what relieving it would bring.
    """
    check_writable(report, requests, timeline)
    share = share_of(precision)
    from nvmesim.cli.mistaken import scenario_of
    from nvmesim.predict.simulate import simulate

    with saying_failure(as_json):
        loaded = scenario_of(scenario, sets)
    say_if_compiling(engine)
    with noting_interrupt() as pressed, saying_failure(as_json), progress_bar() as progress:
        result = simulate(
            loaded, engine=engine, seed=seed, precision=share, curve=report is not None,
            waits="load" if report else False, requests_file=requests, progress=progress,
            
        )  # fmt: skip
    result = replace(result, changes=sets)
    # Files first: a reader of stdout may go away. The answer in any case: a disk may be full.
    try:
        if report is not None:
            _write_report(report, result, Path(scenario), sets)
        if timeline is not None and not pressed:
            _write_timeline(timeline, loaded, result.seed)
    finally:
        _print(result, as_json, verbose)
    if pressed:
        return 130
    return 0 if result.converged and result.bottleneck.verdict != "unstable" else 1


@contextmanager
def saying_failure(as_json: bool) -> Iterator[None]:
    """With --json print an object also where the answer is that the array has failed."""
    from nvmesim.errors import FailedArrayError

    try:
        yield
    except FailedArrayError as failed:
        if as_json:
            print_json(failed.to_json())
        raise


def share_of(text: str | None) -> float | None:
    """Return the share in the option --precision; UnitError if it is out of range."""
    if text is None:
        return None
    from nvmesim.errors import UnitError
    from nvmesim.units import parse_fraction

    share = parse_fraction(text)
    if not 1e-4 <= share <= 0.5:
        raise UnitError(f"--precision {text!r} is out of range; write 0.01% to 50%")
    return share


def _print(result: Result, as_json: bool, verbose: bool) -> None:
    if as_json:
        print_json(result.to_json())
        return
    from nvmesim.show.terminal import result_view, show

    show(result_view(result, verbose=verbose))


def _write_report(path: Path, result: Result, scenario: Path, sets: tuple[str, ...]) -> None:
    from nvmesim.show.report import page

    with working("writing the report"):
        text = scenario.read_text("utf-8-sig", errors="replace")
        write_text(path, page(result, scenario_text=text, changes=sets))
    click.echo(f"nvmesim: wrote {path}", err=True)


def _write_timeline(path: Path, scenario: Scenario, seed: int) -> None:
    from nvmesim.cli.predictions.timeline import timeline
    from nvmesim.show.page import chart_page

    with working("recording every step"):
        drawn = timeline(scenario, seed=seed)
        title = f"{scenario.name or path.stem}: every step of the first requests"
        write_text(path, chart_page(drawn, title, CAPTION))
    click.echo(f"nvmesim: wrote {path}", err=True)
