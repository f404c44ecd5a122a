"""``t/io_uring``, the small benchmark in fio's source: a line a second, the load in its command.

Requests are reads, at random places unless it is told otherwise. Its first second fills the queue,
so the mean is taken over the last half of the lines. Source: fio t/io_uring.c, of 3.16 to 3.42.
"""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Measurement, OpResult
from nvmesim.capture.caveats import with_caveats
from nvmesim.capture.checked_numbers import MAX_RATE, checked, results, tell_apart
from nvmesim.capture.readers.fio import normal_output
from nvmesim.capture.text import Head, Source, shown
from nvmesim.warning import Warning

_SECOND: Final = re.compile(
    r"^[ \t]*IOPS=(?P<iops>[0-9.]{1,18})(?P<scale>[KM]?), "
    r"(?:BW=(?P<bw>[0-9.]{1,18})(?P<unit>[MG])iB/s, )?IOS/call=-?\d+/-?\d+"
)
_SNIFF: Final = re.compile(_SECOND.pattern, re.MULTILINE)
_COMMAND: Final = re.compile(r"(?:^|[\s/])io_uring[\w.-]*(?=\s+-\w)([^\n]*)")
_FLAG: Final = re.compile(r"\s-([a-zA-Z])\s*(\d{1,9})(?!\S)")
_FILE: Final = re.compile(r"\s(/dev/\S+)")
_SUBMITTER: Final = re.compile(r"^[ \t]*submitter=(\d{1,6}),(?:.*?\bfile=([^\s,]+))?")
_SETTING: Final = re.compile(r"\b(polled|fixedbufs|register_files|buffered|QD|Engine)=(\w{1,20})")
_GOES_ON: Final = re.compile(r"\\\n\s*")
_SCALE: Final = {"": 1.0, "K": 1e3, "M": 1e6}
_BW_SCALE: Final = {"M": 2.0**20, "G": 1000 * 2.0**20}
"""It divides MiB by 1000 and prints GiB."""
_DEFAULTS: Final = {"d": 128, "s": 32, "b": 4096, "p": 1, "n": 1, "O": 1, "R": 1}
_ENGINES: Final = (("N", "nop"), ("S", "pvsync2"), ("a", "libaio"), ("u", "io_uring_cmd"))
STEADY: Final = "steady-part"
"""Code of the warning that says which lines count."""
SIZE_TOLERANCE: Final = 0.03


@dataclass
class _Run:
    """What one run printed, and its command."""

    flags: dict[str, int] = field(default_factory=dict)
    """Options of the command over their defaults; empty if there is no command."""
    settings: dict[str, str] = field(default_factory=dict)
    """Values of the lines ``polled=..., QD=...`` and ``Engine=...``."""
    submitters: set[int] = field(default_factory=set)
    files: dict[str, None] = field(default_factory=dict)
    seconds: list[re.Match[str]] = field(default_factory=list)

    def conditions(self, duration_s: float) -> Conditions:
        """Return the load, as the first lines say it, else the command; else unknown."""
        flags = self.flags
        printed = self.settings.get("QD", "")
        depth = int(printed) if printed.isdecimal() else flags.get("d")
        jobs = len(self.submitters) or flags.get("n")
        random, batch = flags.get("R"), flags.get("s")
        engine = self.settings.get("Engine", "io_uring" if flags else None)
        engine = next((name for letter, name in _ENGINES if flags.get(letter)), engine)
        buffered = self.settings.get("buffered", str(int(flags["O"] != 1)) if flags else None)
        polled = self.settings.get("polled", str(flags["p"]) if flags else None)
        n_files = len(self.files)
        return Conditions(
            read_fraction=None if flags.get("w") else 1.0,
            access=None if random is None else "random" if random else "sequential",
            block_size=None if engine == "nop" else flags.get("b"),
            jobs=jobs,
            iodepth=1 if engine == "pvsync2" else depth,
            targets=n_files or None,
            targets_per_job=1 if jobs and 1 < n_files <= jobs else None,
            engine=engine,
            direct=None if buffered is None else buffered == "0" or engine == "io_uring_cmd",
            duration_s=duration_s,
            batch=None if batch is None else min(batch, depth or batch),
            polled=None if polled is None else polled != "0",
        )


