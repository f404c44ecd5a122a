"""The server as a picture (SVG): sockets, links, adapters, drives, and what crosses.

A link is drawn as two pipes, towards the host and away from it: the pipe is as thick as the link is
fast, its filling as thick as the share in use, and the fuller the darker. Everything runs
horizontally from a socket to its drives, so that no line crosses another; what crosses between
sockets runs vertically.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nvmesim.catalog.links import Link
from nvmesim.measure.figures import SocketCpu
from nvmesim.predict.result import Result
from nvmesim.scenario.resolved import Adapter, Drive, ResolvedScenario, Socket
from nvmesim.show import palette
from nvmesim.show.picture.loads import Loads, loads
from nvmesim.show.picture.rows import DriveRow, drive_rows
from nvmesim.show.picture.svg import Canvas, text_width
from nvmesim.show.words import joined, percent

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
NAME: Final = 138.0
RATES: Final = 246.0
"""Widths of a drive's name and rates, and of both where adapters need room."""
NARROW: Final = (112.0, 190.0)
THICKEST: Final = 30.0
THINNEST: Final = 2.5
SEEN: Final = 3.0
"""Pixels that traffic between sockets has at least, so that it is seen."""

CSS: Final = """
.nvmesim-server{max-width:100%;height:auto;
font-family:system-ui,-apple-system,"Segoe UI",sans-serif;
--ink:#1c1f24;--soft:#5d646e;--line:#b4bac3;--box:#f4f5f7;--track:#e3e6ea;--paper:#fff}
@media (prefers-color-scheme:dark){.nvmesim-server{--ink:#e9ebee;--soft:#a2a9b3;--line:#59606b;
--box:#22262c;--track:#343a43;--paper:#16191d}}
@media print{.nvmesim-server{--ink:#000;--soft:#444;--line:#999;--box:#fff;--track:#e6e6e6;
--paper:#fff}}
.nvmesim-server .t{fill:var(--ink)}.nvmesim-server .s{fill:var(--soft)}
.nvmesim-server .b{fill:var(--ink);font-weight:600}
.nvmesim-server .box{fill:var(--box);stroke:var(--line);stroke-width:1}
.nvmesim-server .pipe{fill:var(--track);stroke:var(--line);stroke-width:.8}
.nvmesim-server .track{fill:var(--track)}
.nvmesim-server .load{stroke:none}.nvmesim-server .least{fill:var(--paper)}
.nvmesim-server .head{fill:var(--soft)}
.nvmesim-server .around{fill:none;stroke:var(--line)}
"""


@dataclass(frozen=True)
class _Group:
    """Drives that hang on the same adapter, or directly on the same socket."""

    adapter: Adapter | None
    drives: tuple[Drive, ...]
    rows: tuple[DriveRow, ...]
    y: float
    """Top of the header."""
    height: float


@dataclass(frozen=True)
class _Place:
    """Where one socket and what hangs on it is drawn."""

    socket: Socket
    y: float
    height: float
    groups: tuple[_Group, ...]


@dataclass(frozen=True)
class _Plan:
    """Where everything is drawn."""

    places: tuple[_Place, ...]
    row: float
    """Height of a drive's row."""
    thickness: float
    """Pixels per byte/s."""
    left: float
    drives_x: float
    adapter_x: float | None
    height: float

    @property
    def socket_right(self) -> float:
        """Right edge of the sockets."""
        return self.left + SOCKET_WIDTH

    def pipe(self, link: Link) -> float:
        """Thickness of one direction of *link*."""
        return max(THINNEST, link.raw_bytes_per_s * self.thickness)


def picture(result: Result) -> str:
    """Return the SVG of the server of *result*; "" if the result does not know its server."""
    scenario = result.resolved
    if not isinstance(scenario, ResolvedScenario):
        return ""
    load = loads(result)
    plan = _plan(scenario, result, load)
    canvas = Canvas()
    _chips(canvas, plan, load, scenario)
    _crossings(canvas, plan, scenario, load)
    for place in plan.places:
        cpu = next((c for c in result.cpu.sockets if _is_of(c, place.socket)), None)
        _socket(canvas, plan, place, cpu, load.memory.get(place.socket.index, 0.0))
        for group in place.groups:
            _group(canvas, plan, group, load)
    _legend(canvas, plan, scenario)
    label = f"Server of {result.scenario}: {len(scenario.drives)} drives, load on each link"
    return canvas.document(WIDTH, plan.height, label, CSS)


