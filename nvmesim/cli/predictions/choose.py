"""`nvmesim choose`: what to buy for a goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import check_writable, json_option, output_path, print_json, workers_option
from nvmesim.cli.progress import say_if_compiling

if TYPE_CHECKING:
    from nvmesim.study.choose import Choice
    from nvmesim.study.choose.search import Candidate

REJECTED_SHOWN = 12


@click.command(epilog="Example: nvmesim choose goal.toml --report pareto.html")
@click.argument("goal", metavar="GOAL.toml")
@workers_option
@click.option(
    "--all", "everything", is_flag=True,
    help="Simulate every candidate that screening leaves, for a complete chart.",
)  # fmt: skip
@output_path("Write one row per candidate: .parquet, .csv or .json.", "-o", "--output")
@output_path("Write the answer, candidates and chart as one HTML page.", "--report")
@json_option
@bounded()
def choose(
    goal: str, workers: int | None, everything: bool, output: Path | None, report: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Choose what to buy for a goal.

    GOAL.toml names a scenario, candidates (keys and values as sweep takes them), constraints
    (iops, p99, cpu, capacity, survives, power, lanes, slots, price), an objective and prices. The
    answer comes with runner-ups, and the reason why each other candidate was rejected. Exit code 1:
    nothing meets the goal.
    """
    check_writable(output, report)
    from nvmesim.cli.predictions.sweep import points_bar
    from nvmesim.study.choose import choose as search
    from nvmesim.study.choose import load_goal
    from nvmesim.study.sweep.output import check_format, write_frame

    if output is not None:
        check_format(output)
    loaded = load_goal(goal)
    say_if_compiling("compiled")
    with points_bar() as progress:
        choice = search(loaded, workers=workers, everything=everything, progress=progress)
    if output is not None:
        write_frame(choice.frame(), output)
    if report is not None:
        _write_report(report, choice)
    if as_json:
        print_json(_to_json(choice))
    else:
        _print(choice)
    return 0 if choice.chosen else 1


def _write_report(path: Path, choice: Choice) -> None:
    from nvmesim.cli.output import write_text
    from nvmesim.show.studies.choice_view import choice_page

    write_text(path, choice_page(choice, choice.goal.name or path.stem))


def _to_json(choice: Choice) -> dict[str, Any]:
    rows = choice.frame().to_dicts()
    return {
        "goal": choice.goal.name,
        "objective": choice.goal.objective.minimize,
        "answer": str(choice),
        "chosen": rows[0] if choice.chosen else None,
        "runner_ups": [r for r in rows if r["state"] == "runner-up"],
        "others": [r for r in rows if r["state"] in ("rejected", "not simulated")],
    }


def _print(choice: Choice) -> None:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import bullets, plain, rows_view, show

    parts: list[Any] = [plain(choice.goal.name or "goal", "bold"), Text(), plain(str(choice))]
    met = [c for c in (choice.chosen, *choice.runner_ups) if c is not None]
    if met:
        headings = ("candidate", choice.goal.objective.minimize, "drives", "W", "IOPS", "p99 us",
                    "CPU", "holds", "stopped by")  # fmt: skip
        parts += [Text(), rows_view(headings, [_row(choice, c) for c in met], left=1)]
        parts += [plain(f"warning  {text}", "yellow") for text in _warnings(met[0])]
    rejected = [c for c in choice.candidates if c.state == "rejected"]
    if rejected:
        lines = [f"{choice.named(c)}: {c.reason}" for c in rejected[:REJECTED_SHOWN]]
        parts += [Text(), plain(f"{len(rejected)} rejected", "dim"), *bullets(lines)]
    more = len(rejected) - REJECTED_SHOWN
    if more > 0:
        parts.append(plain(f"{more} more (-o writes all, with the reason of each)", "dim"))
    idle = sum(c.state == "not simulated" for c in choice.candidates)
    if idle:
        parts.append(plain(f"{idle} not simulated: no better than the runner-ups (--all)", "dim"))
    show(Group(*parts))


def _warnings(candidate: Candidate) -> list[str]:
    return [text for text in str(candidate.row.get("warnings") or "").split("; ") if text]


def _row(choice: Choice, candidate: Candidate) -> tuple[str, ...]:
    from nvmesim.show.words import kiops, percent

    row, figures = candidate.row, candidate.fixed
    watts = figures.power if figures else None
    return (
        choice.named(candidate),
        f"{candidate.cost(choice.goal.objective.minimize):,.6g}",
        str(figures.drives if figures else ""),
        "-" if watts is None else f"{watts:,.0f}",
        kiops(row["iops"]),
        "-" if row["lat_p99_us"] is None else f"{row['lat_p99_us']:,.0f}",
        percent(row["cpu_logical"]),
        percent(candidate.p_meets),
        str(row["station"]),
    )
