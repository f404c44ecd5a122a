"""``python -m tests.faults.soak --minutes 120``: sweeps, one after the other, and what they keep.

Each round sweeps the same points with local workers, without the cache, and drops the table. What
is resident afterwards is printed, of this process and of its children; after the first rounds it
must not grow.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import nvmesim as ns

POINTS = 120
WARM_ROUNDS = 3
ALLOWED_KIB = 16 * 1024
"""Growth after the first rounds that is still the allocator's."""
TABLES = {
    "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
    "drives": [{"profile": "samsung-980pro-1tb", "count": 2}],
    "volume": {"raid": "raid1"},
    "workload": {"threads": 2, "outstanding": 4},
}


def text_of(path: Path) -> str:
    """Text of a file of /proc; none if its thread or process has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def resident_kib(pid: int | str = "self") -> int:
    """Resident memory of a process; 0 of one that has ended."""
    for line in text_of(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def one_round(points: int, workers: int) -> int:
    """Sweep; return the largest resident memory of a worker, as seen on the way."""
    children = 0

    def look(what: str, share: float) -> None:
        nonlocal children
        listed = Path("/proc/self/task").glob("*/children")
        pids = [pid for file in listed for pid in text_of(file).split()]
        children = max([children, *(resident_kib(pid) for pid in pids)])

    over = {"workload.outstanding": list(range(1, points + 1))}
    frame = ns.sweep(ns.Scenario.model_validate(TABLES), over, requests=2000, workers=workers,
                     cache=False, progress=look)  # fmt: skip
    assert frame.height == points
    assert frame["error"].null_count() == points
    return children


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    rows: list[tuple[int, int]] = []
    while time.monotonic() < end or len(rows) <= WARM_ROUNDS:
        children = one_round(asked.points, asked.workers)
        rows.append((resident_kib(), children))
        done = asked.points * len(rows)
        print(
            f"{done:8} points: {rows[-1][0]:8} KiB here, {children:8} KiB in a worker", flush=True
        )
    warm = rows[WARM_ROUNDS - 1]
    growth = [last - first for first, last in zip(warm, rows[-1], strict=True)]
    print(f"growth after {WARM_ROUNDS} rounds: {growth[0]} KiB here, {growth[1]} KiB in a worker")
    return int(max(growth) > ALLOWED_KIB)


if __name__ == "__main__":
    sys.exit(main())
