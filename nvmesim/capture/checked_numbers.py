"""Checked numbers of tables and printed results: finite, not negative and plausible, or an error.

Every message names the place in the file (``jobs[0].read.clat_ns.mean``) and what was found there.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nvmesim.capture.capture import Access, Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError

MAX_COUNT: Final = 2**63 - 1
"""Counts and bytes go into int64 arrays."""
MAX_LATENCY_S: Final = 1e6
"""11 days; fio and DiskSpd runs are shorter, so a longer latency is a damaged number."""
MAX_RATE: Final = 1e13
"""Requests or bytes per second of one host: ten thousand times the largest published."""
_TAG: Final = re.compile(r"<(/?)[A-Za-z][^<>]*?(/?)>")


@dataclass(frozen=True)
class Fields:
    """A table in *source*, at the place *where*."""

    source: Source
    where: str
    table: Mapping[str, Any]

    def at(self, key: str) -> str:
        """Name the place of *key* for a message."""
        return f"{self.where}.{key}" if self.where else key

    def number(self, key: str, *, most: float = MAX_COUNT) -> float | None:
        """Return the number at *key*, None if there is none; CaptureError if it cannot be true."""
        value = self.table.get(key)
        return None if value is None else checked(self.source, self.at(key), value, most=most)

    def count(self, key: str) -> int | None:
        """Return the whole number at *key*, exactly; None if there is none."""
        value = self.table.get(key)
        if type(value) is int and 0 <= value <= MAX_COUNT:
            return value
        number = self.number(key)
        return None if number is None else round(number)

    def text(self, key: str) -> str | None:
        """Return the text at *key*; None if there is none or it is something else."""
        value = self.table.get(key)
        return value if isinstance(value, str) else None

    def fields(self, key: str) -> Fields | None:
        """Return the table at *key*; None if there is none; CaptureError if it is not a table."""
        value = self.table.get(key)
        return None if value is None else self._table(self.at(key), value)

    def rows(self, key: str) -> Iterator[Fields]:
        """Yield the tables of the list at *key*, none if it is missing."""
        rows = self.table.get(key)
        if rows is not None and not isinstance(rows, list):
            raise self._no(self.at(key), rows, "list")
        for index, row in enumerate(rows or ()):
            yield self._table(f"{self.at(key)}[{index}]", row)

    def _table(self, where: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise self._no(where, value, "table")
        return Fields(self.source, where, value)

    def _no(self, where: str, value: object, kind: str) -> CaptureError:
        return self.source.error(
            f"{where} is {shown(value, 30)!r}, not a {kind}", "repeat the capture"
        )


def checked(
    source: Source, where: str, value: object, *, most: float, do: str = "repeat the capture"
) -> float:
    """Return *value* as a float between 0 and *most*; CaptureError names *where* it is otherwise.

    *do* is the advice at the end of the message. Texts that hold a number are accepted: some tools
    write numbers quoted.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
    except ValueError:
        raise source.error(f"{where} is {shown(value, 30)!r}, not a number", do) from None
    except OverflowError:
        number = math.inf
    if 0 <= number <= most:
        return number
    if math.isnan(number):
        raise source.error(f"{where} is NaN", do)
    if number < 0:
        raise source.error(f"{where} is {shown(value, 30)}, negative", do)
    raise source.error(f"{where} is {shown(value, 30)}, more than {most:.3g} and not plausible", do)


def parsed_xml(source: Source, text: str, *, most: int, do: str) -> ET.Element:
    """Return the root of *text*; CaptureError if it is no XML, or nested deeper than *most*."""
    depth = deepest = 0
    for tag in _TAG.finditer(text):
        depth += -1 if tag[1] else 0 if tag[2] else 1
        deepest = max(deepest, depth)
    if deepest > most:
        raise source.error("is nested too deeply", do)
    try:
        return ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise source.error(f"is cut or broken XML ({shown(error)})", do) from None


# -- printed results -------------------------------------------------------------------------------

