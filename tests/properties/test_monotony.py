"""More drives, more cores or more depth never do less, where a request costs the same all the same.

The stack here has no costs of further targets or sharers: with those, more drives may do less, and
do. Short runs scatter: a loss counts from three standard errors and 3 % on.
"""

from typing import Any

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.scenario.schema import Scenario
from tests.predict.scenarios import CPU, scenario

SCENARIOS = 500
REQUESTS = 3_000
LEAST = 0.03


def asked(rng: np.random.Generator) -> dict[str, Any]:
    """A load on a small server: numbers of `build`."""
    drives = int(rng.choice([1, 2, 3, 4, 8]))
    return {
        "drives": drives, "cores": int(rng.choice([1, 2, 4, 8])),
        "threads": int(rng.choice([1, 2, 5, 8])), "outstanding": int(rng.choice([1, 2, 4, 16])),
        "read": float(rng.choice([0.0, 0.7, 1.0])),
        "block_size": str(rng.choice(["4 KiB", "16 KiB", "128 KiB"])),
        "level": str(rng.choice(["", "raid0"])) if drives > 1 else "",
    }  # fmt: skip


def build(numbers: dict[str, Any]) -> Scenario:
    level = {"raid": "raid0", "engine": "linux-md"} if numbers["level"] else None
    return scenario(
        drives=numbers["drives"], sockets=[{"cpu": {**CPU, "cores": numbers["cores"]}}],
        volume=level, threads_total=numbers["threads"], outstanding=numbers["outstanding"],
        read=numbers["read"], block_size=numbers["block_size"],
    )  # fmt: skip


def iops(numbers: dict[str, Any]) -> tuple[float, float]:
    """Requests per second, and the standard error."""
    found = ns.simulate(
        build(numbers), requests=REQUESTS, reliefs=False, certainty=False, over_time=False
    ).total.iops
    return found.value, (found.high - found.low) / 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_more_never_does_less(part):
    rng = np.random.default_rng(100 + part)
    losses = []
    for _ in range(SCENARIOS // 5):
        numbers = asked(rng)
        base, error = iops(numbers)
        for what in ("drives", "cores", "outstanding"):
            more, other = iops({**numbers, what: 2 * numbers[what]})
            if more < base - max(LEAST * base, 3 * float(np.hypot(error, other))):
                losses.append((what, numbers, round(more / base, 3)))
    assert losses == []
