"""Flushes and commits of a journal, against a drive that was measured and against each other.

Measured: one consumer NVMe (volatile cache) with ext4, psync, O_DIRECT, one 1 GiB file, 16 KiB
writes, a sync after each (github mdcallag/mytools @e1ba3d9, bench/arc/dec25.fio.300secs, dell32).
The profile's numbers are those of the rows at 1 and 32 jobs; the rows between did not enter.
"""

from pathlib import Path
from typing import Any

import pytest

from nvmesim.errors import ScenarioError
from nvmesim.model.lower import lower
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from tests.engines.test_equality import assert_complete_alike

DRIVE = (Path(__file__).parent / "data" / "dell32.toml").read_text("utf-8")
SAFE = DRIVE.replace("volatile = true", "").replace("flush_serial", "# ")


def scenario(folder: Path, jobs: int, *, drive: str = DRIVE, **load: Any) -> Scenario:
    (folder / "drive.toml").write_text(drive)
    volume = load.pop("volume", None)
    tables: dict[str, Any] = {
        "server": {"stack": "linux-libaio", "sockets": [{"cpu": "epyc-9354"}]},
        "drives": [{"profile": "drive.toml", "count": load.pop("count", 1)}],
        "workload": [
            {"block_size": "16 KiB", "access": "random", "read": 0.0, "outstanding": 1,
             "threads_total": jobs, **load}
        ],
    }  # fmt: skip
    if volume:
        tables["volume"] = volume
    return scenario_from_dict(tables, folder)


def run(folder: Path, jobs: int, **more: Any) -> Result:
    asked = scenario(folder, jobs, **more)
    return simulate(asked, requests=6_000, reliefs=False, certainty=False)


@pytest.mark.parametrize(
    ("jobs", "per_s"), [(1, 2101), (2, 2889), (4, 2603), (8, 3058), (16, 3043), (32, 3062)]
)
def test_a_volatile_drive_flushes_one_at_a_time(tmp_path: Path, jobs: int, per_s: float) -> None:
    """Not modelled: that two flushes overlap in the drive (2 jobs), and a dip at 4."""
    found = run(tmp_path, jobs, fdatasync=1)
    assert found.sync is not None
    assert found.sync.per_s == pytest.approx(per_s, rel=0.17 if jobs in (2, 4) else 0.03)


def test_threads_share_the_commits_of_a_journal(tmp_path: Path) -> None:
    """13.7k/s measured with 32 jobs, where fdatasync does 3.06k/s; 1.08k/s with one."""
    rates = {
        jobs: run(tmp_path, jobs, fsync=1, filesystem="ext4").total.iops.value
        for jobs in (1, 8, 32)
    }
    assert rates[1] == pytest.approx(1084, rel=0.15)
    assert rates[8] == pytest.approx(4232, rel=0.2)
    assert rates[32] == pytest.approx(13719, rel=0.2)


@pytest.mark.parametrize("load", [{"fdatasync": 1}, {"fsync": 1}])
def test_linux_flushes_no_drive_with_capacitors(tmp_path: Path, load: dict[str, int]) -> None:
    """Measured: 0.7 to 2 us beside such a drive."""
    found = run(tmp_path, 4, drive=SAFE, **load)
    assert found.sync.mean < 3e-6
    assert [m.writes_per_request for m in found.members] == pytest.approx([1.0], abs=0.01)


def test_a_busy_file_commits_once_a_tick(tmp_path: Path) -> None:
    """999 to 1,000 commits a second were measured, however many threads sync."""
    found = run(tmp_path, 16, drive=SAFE, fsync=1, filesystem="ext4")
    more = sum(m.writes_per_request for m in found.members) - 1
    assert more / 2 * found.total.iops.value == pytest.approx(1000, rel=0.02)


def test_what_is_not_modelled_is_refused(tmp_path: Path) -> None:
    volume = {"raid": "raid5", "chunk": "64 KiB"}
    with pytest.raises(ScenarioError, match=r"workload\.0\.fsync: "):
        resolve(scenario(tmp_path, 1, volume=volume, count=4, fsync=1, filesystem="xfs"))


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
@pytest.mark.parametrize(
    "volume", [None, *({"raid": raid} for raid in ("raid0", "raid1", "raid10"))], ids=str
)
def test_both_engines_complete_every_request_alike(
    tmp_path: Path, filesystem: str, volume: dict[str, str] | None
) -> None:
    asked = scenario(
        tmp_path, 12, fsync=2, filesystem=filesystem, volume=volume, count=2 if volume else 1
    )
    assert_complete_alike(lower(resolve(asked)).network, 1_500)
