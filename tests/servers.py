"""Scenarios of one server with drives of one kind, as the tables of a file."""

from typing import Any

import nvmesim as ns
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolved import ResolvedScenario


def one_server(
    profile: Any, load: Any, count: int = 1, *, cpu: Any = "xeon-gold-6130", sockets: int = 1,
    stack: Any = "linux-io_uring", drive: dict[str, Any] | None = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """*load* on *count* drives; *drive*: further keys of theirs; *more*: further tables."""
    return {
        "server": {"stack": stack, "sockets": [{"cpu": cpu}] * sockets},
        "drives": [{"profile": profile, "count": count, **(drive or {})}],
        "workload": load, **more,
    }  # fmt: skip


def bare(asked: ns.Scenario | ResolvedScenario | dict[str, Any], **options: Any) -> ns.Result:
    """The answer to *asked*, a scenario or its tables, without what-ifs and certainty."""
    scenario = scenario_from_dict(asked) if isinstance(asked, dict) else asked
    return ns.simulate(scenario, reliefs=False, certainty=False, **options)
