"""``python -m tests.faults.soak --minutes 120``: sweeps, one after the other, and what they keep.

``--requests 1000000000`` instead is one run of so many requests, ``--grid 20000`` one sweep of so
many points: what is resident on the way, and what a request or a point costs. Rounds have local
workers and no cache; the largest worker is looked at as well. Growth is exit code 1.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvmesim as ns

WARM_ROUNDS = 3
BYTES_PER_POINT = 8000  # of a row of the table, which is kept: docs/trust.md
ALLOWED_KIB = 16 * 1024  # growth after the first rounds that is still the allocator's
SCENARIO = ns.Scenario(
    server={"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
    drives=[{"profile": "samsung-980pro-1tb", "count": 2}],
    volume={"raid": "raid1"},
    workload={"threads": 2, "outstanding": 4},
)
Rows = list[tuple[float, int]]  # how much is done, and KiB that are resident


def text_of(path: Path) -> str:
    """Text of a file of /proc; none if its thread or process has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def resident_kib(pid: int | str = "self") -> int:
    lines = text_of(Path(f"/proc/{pid}/status")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def largest_child_kib() -> int:
    pids = [p for f in Path("/proc/self/task").glob("*/children") for p in text_of(f).split()]
    return max(map(resident_kib, pids), default=0)


def watched(total: int, what: str, rows: Rows) -> Callable[[str, float], None]:
    """Note and print at each twentieth what is resident and what one has cost so far."""
    began = time.monotonic()

    def look(step: str, share: float) -> None:
        if share * 20 >= len(rows) + 1 and (what == "point" or step == "simulating"):
            done, each = share * total, (time.monotonic() - began) / (share * total)
            rows.append((done, resident_kib()))
            print(f"{done:14,.0f} {what}s: {rows[-1][1]} KiB, {1e3 * each:.4g} ms each", flush=True)

    return look


def grown(rows: Rows, what: str, a_row: int = 0) -> int:
    """1 if growth after the first quarter is more than *a_row* B each and the allocator's."""
    first, last = rows[len(rows) // 4], rows[-1]
    growth, many = last[1] - first[1], last[0] - first[0]
    print(f"after the first quarter: {growth} KiB more, {1024 * growth / many:.4g} B a {what}")
    return int(growth > ALLOWED_KIB + a_row * many / 1024)


def sweep(key: str, points: int, **how: Any) -> None:
    frame = ns.sweep(SCENARIO, {key: f"1..{points}"}, cache=False, **how)
    assert frame.height == frame["error"].null_count() == points


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--points", type=int, default=120)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--requests", type=lambda text: int(float(text)))
    parser.add_argument("--grid", type=int)
    parser.add_argument("--bare", action="store_true", help="a grid without the numbers' doubt")
    asked = parser.parse_args()
    rows: Rows = []
    if asked.requests:
        ns.simulate(SCENARIO, requests=asked.requests, reliefs=False, certainty=False,
                    progress=watched(asked.requests, "request", rows))  # fmt: skip
        return grown(rows, "request")
    if asked.grid:
        with tempfile.TemporaryDirectory() as folder:
            sweep("run.seed", asked.grid, requests=500, workers=asked.workers,
                  certainty=not asked.bare, output=Path(folder) / "grid.parquet",
                  progress=watched(asked.grid, "point", rows))  # fmt: skip
        return grown(rows, "point", BYTES_PER_POINT)
    end, children = time.monotonic() + 60 * asked.minutes, []
    while time.monotonic() < end or len(rows) <= WARM_ROUNDS:
        most = [0]
        sweep("workload.outstanding", asked.points, requests=2000, workers=asked.workers,
              progress=lambda *_, most=most: most.append(largest_child_kib()))  # fmt: skip
        rows.append((asked.points * (len(rows) + 1), resident_kib()))
        children.append(max(most))
        print(
            f"{rows[-1][0]:8} points: {rows[-1][1]} KiB, {children[-1]} KiB in a worker", flush=True
        )
    here, there = (x[-1] - x[WARM_ROUNDS - 1] for x in ([kib for _, kib in rows], children))
    print(f"growth after {WARM_ROUNDS} rounds: {here} KiB here, {there} KiB in a worker")
    return int(max(here, there) > ALLOWED_KIB)


if __name__ == "__main__":
    sys.exit(main())
