"""Reader of ioping's statistics: one request at a time, with pauses that its rate leaves out.

Its IOPS are requests over the time that they took, as if there were no pauses.
Source: koct9i/ioping, ioping.c, dump_statistics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, OpResult
from nvmesim.capture.readers.reports.common import (
    binary_size,
    nearest_size,
    number_of,
    one_load,
    read_report,
    seconds_of,
)
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "ioping"
_N: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_TITLE: Final = re.compile(r"^--- (\S.*?) ioping statistics ---\s*$", re.M)
_DONE: Final = re.compile(
    rf"^({_N})(?: ([kMG]))? requests completed in ({_N}) (ns|us|ms|s|min)"
    rf"(?:, ({_N} [KMGT]?i?B) (read|written))?, ({_N})(?: ([kMG]))? iops, ({_N}) ([KMGT]?i?)B/s",
    re.M,
)
_TIMES: Final = re.compile(
    rf"^min/avg/max/mdev = ({_N}) (ns|us|ms|s) / ({_N}) (ns|us|ms|s) / ({_N}) (ns|us|ms|s) / "
    rf"({_N}) (ns|us|ms|s)\s*$",
    re.M,
)
_REQUEST: Final = re.compile(rf"^({_N} [KMGT]?i?B) (<<<|>>>|from|to) ", re.M)
_SCALE: Final = {None: 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def sniff(head: Head) -> bool:
    """True if *head* has the title of ioping's statistics or its lines of requests."""
    return bool(_TITLE.search(head.text)) or (
        bool(_REQUEST.search(head.text)) and "request=" in head.text
    )


def read(source: Source) -> Capture:
    """Read the statistics of every run; CaptureError if one is there and contradicts itself."""
    warning = "pauses between requests are left out of the rate: it is that of depth 1"
    return read_report(source, FORMAT, _measurements, warning)


def _measurements(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    # what stands before the first title, then each title and what is behind it
    before, *rest = _TITLE.split(text)
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        measurement = _measurement(source, title, before, body)
        before = body
        if measurement is not None:
            yield measurement
        else:
            warnings.append(
                f"{shown(title, 40)}: its statistics are cut or of ioping before 0.8 (left out)"
            )


def _measurement(source: Source, title: str, requests: str, body: str) -> Measurement | None:
    done, times = _DONE.search(body), _TIMES.search(body)
    if done is None or times is None:
        return None
    name = shown(title.split(" (")[0], 60)
    where = f"{name}: statistics"
    count = round(number_of(source, where, done[1]) * _SCALE[done[2]])
    seconds = seconds_of(source, where, done[3], done[4])
    low, mean, high, deviation = (
        seconds_of(source, where, times[k], times[k + 1]) for k in (1, 3, 5, 7)
    )
    request = _REQUEST.search(requests)
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
        block_size=size,
        jobs=1,
        iodepth=1,
        targets=1,
        duration_s=None if has_pauses else seconds,
    )
    reads = {"read": 1.0, "<<<": 1.0, "from": 1.0, "written": 0.0, ">>>": 0.0, "to": 0.0}
    return one_load(name, result, conditions, read_fraction=reads.get(does), source=FORMAT)
