"""Reader of the fio table of Yet-Another-Bench-Script (YABS) and its offspring.

Each cell is a run of ``fio --rw=randrw --rwmixread=50 --iodepth=64 --numjobs=2`` of half a minute.
The script divides fio's KiB/s by 1000 and calls that MB/s; the IOPS beside it tell.
Source: masonr/yet-another-bench-script, disk_test and format_speed.
"""

from __future__ import annotations

import re
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Measurement, Op, OpResult
from nvmesim.capture.readers.reports.common import (
    LARGEST,
    binary_size,
    cut_line,
    number_of,
    rate_result,
    results,
)
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "yabs"
_HEADER: Final = re.compile(
    r"^Block Size \|((?:[ \t]*[0-9]{1,4}[kmg][ \t]+\(IOPS\)(?:[ \t]*\|)?)+)[ \t]*$", re.M
)
_COLUMN: Final = re.compile(r"([0-9]{1,4}[kmg])\s+\(IOPS\)")
_ROW: Final = re.compile(r"^(Read|Write)\s*\|(.*)$")
_CELL: Final = re.compile(r"([0-9.]{1,12})\s*([KMGT])B/s\s*\(\s*([0-9.]{1,12}[kmg]?)\s*\)")
_PARTITION: Final = re.compile(r"\(Partition (\S+?)\)")
_POWER: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NUMBER: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([kmg]?)")
_SCALE: Final = {"k": 1e3, "m": 1e6, "g": 1e9}
_KIB_RATE: Final = 1.024
DEPTH: Final = 64
JOBS: Final = 2


def sniff(head: Head) -> bool:
    """True if *head* has the table's header."""
    return bool(_HEADER.search(head.text))


def read(source: Source) -> Capture:
    """Read every column with its reads and writes; one that lacks either is left out and said."""
    text = source.text(LARGEST)
    kib_rate = _kib_rate(text)
    warnings = ["printed IOPS are cut to three digits: rates come from the bandwidth"]
    target = _PARTITION.search(text)
    name = f" {target[1]}" if target else ""
    found: list[Measurement] = []
    sizes: list[str] = []
    cells: dict[str, dict[Op, OpResult]] = {}
    for number, line in enumerate([*text.split("\n"), "Block Size |"], start=1):
        row = _ROW.match(line)
        if line.startswith("Block Size |"):
            found += _finished(cells, name, warnings)
            sizes, cells = _COLUMN.findall(line), {}
        elif row:
            op: Op = "read" if row[1] == "Read" else "write"
            for size, cell in zip(sizes, row[2].split("|"), strict=False):
                result = _result(source, number, size, cell, kib_rate)
                if result is not None:
                    cells.setdefault(size, {})[op] = result
    warnings += cut_line(source)
    return results(source, FORMAT, found, warnings)


def _kib_rate(text: str) -> float:
    """Return what the printed rates have to be multiplied by: all are of one script.

    Printed IOPS have two or three digits, so the whole table decides and not each cell.
    """
    misses = {1.0: 0.0, _KIB_RATE: 0.0}
    sizes: list[str] = []
    for line in text.split("\n"):
        row = _ROW.match(line)
        if line.startswith("Block Size |"):
            sizes = _COLUMN.findall(line)
        for size, cell in zip(sizes, row[2].split("|"), strict=False) if row else ():
            match, n_bytes = _CELL.search(cell), binary_size(size)
            printed = match and _NUMBER.fullmatch(match[1]) and _NUMBER.fullmatch(match[3])
            if match is None or not n_bytes or not printed or not float(printed[1]):
                continue
            iops = float(match[1]) * _POWER[match[2]] / n_bytes
            asked = float(printed[1]) * _SCALE.get(printed[2], 1.0)
            for factor in misses:
                misses[factor] += abs(iops * factor / asked - 1)
    return min(misses, key=lambda factor: misses[factor])


def _result(source: Source, line: int, size: str, cell: str, kib_rate: float) -> OpResult | None:
    match, n_bytes = _CELL.search(cell), binary_size(size)
    if match is None or not n_bytes:
        return None
    rate = number_of(source, f"line {line}: {size}", match[1]) * _POWER[match[2]]
    iops = number_of(source, f"line {line}: {size} IOPS", match[3])
    if not rate:
        return None
    rate *= kib_rate
    if iops >= 20 and not 0.9 < rate / n_bytes / iops < 1.15:
        raise source.error(
            f"line {line}: {size}: {shown(match[0])!r} makes {rate / n_bytes:.4g} IOPS",
            "give the table as it was printed",
        )
    return rate_result(rate / n_bytes, rate)


def _finished(
    cells: dict[str, dict[Op, OpResult]], name: str, warnings: list[str]
) -> list[Measurement]:
    found = []
    for size, ops in cells.items():
        if set(ops) != {"read", "write"}:
            warnings.append(f"{size}: half of it is missing (left out)")
            continue
        conditions = Conditions(
            read_fraction=0.5,
            access="random",
            block_size=binary_size(size),
            jobs=JOBS,
            iodepth=DEPTH,
            engine="libaio",
            direct=True,
        )
        found.append(Measurement(f"{size}{name}", conditions, ops, source=FORMAT))
    return found
