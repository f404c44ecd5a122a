"""The columns of a table of points: their names, how people spell them, and what a cell says."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from operator import eq
from typing import Any, Final, NamedTuple, get_args

from nvmesim.capture.capture import Access
from nvmesim.capture.checked_numbers import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.capture.text import Source, shown
from nvmesim.catalog.engine_profile import FileSystem, Guest
from nvmesim.errors import CaptureError, UnitError, nearest
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.loads.fio_options import FioOptions, parse_bytes
from nvmesim.units import parse_size

MAX_JOBS: Final = 1 << 20
SECTOR: Final = 512
US: Final = 1e-6
OP_EXAMPLES: Final = "write randread, randwrite, read, write or randrw:70 (percent of reads)"
SPELLINGS: Final = {
    "op": ("rw", "mode", "pattern", "operation"),
    "block_size": ("bs", "blocksize", "block", "io_size", "request_size"),
    "jobs": ("threads", "numjobs", "workers", "job", "thread"),
    "iodepth": ("depth", "qd", "queue_depth", "queuedepth", "io_depth"),
    "drives": ("targets", "disks", "devices"),
    "read_pct": ("rwmixread", "read_percent"),
    "engine": ("ioengine",),
    "duration_s": ("runtime", "runtime_s", "duration"),
    "note": ("notes", "comment"),
}
"""Column -> what people call it; case, spaces, dashes and dots do not matter. See `column` for
latencies."""
BANDWIDTH: Final = {
    "bw_mb_s": 1e6, "bw_mib_s": 2.0**20, "bw_gb_s": 1e9, "bw_gib_s": 2.0**30, "bw_kib_s": 2.0**10,
}  # fmt: skip
"""Column -> bytes/s of its unit."""
LATENCY: Final = re.compile(
    r"(?P<op>read_|write_|)(?P<kind>clat|lat|slat)_"
    r"(?:(?P<moment>mean|min|max|stddev)|p(?P<percent>[0-9]{1,2}(?:_[0-9]{1,6})?))_us"
)
"""What `column` makes of the name of a latency."""

_DECIMAL: Final = ((1000, "KiB"), (10**6, "MiB"), (10**9, "GiB"))
_IN_US: Final = {
    "ns": 1e-3, "us": 1.0, "µs": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6,
}  # fmt: skip
_RATES: Final = {"k": 1e3, "m": 1e6}
_WORDS: Final = {
    "op": {"read": "read_", "write": "write_"},
    "kind": {"clat": "clat", "lat": "lat", "latency": "lat", "slat": "slat"},
    "moment": {"mean": "mean", "avg": "mean", "average": "mean", "min": "min", "max": "max",
               "stddev": "stddev", "median": "p50"},
    "unit": {unit: unit for unit in _IN_US},
}  # fmt: skip
"""The parts of a latency's name, in any order."""
_AVERAGE: Final = re.compile(
    r"^(?:avg|average|mean)_(?=[km]?iops|bw|bandwidth|throughput|speed|[kmg]i?b_)"
)
_PERCENTILE: Final = re.compile(r"p[0-9]{1,2}(?:_[0-9]{1,6})?")
_OP: Final = re.compile(r"(?:rand)?(?:read|write)|((?:rand)?rw|readwrite)(?::([0-9.]+)%?)?")


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is not blank."""

    source: Source
    line: int
    column: str
    """As the table calls it."""
    text: str
    decimal_comma: bool

    def error(self, found: str, do: str) -> CaptureError:
        """Return the error of this cell."""
        return self.source.error(f"line {self.line}: {found}", do)


class Column(NamedTuple):
    """A column that is known."""

    name: str
    """Of all that it may be called, the one name."""
    convert: Callable[[Cell], Any]
    has_unit: bool = True
    """False: a latency whose name does not say its unit; microseconds where no cell does."""


class Operation(NamedTuple):
    """What a cell such as randrw:70 says."""

    text: str
    access: Access | None
    read_fraction: float | None
    """None: a mix whose cell does not say it."""


def _number(
    cell: Cell, most: float, units: Mapping[str, float] | None = None, scale: float = 1.0
) -> float:
    """The number of a cell in the column's unit, *scale*; a unit in the cell goes first."""
    text = cell.text.replace(",", ".") if cell.decimal_comma else cell.text
    unit = re.search(r"[^\W\d_]+$", text)
    if unit and units and unit[0].lower() in units:
        text, scale = text[: unit.start()].strip(), units[unit[0].lower()]
    where, do = f"line {cell.line}: {cell.column}", "mend the cell, or leave it blank"
    return checked(cell.source, where, text, most=most / scale, do=do) * scale


