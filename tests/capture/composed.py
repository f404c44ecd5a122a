# ruff: noqa: E501 - lines are as long as the tools print them
"""Writers of captures that cannot be recorded here: the formats as their sources print them.

The numbers are drawn from a fixed seed; the samples in ``data`` are what these functions write.
"""

from __future__ import annotations

import numpy as np

HOST_TICKS = 128166372003061795
PERCENTS = [*range(100), 99.9, 99.99, 99.999, 99.9999, 99.99999, 99.999999, 99.9999999, 100]
TEXT_ROWS = (
    ("min", 0), ("25th", 25), ("50th", 50), ("75th", 75), ("90th", 90), ("95th", 95), ("99th", 99),
    *((f"{k}-nines", round(100 - 10.0 ** (2 - k), k)) for k in range(3, 10)), ("max", 100),
)  # fmt: skip


def requests(n: int = 200, seed: int = 1) -> dict[str, np.ndarray]:
    """Arrivals of *n* requests: ns, latency ns, write or not, bytes, offset."""
    rng = np.random.default_rng(seed)
    return {
        "time": np.cumsum(rng.integers(1000, 400_000, n)) * 1000,
        "latency": rng.integers(50, 9_000, n) * 1000,
        "write": rng.random(n) < 0.4,
        "bytes": rng.choice([4096, 8192, 65536], n),
        "offset": rng.integers(0, 2_000_000, n) * 4096,
    }


def _rows(n: int) -> list[tuple[int, int, bool, int, int]]:
    return list(zip(*(column.tolist() for column in requests(n).values()), strict=True))


def msr(n: int = 200) -> str:
    return "".join(
        f"{HOST_TICKS + t // 100},srv,{i % 2},{'Write' if w else 'Read'},{o},{b},{took // 100}\n"
        for i, (t, took, w, b, o) in enumerate(_rows(n))
    )


def alibaba(n: int = 60) -> str:
    return "".join(
        f"{i % 5},{'W' if w else 'R'},{o},{b},{1577808144360767 + t // 1000}\n"
        for i, (t, _, w, b, o) in enumerate(_rows(n))
    )


def tencent(n: int = 60) -> str:
    return "".join(
        f"{1538323200 + t // 10**9},{o // 512},{b // 512},{int(w)},{1360 + i % 3}\n"
        for i, (t, _, w, b, o) in enumerate(_rows(n))
    )


def k5cloud(n: int = 60) -> str:
    return "".join(
        f"1157,{t // 10**9}.{t % 10**9:09d},{'W' if w else 'R'},{o},{b}\n"
        for t, _, w, b, o in _rows(n)
    )


def systor(n: int = 60) -> str:
    lines = ["Timestamp,Response,IOType,LUN,Offset,Size\n"]
    for i, (t, took, w, b, o) in enumerate(_rows(n)):
        time = f"{1456095145 + t // 10**9}.{t % 10**9:09d}"
        answer = "," if i % 20 == 19 else f"{took / 1e9:.9f},{'W' if w else 'R'}"
        lines.append(f"{time},{answer},{i % 3},{o},{b}\n")
    return "".join(lines)


def spc(n: int = 60) -> str:
    return "".join(
        f"{i % 2},{o // 512},{b},{'W' if w else 'r'},{t / 1e9:.6f}{',0x123,test' * (i % 7 == 0)}\n"
        for i, (t, _, w, b, o) in enumerate(_rows(n))
    )


def biosnoop(n: int = 60, queue: bool = True) -> str:
    lines = [
        f"TIME(s)     COMM           PID     DISK      T SECTOR     BYTES {' QUE(ms)' * queue} LAT(ms)\n"
    ]
    rows = sorted(_rows(n), key=lambda row: row[0] + row[1])
    for i, (t, took, w, b, o) in enumerate(rows):
        comm = ("fio", "Web Content", "jbd2/nvme0n1-8")[i % 3]
        que = f"{0.01:7.2f} " if queue else ""
        lines.append(
            f"{(t + took) / 1e9:<11.6f} {comm:14} {372:<7} nvme0n1   {'W' if w else 'R'} "
            f"{o // 512:<10} {b:<7} {que}{took / 1e6:7.2f}\n"
        )
    lines.append(
        f"{99.0:<11.6f} {'fio':14} {372:<7} nvme0n1   F {0:<10} {0:<7} {'   0.00 ' * queue}   0.30\n"
    )
    return "".join(lines)


def biolatency() -> str:
    counts = [0, 0, 0, 12, 100, 700, 90, 3]
    lines = [
        "Tracing block device I/O... Hit Ctrl-C to end.\n",
        "^C\n",
        "\n",
        "disk = b'nvme0n1'\n",
    ]
    lines.append("     usecs               : count     distribution\n")
    for k, count in enumerate(counts):
        low, high = (0, 1) if k == 0 else (2**k, 2 ** (k + 1) - 1)
        lines.append(f"{low:10} -> {high:<10} : {count:<8} |{'*' * (count // 18):40}|\n")
    return "".join(lines)


def iometer() -> str:
    names = (
        "Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,IOps,"
        "Read IOps,Write IOps,MBps (Decimal),Transactions per Second,Connections per Second,"
        "Average Response Time,Average Read Response Time,Average Write Response Time,"
        "Maximum Response Time,Maximum Read Response Time,Maximum Write Response Time,Errors,"
        "Bytes Read,Bytes Written,Read I/Os,Write I/Os,Queue Depth,% CPU Utilization,"
        "% User Time,% Privileged Time,Processor Speed"
    )
    lines = [
        "'Test Type,Test Description", "0,composed", "'Version", "1.1.0 ", "'Time Stamp",
        "2024-07-01 10:00:00:000", "'Access specifications",
        "'Access specification name,default assignment", "4K 70%Rd 100%Rnd,0",
        "'size,% of size,% reads,% random,delay,burst,align,reply", "4096,100,70,100,0,1,4096,0",
        "'End access specifications",
    ]  # fmt: skip
    for run in range(2):
        iops = 61500.5 * (1 + run)
        figures = (
            f"4K 70%Rd 100%Rnd,1,1,2,{iops},{iops * 0.7},{iops * 0.3},{iops * 4096 / 1e6:.3f},{iops},"
            "0,0.259,0.342,0.066,5.121,5.121,1.903,0,"
            f"{2583021 * 4096},{1106960 * 4096},2583021,1106960,16,,,,"
        )
        lines += ["'Results", f"'{names}", f"ALL,All,{figures}", f"MANAGER,HOST1,{figures}"]
        lines += [f"PROCESSOR,CPU {k},{',' * 22}{40 + k}.5,6.0,34.5,2600000000" for k in range(4)]
        lines += [f"WORKER,Worker 1,{figures}", f"DISK,PHYSICALDRIVE:1,{figures}"]
        lines += ["'Time Stamp", f"2024-07-01 10:0{run + 1}:00:000"]
    return "\n".join(lines) + "\n"
