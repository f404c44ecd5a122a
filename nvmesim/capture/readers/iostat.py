"""Readers of sysstat: ``iostat -x``, text and JSON, and ``sar -d``: what each device did.

A report that follows iostat's own banner is since boot and is left out when there are others. Rates
are averaged over the reports, which are equally long; waits are weighted by the requests that
waited. The device's name stands first, or last with ``--pretty``; lines may be indented or carry
the name of their host. ``sar`` has reads and writes as one; the mean over its intervals counts,
or the row of averages where it stands alone. Source: sysstat 9 to 12, iostat.c and sar.c; older
column names (await, avgqu-sz, rsec/s) are known.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, CpuUse, Latency, Measurement, Op, OpResult
from nvmesim.capture.caveats import FEWEST
from nvmesim.capture.checked_numbers import LONGEST_MS, S_PER_MS, number, results
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "iostat"
LARGEST: Final = 128 << 20
UNITS: Final = {"rkB/s": 1024.0, "rMB/s": 1024.0**2, "rsec/s": 512.0}
UNIT_KIB: Final = {"B": 1 / 1024, "k": 1.0, "M": 1024.0, "G": 1024.0**2, "T": 1024.0**3}
LETTERS: Final[dict[Op, str]] = {"read": "r", "write": "w"}
_HEADER = re.compile(
    r"^(?![^\n]*(?:\bDEV\b|\"))[^\n]*?(?:\br/s\s[^\n]*\b(?:w/s|rkB/s)\s|\btps\s[^\n]*\bawait\s)[^\n]*%util\b[^\n]*$",
    re.M,
)
_WRAPPED_HEADER = re.compile(r"^(Device:?[ \t][^\n%]*\br/s[ \t][^\n]*)\n([^\n]*%util[ \t]*)$", re.M)
"""Two lines that a mail program made of one."""
_QUOTES = re.compile(r"^(?:> ?)+", re.M)
_HOSTED = re.compile(r"^([\w.-]{1,64}): +(?:Linux \S+ \(|Device:?\s|avg-cpu:)", re.M)
_BANNER = re.compile(r"^Linux \S+ \(\S*\)\s")
_CPUS = re.compile(r"\((\d{1,6}) CPU\)")
_DATE = re.compile(r"\d{1,4}[/.\-]\d{1,2}[/.\-]\d{1,4}[ T]\d{1,2}:\d\d:\d\d(?: [AP]M)?")
_TIME_ONLY = re.compile(r"Time: (\d{1,2}:\d\d:\d\d(?: [AP]M)?)\s*$")
"""Time that sysstat 9 prints with -t; the day is not in it."""
_DATES: Final = (
    "%m/%d/%y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p", "%m/%d/%y %I:%M:%S %p", "%Y-%m-%dT%H:%M:%S", "%d/%m/%y %H:%M:%S",
    "%I:%M:%S %p", "%H:%M:%S",
)  # fmt: skip
_COMMA = re.compile(r"(:\s*)(\d+),(\d+)(?=\s*[,}])")

Values = dict[str, float]


@dataclass
class DeviceReport:
    """One report: the CPU line and the device table."""

    when: datetime | None = None
    cpu: Values = field(default_factory=dict)
    devices: dict[str, Values] = field(default_factory=dict)
    since_boot: bool = False
    """True if it is the first after iostat began."""


@dataclass
class _Host:
    """The reports of one host, and where reading them stands."""

    name: str = ""
    cpus: int | None = None
    reports: list[DeviceReport] = field(default_factory=list)
    begins: bool = False
    """True if iostat's banner was the last of it."""
    when: datetime | None = None
    cpu: Values = field(default_factory=dict)
    header: list[str] = field(default_factory=list)
    """Columns of the table that is being read."""
    decimals: int = 0
    """Of the last figure of the last device."""
    wrapped: list[str] = field(default_factory=list)
    """The start of a row that goes on in the next line."""
    has_prose: bool = False
    """True if text that is not iostat's stands behind the last table."""
    skipped: int = 0

    def line(self, text: str) -> None:
        """Take the next line."""
        words, plain = text.split(), text.strip()
        date = _DATE.match(plain) or _TIME_ONLY.match(plain)
        if self.wrapped and (not words or _is_header(words)):
            self.skipped += 1
            self.has_prose, self.wrapped = True, []
        if not words:
            self.header = []
        elif _BANNER.match(plain):
            cpus = _CPUS.search(text)
            self.cpus = int(cpus[1]) if cpus else self.cpus
            self.begins, self.header, self.when = True, [], None
        elif date:
            self.when = _date(date[1] if date.re is _TIME_ONLY else date[0])
        elif _is_header(words):
            self.reports.append(DeviceReport(self.when, self.cpu, since_boot=self.begins))
            self.cpu, self.begins, self.header, self.has_prose = {}, False, words, False
        elif "%user" in words and "%idle" in words:
            self.header = [word for word in words if word.startswith("%")]
        elif self.header:
            self._row(words)
        else:
            self.skipped += 1
            self.has_prose = True

    def _row(self, words: list[str]) -> None:
        has_name = number(words[0]) is None
        if self.wrapped and has_name:
            self.skipped += 1
            self.wrapped = []
        words, self.wrapped = [*self.wrapped, *words], []
        is_part = _is_header(self.header) and len(words) < len(self.header)
        if is_part and number(words[0]) is None:
            self.wrapped = words
        elif len(words) != len(self.header) or not self._take(words):
            self.skipped += 1
            self.has_prose = self.has_prose or has_name

    def _take(self, words: list[str]) -> bool:
        """Take a whole row; False if it is none."""
        if not _is_header(self.header):
            values = [number(word) for word in words]
            if None not in values:
                names = (name.lstrip("%") for name in self.header)
                self.cpu.update({k: v or 0.0 for k, v in zip(names, values, strict=True)})
            return None not in values
        first = self.header[0]
        at = len(words) - 1 if first.endswith("/s") or first == "tps" else 0
        cells = list(zip(self.header, words, strict=True))
        _, name = cells.pop(at)
        amounts = {column: _amount(word, column) for column, word in cells}
        known = {column: value for column, value in amounts.items() if value is not None}
        if len(known) < len(amounts) or any(value < 0 for value in known.values()):
            return False
        is_new = name not in self.reports[-1].devices
        self.reports[-1].devices[name] = known
        self.decimals = (_decimals(words) or 0) if is_new else self.decimals
        return True

    def last_line(self, text: str) -> None:
        """Take a line without its end: a row counts if it has all columns, its last one whole."""
        decimals = _decimals(text.split())
        has_rows = bool(self.reports and self.header and self.reports[-1].devices)
        if has_rows and decimals is not None and decimals == self.decimals:
            self.line(text)
        else:
            self.skipped += 1

    def has_ended(self) -> bool:
        """True if a table was read and text that is not iostat's stands behind it."""
        return bool(self.reports) and (self.has_prose or bool(self.wrapped))

    def lasting(self) -> list[DeviceReport]:
        """The reports of a load: without those since boot, if there are others."""
        whole = [report for report in self.reports if report.devices]
        return [report for report in whole if not report.since_boot] or whole[:1]


