"""Where a prediction stands: what is known beforehand of how sure it can be.

What limits it, how many rows its drives were fitted to, and how far from the nearest of them it is
asked and answered: more depth at a full drive changes nothing. The model's error is learned as a
function of these (`model_error`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import Residual
from nvmesim.predict.uncertainty.misfit import is_calibrated
from nvmesim.scenario.resolved import ResolvedScenario, Volume
from nvmesim.units import format_size

# -- classes of servers and loads, by which the model's error differs -----------------------------

CPU_BOUND: Final = "CPU-bound"
CLASSES: Final = (
    "drives alone", CPU_BOUND, "shared targets", "md reads", "md parity writes", "mirrors",
    "mixes", "degraded and rebuilding", "links", "Storage Spaces", "hardware RAID",
    "other RAID engines", "Windows",
)  # fmt: skip


def model_class(scenario: ResolvedScenario, verdict: str = "") -> str:
    """Return the class of *scenario*, stopped by *verdict* (empty: not known yet).

    The part that is least like a drive by itself names it: RAID before mixes before processors.
    """
    used = {t.index for g in scenario.workload for t in g.targets if t.kind == "volume"}
    volumes = [v for v in scenario.volumes if v.index in used]
    if volumes:
        return _of_volume(volumes[0], scenario)
    if scenario.stack.name.startswith("windows"):
        return "Windows"
    if verdict == "link":
        return "links"
    if any(0 < g.read < 1 for g in scenario.workload):
        return "mixes"
    if verdict == "cpu":
        return CPU_BOUND
    shares = any(not g.threads_are_per_target and len(g.targets) > 1 for g in scenario.workload)
    return "shared targets" if shares else "drives alone"


def _of_volume(volume: Volume, scenario: ResolvedScenario) -> str:
    if volume.engine.name.startswith("storage-spaces"):
        return "Storage Spaces"
    if volume.engine.runs_on == "controller" or volume.engine.name.startswith("intel-vroc"):
        return "hardware RAID"
    if volume.engine.merge == "none" and volume.engine.name != "none":
        return "other RAID engines"  # what was learned of Linux md says nothing of these
    if volume.degraded or volume.rebuild:
        return "degraded and rebuilding"
    if all(g.read == 1 for g in scenario.workload):
        return "md reads"
    level = volume.raid
    if level.parity:
        return "md parity writes"
    return "mixes" if level.copies == "one" else "mirrors"


# -- beyond what profiles were captured on --------------------------------------------------------


@dataclass(frozen=True)
class Outside:
    """One way in which the load lies outside."""

    what: str
    """As "depth", "block size", "share of reads", "stack"."""
    asked: str
    captured: str
    about: str = ""
    """Name of the profile."""

    def __str__(self) -> str:
        return f"{self.what} {self.asked} (captured: {self.captured})"


def outside(scenario: ResolvedScenario) -> tuple[Outside, ...]:
    """Conditions of *scenario* outside of its drives' captures; each once."""
    found: dict[Outside, None] = {}
    for profile in {d.profile.name: d.profile for d in scenario.drives}.values():
        for item in _of_drive(profile, scenario):
            found.setdefault(item)
    return tuple(found)


def _of_drive(profile: DriveProfile, scenario: ResolvedScenario) -> Iterator[Outside]:
    captured, groups, name = profile.captured, scenario.workload, profile.name
    if captured is None:
        if profile.writes_unmeasured and any(g.read < 1 for g in groups):
            yield Outside("writes", "asked", "reads alone", name)
        return
    closed = [g for g in groups if not g.is_open]
    if closed and (depths := captured.depths):
        depth = sum(g.in_flight for g in closed) / max(1, len(scenario.drives))
        if not depths[0] * 0.99 <= depth <= depths[-1] * 1.01:
            asked = f"{depth:,.0f}" if depth > 100 else f"{depth:.3g}"
            yield Outside("depth", asked, _range(depths), name)
    sizes = {n for g in groups for n, _ in (*g.block_sizes, *(g.write_block_sizes or ()))}
    for size in sorted(sizes) if (known := captured.block_sizes) else ():
        if not known[0] <= size <= known[-1]:
            yield Outside("block size", format_size(size), _range(known, format_size), name)
    for read in sorted({g.read for g in groups}) if (shares := captured.read_shares) else ():
        if not min(shares) <= read <= max(shares):
            listed = ", ".join(f"{share:.0%}" for share in shares)
            yield Outside("share of reads", f"{read:.0%}", listed, name)
    accesses = {group.access == "sequential" for group in groups}
    for sequential in sorted(accesses - set(captured.sequential) if captured.sequential else ()):
        words = ("random", "sequential")
        yield Outside("access", words[sequential], words[not sequential], name)
    if captured.stack and captured.stack != scenario.stack.name:
        yield Outside("stack", scenario.stack.name, captured.stack, name)
    most = max(captured.drives, default=0)
    if most and len(scenario.drives) > most:
        yield Outside("drives", str(len(scenario.drives)), _range(captured.drives), name)


