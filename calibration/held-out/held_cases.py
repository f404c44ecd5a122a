"""Measurements by many sources, as rows that a fit may see and rows that it must predict.

A case is one drive or server of one source: its rows in ``rows.csv`` and what is known of its host
in ``cases.toml`` (this folder). Servers say which rows are fitted (small
configurations) and which are predicted (large ones). Single drives say nothing: `splits` fits k of
their rows and predicts the others; but captures as people mail them (`mailed` in ``cases.toml``)
say it, too.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nvmesim.catalog.toml import read_toml
from nvmesim.errors import InputError, nearest
from nvmesim.units import parse_size

COLUMNS: Final = (
    "case", "role", "op", "block_size", "jobs", "iodepth", "drives", "raid", "sync", "rate",
    "limit", "beside", "polled", "iops", "lat_mean_us", "p50_us", "p99_us", "p99_9_us", "cpu_us",
    "set", "note",
)  # fmt: skip
POINT_COLUMNS: Final = COLUMNS[2:19]
"""Those that a table of points has, too (`docs/reference`)."""
MOST_ASKED: Final = 5
"""Rows of one case that one split predicts at most, spread evenly: a case is one vote anyway."""
KS: Final = (2, 3)
"""Rows of each direction that a fit of a single drive sees."""
FEW: Final = ("1 row", "2 small rows", "small rows")
"""Splits that are asked with the drive's data sheet, too, where that is known."""
USUAL: Final = ("sata-ssd", "hdd-7200")
"""Drives of the catalog that stand for any of their kind: they have no data sheet."""
MANY_ROWS: Final = 8
"""Rows of a drive from which on every other one is fitted, mixes too, and the rest predicted."""


@dataclass(frozen=True)
class HeldRow:
    """One measured row; a text is empty where the source says nothing."""

    cells: Mapping[str, str]
    line: int

    def number(self, name: str) -> float | None:
        """Return a cell as a number, None if it is blank."""
        text = self.cells[name]
        return float(text) if text else None

    @property
    def op(self) -> str:
        """As fio's rw, with the share of reads of a mix: "randrw:70"."""
        return self.cells["op"]

    @property
    def read(self) -> float:
        """Share of reads."""
        name, _, share = self.op.partition(":")
        if name.endswith("rw"):
            return float(share or 50) / 100
        return float(name.endswith("read"))

    @property
    def size(self) -> int:
        """Bytes of a request."""
        text = self.cells["block_size"]
        return parse_size(f"{text}iB" if text[-1:] in "KM" else f"{text} B")

    @property
    def in_flight(self) -> float | None:
        """Requests outstanding in all; None if the source does not say."""
        jobs, depth = self.number("jobs"), self.number("iodepth")
        return None if jobs is None or depth is None else jobs * depth

    @property
    def drives(self) -> int:
        """Drives under the load."""
        return int(self.cells["drives"] or 1)

    @property
    def iops(self) -> float:
        """Measured requests per second."""
        return float(self.cells["iops"])

    @property
    def changes(self) -> tuple[str, ...]:
        """What the scenario of this row has otherwise."""
        return tuple(part for part in self.cells["set"].split(";") if part)

    @property
    def direction(self) -> str:
        """The kind of its requests: "read", "write" or "mix"."""
        return "read" if self.read == 1 else "write" if self.read == 0 else "mix"

    @property
    def label(self) -> str:
        """The row in words, as "randread 4K 4 x 32"."""
        c = self.cells
        load = f"{c['jobs'] or '?'} x {c['iodepth'] or '?'}"
        extra = [c[n] for n in ("raid", "sync", "beside", "set") if c[n]]
        rate = f"at {c['rate']}/s" if c["rate"] else load
        drives = f", {self.drives} drives" if self.drives > 1 else ""
        return " ".join([f"{self.op} {c['block_size']} {rate}{drives}", *extra])

    def key(self) -> tuple[str, ...]:
        """What was asked: rows of equal keys are repeats."""
        return (*(self.cells[n] for n in COLUMNS[2:13]), self.cells["set"])


