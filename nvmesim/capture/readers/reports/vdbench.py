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
from nvmesim.capture.readers.reports.common import MIB, access_of, rate_result, read_report
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
OPS: Final[tuple[Op, ...]] = ("read", "write")
Row = dict[str, str]


def sniff(head: Head) -> bool:
    """True if *head* is of a flatfile or of a summary."""
    text = head.text
    return bool(_FLAT.search(text)) or ("Starting RD=" in text and "nterval" in text)


def read(source: Source) -> Capture:
    """Read the averages of every run; one that was cut before them is said."""
    is_flat = _FLAT.search(_TAGS.sub("", source.head.text)) is not None
    form = _flat if is_flat else _summary
    return read_report(source, FORMAT, form, version="flatfile" if is_flat else "summary")


def _flat(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    for number, line in enumerate(_TAGS.sub("", text).split("\n"), start=1):
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
            _note_cut(run, times, warnings)
            run, times = row["Run"], []
        if _AVERAGE.fullmatch(row["Interval"]):
            yield _measurement(source, number, run, row, _span(times, row["Interval"]))
            times = []
        else:
            times.append(_tod(row["tod"]))
    _note_cut(run, times, warnings)


def _summary(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    lines = _TAGS.sub("", text).split("\n")
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True), start=1):
        begins, header = _SUMMARY.search(line), _INTERVAL.match(line.strip())
        words = line.split()
        if begins:
            _note_cut(run, times, warnings)
            run, columns, times = begins[1], [], []
        elif header:  # on two lines
            columns = [f"{a} {b}" for a, b in zip(header[1].split(), after.split(), strict=False)]
        elif run and columns and len(words) > 2 and _TIME.fullmatch(words[0]):
            if _AVERAGE.fullmatch(words[1]) is None:
                times += [_tod(words[0])] if words[1].isdecimal() else []
                continue
            row = dict(zip(columns, words[2:], strict=False))
            if len(words) - 2 < len(_RAW) or set(_RAW) - set(row):
                warnings.append(
                    f"{shown(run, 60)}: its averages are cut or of another table (left out)"
                )
            else:
                yield _measurement(source, number, run, row, _span(times, words[1]))
            times = []
    _note_cut(run, times, warnings)


def _note_cut(run: str, times: list[float], warnings: list[str]) -> None:
    if times:
        warnings.append(f"{shown(run, 60)}: ends before its averages (left out)")


def _measurement(
    source: Source, line: int, run: str, row: Row, seconds: float | None
) -> Measurement:
    """One row of averages: names of raw workloads are lower case, of file systems not."""
    low = {key.lower(): value for key, value in row.items()}

    def number(*names: str, most: float = 1e13) -> float | None:
        name = next((name for name in names if low.get(name, "n/a") != "n/a"), None)
        if name is None:
            return None
        return checked(source, f"line {line}: {name}", low[name], most=most)

    rate = number("rate", "i/o rate") or 0.0
    share = (number("read%", "rdpct", "read pct", most=100) or 0.0) / 100
    reads, writes = number("read_rate"), number("write_rate")
    reads = rate * share if reads is None else reads
    writes = rate * (1 - share) if writes is None else writes
    both = reads + writes
    total = (number("mb/sec", "mb/sec 1024**2") or 0.0) * MIB
    ops: dict[Op, OpResult] = {}
    for op, iops in zip(OPS, (reads, writes), strict=True):
        if iops <= RESIDUE * both:
            continue
        mean = number(f"{op}_resp", f"{op} resp") or number("resp", "resp time")
        high = number(f"{op}_resp_max", f"{op}_max", f"{op} max")
        spread = number(f"{op}_resp_std", f"{op}_std")
        count = round(iops * seconds) if seconds else 0
        lat = None
        if mean:
            spread_s = None if spread is None else spread / 1e3
            lat = Latency(count, mean / 1e3, None, high / 1e3 if high else None, spread_s)
        bandwidth = (number(f"mb_{op}") or 0.0) * MIB or total * (iops / both)
        ops[op] = rate_result(iops, bandwidth, seconds=seconds, lat=lat)
    seek = number("seekpct", most=100)
    return Measurement(
        label=shown(run, 60),
        conditions=Conditions(
            read_fraction=reads / both if both else None,
            access=None if seek is None else access_of(seek / 100),
            block_size=_whole_size(
                number("bytes/io", "xfersize", "bytes i/o", most=1 << 40) or 0.0
            ),
            duration_s=seconds,
            depth_mean=number("queue_depth", "queue depth"),
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
