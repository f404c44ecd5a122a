"""Mixes of reads and writes: their turns at the controller, and the page that a read may find."""

import pytest

from nvmesim.model.drive import PAGE_PS
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict

READS, WRITES = 400e3, 250e3
PAGE_US = PAGE_PS / 1e6


def run(profile: dict[str, object], load: dict[str, object], requests: int = 40_000):
    """Answer of one fast host whose drive is as *profile* says."""
    server = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-9354"}]},
        "drives": [{"profile": {"extends": "samsung-980pro-1tb", **profile}, "link": "pcie4 x4"}],
        "workload": [{"block_size": "4 KiB", "access": "random", **load}],
    }
    return simulate(scenario_from_dict(server), requests=requests, reliefs=False, certainty=False)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_saturated_mix_does_what_reads_and_writes_do_one_after_the_other(share: float) -> None:
    """Reads end at the dies and writes at the controller: apart, each had all of its own."""
    dies = {"dies": 40, "commands": "3M/s", "read": {"die": f"{40e6 / READS:.6f} us"}}
    write = {"commands": f"{WRITES}/s", "suspend": "1 us", "program": "20 us", "buffer": "8 MiB"}
    found = run({**dies, "write": write}, {"threads": 16, "outstanding": 64, "read": share})
    in_turn = 1 / (share / READS + (1 - share) / WRITES)
    assert 0.85 * in_turn < found.total.iops.value < 1.01 * in_turn


@pytest.mark.parametrize("rate_k", [20, 60])
def test_a_read_waits_for_the_rest_of_a_page(rate_k: int) -> None:
    """A die programs for rate x program / dies; half a page is left of it on average."""
    dies, program_us = 64, 80.0
    write = {"program": f"{program_us} us", "program_cv": 0.0, "buffer": "8 MiB"}
    waits = {
        "dies": dies, "commands": "3M/s",
        "write": {**write, "unit": "4 KiB"},
    }  # fmt: skip
    suspends = {**waits, "write": {**write, "suspend": "1 us"}}
    load = {"rate": f"{rate_k}k/s", "arrivals": "poisson", "read": 0.1, "threads_total": 16}
    means = [run(p, load, 200_000).read.latency.mean * 1e6 for p in (waits, suspends)]
    busy = 0.9 * rate_k * 1e3 * program_us / dies / 1e6
    assert means[0] - means[1] == pytest.approx(busy * PAGE_US / 2, rel=0.2)
