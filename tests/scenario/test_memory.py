"""Random scenarios, most of them absurd: each is answered or refused within the memory stated."""

import json
import subprocess
import sys

import pytest

LIMIT = 100 << 20
ROOM = 1 << 30  # address space of Python and its libraries, beside what is planned

PROGRAM = """
import json, os, random, resource, sys
from nvmesim.errors import InputError
from nvmesim.model.lower import lower
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

def tables(r):
    size = lambda low, high: f"{2 ** r.randint(low, high)} B"
    n = r.choice([2, 3, 4, 5, 8, 24, 100])
    raid = r.choice(["raid0", "raid1", "raid10", "raid5", "raid6", "raidz1", "zfs-mirror"])
    volume = {"raid": raid}
    if not raid.startswith(("raidz", "zfs")):
        volume["chunk"] = size(12, r.choice([16, 20, 36]))
    if raid in ("raid5", "raid6"):
        volume["layout"] = r.choice(["left-symmetric", "left-asymmetric", "parity-first"])
        volume["rebuild"] = r.random() < 0.2
    if r.random() < 0.2 and volume.get("chunk"):
        volume["bitmap"] = "internal"
    if r.random() < 0.3 and raid == "raid10":
        volume["degraded"] = sorted(r.sample(range(n), 2))
        volume["read_policy"] = "shortest-queue"
    load = {
        "block_size": size(9, r.choice([14, 20, 27])), "align": size(9, r.choice([12, 20])),
        "access": r.choice(["random", "sequential"]), "read": r.choice([0.0, 0.5, 1.0]),
        "outstanding": r.choice([1, 64]),
    }
    return {
        "server": {"sockets": [{"cpu": "epyc-9654"}]},
        "drives": [{"profile": "sata-ssd", "count": n}], "volume": volume, "workload": load,
    }

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
answered = 0
for seed in range(int(sys.argv[1])):
    try:
        lower(resolve(scenario_from_dict(tables(random.Random(seed)))))
        answered += 1
    except InputError:
        pass
print(json.dumps(answered))
"""


@pytest.mark.long
def test_what_is_planned_stays_within_the_memory_stated(monkeypatch):
    """A MemoryError, or a minute for one of them, ends the program and fails the test."""
    monkeypatch.setenv("NVMESIM_MAX_MEMORY", str(LIMIT))
    args = [sys.executable, "-c", PROGRAM, "60", str(ROOM + 2 * LIMIT)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 15 < json.loads(done.stdout) < 55  # some of each kind