def _range(values: Sequence[int], shown: Callable[[int], str] = str) -> str:
    low, high = shown(min(values)), shown(max(values))
    return low if low == high else f"{low} to {high}"


# -- how near the evidence is ---------------------------------------------------------------------

READ_WEIGHT = 8
"""Doublings that the whole way from reads to writes counts as, where the nearest row is sought."""
FAR = 5.0
"""Doublings from which on a distance says no more."""
MANY = 2.0
"""Halvings of what seven rows leave open from which on further rows tell no more."""
FEW = ("Storage Spaces", "hardware RAID", "other RAID engines", "Windows")
"""Classes that the model was hardly ever held against."""
PLAIN = ("drives alone", CPU_BOUND, "shared targets", "links", "mixes")
"""Classes without an array."""
NEAR = 1.0
"""Doublings of a drive's bytes/s, and of the bytes of a request, up to which a row is near."""
SAME = 0.3
"""Doublings of a drive's bytes/s below which it does what it did in a fitted row, more or less."""
ALIKE = 0.14
"""Doublings of size and drives, and share of reads, up to which a row is of the same load."""
SMALL = (4096, 5000)
"""Bytes of the random requests that data sheets state: 4 KiB."""
LARGE = 1 << 16
"""Least bytes of their sequential ones."""
Evidence = Literal["catalog", "client", "near", "far"]
Sheet = Literal["", "random reads", "random writes", "sequential"]
"""A figure that data sheets state."""
NAMES = ("all", "rows 0", "few rows", "moved", "same", "share of reads", "more drives", "CPU",
         "link", "array", "few sources", "latency", "stated", "stated writes",
         "between", "size", "clock", "cache")  # fmt: skip
"""Of `Standing.covariates`."""
AWAY = ("rows 0", "few rows", "moved", "share of reads", "more drives", "size", "cache")
"""Those that lead away from evidence: they never make a prediction surer."""


