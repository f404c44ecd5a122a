"""Fit the catalog's Samsung 980 PRO and linux-io_uring to the published rows, and write them.

    python calibration/samsung-980pro/fit.py [FOLDER]

FOLDER is the catalog's data folder (default: the one of this repository). The same rows give the
same files. Takes two minutes. What is not fitted here (sizes, writes, file systems, notes) is kept
from the entries as they are.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.fit import fit_stack
from nvmesim.catalog import load
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.profile import DriveProfile, Quantity, StackProfile
from nvmesim.catalog.toml import to_toml

HERE = Path(__file__).parent
ROWS = HERE.parent / "published" / "980pro-depth" / "rows.csv"
DATA = HERE.parents[1] / "nvmesim" / "catalog" / "data"
STUDY = (
    "Samsung 980 PRO depth sweep, repository "
    "stonet-research/icpe24_io_scheduler_study_artifact (MIT), commit 013f1e1"
)
GHZ = 2.4
"""The clock of the measured CPU is not stated; only cycles / clock matters."""
LINK = "pcie4 x4"
STACK_NOTES = """\
The clock of the measured CPU is not stated (a single 10-core socket, SMT and turbo off): cycles are
microseconds x an assumed 2.4 GHz. Times it measured are right on any CPU of that speed.
Fitted together with the drive that answered it: how long a thread sleeps depends on that drive.
Its kernel forces requests to be dispatched by the submitting process.
"""
DRIVE_NOTES = """\
Reads at 4 KiB are fitted to the depth sweep, with the host that measured it taken out. Without a
host one read takes 62 us; the SPDK row of the study says 60. Channels are assumed as 8 of 3 us.
Random writes in steady state were not measured: program time is the sequential rate behind the SLC
cache, which is an upper bound; a write's QD1 time (15 us) is assumed. The link of the measured
machine is not stated: 783k x 4 KiB = 3.21 GB/s is what PCIe 3.0 x4 carries at 128-byte
payloads (785k), so the ceiling may be that machine's link and not the controller (rated about
1,000k on PCIe 4.0).
"""
LARGE = Point(
    "64 KiB 1x8", 1.0, True, 65536, 1, 8, 27_300, 292.09e-6, {50.0: 272.4e-6, 99.0: 610.3e-6}
)
"""The one row of 64 KiB that the data engines are fitted on; same study."""


def points(engine: str = "") -> list[Point]:
    """Return the rows of the depth sweep: of io_uring, or those whose name starts with *engine*."""
    lines = [line for line in ROWS.read_text("utf-8").splitlines() if not line.startswith("#")]
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines):
        head, _, shape = row["config"].rpartition(" ")
        if head == engine:
            found.setdefault(shape, {})[row["metric"]] = float(row["measured"])
    return [_point(shape, figures) for shape, figures in found.items()]


def _point(shape: str, figures: dict[str, float]) -> Point:
    jobs, depth = (int(n) for n in shape.split("x"))
    busy = figures.get("thread_cpu_pct")
    names = {50.0: "clat_p50_us", 99.0: "clat_p99_us", 99.9: "clat_p99_9_us"}
    return Point(
        shape, 1.0, True, 4096, jobs, depth, figures["iops"], figures["lat_mean_us"] * 1e-6,
        {p: figures[name] * 1e-6 for p, name in names.items()},
        cpu_s=busy / 100 * jobs / figures["iops"] if busy else None, per_job_pct=busy,
    )  # fmt: skip


def fit_both() -> tuple[StackProfile, DriveProfile]:
    """Fit the stack on all rows but 8x256, then the drive on those whose processes are not full."""
    stack = fit_stack(points(), ghz=GHZ, link=LINK, held_out=["QD=2048"], tell=_tell).profile
    host = BenchHost(stack, GHZ, parse_link(LINK))
    used = [p for p in points() if not p.is_cpu_bound and p.outstanding <= 256]
    drive = fit_drive([*used, LARGE], host=host, captured_on=f"linux-io_uring, {LINK}", tell=_tell)
    return stack, drive.profile


def write_both(stack: StackProfile, drive: DriveProfile, folder: Path) -> None:
    """Put the fitted numbers into the catalog's entries and write these below *folder*."""
    old_stack, old_drive = (
        load.get("stack", "linux-io_uring"),
        load.get("drive", "samsung-980pro-1tb"),
    )
    costs = ("submit", "complete", "interrupt", "wakeup", "wakeup_half")
    costs_found = _fitted(stack, costs, "usr + sys per request of 8 rows")
    costs_found |= {"joint": stack.joint, "notes": STACK_NOTES}
    new_stack = old_stack.model_copy(update=costs_found)
    reads = _fitted(drive.read, ("base", "die", "die_cv"), "6 rows")
    reads |= _fitted(drive.read, ("engines", "split"), "64 KiB, 1 x 8")
    whole = _fitted(drive, ("dies", "commands"), "6 rows")
    read = old_drive.read.model_copy(update=reads)
    whole |= {"captured_on": "linux-io_uring", "read": read, "notes": DRIVE_NOTES}
    whole["joint"] = drive.joint
    whole["channels"] = Quantity(value=8, basis="assumed")
    new_drive = old_drive.model_copy(update=whole)
    for kind, profile in (("stacks", new_stack), ("drives", new_drive)):
        path = folder / kind / f"{profile.name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_toml(profile), encoding="utf-8")


def _fitted(profile: Any, names: Sequence[str], what: str) -> dict[str, Quantity]:
    """Return the named numbers to four digits, with the study as their source."""
    out = {}
    for name in names:
        q: Quantity = getattr(profile, name)
        low, high = (None if v is None else float(f"{v:.4g}") for v in (q.low, q.high))
        value = float(f"{q.value:.4g}")
        source = f"{STUDY}: {what}; calibration/samsung-980pro/fit.py"
        out[name] = Quantity(value=value, low=low, high=high, basis="fitted", source=source)
    return out


def _tell(step: str) -> None:
    print(step, file=sys.stderr)


if __name__ == "__main__":
    write_both(*fit_both(), Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