# Where things go ---------------------------------------------------------------------------------


def _plan(scenario: ResolvedScenario, result: Result, load: Loads) -> _Plan:
    hung = [
        (socket, [(a, d, drive_rows(d, result, load)) for a, d in _hung(scenario, socket)])
        for socket in scenario.sockets
    ]
    n = sum(len(rows) for _, groups in hung for _, _, rows in groups)
    row = 26.0 if n <= 12 else 22.0 if n <= 32 else 18.0
    distant = len(_distant(scenario))
    left = MARGIN + 24.0 * min(distant, 6)
    places: list[_Place] = []
    y = CHIPS + MARGIN
    for socket, groups in hung:
        placed = _placed(groups, y, row)
        used = placed[-1].y + placed[-1].height - y if placed else 0.0
        height = max(SOCKET_HEIGHT, used)
        places.append(_Place(socket, y, height, placed))
        y += height + (CROSSING if scenario.interconnect else GAP)
    end = places[-1].y + places[-1].height
    adapter_x = left + SOCKET_WIDTH + 170.0 if scenario.adapters else None
    drives_x = adapter_x + ADAPTER_WIDTH + 90.0 if adapter_x else left + SOCKET_WIDTH + 170.0
    thickness = _thickness(scenario, row)
    return _Plan(tuple(places), row, thickness, left, drives_x, adapter_x, end + 58.0)


def _hung(
    scenario: ResolvedScenario, socket: Socket
) -> list[tuple[Adapter | None, tuple[Drive, ...]]]:
    """Drives that hang on *socket*: those on its own ports first, then by adapter."""
    here = [d for d in scenario.drives if d.socket == socket.index]
    cards = [a for a in scenario.adapters if a.socket == socket.index]
    found: list[tuple[Adapter | None, tuple[Drive, ...]]] = []
    for adapter in (None, *cards):
        index = adapter.index if adapter else None
        drives = tuple(d for d in here if d.adapter == index)
        if drives or adapter is not None:
            found.append((adapter, drives))
    return found


def _placed(
    groups: Sequence[tuple[Adapter | None, tuple[Drive, ...], tuple[DriveRow, ...]]],
    y: float,
    row: float,
) -> tuple[_Group, ...]:
    """One group below the other; adapters get room for their names."""
    found: list[_Group] = []
    for adapter, drives, rows in groups:
        least = 52.0 if adapter else 0.0
        height = HEADER + max(least, row * len(rows))
        found.append(_Group(adapter, drives, rows, y, height))
        y += height + GAP
    return tuple(found)


def _thickness(scenario: ResolvedScenario, row: float) -> float:
    """Pixels per byte/s: the fastest link is THICKEST, and a port's two pipes fit its row."""
    ports = [d.link.raw_bytes_per_s for d in scenario.drives]
    others = [a.link.raw_bytes_per_s for a in scenario.adapters]
    if scenario.interconnect:
        others.append(scenario.interconnect.link.raw_bytes_per_s)
    in_row = (row - 9) / 2 / max(ports, default=1.0)
    adapters = [a.link.raw_bytes_per_s for a in scenario.adapters]
    at_adapter = 20.0 / max(adapters, default=1.0)
    return min(THICKEST / max(ports + others, default=1.0), in_row, at_adapter)


def _distant(scenario: ResolvedScenario) -> list[tuple[int, int]]:
    """Pairs of sockets that are not drawn next to each other."""
    n = len(scenario.sockets) if scenario.interconnect else 0
    return [(a, b) for a in range(n) for b in range(a + 2, n)]


# Pipes and bars ----------------------------------------------------------------------------------


def _pipe(canvas: Canvas, x: float, y: float, length: float, thick: float, busy: float) -> None:
    """A horizontal pipe with its middle at *y*."""
    canvas.rect(x, y - thick / 2, length, thick, "pipe")
    inner = thick * min(1.0, busy)
    canvas.rect(x, y - inner / 2, length, inner, "load", fill=palette.load_colour(busy))


def _upright(canvas: Canvas, x: float, y: float, length: float, thick: float, busy: float) -> None:
    """A vertical pipe with its middle at *x*."""
    canvas.rect(x - thick / 2, y, thick, length, "pipe")
    inner = max(SEEN * (busy > 0), thick * min(1.0, busy))
    canvas.rect(x - inner / 2, y, inner, length, "load", fill=palette.load_colour(busy))