@dataclass(frozen=True)
class HeldCase:
    """One drive or server, with its host as far as it is known."""

    name: str
    facts: Mapping[str, Any]
    rows: tuple[HeldRow, ...]

    @property
    def source(self) -> str:
        """Who measured it: one vote."""
        return str(self.facts["source"])

    @property
    def is_server(self) -> bool:
        """True if the rows say which are fitted, and they are no mailed ones of a single drive."""
        is_single = self.facts.get("mailed") and all(row.drives == 1 for row in self.rows)
        return self.has_roles and not is_single

    @property
    def has_roles(self) -> bool:
        """True if the rows say which are fitted."""
        return any(row.cells["role"] for row in self.rows)


@dataclass(frozen=True)
class Split:
    """Rows that a fit sees, and rows that are predicted from it."""

    name: str
    fitted: tuple[HeldRow, ...]
    asked: tuple[HeldRow, ...]
    basis: str = "rows"
    """"rows", "sheet", "catalog", or "rows, sheet": what the drive's profile is made of."""


@dataclass(frozen=True)
class Plan:
    """What is done with a case."""

    splits: tuple[Split, ...]
    unasked: tuple[tuple[HeldRow, str], ...]
    """Rows that nobody can ask today, and why."""


def find_cases(names: Sequence[str] = ()) -> list[HeldCase]:
    """Return the cases of the sources (or the cases) called *names*, or all."""
    folder = Path(__file__).resolve().parent
    facts = read_toml(folder / "cases.toml", InputError)
    rows: dict[str, list[HeldRow]] = {name: [] for name in facts}
    with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
        for line, cells in enumerate(csv.DictReader(file), start=2):
            rows[cells["case"]].append(HeldRow(cells, line))
    cases = [HeldCase(name, facts[name], tuple(rows[name])) for name in facts]
    known = {case.source for case in cases} | {case.name for case in cases}
    for name in names:
        if name not in known:
            raise InputError(f"no held-out source {name!r}; {nearest(name, known)}")
    return [c for c in cases if not names or c.source in names or c.name in names]


def splits(case: HeldCase, usable: Sequence[HeldRow]) -> tuple[Split, ...]:
    """Return the ways in which *usable* rows of *case* are divided."""
    found = list(_of_drive(usable)) if not case.has_roles else []
    is_array_of_catalog = "catalog" in case.facts and "raid_engine" in case.facts
    if case.has_roles and not is_array_of_catalog:
        fitted = tuple(row for row in usable if row.cells["role"] == "fit" and is_of_drive(row))
        asked = [row for row in usable if row.cells["role"] == "target"]
        name = "small rows" if case.is_server else "as mailed"
        found += [Split(name, fitted, _thinned(asked, 2 * MOST_ASKED))] if fitted else []
    if "sheet" in case.facts or case.facts.get("catalog", USUAL[0]) not in USUAL:
        found += [
            replace(split, name=f"{split.name}, sheet", basis="rows, sheet")
            for split in found if split.name in FEW
        ]  # fmt: skip
    basis = next((basis for basis in ("sheet", "catalog") if basis in case.facts), None)
    if basis is not None:
        found.append(Split(basis, (), _thinned(usable), basis))
    return tuple(split for split in found if split.asked)


def is_of_drive(row: HeldRow) -> bool:
    """Return whether *row* can be fitted with its case's own host."""
    return not any(c.startswith("server.stack") for c in row.changes)


