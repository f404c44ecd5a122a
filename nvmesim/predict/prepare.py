"""A scenario on its way to a run: resolved, its slow states found, lowered, with an engine."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.engine.contract import Engine
from nvmesim.errors import InputError, nearest
from nvmesim.measure.control import Controller, Measured, Progress, Recorder, RunGoal
from nvmesim.measure.stations import reducer
from nvmesim.measure.steady import MAX_RECORDS, Collector, RunLoad, drifting
from nvmesim.network.network import HORIZON_PS
from nvmesim.predict.pilots import SlowStates, load_of, slow_states
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario

EngineFactory = Callable[..., Engine]
"""Called with (network, seed=, record=)."""

LONGEST: Final = 4
"""A short run is so many times longer at most, while its write buffers settle."""


@dataclass(frozen=True)
class Prepared(SlowStates):
    """A scenario ready to run: the one place where an engine is made for a prediction."""

    make: EngineFactory
    seed: int
    load: RunLoad

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name or "scenario"

    def engine(self, **options: object) -> Engine:
        """Return an engine at time 0; *options* are its own (``record``, ``timeline``)."""
        return self.make(self.lowered.network, seed=self.seed, **options)

    def measure(
        self, goal: RunGoal, record: Recorder | None = None, progress: Progress | None = None
    ) -> Measured:
        """Run to *goal*: what every command prints comes from here."""
        controller = Controller(
            self.engine(record=record is not None), reducer(self.lowered), goal, self.load,
            record=record, progress=progress,
        )  # fmt: skip
        return controller.run()

    def run_short(
        self, batch: int, requests: int, is_known: Callable[[Collector], bool] | None = None,
        longest: int = LONGEST,
    ) -> Collector:  # fmt: skip
        """Run *requests*, warm-up included, up to *longest* times as many until buffers settle.

        Fewer once *is_known* says of what there is that it is enough.
        """
        engine = self.engine()
        kept = Collector(reducer(self.lowered), batch)
        least = max(8, math.ceil(requests / batch))
        for i in range(1, min(MAX_RECORDS, longest * least + 1)):
            part = engine.advance(batch, HORIZON_PS)
            if part.completions < batch:
                break
            kept.add(part)
            look = (i - least) % 8 == 0
            enough = i >= least or (is_known is not None and is_known(kept))
            if look and enough:
                cut, warm = kept.warmup() if self.load.buffers.size else (0, True)
                if warm and drifting(kept.window(cut), self.load) == 0:
                    break
        return kept


def prepare(
    scenario: Scenario | ResolvedScenario,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    level: float | None = None,
    *,
    is_variant: bool = False,
) -> Prepared:
    """Resolve and lower *scenario*, its slow states where they will be; find the engine.

    *level*: the state of its write buffers, given instead of found. The rates of a *variant* are
    such as a run can show.
    """
    resolved = resolve(scenario) if isinstance(scenario, Scenario) else scenario
    resolved = as_captured(resolved)
    states = slow_states(resolved, level, is_variant=is_variant)
    number = resolved.run.seed if seed is None else seed
    load = load_of(states.lowered)
    return Prepared(**vars(states), make=engine_factory(engine), seed=number, load=load)


def as_captured(scenario: ResolvedScenario) -> ResolvedScenario:
    """*scenario* with what its drives' captures showed of their host.

    Its stack has the cycles that they showed, the cheapest's, and threads wait for each request
    where they did. What a request takes on one stack of Linux, or of Windows, is so many times as
    much on another: the processor, its clock and what the kernel does at each call are the same.
    """
    captured = [d.profile.captured for d in scenario.drives if d.profile.captured is not None]
    stack, (family, _, _) = scenario.stack, scenario.stack.name.partition("-")
    same = [c for c in captured if c.stack == stack.name]
    known = same or [c for c in captured if c.stack.partition("-")[0] == family]
    factor = min((c.stack_cycles for c in known), default=1.0)
    if factor != 1.0 and stack.scale == 1.0:
        scenario = scenario.with_cycles(factor)
    pages = [c.stack_per_kib for c in known if c.stack_per_kib is not None]
    if pages:
        scenario = replace(scenario, stack=scenario.stack.with_per_kib(min(pages)))
    if not any(c.synchronous for c in same):
        return scenario
    groups = [replace(g, outstanding=1, outstanding_per="thread") for g in scenario.workload]
    return replace(scenario, workload=tuple(groups))


def compiled(ready: Prepared) -> Prepared:
    """Return *ready* on the compiled engine: both complete every request alike, this one sooner."""
    if getattr(ready.make, "__name__", "") == "ReferenceEngine":
        return replace(ready, make=engine_factory("compiled"))
    return ready


def engine_factory(engine: str | EngineFactory) -> EngineFactory:
    """Return the engine called *engine*; InputError with the known names."""
    if callable(engine):
        return engine
    if engine == "compiled":
        from nvmesim.engine.compiled.engine import CompiledEngine

        return CompiledEngine
    if engine == "simpy":
        from nvmesim.engine.reference.engine import ReferenceEngine

        return ReferenceEngine
    raise InputError(f"engine {engine!r} is unknown; {nearest(engine, ('compiled', 'simpy'))}")
