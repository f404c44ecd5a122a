"""The server as a picture (SVG): what ``templates/server.svg`` draws, and where.

A link is two pipes, as thick as it is fast, filled as far as it is in use. What runs from a socket
to its drives runs horizontally, what crosses between sockets vertically: no line crosses another.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, median
from typing import Any, Final, TypeAlias

from nvmesim.catalog.links import Link
from nvmesim.measure.figures import SocketCpu, StationStats
from nvmesim.predict.result import Result
from nvmesim.scenario.resolved import Adapter, Drive, ResolvedScenario, Socket
from nvmesim.show.page import rendered
from nvmesim.show.words import joined, kiops, percent

WIDTH: Final = 1120.0
MARGIN: Final = 14.0
SOCKET_WIDTH: Final = 216.0
ADAPTER_WIDTH: Final = 132.0
CHIPS: Final = 46.0
"""Height of the row of what all share: threads, RAID engines."""
HEADER: Final = 20.0
GAP: Final = 14.0
CROSSING: Final = 92.0
"""Height between two sockets that are joined."""
SOCKET_HEIGHT: Final = 142.0
THICKEST: Final = 30.0
THINNEST: Final = 2.5
MOST_BOWS: Final = 6
ONE_BY_ONE: Final = 8
"""A server with so many drives shows each in a row of its own."""
LEAST_FOLDED: Final = 3
"""Fewer equal drives than this are not worth a row that stands for many."""
ODD: Final = 0.1
"""A drive whose share of busy time is so far from the middle one is odd."""

Loads: TypeAlias = dict[str, dict[Any, float]]
"""Kind of place -> which one -> utilization of its busiest station.

