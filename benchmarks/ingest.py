"""Speed of the readers, as a share of Polars' plain CSV read of the same bytes, in paired runs.

``python -m benchmarks.ingest`` prints a table, ``--json`` an object. A reader does far more than
split columns (it pairs, checks and counts every line), so 0.5 is its goal. Every file is made here
from a fixed seed; the machine's page cache holds it before the first run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from nvmesim.capture.registry import read_capture

GOAL = 0.5
JSON_GOAL_S = 0.2


@dataclass(frozen=True)
class Format:
    """One kind of file: what writes it and how Polars splits it."""

    name: str
    write: Callable[[Path, int], None]
    separator: str
    header: bool = False


@dataclass
class Measured:
    """Paired wall times of one file, s."""

    n_bytes: int
    lines: int
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    ours_cpu: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        """Medians over the rounds."""
        pairs = zip(self.plain, self.ours, strict=True)
        cpu = zip(self.plain_cpu, self.ours_cpu, strict=True)
        return {
            "MB": self.n_bytes / 1e6,
            "lines": self.lines,
            "lines_per_s": self.lines / median(self.ours),
            "MB_per_s": self.n_bytes / 1e6 / median(self.ours),
            "polars_MB_per_s": self.n_bytes / 1e6 / median(self.plain),
            "ratio": median(p / o for p, o in pairs),
            "cpu_ratio": median(p / o for p, o in cpu),
        }


def draws(n: int) -> dict[str, np.ndarray]:
    """*n* requests at depth 16 or so: arrivals and latencies in ns, offsets, sizes, reads."""
    rng = np.random.default_rng(1)
    return {
        "issue": np.cumsum(rng.integers(1000, 9000, n)) + 10**6,
        "latency": rng.gamma(4.0, 20_000, n).astype(np.int64) + 9_000,
        "offset": rng.integers(0, 200_000_000, n) * 4096,
        "bytes": rng.choice([4096, 8192, 65536], n, p=[0.8, 0.15, 0.05]),
        "write": rng.random(n) < 0.3,
    }


def _lists(n: int, order: str = "issue") -> list[tuple[int, int, int, int, bool]]:
    d = draws(n)
    key = d["issue"] + (d["latency"] if order == "complete" else 0)
    at = np.argsort(key, kind="stable")
    columns = (d[k][at].tolist() for k in ("issue", "latency", "offset", "bytes", "write"))
    return list(zip(*columns, strict=True))


def blkparse(path: Path, n: int) -> None:
    """Q, G, D and C lines of n / 4 requests, as blkparse prints them."""
    lines = []
    for issue, took, offset, size, write in _lists(n // 4):
        rwbs, tail = ("WS" if write else "R"), f"{offset // 512} + {size // 512}"
        for ago, letter in ((1900, "Q"), (1200, "G"), (0, "D")):
            lines.append((issue - ago, letter, f"{rwbs:>3} {tail} [fio]"))
        lines.append((issue + took, "C", f"{rwbs:>3} {tail} [0]"))
    lines.sort()
    with path.open("w") as file:
        for i, (t, letter, tail) in enumerate(lines):
            time_s = f"{t // 10**9:5}.{t % 10**9:09d}"
            file.write(f"259,0  {i % 8:3} {i + 1:8} {time_s} {372:5}  {letter} {tail}\n")


def fio_log(path: Path, n: int) -> None:
    """A clat log with offsets and priorities."""
    with path.open("w") as file:
        for issue, took, offset, size, write in _lists(n, "complete"):
            file.write(f"{(issue + took) // 10**6}, {took}, {write:d}, {size}, {offset}, 0\n")


def msr(path: Path, n: int) -> None:
    """MSR Cambridge."""
    with path.open("w") as file:
        for issue, took, offset, size, write in _lists(n):
            kind = "Write" if write else "Read"
            file.write(
                f"{128166372003061629 + issue // 100},hm,1,{kind},{offset},{size},{took // 100}\n"
            )


def alibaba(path: Path, n: int) -> None:
    """Alibaba 2020."""
    with path.open("w") as file:
        for i, (issue, _, offset, size, write) in enumerate(_lists(n)):
            letter = "W" if write else "R"
            file.write(f"{i % 50},{letter},{offset},{size},{1577808000000000 + issue // 1000}\n")


def tencent(path: Path, n: int) -> None:
    """Tencent CBS."""
    with path.open("w") as file:
        for i, (issue, _, offset, size, write) in enumerate(_lists(n)):
            time_s = 1538323200 + issue // 10**9
            file.write(f"{time_s},{offset // 512},{size // 512},{write:d},{1360 + i % 50}\n")


def k5cloud(path: Path, n: int) -> None:
    """K5cloud 2018."""
    with path.open("w") as file:
        for issue, _, offset, size, write in _lists(n):
            time_s = f"{issue // 10**9}.{issue % 10**9:09d}"
            file.write(f"1157,{time_s},{'W' if write else 'R'},{offset},{size}\n")


def spc(path: Path, n: int) -> None:
    """SPC trace file format."""
    with path.open("w") as file:
        for i, (issue, _, offset, size, write) in enumerate(_lists(n)):
            letter = "W" if write else "R"
            file.write(f"{i % 3},{offset // 512},{size},{letter},{issue / 1e9:.6f}\n")


def iolog(path: Path, n: int) -> None:
    """fio's write_iolog, version 3."""
    with path.open("w") as file:
        file.write("fio version 3 iolog\n0 /dev/nvme0n1 add\n0 /dev/nvme0n1 open\n")
        for issue, _, offset, size, write in _lists(n):
            kind = "write" if write else "read"
            file.write(f"{issue // 1000} /dev/nvme0n1 {kind} {offset} {size}\n")


