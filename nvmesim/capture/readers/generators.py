"""Results of the load generators elbencho, vdbench and ezFIO: a measurement a phase or run.

Of elbencho, the table it prints and its CSV; figures are those of the last thread that ended ("LAST
DONE"), so they are of the whole phase. Of vdbench, flatfile.html and summary.html, of raw and of
file system workloads: the row of averages of each run counts, which leaves warm-up out; times are
ms, MB are 2**20 bytes; whether ``threads`` are those of a drive or of all is not said, so no depth
is taken from them.
Of ezFIO, its CSV of tests and what it prints: the name of a test says its load; ``MB/s`` are 2**20
bytes, a mix's latency is the longer one of reads and writes, so that none is taken.
Source: earlephilhower/ezfio, ezfio.py (DefineTests, RunTest); breuner/elbencho, Statistics.cpp
(printPhaseResultsTableHeader and what follows it); the vdbench 5.04.07 manual, "Flatfile selective
parsing" and "Summary report".
"""

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
    nearest_size,
    number_of,
    one_load,
    rate_result,
    seconds_of,
)
from nvmesim.capture.text import Source, shown

# elbencho -----------------------------------------------------------------------------------------

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
_HEADER: Final = frozenset({"operation", "IOPS [last]", "MiB/s [last]"})


def _elbencho(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    form = _from_table if _TABLE.search(text) else _from_csv
    return form(source, text, warnings)


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
                        source="elbencho",
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
    return one_load(label, result, conditions, read_fraction=fraction, source="elbencho")


# vdbench ------------------------------------------------------------------------------------------

_FLAT: Final = re.compile(r"^[ \t]*tod\s+(?:timestamp\s+)?Run\s+Interval\s", re.M)
_BEGINS: Final = re.compile(r"Starting RD=(\S+?)[;,\s]")
_INTERVAL: Final = re.compile(r"^(?:\w{3} \d\d, \d{4}\s+)?\s*[Ii]nterval\s+(.*)$")
_TAGS: Final = re.compile(r"<[^>\n]{0,300}>")
_AVERAGE: Final = re.compile(r"avg_(\d{1,9})-(\d{1,9})")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d{1,3})?)")
_RAW: Final = ("i/o rate", "MB/sec 1024**2", "bytes i/o", "read pct", "resp time")
RESIDUE: Final = 1e-9
"""Part of all requests that is no more than the rounding of a difference."""
Row = dict[str, str]


def _form(text: str) -> str:
    return "flatfile" if _FLAT.search(_TAGS.sub("", text)) else "summary"


def _vdbench(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    form = _flat if _form(source.head.text) == "flatfile" else _summary
    return form(source, _TAGS.sub("", text), warnings)


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
            _note_cut(run, times, warnings)
            run, times = row["Run"], []
        if _AVERAGE.fullmatch(row["Interval"]):
            yield _averages(source, number, run, row, _span(times, row["Interval"]))
            times = []
        else:
            times.append(_tod(row["tod"]))
    _note_cut(run, times, warnings)


def _summary(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    lines = text.split("\n")
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True), start=1):
        begins, header = _BEGINS.search(line), _INTERVAL.match(line.strip())
        words = line.split()
        if begins:
            _note_cut(run, times, warnings)
            run, columns, times = begins[1], [], []
        elif header:  # on two lines
            columns = [f"{a} {b}" for a, b in zip(header[1].split(), after.split(), strict=False)]
        elif run and columns and len(words) > 2 and _CLOCK.fullmatch(words[0]):
            if _AVERAGE.fullmatch(words[1]) is None:
                times += [_tod(words[0])] if words[1].isdecimal() else []
                continue
            row = dict(zip(columns, words[2:], strict=False))
            if len(words) - 2 < len(_RAW) or set(_RAW) - set(row):
                warnings.append(
                    f"{shown(run, 60)}: its averages are cut or of another table (left out)"
                )
            else:
                yield _averages(source, number, run, row, _span(times, words[1]))
            times = []
    _note_cut(run, times, warnings)


