"""Reader of what ``rados bench`` prints at its end: writes, or sequential or random reads.

Its MB are 2**20 bytes. Source: ceph, src/common/obj_bencher.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nvmesim.capture.capture import Access, Capture, Conditions, Latency, Measurement
from nvmesim.capture.readers.reports.common import (
    LARGEST,
    MIB,
    cut_line,
    number_of,
    one_load,
    rate_result,
    results,
)
from nvmesim.capture.text import Head, Source

FORMAT: Final = "rados-bench"
_START: Final = re.compile(r"^[ \t]*Total time run:[ \t]*([0-9.]{1,15})[ \t]*(?:#.*)?$", re.M)
_LINE: Final = re.compile(
    r"^[ \t]*([A-Z][A-Za-z /()]{3,30}):[ \t]*([0-9.]{1,18}(?:e-?\d{1,2})?)[ \t]*(?:#.*)?$", re.M
)
_DEPTH: Final = re.compile(r"Maintaining (\d{1,6}) concurrent (write|read|seq|rand)")
_ROW: Final = re.compile(r"^[ \t]*\d{1,7}\s+(\d{1,6})\s+\d{1,12}\s+\d{1,12}\s+[0-9.]", re.M)
_ACCESS: Final[Mapping[str, Access]] = {"rand": "random", "seq": "sequential"}
_MODE: Final = re.compile(r"rados\b[^\n]*\bbench\b[^\n]*\s(write|seq|rand)\b")


def sniff(head: Head) -> bool:
    """True if *head* has the summary, or the table of seconds that stands before it."""
    text = head.text
    return bool(_START.search(text) and re.search(r"Total (?:writes|reads) made:", text)) or (
        "sec Cur ops" in text and "finished" in text
    )


def read(source: Source) -> Capture:
    """Read every summary; one that is cut is left out and said."""
    text = source.text(LARGEST)
    starts = list(_START.finditer(text))
    ends = [*(start.start() for start in starts), len(text)][1:]
    found: list[Measurement] = []
    warnings: list[str] = []
    before = 0
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1):
        block = dict(_LINE.findall(text[start.start() : end]))
        measurement = _measurement(source, number, block, text[before : start.start()])
        before = start.end()
        if measurement is None:
            warnings.append(f"summary {number} is cut (left out)")
        else:
            found.append(measurement)
    warnings += cut_line(source)
    return results(source, FORMAT, found, warnings)


def _measurement(
    source: Source, number: int, block: dict[str, str], preamble: str
) -> Measurement | None:
    op = "write" if "Total writes made" in block else "read"
    short = {key.removesuffix("(s)").strip().lower(): text for key, text in block.items()}
    wanted = ("total time run", f"total {op}s made", "average latency", "max latency")
    if any(key not in short for key in wanted):
        return None
    figures = {
        key: number_of(source, f"summary {number}: {key}", text, 1e15)
        for key, text in short.items()
    }
    seconds, count = figures["total time run"], round(figures[f"total {op}s made"])
    size = round(figures.get(f"{op} size", figures.get("object size", 0)))
    if not seconds or not count:
        return None
    if not size:
        size = round(figures.get("bandwidth (mb/sec)", 0.0) * MIB * seconds / count)
    depths = [int(match[1]) for match in _DEPTH.finditer(preamble)]
    busiest = max((int(n) for n in _ROW.findall(preamble)), default=None)
    modes = _MODE.findall(preamble)
    lat = Latency(
        count,
        mean_s=figures["average latency"],
        min_s=figures.get("min latency"),
        max_s=figures["max latency"],
        stddev_s=figures.get("stddev latency"),
    )
    result = rate_result(
        count / seconds, count * size / seconds, seconds=seconds, count=count, lat=lat
    )
    mode = modes[-1] if modes else ""
    conditions = Conditions(
        access=_ACCESS.get(mode),
        block_size=size or None,
        jobs=1,
        iodepth=depths[-1] if depths else busiest,
        duration_s=seconds,
        engine="rados",
    )
    fraction = 1.0 if op == "read" else 0.0
    return one_load(mode or op, result, conditions, read_fraction=fraction, source=FORMAT)
