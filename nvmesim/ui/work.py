"""Work that the pages ask for: predict, compare, choose, calibrate, describe."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nvmesim.catalog.text import to_toml
from nvmesim.errors import InputError
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import compare, simulate
from nvmesim.scenario.schema import Scenario
from nvmesim.show import page as html
from nvmesim.ui.answer import answer, figures
from nvmesim.ui.jobs import PageJob
from nvmesim.ui.side_by_side import comparison
from nvmesim.ui.trust import NOWHERE, scenario_of, tables_of_text

if TYPE_CHECKING:
    from nvmesim.calibrate.evidence import DriveFit

COARSE_REQUESTS: Final = 4_000
MIDDLE: Final = 0.02
"""Precision of the first refinement."""
MOST_WALL_S: Final = 60.0
MOST_DUMPS: Final = 40
DESIGNS: Final = (2, 4)


# Predict ------------------------------------------------------------------------------------------


def first_look(scenario: Scenario, seed: int | None = None) -> Result:
    """Return a result of few requests: what a slider is followed with."""
    return simulate(scenario, requests=COARSE_REQUESTS, seed=seed, reliefs=False, over_time=False,
                    certainty=False)  # fmt: skip


def coarse(scenario: Scenario) -> str:
    """Return the answer of a first look."""
    result = first_look(scenario)
    return figures(result, stage=f"first look: {result.requests:,} requests; refining …")


def refine(job: PageJob, scenario: Scenario) -> None:
    """Publish an answer to 2 %, then one with reliefs, curve and the profiles' intervals."""
    first = simulate(
        scenario, precision=MIDDLE, reliefs=False, over_time=False, certainty=False,
        max_wall_s=MOST_WALL_S, progress=job.progress,
    )  # fmt: skip
    if job.is_cancelled:
        return
    job.result = first
    job.publish(answer(first, stage="IOPS to 2 %; looking for reliefs …"), **_short(first))
    whole = simulate(
        scenario, curve=True, over_time=False, max_wall_s=MOST_WALL_S,
        progress=job.progress,
    )  # fmt: skip
    if job.is_cancelled:
        return
    job.result = whole
    job.publish(
        answer(whole, stage="complete: reliefs and the profiles' own intervals included"),
        **_short(whole),
    )


def _short(result: Result) -> dict[str, Any]:
    p99 = result.total.latency.percentiles[99.0]
    return {"iops": result.total.iops.to_json(), "p99_s": p99, "verdict": result.bottleneck.verdict}


# Compare ------------------------------------------------------------------------------------------


def designs_of(texts: Any) -> list[tuple[dict[str, Any], Scenario]]:
    """Return the designs in TOML *texts*, two to four, each as its tables and as a scenario."""
    few, many = DESIGNS
    if not isinstance(texts, list) or not few <= len(texts) <= many:
        raise InputError(f"compare {few} to {many} designs; add them on the Design page")
    tables = [tables_of_text(text) for text in texts]
    return [(t, scenario_of(t)) for t in tables]


def compare_designs(job: PageJob, asked: Sequence[tuple[dict[str, Any], Scenario]]) -> None:
    """Publish the designs side by side, and each against the first with common random numbers."""
    results = []
    designs = [scenario for _, scenario in asked]
    steps = 2 * len(designs) - 1
    for n, design in enumerate(designs):
        job.progress(f"simulating {design.name or n + 1}", n / steps)
        results.append(simulate(design, precision=MIDDLE, reliefs=False, over_time=False,
                                max_wall_s=MOST_WALL_S, progress=_part(job, n, steps)))  # fmt: skip
        if job.is_cancelled:
            return
    gains = []
    for n, design in enumerate(designs[1:], len(designs)):
        gains.append(compare(designs[0], design, progress=_part(job, n, steps)))
    job.publish(comparison([tables for tables, _ in asked], results, gains))


def _part(job: PageJob, done: int, steps: int) -> Any:
    return lambda what, share: job.progress(what, (done + share) / steps)


# Choose -------------------------------------------------------------------------------------------


def choose_design(job: PageJob, goal: Mapping[str, Any]) -> None:
    """Publish what to buy for the tables of a goal."""
    from nvmesim.show.studies.choice_view import fragment
    from nvmesim.study.choose.goal import goal_from_dict
    from nvmesim.study.choose.search import choose

    found = choose(goal_from_dict(goal, NOWHERE), workers=1, progress=job.progress)
    job.publish(fragment(found), met=found.chosen is not None)


def find_best(job: PageJob, tables: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
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


def calibrate(job: PageJob, files: Sequence[Path], name: str, captured_on: str | None) -> None:
    """Publish the drive fitted to *files* with its verdict."""
    from nvmesim.calibrate.drive.fit import fit_drive
    from nvmesim.capture.registry import read_captures

    job.tell("reading")
    captures = read_captures([str(f) for f in files])
    fit = fit_drive(captures, name=name, captured_on=captured_on or None, tell=job.tell)
    _publish_fit(job, fit, name)


def calibrate_sheet(job: PageJob, file: Path, name: str) -> None:
    """Publish the drive fitted to the datasheet in *file*."""
    from nvmesim.calibrate.datasheet import read_datasheet
    from nvmesim.calibrate.drive.sheet import fit_datasheet

    _publish_fit(job, fit_datasheet(read_datasheet(file), name=name, tell=job.tell), name)


def _publish_fit(job: PageJob, fit: DriveFit, name: str) -> None:
    from nvmesim.show.fits import evidence

    job.result = fit
    text = to_toml(fit.profile)
    job.publish(evidence(fit), name=name, toml=text, profile=tomllib.loads(text))


def safe_name(name: str, number: int) -> str:
    """A file name of our own that keeps the ending of *name*, which may say the format.

    >>> safe_name("../../etc/pass wd.JSON", 3), safe_name("rr_clat.1.log.gz", 4)
    ('3-pass_wd.JSON', '4-rr_clat.1.log.gz')
    """
    last = re.split(r"[/\\]", name)[-1]
    return f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', last).lstrip('.')[-80:]}"


# Describe -----------------------------------------------------------------------------------------


def describe_dumps(texts: Any) -> dict[str, Any]:
    """Return the scenario that pasted dumps describe."""
    from nvmesim.describe import description

    if not isinstance(texts, list) or not 0 < len(texts) <= MOST_DUMPS:
        raise InputError(f"paste 1 to {MOST_DUMPS} dumps, such as what lscpu printed")
    if not all(isinstance(t, str) and t.strip() for t in texts):
        raise InputError("a dump is empty; paste what the command printed")
    with tempfile.TemporaryDirectory(prefix="nvmesim-ui-") as folder:
        files = []
        for n, text in enumerate(texts, 1):
            files.append(Path(folder) / f"paste-{n}.txt")
            files[-1].write_text(text, encoding="utf-8")
        try:
            found = description(files)
        except InputError as error:
            raise type(error)(str(error).replace(f"{folder}/", "")) from None
    return found.to_json()
