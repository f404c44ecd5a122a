"""`nvmesim compare`: what changes from one design to another, or which of several is best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli.simulating import Answer, simulates

if TYPE_CHECKING:
    from nvmesim.measure.paired import Comparison
    from nvmesim.scenario.schema import Scenario

EXAMPLE = "Example: nvmesim compare server.toml --set server.interconnect.links=3"


@click.command(epilog=EXAMPLE)
@click.argument("scenarios", metavar="SCENARIO.toml [OTHER.toml ...]", nargs=-1, required=True)
@click.option(
    "--requests", type=click.IntRange(1000),
    help="Requests of each design, after its warm-up; default: as the precision needs.",
)  # fmt: skip
@click.option(
    "--metric", default="iops", show_default=True, help="Metric by which three or more are ranked."
)
@click.option("--probability", metavar="SHARE", default="95%", show_default=True,
              help="Of three or more: probability that the named one is the best.")  # fmt: skip
@click.option("--difference", metavar="SHARE", default="1%", show_default=True,
              help="Designs closer than this count as equally good.")  # fmt: skip
@simulates(sets=True, seed=True, workers=True)
def compare(
    scenarios: tuple[str, ...], sets: tuple[str, ...], requests: int | None, seed: int | None,
    metric: str, probability: str, difference: str, workers: int | None,
) -> Answer:  # fmt: skip
    """Compare designs that draw the same random numbers.

    With two designs (or one and --set): the difference, its 95 % interval, and how many times as
    many requests independent runs would need for it. With three or more: which is best, with a
    stated probability; designs that can no longer win are dropped early. Exit code 1: not decided.
    """
    from nvmesim.errors import InputError
    from nvmesim.predict.simulate import compare as compared
    from nvmesim.show.studies.compare_view import blocks_of, ranking_blocks
    from nvmesim.study.rank import rank
    from nvmesim.units import parse_fraction

    if bool(sets) != (len(scenarios) == 1):
        text = "--set changes the one scenario" if sets else "one scenario is given"
        raise InputError(f"{text}; name another, or a single one and --set KEY=VALUE")
    designs = _loaded(scenarios, sets)
    if len(designs) == 2:
        a, b = designs
        found = replace(compared(*designs.values(), requests=requests, seed=seed), a=a, b=b)
        return Answer(lambda: blocks_of(found), lambda: _to_json(found))
    ranking = rank(
        designs, metric=metric, probability=parse_fraction(probability), seed=seed or 1,
        difference=parse_fraction(difference), workers=workers,
    )  # fmt: skip
    rows = ranking.table.to_dicts()
    json = {"answer": str(ranking), "probability": ranking.probability, "table": rows}
    return Answer(
        lambda: ranking_blocks(ranking), lambda: json, code=0 if ranking.probability else 1
    )


def _loaded(files: tuple[str, ...], sets: tuple[str, ...]) -> dict[str, Scenario]:
    """Designs by a name of their own: of the scenario, of the file, or of what is set."""
    from nvmesim.cli.mistaken import scenario_of

    if sets:
        base = scenario_of(files[0])
        return {
            base.name or Path(files[0]).stem: base,
            ", ".join(sets): scenario_of(files[0], sets),
        }
    found = [scenario_of(file) for file in files]
    names = [s.name or Path(f).stem for s, f in zip(found, files, strict=True)]
    if len(set(names)) < len(names):
        names = list(files)
    if len(set(names)) < len(names):
        names = [f"{name} ({i + 1})" for i, name in enumerate(names)]
    return dict(zip(names, found, strict=True))


def _to_json(found: Comparison) -> dict[str, Any]:
    from nvmesim.measure.figures import Interval

    return {
        name: value.to_json() if isinstance(value, Interval) else value
        for name, value in vars(found).items()
    }
