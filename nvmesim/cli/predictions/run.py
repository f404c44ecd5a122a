"""`nvmesim run`: predict what a scenario does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli.output import output_path, print_json, write_text
from nvmesim.cli.progress import noting_interrupt, progress_bar, working
from nvmesim.cli.simulating import Answer, simulates

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario

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
@click.option("--precision", metavar="SHARE", help="Stop at this 95 % interval of IOPS, as 1%.")
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
    from nvmesim.cli.mistaken import scenario_of
    from nvmesim.predict.simulate import simulate

    share = share_of(precision)
    with saying_failure(as_json):
        loaded = scenario_of(scenario, sets)
    with noting_interrupt() as pressed, saying_failure(as_json), progress_bar() as progress:
        result = simulate(
            loaded, engine=engine, seed=seed, precision=share, curve=report is not None,
            waits="load" if report else False, requests_file=requests, progress=progress,
        )  # fmt: skip
    result = replace(result, changes=sets)
    if timeline is not None and not pressed:
        _write_timeline(timeline, loaded, result.seed)

    def page() -> str:
        from nvmesim.show.report import page

        text = Path(scenario).read_text("utf-8-sig", errors="replace")
        return page(result, scenario_text=text, changes=sets)

    from nvmesim.show.answer import blocks_of

    ended = result.converged and result.bottleneck.verdict != "unstable"
    code = 130 if pressed else 0 if ended else 1
    return Answer(lambda: blocks_of(result), result.to_json, page, code)


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


def _write_timeline(path: Path, scenario: Scenario, seed: int) -> None:
    """Simulate until the first requests are done and draw what each met, and when."""
    from nvmesim.show.blocks import Line
    from nvmesim.show.charts.timeline import chart
    from nvmesim.show.page import chart_page
    from nvmesim.study.timeline import timeline as recorded

    with working("recording every step"):
        title = f"{scenario.name or path.stem}: every step of the first requests"
        drawn = chart(recorded(scenario, seed=seed))
        write_text(path, chart_page(drawn, title, Line(CAPTION, "soft")))
    click.echo(f"nvmesim: wrote {path}", err=True)
