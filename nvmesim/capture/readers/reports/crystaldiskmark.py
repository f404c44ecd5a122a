"""Reader of what CrystalDiskMark 3 to 8 and KDiskMark copy as text: the best of some runs a row.

``MB/s`` are 10**6 bytes/s, but KDiskMark 2 divides fio's KiB by 1000: the IOPS beside it tell.
Source: hiyohiyo/CrystalDiskMark, JonMagon/KDiskMark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from nvmesim.capture.capture import Access, Capture, Conditions, Latency, Measurement
from nvmesim.capture.readers.reports.common import (
    binary_size,
    number_of,
    one_load,
    rate_result,
    read_report,
)
from nvmesim.capture.text import Head, Source

FORMAT: Final = "crystaldiskmark"
_TITLE: Final = re.compile(r"^[ \t]*(CrystalDiskMark|KDiskMark)\s+\(?([0-9][\w.]{0,20})", re.M)
_SECTION: Final = re.compile(r"^[ \t]*\[(Read|Write|Mix)\]")
_ROW: Final = re.compile(
    r"^[ \t]*(?P<access>SEQ|RND|Sequential|Random)\s*(?P<op>Read|Write)?\s*"
    r"(?P<size>[0-9]{1,5}\s*[KM]i?B)?\s*\((?:(?:Q\s*=\s*(?P<q>\d{1,5}),\s*)?T\s*=\s*(?P<t>\d{1,4})|"
    r"QD\s*=\s*(?P<qd>\d{1,5}))\s*\)\s*:\s*(?P<rate>[0-9.]{1,15})\s*MB/s"
    r"(?:\s*\[\s*(?P<iops>[0-9.]{1,15}) IOPS\])?(?:\s*<\s*(?P<lat>[0-9.]{1,15}) us>)?\s*$"
)
_OLD_ROW: Final = re.compile(
    r"^[ \t]*(?P<access>Sequential|Random)\s+(?P<op>Read|Write)\s*(?P<size>[0-9]{1,5}[KM]i?B)?\s*"
    r"(?:\(\s*QD\s*=\s*(?P<qd>\d{1,5})\))?\s*:\s*(?P<rate>[0-9.]{1,15})\s*MB/s"
    r"(?:\s*\[\s*(?P<iops>[0-9.]{1,15}) IOPS\])?\s*$"
)
_MIX: Final = re.compile(r"Read\s*(\d{1,3})\s*%")
_SEQUENTIAL_BYTES: Final = 1 << 20
"""Sequential rows of versions 3 to 5 name no size: it is 1 MiB, or 128 KiB with a queue depth."""
_QUEUED_SEQUENTIAL_BYTES: Final = 128 << 10
_KIB_RATE: Final = 1.024


def sniff(head: Head) -> bool:
    """True if *head* has the title of either program."""
    return bool(_TITLE.search(head.text))


def read(source: Source) -> Capture:
    """Read every row; rows of zero did not run and are said."""
    title = _TITLE.search(source.head.text)
    version = f"{title[1]} {title[2]}" if title else None
    warning = "each row is the best of its runs, not their mean"
    return read_report(source, FORMAT, _measurements, warning, version=version)


def _measurements(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    section, mix = "", None
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        start = _SECTION.match(line)
        if start:
            section, share = start[1], _MIX.search(line)
            mix = int(share[1]) / 100 if share and int(share[1]) <= 100 else None
        row = _ROW.match(line) or _OLD_ROW.match(line)
        if row is None or (number == len(lines) and "iops" in row.groupdict() and not row["iops"]):
            continue
        measurement = _measurement(source, number, row, section, mix)
        if measurement is None:
            warnings.append(f"line {number}: a row of zero did not run (left out)")
        else:
            yield measurement


def _measurement(
    source: Source, line: int, row: re.Match[str], section: str, mix: float | None
) -> Measurement | None:
    known = row.groupdict()
    where = f"line {line}"
    rate = number_of(source, f"{where}: MB/s", row["rate"], 1e7) * 1e6
    depth = int(known.get("q") or known.get("qd") or 1)
    is_queued = known.get("q") and depth > 1
    unnamed = _QUEUED_SEQUENTIAL_BYTES if is_queued else _SEQUENTIAL_BYTES
    size = binary_size(row["size"]) if row["size"] else unnamed
    if not size or not rate:
        return None
    iops = number_of(source, f"{where}: IOPS", row["iops"]) if row["iops"] else rate / size
    if not iops:
        return None
    if row["iops"] and abs(rate * _KIB_RATE / (iops * size) - 1) < abs(rate / (iops * size) - 1):
        rate *= _KIB_RATE
    lat = None
    if known.get("lat"):
        lat = Latency(0, mean_s=number_of(source, f"{where}: us", row["lat"], 1e12) * 1e-6)
    op = row["op"] or section
    access: Access = "random" if row["access"] in ("RND", "Random") else "sequential"
    return one_load(
        f"{access} {op.lower()}",
        rate_result(iops, rate, lat=lat),
        Conditions(
            access=access,
            block_size=size,
            jobs=int(known.get("t") or 1),
            iodepth=depth,
            targets=1,
        ),
        read_fraction={"Read": 1.0, "Write": 0.0}.get(op, mix),
        source=FORMAT,
    )
