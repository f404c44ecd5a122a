"""What a table of plans makes of a request on average, to hold runs and measurements against."""

from types import SimpleNamespace

import numpy as np

from nvmesim.raid.arrays import PlanTable


def expectation(table: PlanTable) -> SimpleNamespace:
    """Exact means per request of *table*: reads, read_bios, read_bytes; writes, ... alike.

    By member: member_reads, member_read_bytes, ..., float64[n_members]; a read that any of several
    copies may serve counts for the first of them.
    """
    weights = np.bincount(table.order, minlength=table.n_plans) / len(table.order)
    weight = np.repeat(
        np.repeat(weights, np.diff(table.plan_phase_ptr)), np.diff(table.phase_child_ptr)
    )
    first = table.child_alt[table.child_alt_ptr[:-1]]
    found = {}
    for op, share in (("read", ~table.child_is_write), ("write", table.child_is_write)):
        mine = weight * share
        found[f"{op}s"] = float(mine.sum())
        found[f"{op}_bios"] = float(mine @ table.child_bios)
        found[f"{op}_bytes"] = float(mine @ table.child_bytes)
        for what, values in ((f"{op}s", mine), (f"{op}_bytes", mine * table.child_bytes)):
            found[f"member_{what}"] = np.bincount(first, values, table.n_members)
    return SimpleNamespace(**found)
