"""`ns.sweep`: a scenario, the parameters to vary, and one tidy frame back."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from nvmesim.errors import InputError
from nvmesim.measure.control import MAX_REQUESTS
from nvmesim.measure.control import Progress as Progress
from nvmesim.predict.prepare import EngineFactory
from nvmesim.scenario.load import load_scenario, scenario_from_dict, with_values
from nvmesim.scenario.schema import Scenario
from nvmesim.study.sweep.plan import SweepPlan, check, make_plan
from nvmesim.study.sweep.point import PointAnswer, Settings, SweepJob, answer, content_of, to_frame
from nvmesim.study.sweep.store import Store, check_format, finished, header
from nvmesim.study.sweep.workers import WorkerPool, answers_of_cluster, usable_cpus

FEW: Final = 3
"""Fewer points than this are not worth starting processes for."""


@dataclass
class SweepTally:
    """How a sweep went: for a closing line and for planning."""

    points: int = 0
    simulated: int = 0
    cached: int = 0
    kept: int = 0
    """Found in the file of an interrupted sweep."""
    failed: int = 0
    """Points with an ``error``."""
    unconverged: int = 0

    def count(self, answer: PointAnswer, *, is_kept: bool = False) -> None:
        """Add one answer, *is_kept* from before or new."""
        error = answer.row.get("error")
        self.failed += error is not None
        self.unconverged += error is None and answer.row.get("converged") is False
        self.kept += is_kept
        if not is_kept:
            self.cached += answer.cached
            self.simulated += not answer.cached


def sweep(
    scenario: Scenario | str | Path | Mapping[str, Any],
    over: Mapping[str, Any],
    *,
    output: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    precision: float | None = None,
    requests: int | None = None,
    max_requests: int = MAX_REQUESTS,
    cache: bool = True,
    certainty: bool = True,
    progress: Progress | None = None,
    tally: SweepTally | None = None,
) -> pl.DataFrame:
    """Simulate *scenario* at every combination of the values in *over*; one row a point.

    *over* maps keys as ``--set`` takes them (``drives.0.count``; ``*`` for every element of a list)
    to values: a list, or a text as on the command line ("4..24..4", "1..256..x2"). Every point
    draws the same random numbers, so neighbours compare well, and rows do not depend on the number
    of *workers* (processes; default: one a CPU) nor on *dask*, the address of a scheduler.

    *output* is a table, .parquet or .csv by its name; what is finished is kept beside it, and
    *resume* goes on from there after any interruption (a finished .csv says nothing of its sweep:
    it is made again, from the cache). Finished points also stay in the user's cache folder unless
    *cache* is False. Without *certainty* no interval is told, and a short point takes a tenth of
    the time.

    A combination that cannot be gets a row with its ``error``; a key that does not exist, or takes
    none of its values, raises InputError before anything is simulated.
    """
    settings = Settings(engine, seed, precision, requests, max_requests=max_requests,
                        cache=cache, certainty=certainty)  # fmt: skip
    plan = make_plan(over)
    tables, base = tables_of(scenario)
    head = header(plan.describe(), content_of([tables, check(tables, base, plan)]), settings)
    tally = tally or SweepTally()

    def answers(kept: Mapping[int, Any]) -> Iterator[PointAnswer]:
        jobs = (
            SweepJob(number, with_values(tables, change), base, settings)
            for number, change in enumerate(plan.changes()) if number not in kept
        )  # fmt: skip
        # an engine of the caller's own stays in this process
        n = workers if isinstance(engine, str) else 1
        return simulate_all(jobs, len(plan) - len(kept), workers=n, dask=dask)

    if output is None:
        return _table(plan, answers, tally, progress)
    path = check_format(Path(output))
    if resume and (frame := finished(path, head)) is not None:
        tally.points = tally.kept = len(frame)
        return frame
    with Store(path, head, resume=resume) as store:
        frame = _table(plan, answers, tally, progress, store)
        store.finish(frame)
    return frame


def _table(
    plan: SweepPlan, answers: Callable[[Mapping[int, Any]], Iterator[PointAnswer]],
    tally: SweepTally, progress: Progress | None, store: Store | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Simulate what *store* does not hold yet, and return the whole table."""
    tally.points = len(plan)
    kept = {} if store is None else dict(store.answers)
    for one in kept.values():
        tally.count(one, is_kept=True)
    found = {number: one.row for number, one in kept.items()}

    def say() -> None:
        if progress is not None:
            failed = f", {tally.failed} that cannot be built" if tally.failed else ""
            share = len(found) / max(1, len(plan))
            progress(f"{len(found):,} of {len(plan):,} points{failed}", share)

    say()
    for one in answers(kept):
        if one.number not in found:
            found[one.number] = one.row
            tally.count(one)
            if store is not None:
                store.add(one)
            say()
    return to_frame(plan.keys, plan.points(), [found[n] for n in range(len(plan))])


def tables_of(scenario: Scenario | str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the tables of a scenario and the folder that its relative paths start from."""
    if isinstance(scenario, Mapping):
        scenario = scenario_from_dict(scenario)
    found = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    return found.to_dict(), str(found.base.absolute())


def simulate_all(
    jobs: Iterable[SweepJob], count: int, *, workers: int | None = None, dask: str | None = None,
    pool: WorkerPool | None = None,
) -> Iterator[PointAnswer]:  # fmt: skip
    """Yield the answers to *count* jobs as they finish: here, in processes or on *dask*."""
    if dask is not None:
        yield from answers_of_cluster(dask, jobs)
        return
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers were asked for; at least 1 is needed")
    n = min(count, workers or usable_cpus())
    if n <= 1 or (workers is None and count < FEW):
        yield from map(answer, jobs)
        return
    if pool is not None:
        yield from pool.answers(jobs)
        return
    with WorkerPool(n) as own:
        yield from own.answers(jobs)


def simulated_rows(
    scenarios: Iterable[tuple[Mapping[str, Any], str]], settings: Settings, workers: int | None,
    say: Callable[[int], None] = lambda done: None, pool: WorkerPool | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the row of each of *scenarios*, as `tables_of` gives them; *pool* as workers if given.

    *say* is told how many are done.
    """
    jobs = [SweepJob(i, *scenario, settings) for i, scenario in enumerate(scenarios)]
    rows: dict[int, dict[str, Any]] = {}
    for found in simulate_all(iter(jobs), len(jobs), workers=workers, pool=pool):
        rows[found.number] = found.row
        say(len(rows))
    return [rows[i] for i in range(len(jobs))]
