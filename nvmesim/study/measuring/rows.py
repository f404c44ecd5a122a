"""Rows that a drive can be measured by, as fio jobs and as DiskSpd lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

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
    return _filled("drive.fio", rows, drive=drive, load=_load)


def diskspd_lines(rows: Sequence[Row] = PLAN) -> str:
    """Return *rows* as a PowerShell file of DiskSpd lines.

    >>> diskspd_lines().count("diskspd.exe -b") == len(PLAN)
    True
    """
    return _filled("drive.ps1", rows)


def _filled(name: str, rows: Sequence[Row], **values: Any) -> str:
    text = (resources.files(__package__) / "plans" / name).read_text("utf-8")
    made = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return made.from_string(text).render(
        rows=rows, minutes=minutes(rows), writes=any(row.writes for row in rows), ramp=RAMP,
        **values,
    )  # fmt: skip