def _of_drive(usable: Sequence[HeldRow]) -> Iterator[Split]:
    groups: dict[str, list[HeldRow]] = {}
    for direction in ("read", "write"):  # rows of different loads, the smallest first
        known = {r.key(): r for r in reversed(usable) if r.direction == direction}
        groups[direction] = sorted(known.values(), key=lambda r: (r.in_flight or 0, r.size, r.line))
    mixes = [r for r in usable if r.direction == "mix"]
    largest = max(len(g) for g in groups.values())
    if largest == 2:
        yield _split("1 row", groups, mixes, lambda rows: rows[:1])
    for k in KS:
        if largest > k:
            yield _split(f"{k} rows", groups, mixes, lambda rows, k=k: spread(rows, k))
    if largest > KS[0]:
        yield _split("2 small rows", groups, mixes, lambda rows: rows[:2])
    if sum(map(len, groups.values())) + len(mixes) >= MANY_ROWS:
        yield _split("half the rows", groups | {"mix": mixes}, [], every_other)
    if len(mixes) > 1 and all(groups.values()):
        pure = [row for rows in groups.values() for row in spread(rows, KS[-1])]
        mix = sorted(mixes, key=lambda r: (r.in_flight or 0, r.size, r.line))[len(mixes) // 2]
        others = [row for row in mixes if row.key() != mix.key()]
        yield Split("pure rows and a mix", (*pure, mix), _thinned(others))


def _split(name: str, groups: Mapping[str, Sequence[HeldRow]], mixes: Sequence[HeldRow],
           choose: Any) -> Split:  # fmt: skip
    fitted = [row for rows in groups.values() for row in choose(rows)]
    seen = {row.key() for row in fitted}
    rest = [r for rows in groups.values() for r in rows if r.key() not in seen]
    return Split(name, tuple(fitted), _thinned([*rest, *mixes]))


def spread(rows: Sequence[HeldRow], k: int) -> list[HeldRow]:
    """Return *k* rows far from each other in log size and log depth, the smallest among them."""

    def distance(a: HeldRow, b: HeldRow) -> float:
        return math.hypot(
            math.log2(a.size / b.size), math.log2((a.in_flight or 1) / (b.in_flight or 1)),
            4.0 * (a.op.startswith("rand") != b.op.startswith("rand")),
        )  # fmt: skip

    if len(rows) <= k:
        return list(rows)
    chosen = [rows[0]]
    while len(chosen) < k:
        rest = [row for row in rows if row not in chosen]
        chosen.append(max(rest, key=lambda r: min(distance(r, c) for c in chosen)))
    return chosen


def every_other(rows: Sequence[HeldRow]) -> list[HeldRow]:
    """Return every other one of *rows*, by load, size and depth."""
    return sorted(rows, key=lambda r: (r.op, r.size, r.in_flight or 0, r.line))[::2]


def _thinned(rows: Sequence[HeldRow], most: int = MOST_ASKED) -> tuple[HeldRow, ...]:
    if len(rows) <= most:
        return tuple(rows)
    step = len(rows) / most
    return tuple(rows[int((i + 0.5) * step)] for i in range(most))


def ruler(row: HeldRow, fitted: Sequence[HeldRow]) -> float | None:
    """Return the naive rate of *row* from the *fitted* rows; None if they do not speak of it.

    Requests in flight, threads or drives times the rate of one, the least of the three; bytes where
    requests are larger than those that were measured. A drive's rate is known from a row that is at
    least as deep, or if two rows show that it is full: their rate grew by less than half as much as
    their depth.
    """
    same = [r for r in fitted if abs(r.read - row.read) < 0.05 and r.in_flight]
    if row.direction == "mix" and not same:
        pure = (HeldRow({**row.cells, "op": op}, row.line) for op in ("randread", "randwrite"))
        ends = [ruler(one, fitted) for one in pure]
        if ends[0] is None or ends[1] is None:
            return None
        return 1 / (row.read / ends[0] + (1 - row.read) / ends[1])
    if not same or not row.in_flight:
        return None
    nearest_size = min(abs(math.log2(r.size / row.size)) for r in same)
    same = [r for r in same if abs(math.log2(r.size / row.size)) <= nearest_size + 1e-9]
    scale = min(1.0, same[0].size / row.size)
    jobs, depth = row.number("jobs") or 1, row.number("iodepth") or 1
    products = [row.in_flight * max(r.iops / (r.in_flight or 1) for r in same)]
    deep = [r for r in same if (r.number("iodepth") or 1) >= depth]
    if deep:
        products.append(jobs * max(r.iops / (r.number("jobs") or 1) for r in deep))
    wide = [r.iops / r.drives for r in same
            if (r.in_flight or 0) / r.drives >= row.in_flight / row.drives]  # fmt: skip
    if wide or _is_full(same):
        products.append(row.drives * max(r.iops / r.drives for r in same))
    return scale * min(products)


def _is_full(rows: Sequence[HeldRow]) -> bool:
    ordered = sorted(rows, key=lambda r: (r.in_flight or 0) / r.drives)
    if len(ordered) < 2:
        return False
    a, b = ordered[-2], ordered[-1]
    deeper = (b.in_flight or 1) / b.drives / ((a.in_flight or 1) / a.drives)
    return deeper > 1 and math.log(b.iops / b.drives / (a.iops / a.drives)) < 0.5 * math.log(deeper)
