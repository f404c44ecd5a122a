"""From one request on a volume to the commands on its members, as Linux md issues them.

`raw_plan` plans one request; `nvmesim.raid.tables` turns whole access
patterns into arrays. Source: md ground truth, kernels 6.1.192 and 6.12.117, mdadm 4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.budget import REQUEST_PIECES, check_commands, spend
from nvmesim.raid.planner.merge import joined
from nvmesim.raid.planner.parity import ParityPlanner
from nvmesim.raid.planner.pieces import RawChild, plan_pieces
from nvmesim.raid.planner.records import plan_records
from nvmesim.raid.planner.row import StripeCache

SECTOR: Final = 512

RawPlan = list[list[RawChild]]
Planner = Callable[[RaidGeometry, Op, int, int, StripeCache | None, bool], RawPlan]
"""Called with (geometry, op, offset, length, cache, below): see `raw_plan`."""


def pieces(geometry: RaidGeometry, length: int) -> int:
    """Rows of 4 KiB where the level has a stripe cache, else chunks of each copy or column."""
    if geometry.record.stripe_cache:
        return REQUEST_PIECES + length // BLOCK
    each = geometry.copies if geometry.record.mirrored else 1
    each = geometry.members if geometry.record.records else each
    return REQUEST_PIECES + (1 + length // (geometry.chunk or BLOCK)) * each


@lru_cache(maxsize=64)
def parity_planner(geometry: RaidGeometry) -> ParityPlanner:
    """The planner of a raid5 or raid6; one a geometry, because it remembers its decisions."""
    return ParityPlanner(geometry)


def raw_plan(
    geometry: RaidGeometry,
    op: Op,
    offset: int,
    length: int,
    cache: StripeCache | None = None,
    *,
    below: bool = False,
) -> RawPlan:
    """Phases of a request without checks or a bitmap; *below* as in `plan_pieces`.

    Raises LimitError where `budget.planning` allows no more.

    >>> raw_plan(RaidGeometry(1, 2), "write", 0, 4096)
    [[((0,), True, 0, 4096, 1), ((1,), True, 0, 4096, 1)]]
    """
    spend(pieces(geometry, length))
    phases = PLANNERS[geometry.record.planner](geometry, op, offset, length, cache, below)
    if geometry.kernel == "none":
        phases = [joined(children, geometry.max_sectors) for children in phases]
    if not geometry.record.records:  # ZFS may write later what a request has changed
        check_commands(sum(map(len, phases)))
    return phases


def _pieces_plan(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: StripeCache | None, below: bool
) -> RawPlan:
    """Requests that are cut and copied: one phase. Such a level has no stripe cache."""
    return [plan_pieces(geometry, op, offset, length, below=below)]


def _parity_plan(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: StripeCache | None, below: bool
) -> RawPlan:
    """Reads in one phase; writes in two, of what is read first and of what is written."""
    planner = parity_planner(geometry)
    if op == "read":
        return [planner.read(offset, length, cache, below=below)]
    return planner.write(offset, length, cache, below=below)


PLANNERS: Final[dict[str, Planner]] = {
    "pieces": _pieces_plan, "parity": _parity_plan, "records": plan_records,
}  # fmt: skip
"""Key of a level's record -> what plans its requests."""


def bitmap_phase(geometry: RaidGeometry) -> list[RawChild]:
    """The bitmap write that precedes the first write to a clean region: 512 B on every member.

    An external bitmap lies in a file elsewhere, so members see nothing of it.
    """
    if geometry.bitmap != "internal":
        return []
    live = [m for m in range(geometry.members) if m not in geometry.degraded]
    return [((member,), True, 0, SECTOR, 1) for member in live]


def flush_phase(geometry: RaidGeometry) -> list[RawChild]:
    """One flush, a write of 0 bytes, on every member."""
    live = [m for m in range(geometry.members) if m not in geometry.degraded]
    return [((member,), True, 0, 0, 1) for member in live]
