"""Rows that a drive can be measured by, as fio jobs and as DiskSpd lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SECONDS: Final = 30
"""Run time of a row of the fixed plan, its ramp included."""
RAMP: Final = 3
SETTLE: Final = 5
"""Seconds over which the rate must keep still for a row to end before its time."""
STEADY: Final = "iops:3%"
"""fio's steady state: no sample of the last `SETTLE` seconds is farther from their mean."""


@dataclass(frozen=True)
class Row:
    """One load on the drive."""

    name: str
    op: str
    """randread, read, randwrite, write, or randrw for 70 % reads."""
    kib: int
    jobs: int
    depth: int
    tells: str
    """What a fit learns from it."""
    seconds: int = SECONDS

    @property
    def writes(self) -> bool:
        """True if it overwrites data."""
        return self.op not in ("read", "randread")

    @property
    def read_share(self) -> float:
        """Share of its requests that read."""
        return {"read": 1.0, "randread": 1.0, "randrw": 0.7}.get(self.op, 0.0)


PLAN: Final = (
    Row("rr-qd1", "randread", 4, 1, 1, "latency of one read: the die and the path to it"),
    Row("rr-qd256", "randread", 4, 8, 32, "commands per second of the controller"),
    Row("rr-qd8", "randread", 4, 1, 8, "depth at which reads begin to share dies"),
    Row("rr-qd32", "randread", 4, 4, 8, "how many dies there are"),
    Row("rr-64k", "randread", 64, 4, 8, "channels: larger reads"),
    Row("sr-128k", "read", 128, 1, 32, "read bandwidth"),
    Row("sw-128k", "write", 128, 1, 32, "write bandwidth, and what follows finds a full drive"),
    Row("rw-qd1", "randwrite", 4, 1, 1, "time of one write: the buffer"),
    Row("rw-qd32", "randwrite", 4, 4, 8, "drain rate of the buffer"),
    Row("rw-qd256", "randwrite", 4, 8, 32, "writes at full depth, as the drive settles", 60),
    Row("mix-qd32", "randrw", 4, 4, 8, "reads that wait for writes: how they share dies"),
    Row("mix-qd128", "randrw", 4, 8, 16, "the same at a depth that fills the drive"),
)
"""The fixed plan. Its first two rows are what an adaptive one begins with."""


def minutes(rows: Iterable[Row] = PLAN) -> float:
    """Return how long *rows* take.

    >>> 6 <= minutes() <= 10
    True
    """
    return sum(row.seconds for row in rows) / 60


def options(row: Row, target: str, *, size: str = "", engine: str = "io_uring") -> list[str]:
    """Return the arguments of fio that measure *row* on *target*, until it is steady.

    >>> "--readonly" in options(PLAN[0], "/dev/nvme0n1")
    True
    """
    settle = [f"--steadystate={STEADY}", f"--steadystate_duration={SETTLE}",
              f"--steadystate_ramp_time={RAMP}"]  # fmt: skip
    return [
        f"--name={row.name}", f"--filename={target}", f"--ioengine={engine}", "--direct=1",
        "--norandommap=1", "--randrepeat=0", "--time_based=1",
        *(f"--{load}" for load in _load(row, row.seconds)),
        "--group_reporting=1", "--output-format=json", *settle,
        *([f"--size={size}"] if size else []),
        *([] if row.writes else ["--readonly"]),
    ]  # fmt: skip


def _load(row: Row, seconds: int) -> list[str]:
    """Keys and values of fio that say what *row* asks of the drive."""
    mix = ["rwmixread=70"] if row.op == "randrw" else []
    return [f"rw={row.op}", f"bs={row.kib}k", f"numjobs={row.jobs}", f"iodepth={row.depth}",
            f"runtime={seconds}", *mix]  # fmt: skip


def fio_job(rows: Sequence[Row] = PLAN, drive: str = "/dev/nvmeXn1") -> str:
    """Return *rows* as a fio job file, one after the other, that says how to run it on *drive*.

    >>> "[rr-qd1]" in fio_job()
    True
    """
    writes = any(row.writes for row in rows)
    fill = f"fio --name=fill --filename={drive} --rw=write --bs=1m --iodepth=32 --direct=1"
    harm = "It reads only."
    if writes:
        harm = f"IT OVERWRITES THE DRIVE: use an empty one, and fill it first:\n#   {fill}"
    parts = [
        f"""\
# Measures a drive in {minutes(rows):.0f} minutes. {harm}
# As root, with your drive's name:
#   DRIVE={drive} fio --output-format=json --output=drive.json THIS-FILE
#   nvmesim calibrate drive.json --captured-on linux-io_uring -o drive.toml --report drive.html
[global]
filename=${{DRIVE}}
ioengine=io_uring
direct=1
norandommap=1
randrepeat=0
time_based=1
ramp_time={RAMP}
group_reporting=1
"""
    ]
    for row in rows:
        lines = [f"# {row.tells}", f"[{row.name}]", "stonewall", *_load(row, row.seconds - RAMP)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def diskspd_lines(rows: Sequence[Row] = PLAN) -> str:
    """Return *rows* as a PowerShell file of DiskSpd lines.

    >>> diskspd_lines().count("diskspd.exe -b") == len(PLAN)
    True
    """
    harm = " IT OVERWRITES DRIVE #1: put your own number." if any(r.writes for r in rows) else ""
    lines = [
        f"# Measures a drive in {minutes(rows):.0f} minutes.{harm}",
        "# Run it in a folder of its own as administrator, then:",
        "# nvmesim calibrate *.xml --captured-on windows-2019 -o drive.toml --report drive.html",
        "$drive = '#1'",
    ]
    for row in rows:
        access = "-r" if row.op.startswith("rand") else "-s"
        lines += [f"# {row.tells}",
                  f"diskspd.exe -b{row.kib}K -t{row.jobs} -o{row.depth} "
                  f"-w{100 * (1 - row.read_share):.0f} {access} -Sh -L -W{RAMP} "
                  f"-d{row.seconds - RAMP} -Rxml $drive | Out-File -Encoding utf8 "
                  f"{row.name}.xml"]  # fmt: skip
    return "\n".join(lines) + "\n"
