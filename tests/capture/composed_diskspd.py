# ruff: noqa: E501 - lines are as long as the tools print them
"""Writers of DiskSpd results, XML and text, of a run with two targets.

Source: format strings of ResultParser.cpp and XmlResultParser.cpp, microsoft/diskspd 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.capture.composed import PERCENTS, TEXT_ROWS

SECONDS = 3.0
BLOCK = 4096


@dataclass(frozen=True)
class Thread:
    """What one thread did to its target."""

    path: str
    reads: np.ndarray
    """ms, ascending."""
    writes: np.ndarray


def threads(seed: int = 1) -> list[Thread]:
    rng = np.random.default_rng(seed)
    return [
        Thread(path, np.sort(rng.gamma(9, 0.012 * k, 7000)).round(3), np.sort(rng.gamma(4, 0.004, 3000)).round(3))
        for k, path in enumerate(("D:\\bench & co\\t1.dat", "E:\\bench\\t2.dat"), 1)
    ]  # fmt: skip


def rank(values: np.ndarray, percent: float) -> float:
    """DiskSpd's percentile: the first value with a cumulative count of at least p n."""
    return float(values[max(int(np.ceil(percent / 100 * len(values) - 1e-9)), 1) - 1])


def merged(runs: list[Thread]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.sort(np.concatenate([t.reads for t in runs])),
        np.sort(np.concatenate([t.writes for t in runs])),
    )


def xml(seed: int = 1, version: str = "2.2.0") -> str:
    runs = threads(seed)
    reads, writes = merged(runs)
    targets = "".join(
        f"<Target><Path>{t.path}</Path><BlockSize>{BLOCK}</BlockSize><DisableOSCache>true</DisableOSCache>"
        "<Random>4096</Random><RequestCount>8</RequestCount><WriteRatio>30</WriteRatio>"
        "<Throughput>0</Throughput><ThreadsPerFile>1</ThreadsPerFile></Target>\n"
        for t in runs
    )
    cpus = "".join(
        f"<CPU><Id>{k}</Id><UsagePercent>{u:.2f}</UsagePercent><UserPercent>1.00</UserPercent>"
        f"<KernelPercent>{u - 1:.2f}</KernelPercent><IdlePercent>{100 - u:.2f}</IdlePercent></CPU>\n"
        for k, u in enumerate((90.0, 4.0, 50.0, 2.0))
    )
    buckets = "".join(
        f"<Bucket><Percentile>{p}</Percentile><ReadMilliseconds>{rank(reads, p):.3f}</ReadMilliseconds>"
        f"<WriteMilliseconds>{rank(writes, p):.3f}</WriteMilliseconds></Bucket>\n"
        for p in PERCENTS
    )
    body = "".join(
        f"<Thread><Id>{k}</Id><Target><Path>{t.path}</Path>"
        f"<ReadBytes>{len(t.reads) * BLOCK}</ReadBytes><ReadCount>{len(t.reads)}</ReadCount>"
        f"<WriteBytes>{len(t.writes) * BLOCK}</WriteBytes><WriteCount>{len(t.writes)}</WriteCount>"
        f"<AverageReadLatencyMilliseconds>{t.reads.mean():.3f}</AverageReadLatencyMilliseconds>"
        f"<ReadLatencyStdev>{t.reads.std():.3f}</ReadLatencyStdev>"
        f"<AverageWriteLatencyMilliseconds>{t.writes.mean():.3f}</AverageWriteLatencyMilliseconds>"
        f"<WriteLatencyStdev>{t.writes.std():.3f}</WriteLatencyStdev></Target></Thread>\n"
        for k, t in enumerate(runs)
    )
    return (
        "warning: a line before the results\n<Results>\n<System><ComputerName>COMPOSED</ComputerName>"
        f"<Tool><Version>{version}</Version></Tool></System>\n<Profile><TimeSpans><TimeSpan>"
        "<CompletionRoutines>false</CompletionRoutines><Warmup>1</Warmup><ThreadCount>0</ThreadCount>"
        f"<RequestCount>0</RequestCount><Targets>\n{targets}</Targets></TimeSpan></TimeSpans></Profile>\n"
        f"<TimeSpan><TestTimeSeconds>{SECONDS:.2f}</TestTimeSeconds><ThreadCount>2</ThreadCount>"
        f"<RequestCount>0</RequestCount><ProcCount>4</ProcCount>\n<CpuUtilization>\n{cpus}<Average>"
        "<UsagePercent>36.50</UsagePercent><UserPercent>1.00</UserPercent>"
        "<KernelPercent>35.50</KernelPercent><IdlePercent>63.50</IdlePercent></Average></CpuUtilization>\n"
        f"<Latency><AverageReadMilliseconds>{reads.mean():.3f}</AverageReadMilliseconds>"
        f"<ReadLatencyStdev>{reads.std():.3f}</ReadLatencyStdev>"
        f"<AverageWriteMilliseconds>{writes.mean():.3f}</AverageWriteMilliseconds>"
        f"<WriteLatencyStdev>{writes.std():.3f}</WriteLatencyStdev>\n{buckets}</Latency>\n{body}"
        "</TimeSpan>\n</Results>\na line behind the results\n"
    )


