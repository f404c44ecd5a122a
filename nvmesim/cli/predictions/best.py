"""`nvmesim best`: the most IOPS within a latency goal, also with a drive failed."""

from __future__ import annotations

from pathlib import Path

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import (
    check_writable,
    json_option,
    output_path,
    print_json,
    seed_option,
    write_text,
)
from nvmesim.cli.progress import progress_bar, say_if_compiling

EXAMPLE = (
    "Example: nvmesim best server.toml --p99 1ms --over volume.raid=raid5,raid6,raid10 "
    "--report best.html"
)
STATES = ("healthy", "degraded", "rebuilding")


@click.command(epilog=EXAMPLE)
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option("--p99", metavar="TIME", help="99 % of all requests within this, as 1ms.")
@click.option("--p99.9", "p99_9", metavar="TIME", help="99.9 % of all requests within this.")
@click.option("--mean", metavar="TIME", help="Mean latency within this.")
@click.option("--cpu", metavar="SHARE", help="CPU load as the operating system shows it, as 50%.")
@click.option("--iops", metavar="RATE", help="Reach at least so many requests per second, as 3M.")
@click.option(
    "--over", multiple=True, metavar="KEY=VALUES",
    help="Compare designs, as volume.raid=raid5,raid6,raid10; repeatable, as in sweep.",
)  # fmt: skip
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one value; repeatable."
)
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES),
    help="Look at this state only; repeatable. Else all three, if there is a volume.",
)  # fmt: skip
@seed_option
@output_path("Write the answer, table and charts as one HTML page.", "--report")
@json_option
@bounded()
def best(
    scenario: str, p99: str | None, p99_9: str | None, mean: str | None, cpu: str | None,
    iops: str | None, over: tuple[str, ...], sets: tuple[str, ...], states: tuple[str, ...],
    seed: int | None, report: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Find the largest load that meets a goal.

    The most IOPS with p99 under a limit: healthy, with a drive failed, and while it rebuilds, for
    each design of --over. Threads and outstanding requests are searched, or the rate of an open
    loop. Exit code 1: nothing meets the goal; the answer says which limit fails and by how much.
    """
    check_writable(report)
    from nvmesim.cli.mistaken import scenario_of
    from nvmesim.study.best import best as search
    from nvmesim.study.sweep.plan import parse_over

    loaded, designs = scenario_of(scenario, sets), parse_over(over)
    say_if_compiling("compiled")
    with progress_bar() as progress:
        found = search(
            loaded, p99=p99, p99_9=p99_9, mean=mean, cpu=cpu, iops=iops, over=designs or None,
            states=states or None, seed=seed, progress=progress,
        )  # fmt: skip
    if report is not None:
        from nvmesim.show.studies.best_view import best_page

        write_text(report, best_page(found))
        click.echo(f"nvmesim: wrote {report}", err=True)
    if as_json:
        print_json(found.to_json())
    else:
        from nvmesim.show.studies.best_view import best_view
        from nvmesim.show.terminal import show

        show(best_view(found))
    return 0 if found.best is not None else 1
