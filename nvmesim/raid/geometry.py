"""Geometry of an array, and the state it is in.

Words: a *bio* is what md issues to a member, a *child* the command that the member serves after the
block layer has merged bios; a *phase* ends when its slowest child ends.
"""

from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal

from nvmesim.errors import FailedArrayError, GeometryError
from nvmesim.raid.levels import Level, level_of
from nvmesim.raid.map import (
    BLOCK,
    KIB,
    RaidMap,
    check_geometry,
    data_places,
    parity_places,
    raid_map,
)
from nvmesim.units import parse_size

Op = Literal["read", "write"]

RAID5_MAX_REQUEST: Final = 256 * BLOCK
"""Largest bio that raid5/6 takes. Source: md raid5.c, RAID5_MAX_REQ_STRIPES, since kernel 6.0."""


@dataclass(frozen=True, kw_only=True)
class ArrayOptions:
    """What is said of an array beside its size: of a volume, and of its geometry, alike.

    Defaults are md's. Member numbers are those of the array.
    """

    degraded: tuple[int, ...] = ()
    """Members that are missing."""
    rebuilt: float = 0.0
    """How far a rebuild is: a share of the member."""
    rmw_level: int = 1
    read_policy: Literal["md", "round-robin", "shortest-queue", "first"] = "md"
    bitmap: Literal["none", "internal", "external"] = "none"
    bitmap_chunk: int = 64 * KIB * KIB
    stripe_cache: int = 256
    """md's ``stripe_cache_size``, in rows."""
    write_mostly: tuple[int, ...] = ()
    """Members of a raid1 that serve reads only when no other can."""

    def options(self) -> dict[str, Any]:
        """Return these fields alone, by name.

        >>> RaidGeometry(1, 2, write_mostly=(1,)).options()["write_mostly"]
        (1,)
        """
        return {option.name: getattr(self, option.name) for option in fields(ArrayOptions)}


@dataclass(frozen=True)
class RaidGeometry(ArrayOptions):
    """An array and the state it is in; raises GeometryError when it cannot be, or has failed.

    Choices and member numbers are those that `nvmesim.scenario` has checked.
    ``rebuilding`` are members that are present and written but hold good data only below
    ``rebuilt``. ``kernel`` picks the block layer's merge rule ("none": an engine that is not md).
    ``max_sectors`` (bytes) and ``max_segments`` (of 4 KiB) are the members' limits on one command.
    ``rotational`` flags the members; left out, none is.
    Defaults are md's, and those of the members in the md ground truth.

    >>> RaidGeometry(5, 4, "64 KiB").data_disks
    3
    >>> RaidGeometry("raid5", 4, "64 KiB", degraded=(0, 2))
    Traceback (most recent call last):
    nvmesim.errors.FailedArrayError: raid5 of 4 members has failed; missing: 0 and 2
    """

    level: int
    members: int
    chunk: int = 0  # bytes; 0 only for raid1
    layout: str | None = None
    _: KW_ONLY
    rebuilding: tuple[int, ...] = ()
    max_sectors: int = 1280 * KIB
    max_segments: int = 128
    kernel: str = "6.1"
    rotational: tuple[bool, ...] = ()
    member_size: int | tuple[int, ...] | None = None

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __hash__(self) -> int:
        """Taken once: every request that is planned looks its planner up."""
        return self._hash

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        record = level_of(self.level)
        set_field(self, "level", record.number)
        set_field(self, "layout", record.layout(self.layout))
        if isinstance(self.chunk, str):
            set_field(self, "chunk", parse_size(self.chunk))
        check_geometry(self.level, self.members, self.chunk or None, self.layout_name)
        for key in ("degraded", "rebuilding", "write_mostly"):
            set_field(self, key, tuple(sorted(set(getattr(self, key)))))
        most = self.max_sectors
        if most < BLOCK or most % 512:
            raise GeometryError(
                f"max_sectors is {most} bytes; it is a multiple of 512 of at least 4096"
            )
        if not survives(self.level, self.members, self.layout_name, self.lost):
            lost = " and ".join(map(str, self.lost))
            text = f"{record.name} of {self.members} members has failed; missing: {lost}"
            raise FailedArrayError(text, self.lost)

    @cached_property
    def record(self) -> Level:
        """Record of its level."""
        return level_of(self.level)

    @property
    def layout_name(self) -> str:
        """The layout's full name."""
        return self.layout or ""

    @property
    def data_disks(self) -> int:
        """Chunks of data in a stripe."""
        return self.members - self.record.parity

    @property
    def copies(self) -> int:
        """Copies of each block of a raid1 or raid10."""
        return self.record.copies_of(self.members, self.layout_name)[1]

    @property
    def lost(self) -> tuple[int, ...]:
        """Members that cannot be read: missing ones, and rebuilding ones above the point."""
        return tuple(sorted({*self.degraded, *self.rebuilding}))

    @cached_property
    def address_map(self) -> RaidMap:
        """The address map; a far layout without a member size gets one that is large enough."""
        size = self.member_size
        if size is None and self.layout_name.startswith("far"):
            size = 1 << 40
        sizes = list(size) if isinstance(size, tuple) else size
        return raid_map(self.level, self.members, self.chunk or None, self.layout_name, sizes)

    @cached_property
    def stripe_roles(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Data members and parity members of each stripe until the layout repeats (raid5/6)."""
        layout = self.layout_name
        period = 1 if layout.startswith("parity-") else self.members
        return tuple(
            (
                data_places(self.level, layout, self.members, stripe),
                parity_places(self.level, layout, self.members, stripe),
            )
            for stripe in range(period)
        )


def survives(level: int, members: int, layout: str, lost: tuple[int, ...]) -> bool:
    """True if an array still has every byte without the members in *lost*.

    >>> survives(10, 4, "near2", (0, 2)), survives(10, 4, "near2", (0, 1))
    (True, False)
    """
    record = level_of(level)
    if not record.mirrored:
        return len(lost) <= record.parity
    kind, copies = record.copies_of(members, layout)
    gone = set(lost)
    return not any(held <= gone for held in copy_sets(kind, members, copies))


def copy_sets(layout: str, n_members: int, copies: int) -> list[set[int]]:
    """Return the sets of members that hold the copies of one chunk. Source: md(4), RAID10.

    >>> copy_sets("near", 4, 2)
    [{0, 1}, {2, 3}, {0, 1}, {2, 3}]
    >>> copy_sets("far", 3, 2)
    [{0, 1}, {1, 2}, {0, 2}]
    """
    step = copies if layout == "near" else 1
    return [{(k * step + j) % n_members for j in range(copies)} for k in range(n_members)]
