"""Reader of what kubestr and kbench print of their fio runs in Kubernetes.

kubestr prints a job after the other; kbench a summary in which IOPS, bandwidth and latency are of
runs of their own, with loads that it does not name.
Source: kastenhq/kubestr, pkg/fio/parsable_fio.go; longhorn/kbench (and yasker's), fio/parse.sh.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.readers.fio.options import Options
from nvmesim.capture.readers.reports.common import (
    LARGEST,
    cut_line,
    number_of,
    one_load,
    rate_result,
    results,
)
from nvmesim.capture.text import Head, Source, shown
from nvmesim.scenario.loads.fio_words import parse_bytes

FORMAT: Final = "kubestr"
_JOB: Final = re.compile(r"^[ \t]*JobName:\s*(\S*)\s*$")
_LOAD: Final = re.compile(r"^[ \t]*blocksize=(\S*) filesize=\S* iodepth=(\d{0,6}) rw=(\w*)\s*$")
_OP: Final = re.compile(r"^[ \t]*(read|write):\s*$")
_RATE: Final = re.compile(r"^[ \t]*IOPS=([0-9.]{1,20}) BW\(KiB/s\)=(\d{1,15})\s*$")
_GLOBAL: Final = re.compile(r"^[ \t]*Global options - ioengine=(\w*) .*\bdirect=(\d?)", re.M)
_VERSION: Final = re.compile(r"^[ \t]*FIO version - fio-(\S+)", re.M)
_SUMMARY: Final = re.compile(r"^[ \t]*FIO Benchmark Summary\s*$", re.M)
_TITLE: Final = re.compile(r"^[ \t]*(IOPS|Bandwidth in KiB/sec|Latency in ns) \(Read/Write\)\s*$")
_PAIR: Final = re.compile(r"^[ \t]*(Random|Sequential):\s*([0-9,]{1,20}) / ([0-9,]{1,20})\s*$")
_HEADING: Final = re.compile(r"^#+\s+(\S.{0,80})$")


def sniff(head: Head) -> bool:
    """True if *head* is of kubestr or of kbench."""
    return bool(_SUMMARY.search(head.text)) or "FIO test results:" in head.text


def read(source: Source) -> Capture:
    """Read every job, or every figure of every summary."""
    text = source.text(LARGEST)
    warnings: list[str] = []
    if _SUMMARY.search(text):
        found = list(_summaries(source, text))
        warnings.append(
            "IOPS, bandwidth and latency are of runs of their own, whose sizes and depths are not "
            "said"
        )
    else:
        found = list(_jobs(source, text))
    version = _VERSION.search(text)
    warnings += cut_line(source)
    return results(
        source, FORMAT, found, warnings, version=f"fio {version[1]}" if version else None
    )


def _jobs(source: Source, text: str) -> Iterator[Measurement]:
    common = _GLOBAL.search(text)
    name = op = ""
    load: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        job, given, kind, rate = (p.match(line) for p in (_JOB, _LOAD, _OP, _RATE))
        if job:
            name, load, op = job[1], {}, ""
        elif given:
            load = {"bs": given[1], "iodepth": given[2], "rw": given[3]}
        elif kind:
            op = kind[1]
        elif rate and op:
            where = f"line {number}"
            iops = number_of(source, f"{where}: IOPS", rate[1])
            per_s = number_of(source, f"{where}: BW", rate[2]) * 1024
            if iops:
                yield _job(name, load, op, rate_result(iops, per_s), common)
            op = ""


def _job(
    name: str, load: dict[str, str], op: str, result: OpResult, common: re.Match[str] | None
) -> Measurement:
    options = Options({k: v for k, v in load.items() if v}, complete=False)
    conditions = Conditions(
        access=options.access(),
        block_size=parse_bytes(load.get("bs", "")),
        jobs=1 if load.get("iodepth") else None,
        iodepth=options.whole("iodepth"),
        engine=(common[1] or None) if common else None,
        direct=common[2] == "1" if common and common[2] else None,
    )
    fraction = 1.0 if op == "read" else 0.0
    return one_load(name or op, result, conditions, read_fraction=fraction, source=FORMAT)


def _summaries(source: Source, text: str) -> Iterator[Measurement]:
    heading = title = ""
    for number, line in enumerate(text.split("\n"), start=1):
        named, titled, pair = _HEADING.match(line), _TITLE.match(line), _PAIR.match(line)
        if named:
            heading = shown(named[1], 40)
        elif titled:
            title = titled[1]
        elif pair and title:
            values = [number_of(source, f"line {number}", pair[k]) for k in (2, 3)]
            yield from _figures(title, pair[1].lower(), values, heading)


def _figures(title: str, access: str, values: list[float], heading: str) -> Iterator[Measurement]:
    ops: tuple[Op, Op] = ("read", "write")
    for op, value in zip(ops, values, strict=True):
        if not value:
            continue
        iops = value if title == "IOPS" else 0.0
        rate = value * 1024 if title.startswith("Bandwidth") else 0.0
        lat = Latency(0, mean_s=value * 1e-9) if title.startswith("Latency") else None
        what = title.split()[0].lower().replace("iops", "IOPS")
        yield Measurement(
            label=" ".join(filter(None, (access, op, what, f"({heading})" if heading else ""))),
            conditions=Conditions(
                read_fraction=1.0 if op == "read" else 0.0,
                access="random" if access == "random" else "sequential",
            ),
            ops={op: rate_result(iops, rate, lat=lat)},
            source="kbench",
        )
