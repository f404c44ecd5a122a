"""From a scenario to a prediction: lower it, run it, judge it, and try what could relieve it."""

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nvmesim.measure import paired
from nvmesim.measure.control import MAX_REQUESTS, Progress, RunGoal
from nvmesim.measure.figures import Interval
from nvmesim.measure.paired import Comparison
from nvmesim.measure.requests import RequestWriter
from nvmesim.predict.answer import RunAnswer
from nvmesim.predict.prepare import EngineFactory, prepare
from nvmesim.predict.result import Result
from nvmesim.predict.uncertainty.certainty import model_uncertainty, precision_goal
from nvmesim.predict.uncertainty.derived import Pair, pair_of
from nvmesim.predict.uncertainty.design import shared_numbers
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.workloads import loads_differ
from nvmesim.warning import Warning

REBUILD_LEAST: Final = 4_000
"""Requests that a rebuild alone is simulated for at least: each is many commands, and all alike."""
SLOW_ENGINE: Final = 10
"""The SimPy engine's runs are so many times shorter at most."""


@dataclass(frozen=True)
class RunOptions:
    """How `simulate` runs a scenario, and what it studies besides; see there."""

    engine: str | EngineFactory = "compiled"
    seed: int | None = None
    precision: float | None = None
    requests: int | None = None
    reliefs: bool = True
    curve: bool = False
    over_time: bool = True
    certainty: bool = True
    without_source: str = ""
    requests_file: str | Path | None = None
    max_requests: int = MAX_REQUESTS
    max_wall_s: float = math.inf


