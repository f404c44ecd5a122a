"""`ns.sweep`: a scenario, the parameters to vary, and one tidy frame back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from nvmesim.errors import InputError
from nvmesim.measure.control import MAX_REQUESTS
from nvmesim.predict.simulate import EngineFactory
from nvmesim.scenario.load import load_scenario, scenario_from_dict
from nvmesim.scenario.schema import Scenario
from nvmesim.study.sweep.content import content_of
from nvmesim.study.sweep.frame import to_frame
from nvmesim.study.sweep.output import check_format, read_frame, read_header
from nvmesim.study.sweep.plan import SweepPlan, check, make_plan, put
from nvmesim.study.sweep.point import PointAnswer, Settings, SweepJob
from nvmesim.study.sweep.store import Store, check_same, header
from nvmesim.study.sweep.workers import WorkerPool, answers_here, usable_cpus

Progress = Callable[[str, float], None]
"""Called with what is being done and how far it is, 0 to 1."""
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
    simulating_s: float = 0.0
    """Of all workers together."""

    def count(self, answer: PointAnswer) -> None:
        """Add one answer."""
        self.cached += answer.cached
        self.simulated += not answer.cached
        self.simulating_s += answer.wall_s
        self.note(answer)

    def note(self, answer: PointAnswer) -> None:
        """Add what an answer says, wherever it came from."""
        error = answer.row.get("error")
        self.failed += error is not None
        self.unconverged += error is None and answer.row.get("converged") is False


def sweep(
    scenario: Scenario | str | Path | Mapping[str, Any],
    over: Mapping[str, Any],
    *,
    output: str | Path | None = None,
    resume: bool = False,
    samples: int | None = None,
    method: str | None = None,
    sample_seed: int = 1,
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
    to values: a list, or a text as on the command line ("4..24..4", "1..256..x2"). With *samples*
    that many points are drawn instead, *method* "lhs" (Latin hypercube, the default then) or
    "random", from ranges and lists alike. Every point draws the same random numbers, so neighbours
    compare well, and rows do not depend on the number of *workers* (processes; default: one a CPU)
    nor on *dask*, the address of a scheduler.

    *output* is a table, .parquet, .csv or .json by its name; what is finished is kept beside it,
    and *resume* goes on from there after any interruption (a finished .csv says nothing of its
    sweep: it is made again, from the cache). Finished points also stay in the user's cache folder
    unless *cache* is False. Without *certainty* intervals hold the simulation's chance alone, and a
    short point takes a tenth of the time.

    A combination that cannot be gets a row with its ``error``; a key that does not exist, or takes
    none of its values, raises InputError before anything is simulated.
    """
    settings = Settings(engine, seed, precision, requests, max_requests, cache, certainty)
    plan = make_plan(over, samples, method or ("grid" if samples is None else "lhs"), sample_seed)
    tables, base = tables_of(scenario)
    head = header(
        plan.describe(), content_of([tables, check(tables, base, plan)]), settings.plain()
    )
    run = _Sweep(plan, tables, base, settings, workers, dask, progress, tally or SweepTally())
    if output is None:
        return run.frame(run.rows({}, None))
    path = Path(output)
    check_format(path)
    partial = path.with_name(f"{path.name}.partial")
    finished = path.is_file() and not partial.exists() and path.suffix.lower() != ".csv"
    if resume and finished:
        check_same(path, read_header(path), head)
        frame = read_frame(path)
        run.tally.points = run.tally.kept = len(frame)
        return frame
    with Store(path, head, resume=resume) as store:
        frame = run.frame(run.rows(store.answers, store))
        store.finish(frame, head)
    return frame


def tables_of(scenario: Scenario | str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the tables of a scenario and the folder that its relative paths start from."""
    if isinstance(scenario, Mapping):
        scenario = scenario_from_dict(scenario)
    found = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    return found.to_dict(), str(found.base.absolute())


def simulate_all(
    jobs: Iterable[SweepJob], count: int, *, workers: int | None = None, dask: str | None = None
) -> Iterator[PointAnswer]:
    """Yield the answers to *count* jobs as they finish: here, in processes, or on a cluster."""
    if dask is not None:
        from nvmesim.study.sweep.cluster import answers_of_cluster

        yield from answers_of_cluster(dask, jobs)
        return
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers were asked for; at least 1 is needed")
    n = min(count, workers or usable_cpus())
    if n <= 1 or (workers is None and count < FEW):
        yield from answers_here(jobs)
        return
    with WorkerPool(n) as pool:
        yield from pool.answers(jobs)


@dataclass
class _Sweep:
    """One sweep on its way."""

    plan: SweepPlan
    tables: dict[str, Any]
    base: str
    settings: Settings
    workers: int | None
    dask: str | None
    progress: Progress | None
    tally: SweepTally

    def rows(self, kept: dict[int, PointAnswer], store: Store | None) -> dict[int, dict[str, Any]]:
        """Number -> row of every point, those *kept* from before included."""
        total = len(self.plan)
        self.tally.points, self.tally.kept = total, len(kept)
        rows = {n: answer.row for n, answer in kept.items()}
        for answer in kept.values():
            self.tally.note(answer)
        self._say(len(rows))
        here = not isinstance(self.settings.engine, str)
        answers = simulate_all(
            self._jobs(set(rows)), total - len(rows),
            workers=1 if here else self.workers, dask=self.dask,
        )  # fmt: skip
        for answer in answers:
            if answer.number in rows:
                continue
            rows[answer.number] = answer.row
            self.tally.count(answer)
            if store is not None:
                store.add(answer)
            self._say(len(rows))
        return rows

    def frame(self, rows: Mapping[int, dict[str, Any]]) -> pl.DataFrame:
        """Return the frame, in the order of the plan."""
        keys = [axis.key for axis in self.plan.axes]
        return to_frame(keys, self.plan.points(), [rows[n] for n in range(len(rows))])

    def _jobs(self, done: set[int]) -> Iterator[SweepJob]:
        keys = [axis.key for axis in self.plan.axes]
        for number, values in enumerate(self.plan.points()):
            if number not in done:
                tables = put(self.tables, dict(zip(keys, values, strict=True)))
                yield SweepJob(number, tables, self.base, self.settings)

    def _say(self, done: int) -> None:
        if self.progress is None:
            return
        failed = f", {self.tally.failed} that cannot be built" if self.tally.failed else ""
        total = len(self.plan)
        self.progress(f"{done:,} of {total:,} points{failed}", done / max(1, total))