def _positive(
    cell: Cell, most: float, units: Mapping[str, float] | None = None, scale: float = 1.0
) -> float:
    number = _number(cell, most, units, scale)
    if number == 0:
        raise cell.error(f"{cell.column} is 0", "leave the cell blank if it is unknown")
    return number


def _whole(cell: Cell) -> int:
    number = _number(cell, MAX_JOBS)
    if number < 1 or number != int(number):
        raise cell.error(f"{cell.column} is {number:g}", "write a whole number from 1 on")
    return int(number)


def _choice(cell: Cell, *known: str) -> str:
    if cell.text.lower() not in known:
        raise cell.error(f"{cell.column} is {shown(cell.text, 30)!r}", f"write {', '.join(known)}")
    return cell.text.lower()


def _size(cell: Cell, text: str) -> int:
    size = parse_bytes(text)
    if size is None:
        try:
            size = parse_size(text.strip())
        except UnitError as error:
            raise cell.error(f"{cell.column}: {error}", "or 4096, or 4k") from None
    return size


def _block_size(cell: Cell) -> int:
    size = _size(cell, cell.text)
    if not 1 <= size <= 1 << 40:
        raise cell.error(f"{cell.column} is {size} B", "write 1 B to 1 TiB")
    if size >= SECTOR and size % SECTOR:
        power = max((u for u in _DECIMAL if size % u[0] == 0), default=None)
        do = "write a multiple of 512 bytes"
        if power is not None:
            do = f"drives count in binary: is {size // power[0]} {power[1]} meant?"
        raise cell.error(f"{cell.column} is {cell.text}, {size:,} bytes", do)
    return size


def _raid(cell: Cell) -> str | None:
    """Level of the measured array, and its chunk in bytes: "raid0:524288"."""
    if cell.text == "none":
        return None
    level, _, chunk = cell.text.partition(":")
    level = level.strip().lower()
    if level not in LEVELS:
        raise cell.error(
            f"raid is {shown(cell.text, 30)!r}", "write raid0:512 KiB, raid1 or raid10"
        )
    return f"{level}:{_size(cell, chunk)}" if chunk.strip() else level


def _operation(cell: Cell) -> Operation:
    text = cell.text.lower()
    plain = re.sub(r"^seq(uential)?|[ _-]", "", re.sub(r"^(random|rnd)", "rand", text))
    match = _OP.fullmatch(plain)
    if match is None:
        raise cell.error(f"{cell.column} is {shown(text, 30)!r}", OP_EXAMPLES)
    options = FioOptions({"rw": match[1] or match[0]}, complete=False)
    fraction = options.read_fraction()
    if match[2] is not None:
        fraction = checked(cell.source, f"line {cell.line}: op", match[2], most=100) / 100
    return Operation(cell.text, options.access(), fraction)