def text(seed: int = 1) -> str:
    runs = threads(seed)
    reads, writes = merged(runs)
    lines = [
        "",
        "Command Line: diskspd.exe -b4K -r -o8 -t1 -w30 -W1 -d3 -L -Su D:\\t1.dat E:\\t2.dat",
        "",
    ]
    lines += ["Input parameters:", "", "\ttimespan:   1", "\t-------------", "\tduration: 3s"]
    lines += [
        "\twarm up time: 1s",
        "\tcool down time: 0s",
        "\tmeasuring latency",
        "\trandom seed: 0",
    ]
    for t in runs:
        lines += [
            f"\tpath: '{t.path}'", "\t\tthink time: 0ms", "\t\tsoftware cache disabled",
            "\t\tperforming mix test (read/write ratio: 70/30)", "\t\tblock size: 4KiB",
            "\t\tusing random I/O (alignment: 4KiB)",
            "\t\tnumber of outstanding I/O operations per thread: 8", "\t\tthreads per file: 1",
            "\t\tusing I/O Completion Ports", "\t\tIO priority: normal",
        ]  # fmt: skip
    lines += ["", "System information:", "", "\tcomputer name: COMPOSED", "\tcpu count:\t\t4", ""]
    lines += ["Results for timespan 1:", "*" * 79, "", f"actual test time:\t{SECONDS:.2f}s"]
    lines += ["thread count:\t\t2", "", "Core | CPU |  Usage |  User  | Kernel |  Idle", "-" * 47]
    for k, u in enumerate((90.0, 4.0, 50.0, 2.0)):
        lines.append(f"{k // 2:5}|{k:5}| {u:6.2f}%|   1.00%| {u - 1:6.2f}%| {100 - u:6.2f}%")
    lines += ["-" * 47, "       avg.|  36.50%|   1.00%|  35.50%|  63.50%", ""]
    both = [(t.path, np.concatenate((t.reads, t.writes))) for t in runs]
    lines += _table("Total IO", both)
    lines += _table("Read IO", [(t.path, t.reads) for t in runs])
    lines += _table("Write IO", [(t.path, t.writes) for t in runs])
    for t in runs:
        lines += [f"Latency distribution: {t.path}", *_percentiles(t.reads, t.writes)]
    lines += ["Total latency distribution:", *_percentiles(reads, writes)]
    return "\n".join(lines) + "\n"


def _table(title: str, rows: list[tuple[str, np.ndarray]]) -> list[str]:
    def figures(values: np.ndarray) -> str:
        n = len(values)
        return (
            f"{n * BLOCK:16} | {n:12} | {n * BLOCK / SECONDS / 2**20:10.2f} | {n / SECONDS:10.2f} | "
            f"{values.mean():8.3f} | {values.std():9.3f}"
        )

    lines = [
        title,
        "thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file",
    ]
    lines.append("-" * 100)
    lines += [f"{k:6} | {figures(v)} | {path} (8GiB)" for k, (path, v) in enumerate(rows)]
    lines += ["-" * 100, f"total: {figures(np.concatenate([v for _, v in rows]))}", ""]
    return lines


def _percentiles(reads: np.ndarray, writes: np.ndarray) -> list[str]:
    lines = ["  %-ile |  Read (ms) | Write (ms) | Total (ms)", "-" * 46]
    both = np.sort(np.concatenate((reads, writes)))
    for name, p in TEXT_ROWS:
        lines.append(
            f"{name:>7} | {rank(reads, p):10.3f} | {rank(writes, p):10.3f} | {rank(both, p):10.3f}"
        )
    return [*lines, ""]