def _pair(
    canvas: Canvas, x: float, y: float, length: float, thick: float, busy: Sequence[float]
) -> None:
    """Two pipes: towards the host above, away from it below; one if the link is half duplex."""
    if len(busy) == 1:
        _pipe(canvas, x, y, length, thick, busy[0])
        return
    apart = thick / 2 + 1.0
    _pipe(canvas, x, y - apart, length, thick, busy[0])
    _pipe(canvas, x, y + apart, length, thick, busy[1])


def _bar(
    canvas: Canvas,
    x: float,
    y: float,
    width: float,
    busy: float,
    *,
    height: float = 9,
    tip: str = "",
) -> None:
    """A bar of utilization."""
    canvas.rect(x, y, width, height, "track", radius=2, tip=tip)
    colour = palette.load_colour(busy)
    canvas.rect(x, y, width * min(1.0, max(0.0, busy)), height, "load", fill=colour, radius=2)


def _arrow(
    canvas: Canvas,
    x: float,
    y: float,
    dx: float,
    dy: float,
    *,
    size: float = 5.0,
    style: str = "",
) -> None:
    """A head that points to (dx, dy)."""
    tip = f"{x + dx * size:.1f} {y + dy * size:.1f}"
    one = f"{x - dy * size:.1f} {y + dx * size:.1f}"
    two = f"{x + dy * size:.1f} {y - dx * size:.1f}"
    canvas.path(f"M{tip}L{one}L{two}Z", "head", style=style)


# Parts -------------------------------------------------------------------------------------------


def _chips(canvas: Canvas, plan: _Plan, load: Loads, scenario: ResolvedScenario) -> None:
    """Parts that all requests share, along the top."""
    engines = {
        f"{v.name} engine": f"{v.name}: {v.level}, {v.engine.name}" for v in scenario.volumes
    }
    x = plan.left
    shown = load.shared[:5]
    width = min(216.0, (WIDTH - MARGIN - x) / max(1, len(shown)) - 10)
    for name, _, busy in shown:
        words = engines.get(name, name)
        canvas.rect(x, 8, width, 34, "box", radius=5, tip=f"{words}: {percent(busy)} busy")
        canvas.text(x + 9, 22, words, size=11, room=width - 50)
        canvas.text(x + width - 9, 22, percent(busy), "b", size=11, anchor="end")
        _bar(canvas, x + 9, 28, width - 18, busy, height=6)
        x += width + 10


def _is_of(cpu: SocketCpu, socket: Socket) -> bool:
    return cpu.name.split(" ")[0] == f"socket{socket.index}"


def _socket(
    canvas: Canvas, plan: _Plan, place: _Place, cpu: SocketCpu | None, memory: float
) -> None:
    socket, x, y = place.socket, plan.left, place.y
    canvas.rect(x, y, SOCKET_WIDTH, place.height, "box", radius=6)
    inner, room = x + 11, SOCKET_WIDTH - 22
    canvas.text(inner, y + 19, f"socket {socket.index}", "b", size=13)
    canvas.text(inner, y + 35, socket.cpu.model or socket.cpu.name, size=11, room=room)
    cores = f"{socket.cpu.cores} cores × {socket.cpu.threads_per_core} at {socket.ghz:g} GHz"
    canvas.text(inner, y + 50, cores, "s", size=10.5, room=room)
    if cpu is not None:
        both = (("as the OS shows it", cpu.logical_utilization),
                ("of what the cores can do", cpu.physical_utilization))  # fmt: skip
        for number, (words, busy) in enumerate(both):
            top = y + 58 + 26 * number
            _bar(canvas, inner, top, room, busy)
            canvas.text(inner, top + 19, words, "s", size=9.5)
            canvas.text(inner + room, top + 19, percent(busy), "t", size=10, anchor="end")
    if not socket.has_memory:
        canvas.text(inner, y + 126, "no memory", "s", size=10.5)
        return
    _bar(canvas, inner, y + 110, room, memory)
    words = f"memory, {socket.memory_bytes_per_s / 1e9:.0f} GB/s"
    canvas.text(inner, y + 129, words, "s", size=9.5)
    canvas.text(inner + room, y + 129, percent(memory), "t", size=10, anchor="end")


