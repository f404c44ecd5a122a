"""Results of the load generators elbencho and vdbench: a measurement a phase or run.

Of elbencho its CSV (``--csvfile``); figures are those of the last thread that ended ("LAST DONE"),
so they are of the whole phase. Of vdbench flatfile.html, of raw and of file system workloads: the
row of averages of each run counts, which leaves warm-up out; times are ms, MB are 2**20 bytes;
whether ``threads`` are those of a drive or of all is not said, so no depth is taken from them.
Source: breuner/elbencho, Statistics.cpp; the vdbench 5.04.07 manual, "Flatfile selective parsing".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from nvmesim.capture.capture import OPS, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.checked_numbers import (
    MIB,
    Report,
    access_of,
    checked,
    one_load,
    rate_result,
)
from nvmesim.capture.text import Source, shown

# elbencho -----------------------------------------------------------------------------------------

_HEADER: Final = frozenset({"operation", "IOPS [last]", "MiB/s [last]"})


def _elbencho(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    lines = text.split("\n")[:-1]  # the last one may be cut
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error:
            cells = []
        if names[-1:] == ["command"] and len(cells) != len(names):
            # elbencho puts the command last, with quotes and commas of its own.
            cells = line.split(",", len(names) - 1)
        if set(cells) >= _HEADER:
            names = cells
            continue
        if not names or not cells:
            continue
        if len(cells) != len(names):
            warnings.append(f"line {number} has {len(cells)} of {len(names)} cells (left out)")
            continue
        row = dict(zip(names, cells, strict=True))
        if row["operation"] in ("READ", "WRITE") or row["operation"].startswith("RWMIX"):
            yield _phase(source, f"line {number}", row)


def _phase(source: Source, where: str, row: Mapping[str, str]) -> Measurement:
    def number(name: str, most: float = 1e13) -> float | None:
        text = row.get(name, "").strip()
        return checked(source, f"{where}: {name}", text, most=most) if text else None

    seconds = (number("time ms [last]") or 0.0) / 1e3 or None
    mib = number("MiB [last]")
    rate = (number("MiB/s [last]") or 0.0) * MIB
    if mib and seconds:
        rate = mib * MIB / seconds
    size = number("block size", 1 << 40)
    iops = rate / size if size and rate else number("IOPS [last]") or 0.0
    mean, low, high = (number(f"IO lat us [{what}]") for what in ("avg", "min", "max"))
    lat = None
    if mean:
        count = round(iops * seconds) if seconds else 0
        lat = Latency(count, mean / 1e6, (low or 0.0) / 1e6, high / 1e6 if high else None)
    threads, hosts = number("threads", 1e7), number("hosts", 1e7)
    depth, random, direct = number("IO depth", 1e7), row.get("random"), row.get("direct IO")
    conditions = Conditions(
        access=None if random in (None, "") else "random" if random == "1" else "sequential",
        block_size=round(size) if size else None,
        jobs=round(threads * (hosts or 1)) if threads else None,
        iodepth=round(depth) if depth else None,
        direct=None if direct in (None, "") else direct == "1",
        duration_s=seconds,
    )
    label = " ".join(filter(None, (row["operation"].lower(), row.get("label", ""))))
    return one_load(
        label,
        rate_result(iops, rate, seconds=seconds, lat=lat),
        conditions,
        read_fraction=_fraction(row["operation"]),
        source="elbencho",
    )


def _fraction(operation: str) -> float | None:
    """Fraction of reads that the name of a phase says; RWMIX70 reads 70 %."""
    if operation.startswith("RWMIX"):
        share = operation.removeprefix("RWMIX")
        return int(share) / 100 if share.isdecimal() and int(share) <= 100 else None
    return 1.0 if operation.endswith("READ") else 0.0


# vdbench ------------------------------------------------------------------------------------------

_FLAT: Final = re.compile(r"^[ \t]*tod\s+(?:timestamp\s+)?Run\s+Interval\s", re.M)
_TAGS: Final = re.compile(r"<[^>\n]{0,300}>")
_AVERAGE: Final = re.compile(r"avg_(\d{1,9})-(\d{1,9})")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d{1,3})?)")
RESIDUE: Final = 1e-9
"""Part of all requests that is no more than the rounding of a difference."""


def _vdbench(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    for number, line in enumerate([*_TAGS.sub("", text).split("\n"), ""], start=1):
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
            yield _averages(source, number, run, row, _span(times, row["Interval"]))
            times = []
        else:
            times.append(_tod(row["tod"]))
    _note_cut(run, times, warnings)


def _note_cut(run: str, times: list[float], warnings: list[str]) -> None:
    if times:
        warnings.append(f"{shown(run, 60)}: ends before its averages (left out)")


def _averages(
    source: Source, line: int, run: str, row: Mapping[str, str], seconds: float | None
) -> Measurement:
    """One row of averages: names of raw workloads are lower case, of file systems not."""
    low = {key.lower(): value for key, value in row.items()}

    def number(*names: str, most: float = 1e13) -> float | None:
        name = next((name for name in names if low.get(name, "n/a") != "n/a"), None)
        if name is None:
            return None
        return checked(source, f"line {line}: {name}", low[name], most=most)

    rate = number("rate") or 0.0
    share = (number("read%", "rdpct", most=100) or 0.0) / 100
    reads, writes = number("read_rate"), number("write_rate")
    reads = rate * share if reads is None else reads
    writes = rate * (1 - share) if writes is None else writes
    both = reads + writes
    total = (number("mb/sec") or 0.0) * MIB
    ops: dict[Op, OpResult] = {}
    for op, iops in zip(OPS, (reads, writes), strict=True):
        if iops <= RESIDUE * both:
            continue
        mean, high = number(f"{op}_resp", "resp"), number(f"{op}_resp_max", f"{op}_max")
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
            block_size=_whole_size(number("bytes/io", "xfersize", most=1 << 40) or 0.0),
            duration_s=seconds,
            depth_mean=number("queue_depth"),
        ),
        ops=ops,
        source="vdbench",
    )


def _whole_size(size: float) -> int | None:
    """Return a size of the averages, whose last bytes are cut: 4093 or 4094 means 4096."""
    whole = 512 * round(size / 512)
    return whole if whole and abs(size - whole) <= max(4.0, 1e-3 * whole) else None


def _tod(text: str) -> float:
    match = _CLOCK.match(text)
    return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]) if match else 0.0


def _span(times: list[float], interval: str) -> float | None:
    """Seconds that the averages cover: as many intervals as they name."""
    match = _AVERAGE.fullmatch(interval)
    gaps = sorted((b - a) % 86_400 for a, b in pairwise(times))
    if match is None or not gaps:
        return None
    length = round(gaps[len(gaps) // 2]) or gaps[len(gaps) // 2]
    return max(int(match[2]) - int(match[1]) + 1, 0) * length or None


REPORTS: Final = {
    "vdbench": Report("vdbench", ((_FLAT.pattern,),), _vdbench),
    "elbencho": Report(
        "elbencho",
        ((r"\A(?:[^\n]*\n){0,4}[^\n]*operation[^\n]*IOPS \[last\][^\n]*MiB/s \[last\]",),),
        _elbencho,
    ),
}
