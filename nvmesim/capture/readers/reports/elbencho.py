"""Reader of elbencho's results, the table it prints and its CSV: a measurement a phase.

Figures are those of the last thread that ended ("LAST DONE"), so they are of the whole phase.
Source: breuner/elbencho, Statistics.cpp (printPhaseResultsTableHeader and what follows it).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, OpResult
from nvmesim.capture.fields import checked
from nvmesim.capture.readers.reports.common import (
    LARGEST,
    MIB,
    nearest_size,
    number_of,
    one_load,
    rate_result,
    read_report,
    results,
    seconds_of,
)
from nvmesim.capture.text import Head, Source

FORMAT: Final = "elbencho"
_TABLE: Final = re.compile(r"^OPERATION\s+RESULT TYPE\s+FIRST DONE\s+LAST DONE\s*$", re.M)
_PHASE: Final = re.compile(r"^(WRITE|READ|RWMIX\d{0,3}|RANDREAD|RANDWRITE)\s+Elapsed (ms|time)\s*:")
_FIGURE: Final = re.compile(
    r"^(?:[A-Z0-9]+)?\s*(Elapsed ms|Elapsed time|IOPS|Throughput MiB/s|Total MiB)\s*:\s*"
    r"([0-9.hms]{1,18})\s+([0-9.hms]{1,18})\s*$"
)
_ELAPSED: Final = re.compile(
    r"(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,12})ms)?"
)
_IO_LATENCY: Final = re.compile(
    r"^[ \t]*IO latency\s*:\s*\[ min=([0-9.]{1,12})(us|ms|s) avg=([0-9.]{1,12})(us|ms|s) "
    r"max=([0-9.]{1,12})(us|ms|s)"
)
_WORKING: Final = re.compile(r"^Working on (\S+) with (\d{1,7}) threads")
_HEADER: Final = ("operation", "IOPS [last]", "MiB/s [last]")


def sniff(head: Head) -> bool:
    """True if *head* has the header of elbencho's table or of its CSV."""
    return bool(_TABLE.search(head.text)) or any(
        all(name in line for name in _HEADER) for line in head.lines[:5]
    )


def read(source: Source) -> Capture:
    """Read every phase of reads or writes; CaptureError if there is none."""
    text = source.text(LARGEST)
    if _TABLE.search(text):
        return read_report(source, FORMAT, _from_table)
    warnings: list[str] = []
    return results(source, FORMAT, list(_from_csv(source, text, warnings)), warnings)


def _from_table(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    path, threads, operation = "", None, ""
    figures: dict[str, str] = {}
    times: re.Match[str] | None = None
    for number, line in enumerate([*text.split("\n"), "---"], start=1):
        working, phase, figure = _WORKING.match(line), _PHASE.match(line), _FIGURE.match(line)
        if phase or line.startswith(("---", "OPERATION")):
            if operation:
                where = f"{operation} that ends at line {number}"
                found = _of_phase(source, where, figures, times)
                if found is None:
                    warnings.append(f"{where} is cut (left out)")
                else:
                    size, seconds, result = found
                    yield one_load(
                        " ".join(filter(None, (operation.lower(), path))),
                        result,
                        Conditions(block_size=size, jobs=threads, duration_s=seconds),
                        read_fraction=_fraction(operation),
                        source=FORMAT,
                    )
            operation, figures, times = phase[1] if phase else "", {}, None
        if working:
            path, threads = working[1], int(working[2])
        if operation and figure and figure[1] == "Elapsed time":
            figures["Elapsed ms"] = _milliseconds(figure[3])
        elif operation and figure:
            figures[figure[1]] = figure[3]
        times = _IO_LATENCY.match(line) or times if operation else None


def _milliseconds(text: str) -> str:
    """Return a time as elbencho prints it for people in ms; what is none as it stands.

    >>> _milliseconds("1m10.5s"), _milliseconds("823ms"), _milliseconds("x")
    ('70500', '823', 'x')
    """
    match = _ELAPSED.fullmatch(text)
    if match is None or not text:
        return text
    hours, minutes, seconds, ms = (float(part or 0) for part in match.groups())
    return f"{1000 * (3600 * hours + 60 * minutes + seconds) + ms:.15g}"


def _of_phase(
    source: Source, where: str, figures: Mapping[str, str], times: re.Match[str] | None
) -> tuple[int | None, float, OpResult] | None:
    """Return block size, seconds and result of a phase; None if its table is cut."""
    values = {key: number_of(source, f"{where}: {key}", text) for key, text in figures.items()}
    seconds = values.get("Elapsed ms", 0.0) / 1e3
    if not seconds or not {"IOPS", "Throughput MiB/s", "Total MiB"} <= set(values):
        return None
    printed = values["Throughput MiB/s"]
    # Totals are exact; the rate beside them is printed without decimals.
    rate = values["Total MiB"] * MIB / seconds
    if abs(rate / MIB - printed) > 0.02 * printed + 1:
        raise source.error(
            f"{where}: {values['Total MiB']:g} MiB in {seconds:g} s make {rate / MIB:.5g} MiB/s, "
            f"{printed:g} are printed",
            "give the table as elbencho wrote it",
        )
    size = nearest_size(values["IOPS"], printed * MIB, MIB, 1.0)
    iops = rate / size if size else values["IOPS"]
    lat = None
    if times:
        low, mean, high = (seconds_of(source, where, times[k], times[k + 1]) for k in (1, 3, 5))
        lat = Latency(round(iops * seconds), mean, low, high)
    return size, seconds, rate_result(iops, rate, seconds=seconds, lat=lat)


def _fraction(operation: str) -> float | None:
    """Fraction of reads that the name of a phase says; RWMIX70 reads 70 %."""
    if operation.startswith("RWMIX"):
        share = operation.removeprefix("RWMIX")
        return int(share) / 100 if share.isdecimal() and int(share) <= 100 else None
    return 1.0 if operation.endswith("READ") else 0.0


def _from_csv(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    lines = text.split("\n")
    last = lines.pop()
    if last.strip():
        warnings.append("its last line has no end and is left out")
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error:
            cells = []
        if names[-1:] == ["command"] and len(cells) != len(names):
            # elbencho puts the command last, with quotes and commas of its own.
            cells = line.split(",", len(names) - 1)
        if set(_HEADER) <= set(cells):
            names = cells
            continue
        if not names or not cells:
            continue
        if len(cells) != len(names):
            warnings.append(f"line {number} has {len(cells)} of {len(names)} cells (left out)")
            continue
        row = dict(zip(names, cells, strict=True))
        if row["operation"] in ("READ", "WRITE") or row["operation"].startswith("RWMIX"):
            yield _from_row(source, f"line {number}", row)


def _from_row(source: Source, where: str, row: Mapping[str, str]) -> Measurement:
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
    count = round(iops * seconds) if seconds else 0
    lat = None
    if mean:
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
    result = rate_result(iops, rate, seconds=seconds, lat=lat)
    fraction = _fraction(row["operation"])
    return one_load(label, result, conditions, read_fraction=fraction, source=FORMAT)