def _group(canvas: Canvas, plan: _Plan, group: _Group, load: Loads) -> None:
    start = plan.socket_right
    adapter, middle = group.adapter, group.y + HEADER + (group.height - HEADER) / 2
    if adapter is not None and plan.adapter_x is not None:
        _uplink(canvas, plan, adapter, load, start, middle)
        _adapter(canvas, plan, group, adapter, load)
        start = plan.adapter_x + ADAPTER_WIDTH
    _header(canvas, plan, group)
    used = plan.row * len(group.rows)
    y = middle - used / 2
    for row in group.rows:
        center, link = y + plan.row / 2, row.drives[0].link
        directions = ("up", "down") if link.full_duplex else ("up",)
        busy = [max(load.port.get((v.index, d), 0.0) for v in row.drives) for d in directions]
        _pair(canvas, start, center, plan.drives_x - start, plan.pipe(link), busy)
        _drive(canvas, plan, row, y)
        y += plan.row


def _uplink(canvas: Canvas, plan: _Plan, adapter: Adapter, load: Loads, x: float, y: float) -> None:
    assert plan.adapter_x is not None
    length, thick = plan.adapter_x - x, plan.pipe(adapter.link)
    directions = ("up", "down") if adapter.link.full_duplex else ("up",)
    busy = [load.uplink.get((adapter.index, d), 0.0) for d in directions]
    _pair(canvas, x, y, length, thick, busy)
    half = thick + 2 if len(busy) == 2 else thick / 2
    canvas.text(x + 8, y - half - 5, _link_words(adapter.link), "s", size=10, room=length - 12)
    words = " · ".join(f"{way} {percent(b)}" for way, b in zip(("in", "out"), busy, strict=False))
    canvas.text(x + 8, y + half + 13, words, "t", size=10.5, room=length - 12)


def _adapter(canvas: Canvas, plan: _Plan, group: _Group, adapter: Adapter, load: Loads) -> None:
    assert plan.adapter_x is not None
    x, y, height = plan.adapter_x, group.y + HEADER, group.height - HEADER
    canvas.rect(x, y, ADAPTER_WIDTH, height, "box", radius=6)
    middle, room = y + height / 2, ADAPTER_WIDTH - 18
    canvas.text(x + 9, middle - 3, adapter.name, "b", size=12, room=room)
    canvas.text(x + 9, middle + 12, adapter.kind, "s", size=10.5, room=room)
    if adapter.index in load.adapter:
        busy = load.adapter[adapter.index]
        canvas.text(x + ADAPTER_WIDTH - 9, middle + 12, percent(busy), size=10, anchor="end")
        _bar(canvas, x + 9, middle + 16, room, busy, height=6, tip="its own limit")


def _header(canvas: Canvas, plan: _Plan, group: _Group) -> None:
    """Description of the drives of a group, once for all of them."""
    models = list(dict.fromkeys(d.profile.model or d.profile.name for d in group.drives))
    if not models:
        return
    link = group.drives[0].link
    words = f"{len(group.drives)} × {joined(models, 1)} on {_link_words(link)}"
    room = WIDTH - MARGIN - plan.drives_x
    rows = plan.row * len(group.rows)
    top = group.y + HEADER + (group.height - HEADER - rows) / 2
    canvas.text(plan.drives_x, top - 6, words, "s", size=10.5, room=room)


def _link_words(link: Link) -> str:
    return f"{link}, {link.raw_bytes_per_s / 1e9:.3g} GB/s"


def _drive(canvas: Canvas, plan: _Plan, row: DriveRow, y: float) -> None:
    width = WIDTH - MARGIN - plan.drives_x
    x, height, size = plan.drives_x, plan.row - 3, min(11.0, plan.row / 2)
    base = y + height / 2 + size * 0.36
    tip = f"{', '.join(d.name for d in row.drives)}: {row.percent} busy; {row.words}"
    canvas.rect(x, y, width, height, "box", radius=3, tip=tip)
    name, room = (NAME, RATES) if plan.adapter_x is None else NARROW
    canvas.text(x + 8, base, row.name, size=size, room=name - 8)
    bar, top = x + name, y + height / 2 - 4
    bar_width = width - name - 58 - room
    _bar(canvas, bar, top, bar_width, row.busy, height=8)
    if row.busy - row.least > 0.02:
        canvas.rect(bar + bar_width * row.least, top, 1.5, 8, "least")
    canvas.text(bar + bar_width + 54, base, row.percent, "b", size=size, anchor="end")
    canvas.text(x + width - 8, base, row.words, "s", size=size - 0.5, anchor="end", room=room)


