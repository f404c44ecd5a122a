"""Results to twelve digits: the same seed gives the same bytes in any process, on any Python.

The last digits of a few interval ends differ between CPUs, whose libraries add vectors in other
orders.

A golden file holds a digest of the lowered network (so that a change of the model and a change of
an engine can be told apart) and the result. When a change of results is meant: `make golden`, look
at the difference, and say why in the changelog.
"""

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import nvmesim
from nvmesim.model.lower import lower
from nvmesim.network.network import Network
from nvmesim.raid.map import raid_map
from nvmesim.scenario.resolve import resolve

HERE = Path(__file__).parent
LEFT_OUT = ("wall_s", "nvmesim")  # keys that do not follow from scenario and seed
DIGITS = 12


def server(**tables: Any) -> dict[str, Any]:
    """A scenario of few requests; what is not said is one drive under io_uring."""
    base = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
        "drives": [{"profile": "samsung-980pro-1tb"}],
        "workload": {"threads": 2, "outstanding": 8},
        "run": {"requests": 4000, "seed": 7},
    }
    return {**base, **tables}


def drives(count: int, **keys: Any) -> list[dict[str, Any]]:
    buffer = {"extends": "intel-p4610-1.6tb", "write": {"buffer": "1 MiB"}}
    return [{"profile": buffer, "count": count, **keys}]


SOCKETS = {"stack": "windows-2019", "sockets": [{"cpu": "xeon-gold-6250"}] * 2}

CASES: dict[str, dict[str, Any]] = {
    "one-drive": server(),
    "mixed-sizes": server(
        workload={"block_size": {"4 KiB": 0.7, "64 KiB": 0.3}, "read": 0.5, "threads": 2,
                  "outstanding": 4, "align": "4 KiB"},
    ),
    "raid5": server(
        drives=drives(4), volume={"raid": "raid5", "chunk": "64 KiB"},
        workload={"read": 0.5, "threads": 4, "outstanding": 8},
    ),
    "raid6-rebuild": server(
        drives=drives(6), volume={"raid": "raid6", "chunk": "64 KiB", "degraded": [1],
                                  "rebuild": True},
        workload={"read": 0.9, "threads": 2, "outstanding": 4},
    ),
    "raid10-far": server(
        drives=drives(4), volume={"raid": "raid10", "layout": "far2", "chunk": "64 KiB"},
        workload={"read": 0.7, "threads": 2, "outstanding": 8, "block_size": "16 KiB"},
    ),
    "sequential-raid0": server(
        drives=drives(2), volume={"raid": "raid0", "chunk": "64 KiB"},
        workload={"read": 0.0, "access": "sequential", "block_size": "128 KiB", "threads": 1,
                  "outstanding": 4},
    ),
    "two-sockets": server(
        server=SOCKETS, drives=drives(2, socket=1),
        workload={"diskspd": "-b4K -t4 -o8 -w30 -r -Sh -d10", "socket": 0},
    ),
    "open-loop": server(
        drives=drives(2), workload={"rate": "150k/s", "arrivals": "poisson", "threads": 4},
    ),
    "two-groups": server(
        drives=drives(3), volume={"raid": "raid5", "chunk": "128 KiB"},
        workload=[{"read": 0.7, "threads": 2, "outstanding": 4, "think_time": "100 us"},
                  {"access": "sequential", "block_size": "256 KiB", "threads_total": 1,
                   "outstanding": 2}],
    ),
}  # fmt: skip


def result_text(case: str, engine: str = "compiled") -> str:
    """The golden text of *case*, without what is learned from published sets."""
    scenario = nvmesim.Scenario.model_validate(CASES[case])
    found = nvmesim.simulate(scenario, engine=engine, reliefs=False, certainty=False).to_json()
    kept = {key: value for key, value in found.items() if key not in (*LEFT_OUT, "engine")}
    kept["stations"] = [
        [s["name"], s["utilization"], s["visits_per_request"], s["wait_mean_s"]]
        for s in found["stations"]
    ]
    kept = {"network": digest(lower(resolve(scenario)).network), **kept}
    return as_text(kept)


def digest(net: Network) -> str:
    """SHA-256 of all that an engine reads."""
    state = hashlib.sha256()
    for item in fields(net):
        value = getattr(net, item.name)
        state.update(item.name.encode())
        data = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        state.update(data)
    return state.hexdigest()


def map_text() -> str:
    """Where addresses of every level and layout lie."""
    rows = {}
    for level, layout in (
        ("raid0", None), ("raid1", None), ("raid10", "near2"), ("raid10", "far2"),
        ("raid10", "offset3"), ("raid5", "left-symmetric"), ("raid5", "right-asymmetric"),
        ("raid5", "parity-first"), ("raid6", "left-symmetric"), ("raid6", "right-symmetric"),
    ):  # fmt: skip
        found = raid_map(level, 5, 64 * 1024, layout=layout, member_size=1 << 30)
        rows[f"{level} {layout or ''}".strip()] = [
            found.locate(k * 48 * 1024) for k in range(0, 40, 3)
        ]
    return as_text(rows)


def as_text(value: Any) -> str:
    """JSON with a line for each leaf list, floats to `DIGITS`."""
    return json.dumps(rounded(value), indent=1) + "\n"


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def texts() -> dict[str, str]:
    """Every golden file: its name and what it should hold."""
    return {**{f"{case}.json": result_text(case) for case in CASES}, "raid-map.json": map_text()}
