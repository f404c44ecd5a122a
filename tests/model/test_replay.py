"""A captured trace as load: every request comes when it came, as large as it was."""

import numpy as np
import pytest

from nvmesim.errors import ScenarioError
from nvmesim.model.lower import lower
from nvmesim.model.request_kinds import read_replay
from nvmesim.scenario.load import load_scenario
from nvmesim.scenario.resolve import resolve
from tests.servers import bare

SCENARIO = """
name = "replay"
[server]
stack = "linux-io_uring"
[[server.sockets]]
cpu = { cores = 8, threads_per_core = 1, ghz = 3.0 }
[[drives]]
profile = "samsung-980pro-1tb"
count = 2
[[workload]]
trace = "trace.csv"
"""
N = 400


@pytest.fixture
def folder(tmp_path):
    """A folder with a trace in the form of MSR Cambridge, two disks, and a scenario."""
    rng = np.random.default_rng(5)
    at = np.cumsum(rng.integers(100, 3000, N)) + 128166372003061629
    rows = [
        f"{t},host,{i % 2},{'Write' if i % 3 == 0 else 'Read'},{4096 * i},{4096 << (i % 2)},1000"
        for i, t in enumerate(at)
    ]
    (tmp_path / "trace.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "replay.toml").write_text(SCENARIO, encoding="utf-8")
    return tmp_path, (at - at[0]) * 100_000


def test_arrivals_are_those_of_the_trace(folder):
    path, at_ps = folder
    network = lower(resolve(load_scenario(path / "replay.toml"))).network
    order = np.argsort(network.arrival_ps, kind="stable")
    assert np.array_equal(network.arrival_ps[order], at_ps)
    size = network.flow_bytes[network.arrival_flow[order]]
    write = network.flow_write[network.arrival_flow[order]]
    assert np.array_equal(size, [4096 << (i % 2) for i in range(N)])
    assert np.array_equal(write, [int(i % 3 == 0) for i in range(N)])


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_every_request_is_simulated_once(folder, engine):
    path, at_ps = folder
    result = bare(load_scenario(path / "replay.toml"), engine=engine)
    assert result.requests == N
    assert result.simulated_s >= at_ps[-1] / 1e12
    assert result.read.count == N - result.write.count == N - len(range(0, N, 3))


def test_a_file_of_results_is_no_trace(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("op,block_size,jobs,iodepth,iops\nrandread,4k,1,1,10000\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"points\.csv: holds results, not requests"):
        read_replay(path, 1.0)
