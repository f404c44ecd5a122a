"""`nvmesim choose`: what to buy for a goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli.output import output_path
from nvmesim.cli.progress import points_bar
from nvmesim.cli.simulating import Answer, simulates

if TYPE_CHECKING:
    from nvmesim.study.choose import Choice


@click.command(epilog="Example: nvmesim choose goal.toml --report pareto.html")
@click.argument("goal", metavar="GOAL.toml")
@click.option(
    "--all", "everything", is_flag=True,
    help="Simulate every candidate that screening leaves, for a complete chart.",
)  # fmt: skip
@output_path("Write one row per candidate: .parquet, .csv or .json.", "-o", "--output")
@simulates(report="Write the answer, candidates and chart as one HTML page.", workers=True)
def choose(goal: str, workers: int | None, everything: bool, output: Path | None) -> Answer:
    """Choose what to buy for a goal.

    GOAL.toml names a scenario, candidates (keys and values as sweep takes them), constraints
    (iops, p99, cpu, capacity, survives, power, lanes, slots, price), an objective and prices. The
    answer comes with runner-ups, and the reason why each other candidate was rejected. Exit code 1:
    nothing meets the goal.
    """
    from nvmesim.study.choose import choose as search
    from nvmesim.study.choose import load_goal
    from nvmesim.study.sweep.output import check_format, write_frame

    if output is not None:
        check_format(output)
    loaded = load_goal(goal)
    with points_bar() as progress:
        choice = search(loaded, workers=workers, everything=everything, progress=progress)
    if output is not None:
        write_frame(choice.frame(), output)
    from nvmesim.show.studies.choice_view import blocks_of, choice_page

    title = choice.goal.name or Path(goal).stem
    return Answer(
        lambda: blocks_of(choice), lambda: _to_json(choice), lambda: choice_page(choice, title),
        0 if choice.chosen else 1,
    )  # fmt: skip


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