LARGEST: Final = 64 << 20
"""Bytes of a text of results; those of the tools here have some kilobytes, and one of DiskSpd of
1,000 threads with a second-by-second series about 20 MB."""
MIB: Final = 1 << 20
S_PER_MS: Final = 1e-3
LONGEST_MS: Final = 1e8
"""A day and more is not a latency."""
MOST: Final = 1e18
"""Of any number in a text."""
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$")
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT]?)(i?)B?", re.IGNORECASE)
_COUNT: Final = re.compile(r"([0-9][0-9.]{0,20})([kKmMgG]?)")
_TIME_S: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def number(text: str | None) -> float | None:
    """The number in *text* with a decimal point or comma; None if there is none that is finite.

    >>> number("0,107"), number("1.234,5"), number("97.10%"), number("N/A"), number("nan")
    (0.107, 1234.5, 97.1, None, None)
    """
    if text is None:
        return None
    clean = text.strip().rstrip("%").strip().replace("\u00a0", "").replace("\u202f", "")
    if "," in clean:
        if clean.rfind(",") > clean.rfind("."):
            clean = clean.replace(".", "").replace(",", ".", 1)
        else:
            clean = clean.replace(",", "")
    if len(clean) > 60 or not _DECIMAL.match(clean):
        return None
    value = float(clean)
    return value if math.isfinite(value) and abs(value) <= MOST else None


def seconds(milliseconds: float | None) -> float | None:
    """A time in s, None if it is unknown or cannot be.

    >>> seconds(1500.0), seconds(-1.0)
    (1.5, None)
    """
    if milliseconds is None or not 0 <= milliseconds <= LONGEST_MS:
        return None
    return milliseconds * S_PER_MS


def whole(text: str | None) -> int | None:
    """The integer in *text*, at least 0, or None.

    >>> whole(" 4096 "), whole("-1"), whole("x")
    (4096, None, None)
    """
    value = number(text)
    return int(value) if value is not None and value >= 0 and value == int(value) else None


