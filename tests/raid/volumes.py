"""Scenarios with one volume, run end to end."""

import numpy as np

from nvmesim.measure.stations import reducer
from nvmesim.model.request_kinds import RequestKind
from nvmesim.model.volume_plans import volume_table
from nvmesim.predict.prepare import prepare
from nvmesim.raid.arrays import PlanTable
from nvmesim.scenario.load import scenario_from_dict
from tests.raid.expected import expectation

DRIVE = "intel-p4610-1.6tb"


def scenario(volume, load=None, *, drives=None, count=4, stack="linux-io_uring"):
    """A volume over *count* drives under *load*; a key that is None there is left out."""
    asked = {"threads": 4, "outstanding": 4, "read": 0.5, **(load or {})}
    return scenario_from_dict(
        {
            "server": {"stack": stack, "sockets": [{"cpu": "epyc-9654"}]},
            "drives": drives or [{"profile": DRIVE, "count": count}],
            "volume": volume,
            "workload": {key: value for key, value in asked.items() if value is not None},
        }
    )


def tables(ready) -> list[tuple[float, PlanTable]]:
    """(share, plan table) of each kind of request of the one workload group."""
    group, volume = ready.scenario.workload[0], ready.scenario.volumes[0]
    found = []
    for write, share in ((False, group.read), (True, 1 - group.read)):
        for size, part in group.block_sizes:
            if share * part:
                kind = RequestKind(
                    write, size, group.access, min(group.align, size), group.offset, group.span,
                    group.in_flight, 0, 0, group.n_threads if group.access == "sequential" else 1,
                )  # fmt: skip
                found.append((share * part, volume_table(volume, ready.scenario.drives, kind)))
    return found


def expected(ready) -> np.ndarray:
    """float64[6]: reads, writes, read bios, write bios, read bytes, write bytes per request."""
    total = np.zeros(6)
    for share, table in tables(ready):
        e = expectation(table)
        total += share * np.array(
            [e.reads, e.writes, e.read_bios, e.write_bios, e.read_bytes, e.write_bytes]
        )
    return total


def expected_members(ready) -> np.ndarray:
    """float64[n_drives, 2]: reads and writes of each drive per request, if reads have no choice."""
    volume = ready.scenario.volumes[0]
    total = np.zeros((len(ready.scenario.drives), 2))
    for share, table in tables(ready):
        e = expectation(table)
        for number, drive in enumerate(volume.members):
            total[drive] += share * np.array([e.member_reads[number], e.member_writes[number]])
    return total


def simulated(ready, requests) -> np.ndarray:
    """float64[n_drives, 6] per request: what the compiled engine sent to each drive."""
    engine = ready.make(ready.lowered.network, seed=3)
    engine.advance(2_000, 1 << 60)
    batch = engine.advance(requests, 1 << 60)
    assert batch.completions == requests
    return reducer(ready.lowered).children(batch.alternatives) / requests


def ready_for(volume, load=None, **more):
    """Without a pilot: what members are sent does not depend on how full their buffers are."""
    return prepare(scenario(volume, load, **more), "compiled", 3, level=0.0)
