"""Figures that follow from others have intervals, too, and none has zero width."""

from collections.abc import Iterator
from typing import Any

import pytest

from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict


def run(**more: Any) -> dict[str, Any]:
    group = {"block_size": "4 KiB", "read": 1.0, "threads": 4, "outstanding": 16} | more
    found = simulate(scenario_from_dict({
        "server": {"stack": "linux-libaio", "sockets": [{"cpu": "xeon-gold-6338"}]},
        "drives": [{"profile": "intel-p4510-1tb", "count": 2}], "workload": [group],
    }), requests=30_000)  # fmt: skip
    return found.to_json()


def intervals(tree: Any, path: str = "") -> Iterator[tuple[str, dict[str, float]]]:
    if isinstance(tree, dict):
        if {"value", "low", "high"} <= set(tree):
            yield path, tree
        for key, item in tree.items():
            yield from intervals(item, f"{path}.{key}")
    elif isinstance(tree, list):
        for i, item in enumerate(tree):
            yield from intervals(item, f"{path}.{i}")


@pytest.mark.parametrize("more", [{}, {"read": 0.7}, {"threads": 1, "outstanding": 256}])
def test_no_interval_of_a_run_has_zero_width(more: dict[str, Any]) -> None:
    found = dict(intervals(run(**more)))
    assert ".cpu.intervals.ghz_per_miops" in found
    assert ".bottleneck.bound" in found
    widths = {p: i["high"] - i["low"] for p, i in found.items() if i["value"] and "slices" not in p}
    assert [path for path, width in widths.items() if not width > 0] == []
    assert all(i["low"] <= i["value"] <= i["high"] for i in found.values())


def test_the_interval_of_cpu_time_counts_cycles_and_no_times() -> None:
    """A stack's numbers in ps (how long a thread slept) are no cycles of a request."""
    tables = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-7313"}]},
        "drives": [{"profile": "samsung-980pro-1tb", "socket": 0}],
        "workload": [{"threads_total": 1, "outstanding": 4}], "run": {"requests": 4_000},
    }  # fmt: skip
    for known in simulate(scenario_from_dict(tables)).cpu_intervals.values():
        assert known.high < 6 * known.low