def binary_size(text: str) -> int | None:
    """Bytes of a size whose prefixes are powers of 1024, with or without an i; else None.

    >>> binary_size("4k"), binary_size("128KiB"), binary_size("1 MiB"), binary_size("x")
    (4096, 131072, 1048576, None)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    size = float(match[1]) * 1024 ** (" KMGT".find(match[2].upper()) if match[2] else 0)
    return round(size) if 1 <= size <= 1 << 40 else None


def number_of(source: Source, where: str, text: str, most: float = MAX_RATE) -> float:
    """Return the number in *text*: 90,546 or 97.1k; CaptureError if it is none or not plausible."""
    plain = text.strip().replace(",", "")
    match = _COUNT.fullmatch(plain)
    scale = {"k": 1e3, "m": 1e6, "g": 1e9}.get(match[2].lower(), 1.0) if match else 1.0
    value = checked(source, where, plain.rstrip("kKmMgG") if match else text, most=most)
    return checked(source, where, value * scale, most=most)


def seconds_of(source: Source, where: str, text: str, unit: str) -> float:
    """Return the time *text* of *unit* (ns, us, ms, s, min) in s."""
    return checked(source, where, text, most=1e15) * _TIME_S[unit]


def rate_result(
    iops: float, bytes_per_s: float, *, seconds: float | None = None, count: int | None = None,
    lat: Latency | None = None,
) -> OpResult:  # fmt: skip
    """Return what *iops* and *bytes_per_s* over *seconds* are; counts are 0 if they are unknown.

    >>> rate_result(100.0, 409600.0, seconds=2.0).count
    200
    """
    known = round(iops * seconds) if count is None and seconds else count or 0
    n_bytes = round(bytes_per_s * seconds) if seconds else 0
    return OpResult(count=known, bytes=n_bytes, iops=iops, bytes_per_s=bytes_per_s, lat=lat)


def access_of(random: float | None) -> Access | None:
    """Return where requests go, of which the fraction *random* goes to random places.

    >>> access_of(1.0), access_of(0.0), access_of(0.5), access_of(None)
    ('random', 'sequential', None, None)
    """
    if random == 1.0:
        return "random"
    return "sequential" if random == 0.0 else None


def one_load(
    label: str, result: OpResult, conditions: Conditions, *, read_fraction: float | None,
    source: str,
) -> Measurement:  # fmt: skip
    """Return the measurement of a load that is reported as one: reads, writes, or a mix of both.

    >>> m = one_load("a", rate_result(9.0, 0.0), Conditions(), read_fraction=1.0, source="x")
    >>> list(m.ops), m.mixed, m.conditions.read_fraction
    (['read'], None, 1.0)
    """
    ops: dict[Op, OpResult] = {}
    if read_fraction in (0.0, 1.0):
        ops["read" if read_fraction else "write"] = result
    return Measurement(
        label=shown(label, 60),
        conditions=replace(conditions, read_fraction=read_fraction),
        ops=ops,
        source=source,
        mixed=None if ops else result,
    )


def nearest_size(iops: float, rate: float, half: float, half_iops: float) -> int | None:
    """Return the power of two that *rate* bytes/s over *iops* may be, given their rounding.

    *half* and *half_iops* are what either may be off. None if none fits, or more than one.

    >>> nearest_size(655, 10488 * 2**20, 0.5 * 2**20, 0.5)
    16777216
    """
    if iops <= half_iops:
        return None
    low, high = (rate - half) / (iops + half_iops), (rate + half) / (iops - half_iops)
    fit = [1 << n for n in range(9, 31) if low <= 1 << n <= high]
    return fit[0] if len(fit) == 1 else None


def tell_apart(runs: Sequence[list[Measurement]]) -> list[Measurement]:
    """Return the measurements of all *runs*; a label of several runs gets the run's number."""
    labels = Counter(label for run in runs for label in {m.label for m in run})
    return [
        replace(m, label=f"{m.label} (run {number})") if labels[m.label] > 1 else m
        for number, run in enumerate(runs, start=1)
        for m in run
    ]


def results(
    source: Source, format_name: str, found: Sequence[Measurement], warnings: Sequence[str], *,
    version: str | None = None, rows: int | None = None, skipped: int = 0,
) -> Capture:  # fmt: skip
    """Return the capture of *found*; CaptureError if there is nothing in it."""
    if not found:
        why = f" ({'; '.join(warnings)})" if warnings else ""
        raise source.error(f"is {format_name} without one whole result{why}", "repeat the run")
    notes = [*warnings]
    if skipped:
        notes.append(f"{skipped} lines skipped: damaged, or of no known kind")
    return Capture(
        file=source.path,
        format=format_name,
        version=version,
        measurements=tuple(found),
        rows=len(found) if rows is None else rows,
        skipped=skipped,
        warnings=tuple(dict.fromkeys(notes)),
    )


@dataclass(frozen=True)
class Report:
    """A reader of printed results as a row: how they are known, and what finds measurements."""

    format: str
    known_by: tuple[tuple[str, ...], ...]
    """Groups of patterns: a file is of this format if all of one group are found in it."""
    measurements: Callable[[Source, str, list[str]], Iterable[Measurement]]
    """Finds them in the text; it adds its warnings to the last argument."""
    warning: str = ""
    version: Callable[[str], str | None] = lambda text: None
    """Version of the program, by the start of the text."""

    def sniff(self, head: Head) -> bool:
        """True if *head* is of this format."""
        return any(all(re.search(p, head.text, re.M) for p in group) for group in self.known_by)

    def read(self, source: Source) -> Capture:
        """Return the capture of what is found in the text."""
        text = source.text(LARGEST)
        warnings = [self.warning] if self.warning else []
        found = list(self.measurements(source, text, warnings))
        if text.rpartition("\n")[2]:
            warnings.append("its last line has no end: check that nothing is missing")
        return results(source, self.format, found, warnings, version=self.version(source.head.text))
