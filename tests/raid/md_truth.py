"""What a real Linux md did: the measured cases, and the same cases planned.

md ground truth: kernels 6.1.192 and 6.12.117, mdadm 4.2, fio 3.33, members of 1 GiB.
"""

import csv
import gzip
import math
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nvmesim.raid.arrays import PlanTable
from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.planner.parity import StripeCache
from nvmesim.raid.tables import plan_table
from tests.raid.expected import expectation
from tests.raid.requests import Plan, plan_request

DATA = Path(__file__).parent / "data"
MEMBER = 1 << 30
KIB = 1024

Vector = NDArray[np.float64]  # per request: read bios, write bios, read bytes, write bytes


def rows_of(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt", newline="") as text:
        return list(csv.DictReader(text))


class Case:
    """One measured case."""

    def __init__(self, row: dict[str, str]) -> None:
        def size(key: str) -> int:
            return int(float(row[key]) * KIB)

        self.row = row
        self.name = " ".join(filter(None, self._parts()))
        self.op: Op = "read" if "read" in row["op"] else "write"
        self.is_random = row["op"].startswith("rand")
        self.block_size, self.align, self.offset = map(size, ("bs_kib", "align_kib", "offset_kib"))
        self.n_ios, self.depth = int(row["n_ios"]), int(row["iodepth"])
        bios = [float(row[f"{op}_bios_per_io"]) for op in ("read", "write")]
        moved = [float(row[f"{op}_amp"]) * self.block_size for op in ("read", "write")]
        self.measured: Vector = np.array([*bios, *moved])
        self.measured_commands: Vector = np.array(
            [float(row["reads_per_io"]), float(row["writes_per_io"])]
        )
        # half a unit of the last digit in the file (3 digits of bios, 4 of amplification)
        digits = np.array([0.5e-3, 0.5e-3, 0.5e-4 * self.block_size, 0.5e-4 * self.block_size])
        self.rounding: Vector = digits * (1 + 1e-9)

    def _parts(self) -> list[str]:
        r = self.row
        return [
            r["kernel"].rpartition(".")[0], "raid" + r["level"], r["layout"],
            f"{r['members']}x{r['chunk_kib'] or 0}K", r["op"], f"{r['bs_kib']}K",
            f"align{r['align_kib']}K+{r['offset_kib']}K", "qd" + r["iodepth"], f"x{r['n_ios']}",
            "" if r["bitmap"] == "none" else r["bitmap"], r["tag"].strip(";").replace(";", ","),
            f"sc{r['stripe_cache']}" if r["stripe_cache"] else "",
            f"rmw{r['rmw_level']}" if r["rmw_level"] else "", f"rot{r['rot']}", r["sched"],
            r["dev_delay_us"],
        ]  # fmt: skip

    @cached_property
    def geometry(self) -> RaidGeometry:
        r = self.row
        failed = re.search(r"failed=([\d+]+)", r["tag"])
        n = int(r["members"])
        rotational = r["rot"]
        flags = rotational if len(rotational) == n else rotational * n
        return RaidGeometry(
            int(r["level"]),
            n,
            int(r["chunk_kib"] or 0) * KIB,
            "left-symmetric" if r["layout"].startswith("dm-raid") else r["layout"] or None,
            degraded=tuple(map(int, failed[1].split("+"))) if failed else (),
            rmw_level=int(r["rmw_level"] or 1),
            kernel=r["kernel"].rpartition(".")[0],
            stripe_cache=int(r["stripe_cache"] or 256),
            rotational=tuple(flag == "1" for flag in flags[:n]),
            write_mostly=(0,) if "writemostly" in r["tag"] else (),
            member_size=MEMBER,
        )

    @property
    def last_start(self) -> int:
        capacity = self.geometry.address_map.capacity
        assert capacity is not None
        return (capacity - self.offset - self.block_size) // self.align

    def table(self) -> PlanTable:
        return cached_table(self.geometry, self.op, self.block_size, self.align, self.offset)

    def random_offsets(self, rng: np.random.Generator, n: int) -> list[int]:
        return (self.offset + rng.integers(0, self.last_start + 1, n) * self.align).tolist()

    def sequential_offsets(self) -> list[int]:
        return [self.offset + k * self.block_size for k in range(self.n_ios)]

    def plans(self, offsets: list[int]) -> Iterator[Plan]:
        """Plans of requests at *offsets*, one after the other, from a cold stripe cache."""
        cache = StripeCache(self.geometry.stripe_cache)
        flushes = "fsync" in self.row["tag"]
        for k, start in enumerate(offsets):
            is_last = k == len(offsets) - 1
            flush = flushes and not is_last
            yield plan_request(self.geometry, self.op, start, self.block_size, cache, flush=flush)


@lru_cache(maxsize=512)
def cached_table(
    geometry: RaidGeometry, op: Op, block_size: int, align: int, offset: int
) -> PlanTable:
    return plan_table(geometry, op, block_size, align=align, offset=offset)


def plan_vector(plan: Plan) -> Vector:
    reads, writes = plan.count("read"), plan.count("write")
    return np.array([reads[1], writes[1], reads[2], writes[2]], float)


def commands_vector(plan: Plan) -> Vector:
    return np.array([plan.count("read")[0], plan.count("write")[0]], float)


def table_mean(table: PlanTable) -> Vector:
    mean = expectation(table)
    return np.array([mean.read_bios, mean.write_bios, mean.read_bytes, mean.write_bytes])


def table_commands(table: PlanTable) -> Vector:
    mean = expectation(table)
    return np.array([mean.reads, mean.writes])


def plan_sums(table: PlanTable) -> NDArray[np.float64]:
    """float64[n_plans, 6]: read bios, write bios, read bytes, write bytes, reads, writes."""
    plan_of_phase = np.repeat(np.arange(table.n_plans), np.diff(table.plan_phase_ptr))
    plan = np.repeat(plan_of_phase, np.diff(table.phase_child_ptr))
    write = table.child_is_write.astype(float)
    values = [
        (1 - write) * table.child_bios,
        write * table.child_bios,
        (1 - write) * table.child_bytes,
        write * table.child_bytes,
        1 - write,
        write,
    ]
    return np.stack([np.bincount(plan, v, minlength=table.n_plans) for v in values], axis=1)


def table_error(table: PlanTable, n_ios: int) -> tuple[Vector, Vector]:
    """Standard error of a mean over *n_ios* random requests: bios and bytes, and commands."""
    deviation = plan_sums(table)[table.order].std(axis=0) / math.sqrt(n_ios)
    return deviation[:4], deviation[4:]


def cases() -> list[Case]:
    """All cases but those with a partial parity log, which is not modelled."""
    return [Case(row) for row in rows_of("cases.csv.gz") if row["bitmap"] != "ppl"]