def _crossings(canvas: Canvas, plan: _Plan, scenario: ResolvedScenario, load: Loads) -> None:
    """Between neighbours a pipe each way; between others a bow on the left."""
    joined = scenario.interconnect
    if joined is None:
        return
    thick = plan.pipe(joined.link)
    for upper, lower in zip(plan.places[:-1], plan.places[1:], strict=True):
        a, b = upper.socket.index, lower.socket.index
        down, up = load.crossing.get((a, b), 0.0), load.crossing.get((b, a), 0.0)
        top, length = upper.y + upper.height, lower.y - upper.y - upper.height
        middle = plan.left + SOCKET_WIDTH / 2 - 24
        _upright(canvas, middle - thick / 2 - 3, top, length, thick, down)
        _upright(canvas, middle + thick / 2 + 3, top, length, thick, up)
        for busy, at, way in ((down, -thick - 15, 1), (up, thick + 15, -1)):
            style = f"fill:{palette.load_colour(busy)}" if busy else ""
            _arrow(
                canvas, middle + at, top + length / 2, 0, way, size=9 if busy else 5, style=style
            )
        x = middle + thick + 28
        name = f"{joined.link}, {joined.link.raw_bytes_per_s / 1e9:.3g} GB/s each way"
        canvas.text(x, top + length / 2 - 14, name, "s", size=10.5)
        carried = joined.link.raw_bytes_per_s * joined.efficiency / 1e9
        ways = ((a, b, down), (b, a, up))
        for row, (start, end, busy) in enumerate(w for w in ways if down or up):
            words = f"{start} to {end}: {busy * carried:.3g} GB/s, {percent(busy)}"
            canvas.text(x, top + length / 2 + 3 + 15 * row, words, "b", size=12)
        if not (down or up):
            canvas.text(x, top + length / 2 + 3, "nothing crosses", "b", size=12)
    _bows(canvas, plan, scenario, load, thick)


def _bows(
    canvas: Canvas, plan: _Plan, scenario: ResolvedScenario, load: Loads, thick: float
) -> None:
    notes: list[str] = []
    for number, (a, b) in enumerate(_distant(scenario)[:6]):
        x = plan.left - 18 - 24 * number
        first, last = plan.places[a], plan.places[b]
        y1, y2 = first.y + 30 + 9 * number, last.y + 30 + 9 * number
        busy = max(load.crossing.get((a, b), 0.0), load.crossing.get((b, a), 0.0))
        width = min(thick, 16.0)
        line = f"M{plan.left:.1f} {y1:.1f}H{x:.1f}V{y2:.1f}H{plan.left:.1f}"
        canvas.path(line, "around", style=f"stroke-width:{width:.1f};stroke:var(--track)")
        if busy:
            ways = [(a, b), (b, a)]
            notes += [f"{p} to {q}: {percent(load.crossing.get((p, q), 0.0))}" for p, q in ways]
            style = f"stroke-width:{width * busy:.1f};stroke:{palette.load_colour(busy)}"
            canvas.path(line, "around", style=style)
    end = plan.places[-1]
    canvas.text(plan.left, end.y + end.height + 20, " · ".join(notes), "b", size=12)


def _legend(canvas: Canvas, plan: _Plan, scenario: ResolvedScenario) -> None:
    y = plan.height - 18.0
    x = plan.left
    canvas.text(x, y, "busy", "s", size=10.5)
    x += 36
    for words, colour in palette.load_legend():
        canvas.rect(x, y - 9, 12, 10, "load", fill=colour, radius=2)
        canvas.text(x + 17, y, words, "s", size=10.5)
        x += 17 + text_width(words, 10.5) + 14
    x += 14
    canvas.text(x, y, "thickness", "s", size=10.5)
    x += text_width("thickness", 10.5) + 10
    links = {d.link for d in scenario.drives} | {a.link for a in scenario.adapters}
    if scenario.interconnect:
        links.add(scenario.interconnect.link)
    for link in sorted(links, key=lambda k: k.raw_bytes_per_s)[:4]:
        words = f"{link.raw_bytes_per_s / 1e9:.3g} GB/s"
        _pipe(canvas, x, y - 4, 26, plan.pipe(link), 0.0)
        canvas.text(x + 32, y, words, "s", size=10.5)
        x += 32 + text_width(words, 10.5) + 12
    canvas.text(
        WIDTH - MARGIN, y, "upper pipe: to the host; drives: kIOPS", "s", size=10.5, anchor="end"
    )