def _note_cut(run: str, times: list[float], warnings: list[str]) -> None:
    if times:
        warnings.append(f"{shown(run, 60)}: ends before its averages (left out)")


def _averages(source: Source, line: int, run: str, row: Row, seconds: float | None) -> Measurement:
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
    # Its last bytes are cut: 4093 or 4094 means 4096.
    size = number("bytes/io", "xfersize", "bytes i/o", most=1 << 40) or 0.0
    whole = 512 * round(size / 512)
    return Measurement(
        label=shown(run, 60),
        conditions=Conditions(
            read_fraction=reads / both if both else None,
            access=None if seek is None else access_of(seek / 100),
            block_size=whole if whole and abs(size - whole) <= max(4.0, 1e-3 * whole) else None,
            duration_s=seconds,
            depth_mean=number("queue_depth", "queue depth"),
        ),
        ops=ops,
        source="vdbench",
    )


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


# ezFIO --------------------------------------------------------------------------------------------

_EZFIO_CSV: Final = re.compile(r"^(Seq|Rand)" + 8 * r",([0-9.]{1,18})" + "(?:,|$)")
_EZFIO_ROW: Final = re.compile(
    r"^(S[^\n,]{9,80}?)(?:, (BS|Threads)=(\d{1,7}))?[ \t]+[0-9,.]{1,18}[ \t]+([0-9,]{1,18})[ \t]+"
    r"([0-9.]{1,18})[ \t]*$"
)


def _ezfio(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    for number, line in enumerate(text.split("\n"), start=1):
        if cells := _EZFIO_CSV.match(line):
            kind, *load, rate, _, reading, writing = cells.groups()
        elif row := _EZFIO_ROW.match(line):
            name, by, count, rate, reading = row.groups("256")  # the test of stability has these
            kind, writing = "Seq" if "Sequential" in name else "Rand", reading
            writes = "30" if "30%" in name else "100" if "Write" in name else "0"
            fixed = {"Seq0": ["1", "256"], "Seq100": ["1", "1"]}.get(kind + writes, ["16", "16"])
            load = [writes, *([count, *fixed] if by == "BS" else ["4096", count, "1"])]
        else:
            continue
        numbers = (number_of(source, f"line {number}", c, 1 << 30) for c in (*load, rate))
        writes_pct, size, jobs, depth, iops = numbers
        if min(size, jobs, depth, iops) < 1 or writes_pct > 100:
            warnings.append(f"line {number}: a test that did not run (left out)")
            continue
        ops: dict[Op, OpResult] = {}
        shares = 1 - writes_pct / 100, writes_pct / 100
        for op, share, us in zip(OPS, shares, (reading, writing), strict=True):
            mean = seconds_of(source, f"line {number}", us, "us") if share == 1 else 0.0
            lat = Latency(0, mean) if mean else None
            ops |= {op: rate_result(share * iops, share * iops * size, lat=lat)} if share else {}
        load_of = Conditions(
            shares[0], access_of(float(kind == "Rand")), int(size), int(jobs), int(depth), 1
        )
        yield Measurement(line.split("  ")[0], load_of, ops, source="ezFIO", place=f"line {number}")


REPORTS: Final = {
    "ezfio": Report("ezfio", (("^ezFio test param",), ("Depth/Thread,IOPS,Bandw",)), _ezfio),
    "vdbench": Report(
        "vdbench", ((_FLAT.pattern,), ("Starting RD=", "nterval")), _vdbench, version=_form
    ),
    "elbencho": Report(
        "elbencho",
        (
            (_TABLE.pattern,),
            (r"\A(?:[^\n]*\n){0,4}[^\n]*operation[^\n]*IOPS \[last\][^\n]*MiB/s \[last\]",),
        ),
        _elbencho,
    ),
}
