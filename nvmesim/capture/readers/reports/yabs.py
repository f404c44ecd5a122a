"""Reader of the fio table of Yet-Another-Bench-Script (YABS) and its offspring.

Each cell is a run of ``fio --rw=randrw --rwmixread=50 --iodepth=64 --numjobs=2`` of half a minute.
The script divides fio's KiB/s by 1000 and calls that MB/s; the IOPS beside it tell.
Source: masonr/yet-another-bench-script, disk_test and format_speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Measurement, Op, OpResult
from nvmesim.capture.readers.reports.common import (
    binary_size,
    number_of,
    rate_result,
    read_report,
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
_KIB_RATE: Final = 1.024
DEPTH: Final = 64
JOBS: Final = 2


def sniff(head: Head) -> bool:
    """True if *head* has the table's header."""
    return bool(_HEADER.search(head.text))


def read(source: Source) -> Capture:
    """Read every column with its reads and writes; one that lacks either is left out and said."""
    warning = "printed IOPS are cut to three digits: rates come from the bandwidth"
    return read_report(source, FORMAT, _measurements, warning)


@dataclass(frozen=True)
class _Cell:
    """A printed rate and the IOPS beside it."""

    line: int
    op: Op
    size: str
    rate: float
    iops: float
    text: str

    @property
    def printed_iops(self) -> float:
        """IOPS that the rate makes."""
        return self.rate / (binary_size(self.size) or 1)


def _tables(source: Source, text: str) -> Iterator[list[_Cell]]:
    """The cells of each table."""
    sizes: list[str] = []
    cells: list[_Cell] = []
    for number, line in enumerate([*text.split("\n"), "Block Size |"], start=1):
        row = _ROW.match(line)
        if line.startswith("Block Size |"):
            yield cells
            sizes, cells = _COLUMN.findall(line), []
        for size, cell in zip(sizes, row[2].split("|"), strict=False) if row else ():
            match = _CELL.search(cell)
            if row is None or match is None or not binary_size(size):
                continue
            rate = number_of(source, f"line {number}: {size}", match[1]) * _POWER[match[2]]
            iops = number_of(source, f"line {number}: {size} IOPS", match[3])
            if rate:
                op: Op = "read" if row[1] == "Read" else "write"
                cells.append(_Cell(number, op, size, rate, iops, match[0]))


def _measurements(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    tables = list(_tables(source, text))
    # Printed IOPS have two or three digits, so all tables, of one script, decide on its unit.
    known = [cell for table in tables for cell in table if cell.iops]
    factor = min(
        (1.0, _KIB_RATE),
        key=lambda f: sum(abs(cell.printed_iops * f / cell.iops - 1) for cell in known),
    )
    target = _PARTITION.search(text)
    for table in tables:
        for size in dict.fromkeys(cell.size for cell in table):
            ops = {c.op: _result(source, c, factor) for c in table if c.size == size}
            if len(ops) < 2:
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
            label = f"{size} {target[1]}" if target else size
            yield Measurement(label, conditions, ops, source=FORMAT)


def _result(source: Source, cell: _Cell, factor: float) -> OpResult:
    rate = cell.rate * factor
    iops = rate / (binary_size(cell.size) or 1)
    if cell.iops >= 20 and not 0.9 < iops / cell.iops < 1.15:
        raise source.error(
            f"line {cell.line}: {cell.size}: {shown(cell.text)!r} makes {iops:.4g} IOPS",
            "give the table as it was printed",
        )
    return rate_result(iops, rate)
