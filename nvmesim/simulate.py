"""From a scenario to a prediction: lower it, run it, judge it, and try what could relieve it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from nvmesim.answer import Answer, offered
from nvmesim.model.lowered import Lowered
from nvmesim.prepared import EngineFactory, Prepared, prepare, settled_buffers, short_run
from nvmesim.result import paired
from nvmesim.result.control import MAX_REQUESTS, Controller, Goal, Measured, Progress, Recorder
from nvmesim.result.paired import Comparison
from nvmesim.result.result import Result
from nvmesim.result.stations import reducer
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario

__all__ = ["EngineFactory", "compare", "offered", "prepare", "simulate"]

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
    waits: bool = False,
    over_time: bool = True,
    calibration_draws: int = 0,
    requests_file: str | Path | None = None,
    max_requests: int = MAX_REQUESTS,
    max_wall_s: float = math.inf,
    progress: Progress | None = None,
) -> Result:
    """Predict what *scenario* does.

    *engine* is "compiled", "simpy", or a callable (network, seed=, record=) -> Engine. *seed*,
    *precision* (relative, of IOPS) and *requests* (exactly so many after the warm-up) take the
    place of the scenario's own. *reliefs* simulates what could relieve the bottleneck, *curve*
    throughput against outstanding, *waits* what a striped volume loses to its slowest member,
    *over_time* (on unless it is turned off) latency slice by slice and each workload by itself,
    *calibration_draws* (``nvmesim run`` takes 8) how far the intervals of the profiles' numbers
    move the answer; the answer's intervals are widened by it. *requests_file* gets one row a
    request (Parquet). The run ends unconverged after *max_requests* or *max_wall_s*; a
    KeyboardInterrupt ends it with what there is, unconverged and with a warning.

    Raises ScenarioError and its kin for a scenario that cannot be, DeadlockError if it stops.
    """
    started = time.perf_counter()
    ready = settled_buffers(prepare(scenario, engine, seed))
    goal = _goal(ready.scenario, precision, requests, max_requests, max_wall_s)
    if engine == "simpy":
        goal = replace(goal, least=goal.least // SLOW_ENGINE, most=goal.most // SLOW_ENGINE)
    with _recorder(requests_file, ready.lowered) as (record, finish):
        measured = _run(ready, goal, record, progress)
        finish(measured.window.warmup_ps)
    answer = Answer(ready, measured, sliced=over_time)
    if not measured.interrupted:
        try:
            answer.explore(reliefs, curve, calibration_draws, progress)
            if waits:
                answer.study_waits(progress)
        except KeyboardInterrupt:
            answer.warnings.append("interrupted: what-ifs were left out")
            answer.interrupted = True
    return answer.result(engine, time.perf_counter() - started)


def compare(
    a: Scenario | ResolvedScenario,
    b: Scenario | ResolvedScenario,
    *,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    requests: int = 200_000,
    progress: Progress | None = None,
) -> Comparison:
    """What changes from *a* to *b*, with the interval of the difference.

    Both draw the same random numbers (common random numbers), so the interval is that of the
    difference and not of two independent runs; `Comparison.saved` says how many times the requests
    those would need. *requests* are simulated of each, warm-up included.
    """
    first = prepare(a, engine, seed)
    second = prepare(b, engine, first.seed)
    batch = max(1, requests // 60)
    runs = []
    for i, ready in enumerate((first, second)):
        if progress is not None:
            progress(f"simulating {ready.name}", i / 2)
        runs.append(short_run(settled_buffers(ready), batch, requests))
    cut = paired.common_warmup(*(run.records for run in runs))
    windows = [run.window(cut) for run in runs]
    warnings = [*first.lowered.warnings, *second.lowered.warnings]
    if first.name == second.name:
        names = (f"{first.name} (a)", f"{second.name} (b)")
    else:
        names = (first.name, second.name)
    return paired.compared(names, windows[0], windows[1], tuple(dict.fromkeys(warnings)))


def _goal(
    scenario: ResolvedScenario,
    precision: float | None,
    requests: int | None,
    most: int,
    wall_s: float,
) -> Goal:
    """The scenario's goal, unless the caller has another."""
    run = scenario.run
    if requests is not None:
        return Goal(None, requests, None, most=most, wall_s=wall_s)
    if precision is not None:
        return Goal(precision, None, None, most=most, wall_s=wall_s)
    return Goal(run.precision, run.requests, run.duration_ps, most=most, wall_s=wall_s)


@contextmanager
def _recorder(
    path: str | Path | None, lowered: Lowered
) -> Iterator[tuple[Recorder | None, Callable[[float], None]]]:
    """Yield where rows of requests go, and what makes a file of them."""
    if path is None:
        yield None, lambda warmup_ps: None
        return
    from nvmesim.result.requests import RequestWriter

    with RequestWriter(Path(path), lowered) as writer:
        yield writer, writer.finish


def _run(
    ready: Prepared, goal: Goal, record: Recorder | None, progress: Progress | None
) -> Measured:
    engine = ready.make(ready.lowered.network, seed=ready.seed, record=record is not None)
    controller = Controller(
        engine, reducer(ready.lowered), goal, ready.load, record=record, progress=progress
    )
    return controller.run()