def systor(path: Path, n: int) -> None:
    """SYSTOR '17."""
    with path.open("w") as file:
        file.write("Timestamp,Response,IOType,LUN,Offset,Size\n")
        for i, (issue, took, offset, size, write) in enumerate(_lists(n)):
            time_s = f"{1456095145 + issue // 10**9}.{issue % 10**9:09d}"
            letter = "W" if write else "R"
            file.write(f"{time_s},{took / 1e9:.9f},{letter},{i % 6},{offset},{size}\n")


def perf_script(path: Path, n: int) -> None:
    """perf script of block_rq_issue and block_rq_complete, n / 2 requests."""
    lines = []
    for issue, took, offset, size, write in _lists(n // 2):
        rwbs, tail = ("WS" if write else "R"), f"{offset // 512} + {size // 512}"
        lines.append((issue, f"block:block_rq_issue: 259,0 {rwbs} {size} () {tail} [fio]"))
        lines.append((issue + took, f"block:block_rq_complete: 259,0 {rwbs} () {tail} [0]"))
    lines.sort()
    with path.open("w") as file:
        for t, tail in lines:
            file.write(f"fio   538 [001] {t // 10**9:5}.{t % 10**9:09d}: {tail}\n")


def bpftrace_csv(path: Path, n: int) -> None:
    """A CSV line an event, n / 2 requests."""
    lines = []
    for issue, took, offset, size, write in _lists(n // 2):
        tail = f"259,0,{offset // 512},{size // 512},{'WS' if write else 'R'}"
        lines += [(issue, "D", tail), (issue + took, "C", tail)]
    lines.sort()
    with path.open("w") as file:
        file.write("ts_ns,ev,dev_major,dev_minor,sector,nr_sector,rwbs\n")
        for t, letter, tail in lines:
            file.write(f"{t},{letter},{tail}\n")


def biosnoop(path: Path, n: int) -> None:
    """bcc's biosnoop."""
    with path.open("w") as file:
        file.write("TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n")
        for issue, took, offset, size, write in _lists(n, "complete"):
            file.write(
                f"{(issue + took) / 1e9:<11.6f} {'fio':14} {372:<7} {'nvme0n1':9} "
                f"{'W' if write else 'R'} {offset // 512:<10} {size:<7} {took / 1e6:7.2f}\n"
            )


FORMATS = (
    Format("blkparse", blkparse, " "),
    Format("fio-log", fio_log, ","),
    Format("msr", msr, ","),
    Format("alibaba", alibaba, ","),
    Format("tencent-cbs", tencent, ","),
    Format("k5cloud", k5cloud, ","),
    Format("systor17", systor, ",", header=True),
    Format("spc", spc, ","),
    Format("fio-iolog", iolog, " "),
    Format("bpftrace-csv", bpftrace_csv, ",", header=True),
    Format("perf-script", perf_script, " "),
    Format("biosnoop", biosnoop, " "),
)


def polars_read(path: Path, form: Format) -> pl.DataFrame:
    """Polars' plain read: it splits the columns and guesses their types, nothing more."""
    return pl.read_csv(
        path,
        has_header=form.header,
        separator=form.separator,
        truncate_ragged_lines=True,
        ignore_errors=True,
        infer_schema_length=1000,
    )


def measure(form: Format, n: int, rounds: int, folder: Path) -> Measured:
    """Time both in turn, after one run of each that is not counted."""
    path = folder / form.name
    form.write(path, n)
    out = Measured(path.stat().st_size, n)
    readers: tuple[Callable[[], object], Callable[[], object]] = (
        lambda: read_capture(path),
        lambda: polars_read(path, form),
    )
    for number in range(rounds + 1):
        for read, walls, cpus in zip(
            readers, (out.ours, out.plain), (out.ours_cpu, out.plain_cpu), strict=True
        ):
            wall, cpu = time.perf_counter(), time.process_time()
            read()
            if number:
                walls.append(time.perf_counter() - wall)
                cpus.append(time.process_time() - cpu)
    path.unlink()
    return out


def json_plus(path: Path) -> int:
    """Write a json+ report of 1 MB and return its size."""
    rng = np.random.default_rng(2)

    def direction() -> dict[str, Any]:
        keys = np.unique(rng.integers(10_000, 90_000_000, 1400)).tolist()
        bins = {str(k): int(c) for k, c in zip(keys, rng.integers(1, 900, len(keys)), strict=True)}
        n = sum(bins.values())
        moments = {"min": 1, "max": 9 * 10**7, "mean": 4e7, "stddev": 1e6, "N": n}
        table = {
            **moments,
            "percentile": {"50.000000": 10**7, "99.000000": 8 * 10**7},
            "bins": bins,
        }
        counts = {"io_bytes": n * 4096, "io_kbytes": n * 4, "total_ios": n, "runtime": 10_000}
        return {
            **counts,
            "bw": n,
            "iops": n / 10,
            "slat_ns": table,
            "clat_ns": table,
            "lat_ns": table,
        }

    jobs: list[dict[str, Any]] = []
    text = ""
    while len(text) < 1_000_000:
        job = {"jobname": f"j{len(jobs)}", "groupid": len(jobs), "error": 0, "job runtime": 1}
        jobs.append({**job, "read": direction(), "write": direction(), "usr_cpu": 1, "sys_cpu": 2})
        text = json.dumps({"fio version": "fio-3.36", "jobs": jobs}, indent=1)
    path.write_text(text)
    return len(text)


def measure_json(rounds: int, folder: Path) -> dict[str, float]:
    """Median wall time of reading 1 MB of json+, s."""
    path = folder / "plus.json"
    size = json_plus(path)
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        read_capture(path)
        times.append(time.perf_counter() - start)
    return {"MB": size / 1e6, "s": median(times[1:]), "goal_s": JSON_GOAL_S}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="formats, separated by commas")
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    chosen = [f for f in FORMATS if not asked.only or f.name in asked.only.split(",")]
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for form in chosen:
            found[form.name] = measure(form, asked.lines, asked.rounds, Path(name)).row()
        found["fio-json+"] = measure_json(asked.rounds, Path(name))
    if asked.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'format':14}{'lines/s':>12}{'MB/s':>8}{'Polars MB/s':>13}{'ratio':>8}{'by CPU':>8}")
    for key, row in found.items():
        if key == "fio-json+":
            print(f"{key:14}{row['MB']:.2f} MB in {row['s']:.3f} s (goal {JSON_GOAL_S} s)")
            continue
        print(
            f"{key:14}{row['lines_per_s']:12,.0f}{row['MB_per_s']:8.0f}"
            f"{row['polars_MB_per_s']:13.0f}{row['ratio']:8.2f}{row['cpu_ratio']:8.2f}"
        )
    print(f"goal: ratio {GOAL}")


if __name__ == "__main__":
    main()
