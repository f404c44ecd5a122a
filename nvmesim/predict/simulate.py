"""From a scenario to a prediction: lower it, run it, judge it, and try what could relieve it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from nvmesim.measure.control import MAX_REQUESTS, Progress, Recorder, RunGoal
from nvmesim.measure.paired import Comparison
from nvmesim.model.lowered import Lowered
from nvmesim.predict.answer import RunAnswer, offered
from nvmesim.predict.comparing import difference
from nvmesim.predict.prepare import EngineFactory, prepare
from nvmesim.predict.result import Result
from nvmesim.predict.uncertainty.certainty import model_uncertainty, precision_goal
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.warning import Warning

__all__ = ["EngineFactory", "compare", "offered", "prepare", "simulate"]

REBUILD_LEAST: Final = 4_000
"""Requests that a rebuild alone is simulated for at least: each is many commands, and all alike."""
SLOW_ENGINE: Final = 10
"""The SimPy engine's runs are so many times shorter at most."""


def simulate(
    scenario: Scenario | ResolvedScenario,
    *,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    precision: float | None = None,
    requests: int | None = None,
    reliefs: bool = True,
    curve: bool = False,
    waits: bool | Literal["load"] = False,
    over_time: bool = True,
    certainty: bool = True,
    without_source: str = "",
    requests_file: str | Path | None = None,
    max_requests: int = MAX_REQUESTS,
    max_wall_s: float = math.inf,
    progress: Progress | None = None,
) -> Result:
    """Predict what *scenario* does: the one function behind every command that does.

    *engine* is "compiled", "simpy", or a callable (network, seed=, record=) -> Engine. *seed*,
    *precision* (relative, of what simulation leaves of IOPS) and *requests* (exactly so many after
    the warm-up) take the place of the scenario's own; with none of these the run is as precise as
    the rest of the interval deserves. *reliefs* simulates what could relieve the bottleneck,
    *curve* throughput against outstanding, *waits* what a striped volume loses to its slowest
    member ("load": only where requests of the load wait for several members), *over_time* (on
    unless it is turned off) latency slice by slice and each workload by itself. With *certainty*
    every interval holds four parts: simulation, the profiles' numbers, what they miss, and the
    error of the model (learned without *without_source*); without it the simulation's alone.
    *requests_file* gets one row a request (Parquet). The run ends unconverged after *max_requests*
    or *max_wall_s*; a KeyboardInterrupt ends it with what there is, unconverged and with a warning.

    Raises ScenarioError and its kin for a scenario that cannot be, DeadlockError if it stops.
    """
    started = time.perf_counter()
    ready = prepare(scenario, engine, seed)
    goal = goal_of(ready.scenario, precision, requests, max_requests, max_wall_s, without_source)
    if engine == "simpy":
        goal = replace(goal, least=goal.least // SLOW_ENGINE, most=goal.most // SLOW_ENGINE)
    with _recorder(requests_file, ready.lowered) as (record, finish):
        measured = ready.measure(goal, record, progress)
        finish(measured.window.warmup_ps)
    answer = RunAnswer(ready, measured, sliced=over_time)
    if not measured.interrupted:
        try:
            answer.explore(reliefs, curve, certainty, progress)
            if waits:
                answer.study_waits(progress, of_load=waits == "load")
        except KeyboardInterrupt:
            answer.warnings.append(Warning("interrupted", "interrupted: what-ifs were left out"))
            answer.interrupted = True
    if certainty:
        answer.judge(without_source)
    return answer.result(engine, time.perf_counter() - started)


def compare(
    a: Scenario | ResolvedScenario,
    b: Scenario | ResolvedScenario,
    *,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    requests: int | None = None,
    certainty: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Change from *a* to *b*, with the interval of the difference.

    Both draw the same random numbers (common random numbers), so the interval is that of the
    difference and not of two independent runs; `Comparison.saved` says how many times the requests
    those would need. Each is run as `simulate` runs it (or for *requests*, after its warm-up). With
    *certainty* the interval holds what the two do not share of the doubt about numbers, profiles
    and model; without it the simulation's alone.
    """
    first = prepare(a, engine, seed)
    second = prepare(b, engine, first.seed)
    goals = [goal_of(ready.scenario, None, requests) for ready in (first, second)]
    runs = []
    for i, (ready, goal) in enumerate(zip((first, second), goals, strict=True)):
        if progress is not None:
            progress(f"simulating {ready.name}", i / 2)
        runs.append(RunAnswer(ready, ready.measure(goal), sliced=False))
    return difference(runs[0], runs[1], certainty=certainty, progress=progress)


def goal_of(
    scenario: ResolvedScenario,
    precision: float | None = None,
    requests: int | None = None,
    most: int = MAX_REQUESTS,
    wall_s: float = math.inf,
    without_source: str = "",
) -> RunGoal:
    """The caller's goal, or the scenario's, or else what the answer deserves."""
    run = scenario.run
    if requests is not None:
        return RunGoal(None, requests, None, most=most, wall_s=wall_s)
    share = precision if precision is not None else run.precision
    if share is not None:
        return RunGoal(share, None, None, most=most, wall_s=wall_s)
    stated = RunGoal(None, run.requests, run.duration_ps, most=most, wall_s=wall_s)
    if run.requests is not None or run.duration_ps is not None:
        return stated
    if not scenario.workload:
        return replace(stated, requests=REBUILD_LEAST)
    return precision_goal(stated, model_uncertainty(scenario, without=without_source))


@contextmanager
def _recorder(
    path: str | Path | None, lowered: Lowered
) -> Iterator[tuple[Recorder | None, Callable[[float], None]]]:
    """Yield where rows of requests go, and what makes a file of them."""
    if path is None:
        yield None, lambda warmup_ps: None
        return
    from nvmesim.measure.requests import RequestWriter

    with RequestWriter(Path(path), lowered) as writer:
        yield writer, writer.finish