@dataclass(frozen=True)
class Standing:
    """What is known beforehand of one prediction."""

    model_class: str = ""
    limit: str = ""
    """The verdict: "drive", "cpu", "link" ..."""
    rows: int = 0
    """Rows that the drives were fitted to; 0: their numbers are a catalog's or a data sheet's, and
    the nearest row below is a figure of that."""
    depth: float = 0.0
    """log2 of the depth of a drive over that of the nearest of these rows."""
    size: float = 0.0
    """The same of the bytes of a request."""
    drives: float = 0.0
    """The same of the drives."""
    read: float = 0.0
    """Share of reads less that of the nearest row."""
    moved: float | None = None
    """The same as of the depth, of the bytes/s that a drive moves; None if it is not known."""
    sheet: Sheet = ""
    """The figure of a data sheet that is asked, if no rows were fitted or none is nearer."""
    between: float = 0.0
    """1 if rows of this size and share of reads are shallower and deeper, on as many drives."""
    clock: float = 0.0
    """1 if the clock of the server's CPUs is stated, 0 if it may be any within an interval."""
    cache: float = 0.0
    """1 if the nearest row is a data sheet's of a client drive: it speaks of the cache."""
    fitted: float = 0.0
    """1 if this very load was a fitted row, on this stack: nothing lies between it and evidence."""
    degraded: float = 0.0
    """1 if a member is missing or being rebuilt: nobody measured such an array, so whatever keeps
    it back, or how near a row it comes, makes it no surer than the array when whole."""

    @property
    def kind(self) -> str:
        """As "calibrated" or "catalog"."""
        return "calibrated" if self.rows else "catalog"

    @property
    def evidence(self) -> Evidence:
        """Whether rows were fitted, and whether the answer is near one of its kind of load.

        >>> Standing(rows=3, moved=0.1).evidence, Standing(rows=3, moved=-4.0).evidence
        ('near', 'far')
        """
        if not self.rows or self.sheet:
            return "client" if self.cache else "catalog"
        is_alike = abs(self.size) <= NEAR and abs(self.read) <= ALIKE
        return "near" if is_alike and (self._moved() <= NEAR or self.between) else "far"

    def covariates(self) -> tuple[float, ...]:
        """Numbers that the spread of the model's error is a function of, as `NAMES`.

        >>> Standing("drives alone", "drive", rows=3, moved=1.0).covariates()[:4]
        (1.0, 0.0, 1.0, 1.0)
        """
        is_array = self.model_class not in (*PLAIN, *FEW)
        limit = "latency-bound" if self.degraded else self.limit
        is_sheet = limit == "drive" and self._moved() <= NEAR
        is_told = self.rows and self.moved is not None and not self.degraded
        # 0 for seven rows, 2 for one, -1 for fifteen
        few = max(3 - math.log2(1 + self.rows), -MANY) if self.rows else 0.0
        return (
            1.0, float(not self.rows), few, self._moved(),
            max(0.0, 1 - self._moved() / SAME) if is_told else 0.0,
            min(abs(self.read) * 2, 1.0),
            min(max(self.drives, 0.0), FAR), float(limit == "cpu"),
            float(limit == "link"), float(is_array), float(self.model_class in FEW),
            float(limit == "latency-bound"),
            float(is_sheet and self.sheet in ("random reads", "sequential")),
            float(is_sheet and self.sheet == "random writes"), self.between,
            min(abs(self.size), FAR) if self.rows else 0.0, self.clock, self.cache,
        )  # fmt: skip

    def _moved(self) -> float:
        """Doublings between the answer and the nearest row's.

        One more where a member is missing: the others do up to twice what they did for a request.
        """
        return 0.0 if self.moved is None else min(abs(self.moved) + self.degraded, FAR)

    def words(self) -> str:
        """What it rests on, in words.

        >>> Standing("mixes", rows=3, depth=2.0, read=-0.3).words()
        'fitted to 3 rows, asked at 4 times the depth and another share of reads'
        >>> Standing("mixes", rows=1, depth=-3.0).words()
        'fitted to 1 row, asked at 1/8 of the depth'
        """
        if not self.rows:
            return "not fitted to captures"
        far = [f"{2**abs(x):.3g} times the {name}" if x > 0 else f"1/{2**-x:.3g} of the {name}"
               for name, x in (("depth", self.depth), ("size", self.size), ("drives", self.drives))
               if abs(x) > 0.3]  # fmt: skip
        far += ["another share of reads"] if abs(self.read) > 0.05 else []
        asked = " and ".join(far)
        rows = f"fitted to {self.rows} row{'s' if self.rows > 1 else ''}"
        rows += " and a data sheet" if self.sheet else ""
        return f"{rows}, asked at {asked}" if asked else rows


def standing(
    scenario: ResolvedScenario, model_class: str, limit: str, traffic: Sequence[float] = ()
) -> Standing:
    """Return where the prediction of *scenario* stands.

    By the fewest rows of its drives, and by the drive whose nearest row is farthest. *traffic* has
    the bytes/s of each drive, as predicted, those that do nothing (a missing member) with none;
    empty before that is known.
    """
    rates = traffic or [0.0] * len(scenario.drives)
    each = [_of(drive.profile, scenario, rate)
            for drive, rate in zip(scenario.drives, rates, strict=True)
            if rate or not any(rates)]  # fmt: skip
    if model_class == CPU_BOUND:  # then the stack must have been captured
        stacks = {c.stack for d in scenario.drives if (c := d.profile.captured) and c.stack}
        each = each if stacks <= {scenario.stack.name} else []
    clock = float(all(s.cpu.ghz.low is None for s in scenario.sockets))
    cache = float(any(d.profile.write.volatile for d in scenario.drives))
    less = float(any(v.degraded or v.rebuild for v in scenario.volumes))
    known = [e for e in each if e is not None]
    if not known or len(known) < len(each):
        return Standing(model_class, limit, sheet=_sheet(scenario), clock=clock, cache=cache,
                        degraded=less)  # fmt: skip
    rows = min(e[0] for e in known)
    _, near, moved, between, is_stated = max(known, key=lambda e: _weight(e[1]))
    stands = Standing(model_class, limit, rows, *near, moved, _sheet(scenario), between, clock,
                      cache, degraded=less)  # fmt: skip
    if not rows or is_stated:
        return stands
    is_near = moved is not None and abs(moved) < ALIKE
    is_drive = limit in ("drive", "latency-bound")
    fitted = float(is_near and is_drive and _was_fitted(scenario))
    return replace(stands, sheet="", cache=0.0, fitted=fitted)


