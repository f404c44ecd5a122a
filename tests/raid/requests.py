"""One request on a volume, planned by itself: its commands on the members, named."""

from dataclasses import dataclass
from typing import NamedTuple

from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.planner.parity import StripeCache
from nvmesim.raid.planner.plan import bitmap_phase, flush_phase, raw_plan


class Child(NamedTuple):
    """One command on one member."""

    member_alternatives: tuple[int, ...]
    """More than one where any of several copies serves a read, in md's order of preference."""
    op: Op
    member_offset: int  # bytes, on the first alternative
    n_bytes: int
    n_bios: int


@dataclass(frozen=True)
class Plan:
    """Phases of children, one after the other."""

    phases: tuple[tuple[Child, ...], ...]

    def count(self, op: Op) -> tuple[int, int, int]:
        """Commands, bios and bytes of all children that are *op*."""
        children = [child for phase in self.phases for child in phase if child.op == op]
        return len(children), sum(c.n_bios for c in children), sum(c.n_bytes for c in children)


def plan_request(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: StripeCache | None = None, *,
    first_dirty: bool = False, flush: bool = False,
) -> Plan:  # fmt: skip
    """Plan of a request; *first_dirty*: the first write to a clean region of the bitmap."""
    below = offset + length <= rebuilt_bytes(geometry)
    phases = raw_plan(geometry, op, offset, length, cache, below=below)
    if op == "write" and first_dirty:
        phases = [bitmap_phase(geometry), *phases]
    if flush:
        phases = [*phases, flush_phase(geometry)]
    return Plan(
        tuple(
            tuple(Child(on, "write" if write else "read", *rest) for on, write, *rest in phase)
            for phase in phases
        )
    )


def rebuilt_bytes(geometry: RaidGeometry) -> int:
    """Volume bytes whose row on rebuilding members is good already; 0 without a member size."""
    capacity = geometry.address_map.capacity
    if not geometry.rebuilding or geometry.member_size is None or capacity is None:
        return 0
    return int(capacity * geometry.rebuilt)
