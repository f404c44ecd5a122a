"""Printed results of CrystalDiskMark, YABS, ioping and SPDK, whose numbers stand in patterns.

CrystalDiskMark 3 to 8 and KDiskMark copy the best of some runs a row as text; ``MB/s`` are 10**6
bytes/s, but KDiskMark 2 divides fio's KiB by 1000: the IOPS beside it tell. Each cell of YABS' fio
table is a run of ``fio --rw=randrw --rwmixread=50 --iodepth=64 --numjobs=2`` of half a minute; the
script divides KiB/s by 1000 and calls that MB/s. ioping's IOPS are requests over the time that they
took, as if there were no pauses. SPDK's ``perf`` and ``bdevperf`` print rates, latency summary and
histogram, in us.
Source: hiyohiyo/CrystalDiskMark, JonMagon/KDiskMark; masonr/yet-another-bench-script, disk_test and
format_speed; koct9i/ioping, ioping.c, dump_statistics; spdk, app/spdk_nvme_perf/perf.c
(print_performance, print_latency_statistics) and examples/bdev/bdevperf/bdevperf.c.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nvmesim.capture.capture import Access, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.caveats import LITTLE
from nvmesim.capture.checked_numbers import (
    MIB,
    Report,
    binary_size,
    nearest_size,
    number_of,
    one_load,
    rate_result,
    seconds_of,
    tell_apart,
)
from nvmesim.capture.text import Source, shown

_KIB_RATE: Final = 1.024

# CrystalDiskMark ---------------------------------------------------------------------------------

_CDM_TITLE: Final = re.compile(r"^[ \t]*(CrystalDiskMark|KDiskMark)\s+\(?([0-9][\w.]{0,20})", re.M)
_CDM_SECTION: Final = re.compile(r"^[ \t]*\[(Read|Write|Mix)\]")
_CDM_ROW: Final = re.compile(
    r"^[ \t]*(?P<access>SEQ|RND|Sequential|Random)\s*(?P<op>Read|Write)?\s*"
    r"(?P<size>[0-9]{1,5}\s*[KM]i?B)?\s*(?:\((?:(?:Q\s*=\s*(?P<q>\d{1,5}),\s*)?"
    r"T\s*=\s*(?P<t>\d{1,4})|QD\s*=\s*(?P<qd>\d{1,5}))\s*\))?\s*:\s*(?P<rate>[0-9.]{1,15})\s*MB/s"
    r"(?:\s*\[\s*(?P<iops>[0-9.]{1,15}) IOPS\])?(?:\s*<\s*(?P<lat>[0-9.]{1,15}) us>)?\s*$"
)
_CDM_SCRIPT: Final = re.compile(
    r"^[ \t]*(?P<access>Sequential|[0-9]{1,5}\s*[KM]B)(?: Q(?P<q>\d{1,5})T(?P<t>\d{1,4}))? "
    r"(?P<op>Read|Write): *(?P<rate>[0-9.]{1,15}) *MB/s *(?:\[|IOPS=) *(?P<iops>[0-9.]{1,15})\b.*$",
    re.M,
)
"""A row of scripts that measure with fio what CrystalDiskMark 6 does."""
_CDM_MIX: Final = re.compile(r"Read\s*(\d{1,3})\s*%")
_SEQUENTIAL_BYTES: Final = 1 << 20
"""Sequential rows of versions 3 to 5 name no size: it is 1 MiB, or 128 KiB with a queue depth."""
_QUEUED_SEQUENTIAL_BYTES: Final = 128 << 10


def _crystaldiskmark(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    section, mix = "", None
    title = _CDM_TITLE.search(text)
    engine = "iocp" if title and title[1] == "CrystalDiskMark" else "libaio"
    text = text if title else _CDM_SCRIPT.sub(_as_cdm, text)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        start = _CDM_SECTION.match(line)
        if start:
            section, share = start[1], _CDM_MIX.search(line)
            mix = int(share[1]) / 100 if share and int(share[1]) <= 100 else None
        row = _CDM_ROW.match(line)
        if row is None or (number == len(lines) and not row["iops"]):
            continue
        measurement = _cdm_row(source, number, row, engine, section, mix)
        if measurement is None:
            warnings.append(f"line {number}: a row of zero did not run (left out)")
            continue
        if row["lat"] and all(r.lat is None for r in measurement.ops.values()):
            warnings.append(f"line {number}: its latency contradicts its IOPS (left out)")
        yield measurement


def _as_cdm(row: re.Match[str]) -> str:
    """Return a row of a script as CrystalDiskMark prints it; the rate tells a size that is not."""
    access, size = "Random", row["access"]
    rate, iops = float(row["rate"].strip(".") or 0), float(row["iops"].strip(".") or 0)
    if size.startswith("Sequential") and rate and iops:
        access, size = "Sequential", f"{2 ** round(math.log2(1e6 * rate / iops / 1024))}KB"
    queue = f"(Q={row['q'] or 1},T={row['t'] or 1})"
    return f"{access} {row['op']} {size} {queue} : {row['rate']} MB/s [{row['iops']} IOPS]"


def _cdm_row(
    source: Source, line: int, row: re.Match[str], engine: str, section: str, mix: float | None
) -> Measurement | None:
    where = f"line {line}"
    rate = number_of(source, f"{where}: MB/s", row["rate"], 1e7) * 1e6
    depth = int(row["q"] or row["qd"] or 1)
    is_queued = row["q"] and depth > 1
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
    if row["lat"]:
        mean_s = number_of(source, f"{where}: us", row["lat"], 1e12) * 1e-6
        # either may be of another of its runs, or of the page cache
        is_of_rate = 0.5 < iops * mean_s / (depth * int(row["t"] or 1)) < 1 + LITTLE
        lat = Latency(0, mean_s=mean_s) if is_of_rate else None
    op = row["op"] or section
    access: Access = "random" if row["access"] in ("RND", "Random") else "sequential"
    return one_load(
        f"{access} {op.lower()}",
        rate_result(iops, rate, lat=lat),
        Conditions(
            access=access,
            block_size=size,
            jobs=int(row["t"] or 1),
            iodepth=depth,
            targets=1,
            engine=engine,
        ),
        read_fraction={"Read": 1.0, "Write": 0.0}.get(op, mix),
        source="crystaldiskmark",
    )


# YABS ---------------------------------------------------------------------------------------------

_YABS_HEADER: Final = re.compile(
    r"^Block Size \|((?:[ \t]*[0-9]{1,4}[kmg][ \t]+\(IOPS\)(?:[ \t]*\|)?)+)[ \t]*$", re.M
)
_YABS_COLUMN: Final = re.compile(r"([0-9]{1,4}[kmg])\s+\(IOPS\)")
_YABS_ROW: Final = re.compile(r"^(Read|Write)\s*\|(.*)$")
_YABS_CELL: Final = re.compile(r"([0-9.]{1,12})\s*([KMGT])B/s\s*\(\s*([0-9.]{1,12}[kmg]?)\s*\)")
_PARTITION: Final = re.compile(r"\(Partition (\S+?)\)")
_POWER: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _yabs(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    # (line of the table's header, size) -> operation -> rate, printed IOPS, where
    cells: dict[tuple[int, str], dict[Op, tuple[float, float, str]]] = {}
    sizes: list[str] = []
    header = 0
    for number, line in enumerate(text.split("\n"), start=1):
        row = _YABS_ROW.match(line)
        if line.startswith("Block Size |"):
            sizes, header = _YABS_COLUMN.findall(line), number
        for size, cell in zip(sizes, row[2].split("|"), strict=False) if row else ():
            match = _YABS_CELL.search(cell)
            if row is None or match is None or not binary_size(size):
                continue
            where = f"line {number}: {size}"
            rate = number_of(source, where, match[1]) * _POWER[match[2]]
            iops = number_of(source, f"{where} IOPS", match[3])
            if rate:
                op: Op = "read" if row[1] == "Read" else "write"
                found = rate, iops, f"{where}: {shown(match[0])!r}"
                cells.setdefault((header, size), {})[op] = found
    # Printed IOPS have two or three digits, so all tables, of one script, decide on its unit.
    known = [
        (rate / (binary_size(size) or 1), iops)
        for (_, size), both in cells.items() for rate, iops, _ in both.values() if iops
    ]  # fmt: skip
    factor = min((1.0, _KIB_RATE), key=lambda f: sum(abs(made * f / n - 1) for made, n in known))
    target = _PARTITION.search(text)
    for (_, size), both in cells.items():
        if len(both) < 2:
            warnings.append(f"{size}: half of it is missing (left out)")
            continue
        conditions = Conditions(
            read_fraction=0.5,
            access="random",
            block_size=binary_size(size),
            jobs=2,
            iodepth=64,
            engine="libaio",
            direct=True,
        )
        ops = {op: _yabs_result(source, size, factor, *cell) for op, cell in both.items()}
        yield Measurement(f"{size} {target[1]}" if target else size, conditions, ops, source="yabs")


def _yabs_result(
    source: Source, size: str, factor: float, rate: float, printed: float, where: str
) -> OpResult:
    iops = rate * factor / (binary_size(size) or 1)
    if printed >= 20 and not 0.9 < iops / printed < 1.15:
        raise source.error(f"{where} makes {iops:.4g} IOPS", "give the table as it was printed")
    return rate_result(iops, rate * factor)


# ioping -------------------------------------------------------------------------------------------

_N: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_IOPING_TITLE: Final = re.compile(r"^--- (\S.*?) ioping statistics ---\s*$", re.M)
_IOPING_DONE: Final = re.compile(
    rf"^({_N})(?: ([kMG]))? requests completed in ({_N}) (ns|us|ms|s|min)"
    rf"(?:, ({_N} [KMGT]?i?B) (read|written))?, ({_N})(?: ([kMG]))? iops, ({_N}) ([KMGT]?i?)B/s",
    re.M,
)
_IOPING_TIMES: Final = re.compile(
    rf"^min/avg/max/mdev = ({_N}) (ns|us|ms|s) / ({_N}) (ns|us|ms|s) / ({_N}) (ns|us|ms|s) / "
    rf"({_N}) (ns|us|ms|s)\s*$",
    re.M,
)
_IOPING_REQUEST: Final = re.compile(rf"^({_N} [KMGT]?i?B) (<<<|>>>|from|to) ", re.M)
_SCALE: Final = {None: 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def _ioping(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    # what stands before the first title, then each title and what is behind it
    before, *rest = _IOPING_TITLE.split(text)
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        measurement = _ioping_run(source, title, before, body)
        before = body
        if measurement is not None:
            yield measurement
        else:
            warnings.append(
                f"{shown(title, 40)}: its statistics are cut or of ioping before 0.8 (left out)"
            )


def _ioping_run(source: Source, title: str, requests: str, body: str) -> Measurement | None:
    done, times = _IOPING_DONE.search(body), _IOPING_TIMES.search(body)
    if done is None or times is None:
        return None
    name = shown(title.split(" (")[0], 60)
    where = f"{name}: statistics"
    count = round(number_of(source, where, done[1]) * _SCALE[done[2]])
    seconds = seconds_of(source, where, done[3], done[4])
    low, mean, high, deviation = (
        seconds_of(source, where, times[k], times[k + 1]) for k in (1, 3, 5, 7)
    )
    request = _IOPING_REQUEST.search(requests)
    power = " KMGT".find(done[10][0]) if done[10] else 0
    rate = number_of(source, where, done[9]) * 1024.0**power
    iops = number_of(source, where, done[7]) * _SCALE[done[8]]
    size = binary_size(request[1]) if request else nearest_size(iops, rate, rate / 100, iops / 100)
    if not count or not seconds or not iops:
        return None
    # by the summary, else by the arrow of the requests
    does = done[6] or (request[2] if request else "")
    # Before 1.0 the time is that of the pauses, too, and no bytes are printed.
    has_pauses = done[5] is None
    # The count over the time is more exact than what is printed, unless it was cut to 1.2 k.
    if not (has_pauses or done[2]):
        iops = count / seconds
    result = OpResult(
        count=count,
        bytes=count * size if size else round(rate * count / iops),
        iops=iops,
        bytes_per_s=iops * size if size else rate,
        lat=Latency(count, mean, low, high, deviation),
    )
    conditions = Conditions(
        block_size=size, jobs=1, iodepth=1, targets=1, duration_s=None if has_pauses else seconds
    )
    reads = {"read": 1.0, "<<<": 1.0, "from": 1.0, "written": 0.0, ">>>": 0.0, "to": 0.0}
    return one_load(name, result, conditions, read_fraction=reads.get(does), source="ioping")


# SPDK ---------------------------------------------------------------------------------------------

_SPDK_HEADER: Final = re.compile(r"^[ \t]*Device Information\s*:(.*)$", re.M)
_SUMMARY: Final = re.compile(r"^Summary latency data for (.+?)\s+from core\s+\d+:\s*$", re.M)
_PLAIN: Final = re.compile(r": +[0-9.]{1,18} IOPS +[0-9.]{1,18} Mi?B/s\s*$", re.M)
_HISTOGRAM: Final = re.compile(r"^Latency histogram for (.+?)\s+from core\s+\d+:\s*$", re.M)
_JOB: Final = re.compile(
    r"^[ \t]*Job: (\S+)(?: \(Core Mask 0x[0-9a-fA-F]+(?:, workload: (\w+))?"
    r"(?:, percentage: (\d{1,3}))?(?:, depth: (\d{1,7}))?(?:, IO size: (\d{1,10}))?\))?\s*"
)
_SPDK_ROW: Final = re.compile(r"^[ \t]*(\S.*?)\s*:\s*((?:[0-9.]{1,18}(?:\s+|$)){4,9})$")
_PERCENTILE: Final = re.compile(r"^[ \t]*([0-9.]{1,10})%\s*:\s*([0-9.]{1,15})us\s*$")
_BIN: Final = re.compile(
    r"^[ \t]*([0-9.]{1,15})\s*-\s*([0-9.]{1,15}):\s*[0-9.]{1,9}%\s*\(\s*(\d{1,15})\)\s*$"
)
_PLAIN_ROW: Final = re.compile(
    r"^[ \t]*(\S.*?)\s*:\s+([0-9.]{1,18}) (IOPS)\s+([0-9.]{1,18}) (MiB/s|MB/s)\s*$"
)
"""Of bdevperf before 21.01, which prints no latencies."""
_CORE: Final = re.compile(r"\s+from core\s+\d+$")
_COMMAND: Final = re.compile(r"perf\b(?=[^\n]*\s-q\s*\d)([^\n]*)")
_OPTION: Final = re.compile(r"(?<!\S)-([qowMt])\s*(\w+)")
_KINDS: Final[Mapping[str, tuple[Access, float | None]]] = {
    **{"read": ("sequential", 1.0), "randread": ("random", 1.0), "write": ("sequential", 0.0)},
    **{"randwrite": ("random", 0.0), "rw": ("sequential", None), "randrw": ("random", None)},
}


@dataclass
class _Device:
    """Lines of one device or job, perhaps by several cores."""

    name: str
    kind: str = ""
    percentage: float | None = None
    depth: int | None = None
    size: int | None = None
    rows: list[dict[str, float]] = field(default_factory=list)
    tables: list[tuple[dict[float, float], list[tuple[float, float, int]]]] = field(
        default_factory=list
    )
    """Percentiles and bins below each of its headings: of a core, a summary or a histogram."""


def _spdk(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    """Each run below its own command; what stands above the first has none."""
    starts = [m.start() for m in _COMMAND.finditer(text)]
    cuts = [0, *(text.rindex("\n", 0, at) + 1 if "\n" in text[:at] else 0 for at in starts[1:])]
    ends = [*cuts[1:], len(text)]
    parts = zip(cuts, ends, strict=True)
    lines = [(text[:a].count("\n"), text[a:b]) for a, b in parts]
    yield from tell_apart([[*_spdk_run(source, *part, warnings)] for part in lines])


def _spdk_run(source: Source, above: int, text: str, warnings: list[str]) -> Iterator[Measurement]:
    """The devices of one run, *above* which so many lines stand."""
    devices: dict[str, _Device] = {}
    columns: list[str] = []
    current = _Device("")
    given = _spdk_command(text)

    def device_of(name: str) -> _Device:
        return devices.setdefault(name, _Device(name, **given))

    for line_number, line in enumerate(text.split("\n"), start=above + 1):
        where = f"line {line_number}"
        header, job = _SPDK_HEADER.match(line), _JOB.match(line)
        begins = job or _SUMMARY.match(line) or _HISTOGRAM.match(line)
        percentile, one_bin = _PERCENTILE.match(line), _BIN.match(line)
        row, plain = _SPDK_ROW.match(line), _PLAIN_ROW.match(line)
        name = _CORE.sub("", (plain or row or [""] * 2)[1])
        cells: dict[str, str] = {}
        if header:
            # versions around 19.10 print the latencies' unit between their columns
            columns = header[1].replace("Latency(us)", "").split()
        elif begins:
            current = device_of(begins[1])
            current.tables.append(({}, []))
            if job:
                current.kind = job[2] or current.kind
                current.percentage = float(job[3]) if job[3] else current.percentage
                current.depth = int(job[4]) if job[4] else current.depth
                current.size = int(job[5]) if job[5] else current.size
        elif percentile and current.tables:
            percent = number_of(source, where, percentile[1], 100)
            us = number_of(source, f"{where}: us", percentile[2], 1e12)
            current.tables[-1][0][percent] = us * 1e-6
        elif one_bin and current.tables:
            low, high = (number_of(source, f"{where}: us", one_bin[k], 1e12) for k in (1, 2))
            bins = current.tables[-1][1]
            if bins and low * 1e-6 < bins[-1][1] * (1 - 1e-9):  # another core's
                current.tables.append(({}, bins := []))
            if high > low:
                bins.append((low * 1e-6, high * 1e-6, int(one_bin[3])))
        elif plain:
            cells = {plain[3]: plain[2], plain[5]: plain[4]}
        elif row and columns and len(row[2].split()) == len(columns):
            cells = dict(zip(columns, row[2].split(), strict=True))
        if cells and name != "Total":
            device_of(name).rows.append(
                {k: number_of(source, f"{where}: {k}", v) for k, v in cells.items()}
            )
    for device in devices.values():
        if device.rows or any(map(any, device.tables)):
            yield _spdk_device(device, warnings)


def _spdk_command(text: str) -> dict[str, Any]:
    command = _COMMAND.search(text)
    options = dict(_OPTION.findall(command[1])) if command else {}
    given: dict[str, Any] = {}
    for key, name in (("q", "depth"), ("o", "size"), ("M", "percentage")):
        if options.get(key, "").isdecimal() and len(options[key]) < 10:
            given[name] = int(options[key])
    if options.get("w") in _KINDS:
        given["kind"] = options["w"]
    return given


def _spdk_device(device: _Device, warnings: list[str]) -> Measurement:
    access, fraction = _KINDS.get(device.kind, (None, None))
    if fraction is None and device.percentage is not None:
        fraction = device.percentage / 100
    iops = sum(row.get("IOPS", 0.0) for row in device.rows)
    # Both names mean 2**20 bytes; perf printed MB/s before 19.
    rate = sum(row.get("MiB/s", row.get("MB/s", 0.0)) for row in device.rows) * MIB
    seconds = max((row.get("runtime(s)", 0.0) for row in device.rows), default=0.0)
    lat = _spdk_latency(device, iops, seconds)
    count = lat.count or None
    known = lat if lat.mean_s is not None or lat.percentiles_s else None
    result = rate_result(iops, rate, seconds=seconds or None, count=count, lat=known)
    rounding = len(device.rows) * 0.005
    size = device.size or nearest_size(iops, rate, rounding * MIB, rounding)
    if not device.rows:
        warnings.append(f"{shown(device.name, 40)}: a latency summary alone: no rate, no load")
    conditions = Conditions(
        access=access,
        block_size=size,
        jobs=len(device.rows) or None,
        iodepth=device.depth,
        targets=1,
        duration_s=seconds or None,
        engine="spdk",
        direct=True,
    )
    return one_load(device.name, result, conditions, read_fraction=fraction, source="SPDK")


def _spdk_latency(device: _Device, iops: float, seconds: float) -> Latency:
    """Return mean and extremes over the cores; percentiles and bins where one core measured."""
    tables = [table for table, _ in device.tables if table]
    histograms = [bins for _, bins in device.tables if bins]
    whole = histograms[0] if len(histograms) == 1 else []
    counted = sum(n for _, _, n in whole)
    means = [(row.get("IOPS", 0.0), row.get("Average", 0.0)) for row in device.rows]
    known = iops and any("Average" in row for row in device.rows)
    mean = sum(n * us for n, us in means) / iops * 1e-6 if known else None
    lows = [row["min"] * 1e-6 for row in device.rows if "min" in row]
    highs = [row["max"] * 1e-6 for row in device.rows if "max" in row]
    return Latency(
        count=counted or round(iops * seconds),
        mean_s=mean,
        min_s=min(lows, default=None),
        max_s=max(highs, default=None),
        percentiles_s=tables[0] if len(tables) == 1 else {},
        bin_s=np.array([(low + high) / 2 for low, high, _ in whole]) if counted else None,
        bin_count=np.array([n for _, _, n in whole], np.int64) if counted else None,
    )


def _cdm_version(text: str) -> str | None:
    title = _CDM_TITLE.search(text)
    return f"{title[1]} {title[2]}" if title else None


REPORTS: Final = {
    "yabs": Report(
        "yabs",
        ((_YABS_HEADER.pattern,),),
        _yabs,
        "printed IOPS are cut to three digits: rates come from the bandwidth",
    ),
    "crystaldiskmark": Report(
        "crystaldiskmark",
        ((_CDM_TITLE.pattern,), (_CDM_SCRIPT.pattern,)),
        _crystaldiskmark,
        "each row is the best of its runs, not their mean",
        _cdm_version,
    ),
    "spdk": Report(
        "spdk",
        (
            (_SUMMARY.pattern,),
            (r"Latency\(us\)", _SPDK_HEADER.pattern),
            ("Running I/O for", _PLAIN.pattern),
        ),
        _spdk,
    ),
    "ioping": Report(
        "ioping",
        ((_IOPING_TITLE.pattern,), (_IOPING_REQUEST.pattern, "request=")),
        _ioping,
        "pauses between requests are left out of the rate: it is that of depth 1",
    ),
}
