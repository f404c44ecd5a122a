"""Reader of DiskSpd's text results, 2.0 to 2.3, and of diskspd-for-linux.

The header of a table says which columns it has. Totals are read from the ``total:`` rows, because
people cut thread rows out of what they paste; a span without them is cut and left out.
"""

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nvmesim.capture.capture import OPS, Capture, Op
from nvmesim.capture.checked_numbers import LARGEST, number, results, tell_apart, whole
from nvmesim.capture.readers import diskspd_xml
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import ScenarioError
from nvmesim.scenario.loads.diskspd import parse, size_bytes
from nvmesim.warning import Warning

FORMAT: Final = "diskspd-text"
TABLES: Final[dict[str, Op | None]] = {"Total IO": None, "Read IO": "read", "Write IO": "write"}

_RESULTS = re.compile(r"Results for (?:timespan|job) (\d{1,9}):")
_SNIFF = re.compile(
    r"^[ \t]*Results for (timespan|job) \d+:|^[ \t]*Command Line: .*diskspd"
    r"|^[ \t]*number of outstanding I/O operations",
    re.M | re.I,
)
_GLUED = re.compile(
    r"(?<=\S)(?=(?:Command Line: |System info:|Input parameters:|job: \d|CPU \| "
    r"|Results for (?:timespan|job) \d|(?:Total|Read|Write) IO$))"
    r"|(?<=\d)[ \t]+(?=(?:Read|Write) IO$)",
    re.M,
)
"""Headings that a page's editor joined to the line above them."""
_MARKED = re.compile(r"^\*(total: [^*\n]*)\*[ \t]*$", re.M)
"""A row of totals that a page shows in bold or italics."""
_THREAD = re.compile(r"\d{1,5} \|")
_TAIL = re.compile(r"\|\s*(?:[\d.,]+[.,]\d{2,3}|N/A)$")
"""The last number of a row of totals, up to its last decimal."""
_WRAPPED: Final = 60
"""Shorter lines were not wrapped by anybody."""
_FILE = re.compile(r"\s+\([^()]*\)$")
_WHOLE_ROW = re.compile(r"\|\s*(?:\d+[.,]\d{3}|N/A)\s*$")
"""A row of a percentile table up to its last decimal; people paste texts without the last end."""
_NINES = re.compile(r"(\d{1,2})-nines$")
_NTH = re.compile(r"(\d{1,2})th$")
_RATIO = re.compile(r"read/write ratio: (\d{1,3})/(\d{1,3})")
_RATE = re.compile(r"rate-limited to (\d{1,12}) ?(B/ms|IOPS)")
_SETTINGS: Final = (
    # start of a line, field of a target, its value
    ("performing write test", "write_pct", 100.0),
    ("performing read test", "write_pct", 0.0),
    ("using random I/O", "random", True),
    ("using sequential I/O", "random", False),
    ("using interlocked", "random", False),
    ("software cache disabled", "direct", True),
    ("using O_DIRECT", "direct", True),
    ("using software cache", "direct", False),
)
_ENGINES: Final = {
    "using I/O Completion Ports": "iocp",
    "using completion routines": "completion-routines",
}


def sniff(head: Head) -> bool:
    """True if *head* holds DiskSpd's text, from its input parameters or results."""
    return bool(_SNIFF.search(head.text)) and "<Results>" not in head.text


def read(source: Source) -> Capture:
    """Read DiskSpd text; CaptureError if no time span has whole tables."""
    parse = _Parse()
    text = _MARKED.sub(r"\1", _GLUED.sub("\n", source.text(LARGEST)))
    lines = _unwrapped(text.split("\n"))
    if "|" in lines[-1] and not _WHOLE_ROW.search(lines[-1]):
        parse.warnings.append(f"its last line is cut: {shown(lines.pop())!r} (left out)")
    for line in lines:
        parse.line(line.strip())
    parse.end_table()
    runs = []
    for run in parse.runs:
        total = run.span.total
        if run.span.seconds and total is not None and {"read", "write"} <= total.keys():
            _finish(run, total, parse.cpus)
            runs.append(diskspd_xml.measurements(run.span, parse.version))
        else:
            parse.warnings.append(f"{run.span.label}: its tables are cut (left out)")
    return results(source, FORMAT, tell_apart(runs), parse.warnings, version=parse.version)