port: (drive, "up" or "down"); uplink: (adapter, "up" or "down"); adapter: its own limit, such as
commands per second; crossing: (from socket, to socket); drive, memory: by number; shared: by name.
"""


@dataclass(frozen=True)
class DriveRow:
    """One row: a drive, or several that are equal and equally busy."""

    drives: tuple[Drive, ...]
    busy: float
    """Of the busiest."""
    least: float
    """Of the least busy."""
    words: str
    """Commands per second of each, and what is odd about it."""
    port: list[float]
    """How busy the busiest link is: to the host, and away from it unless that is the same wire."""

    @property
    def name(self) -> str:
        """Its drives, as short as they can be named."""
        if len(self.drives) == 1:
            return self.drives[0].name
        return f"{len(self.drives)} × {together([d.name for d in self.drives])}"

    @property
    def percent(self) -> str:
        """How busy: a range where the drives differ."""
        low, high = percent(self.least), percent(self.busy)
        return high if low == high else f"{low.removesuffix(' %')}–{high}"

    @property
    def tip(self) -> str:
        """What the mouse shows."""
        return f"{', '.join(d.name for d in self.drives)}: {self.percent} busy; {self.words}"


@dataclass(frozen=True)
class Group:
    """Drives that hang on the same adapter, or directly on the same socket."""

    adapter: Adapter | None
    rows: list[DriveRow]
    models: str
    """How many of which; empty if there is none."""
    y: float
    """Top of the header."""
    height: float


@dataclass(frozen=True)
class Place:
    """Where one socket and what hangs on it is drawn."""

    socket: Socket
    cpu: SocketCpu | None
    y: float
    height: float
    groups: list[Group]


def picture(result: Result) -> str:
    """Return the SVG of the server of *result*; "" if the result does not know its server."""
    scenario = result.resolved
    if not isinstance(scenario, ResolvedScenario):
        return ""
    load = loads(result)
    rows = {key: drive_rows(drives, result, load) for key, drives in _hung(scenario).items()}
    n = sum(map(len, rows.values()))
    row = 26.0 if n <= 12 else 22.0 if n <= 32 else 18.0
    joined_sockets = range(len(scenario.sockets) if scenario.interconnect else 0)
    # Pairs that are not drawn next to each other.
    bows = [(a, b) for a in joined_sockets for b in joined_sockets[a + 2 :]][:MOST_BOWS]
    left = MARGIN + 24.0 * len(bows)
    cards = left + SOCKET_WIDTH + 170.0
    drives_x = cards + ADAPTER_WIDTH + 90.0 if scenario.adapters else cards
    places: list[Place] = []
    y = CHIPS + MARGIN
    for socket in scenario.sockets:
        places.append(_place(socket, rows, result, y, row))
        y += places[-1].height + (CROSSING if scenario.interconnect else GAP)
    engines = {f"{v.name} engine": f"{v.name}: {v.level}, {v.engine.name}"
               for v in scenario.volumes}  # fmt: skip
    # One direction of the fastest link is THICKEST; the two pipes of a port fit its row.
    ports = [d.link.raw_bytes_per_s for d in scenario.drives]
    adapters = [a.link.raw_bytes_per_s for a in scenario.adapters]
    every = [link.raw_bytes_per_s for link in _links(scenario, None)]
    scale = min(THICKEST / max(every, default=1.0), (row - 9) / 2 / max(ports, default=1.0),
                20.0 / max(adapters, default=1.0))  # fmt: skip
    svg = rendered(
        "server.svg", load=load, places=places, row=row, bows=bows, left=left, drives_x=drives_x,
        right=WIDTH - MARGIN, width=WIDTH, height=places[-1].y + places[-1].height + 58.0,
        socket_width=SOCKET_WIDTH, adapter_width=ADAPTER_WIDTH, header=HEADER,
        adapter_x=cards if scenario.adapters else None, interconnect=scenario.interconnect,
        shared=[(engines.get(k, k), v) for k, v in load["shared"].items()][:5],
        thickness=lambda link: max(THINNEST, link.raw_bytes_per_s * scale), links=_links(scenario),
        link_words=lambda link: f"{link}, {link.raw_bytes_per_s / 1e9:.3g} GB/s",
        label=f"Server of {result.scenario}: {len(scenario.drives)} drives, load on each link",
    )  # fmt: skip
    return re.sub(r">\s+<", "><", svg).strip()


def loads(result: Result) -> Loads:
    """Stations of *result* by the part of the server they are; of equal ones the busiest."""
    found: Loads = defaultdict(dict)
    for station in result.stations:
        place, which = _part(station)
        busy = found[place].get(which, 0.0)
        found[place][which] = max(station.utilization, busy)
    for number, member in enumerate(result.members):
        found["drive"].setdefault(number, member.utilization)
    return found


def _part(station: StationStats) -> tuple[str, Any]:
    """Kind of place of a station, and which one."""
    is_link, way = station.kind == "link", station.direction or "up"
    if station.drive is not None:
        place = "port" if is_link else "drive" if station.kind == "drive" else "not drawn"
        return place, (station.drive, way) if is_link else station.drive
    if station.adapter is not None and is_link:
        is_uplink = station.resource == "uplink"
        return ("uplink", (station.adapter, way)) if is_uplink else ("adapter", station.adapter)
    if station.resource == "memory" and station.socket is not None:
        return "memory", station.socket
    if is_link and station.ends is not None:
        return "crossing", station.ends
    is_shared = station.kind in ("thread", "raid-engine", "link", "lock")
    return "shared" if is_shared else "not drawn", station.name


def drive_rows(drives: Sequence[Drive], result: Result, load: Loads) -> list[DriveRow]:
    """Rows of *drives*, which hang on one adapter or socket, in the order of their first drives."""
    scenario = result.resolved
    assert isinstance(scenario, ResolvedScenario)
    rebuilt = result.rebuild.drive if result.rebuild is not None else None
    marks = {v.members[m]: "failed" for v in scenario.volumes for m in v.degraded}
    marks |= {d.index: "rebuilt" for d in scenario.drives if d.name == rebuilt}
    fold = len(scenario.drives) > ONE_BY_ONE
    equal: dict[object, list[Drive]] = {}
    for drive in drives:
        key = (drive.profile.name, drive.link, marks.get(drive.index)) if fold else drive.index
        equal.setdefault(key, []).append(drive)
    busy = {d.index: load["drive"].get(d.index, 0.0) for d in drives}
    rows: list[list[Drive]] = []
    for group in equal.values():
        middle = median(busy[d.index] for d in group)
        close = [d for d in group if abs(busy[d.index] - middle) <= ODD]
        folded = close if len(close) >= LEAST_FOLDED else []
        rows += [folded] if folded else []
        rows += [[d] for d in group if d not in folded]
    found = []
    for row in sorted(rows, key=lambda row: row[0].index):
        own, mark = [busy[d.index] for d in row], marks.get(row[0].index)
        rates = _rates(row, result)
        words = rates if mark is None else mark if rates in ("", "idle") else f"{mark} · {rates}"
        ways = ("up", "down") if row[0].link.full_duplex else ("up",)
        port = [max(load["port"].get((d.index, way), 0.0) for d in row) for way in ways]
        found.append(DriveRow(tuple(row), max(own), min(own), words, port))
    return found


def _rates(drives: Sequence[Drive], result: Result) -> str:
    """Commands per second that each of *drives* serves."""
    members = [result.members[d.index] for d in drives if d.index < len(result.members)]
    if not members:
        return ""
    each = {"read": mean(m.reads_per_request for m in members),
            "write": mean(m.writes_per_request for m in members)}  # fmt: skip
    rate = result.total.iops.value
    text = " · ".join(f"{op} {kiops(n * rate)}" for op, n in each.items() if n > 0) or "idle"
    return f"each {text}" if len(members) > 1 else text


def together(names: Sequence[str]) -> str:
    """Many names as one: ranges of numbers where the names differ in nothing else.

    >>> together([f"drive{i}" for i in (0, 2, 3, 4)])
    'drive0, 2–4'
    >>> together(["left", "right", "middle"])
    'left … middle'
    """
    split = [re.fullmatch(r"(.*?)(\d+)", name) for name in names]
    stems = {m[1] if m else None for m in split}
    numbers = enumerate(sorted(int(m[2]) for m in split if m))
    runs = [[n for _, n in run] for _, run in groupby(numbers, key=lambda pair: pair[1] - pair[0])]
    if len(stems) > 1 or None in stems or len(runs) > 3:
        return f"{names[0]} … {names[-1]}"
    return f"{stems.pop()}{', '.join(f'{r[0]}–{r[-1]}' if r[1:] else str(r[0]) for r in runs)}"


Hung: TypeAlias = tuple[int, int | None]
"""Numbers of a socket and of an adapter, None for the socket's own ports."""


