"""Small scenarios with few and round numbers, so that results can be worked out by hand."""

from typing import Any

from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.schema import Scenario

DRIVE = {
    "name": "round",
    "capacity": "100 GB",
    "dies": 32,
    "channels": 8,
    "commands": "500k/s",
    "read_bandwidth": "3 GB/s",
    "write_bandwidth": "2 GB/s",
    "read": {"base": "5 us", "die": "50 us", "channel": "2 us"},
    "write": {"base": "10 us", "program": "200 us", "buffer": "1 MiB"},
}
STACK = {"name": "plain", "submit": 4000, "complete": 6000}
CPU = {"cores": 8, "threads_per_core": 2, "ghz": 2.0, "lanes": 64}


def scenario(
    *,
    drives: int = 2,
    sockets: list[dict[str, Any]] | None = None,
    volume: dict[str, Any] | None = None,
    stack: dict[str, Any] | None = None,
    drive: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **workload: Any,
) -> Scenario:
    """A server of one socket with *drives* like `DRIVE`; the rest as a scenario file has it."""
    load = {"threads": 4, "outstanding": 8, **workload}
    if "rate" in load:
        del load["outstanding"]
    if "threads_total" in load:
        del load["threads"]
    tables: dict[str, Any] = {
        "name": "small",
        "server": {"stack": {**STACK, **(stack or {})}, "sockets": sockets or [{"cpu": CPU}]},
        "drives": [{"profile": {**DRIVE, **(drive or {})}, "count": drives}],
        "workload": load,
        "run": run or {"requests": 20_000},
    }
    if volume is not None:
        tables["volume"] = volume
    return scenario_from_dict(tables)
