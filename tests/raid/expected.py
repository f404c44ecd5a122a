"""What a table of plans makes of a request on average, to hold runs and measurements against."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvmesim.raid.arrays import PlanTable


@dataclass(frozen=True)
class Expectation:
    """Exact means per request over one table.

    Member arrays are float64[n_members]; a read that any of several copies may serve counts for the
    first of them.
    """

    reads: float
    writes: float
    read_bios: float
    write_bios: float
    read_bytes: float
    write_bytes: float
    member_reads: NDArray[np.float64]
    member_writes: NDArray[np.float64]
    member_read_bytes: NDArray[np.float64]
    member_write_bytes: NDArray[np.float64]


def expectation(table: PlanTable) -> Expectation:
    """Exact means per request of *table*: commands, bios and bytes, in all and by member."""
    weights = np.bincount(table.order, minlength=table.n_plans) / len(table.order)
    per_phase = np.repeat(weights, np.diff(table.plan_phase_ptr))
    weight = np.repeat(per_phase, np.diff(table.phase_child_ptr))
    write = weight * table.child_is_write
    read = weight - write

    def by_member(values: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.bincount(
            table.child_alt[table.child_alt_ptr[:-1]], weights=values, minlength=table.n_members
        )
        return sums.astype(np.float64)

    return Expectation(
        reads=float(read.sum()),
        writes=float(write.sum()),
        read_bios=float(read @ table.child_bios),
        write_bios=float(write @ table.child_bios),
        read_bytes=float(read @ table.child_bytes),
        write_bytes=float(write @ table.child_bytes),
        member_reads=by_member(read),
        member_writes=by_member(write),
        member_read_bytes=by_member(read * table.child_bytes),
        member_write_bytes=by_member(write * table.child_bytes),
    )