def _unwrapped(lines: list[str]) -> list[str]:
    """Return *lines* with the rows of tables and the command as they were before a mailer's wrap.

    The header of a table says how many cells a row has; it ends with the column of files.
    """
    found: list[str] = []
    pipes, whole = 0, True
    width = max(map(len, lines))
    last = 0
    for line in lines:
        if line.strip() and not line.strip("-— "):
            whole = True
            continue
        before = found[-1].strip() if found else ""
        is_part = bool(line.strip()) and not line.strip().startswith(("total:", "***"))
        whole &= not (last == width and line.strip().isdigit())
        if not whole and is_part and len(before) >= _WRAPPED // (1 + before.count("|")):
            # A terminal cuts within words, and all its lines are as long.
            is_cut = last == width and found[-1][-1:] not in " |" and line[:1] not in " |"
            found[-1] = found[-1] + line if is_cut else f"{found[-1]} {line.lstrip()}"
        else:
            found.append(line)
        last = len(line)
        text = found[-1].strip()
        if text.startswith("thread |"):
            pipes, whole = text.count("|"), text.endswith("file")
        elif text.startswith("total:"):
            # A row of totals has neither a thread nor a file.
            whole = text.count("|") >= pipes - 2 and _TAIL.search(text) is not None
        elif text.startswith("Command Line:"):
            whole = len(line) < _WRAPPED
        elif pipes and _THREAD.match(text):
            whole = text.count("|") >= pipes and text.endswith(")")
        else:
            whole = True
    return found


class _Run(NamedTuple):
    """The results of a time span, and what stands before them."""

    span: diskspd_xml.TimeSpan
    profile: diskspd_xml.TimeSpan | None
    """Its input parameters, unless they were cut away."""
    command: str


def _finish(run: _Run, total: dict[Op, diskspd_xml.DiskspdCounts], cpus: int | None) -> None:
    """Give the span its profile; counts by target only if no thread row was cut."""
    span, profile = run.span, run.profile
    if profile is not None:
        span.targets = profile.targets
        span.warmup_s = profile.warmup_s
        span.engine = profile.engine
        span.shared_threads = profile.shared_threads
        if profile.shared_threads and span.threads is None:
            span.threads = profile.threads
    span.targets = span.targets or _command_targets(run.command)
    span.cpus = span.cpus or cpus
    threads = [target.threads or 0 for target in span.targets]
    if span.threads is None and threads and all(threads):
        span.threads = sum(threads)
    rows = {op: sum(c[op].count for c in span.counts.values() if op in c) for op in total}
    if rows != {op: counts.count for op, counts in total.items()}:
        text = "thread rows were cut out of the tables: totals only"
        span.warnings.append(Warning("thread-cut", text))
        span.counts = {}


def _command_targets(command: str) -> list[diskspd_xml.DiskspdTarget]:
    """The targets of a command line with their load, where the input parameters were cut away.

    None of a command that cannot be read.
    """
    try:
        load = parse(command, strict=False)
    except ScenarioError:
        return []
    fields = load.fields
    ((size, _),) = fields["block_sizes"]
    return [
        diskspd_xml.DiskspdTarget(
            path=path,
            block_size=size,
            outstanding=fields["outstanding"],
            threads=fields["threads"] if fields["threads_are_per_target"] else None,
            write_pct=100 * (1 - fields["read"]),
            random={1.0: True, 0.0: False}.get(load.random_fraction or 0.0),
            direct=load.direct,
        )
        for path in load.files
    ]