def _hung(scenario: ResolvedScenario) -> dict[Hung, list[Drive]]:
    """Drives by where they hang: on a socket's own ports first, then by adapter."""
    found: dict[Hung, list[Drive]] = {}
    for socket in scenario.sockets:
        own = [d for d in scenario.drives if d.socket == socket.index]
        if loose := [d for d in own if d.adapter is None]:
            found[socket.index, None] = loose
        for card in scenario.adapters:
            if card.socket == socket.index:
                found[socket.index, card.index] = [d for d in own if d.adapter == card.index]
    return found


def _place(
    socket: Socket, rows: dict[Hung, list[DriveRow]], result: Result, y: float, row: float
) -> Place:
    """A socket, and what hangs on it one below the other; adapters get room for their names."""
    assert isinstance(result.resolved, ResolvedScenario)
    groups: list[Group] = []
    top = y
    for (of, card), own in rows.items():
        if of == socket.index:
            adapter = None if card is None else result.resolved.adapters[card]
            height = HEADER + max(52.0 if adapter else 0.0, row * len(own))
            drives = sorted((d for r in own for d in r.drives), key=lambda d: d.index)
            names = list(dict.fromkeys(d.profile.model or d.profile.name for d in drives))
            models = f"{len(drives)} × {joined(names, 1)} on " if drives else ""
            groups.append(Group(adapter, own, models, top, height))
            top += height + GAP
    used = top - GAP - y if groups else 0.0
    cpu = next((c for c in result.cpu.sockets if c.name.split(" ")[0] == f"socket{socket.index}"),
               None)  # fmt: skip
    return Place(socket, cpu, y, max(SOCKET_HEIGHT, used), groups)


def _links(scenario: ResolvedScenario, most: int | None = 4) -> list[Link]:
    """The slowest links of the server, each once."""
    links = {d.link for d in scenario.drives} | {a.link for a in scenario.adapters}
    if scenario.interconnect:
        links.add(scenario.interconnect.link)
    return sorted(links, key=lambda link: link.raw_bytes_per_s)[:most]
