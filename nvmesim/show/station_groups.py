"""Stations and drives in groups: what does the same for equal drives is one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from nvmesim.measure.figures import MemberStats, StationStats
from nvmesim.predict.result import Result

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
    """How many words all *names* begin with: those of the drive's own name.

    >>> _common_words(["rack A commands", "rack A port up", "rack A port down"])
    2
    """
    split = [name.split(" ") for name in names]
    same = takewhile(lambda words: len(set(words)) == 1, zip(*split, strict=False))
    return max(1, min(len(list(same)), min(map(len, split)) - 1))


def equal_members(result: Result) -> dict[str, list[MemberStats]]:
    """Name -> drives: each alone or, of many, with its equals; one being rebuilt has none."""
    rebuilt = "" if result.rebuild is None else result.rebuild.drive
    groups: list[list[MemberStats]] = []
    for member in result.members:
        own = next(
            (
                g
                for g in groups
                if len(result.members) >= FOLDED
                and rebuilt not in (member.name, g[0].name)
                and _is_equal(g[0], member)
            ),
            None,
        )
        if own is None:
            groups.append([member])
        else:
            own.append(member)
    return {_name(group, rebuilt): group for group in groups}


def _name(group: Sequence[MemberStats], rebuilt: str | None) -> str:
    """The name of one drive, or of the first and last of several."""
    if len(group) > 1:
        return f"{group[0].name} .. {group[-1].name}, {len(group)} drives"
    return group[0].name + (", rebuilt" if group[0].name == rebuilt else "")


def _is_equal(one: MemberStats, other: MemberStats) -> bool:
    pairs = [
        (one.utilization, other.utilization),
        (one.reads_per_request, other.reads_per_request),
        (one.writes_per_request, other.writes_per_request),
    ]
    return all(abs(a - b) <= EQUAL * max(a, b) for a, b in pairs)
