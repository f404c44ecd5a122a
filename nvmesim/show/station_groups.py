"""Stations and drives in groups: what does the same for equal drives is one line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from nvmesim.measure.figures import MemberStats, StationStats
from nvmesim.predict.result import Result

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
    drives = {s.drive: [o.name for o in every if o.drive == s.drive] for s in every}
    own = {drive: _common_words(names) for drive, names in drives.items()}
    groups: dict[tuple[str, str], list[StationStats]] = {}
    for station in every:
        words, role = station.name.split(" "), station.name
        if station.drive is not None:  # what it is there, without the name of the drive or adapter
            role = " ".join(["drive", *words[own[station.drive] :]])
        elif station.adapter is not None:
            role = " ".join(["adapter", *words[-2 if station.resource == "uplink" else -1 :]])
        groups.setdefault((role, station.kind), []).append(station)
    return [
        StationGroup(role if len(found) > 1 else found[0].name, kind, tuple(found))
        for (role, kind), found in groups.items()
    ]


def _along(station: StationStats) -> int:
    """Where on the way from the thread to the dies *station* is; equal places keep their order."""
    if station.kind == "link":
        return _LINKS.index(station.resource) + 4 if station.resource in _LINKS else 4
    return _PATH.get(station.kind, 3 if station.drive is None else _DRIVE)


def _common_words(names: Sequence[str]) -> int:
    """How many words all *names* begin with: those of the drive's own name."""
    split = [name.split(" ") for name in names]
    same = takewhile(lambda words: len(set(words)) == 1, zip(*split, strict=False))
    return max(1, min(len(list(same)), min(map(len, split)) - 1))


def equal_members(result: Result) -> dict[str, list[MemberStats]]:
    """Name -> drives: each alone or, of many, with its equals; one being rebuilt has none."""
    rebuilt = "" if result.rebuild is None else result.rebuild.drive

    def figures(member: MemberStats) -> tuple[float, ...]:
        return member.utilization, member.reads_per_request, member.writes_per_request

    def is_equal(one: MemberStats, other: MemberStats) -> bool:
        pairs = zip(figures(one), figures(other), strict=True)
        return rebuilt not in (one.name, other.name) and all(
            abs(a - b) <= EQUAL * max(a, b) for a, b in pairs
        )

    groups: list[list[MemberStats]] = []
    for member in result.members:
        folded = groups if len(result.members) >= FOLDED else []
        own = next((group for group in folded if is_equal(group[0], member)), None)
        if own is None:
            groups.append([member])
        else:
            own.append(member)
    found = {}
    for group in groups:
        first, last = group[0].name, group[-1].name
        name = first + (", rebuilt" if first == rebuilt else "")
        found[f"{first} .. {last}, {len(group)} drives" if len(group) > 1 else name] = group
    return found
