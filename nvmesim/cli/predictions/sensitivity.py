"""`nvmesim sensitivity`: which uncertain input the answer depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import (
    check_writable,
    json_option,
    output_path,
    print_json,
    seed_option,
    workers_option,
    write_text,
)
from nvmesim.cli.progress import say_if_compiling

if TYPE_CHECKING:
    import polars as pl

SHOWN = 16


@click.command(epilog="Example: nvmesim sensitivity server.toml --metric lat_p99_us")
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one value; repeatable."
)
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
@seed_option
@workers_option
@output_path("Write the table: .parquet, .csv or .json.", "-o", "--output")
@output_path("Write the tornado chart (HTML).", "--report")
@json_option
@bounded()
def sensitivity(
    scenario: str, sets: tuple[str, ...], metric: str, everything: bool, spread: str | None,
    requests: int, seed: int | None, workers: int | None, output: Path | None,
    report: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Show which uncertain input the answer depends on.

    Each uncertain number of the profiles in use is set to the low and the high end of its range,
    one at a time, and simulated again with the same random numbers. The one that moves the answer
    most comes first.
    """
    check_writable(output, report)
    from nvmesim.cli.predictions.sweep import points_bar
    from nvmesim.scenario.load import load_scenario
    from nvmesim.study.sensitivity import sensitivity as study
    from nvmesim.study.sweep.output import check_format, write_frame
    from nvmesim.units import parse_fraction

    if output is not None:
        check_format(output)
    loaded = load_scenario(scenario, sets)
    share = None if spread is None else parse_fraction(spread)
    which: Literal["assumed", "all"] = "all" if everything else "assumed"
    say_if_compiling("compiled")
    with points_bar() as progress:
        frame = study(
            loaded, metric=metric, which=which, spread=share, requests=requests, seed=seed,
            workers=workers, progress=progress,
        )  # fmt: skip
    if output is not None:
        write_frame(frame, output)
    if report is not None:
        _write_report(report, frame, metric, loaded.name or Path(scenario).stem)
    if as_json:
        print_json({"metric": metric, "inputs": frame.to_dicts()})
    else:
        _print(frame, metric, share)
    return 0


def _write_report(path: Path, frame: pl.DataFrame, metric: str, name: str) -> None:
    from nvmesim.show.charts.sweep import tornado
    from nvmesim.show.page import chart_page

    text = _said(frame, metric)
    write_text(path, chart_page(tornado(frame), f"{name}: what {metric} depends on", text))


def _said(frame: pl.DataFrame, metric: str) -> str:
    if not len(frame) or not frame["share"][0]:
        return f"{metric} depends on no uncertain number"
    first = frame.row(0, named=True)
    best = frame.sort("without").row(0, named=True)
    return (
        f"{metric}: {first['input']} carries {first['share']:.0%} of the interval; measuring "
        f"{best['measure']} would narrow it from ±{100 * best['whole']:.0f} % to "
        f"±{100 * best['without']:.0f} %"
    )


def _print(frame: pl.DataFrame, metric: str, spread: float | None) -> None:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import plain, rows_view, show
    from nvmesim.show.words import plural

    def change(value: float | None) -> str:
        return "-" if value is None else f"{100 * value + 0.0:+.1f} %".replace("-0.0", "+0.0")

    other = "by its basis" if spread is None else f"±{spread:.0%}"
    rows = [
        (r["input"], r["value"], r["basis"], "its own" if r["stated"] else other,
         change(r["change_low"]), change(r["change_high"]), f"{r['share']:.0%}",
         f"±{100 * r['without']:.0f} %")
        for r in frame[:SHOWN].to_dicts()
    ]  # fmt: skip
    headings = ("input", "value", "basis", "range", f"{metric} at low", "at high", "carries",
                "once measured")  # fmt: skip
    parts = [plain(_said(frame, metric), "bold"), Text(), rows_view(headings, rows, left=4)]
    if len(frame) > SHOWN:
        parts.append(plain(f"{plural(len(frame) - SHOWN, 'input')} more (-o writes all)", "dim"))
    show(Group(*parts))
