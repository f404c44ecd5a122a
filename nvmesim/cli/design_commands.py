"""Commands about designs: `best`, `choose`, `compare`, `sensitivity`, `size`, `diagnose`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli.output import asked_of, option, output_path, progress_bar, scenario_of
from nvmesim.cli.simulating import Answer, simulates

if TYPE_CHECKING:
    from nvmesim.scenario.schema import Scenario
    from nvmesim.show.blocks import Block


@click.command(
    epilog="Example: nvmesim best server.toml --p99 1ms --over volume.raid=raid5,raid6,raid10 "
    "--report best.html"
)
@click.argument("scenario", metavar="SCENARIO.toml")
@option("--p99 TIME", "99 % of all requests within this, as 1ms.")
@option("--p99.9 p99_9 TIME", "99.9 % of all requests within this.")
@option("--mean TIME", "Mean latency within this.")
@option("--cpu SHARE", "CPU load as the operating system shows it, as 50%.")
@option("--iops RATE", "Reach at least so many requests per second, as 3M.")
@option("--over KEY=VALUES", "Compare designs, as volume.raid=raid5,raid6,raid10; repeatable, as "
        "in sweep.", multiple=True)  # fmt: skip
@option("--state states", "Look at this state only; repeatable. Else all three, if there is a "
        "volume.", multiple=True, type=click.Choice(("healthy", "degraded", "rebuilding"))
        )  # fmt: skip
@simulates(report="Write the answer, table and charts as one HTML page.", sets=True, seed=True)
def best(
    scenario: str, over: tuple[str, ...], sets: tuple[str, ...], states: tuple[str, ...],
    seed: int | None, **goal: str | None,
) -> Answer:  # fmt: skip
    """Find the largest load that meets a goal.

    The most IOPS with p99 under a limit: healthy, with a drive failed, and while it rebuilds, for
    each design of --over. Threads and outstanding requests are searched, or the rate of an open
    loop. Exit code 1: nothing meets the goal; the answer says which limit fails and by how much.
    """
    from nvmesim.study.best import best as search
    from nvmesim.study.sweep.plan import parse_over

    loaded, designs = scenario_of(scenario, sets), parse_over(over)
    with progress_bar() as progress:
        found = search(
            loaded, over=designs or None, states=states or None, seed=seed, progress=progress,
            **goal,
        )  # fmt: skip
    from nvmesim.show.views.designs import best_blocks, best_page

    code = 0 if found.best is not None else 1
    return Answer(lambda: best_blocks(found), found.to_json, lambda: best_page(found), code)


@click.command(epilog="Example: nvmesim choose goal.toml --report pareto.html")
@click.argument("goal", metavar="GOAL.toml")
@option("--all everything", "Simulate every candidate that screening leaves, for a complete "
        "chart.", is_flag=True)  # fmt: skip
@output_path("Write one row per candidate: .parquet or .csv.", "-o", "--output")
@simulates(report="Write the answer, candidates and chart as one HTML page.", workers=True)
def choose(goal: str, workers: int | None, everything: bool, output: Path | None) -> Answer:
    """Choose what to buy for a goal.

    GOAL.toml names a scenario, candidates (keys and values as sweep takes them), constraints
    (iops, p99, cpu, capacity, survives, power, lanes, slots, price), an objective and prices. The
    answer comes with runner-ups, and the reason why each other candidate was rejected. Exit code 1:
    nothing meets the goal.
    """
    from nvmesim.study.choose import choose as search
    from nvmesim.study.designs import load_goal
    from nvmesim.study.sweep.store import check_format, write_frame

    if output is not None:
        check_format(output)
    loaded = load_goal(goal)
    with progress_bar(left=True) as progress:
        choice = search(loaded, workers=workers, everything=everything, progress=progress)
    if output is not None:
        write_frame(choice.frame(), output)
    from nvmesim.show.views.designs import choice_blocks, choice_page

    def json() -> dict[str, Any]:
        rows = choice.frame().to_dicts()
        return {
            "goal": choice.goal.name,
            "objective": choice.goal.objective.minimize,
            "answer": str(choice),
            "chosen": rows[0] if choice.chosen else None,
            "runner_ups": [r for r in rows if r["state"] == "runner-up"],
            "others": [r for r in rows if r["state"] in ("rejected", "not simulated")],
        }

    title = choice.goal.name or Path(goal).stem
    return Answer(
        lambda: choice_blocks(choice, title), json, lambda: choice_page(choice, title),
        0 if choice.chosen else 1,
    )  # fmt: skip


@click.command(epilog="Example: nvmesim compare server.toml --set server.interconnect.links=3")
@click.argument("scenarios", metavar="SCENARIO.toml [OTHER.toml ...]", nargs=-1, required=True)
@option("--requests", "Requests of each design, after its warm-up; default: as the precision "
        "needs.", type=click.IntRange(1000))  # fmt: skip
@simulates(sets=True, seed=True, workers=True)
def compare(
    scenarios: tuple[str, ...], sets: tuple[str, ...], requests: int | None, seed: int | None,
    workers: int | None,
) -> Answer:  # fmt: skip
    """Compare designs that draw the same random numbers.

    With two designs (or one and --set): the difference, its 95 % interval, and how likely one does
    more. With three or more: which is best, and how likely it does more than each of the others.
    """
    from nvmesim.errors import InputError
    from nvmesim.predict.simulate import compare as compared
    from nvmesim.show.views.designs import comparison_blocks, ranking_blocks
    from nvmesim.study.rank import rank

    if bool(sets) != (len(scenarios) == 1):
        text = "--set changes the one scenario" if sets else "one scenario is given"
        raise InputError(f"{text}; name another, or a single one and --set KEY=VALUE")
    designs = _loaded(scenarios, sets)
    if len(designs) == 2:
        a, b = designs
        found = replace(compared(*designs.values(), requests=requests, seed=seed), a=a, b=b)
        return Answer(
            lambda: [*_files(designs, scenarios), *comparison_blocks(found)], lambda: vars(found)
        )
    ranking = rank(designs, seed=seed or 1, workers=workers, requests=requests)
    rows = ranking.table.to_dicts()
    json = {"answer": str(ranking), "probability": ranking.probability, "table": rows,
            "warnings": ranking.warnings}  # fmt: skip
    return Answer(lambda: [*_files(designs, scenarios), *ranking_blocks(ranking)], lambda: json)


def _files(designs: dict[str, Scenario], files: tuple[str, ...]) -> list[Block]:
    """Which file each design is, where its name does not say it."""
    from nvmesim.show.blocks import Line

    of = [f"{f}: {n}" for n, f in zip(designs, files, strict=False) if n not in (f, Path(f).stem)]
    return [Line(" | ".join(of), "soft")] if of else []


def _loaded(files: tuple[str, ...], sets: tuple[str, ...]) -> dict[str, Scenario]:
    """Designs by a name of their own: of the scenario, of the file, or of what is set."""
    found = [scenario_of(file) for file in files]
    names = [s.name or Path(f).stem for s, f in zip(found, files, strict=True)]
    if sets:
        found.append(scenario_of(files[0], sets))
        names.append(", ".join(sets))
    if len(set(names)) < len(names):
        names = list(files)
    if len(set(names)) < len(names):
        names = [f"{name} ({i + 1})" for i, name in enumerate(names)]
    return dict(zip(names, found, strict=True))


@click.command(epilog="Example: nvmesim sensitivity server.toml --metric lat_p99_us")
@click.argument("scenario", metavar="SCENARIO.toml")
@option("--metric", "A column of `nvmesim sweep`.", default="iops", show_default=True)
@click.option("--requests", type=click.IntRange(1000), default=40_000, show_default=True)
@output_path("Write the table: .parquet or .csv.", "-o", "--output")
@simulates(report="Write the tornado chart and the table (HTML).", sets=True, seed=True,
           workers=True, verbose=True)  # fmt: skip
def sensitivity(
    scenario: str, sets: tuple[str, ...], metric: str, output: Path | None, **options: Any
) -> Answer:  # fmt: skip
    """Show which uncertain input the answer depends on.

    Each uncertain number of the profiles in use is set to the low and the high end of its range,
    one at a time, and simulated again with the same random numbers. The one that moves the answer
    most comes first.
    """
    from nvmesim.study.sensitivity import sensitivity as study
    from nvmesim.study.sweep.store import check_format, write_frame

    if output is not None:
        check_format(output)
    loaded = scenario_of(scenario, sets)
    with progress_bar(left=True) as progress:
        frame = study(loaded, metric=metric, progress=progress, **options)
    if output is not None:
        write_frame(frame, output)
    from nvmesim.show.views.inputs import sensitivity_blocks, sensitivity_page

    name, asked = loaded.name or Path(scenario).stem, asked_of(loaded)
    return Answer(
        lambda: sensitivity_blocks(frame, metric, asked),
        lambda: {"metric": metric, "inputs": frame.to_dicts()},
        lambda: sensitivity_page(frame, metric, name, asked),
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
        lambda: sizing_blocks(sizing, all_cpus=everything or bool(cpus)), sizing.to_json,
        lambda: sizing_page(sizing),
    )  # fmt: skip


@click.command(epilog="Example: nvmesim diagnose server.toml fio/*.json")
@click.argument("scenario", metavar="SCENARIO.toml")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@simulates(report="Write rows, explanations and what to do as one HTML page.", sets=True, seed=True,
           workers=True)  # fmt: skip
def diagnose(
    scenario: str, captures: tuple[str, ...], sets: tuple[str, ...], **options: int | None
) -> Answer:
    """Say why a server does not do what was predicted.

    CAPTURE is what was measured on it: a file, a folder or a glob, as for `nvmesim trace`. Each row
    is compared with its prediction; usual mistakes are simulated under the load of every row, and
    each gets the probability that it explains them all. Exit code 1: something is different.
    """
    from nvmesim.show.views.measured import diagnosis_blocks, diagnosis_page
    from nvmesim.study.diagnosis.diagnose import diagnose as explain

    loaded = scenario_of(scenario, sets)
    with progress_bar() as progress:
        answer = explain(loaded, captures, progress=progress, **options)
    return Answer(lambda: diagnosis_blocks(answer), answer.to_json,
                  lambda: diagnosis_page(answer), code=0 if answer.is_healthy else 1)  # fmt: skip