def sniff(head: Head) -> bool:
    """True if *head* has a line of ``t/io_uring``."""
    return "IOS/call=" in head.text and bool(_SNIFF.search(head.text))


def read(source: Source) -> Capture:
    """Read every run, and fio's own reports beside them; CaptureError if a number cannot be."""
    runs = _runs(_GOES_ON.sub(" ", source.text()))
    found = tell_apart([[_measurement(source, run)] for run in runs])
    warnings = []
    for m, run in zip(found, runs, strict=True):
        n = len(run.seconds)
        text = f"{m.label}: the mean of the last {n - n // 2} of {n} seconds"
        warnings.append(Warning(STEADY, text, m.label))
    rows = sum(len(run.seconds) for run in runs)
    capture = results(source, "t-io-uring", found, warnings, rows=rows)
    if not normal_output.sniff(source.head):
        return capture
    beside = normal_output.read(source)
    return replace(
        capture,
        measurements=(*capture.measurements, *beside.measurements),
        rows=capture.rows + beside.rows,
        version=beside.version,
        warnings=(*capture.warnings, *beside.warnings),
    )


def _runs(text: str) -> list[_Run]:
    """Split *text* at commands, first lines, and where other lines stand between seconds."""
    runs: list[_Run] = []
    run, is_apart = _Run(), False
    for line in text.split("\n"):
        command, submitter = _COMMAND.search(line), _SUBMITTER.match(line)
        second = _SECOND.match(line)
        settings = dict(_SETTING.findall(line)) if "=" in line and second is None else {}
        begins = command or settings or submitter
        if run.seconds and (begins or (second and is_apart)):
            run = _Run()
        if command:
            flags = {letter: int(value) for letter, value in _FLAG.findall(command[1])}
            run.flags = {**_DEFAULTS, **flags}
            run.files = dict.fromkeys(_FILE.findall(command[1]))
        if submitter:
            run.submitters.add(int(submitter[1]))
            if submitter[2] and not (run.flags and run.files):
                run.files[submitter[2]] = None
        run.settings.update(settings)
        if second:
            if not run.seconds:
                runs.append(run)
            run.seconds.append(second)
        is_apart = bool(line.strip()) and second is None and not begins
    return runs


def _measurement(source: Source, run: _Run) -> Measurement:
    seconds = run.seconds[len(run.seconds) // 2 :]
    rates = [_number(source, s["iops"], _SCALE[s["scale"]]) for s in seconds]
    iops = math.fsum(rates) / len(rates)
    conditions = run.conditions(float(len(seconds)))
    bandwidths = [_number(source, s["bw"], _BW_SCALE[s["unit"]]) for s in seconds if s["bw"]]
    per_s = math.fsum(bandwidths) / len(bandwidths) if bandwidths else 0.0
    size = conditions.block_size
    if size is None and per_s and iops:
        power = 1 << max(9, round(math.log2(per_s / iops)))
        close = abs(per_s / iops / power - 1) < SIZE_TOLERANCE
        conditions = replace(conditions, block_size=power if close else None)
    elif isinstance(size, int) and per_s < 2**24:
        per_s = iops * size  # printed in whole MiB
    count = round(math.fsum(rates))
    measurement = Measurement(
        label=shown(", ".join(run.files) or "t/io_uring", 40),
        conditions=conditions,
        ops={"read": OpResult(count, round(per_s * len(seconds)), iops, per_s)},
        source="t/io_uring",
    )
    return with_caveats(measurement, is_polled=bool(conditions.polled))


def _number(source: Source, text: str, scale: float) -> float:
    return checked(source, "a second of t/io_uring", text, most=MAX_RATE / scale) * scale
