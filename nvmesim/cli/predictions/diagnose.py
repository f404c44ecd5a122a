"""`nvmesim diagnose`: why a server does not do what was predicted."""

from __future__ import annotations

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import json_option, print_json, seed_option, workers_option
from nvmesim.cli.progress import progress_bar, say_if_compiling


@click.command(epilog="Example: nvmesim diagnose server.toml fio/*.json")
@click.argument("scenario", metavar="SCENARIO.toml")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one value; repeatable."
)
@seed_option
@workers_option
@json_option
@bounded()
def diagnose(
    scenario: str, captures: tuple[str, ...], sets: tuple[str, ...], seed: int | None,
    workers: int | None, as_json: bool,
) -> int:  # fmt: skip
    """Say why a server does not do what was predicted.

    CAPTURE is what was measured on it: a file, a folder or a glob, as for `nvmesim trace`. Each row
    is compared with its prediction; usual mistakes are simulated under the load of every row and
    weighted by how well they explain them all. Exit code 1: something is different.
    """
    from nvmesim.capture.registry import read_captures
    from nvmesim.cli.mistaken import scenario_of
    from nvmesim.study.diagnosis.diagnose import diagnose as explain

    loaded, found = scenario_of(scenario, sets), read_captures(captures)
    say_if_compiling("compiled")
    with progress_bar() as progress:
        answer = explain(loaded, found, seed=seed, workers=workers, progress=progress)
    if as_json:
        print_json(answer.to_json())
    else:
        from nvmesim.show.studies.diagnosis_view import diagnosis_lines

        for line in diagnosis_lines(answer):
            click.echo(line)
    return 0 if answer.is_healthy else 1
