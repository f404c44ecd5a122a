"""`nvmesim capture-plan`: what to run on a drive so that calibrate learns most of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from nvmesim.cli.output import check_writable, output_path, write_text

SECONDS: Final = 30
STEPS: Final = (
    # (name, operation, block size KiB, jobs, depth): what it tells
    ("rr-qd1", "randread", 4, 1, 1, "latency of one read: the die and the path to it"),
    ("rr-qd8", "randread", 4, 1, 8, "depth at which reads begin to share dies"),
    ("rr-qd32", "randread", 4, 4, 8, "how many dies there are"),
    ("rr-qd256", "randread", 4, 8, 32, "commands per second of the controller"),
    ("rr-64k", "randread", 64, 4, 8, "channels: larger reads"),
    ("sr-128k", "read", 128, 1, 32, "read bandwidth"),
    ("sw-128k", "write", 128, 1, 32, "write bandwidth, and the preconditioning of what follows"),
    ("rw-qd1", "randwrite", 4, 1, 1, "time of one write: the buffer"),
    ("rw-qd32", "randwrite", 4, 4, 8, "drain rate of the buffer"),
    ("rw-qd256", "randwrite", 4, 8, 32, "writes at full depth, as the drive settles"),
    ("mix-qd32", "randrw", 4, 4, 8, "reads that wait for writes, 70/30: how they share dies"),
    ("mix-qd128", "randrw", 4, 8, 16, "the same at a depth that fills the drive"),
)
TWICE: Final = {"rw-qd256"}
"""Steps that run twice as long: random writes need time to settle."""


@click.command(name="capture-plan", epilog="Example: nvmesim capture-plan --os linux -o drive.fio")
@click.option(
    "--os", "system", type=click.Choice(("linux", "windows")), default="linux", show_default=True,
    help="linux: a fio job file; windows: DiskSpd lines.",
)  # fmt: skip
@output_path("The file to write; default: print it.", "-o", "--output")
def capture_plan(system: str, output: Path | None) -> int:
    """Write what to run on a drive in ten minutes.

    THE DRIVE'S CONTENT IS OVERWRITTEN. Each step determines what a fit needs: one read
    alone, the depth at which dies are shared, the controller's limit, bandwidths, the write buffer
    and what it drains at, and reads beside writes.
    """
    check_writable(output)
    text = fio_job() if system == "linux" else diskspd_lines()
    if output is None:
        click.echo(text, nl=False)
        return 0
    write_text(output, text)
    click.echo(f"nvmesim: wrote {output}; it overwrites the drive that it is run on", err=True)
    return 0


def minutes() -> float:
    """How long the plan runs.

    >>> 6 <= minutes() <= 10
    True
    """
    return SECONDS * (len(STEPS) + len(TWICE)) / 60


def fio_job() -> str:
    """Return the plan as a fio job file.

    >>> "[rr-qd1]" in fio_job()
    True
    """
    head = f"""\
# Measures most of a drive in {minutes():.0f} minutes. IT OVERWRITES THE DRIVE: use an empty one.
# As root, with your drive's name; fill it once before (this takes longer, and steady state needs
# it):  fio --name=fill --filename=/dev/nvmeXn1 --rw=write --bs=1m --iodepth=32 --direct=1
# Then: DRIVE=/dev/nvmeXn1 fio --output-format=json --output=drive.json THIS-FILE
# and:  nvmesim calibrate drive.json --captured-on linux-io_uring -o drive.toml --report drive.html
[global]
filename=${{DRIVE}}
ioengine=io_uring
direct=1
norandommap=1
randrepeat=0
time_based=1
ramp_time=3
group_reporting=1
"""
    parts = [head]
    for name, operation, kib, jobs, depth, tells in STEPS:
        seconds = SECONDS * (2 if name in TWICE else 1) - 3
        lines = [f"# {tells}", f"[{name}]", "stonewall", f"rw={operation}", f"bs={kib}k",
                 f"numjobs={jobs}", f"iodepth={depth}", f"runtime={seconds}"]  # fmt: skip
        if operation == "randrw":
            lines.append("rwmixread=70")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def diskspd_lines() -> str:
    """Return the plan as a PowerShell file of DiskSpd lines.

    >>> diskspd_lines().count("diskspd.exe -b") == len(STEPS)
    True
    """
    lines = [
        f"# Measures most of a drive in {minutes():.0f} minutes. IT OVERWRITES DRIVE #1: put your "
        "own number.",
        "# Run it in a folder of its own as administrator, then:",
        "# nvmesim calibrate *.xml --captured-on windows-2019 -o drive.toml --report drive.html",
        "$drive = '#1'",
    ]
    for name, operation, kib, jobs, depth, tells in STEPS:
        seconds = SECONDS * (2 if name in TWICE else 1) - 3
        writes = {"randread": 0, "read": 0, "randwrite": 100, "write": 100, "randrw": 30}[operation]
        access = "-r" if operation.startswith("rand") else "-s"
        lines += [f"# {tells}",
                  f"diskspd.exe -b{kib}K -t{jobs} -o{depth} -w{writes} {access} -Sh -L -W3 "
                  f"-d{seconds} -Rxml $drive | Out-File -Encoding utf8 {name}.xml"]  # fmt: skip
    return "\n".join(lines) + "\n"
