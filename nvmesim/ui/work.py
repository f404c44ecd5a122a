"""Work that the pages ask for: predict, compare, choose, calibrate, describe."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nvmesim.catalog.text import to_toml
from nvmesim.errors import InputError
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import compare, simulate
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.writing import to_text
from nvmesim.show import page as html
from nvmesim.show.blocks import Line
from nvmesim.show.report import page
from nvmesim.ui.answer import answer, first
from nvmesim.ui.controls import start
from nvmesim.ui.quotes import Quote, page_blocks, states_of
from nvmesim.ui.shared import on_one_page, with_designs
from nvmesim.ui.trust import NOWHERE, scenario_of, tables_of_text
from nvmesim.ui.worker import Job, serve

if TYPE_CHECKING:
    from nvmesim.calibrate.evidence import DriveFit

COARSE_REQUESTS: Final = 4_000
MIDDLE: Final = 0.02
"""Precision of a quote."""
MOST_WALL_S: Final = 60.0
MOST_DUMPS: Final = 40
DESIGNS: Final = (2, 4)


# Predict ------------------------------------------------------------------------------------------


def first_look(scenario: Scenario, seed: int | None = None) -> Result:
    """Return a result of few requests: what a slider is followed with."""
    return simulate(scenario, requests=COARSE_REQUESTS, seed=seed, reliefs=False, over_time=False,
                    certainty=False)  # fmt: skip


def refine(job: Job, tables: Mapping[str, Any]) -> None:
    """Publish the figures of a first look, then the whole answer with its intervals."""
    scenario = scenario_of(tables)
    job.publish(first(first_look(scenario)), stage="first")
    whole = simulate(
        scenario, curve=True, over_time=False, max_wall_s=MOST_WALL_S, progress=job.progress
    )
    job.tell("writing the report")
    job.publish(answer(whole), stage="complete", **_short(whole))
    text = to_text(tables)
    job.keep_report(with_designs(page(whole, scenario_text=text), [text]))


def _short(result: Result) -> dict[str, Any]:
    p99 = result.total.latency.percentiles[99.0]
    return {"iops": result.total.iops.to_json(), "p99_s": p99, "verdict": result.bottleneck.verdict}


# Compare ------------------------------------------------------------------------------------------


def designs_of(texts: Any) -> list[dict[str, Any]]:
    """Return the tables of the designs in TOML *texts*, two to four."""
    few, many = DESIGNS
    if not isinstance(texts, list) or not few <= len(texts) <= many:
        raise InputError(f"compare {few} to {many} designs; add them on the Design page")
    tables = [tables_of_text(text) for text in texts]
    for found in tables:
        scenario_of(found)
    return tables


def compare_designs(
    job: Job, tables: Sequence[Mapping[str, Any]], prices: Sequence[float | None]
) -> None:
    """Publish the designs side by side, and each against the first with common random numbers."""
    designs = [scenario_of(t) for t in tables]
    states = [states_of(t) for t in tables]
    steps = 2 * len(designs) - 1 + sum(map(len, states))
    done = 0

    def simulated(what: str, scenario: Scenario) -> Result:
        nonlocal done
        job.progress(what, done / steps)
        found = simulate(scenario, precision=MIDDLE, reliefs=False, over_time=False,
                         max_wall_s=MOST_WALL_S, progress=_part(job, done, steps))  # fmt: skip
        done += 1
        return found

    quotes = []
    for n, (design, table) in enumerate(zip(designs, tables, strict=True)):
        name = design.name or str(n + 1)
        healthy = simulated(f"simulating {name}", design)
        other = {state: simulated(f"{name}, {state}", scenario_of(changed))
                 for state, changed in states[n].items()}  # fmt: skip
        quotes.append(
            Quote(table, prices[n], healthy, other.get("degraded"), other.get("rebuilding"))
        )
    gains = []
    for design in designs[1:]:
        gains.append(compare(designs[0], design, progress=_part(job, done, steps)))
        done += 1
    blocks = page_blocks(quotes, gains)
    job.publish(html.html(blocks), stage="complete")
    title = " against ".join(q.healthy.scenario for q in quotes)
    file = html.document(title, [Line(title, "title"), *blocks])
    job.keep_report(on_one_page(with_designs(file, [to_text(t) for t in tables])))


def _part(job: Job, done: int, steps: int) -> Any:
    return lambda what, share: job.progress(what, (done + share) / steps)


# Choose -------------------------------------------------------------------------------------------


def choose_design(job: Job, goal: Mapping[str, Any]) -> None:
    """Publish what to buy for the tables of a goal."""
    from nvmesim.show.studies.choice_view import fragment
    from nvmesim.study.choose import choose
    from nvmesim.study.goal import goal_from_dict

    found = choose(goal_from_dict(goal, NOWHERE), workers=1, progress=job.progress)
    job.publish(fragment(found), met=found.chosen is not None)


def find_best(job: Job, tables: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Publish the largest load within a goal: healthy, degraded, rebuilding."""
    from nvmesim.show.charts.designs import BEST_CAPTIONS, best_charts
    from nvmesim.show.studies.best_view import fragment
    from nvmesim.study.best import best

    levels = asked.get("levels") or None
    found = best(
        scenario_of(tables), p99=asked.get("p99") or None, cpu=asked.get("cpu") or None,
        iops=asked.get("iops") or None, over={"volume.raid": levels} if levels else None,
        progress=job.progress,
    )  # fmt: skip
    charts = {t: (c, BEST_CAPTIONS[t]) for t, c in best_charts(found).items()}
    job.publish(fragment(found) + html.figures(charts), met=found.best is not None)