def simulate(
    scenario: Scenario | ResolvedScenario,
    options: RunOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> Result:
    """Predict what *scenario* does: the one function behind every command that does.

    Keyword arguments are those of `RunOptions`, and change *options*. *engine* is "compiled",
    "simpy", or a callable (network, seed=, record=) -> Engine. *seed*, *precision* (relative, of
    what simulation leaves of IOPS) and *requests* (exactly so many after the warm-up) take the
    place of the scenario's own; with none of these the run is as precise as the rest of the
    interval deserves. *reliefs* simulates what could relieve the bottleneck, *curve* throughput
    against outstanding, *over_time* (on unless it is turned off) latency slice by slice and each
    workload by itself. With *certainty* every interval holds four
    parts: simulation, the profiles' numbers, what they miss, and the error of the model (learned
    without *without_source*); without it the simulation's alone. *requests_file* gets one row a
    request (Parquet). The run ends unconverged after *max_requests* or *max_wall_s*; a
    KeyboardInterrupt ends it with what there is, unconverged and with a warning.

    Raises ScenarioError and its kin for a scenario that cannot be, DeadlockError if it stops,
    TypeError for an unknown option.
    """
    run = replace(options or RunOptions(), **changes)
    return concluded(measured(scenario, run, progress), run, progress)


def measured(
    scenario: Scenario | ResolvedScenario, run: RunOptions, progress: Progress | None = None
) -> RunAnswer:
    """Run *scenario* as *run* says, up to what `concluded` makes of it; raises as `simulate`."""
    started = time.perf_counter()
    ready = prepare(scenario, run.engine, run.seed)
    goal = _goal(ready.scenario, run)
    if run.engine == "simpy":
        goal = replace(goal, least=goal.least // SLOW_ENGINE, most=goal.most // SLOW_ENGINE)
    with ExitStack() as stack:
        record = None
        if run.requests_file is not None:
            record = stack.enter_context(RequestWriter(Path(run.requests_file), ready.lowered))
        found = ready.measure(goal, record, progress)
        if record is not None:
            record.finish(found.window.warmup_ps)
    return RunAnswer(ready, found, sliced=run.over_time, spent_s=time.perf_counter() - started)


def concluded(answer: RunAnswer, run: RunOptions, progress: Progress | None = None) -> Result:
    """Study what *run* asks for beside a measured run, and say everything that is known."""
    started = time.perf_counter()
    if not answer.measured.interrupted:
        try:
            answer.explore(run.reliefs, run.curve, run.certainty, progress)
        except KeyboardInterrupt:
            said = "interrupted: what was left is not tried, and intervals may be too narrow"
            answer.warnings.append(Warning("interrupted", said))
            answer.interrupted = True
    if run.certainty:
        answer.judge(run.without_source)
    return answer.result(run.engine, answer.spent_s + time.perf_counter() - started)


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
    number = min(a.run.seed, b.run.seed) if seed is None else seed  # whichever is named first
    first, second = (prepare(one, engine, number) for one in (a, b))
    goals = [_goal(ready.scenario, RunOptions(requests=requests)) for ready in (first, second)]
    answers = []
    for i, (ready, goal) in enumerate(zip((first, second), goals, strict=True)):
        if progress is not None:
            progress(f"simulating {ready.name}", i / 2)
        answers.append(RunAnswer(ready, ready.measure(goal), sliced=False))
    names = (first.name, second.name)
    if first.name == second.name:
        names = (f"{first.name} (a)", f"{second.name} (b)")
    said: list[str] = [*loads_differ([first.scenario, second.scenario])]
    for one in answers:
        said += [*one.ready.lowered.warnings, *one.measured.warnings]
    plain = paired.compared(
        names, answers[0].measured, answers[1].measured, tuple(dict.fromkeys(said))
    )
    if not certainty or plain.iops_a.value <= 0 or plain.iops_b.value <= 0:
        return plain
    return _with_certainty(plain, answers[0], answers[1], progress)


def _with_certainty(
    plain: Comparison, a: RunAnswer, b: RunAnswer, progress: Progress | None
) -> Comparison:
    """*plain* with all that is not known: each side as `run` says it, both drawn jointly."""
    numbers, both = 0.0, (a, b)
    if not any(r.measured.backlog_per_s is not None or r.ready.load.replayed for r in both):
        halves = [(r.ready.scenario, r.what_ifs.again) for r in both]
        numbers = shared_numbers(halves[0], halves[1], progress)
    for answer in both:
        answer.explore(False, False, True, progress)
    budgets = [answer.judge() for answer in both]
    alike = len({k.known.standing.model_class for k in budgets}) == 1

    def pair(figure: str, values: tuple[float, float], chance: float) -> Pair:
        parts = [r.parts_of(figure) for r in both]
        return pair_of(values, parts, same_class=alike, numbers=numbers, chance=chance)

    def latency(difference: Interval | None, figure: str) -> Interval | None:
        """A *difference*, s, that is the simulation's alone, with all that is not known."""
        before, after = (r.level(figure) for r in both)
        if difference is None or not before or not after:
            return None
        scale = math.exp(sum(k.shift(figure) for k in budgets) / 2) / math.sqrt(before * after)
        return pair(figure, (before, after), difference.half * scale).difference

    iops_a, iops_b = (r.whole_of(r.measured.window.iops()) for r in both)
    ratio = plain.iops_b.value / plain.iops_a.value
    paired = 1 + plain.gain.value
    chance = math.hypot(math.log((1 + plain.gain.high) / paired), math.log(paired / ratio))
    rates = pair("iops", (iops_a.value, iops_b.value), chance)
    return replace(
        plain,
        iops_a=iops_a, iops_b=iops_b, iops=rates.difference,
        gain=rates.gain.interval, p_better=rates.gain.p_better,
        mean_s=latency(plain.mean_s, "mean"), p99_s=latency(plain.p99_s, "p99"),
        mean_a_s=a.level("mean"), p99_a_s=a.level("p99"),
    )  # fmt: skip


def _goal(scenario: ResolvedScenario, options: RunOptions) -> RunGoal:
    """The caller's goal, or the scenario's, or else what the answer deserves."""
    run = scenario.run
    stated = RunGoal(
        None, options.requests, None, most=options.max_requests, wall_s=options.max_wall_s
    )
    if options.requests is not None:
        return stated
    share = options.precision if options.precision is not None else run.precision
    if share is not None:
        return replace(stated, precision=share)
    if run.requests is not None or run.duration_ps is not None:
        return replace(stated, requests=run.requests, duration_ps=run.duration_ps)
    if not scenario.workload:
        return replace(stated, requests=REBUILD_LEAST)
    known = model_uncertainty(scenario, without=options.without_source)
    has_goal = any(group.slo_ps is not None for group in scenario.workload)
    return replace(precision_goal(stated, known), insists=has_goal)
