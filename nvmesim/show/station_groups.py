"""Stations and drives in groups: what does the same for equal drives is one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nvmesim.measure.figures import MemberStats, StationStats

FULL: Final = 0.9
"""Utilization from which a station counts as full."""
_LINKS: Final = ("memory", "interconnect", "root", "uplink", "adapter-commands", "port")
"""Resources of links, from the sockets outwards."""
_DRIVE: Final = 4 + len(_LINKS)
_PATH: Final = {"thread": 0, "cpu": 1, "lock": 2, "raid-engine": 2, "drive": _DRIVE}
EQUAL: Final = 0.15
"""Drives whose counts and load differ by less are equal: what differs is chance."""
FOLDED: Final = 9
"""From so many drives on, those that are equal share a row."""


@dataclass(frozen=True)
class StationGroup:
    """Stations that do the same for different drives, as one line."""

    label: str
    kind: str
    members: tuple[StationStats, ...]

    @property
    def busiest(self) -> StationStats:
        """The station with the highest utilization."""
        return max(self.members, key=lambda s: s.utilization)

    @property
    def least(self) -> float:
        """The lowest utilization."""
        return min(s.utilization for s in self.members)


def station_groups(stations: Iterable[StationStats]) -> list[StationGroup]:
    """Stations along the path, those of the drives and adapters put together by what they are."""
    every = sorted(stations, key=_along)
    names: dict[int, list[str]] = {}
    for station in every:
        if station.drive is not None:
            names.setdefault(station.drive, []).append(station.name)
    own = {drive: _common_words(text) for drive, text in names.items()}
    groups: dict[tuple[str, str], list[StationStats]] = {}
    for station in every:
        groups.setdefault((_role(station, own), station.kind), []).append(station)
    return [
        StationGroup(label if len(found) > 1 else found[0].name, kind, tuple(found))
        for (label, kind), found in groups.items()
    ]


def _along(station: StationStats) -> int:
    """Where on the way from the thread to the dies *station* is; equal places keep their order."""
    if station.kind == "link":
        return _LINKS.index(station.resource) + 4 if station.resource in _LINKS else 4
    return _PATH.get(station.kind, 3 if station.drive is None else _DRIVE)


def _common_words(names: Sequence[str]) -> int:
    """How many words all *names* begin with: those of the drive's own name.

    >>> _common_words(["rack A commands", "rack A port up", "rack A port down"])
    2
    """
    split = [name.split(" ") for name in names]
    same = 0
    for words in zip(*split, strict=False):
        if len(set(words)) > 1:
            break
        same += 1
    return max(1, min(same, min(len(words) for words in split) - 1))


def _role(station: StationStats, own: Mapping[int, int]) -> str:
    """Name of *station* at its drive or adapter, without the name of that."""
    words = station.name.split(" ")
    if station.drive is not None:
        return " ".join(["drive", *words[own[station.drive] :]])
    if station.adapter is not None:
        return " ".join(["adapter", *words[-2 if station.resource == "uplink" else -1 :]])
    return station.name


def equal_members(members: Sequence[MemberStats], apart: str = "") -> list[list[MemberStats]]:
    """Return *members* in groups that are equal, if there are many; *apart* stays alone.

    >>> def member(n, reads):
    ...     return MemberStats(f"drive{n}", reads, 0.0, reads, 0.0, 4096 * reads, 0.0, 0.5)
    >>> [len(g) for g in equal_members([*(member(n, 0.1) for n in range(9)), member(9, 0.3)])]
    [9, 1]
    """
    if len(members) < FOLDED:
        return [[m] for m in members]
    groups: list[list[MemberStats]] = []
    for member in members:
        own = next((g for g in groups if member.name != apart and g[0].name != apart
                    and _is_equal(g[0], member)), None)  # fmt: skip
        if own is None:
            groups.append([member])
        else:
            own.append(member)
    return groups


def group_name(group: Sequence[MemberStats]) -> str:
    """Return the name of one drive, or of the first and last of several."""
    if len(group) == 1:
        return group[0].name
    return f"{group[0].name} .. {group[-1].name}, {len(group)} drives"


def _is_equal(one: MemberStats, other: MemberStats) -> bool:
    pairs = [
        (one.utilization, other.utilization),
        (one.reads_per_request, other.reads_per_request),
        (one.writes_per_request, other.writes_per_request),
    ]
    return all(abs(a - b) <= EQUAL * max(a, b) for a, b in pairs)