_iops: Final = partial(_positive, most=MAX_RATE, units=_RATES)
_PLAIN: Final[dict[str, Callable[[Cell], Any]]] = {
    **dict.fromkeys(
        ("name", "note", "source", "engine", "beside", "device"), lambda cell: cell.text
    ),
    **dict.fromkeys(("jobs", "iodepth", "drives", "threads_per_drive", "limit"), _whole),
    **dict.fromkeys(
        ("polled", "device_times", "direct"), lambda cell: _choice(cell, "0", "1") == "1"
    ),
    "arrivals": lambda cell: _choice(cell, "poisson", "fixed"),
    "block_size": _block_size,
    "read_pct": partial(_number, most=100),
    "cpu_pct": partial(_number, most=1e8),
    "cpu_us": partial(_number, most=MAX_LATENCY_S / US),
    "duration_s": partial(_number, most=MAX_LATENCY_S, units={"s": 1.0}),
    "iops": _iops,
    "op": _operation,
    "filesystem": lambda cell: _choice(cell, *get_args(FileSystem)),
    "guest": lambda cell: _choice(cell, *get_args(Guest)),
    "raid": _raid,
    "rate": partial(_number, most=MAX_RATE, units=_RATES),
    "sync": lambda cell: _choice(cell, "fsync", "fdatasync", "sync"),
}
"""Column -> what its cells are."""
_SPELLED: Final = {other: name for name, others in SPELLINGS.items() for other in others}
_EXAMPLES: Final = (
    *sorted(_PLAIN),
    *BANDWIDTH,
    *("lat_mean_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "p99_99_us", "lat_p99_us"),
)


def cleaned(name: str) -> str:
    """Return the name of a column without what does not matter.

    >>> cleaned(' "Avg. Latency (us)"'), cleaned("Avg IOPS"), cleaned("p99.9us")
    ('avg_latency_us', 'iops', 'p99_9_us')
    """
    plain = re.sub(r"[\s.()\[\]/-]+", "_", name.strip().strip('"').strip().lower()).strip("_")
    return re.sub(r"(?<=[0-9])(?=(us|ms|ns)$)", "_", _AVERAGE.sub("", plain))


def column(name: str) -> Column | None:
    """Return the column that is called *name* in a table; None if it is not known.

    >>> [column(name).name for name in ("qd", "Block Size", "avg_lat_ms", "p99", "kIOPS", "MB/s")]
    ['iodepth', 'block_size', 'lat_mean_us', 'clat_p99_us', 'iops', 'bw_mb_s']
    """
    plain = cleaned(name)
    plain = _SPELLED.get(plain, plain)
    if plain in _PLAIN:
        return Column(plain, _PLAIN[plain])
    if plain in ("kiops", "miops"):
        return Column("iops", partial(_iops, scale=_RATES[plain[0]]))
    rate = f"bw_{plain.removeprefix('bw_')}"
    if rate in BANDWIDTH:
        return Column(rate, partial(_positive, most=1e15))
    return _latency(plain)


def _latency(plain: str) -> Column | None:
    """A latency says its kind or moment, and may say reads or writes, and its unit."""
    percentile = _PERCENTILE.search(plain)
    found = {"moment": percentile[0]} if percentile else {}
    for word in filter(None, _PERCENTILE.sub("", plain, count=1).split("_")):
        part = next((p for p, words in _WORDS.items() if word in words), None)
        if part is None or part in found:
            return None
        found[part] = _WORDS[part][word]
    unit = found.get("unit")
    if not (found.keys() & {"kind", "moment"}) or (
        unit is None and found.get("moment") in ("min", "max", "stddev") and "kind" not in found
    ):
        return None
    kind = found.get("kind", "clat")
    canonical = f"{found.get('op', '')}{kind}_{found.get('moment', 'mean')}_us"
    scale = _IN_US[unit or "us"]
    convert = partial(_positive, most=MAX_LATENCY_S / US, units=_IN_US, scale=scale)
    return Column(canonical, convert, has_unit=unit is not None)


def misspelt(name: str) -> str | None:
    """Return the column that *name* is one edit away from, as typing slips; None if none.

    >>> misspelt("iosp"), misspelt("lat_maen_us"), misspelt("date")
    ('iops', 'lat_mean_us', None)
    """
    plain = cleaned(name)
    known: Iterable[str] = (*_EXAMPLES, *_SPELLED, "mean_us", "clat_mean_us")
    return next((other for other in known if len(plain) > 3 and _is_slip(plain, other)), None)


def _is_slip(a: str, b: str) -> bool:
    """One letter more, less or other, or two that are swapped; not the first, no plural."""
    same = sum(takewhile(bool, map(eq, a, b)))
    x, y = a[same:], b[same:]
    is_one = x[1:] in (y, y[1:]) or x == y[1:] or (x[1::-1] == y[:2] and x[2:] == y[2:])
    return same > 0 and is_one and {x, y} != {"", "s"}


def hint(name: str) -> str:
    """Return what may be meant by a column that is not known.

    >>> hint("latency p99 kg")
    "column 'latency p99 kg' is not known, did you mean 'lat_p99_us'?"
    """
    words = [w for w in cleaned(name).split("_") if _latency(w) or w in _WORDS["op"]]
    if (found := _latency("_".join(words))) is not None:
        return f"column {name!r} is not known, did you mean {found.name!r}?"
    return f"column {name!r} is not known, {nearest(name, _EXAMPLES)}"
