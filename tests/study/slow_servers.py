"""Published servers that were slow for a reason that is known, as their owners would have asked.

The scenario is the server without its mistake; the rows are what was measured with it.
"""

import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nvmesim.capture.capture import Capture, Captures, Conditions, Measurement, OpResult
from nvmesim.scenario.load import with_values as put
from nvmesim.study.diagnosis.diagnose import diagnose
from nvmesim.study.diagnosis.findings import Diagnosis
from nvmesim.units import parse_size
from tests.study.planted import found_codes

PUBLISHED: Final = Path(__file__).parents[2] / "calibration" / "published"
MODERN: Final = {"volume.0.kernel": "6.12"}
NOT_NAMED: Final = 99
"""Place of a cause that no explanation names."""


@dataclass(frozen=True)
class SlowServer:
    """One published server."""

    name: str
    code: str
    """Of the true cause."""
    tables: Mapping[str, Any]
    rows: tuple[tuple[float, str, int, int, float], ...]
    """Read share, block size, jobs, depth, IOPS."""
    raw: tuple[int, float, str, int, int, float] | None = None
    """The same of so many drives without the array."""

    def captures(self) -> Captures:
        """Return its rows as a capture."""
        level = self.tables.get("volume", [{}])[0].get("raid")
        listed = [(None, level, row) for row in self.rows]
        if self.raw is not None:
            listed.append((self.raw[0], None, self.raw[1:]))
        rows = []
        for drives, raid, (read, size, jobs, depth, iops) in listed:
            shares = {"read": read * iops, "write": (1 - read) * iops}
            ops: Any = {op: OpResult(0, 0, rate, 0.0) for op, rate in shares.items() if rate}
            rows.append(Measurement(
                f"{size} {jobs} x {depth}",
                Conditions(read_fraction=read, access="random", block_size=parse_size(size),
                           jobs=jobs, iodepth=depth, direct=True, targets=drives, raid=raid),
                ops))  # fmt: skip
        return Captures((Capture(None, self.name, None, tuple(rows), len(rows)),))


def _set(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    text = (PUBLISHED / name / "scenario.toml").read_text("utf-8")
    return put({k: v for k, v in tomllib.loads(text).items() if k != "run"}, changes)


def slow_servers() -> list[SlowServer]:
    """Return all of them."""
    rows, mirrors, bitmap = "pm1733-md-reads", "md-mirrors", "980pro-raid5-bitmap"
    null_blk = {"server.sockets.0.cpu.cores": 16, "volume.0.group_thread_cnt": 16}
    ten = {**MODERN, "volume.0.raid": "raid10"}
    spare = {**MODERN, "drives.0.count": 12, "volume.0.spares": 1}
    ramdisk = (1, 0.7, "4 KiB", 40, 64, 20_558_000.0)
    return [
        SlowServer("md reads, kernel 4.18", "kernel", _set(rows, spare),
                   ((1.0, "4 KiB", 64, 128, 1_263_000),), (12, 1.0, "4 KiB", 64, 128, 16_000_000)),
        SlowServer("md reads, kernel 5.14", "kernel", _set(rows, spare),
                   ((1.0, "4 KiB", 64, 128, 5_332_000),), (12, 1.0, "4 KiB", 64, 128, 13_200_000)),
        SlowServer("md RAID1, kernel 5.10", "kernel", _set(mirrors, MODERN),
                   ((0.7, "4 KiB", 40, 64, 774_000),), ramdisk),
        SlowServer("md RAID10, kernel 6.1", "kernel", _set(mirrors, ten),
                   ((0.7, "4 KiB", 40, 64, 2_904_000),), ramdisk),
        SlowServer("980 PRO, bitmap of 64 MiB", "bitmap", _set(bitmap, {}),
                   ((0.0, "4 KiB", 1, 1, 174),), (1, 0.0, "4 KiB", 1, 1, 68_800)),
        SlowServer("980 PRO, bitmap of 128 MiB", "bitmap", _set(bitmap, {}),
                   ((0.0, "4 KiB", 1, 1, 175),), (1, 0.0, "4 KiB", 1, 1, 68_800)),
        SlowServer("980 PRO, bitmap of 512 MiB", "bitmap", _set(bitmap, {}),
                   ((0.0, "4 KiB", 1, 1, 285),), (1, 0.0, "4 KiB", 1, 1, 68_800)),
        SlowServer("RAID6 without workers", "workers", _set("raid6-rows", null_blk),
                   ((0.0, "4 KiB", 24, 32, 51_462),)),
    ]  # fmt: skip


def threads() -> list[dict[str, Any]]:
    """Return the tables of ``threads.toml``."""
    return tomllib.loads(Path(__file__).with_name("threads.toml").read_text("utf-8"))["thread"]


def asked(thread: Mapping[str, Any], folder: Path) -> Diagnosis:
    """Return what `diagnose` says of *thread*, whose rows are written in *folder*."""
    tables = tomllib.loads(thread["server"])
    load = {"threads_total": 1, "outstanding": 1, **tables.get("workload", [{}])[0]}
    rows = folder / "rows.csv"
    rows.write_text(thread["rows"].lstrip())
    return diagnose({**tables, "name": thread["name"], "workload": [load]}, [rows])


def place(diagnosis: Diagnosis, cause: str) -> int:
    """Return where the true answer stands, 1 for the first; `NOT_NAMED` if no explanation says it.

    Of rows that lie inside of all predicted intervals it is that nothing is wrong.
    """
    code = "healthy" if all(row.is_inside for row in diagnosis.rows) else cause
    codes = found_codes(diagnosis)
    return codes.index(code) + 1 if code in codes else NOT_NAMED


def main() -> None:
    """Print what `diagnose` says of each thread from the one given, and how often it is right."""
    places, start = [], int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with tempfile.TemporaryDirectory() as folder:
        for thread in threads()[start:]:
            answer = asked(thread, Path(folder))
            places.append(place(answer, thread["cause"]))
            chances = {e.code: e.probability for e in answer.explanations}
            chances["healthy"] = answer.healthy
            print(
                f"{places[-1]:2} {thread['name']}: {thread['cause']}:",
                ", ".join(f"{code} {chances[code]:.0%}" for code in found_codes(answer)[:4]),
                flush=True,
            )
            for row in answer.rows:
                print(
                    f"     {row.label}: {row.measured:,.0f} of {row.predicted.value:,.0f} "
                    f"({row.predicted.low:,.0f} to {row.predicted.high:,.0f})"
                )
    first, three = (sum(n <= most for n in places) for most in (1, 3))
    print(f"{len(places)} threads: {first} first, {three} among the first three")


if __name__ == "__main__":
    main()
