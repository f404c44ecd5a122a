"""A long run keeps nothing of its requests, a large sweep a row of each point; workers neither."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nvmesim as ns
from nvmesim.scenario.load import scenario_from_dict
from tests.servers import one_server

SCENARIO = scenario_from_dict(one_server(
    "samsung-980pro-1tb", {"threads": 2, "outstanding": 4}, 2, volume={"raid": "raid1"},
))  # fmt: skip
BYTES_PER_POINT = 8000
"""Of a row of the table, which is kept: docs/trust.md."""
ALLOWED_KIB = 16 * 1024
"""Growth after the first quarter that is still the allocator's."""


def text_of(path: Path) -> str:
    """Text of a file of /proc; none if its thread or process has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def resident_kib() -> int:
    """Of this process and of those that it started."""
    tasks = Path("/proc/self/task").glob("*/children")
    pids = [str(os.getpid()), *(pid for task in tasks for pid in text_of(task).split())]
    lines = [line for pid in pids for line in text_of(Path(f"/proc/{pid}/status")).splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def run(progress: Callable[[str, float], None], folder: Path) -> int:
    ns.simulate(SCENARIO, requests=20_000_000, reliefs=False, certainty=False, progress=progress)
    return 0


def grid(progress: Callable[[str, float], None], folder: Path) -> int:
    over, out = {"run.seed": "1..4000"}, folder / "grid.parquet"
    frame = ns.sweep(SCENARIO, over, requests=500, workers=2, certainty=False, cache=False,
                     output=out, progress=progress)  # fmt: skip
    assert frame["error"].null_count() == 4000
    return 4000 * BYTES_PER_POINT


@pytest.mark.slow
@pytest.mark.parametrize("work", [run, grid])
def test_memory_is_flat(work: Callable[..., int], tmp_path: Path) -> None:
    seen: list[int] = []

    def look(step: str, share: float) -> None:
        if share * 20 >= len(seen) + 1:
            seen.append(resident_kib())

    kept = work(look, tmp_path)
    assert len(seen) >= 15
    assert all(seen)  # where there is no /proc nothing was looked at
    growth = seen[-1] - seen[len(seen) // 4]
    assert growth < ALLOWED_KIB + 0.75 * kept / 1024, seen
