"""Address maps of Linux md: which member holds which byte of a volume.

Rules as measured block by block (md ground truth, kernel 6.1.192, mdadm 4.2). A map is an immutable
value; offsets are bytes on the volume, member offsets are bytes from the start of a member's data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from nvmesim.errors import GeometryError, InputError
from nvmesim.raid.levels import Level, level_of
from nvmesim.units import format_size, parse_size

KIB: Final = 1024
BLOCK: Final = 4 * KIB
"""A stripe row of raid5/6 and the smallest chunk: one page. Source: md raid5.c, STRIPE_SIZE."""

Place = tuple[int, int]


@dataclass(frozen=True)
class Zone:
    """A range of a raid0 volume that is striped over the same members."""

    start: int  # bytes on the volume
    end: int  # bytes on the volume
    member_start: int  # bytes on each member
    members: tuple[int, ...]
    first_chunk: int  # chunk index that member 0 of the zone is counted from


def check_geometry(level: int, members: int, chunk: int | None, layout: str) -> None:
    """Raise GeometryError when md could not build such an array."""
    record = level_of(level)
    if members < record.least:
        raise GeometryError(
            f"{record.name} with {members} member{'s' * (members != 1)}; it takes at least"
            f" {record.least}"
        )
    _, copies = record.copies_of(members, layout)
    if copies > members:
        raise GeometryError(
            f"layout {layout!r} on {members} members; copies are on different members, so at most"
            f" {members} copies"
        )
    if record.has_chunks:
        _check_chunk(record, chunk)


def _check_chunk(level: Level, chunk: int | None) -> None:
    if chunk is None or chunk <= 0 or chunk % BLOCK:
        found = "missing" if chunk is None else format_size(chunk)
        raise GeometryError(
            f"chunk is {found} for {level.name}; it is a multiple of 4 KiB (mdadm's default is"
            " 512 KiB)"
        )
    if not level.any_chunk and chunk & (chunk - 1):
        raise GeometryError(
            f"chunk is {format_size(chunk)} for {level.name}; it is a power of two of at least"
            " 4 KiB (mdadm's default is 512 KiB)"
        )


def parity_places(level: int, layout: str, members: int, stripe: int) -> tuple[int, ...]:
    """Members that hold P, and for raid6 Q, in *stripe*.

    >>> parity_places(5, "left-symmetric", 4, 0), parity_places(6, "right-symmetric", 5, 4)
    ((3,), (4, 0))
    """
    if layout == "parity-first":
        return (0, 1)[: level_of(level).parity]
    if layout == "parity-last":
        data = members - level_of(level).parity
        return tuple(range(data, members))
    turn = stripe % members
    first = members - 1 - turn if layout.startswith("left") else turn
    return (first, (first + 1) % members)[: level_of(level).parity]


def data_places(level: int, layout: str, members: int, stripe: int) -> tuple[int, ...]:
    """Members that hold data chunk 0, 1, ... of *stripe*, in that order.

    >>> data_places(5, "left-symmetric", 4, 0), data_places(5, "left-asymmetric", 4, 1)
    ((0, 1, 2), (0, 1, 3))
    """
    parity = parity_places(level, layout, members, stripe)
    if layout.endswith("-symmetric"):
        first = parity[-1] + 1
        return tuple((first + i) % members for i in range(members - len(parity)))
    return tuple(member for member in range(members) if member not in parity)


@dataclass(frozen=True)
class RaidMap:
    """The address map of one array: build it with `raid_map`.

    ``capacity`` is in bytes, None when no member size was given.
    """

    level: int
    members: int
    chunk: int  # bytes; for raid1 the whole member, in effect
    layout: str
    member_sizes: tuple[int, ...] | None  # bytes, one each

    @cached_property
    def _level(self) -> Level:
        return level_of(self.level)

    def locate(self, offset: int) -> list[Place]:
        """Copies of the byte at *offset* as ``(member, member offset)``, md's first choice first.

        >>> raid_map("raid10", 4, "64 KiB", layout="near2").locate(65536)
        [(2, 0), (3, 0)]
        """
        self._check_offset(offset)
        if not self._level.has_chunks:
            return [(member, offset) for member in range(self.members)]
        index, inside = divmod(offset, self.chunk)
        if not self._level.redundant:
            zone = next(zone for zone in self.zones if offset < zone.end)
            member = zone.members[(index - zone.first_chunk) % len(zone.members)]
            row = (offset - zone.start) // self.chunk // len(zone.members)
            return [(member, zone.member_start + row * self.chunk + inside)]
        if self._level.mirrored:
            return [(m, row * self.chunk + inside) for m, row in self._copies(index)]
        stripe, data = divmod(index, self.data_disks)
        member = data_places(self.level, self.layout, self.members, stripe)[data]
        return [(member, stripe * self.chunk + inside)]

    def parity(self, offset: int) -> list[Place]:
        """Places of P, and for raid6 Q, in the row of *offset*; empty for other levels.

        >>> raid_map("raid6", 5, "64 KiB").parity(0)
        [(4, 0), (0, 0)]
        """
        self._check_offset(offset)
        if not self._level.parity:
            return []
        index, inside = divmod(offset, self.chunk)
        stripe = index // self.data_disks
        places = parity_places(self.level, self.layout, self.members, stripe)
        return [(member, stripe * self.chunk + inside) for member in places]

    def data_at(self, member: int, member_offset: int) -> int | None:
        """Volume offset whose byte lies there, or None for parity and for unused space.

        >>> raid_map("raid5", 4, "64 KiB").data_at(3, 0) is None
        True
        """
        if not 0 <= member < self.members:
            raise InputError(f"member is {member}; the array has members 0 to {self.members - 1}")
        if member_offset < 0:
            raise InputError(f"member offset is {member_offset}; it is at least 0")
        if self.member_sizes is not None and member_offset >= self.member_sizes[member]:
            return None
        offset = self._data_at(member, member_offset)
        if offset is None or (self.capacity is not None and offset >= self.capacity):
            return None
        return offset

    @property
    def copies(self) -> int:
        """Number of places that hold each byte, parity not counted."""
        return self._level.copies_of(self.members, self.layout)[1]

    @property
    def data_disks(self) -> int:
        """Chunks of data in a stripe of raid0, raid5 and raid6."""
        return self.members - self._level.parity

    @cached_property
    def capacity(self) -> int | None:
        """Bytes of the volume, or None when the size of the members was not given."""
        if self.member_sizes is None:
            return None
        smallest = min(self.member_sizes)
        if not self._level.has_chunks:
            return smallest
        if not self._level.redundant:
            return self.zones[-1].end if self.zones else 0
        rows = smallest // self.chunk
        if self._level.mirrored:
            kind, copies = self._level.copies_of(self.members, self.layout)
            if kind == "near":
                return rows * self.members // copies * self.chunk
            return rows // copies * self.members * self.chunk
        return rows * self.data_disks * self.chunk

    @cached_property
    def zones(self) -> tuple[Zone, ...]:
        """Zones of raid0, by the members' usable sizes; one open zone when sizes are unknown."""
        if self.member_sizes is None:
            return (Zone(0, 2**63, 0, tuple(range(self.members)), 0),)
        usable = [size // self.chunk * self.chunk for size in self.member_sizes]
        zones: list[Zone] = []
        start = limit = 0
        for size in sorted(set(usable) - {0}):
            inside = tuple(m for m, length in enumerate(usable) if length >= size)
            end = start + (size - limit) * len(inside)
            origin = 0 if self.layout == "original" else start // self.chunk
            zones.append(Zone(start, end, limit, inside, origin))
            start, limit = end, size
        return tuple(zones)

    @property
    def _far_rows(self) -> int:
        """Rows between the copies of a far layout. Source: md raid10.c, calc_sectors."""
        if self.member_sizes is None:
            raise GeometryError(
                f"layout {self.layout!r} has its copies far apart; give member_size to place them"
            )
        return min(self.member_sizes) // self.chunk // self.copies

    def _copies(self, index: int) -> list[Place]:
        """Member and row of each copy of chunk *index* of a raid10."""
        kind, copies = self._level.copies_of(self.members, self.layout)
        if kind == "near":
            slots = [index * copies + copy for copy in range(copies)]
            return [(slot % self.members, slot // self.members) for slot in slots]
        row, first = divmod(index, self.members)
        if kind == "offset":
            rows = [row * copies + copy for copy in range(copies)]
        else:
            rows = [row + copy * self._far_rows for copy in range(copies)]
        return [((first + copy) % self.members, rows[copy]) for copy in range(copies)]

    def _data_at(self, member: int, member_offset: int) -> int | None:
        if not self._level.has_chunks:
            return member_offset
        row, inside = divmod(member_offset, self.chunk)
        if not self._level.redundant:
            return self._zone_data_at(member, member_offset)
        if self._level.mirrored:
            return self._copy_data_at(member, row, inside)
        places = data_places(self.level, self.layout, self.members, row)
        if member not in places:
            return None
        return (row * self.data_disks + places.index(member)) * self.chunk + inside

    def _zone_data_at(self, member: int, member_offset: int) -> int | None:
        for zone in self.zones:
            count = len(zone.members)
            length = (zone.end - zone.start) // count
            inside = member_offset - zone.member_start
            if member in zone.members and 0 <= inside < length:
                first = zone.start // self.chunk
                turn = (zone.members.index(member) + zone.first_chunk - first) % count
                index = first + inside // self.chunk * count + turn
                return index * self.chunk + inside % self.chunk
        return None

    def _copy_data_at(self, member: int, row: int, inside: int) -> int | None:
        kind, copies = self._level.copies_of(self.members, self.layout)
        if kind == "near":
            return (row * self.members + member) // copies * self.chunk + inside
        if kind == "offset":
            row, copy = divmod(row, copies)
        elif copies > 1 and row >= self._far_rows * copies:
            return None  # a remainder too short for every copy stays unused
        else:
            copy, row = divmod(row, self._far_rows) if copies > 1 else (0, row)
        index = row * self.members + (member - copy) % self.members
        return index * self.chunk + inside

    def _check_offset(self, offset: int) -> None:
        if offset < 0 or (self.capacity is not None and offset >= self.capacity):
            end = "" if self.capacity is None else f" and below the capacity, {self.capacity}"
            raise InputError(f"offset is {offset}; it is at least 0{end}")


def raid_map(
    level: int | str, members: int, chunk: int | str | None = None, layout: str | None = None,
    member_size: int | str | Sequence[int | str] | None = None,
) -> RaidMap:  # fmt: skip
    """Address map of an array as Linux md lays it out.

    *chunk* and *member_size* are bytes or texts such as ``"512 KiB"``; *member_size* is the space
    for data on each member, one value or one per member (raid0 then has zones). It may be left out
    where the map does not depend on it (only a far layout does); then ``capacity`` is None. raid1
    needs no *chunk*. Raises GeometryError when md could not build the array.
    Source: md ground truth, kernel 6.1.192, mdadm 4.2.

    >>> volume = raid_map("raid5", 4, "64 KiB", member_size="1 GiB")
    >>> volume.locate(0), volume.parity(0)
    ([(0, 0)], [(3, 0)])
    >>> volume.capacity == 3 * 2**30
    True
    """
    record = level_of(level)
    number, name = record.number, record.layout(layout)
    size = parse_size(chunk) if isinstance(chunk, str) else chunk
    check_geometry(number, members, size, name)
    sizes = _parse_sizes(member_size, members)
    if not record.has_chunks or size is None:
        size = min(sizes) if sizes else 2**62
    if sizes is not None and record.has_chunks and max(sizes) < size:
        raise GeometryError(
            f"member_size is {format_size(max(sizes))}; a member holds at least one chunk of"
            f" {format_size(size)}"
        )
    return RaidMap(number, members, size, name, sizes)


def _parse_sizes(
    member_size: int | str | Sequence[int | str] | None, members: int
) -> tuple[int, ...] | None:
    if member_size is None:
        return None
    if isinstance(member_size, int | str):
        member_size = [member_size] * members
    sizes = tuple(parse_size(size) if isinstance(size, str) else size for size in member_size)
    if len(sizes) != members:
        raise GeometryError(
            f"member_size has {len(sizes)} values for {members} members; give one, or one each"
        )
    if min(sizes) <= 0:
        raise GeometryError(f"member_size is {min(sizes)}; it is more than 0 bytes")
    return sizes
