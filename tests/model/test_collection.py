"""Garbage collection in batches, against its closed forms and a drive that was measured.

Measured: Kioxia CM7-R 3.84 TB, 4 KiB, one latency thread beside an open-loop write load (SSD-iq,
github gabriel-haas/ssdiq-pub @8a0a3f4, paper/finallat10). The profile's numbers were fitted to the
rows at 100k, 200k and 500k writes/s, and to the mean of all reads; those below did not enter.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nvmesim.measure.groups import GroupStats
from nvmesim.model.lower import lower
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from tests.engines.test_equality import assert_complete_alike

DRIVE = (Path(__file__).parent / "data" / "k5.toml").read_text("utf-8")
KNEE, CEILING = 81_451, 317_186  # of these numbers, by the closed forms in docs/equations.md


def scenario(folder: Path, *loads: dict[str, Any], queue: str = "") -> Scenario:
    """A server with the drive and *loads*; *queue*: a line of its collection."""
    (folder / "k5.toml").write_text(DRIVE + queue)
    each = {"block_size": "4 KiB", "access": "random"}
    return scenario_from_dict(
        {
            "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-9354"}]},
            "drives": [{"profile": "k5.toml"}],
            "workload": [{**each, **load} for load in loads],
        },
        folder,
    )


def writes(rate: float) -> dict[str, Any]:
    return {"name": "load", "read": 0.0, "threads": 6, "rate": f"{rate}/s"}


PROBES = [{"name": n, "read": r, "threads": 1, "rate": "5000/s"} for n, r in (("R", 1), ("W", 0))]


def beside(folder: Path, rate: float, queue: str = "") -> tuple[Result, dict[str, GroupStats]]:
    """A run beside *rate* writes a second, and its groups by name."""
    load = writes(rate - 5_000)
    result = simulate(
        scenario(folder, load, *PROBES, queue=queue), requests=600_000, reliefs=False,
        certainty=False, over_time=True,
    )  # fmt: skip
    return result, {group.name: group for group in result.groups}


@pytest.mark.parametrize(
    ("rate", "mean", "p99", "reads", "reads_p99"),
    [(110e3, 165, 2680, 115, 560), (130e3, 328, 3854, 124, 570), (150e3, 539, 4718, 133, 581)],
)
def test_a_measured_drive_beyond_its_knee(
    tmp_path: Path, rate: float, mean: float, p99: float, reads: float, reads_p99: float
) -> None:
    """Rows that no number was fitted to; reads: 65 us and 0.456 us for each 1,000 writes/s."""
    _, groups = beside(tmp_path, rate)
    written, read = groups["W"], groups["R"]
    assert 1e6 * written.mean_s == pytest.approx(mean, rel=0.25)
    assert 1e6 * written.percentiles["p99"] == pytest.approx(p99, rel=0.05)
    assert 1e6 * read.mean_s == pytest.approx(reads, rel=0.05)
    assert 1e6 * read.percentiles["p99"] == pytest.approx(reads_p99, rel=0.05)


def test_below_the_knee_nothing_stalls(tmp_path: Path) -> None:
    _, groups = beside(tmp_path, 0.85 * KNEE)
    assert 1e6 * groups["W"].percentiles["p99"] < 15


def test_saturation_is_the_closed_form(tmp_path: Path) -> None:
    closed = {"name": "all", "read": 0.0, "threads": 8, "outstanding": 64}
    result = simulate(scenario(tmp_path, closed), requests=400_000, reliefs=False, certainty=False)
    assert result.total.iops.value == pytest.approx(CEILING, rel=0.01)
    assert result.bottleneck.station == "drive0 drain"


def test_reads_wait_behind_saturated_writes_where_they_share_the_queue(tmp_path: Path) -> None:
    """What waits for the buffer is ahead of a read, but for the last 100 (a fluid)."""
    loads = [
        {"name": "W", "read": 0.0, "threads": 8, "outstanding": 96},
        {"name": "R", "read": 1.0, "threads": 1, "rate": "2000/s"},
    ]
    means = {}
    for queue in ("", "queue = 100"):
        result = simulate(
            scenario(tmp_path, *loads, queue=queue), requests=400_000, reliefs=False,
            certainty=False,
        )  # fmt: skip
        means[queue] = {g.name: g.mean_s for g in result.groups}
    # they pass: a program now and then; they share: as long as writes, but for the last in line
    passed, shared = means[""]["R"], means["queue = 100"]
    assert 1e6 * passed < 250
    batch, taken = 10.7e-3, 10.7e-3 * 67.9e3
    ends = np.cumsum([0.0, *[batch, (6518 - taken) / 588e3] * 2])
    drained = np.cumsum([0.0, *[taken, 6518 - taken] * 2])
    at = np.linspace(0, ends[2], 10_000)
    behind = np.interp(at, ends, drained) + 8 * 96 - 100
    waits = np.interp(behind, drained, ends) - at
    assert shared["R"] - passed == pytest.approx(waits.mean(), rel=0.05)


def test_both_engines_complete_every_request_alike(tmp_path: Path) -> None:
    asked = scenario(tmp_path, writes(150e3), *PROBES, queue="queue = 20")
    assert_complete_alike(lower(resolve(asked)).network, 8_000)