def _of(
    profile: DriveProfile, scenario: ResolvedScenario, rate: float
) -> tuple[int, tuple[float, float, float, float], float | None, float, bool] | None:
    rows = [r for r in profile.residuals if not r.held_out]
    if not rows or not scenario.workload:
        depths = profile.captured.depths if profile.captured else ()
        if not is_calibrated(profile):
            return None
        return max(1, len(depths)), (0.0,) * 4, None, 0.0, False
    group = max(scenario.workload, key=lambda g: g.in_flight if not g.is_open else 0)
    n = len(scenario.drives)
    depth = 1.0 if group.is_open else max(group.in_flight, 1) / n
    size = group.mean_size

    def distance(r: Residual) -> tuple[float, float, float, float]:
        return (math.log2(max(depth, 0.125) / max(r.depth, 0.125)), math.log2(size / r.block_size),
                math.log2(n / r.drives), group.read - r.read)  # fmt: skip

    is_ahead = group.access == "sequential"
    of_kind = [r for r in rows if r.sequential == is_ahead] or rows
    row = min(of_kind, key=lambda r: _weight(distance(r)))
    near = distance(row)
    is_sheet = profile.captured is not None and profile.captured.datasheet
    moved = None
    if rate and row.measured:
        own = _doublings(rate, row)
        load = (row.block_size, row.drives, row.read, row.stated)  # at whatever depth
        like = [r for r in of_kind if (r.block_size, r.drives, r.read, r.stated) == load]
        moved = min((_doublings(rate, r) for r in like if r.measured), key=abs)
        if max(abs(near[1]), abs(near[3])) >= ALIKE and abs(moved) < SAME:  # perhaps by chance
            moved = math.copysign(min(abs(own), SAME), own)
    alike = [d[0] for r in rows if max(map(abs, (d := distance(r))[1:])) < ALIKE]
    between = not is_sheet and bool(alike) and min(alike) <= 0.0 <= max(alike)
    measured = 0 if is_sheet else sum(not r.stated for r in rows)
    return measured, near, moved, float(between), row.stated


def _doublings(rate: float, row: Residual) -> float:
    """Doublings of a drive's bytes/s from *row* to *rate*."""
    return math.log2(rate / ((row.measured or 0.0) * row.block_size / row.drives))


def _was_fitted(scenario: ResolvedScenario) -> bool:
    """True if one of the drives' fitted rows is this load, as this host's stack does it."""
    group, profiles = scenario.workload[0], {d.profile.name: d.profile for d in scenario.drives}
    if len(scenario.workload) > 1 or scenario.volumes or group.is_open or len(profiles) > 1:
        return False
    profile = next(iter(profiles.values()))
    captured = profile.captured
    if captured is None or captured.stack != scenario.stack.name:
        return False
    if group.rate_limit or group.sync_every or group.write_through:
        return False
    load = (
        group.read, group.mean_size, group.access == "sequential", len(scenario.drives),
        group.outstanding, group.in_flight, group.filesystem, group.guest,
    )  # fmt: skip
    return any(
        (r.read, r.block_size, r.sequential, r.drives, r.outstanding, r.threads * r.outstanding,
         r.filesystem, r.guest)
        == load and not (r.held_out or r.stated or r.sync or r.raid)
        for r in profile.residuals
    )  # fmt: skip


def _weight(distance: tuple[float, float, float, float]) -> float:
    return sum(map(abs, distance[:3])) + READ_WEIGHT * abs(distance[3])


def _sheet(scenario: ResolvedScenario) -> Sheet:
    """The figure of a data sheet that *scenario* asks of its drives."""
    kinds = {
        (g.access, g.read, SMALL[0] <= g.mean_size <= SMALL[1], g.mean_size >= LARGE)
        for g in scenario.workload
    }
    if len(kinds) != 1:
        return ""
    access, read, is_small, is_large = kinds.pop()
    if scenario.volumes and read < 1.0:
        return ""
    if access == "random" and is_small and read in (0.0, 1.0):
        return "random reads" if read else "random writes"
    return "sequential" if access == "sequential" and is_large and read in (0.0, 1.0) else ""
