"""``python -m tests.faults.soak --minutes 120``: sweeps, one after the other, and what they keep.

``--requests 1000000000`` instead is one run of so many requests, ``--grid 20000`` one sweep of so
many points: what is resident on the way, and what a request or a point costs.

Each round sweeps the same points with local workers, without the cache, and drops the table. What
is resident afterwards is printed, of this process and of its children; after the first rounds it
must not grow.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import nvmesim as ns

POINTS = 120
WARM_ROUNDS = 3
BYTES_PER_POINT = 8000  # of a row of the table, which is kept: docs/trust.md
ALLOWED_KIB = 16 * 1024  # growth after the first rounds that is still the allocator's
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


def one_run(requests: int) -> int:
    """Simulate so many requests; print what is resident at each twentieth of them."""
    rows: list[tuple[float, int]] = []
    began = time.monotonic()

    def look(what: str, share: float) -> None:
        if what == "simulating" and share * 20 >= len(rows) + 1:
            rows.append((share * requests, resident_kib()))
            print(f"{rows[-1][0]:14,.0f} requests: {rows[-1][1]:8} KiB", flush=True)

    result = ns.simulate(
        ns.Scenario.model_validate(TABLES), requests=requests, reliefs=False, certainty=False,
        progress=look,
    )  # fmt: skip
    took = time.monotonic() - began
    print(f"{result.requests:,} requests in {took:.0f} s, {result.requests / took:,.0f} a second")
    return grown(rows, "request")


def one_grid(points: int, workers: int, *, certainty: bool) -> int:
    """Sweep so many points; print what is resident, and what a point costs, twenty times."""
    rows: list[tuple[float, int]] = []
    at = [time.monotonic()]

    def look(what: str, share: float) -> None:
        if share * 20 >= len(rows) + 1:
            rows.append((share * points, resident_kib()))
            at.append(time.monotonic())
            each = 1e3 * (at[-1] - at[-2]) / (points / 20)
            print(f"{rows[-1][0]:9,.0f} points: {rows[-1][1]:8} KiB, {each:6.2f} ms a point",
                  flush=True)  # fmt: skip

    over = {"run.seed": f"1..{points}"}  # all cost the same
    with tempfile.TemporaryDirectory() as folder:
        frame = ns.sweep(
            ns.Scenario.model_validate(TABLES), over, requests=500, workers=workers, cache=False,
            certainty=certainty, progress=look, output=Path(folder) / "grid.parquet",
        )  # fmt: skip
    assert frame.height == frame["error"].null_count() == points
    return grown(rows, "point", a_row=BYTES_PER_POINT)


def grown(rows: list[tuple[float, int]], what: str, a_row: int = 0) -> int:
    """Print the growth after the first quarter; 1 if it is more than *a_row* B each and the
    allocator's.
    """
    first, last = rows[len(rows) // 4], rows[-1]
    growth = last[1] - first[1]
    each = 1024 * growth / (last[0] - first[0])
    print(f"growth after the first quarter: {growth} KiB, {each:.4g} B a {what}")
    return int(growth > ALLOWED_KIB + a_row * (last[0] - first[0]) / 1024)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--requests", type=lambda text: int(float(text)))
    parser.add_argument("--grid", type=int)
    parser.add_argument("--bare", action="store_true", help="a grid without the numbers' doubt")
    asked = parser.parse_args()
    if asked.requests:
        return one_run(asked.requests)
    if asked.grid:
        return one_grid(asked.grid, asked.workers, certainty=not asked.bare)
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
