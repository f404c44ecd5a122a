"""Intervals of a stack's costs hold what was put in, at the rate that they state."""

from dataclasses import replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.infer.posterior import infer
from nvmesim.calibrate.infer.problem import ERRORS
from nvmesim.calibrate.stack.fit import _with_draws
from nvmesim.calibrate.stack.task import Bench, costs_of
from nvmesim.catalog.load import quantities
from tests.calibrate.bench import drive, host, simulated, stack

GHZ = 2.5
TRIALS = 60
LEAST = 51
"""Of the trials: intervals that hold 95 % fall below this with probability 1 in 500."""
DRAWN = 39
"""Draws whose least and largest hold 95 %."""
LOADS = ((1, 1), (1, 4), (1, 16), (1, 64), (4, 64))


OTHER = (2, 32)
"""A load that no capture is of."""


@pytest.mark.slow
def test_intervals_of_costs_hold_the_truth() -> None:
    """CPU time is measured with the error that a fit assumes; the drive is known."""
    made, behind = stack(ghz=GHZ), drive()
    points = [simulated(behind, j, d, on=host(made, GHZ)) for j, d in LOADS]
    full = [p.is_cpu_bound for p in points]
    assert sum(full) == 1
    other = simulated(behind, *OTHER, on=host(made, GHZ))
    costs = costs_of("found", points, GHZ, several=False)
    true = dict(quantities(made))
    names = ("submit", "interrupt", "wakeup", "wakeup_half")
    held = dict.fromkeys((*names, "other load"), 0)
    halves = dict.fromkeys(held, 0.0)
    rng = np.random.default_rng(7)
    for _ in range(TRIALS):
        noisy = [replace(p, cpu_s=(p.cpu_s or 0.0) * np.exp(error(rng))) for p in points]
        used = [p for p, is_full in zip(noisy, full, strict=True) if is_full]
        bench = Bench(costs, noisy, used, behind, host(made, GHZ))
        inferred = infer(bench.problem(costs.first))
        drawn = inferred.draws
        profile = _with_draws(costs.stack(inferred.best), costs, drawn, noisy)
        found = dict(quantities(profile))
        spans = {name: (found[name].low, found[name].high, true[name].value) for name in names}
        asked = [
            measure(behind, host(costs.stack(u), GHZ), other, requests=5_000).cpu_s
            for u in drawn[:DRAWN]
        ]
        spans["other load"] = (min(asked), max(asked), other.cpu_s)
        for name, (low, high, value) in spans.items():
            held[name] += bool(low <= value <= high)
            halves[name] += (high - low) / 2 / value / TRIALS
    print({name: f"{held[name]} of {TRIALS}, half-width {halves[name]:.0%}" for name in held})
    assert all(count >= LEAST for count in held.values())
    assert halves["other load"] < 0.1 * halves["interrupt"]


def error(rng: np.random.Generator) -> float:
    return ERRORS["cpu"] * float(rng.standard_normal())
