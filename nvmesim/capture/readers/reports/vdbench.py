"""Reader of vdbench's flatfile.html and summary.html, of raw and of file system workloads.

The row of averages of each run counts, which leaves warm-up out; times are ms, MB are 2**20 bytes.
Whether ``threads`` are those of a drive or of all is not said, so no depth is taken from them.
Source: the vdbench 5.04.07 manual, "Flatfile selective parsing" and "Summary report".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.fields import checked
from nvmesim.capture.readers.reports.common import (
    LARGEST,
    MIB,
    access_of,
    cut_line,
    rate_result,
    results,
)
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "vdbench"
_FLAT: Final = re.compile(r"^[ \t]*tod\s+(?:timestamp\s+)?Run\s+Interval\s", re.M)
_SUMMARY: Final = re.compile(r"Starting RD=(\S+?)[;,\s]")
_INTERVAL: Final = re.compile(r"^(?:\w{3} \d\d, \d{4}\s+)?\s*[Ii]nterval\s+(.*)$")
_TAGS: Final = re.compile(r"<[^>\n]{0,300}>")
_AVERAGE: Final = re.compile(r"avg_(\d{1,9})-(\d{1,9})")
_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d{1,3})?)")
_RAW: Final = ("i/o rate", "MB/sec 1024**2", "bytes i/o", "read pct", "resp time")
RESIDUE: Final = 1e-9
"""Part of all requests that is no more than the rounding of a difference."""
Row = dict[str, str]


def sniff(head: Head) -> bool:
    """True if *head* is of a flatfile or of a summary."""
    text = head.text
    return bool(_FLAT.search(text)) or ("Starting RD=" in text and "nterval" in text)


def read(source: Source) -> Capture:
    """Read the averages of every run; one that was cut before them is said."""
    text = _TAGS.sub("", source.text(LARGEST))
    warnings: list[str] = []
    flat = _FLAT.search(text) is not None
    found = list(_flat(source, text, warnings) if flat else _summary(source, text, warnings))
    warnings += cut_line(source)
    return results(source, FORMAT, found, warnings, version="flatfile" if flat else "summary")


def _flat(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if _FLAT.match(line):
            columns = words
            continue
        if not columns or not words or words[0].startswith("*"):
            continue
        if len(words) != len(columns):
            warnings.append(f"line {number} has {len(words)} of {len(columns)} columns (left out)")
            continue
        row = dict(zip(columns, words, strict=True))
        if row["Run"] != run:
            if times:
                warnings.append(f"{run}: ends before its averages (left out)")
            run, times = row["Run"], []
        if not _AVERAGE.fullmatch(row["Interval"]):
            times.append(_tod(row["tod"]))
            continue
        seconds = _span(times, row["Interval"])
        times = []
        yield _from_flat(source, f"line {number}", row, seconds)
    if times:
        warnings.append(f"{run}: ends before its averages (left out)")


def _from_flat(source: Source, where: str, row: Row, seconds: float | None) -> Measurement:
    """One row of averages: names of raw workloads are lower case, of file systems not."""
    low = {key.lower(): value for key, value in row.items()}

    def number(*names: str, most: float = 1e13) -> float | None:
        for name in names:
            text = low.get(name)
            if text is not None and text != "n/a":
                return checked(source, f"{where}: {name}", text, most=most)
        return None

    rate = number("rate") or 0.0
    share = number("read%", "rdpct", most=100)
    reads = number("read_rate")
    if reads is None:
        reads = rate * (share or 0.0) / 100
    writes = number("write_rate")
    if writes is None:
        writes = max(rate - reads, 0.0)
    total = (number("mb/sec") or 0.0) * MIB
    size = number("bytes/io", "xfersize", most=1 << 40) or 0.0
    rates = {"read": (number("mb_read") or 0.0) * MIB, "write": (number("mb_write") or 0.0) * MIB}
    both = reads + writes
    ops: dict[Op, OpResult] = {}
    for op, iops in (("read", reads), ("write", writes)):
        if iops <= RESIDUE * both:
            continue
        mean, high = number(f"{op}_resp", "resp"), number(f"{op}_resp_max", f"{op}_max")
        deviation = number(f"{op}_resp_std", f"{op}_std")
        count = round(iops * seconds) if seconds else 0
        lat = Latency(count, mean and mean / 1e3, None, high and high / 1e3,
                      None if deviation is None else deviation / 1e3)  # fmt: skip
        per_s = rates[op] or total * iops / both
        ops["read" if op == "read" else "write"] = rate_result(
            iops, per_s, seconds=seconds, lat=lat if mean else None
        )
    seek = number("seekpct", most=100)
    return Measurement(
        label=shown(row["Run"], 60),
        conditions=Conditions(
            read_fraction=reads / both if both else None,
            access=None if seek is None else access_of(seek / 100),
            block_size=_whole_size(size),
            duration_s=seconds,
            depth_mean=number("queue_depth"),
        ),
        ops=ops,
        source=FORMAT,
    )


def _whole_size(size: float) -> int | None:
    """Return a size of the averages, whose last bytes are cut: 4093 or 4094 means 4096."""
    whole = 512 * round(size / 512)
    return whole if whole and abs(size - whole) <= max(4.0, 1e-3 * whole) else None


def _tod(text: str) -> float:
    match = _TIME.match(text)
    return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]) if match else 0.0


def _span(times: list[float], interval: str) -> float | None:
    """Seconds that the averages cover: as many intervals as they name."""
    match = _AVERAGE.fullmatch(interval)
    gaps = sorted((b - a) % 86_400 for a, b in pairwise(times))
    if match is None or not gaps:
        return None
    length = round(gaps[len(gaps) // 2]) or gaps[len(gaps) // 2]
    return max(int(match[2]) - int(match[1]) + 1, 0) * length or None


def _summary(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        begins, header = _SUMMARY.search(line), _INTERVAL.match(line.strip())
        words = line.split()
        if begins:
            if times:
                warnings.append(f"{run}: ends before its averages (left out)")
            run, columns, times = shown(begins[1], 60), [], []
        elif header:
            columns = _joined(
                header[1].split(), lines[number].split() if number < len(lines) else []
            )
        elif run and columns and len(words) > 2 and _TIME.fullmatch(words[0]):
            average = _AVERAGE.fullmatch(words[1])
            if average is None:
                times += [_tod(words[0])] if words[1].isdecimal() else []
                continue
            row = dict(zip(columns, words[2:], strict=False))
            if len(words) - 2 < len(_RAW) or set(_RAW) - set(row):
                warnings.append(f"{run}: its averages are cut or of another table (left out)")
            else:
                yield _from_summary(source, number, run, row, _span(times, words[1]))
            times = []
    if times:
        warnings.append(f"{run}: ends before its averages (left out)")


def _joined(first: list[str], second: list[str]) -> list[str]:
    """Names of the columns, which stand on two lines."""
    return [f"{a} {b}" for a, b in zip(first, second, strict=False)]


def _from_summary(
    source: Source, line: int, run: str, row: Row, seconds: float | None
) -> Measurement:
    def number(name: str) -> float | None:
        text = row.get(name)
        return None if text is None else checked(source, f"line {line}: {name}", text, most=1e13)

    iops, share = number("i/o rate") or 0.0, (number("read pct") or 0.0) / 100
    rate = (number("MB/sec 1024**2") or 0.0) * MIB
    ops: dict[Op, OpResult] = {}
    for op, part in (("read", share), ("write", 1 - share)):
        if part <= 0 or not iops:
            continue
        mean = number(f"{op} resp") or number("resp time")
        high = number(f"{op} max")
        count = round(iops * part * seconds) if seconds else 0
        lat = Latency(count, mean / 1e3, max_s=high / 1e3 if high else None) if mean else None
        ops["read" if op == "read" else "write"] = rate_result(
            iops * part, rate * part, seconds=seconds, lat=lat
        )
    return Measurement(
        label=run,
        conditions=Conditions(
            read_fraction=share,
            block_size=_whole_size(number("bytes i/o") or 0.0),
            duration_s=seconds,
            depth_mean=number("queue depth"),
        ),
        ops=ops,
        source=FORMAT,
    )