def sniff(head: Head) -> bool:
    """True if *head* is of iostat -x, text or JSON."""
    return bool(_HEADER.search(_as_printed(head.text))) or (
        '"sysstat"' in head.text and '"statistics"' in head.text and '"avg-cpu"' in head.text
    )


def _as_printed(text: str) -> str:
    """Return *text* without a mail program's quote marks and with its header on one line."""
    return _WRAPPED_HEADER.sub(r"\1 \2", _QUOTES.sub("", text))


def read(source: Source) -> Capture:
    """Read iostat -x; CaptureError if there is no whole report."""
    text = source.text(LARGEST)
    is_json = text.lstrip().startswith("{")
    hosts = _from_json(source, text) if is_json else _from_text(text)
    hosts = [host for host in hosts if host.lasting()]
    if not hosts:
        raise source.error("is iostat without one whole table", "run iostat -x -t 1")
    warnings: list[str] = []
    found: list[Measurement] = []
    for host in hosts:
        found += _of_host(host, warnings, f"{host.name} " if len(hosts) > 1 else "")
    skipped = sum(host.skipped for host in hosts)
    rows = sum(len(report.devices) for host in hosts for report in host.lasting())
    return results(source, FORMAT, found, warnings, rows=rows, skipped=skipped)


def _of_host(host: _Host, warnings: list[str], prefix: str) -> list[Measurement]:
    reports = host.lasting()
    if reports[0].since_boot:
        warnings.append("one report only: it is the average since boot, not of a load")
    times = [report.when for report in host.reports if report.devices and report.when is not None]
    gaps = sorted((b - a).total_seconds() for a, b in pairwise(times))
    interval = gaps[len(gaps) // 2] if gaps else None
    if interval is None or not 0 < interval < 86_400 * 366:
        interval = None
        warnings.append("no times (iostat -t): rates are known and counts are not")
    return [
        device_measurement(name, reports, host.cpus, interval, prefix + name)
        for name in busy_devices(reports)
    ]


def _from_text(text: str) -> list[_Host]:
    text = _as_printed(text)
    names = dict.fromkeys(name for name in _HOSTED.findall(text) if name != "avg-cpu")
    hosts = {name: _Host(name) for name in names or ("",)}
    earlier: list[_Host] = []
    lines = text.split("\n")
    last = lines.pop()
    for line in lines:
        name, _, rest = line.partition(":")
        if name in names:
            hosts[name].line(rest)
        elif "" in hosts:
            # Text between two tables: they are of two experiments.
            if _is_header(line.split()) and hosts[""].has_ended():
                earlier.append(hosts[""])
                hosts[""] = _Host(cpus=earlier[-1].cpus)
            hosts[""].line(line)
    if last:  # blanks alone are a line that is cut, too
        host = next(reversed(hosts.values()))
        host.last_line(last.removeprefix(f"{host.name}:") if host.name else last)
    found = [*earlier, *hosts.values()]
    for count, host in enumerate(found, start=1):
        host.skipped += bool(host.wrapped)
        host.name = f"table {count}" if earlier else host.name
    return found


def _decimals(words: list[str]) -> int | None:
    """How many decimals the last word has, None if it is not a number."""
    match = re.search(r"\d[.,](\d+)%?$", words[-1]) if words else None
    return len(match[1]) if match else None


def _is_header(words: list[str]) -> bool:
    """True if *words* name the columns of -x: with the device first or, with --pretty, last."""
    return "%util" in words and ("r/s" in words or {"tps", "await"} <= set(words))


def _amount(word: str, column: str) -> float | None:
    """The number in *word*; with ``-h`` sizes carry a unit of their own, whatever the column says.

    >>> _amount("0,50", "r_await"), _amount("1.5M", "rkB/s"), _amount("98.1%", "%util")
    (0.5, 1536.0, 98.1)
    """
    value, scale = number(word), 1.0
    if value is None:
        value, scale = number(word[:-1]), UNIT_KIB.get(word[-1:], 0.0)
        scale /= 1024.0 if "MB" in column else 1.0
    return value * scale if value is not None and scale else None


def _from_json(source: Source, text: str) -> list[_Host]:
    try:
        # sysstat prints decimals as the locale does, which is not JSON.
        raw = json.loads(_COMMA.sub(r"\1\2.\3", text))["sysstat"]["hosts"]
        return [_host_of(item, item["statistics"]) for item in raw]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise source.error(
            f"is cut or broken iostat JSON ({shown(error)})", "stop iostat with Ctrl-C only"
        ) from None


def _host_of(table: Mapping[str, object], statistics: object) -> _Host:
    cpus = table.get("number-of-cpus")
    host = _Host(shown(table.get("nodename", ""), 60))
    host.cpus = cpus if isinstance(cpus, int) and 0 < cpus < 10**6 else None
    for item in statistics if isinstance(statistics, list) else []:
        if not isinstance(item, dict):
            host.skipped += 1
            continue
        report = DeviceReport(_date(str(item.get("timestamp", ""))), _numbers(item.get("avg-cpu")))
        # JSON has no banner: the first report is the one since boot.
        report.since_boot = not host.reports
        disks = item.get("disk")
        for disk in disks if isinstance(disks, list) else []:
            values = _numbers(disk)
            name = disk.get("disk_device") if isinstance(disk, dict) else None
            if not isinstance(name, str) or "r/s" not in values:
                host.skipped += 1
                continue
            report.devices[name] = {("%util" if k == "util" else k): v for k, v in values.items()}
        host.reports.append(report)
    return host


def _numbers(item: object) -> Values:
    if not isinstance(item, dict):
        return {}
    return {
        str(key): float(value)
        for key, value in item.items()
        if isinstance(value, int | float) and 0 <= value < 1e15
    }


def _date(text: str) -> datetime | None:
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def busy_devices(reports: list[DeviceReport]) -> list[str]:
    """The devices that did anything, all if none did; a host lists many that did not."""
    rows: dict[str, list[Values]] = {}
    for report in reports:
        for name, values in report.devices.items():
            rows.setdefault(name, []).append(values)
    figures = ("r/s", "w/s", "tps", "%util")
    return [n for n in rows if any(row.get(k) for row in rows[n] for k in figures)] or list(rows)


def device_measurement(
    name: str, reports: list[DeviceReport], cpus: int | None, interval: float | None, label: str,
    source: str = FORMAT,
) -> Measurement:  # fmt: skip
    """Return the mean over *reports* of the device *name*; counts only if *interval* s is known."""
    rows = [report.devices[name] for report in reports if name in report.devices]
    ops: dict[Op, OpResult] = {}
    for op, x in LETTERS.items():
        bandwidth = (f"{x}kB/s", f"{x}MB/s", f"{x}sec/s")
        result = _result(rows, interval, f"{x}/s", bandwidth, (f"{x}_await", "await"))
        if result is not None:
            ops[op] = result
    # all that -s prints: reads and writes as one
    both = _result(rows, interval, "tps", ("kB/s", "MB/s", "sec/s"), ("await",))
    rates = {op: result.iops for op, result in ops.items()}
    total = sum(rates.values())
    queue = [r.get("aqu-sz", r.get("avgqu-sz")) for r in rows]
    used = [r["%util"] for r in rows if "%util" in r]
    return Measurement(
        label=label,
        conditions=Conditions(
            read_fraction=rates.get("read", 0.0) / total if total else None,
            targets=1,
            duration_s=interval and interval * len(rows),
            cpus=cpus,
            depth_mean=None if None in queue else sum(q for q in queue if q) / len(queue),
        ),
        ops=ops,
        cpu=_cpu(reports, cpus),
        disk_util_pct={name: sum(used) / len(used)} if used else {},
        source=source,
        mixed=None if ops else both,
    )


def _result(
    rows: list[Values], interval: float | None, rate: str, bandwidth: tuple[str, ...],
    waits: tuple[str, ...],
) -> OpResult | None:  # fmt: skip
    """Average the columns *rate*, *bandwidth* and *waits*; counts only if the interval is known."""
    rates = [row.get(rate, 0.0) for row in rows]
    per_s = sum(
        row.get(column, 0.0) * scale
        for column, scale in zip(bandwidth, UNITS.values(), strict=True)
        for row in rows
    ) / len(rows)
    seconds = (interval or 0.0) * len(rows)
    count = round(sum(rates) * (interval or 0.0))
    if not any(rates) or max(rates) > 1e12 or per_s * max(seconds, 1) > 1e18:
        return None
    if interval is not None and count < FEWEST:
        return None
    found = [next((row[w] for w in waits if w in row), None) for row in rows]
    latency = None
    if None not in found and max(w or 0 for w in found) <= LONGEST_MS:
        # 0.00 is a wait that iostat does not know: no drive answers in less than 5 us.
        known = [(w, r) for w, r in zip(found, rates, strict=True) if w and r]
        if known:
            mean = sum(w * r for w, r in known) / sum(r for _, r in known)
            latency = Latency(count=count, mean_s=mean * S_PER_MS)
    return OpResult(
        count=count,
        bytes=round(per_s * seconds),
        iops=sum(rates) / len(rates),
        bytes_per_s=per_s,
        clat=latency,
    )


def _cpu(reports: list[DeviceReport], cpus: int | None) -> CpuUse | None:
    """CPU time of the host; iowait and idle are not use."""
    found = [report.cpu for report in reports if {"user", "system"} <= report.cpu.keys()]
    if not found or not cpus:
        return None
    user = sum(c["user"] + c.get("nice", 0.0) for c in found) / len(found) * cpus
    system = sum(c["system"] for c in found) / len(found) * cpus
    if user + system > 110 * cpus:
        return None
    return CpuUse(user, system, user + system, scope="host")


_SAR_HEADER: Final = re.compile(
    r"^(?P<time>\d\d:\d\d:\d\d(?: ?[AP]M)?|\S{0,40}[^\d\s]\S{0,40}:)[ \t]+(?P<first>DEV\s+)?tps\s+"
    r"(?P<rest>.*%util)(?P<last>\s+DEV)?\s*$",
    re.M,
)
"""The device stands first or, with --pretty, last."""
_SAR_TIME: Final = re.compile(r"^(\d\d):(\d\d):(\d\d)(?: ?([AP])M)?\s+")
_SAR_AVERAGE: Final = re.compile(r"^\S{0,40}[^\d\s]\S{0,40}:\s+")
_SAR_BANNER: Final = re.compile(r"^Linux \S+ \(")


def _sniff_sar(head: Head) -> bool:
    """True if *head* is sar's report that has a table of devices, now or perhaps later."""
    if _SAR_HEADER.search(head.text):
        return True
    banner = next((line for line in head.lines if line.strip()), "")
    return (
        not head.whole
        and bool(_SAR_BANNER.match(banner))
        and bool(re.search(r"^\d\d:\d\d:\d\d(?: ?[AP]M)?\s+CPU\s+%us", head.text, re.M))
    )


def _read_sar(source: Source) -> Capture:
    """Read the table of devices; CaptureError if there is none."""
    lines = source.text(LARGEST).split("\n")
    reports: dict[str, DeviceReport] = {}
    times: list[int] = []
    columns: list[str] = []
    is_last = False
    skipped = int(bool(lines.pop().strip()))  # perhaps of the table, perhaps before one
    for line in lines:
        header, start = _SAR_HEADER.match(line), _SAR_TIME.match(line)
        if header:
            columns = ["tps", *header["rest"].split()]
            is_last = header["last"] is not None
            times += [_sar_seconds(start)] if start else []
        elif not line.strip():
            columns = []
        elif columns:
            row = _sar_row(line, columns, is_last)
            skipped += row is None
            if row is not None:
                report = reports.setdefault(start[0] if start else "", DeviceReport())
                report.devices[row[0]] = row[1]
                times += [_sar_seconds(start)] if start else []
    # A header has the time at which its first interval began.
    gaps = sorted((b - a) % 86_400 for a, b in pairwise(dict.fromkeys(times)))
    length = float(gaps[len(gaps) // 2]) if gaps else None
    warnings = ["sar has reads and writes as one: neither can be calibrated on"]
    if length is None:
        warnings.append("the length of an interval is unknown: rates are known and counts are not")
    rows = sum(len(report.devices) for report in reports.values())
    # The averages at the end say what the intervals do, if these are there.
    average = reports.pop("", None)
    whole = list(reports.values()) or ([average] if average else [])
    length = length if reports else None
    found = [
        device_measurement(name, whole, None, length, name, "sar") for name in busy_devices(whole)
    ]
    return results(source, "sar", found, warnings, rows=rows, skipped=skipped)


def _sar_row(line: str, columns: list[str], is_last: bool) -> tuple[str, dict[str, float]] | None:
    """Device and figures of a row, in iostat's columns of ``-s``; None if it is not whole."""
    head = _SAR_TIME.match(line) or _SAR_AVERAGE.match(line)
    words = line[head.end() :].split() if head else []
    if is_last:
        words = [*words[-1:], *words[:-1]]
    values = [number(word) for word in words[1:]]
    if len(values) != len(columns) or any(value is None or value < 0 for value in values):
        return None
    found = {key: value or 0.0 for key, value in zip(columns, values, strict=True)}
    found["kB/s"] = found.get("rkB/s", 0.0) + found.get("wkB/s", 0.0)
    found["sec/s"] = found.get("rd_sec/s", 0.0) + found.get("wr_sec/s", 0.0)
    return shown(words[0], 40), found


def _sar_seconds(match: re.Match[str]) -> int:
    hours = int(match[1]) % 12 + (12 if match[4] == "P" else 0) if match[4] else int(match[1])
    return hours * 3600 + int(match[2]) * 60 + int(match[3])


REPORTS: Final = {"sar": SimpleNamespace(sniff=_sniff_sar, read=_read_sar)}
