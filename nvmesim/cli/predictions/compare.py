"""`nvmesim compare`: what changes from one design to another, or which of several is best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import json_option, print_json, seed_option
from nvmesim.cli.progress import say_if_compiling

if TYPE_CHECKING:
    from nvmesim.measure.figures import Interval
    from nvmesim.measure.paired import Comparison
    from nvmesim.scenario.schema import Scenario
    from nvmesim.study.rank import Ranking

EXAMPLE = "Example: nvmesim compare server.toml --set server.interconnect.links=3"


@click.command(epilog=EXAMPLE)
@click.argument("scenarios", metavar="SCENARIO.toml [OTHER.toml ...]", nargs=-1, required=True)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE",
    help="Compare the one scenario with itself, this value changed; repeatable.",
)  # fmt: skip
@click.option(
    "--requests", type=click.IntRange(1000),
    help="Requests of each design, after its warm-up; default: as the precision needs.",
)  # fmt: skip
@seed_option
@click.option(
    "--metric", default="iops", show_default=True, help="Metric by which three or more are ranked."
)
@click.option("--probability", metavar="SHARE", default="95%", show_default=True,
              help="Of three or more: probability that the named one is the best.")  # fmt: skip
@click.option("--difference", metavar="SHARE", default="1%", show_default=True,
              help="Designs closer than this count as equally good.")  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="Processes for ranking; default: one."
)
@json_option
@bounded()
def compare(
    scenarios: tuple[str, ...], sets: tuple[str, ...], requests: int | None, seed: int | None,
    metric: str, probability: str, difference: str, workers: int | None, as_json: bool,
) -> int:  # fmt: skip
    """Compare designs that draw the same random numbers.

    With two designs (or one and --set): the difference, its 95 % interval, and how many times as
    many requests independent runs would need for it. With three or more: which is best, with a
    stated probability; designs that can no longer win are dropped early. Exit code 1: not decided.
    """
    from nvmesim.errors import InputError
    from nvmesim.predict.simulate import compare as compared
    from nvmesim.study.rank import rank
    from nvmesim.units import parse_fraction

    if bool(sets) != (len(scenarios) == 1):
        text = "--set changes the one scenario" if sets else "one scenario is given"
        raise InputError(f"{text}; name another, or a single one and --set KEY=VALUE")
    designs = _loaded(scenarios, sets)
    say_if_compiling("compiled")
    if len(designs) == 2:
        found = compared(*designs.values(), requests=requests, seed=seed)
        found = _named(found, list(designs))
        if as_json:
            print_json(_to_json(found))
        else:
            _print(found)
        return 0
    ranking = rank(
        designs, metric=metric, probability=parse_fraction(probability), seed=seed or 1,
        difference=parse_fraction(difference), workers=workers,
    )  # fmt: skip
    if as_json:
        rows = ranking.table.to_dicts()
        print_json({"answer": str(ranking), "probability": ranking.probability, "table": rows})
    else:
        _print_ranking(ranking)
    return 0 if ranking.probability else 1


def _loaded(files: tuple[str, ...], sets: tuple[str, ...]) -> dict[str, Scenario]:
    """Designs by a name of their own: of the scenario, of the file, or of what is set."""
    from pathlib import Path

    from nvmesim.scenario.load import load_scenario

    if sets:
        base = load_scenario(files[0])
        return {
            base.name or Path(files[0]).stem: base,
            ", ".join(sets): load_scenario(files[0], sets),
        }
    found = [load_scenario(file) for file in files]
    names = [s.name or Path(f).stem for s, f in zip(found, files, strict=True)]
    if len(set(names)) < len(names):
        names = list(files)
    if len(set(names)) < len(names):
        names = [f"{name} ({i + 1})" for i, name in enumerate(names)]
    return dict(zip(names, found, strict=True))


def _named(found: Comparison, names: list[str]) -> Comparison:
    from dataclasses import replace

    return replace(found, a=names[0], b=names[1])


def _to_json(found: Comparison) -> dict[str, Any]:
    from nvmesim.measure.figures import Interval

    return {
        name: value.to_json() if isinstance(value, Interval) else value
        for name, value in vars(found).items()
    }


def _print(found: Comparison) -> None:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import plain, rows_view, show, warnings_view
    from nvmesim.show.words import kiops

    def us(interval: Interval) -> str:
        middle, low, high = (1e6 * v for v in (interval.value, interval.low, interval.high))
        return f"{middle:+.4g} us ({low:+.4g} to {high:+.4g})"

    gain = found.gain
    change = f"{gain.value:+.2%} ({gain.low:+.2%} to {gain.high:+.2%})"
    if found.p_better is not None:
        change += f", better with probability {found.p_better:.0%}"
    rows = [("IOPS", kiops(found.iops_a.value), kiops(found.iops_b.value), change),
            ("mean latency", "", "", us(found.mean_s))]  # fmt: skip
    if found.p99_s is not None:
        rows.append(("p99", "", "", us(found.p99_s)))
    times = "chance does the same to both" if found.saved == float("inf") else (
        f"independent runs would need {found.saved:.2g} times the requests for this interval"
    )  # fmt: skip
    show(Group(
        plain(f"{found.b} against {found.a}", "bold"), Text(),
        rows_view(("", "before", "after", "change (95 %)"), rows),
        Text(), plain(f"{found.requests:,} requests of each; {times}", "dim"),
        *warnings_view(found.warnings),
    ))  # fmt: skip


def _print_ranking(ranking: Ranking) -> None:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import plain, rows_view, show

    rows = [
        (str(r["candidate"]), f"{r['mean']:,.6g}", f"{r['low']:,.6g} to {r['high']:,.6g}",
         str(r["rounds"]), f"{r['requests']:,}",
         "" if r["dropped_after"] is None else str(r["dropped_after"]))
        for r in ranking.table.to_dicts()
    ]  # fmt: skip
    headings = ("design", ranking.metric, "95 %", "replications", "requests", "dropped after")
    show(Group(plain(str(ranking), "bold"), Text(), rows_view(headings, rows)))
