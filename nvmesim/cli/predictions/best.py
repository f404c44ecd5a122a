"""`nvmesim best`: the most IOPS within a latency goal, also with a drive failed."""

from __future__ import annotations

import click

from nvmesim.cli.progress import progress_bar
from nvmesim.cli.simulating import Answer, simulates

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
    "--state", "states", multiple=True, type=click.Choice(STATES),
    help="Look at this state only; repeatable. Else all three, if there is a volume.",
)  # fmt: skip
@simulates(report="Write the answer, table and charts as one HTML page.", sets=True, seed=True)
def best(
    scenario: str, p99: str | None, p99_9: str | None, mean: str | None, cpu: str | None,
    iops: str | None, over: tuple[str, ...], sets: tuple[str, ...], states: tuple[str, ...],
    seed: int | None,
) -> Answer:  # fmt: skip
    """Find the largest load that meets a goal.

    The most IOPS with p99 under a limit: healthy, with a drive failed, and while it rebuilds, for
    each design of --over. Threads and outstanding requests are searched, or the rate of an open
    loop. Exit code 1: nothing meets the goal; the answer says which limit fails and by how much.
    """
    from nvmesim.cli.mistaken import scenario_of
    from nvmesim.study.best import best as search
    from nvmesim.study.sweep.plan import parse_over

    loaded, designs = scenario_of(scenario, sets), parse_over(over)
    with progress_bar() as progress:
        found = search(
            loaded, p99=p99, p99_9=p99_9, mean=mean, cpu=cpu, iops=iops, over=designs or None,
            states=states or None, seed=seed, progress=progress,
        )  # fmt: skip
    from nvmesim.show.studies.best_view import best_page, blocks_of

    code = 0 if found.best is not None else 1
    return Answer(lambda: blocks_of(found), found.to_json, lambda: best_page(found), code)