# Calibrate ----------------------------------------------------------------------------------------


def calibrate(job: Job, files: Sequence[str], name: str, captured_on: str) -> None:
    """Publish the drive fitted to *files* with its verdict."""
    from nvmesim.calibrate.drive.fit import fit_drive
    from nvmesim.capture.registry import read_captures

    job.tell("reading")
    captures = read_captures(files)
    fit = fit_drive(captures, name=name, captured_on=captured_on or None, tell=job.tell)
    _publish_fit(job, fit, name)


def calibrate_sheet(job: Job, file: str, name: str) -> None:
    """Publish the drive fitted to the datasheet in *file*."""
    from nvmesim.calibrate.datasheet import read_datasheet
    from nvmesim.calibrate.drive.sheet import fit_datasheet

    _publish_fit(job, fit_datasheet(read_datasheet(Path(file)), name=name, tell=job.tell), name)


def _publish_fit(job: Job, fit: DriveFit, name: str) -> None:
    from nvmesim.show.evidence.fits import evidence, fit_page

    job.keep_report(fit_page(fit))
    text = to_toml(fit.profile)
    usable = not fit.profile.missed
    job.publish(evidence(fit), name=name, toml=text, profile=tomllib.loads(text), usable=usable)


def safe_name(name: str, number: int) -> str:
    """A file name of our own that keeps the ending of *name*, which may say the format.

    >>> safe_name("../../etc/pass wd.JSON", 3), safe_name("rr_clat.1.log.gz", 4)
    ('3-pass_wd.JSON', '4-rr_clat.1.log.gz')
    """
    last = re.split(r"[/\\]", name)[-1]
    return f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', last).lstrip('.')[-80:]}"


def warm(_: Job) -> None:
    """Load the engine and the charts' code."""
    import altair  # noqa: F401 - a second, which the first answer need not wait for

    first_look(scenario_of(start()))


WORK: Final[Mapping[str, Callable[..., None]]] = {
    "refine": refine,
    "compare": compare_designs,
    "choose": choose_design,
    "best": find_best,
    "calibrate": calibrate,
    "sheet": calibrate_sheet,
    "warm": warm,
}
"""Work by the name that `Jobs.start` takes."""


# Describe -----------------------------------------------------------------------------------------


def describe_dumps(texts: Any, folder: Path) -> dict[str, Any]:
    """Return the scenario that pasted dumps describe."""
    from nvmesim.describe import description

    if not isinstance(texts, list) or not 0 < len(texts) <= MOST_DUMPS:
        raise InputError(f"paste 1 to {MOST_DUMPS} dumps, such as what lscpu printed")
    if not all(isinstance(t, str) and t.strip() for t in texts):
        raise InputError("a dump is empty; paste what the command printed")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        files = []
        for n, text in enumerate(texts, 1):
            files.append(Path(place) / f"paste-{n}.txt")
            files[-1].write_text(text, encoding="utf-8")
        try:
            found = description(files)
        except InputError as error:
            raise type(error)(str(error).replace(f"{place}/", "")) from None
    return found.to_json()


if __name__ == "__main__":
    serve(WORK)