@dataclass
class _Parse:
    profiles: list[diskspd_xml.TimeSpan] = field(default_factory=list)
    """Input parameters of the run that is read: one a time span."""
    runs: list[_Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    command: str = ""
    cpus: int | None = None
    version: str | None = None
    waits: bool = False
    """True if a run has begun that has no results yet."""
    span: diskspd_xml.TimeSpan | None = None
    """The time span whose results are being read."""
    title: str = ""
    """The last line with text, which may be the title of a percentile table."""
    op: Op | None = None
    columns: list[str] = field(default_factory=list)
    table: dict[Op, dict[float, float]] | None = None
    table_title: str = ""

    def line(self, text: str) -> None:
        """Take the next line."""
        if self.table is not None and not text.startswith("---") and not self._percentile(text):
            self.end_table()
        if not text or text.startswith("---") or text.startswith("***"):
            return
        started = _RESULTS.match(text)
        if started:
            at = min(max(int(started[1]), 1), len(self.profiles)) - 1
            self.span = diskspd_xml.TimeSpan(label=f"timespan {int(started[1])}")
            profile = self.profiles[at] if at >= 0 else None
            self.runs.append(_Run(self.span, profile, self.command))
            self.waits = False
        elif text.startswith("Totals:"):
            self.span = None
        elif text.startswith(("Command Line:", "Input parameters:")):
            # Another run, whose results come with the last or follow; its command line, if it has
            # one, stands before its input parameters.
            self.span = None
            if self.runs and not self.waits:
                self.profiles, self.command = [], ""
            self.waits = True
            key, _, value = (part.strip() for part in text.partition(":"))
            self.command = value if key == "Command Line" else self.command
        elif text.startswith("%-ile"):
            self.table, self.table_title = {}, self.title
        elif self.span is None:
            self._parameter(text)
        elif self.table is None:
            self._result(text, self.span)
        self.title = text

    # Input parameters and system information

    def _parameter(self, text: str) -> None:
        key, _, value = (part.strip() for part in text.partition(":"))
        if key in ("timespan", "job"):
            self.profiles.append(diskspd_xml.TimeSpan(label=text))
        elif key in ("cpu count", "processor count"):
            self.cpus = whole(value)
            self.version = ">=2.2" if key == "cpu count" else "linux"
        elif not self.profiles:
            return
        elif key == "path":
            self.profiles[-1].targets.append(diskspd_xml.DiskspdTarget(path=value.strip("'")))
        elif key == "warm up time":
            self.profiles[-1].warmup_s = number(value.rstrip("s"))
        elif key == "total threads":
            self.profiles[-1].shared_threads = True
            self.profiles[-1].threads = whole(value)
        elif self.profiles[-1].targets:
            self._target(text, key, value, self.profiles[-1].targets[-1])

    def _target(self, text: str, key: str, value: str, target: diskspd_xml.DiskspdTarget) -> None:
        ratio, rate = _RATIO.search(text), _RATE.search(text)
        for start, name, setting in _SETTINGS:
            if text.startswith(start):
                setattr(target, name, setting)
        for start, engine in _ENGINES.items():
            if text.startswith(start):
                self.profiles[-1].engine = engine
        if key == "block size":
            target.block_size = size_bytes(value)
        elif key.startswith("number of outstanding"):
            target.outstanding = whole(value.rstrip(")"))
            if "per thread" not in key and self.version is None:
                self.version = "<=2.0"
        elif key == "threads per file":
            target.threads = whole(value)
            # Linux prints both; only without this line are the threads shared (-F).
            self.profiles[-1].shared_threads = False
        elif ratio:
            target.write_pct = float(ratio[2])
        elif rate:
            limit = float(rate[1])
            size = target.block_size
            target.rate_iops = limit if rate[2] == "IOPS" else size and limit * 1000 / size

    # Results

    def _result(self, text: str, span: diskspd_xml.TimeSpan) -> None:
        key, _, value = (part.strip() for part in text.partition(":"))
        if key in ("actual test time", "test time"):
            span.seconds = number(value.rstrip("s"))
        elif key == "thread count":
            span.threads = whole(value)
        elif key == "proc count":
            span.cpus = whole(value)
            self.version = self.version or "<=2.1"
        elif text in TABLES:
            self.op, self.columns = TABLES[text], []
        elif text.startswith("thread |"):
            self.columns = [cell.strip().lower() for cell in text.split("|")]
        elif "|" in text and "%" in text:
            self._cpu(text, span)
        elif "|" in text and self.columns:
            self._row(text, span)

    def _cpu(self, text: str, span: diskspd_xml.TimeSpan) -> None:
        percents = [number(cell) for cell in text.split("|") if cell.strip().endswith("%")]
        if text.startswith("avg"):
            # Linux puts the first figure behind "avg:" in the same cell.
            percents = [number(cell.split()[-1]) for cell in text.split("|") if "%" in cell]
            usage, user, kernel = [*percents, None, None, None][:3]
            span.cpu_average = (usage, user, kernel)
        elif percents and percents[0] is not None:
            span.busiest_pct = max(percents[0], span.busiest_pct or 0.0)

    def _row(self, text: str, span: diskspd_xml.TimeSpan) -> None:
        is_total = text.startswith("total:")
        cells = text.removeprefix("total:").split("|")
        names = self.columns[1:] if is_total else self.columns
        row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        count, n_bytes = whole(row.get("i/os")), whole(row.get("bytes"))
        if count is None or n_bytes is None:
            span.warnings.append(f"a row without its counts: {shown(text)!r} (left out)")
            return
        if self.op is None:
            return
        mean = number(row.get("avglat") or row.get("avglat(ms)"))
        stddev = number(row.get("latstddev"))
        if is_total:
            span.total = span.total or {}
            span.total[self.op] = diskspd_xml.DiskspdCounts(count, n_bytes)
            span.means[self.op] = (mean, stddev) if count else (None, None)
            self.columns = []
        else:
            path = _FILE.sub("", row.get("file", ""))
            span.tally(path, self.op).add(count, n_bytes, mean, stddev)

    # Percentile tables

    def _percentile(self, text: str) -> bool:
        cells = [cell.strip() for cell in text.split("|")]
        percent = _percent(cells[0])
        if percent is None or len(cells) < 4 or self.table is None:
            return False
        for op, cell in zip(OPS, cells[1:3], strict=True):
            value = number(cell)
            if value is not None:
                self.table.setdefault(op, {})[percent] = value
        return True

    def end_table(self) -> None:
        """Take the percentile table that was read, if there is one."""
        table, self.table = self.table, None
        span = self.span
        if not table or span is None:
            return
        title = self.table_title.removeprefix("Latency distribution:").strip()
        is_overall = title in ("total:", "Total latency distribution:") or "|" in title
        found: dict[Op, dict[float, float]] = {}
        for op, values in table.items():
            if 100.0 not in values:
                span.warnings.append(f"{op}: its percentile table is cut (left out)")
            else:
                found[op] = diskspd_xml.checked_table(values, span.warnings, op)
        if is_overall:
            span.percentiles = found
        else:
            span.target_percentiles[title] = found


def _percent(label: str) -> float | None:
    """Percent of a row of the percentile table.

    >>> _percent("min"), _percent("25th"), _percent("3-nines"), _percent("9-nines")
    (0.0, 25.0, 99.9, 99.9999999)
    """
    if label in ("min", "max"):
        return 0.0 if label == "min" else 100.0
    nth, nines = _NTH.match(label), _NINES.match(label)
    if nth:
        return float(nth[1])
    if nines and 3 <= int(nines[1]) <= 12:
        return round(100 - 10.0 ** (2 - int(nines[1])), int(nines[1]))
    return None
