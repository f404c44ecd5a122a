"""A data sheet as it is printed: its figures as rows that a fit takes, and what it says besides.

TOML with a key a line, or CSV with a label and a value a line. Labels are read as vendors print
them ("4K Random Read", "Sequential Write (128KB)", "Typical latency, write"), values with their
units ("1,100K IOPS", "6,800 MB/s", "75 us"). Vendors' figures mean: random 4 KiB at a deep queue,
writes in the steady state, sequential 128 KiB at a deep queue, latency of a lone 4 KiB request,
that of a write into the buffer.
"""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from nvmesim.calibrate.points import FLASH_S, LONE_S, Point, bounded_depth
from nvmesim.catalog.links import Link, command_ceiling, parse_link
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import Quantity
from nvmesim.catalog.toml import read_toml
from nvmesim.errors import CaptureError, UnitError, nearest

LARGE: Final = 131072
STREAMS: Final = 64
"""Requests of 128 KiB in flight; vendors say 32 to 128."""
DEEP: Final = 256
"""Random requests in flight at least; vendors say 128 to 512."""
KEYS: Final = {
    "random_read": "1,100K IOPS", "random_write": "200K IOPS", "mix_70_30": "450K IOPS",
    "sequential_read": "6,800 MB/s", "sequential_write": "4,100 MB/s", "read_latency": "75 us",
    "write_latency": "15 us", "capacity": "3.84 TB", "link": "PCIe 4.0 x4",
    "power_active": "20 W", "power_idle": "5 W", "name": "maker-series-capacity", "model": "...",
    "source": "where it is from",
}  # fmt: skip
"""Keys of a sheet, with an example of each."""
FIGURES: Final = (
    "random_read", "random_write", "mix_70_30", "sequential_read", "sequential_write",
    "read_latency", "write_latency",
)  # fmt: skip
_NUMBER: Final = re.compile(
    r"(?:up to|max\.?|<=?|~|typ(?:ical)?\.?|>)?\s*(?P<number>-?[0-9][0-9., ]*)\s*"
    r"(?P<unit>[a-zA-Zµμ%/]*)", re.IGNORECASE,
)  # fmt: skip
_IOPS: Final = {"": 1.0, "k": 1e3, "m": 1e6}
_BYTES: Final = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12} | {
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
RANGES: Final = {
    # what a drive can be, in units of the base; what is outside is in another unit
    "random_read": (20.0, 5e7), "random_write": (20.0, 5e7), "mix_70_30": (20.0, 5e7),
    "sequential_read": (5e7, 1e11), "sequential_write": (2e7, 1e11),
    "read_latency": (1e-6, 2e-2), "write_latency": (1e-6, 2e-2),
    "capacity": (8e9, 1e15), "power_active": (0.1, 100.0), "power_idle": (0.01, 60.0),
}  # fmt: skip


class Expected(NamedTuple):
    """Median of a figure that is measured, and the standard deviation of its logarithm."""

    value: float
    sd: float


REACHED: Final = {
    "random_read": Expected(1.0, 0.15), "random_write": Expected(1.2, 0.25),
    "sequential_read": Expected(0.98, 0.12), "sequential_write": Expected(1.0, 0.12),
    "read_latency": Expected(1.0, 0.2), "write_latency": Expected(1.0, 0.3),
}  # fmt: skip
"""What saturated rows reach, as a share of the data sheet's figure. Source: drives of
`calibration/held-out` whose sheet is known: twelve of reads (0.79 to 1.10), twelve of writes in
the steady state (clouds hold to what they say, 1.0; sheets of drives promise it at worst, 1.1 to
1.7), 27 and 21 of streams that no link stops (0.83 to 1.22). Latencies: assumed."""
OF_CACHE: Final = {"random_read": Expected(0.75, 0.35), "random_write": Expected(0.8, 0.5)}
"""The same of drives whose sheet speaks of their cache: eight of reads (0.45 to 1.06), six of
writes (0.2 to 1.2)."""
CACHED: Final = 0.6
"""Random writes/s in units of random reads/s from which on a sheet speaks of the cache: what lasts
is 0.05 to 0.4 of the reads on sheets of drives for servers, 0.57 of one of SLC."""


FLUSH: Final = Quantity(
    value=1800e6, low=400e6, high=8000e6,
    source="of other drives without capacitors: 3.5 ms (Samsung 960 PRO, percona.com, 2018-07-18), "
    "0.9 ms (Samsung 990 PRO, smalldatum.blogspot.com, 2026-01-07)",
)  # fmt: skip
"""Time to make a write last, ps, of a drive that keeps what it acknowledged in volatile memory."""
BEYOND_DOUBT: Final = 2.0
"""Standard deviations above what is expected from which on a row says that it is not so."""


def _done(points: Sequence[Point], key: str) -> float:
    """Most that a row of *points* did of the figure *key*, of a drive: requests/s or bytes/s."""
    is_random, is_read = key.startswith("random"), key.endswith("read")
    return max(
        (
            p.iops * (p.read_fraction if is_read else 1 - p.read_fraction) / p.targets
            * (1 if is_random else p.block_size)
            for p in points if not p.held_out and (p.random or not is_random)
        ), default=0.0,
    )  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """Figures of a data sheet: bytes/s, IOPS, s, bytes, W."""

    file: Path
    figures: dict[str, float]
    capacity: float
    link: str
    texts: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """Key -> where it stands: "line 3"."""

    def points(self) -> list[Point]:
        """The figures as rows of a fit."""
        return [self._point(key) for key in FIGURES if key in self.figures]

    def expected(
        self, points: Sequence[Point], link: Link, *, is_flash: bool
    ) -> dict[str, Expected]:
        """What its figures lead to expect beyond *points*, behind *link*: 1/s, bytes/s, s.

        A ceiling that one of them is above says nothing: flash was fresh, or the sheet is another
        drive's.
        """
        reached = {**REACHED, **OF_CACHE} if is_flash and self.is_of_cache else REACHED
        most = {
            "sequential_read": command_ceiling(link, "read", LARGE) * LARGE,
            "sequential_write": command_ceiling(link, "write", LARGE) * LARGE,
        }
        found = {
            key: Expected(min(share * self.figures[key], most.get(key, math.inf)), sd)
            for key, (share, sd) in reached.items() if key in self.figures
        }  # fmt: skip
        return {
            key: e for key, e in found.items()
            if key.endswith("latency")
            or _done(points, key) < e.value * math.exp(BEYOND_DOUBT * e.sd)
        }  # fmt: skip

    @property
    def source(self) -> str:
        """Where its figures are from."""
        return self.texts.get("source") or f"data sheet {self.file.name}"

    @property
    def is_of_cache(self) -> bool:
        """True if its writes are those of a cache, as sheets of client drives have them.

        Clouds state requests alone, and hold to them.
        """
        reads, writes = (self.figures.get(f"random_{op}", 0.0) for op in ("read", "write"))
        is_flash = self.figures.get("read_latency", LONE_S[True]) > FLASH_S
        return is_flash and "sequential_write" in self.figures and writes > CACHED * reads > 0

    def besides(self) -> dict[str, Quantity | str | bool]:
        """Numbers of a profile that few captures tell: capacity, power, a flush; and the model."""
        stated = {"capacity": self.capacity} | {
            f"{key}_w": self.figures[key] for key in ("power_active", "power_idle")
            if key in self.figures
        }  # fmt: skip
        found: dict[str, Quantity | str | bool] = {
            k: Quantity(value=v, basis="datasheet", source=self.source) for k, v in stated.items()
        }
        if self.is_of_cache:
            found |= {"write.volatile": True, "write.flush": FLUSH}
        return {**found, "model": self.texts.get("model", "")}

    def _point(self, key: str) -> Point:
        value = self.figures[key]
        read = 0.7 if key == "mix_70_30" else float("read" in key)
        depth = max(DEEP, bounded_depth(value, read=read > 0.5))
        point = Point(key, read, True, 4096, 1, depth, value, None, is_bounded=True)
        if key.endswith("latency"):
            point = Point(key, read, True, 4096, 1, 1, 1 / value, value)
        if key.startswith("sequential"):
            point = Point(key, read, False, LARGE, 1, STREAMS, value / LARGE, None)
        place = self.places.get(key, key)
        return replace(point, is_stated=True, source=self.file.name, place=place)


def sheet_of(profile: DriveProfile) -> Sheet:
    """Return what the catalog says of a drive, as its data sheet would.

    >>> from nvmesim.catalog.load import get
    >>> figures = sheet_of(get("drive", "kioxia-cm7-r-15.36tb")).figures
    >>> {key: f"{figures[key]:.3g}" for key in ("random_read", "sequential_write")}
    {'random_read': '2.72e+06', 'sequential_write': '7e+09'}
    """
    read, write, dies = profile.read, profile.write, profile.dies.value
    drain = dies / write.program.value * 1e12
    figures = {
        "random_read": min(
            profile.commands.value,
            dies / read.die.value * 1e12,
            profile.channels.value / max(read.channel.value, 1.0) * 1e12,
        ),
        "random_write": min(write.commands.value, drain) if write.commands else drain,
        "sequential_read": profile.read_bandwidth.value,
        "sequential_write": profile.write_bandwidth.value,
    }
    for key, part in (("read_latency", read.base), ("write_latency", write.base)):
        if part.source or part.basis != "assumed":
            figures[key] = (part.value + (read.die.value if part is read.base else 0.0)) / 1e12
    texts = {"name": profile.name, "model": profile.model, "source": f"catalog, {profile.name}"}
    return Sheet(Path(profile.name), figures, profile.capacity.value, profile.link, texts)


def read_datasheet(path: Path) -> Sheet:
    """Return the sheet in the TOML or CSV file *path*; CaptureError names line and column.

    A name is a drive's of the catalog.
    """
    if not path.is_file():
        if path.suffix.lower() not in (".toml", ".csv") and len(path.parts) == 1:
            return sheet_of(get("drive", str(path)))
        raise CaptureError(
            f"{path}: no such file; name a data sheet in TOML or CSV, or a drive of the catalog"
        )
    rows = _toml(path) if path.suffix.lower() == ".toml" else _csv(path)
    figures: dict[str, float] = {}
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    for place, label, text in rows:
        key = key_of(label)
        if key is None:
            example = nearest(label.strip().lower(), KEYS)
            raise CaptureError(f"{path}: {place}: {label.strip()!r} is not known; {example}")
        if key in places:
            raise CaptureError(
                f"{path}: {place}: {label.strip()!r} says {key} again, after {places[key]}; "
                "keep one"
            )
        places[key], texts[key] = place, text
        if key in RANGES:
            figures[key] = _value(path, place, key, text)
    if not any(key in figures for key in FIGURES):
        raise CaptureError(f"{path}: has no figure of performance; write {_example('random_read')}")
    if "capacity" not in figures:
        raise CaptureError(
            f"{path}: capacity is missing, and hours of a rebuild depend on it; write "
            f"{_example('capacity')}"
        )
    link = _link(path, texts, places, figures)
    sheet = Sheet(path, figures, figures["capacity"], link, texts, places)
    for write, read in (("random_write", "write_latency"), ("random_read", "read_latency")):
        if write in figures and read in figures and figures[write] * figures[read] < MOST_ALONE:
            raise CaptureError(
                f"{path}: {places[read]}: {texts[read]} alone is {1 / figures[read]:,.0f} IOPS, "
                f"more than {write} ({texts[write]}, {places[write]}); check their units"
            )
    return sheet


MOST_ALONE: Final = 0.3
"""Product of a ceiling and a lone latency below which one of them cannot be: one request at a time
would do several times the ceiling."""


def _example(key: str) -> str:
    return f'{key} = "{KEYS[key]}"'


def _link(
    path: Path, texts: dict[str, str], places: dict[str, str], figures: dict[str, float]
) -> str:
    """The link as the catalog writes it, from the sheet; it is not guessed."""
    text = texts.get("link")
    if text is None:
        raise CaptureError(f"{path}: link is missing; write {_example('link')}")
    found = link_of(text)
    try:
        link = parse_link(found)
    except UnitError as error:
        raise CaptureError(f"{path}: {places['link']}: link: {error}") from None
    for key in ("sequential_read", "sequential_write"):
        if figures.get(key, 0.0) > link.raw_bytes_per_s:
            raise CaptureError(
                f"{path}: {places[key]}: {key} {texts[key]} is more than {found} carries "
                f"({link.raw_bytes_per_s / 1e9:.3g} GB/s, {places['link']}); check both"
            )
    return found


def link_of(text: str) -> str:
    """Return a link as printed in the catalog's form.

    >>> link_of("PCIe 4.0 x4"), link_of("PCI Express Gen5 x4, NVMe 2.0"), link_of("SATA 6 Gb/s")
    ('pcie4 x4', 'pcie5 x4', 'sata3')
    """
    plain = text.strip().lower()
    match = re.search(r"(?:pcie?|pci express|gen)\D*?(\d)(?:\.0)?\D*?x\s*(\d+)", plain)
    match = match or re.search(r"(\d)\.0\s*x\s*(\d+)", plain)
    if match:
        return f"pcie{match[1]} x{match[2]}"
    if "sata" in plain:
        return "sata3"
    if "sas" in plain:
        return "sas4" if "24" in plain or "22.5" in plain else "sas3"
    return plain


def key_of(label: str) -> str | None:
    """Return the key that a printed *label* means; None if it means none.

    What is written as a key, with underscores, must be one.

    >>> key_of("4K Random Read"), key_of("Sequential Write (128KB)"), key_of("Latency, read (typ.)")
    ('random_read', 'sequential_write', 'read_latency')
    """
    plain = label.strip().lower().replace("-", "_").replace(" ", "_")
    if plain in KEYS or "_" in label:
        return plain if plain in KEYS else None
    words = set(re.findall(r"[a-z]+|70", label.lower()))

    def has(*some: str) -> bool:
        return any(w.startswith(s) for w in words for s in some)

    op = "read" if has("read", "lesen") else "write" if has("write", "schreib") else ""
    if has("latency", "latenz") and op:
        return f"{op}_latency"
    if has("mix", "70"):
        return "mix_70_30"
    if (has("random") or words & {"rand", "rnd"}) and op:
        return f"random_{op}"
    if has("seq") and op:
        return f"sequential_{op}"
    if has("power", "leistung", "watt"):
        return "power_idle" if has("idle") else "power_active"
    plain_keys = {"capacity": ("capac", "kapaz"), "link": ("pci", "interface", "link", "bus"),
                  "name": ("name",), "model": ("model",), "source": ("source",)}  # fmt: skip
    return next((key for key, starts in plain_keys.items() if has(*starts)), None)


def _toml(path: Path) -> Iterator[tuple[str, str, str]]:
    """Place, label, text of each key."""
    for key, value in read_toml(path, CaptureError).items():
        if isinstance(value, dict | list | bool):
            raise CaptureError(f"{path}: {key} is {value!r}; write it as printed, in quotes")
        yield key, key, str(value)


def _csv(path: Path) -> Iterator[tuple[str, str, str]]:
    """Place, label, text of each row; a table with a header and one row reads across."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"{path}: is not text: {error}") from None
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1)
             if line.strip() and not line.startswith("#")]  # fmt: skip
    if not lines:
        raise CaptureError(f"{path}: is empty; write a label and a value a line")
    separator = max(";\t,", key=lines[0][1].count)
    rows = [(n, next(csv.reader([line], delimiter=separator, skipinitialspace=True)))
            for n, line in lines]  # fmt: skip
    if len(rows) == 1:
        raise CaptureError(
            f"{path}: line {rows[0][0]} has names and no values; write a label and a value a line"
        )
    if len(rows) == 2 and len(rows[0][1]) == len(rows[1][1]) > 2:
        number, cells = rows[1]
        for column, (name, cell) in enumerate(zip(rows[0][1], cells, strict=True), 1):
            if cell.strip():
                yield f"line {number}, column {column}", name, cell
        return
    for number, cells in rows:
        if len(cells) > 2 and separator == ",":  # 1,100K IOPS without quotes
            cells = [cells[0], ",".join(cells[1:])]
        if len(cells) != 2 or not cells[1].strip():
            raise CaptureError(
                f"{path}: line {number} has {len(cells)} cells; write a label and a value"
            )
        yield f"line {number}", cells[0], cells[1]


def _value(path: Path, place: str, key: str, text: str) -> float:
    """The number of *text* in base units; CaptureError says what is wrong with it."""
    match = _NUMBER.match(text.strip())
    where = f"{path}: {place}: {key} is {text.strip()!r}"
    if match is None:
        raise CaptureError(f"{where}; write it as printed, as {KEYS[key]!r}")
    number = _number(match["number"])
    if number is None or number <= 0:
        raise CaptureError(f"{where}; it must be a number above 0, as {KEYS[key]!r}")
    scale = _scale(key, match["unit"])
    if scale is None:
        raise CaptureError(
            f"{where}, without a unit that is known; write for example {KEYS[key]!r}"
        )
    value, (low, high) = number * scale, RANGES[key]
    if not low <= value <= high:
        raise CaptureError(f"{where}, which no drive is; check its unit, as {KEYS[key]!r}")
    return value


def _number(text: str) -> float | None:
    """A number as printed: commas are for thousands, unless one is for decimals.

    >>> _number("1,100"), _number("6.8"), _number("1,350,000"), _number("14,5")
    (1100.0, 6.8, 1350000.0, 14.5)
    """
    plain = text.strip().replace(" ", "").rstrip(".,")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", plain):
        plain = plain.replace(",", "")
    try:
        return float(plain.replace(",", "."))
    except ValueError:
        return None


def _scale(key: str, unit: str) -> float | None:
    """Base units in one *unit* of *key*; None: it is another kind of unit."""
    plain = unit.strip().lower()
    if key.endswith("latency"):
        return _SECONDS.get(plain)
    if key.startswith("power"):
        return {"w": 1.0, "mw": 1e-3}.get(plain)
    if key == "capacity":
        return _BYTES.get(plain)
    if key.startswith("sequential"):
        return _BYTES.get(plain.removesuffix("/s").removesuffix("ps"))
    return _IOPS.get(plain.removesuffix("/s").replace("iops", "").strip())
