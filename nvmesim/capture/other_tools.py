"""Files of other tools, which lack a drive's rates or latencies: what they are, what would do."""

from __future__ import annotations

import re
import struct
from typing import Final

from nvmesim.capture.text import Head, shown

IOSTAT: Final = "record drives with iostat -x -t 1"
FIO: Final = "measure with fio --output-format=json+"
_OTHERS: Final = tuple(
    (re.compile(pattern, re.M), found, do)
    for pattern, found, do in (
        (
            r"^[ \t]*Run status group \d+ \(|^[ \t]*(?:read|write)\s*: IOPS=[^\n]*BW=",
            "is a part of fio's report: no job, no latencies",
            "copy the whole report, or use --output-format=json+",
        ),
        (
            r"^=+ \S+ =+\n\s*CPU +\d+: +\d+ events,",
            "is what blktrace says at its end: counts of events",
            "give its files (NAME.blktrace.0 and so on) or blkparse's text",
        ),
        (
            r"\A\s*\d+ +\d+ [a-z]\S* \d+ \d+ \d+ \d+ \d+ \d+ ",
            "is /proc/diskstats: counts since boot, no load",
            IOSTAT,
        ),
        (
            r"^Linux \S+ \([^\n]*\n+[\d:]{8}(?: [AP]M)?\s+(?:CPU|IFACE|runq-sz|kbmemfree|tps)\s",
            "is sar or mpstat without the table of devices",
            "run sar -d, or iostat -x -t 1",
        ),
        (r"^procs -+memory-+", "is vmstat: no device, no latency", IOSTAT),
        (r"\AAAA,progname,nmon", "is nmon's: no latencies", IOSTAT),
        (r"^\"(?:pcp-)?dstat ", "is dstat's: no latencies", IOSTAT),
        (
            r"^\"\(PDH-CSV 4\.0\)",
            "is Performance Monitor's log: which counters hold rates and waits is up to its author",
            "measure with diskspd -L -Rxml, or make a table of points of it",
        ),
        (r"Timing (?:cached|buffered disk) reads:", "is hdparm's: no requests, no latency", FIO),
        (r"^\d+ bytes \([^\n]*copied, ", "is dd's: bandwidth alone", FIO),
        (r"^sysbench \d", "is sysbench's: of files, through a cache, with flushes", FIO),
        (r"Iozone: Performance Test of File I/O", "is iozone's: bandwidth of files", FIO),
        (r"^1\.\d\d,1\.\d\d,[^\n]*\+\+\+", "is bonnie++'s: bandwidth of files", FIO),
        (
            r"^[ \t]+(?:Kbytes|kbytes|bytes)\s+: count\s+distribution",
            "is a histogram of sizes: no latency",
            "run biolatency",
        ),
        (
            r"^(?:Can't use -\w and|ERROR: |Error opening file:|.*no targets specified)",
            "holds messages of a benchmark and no result",
            "mend the cause and repeat the capture",
        ),
    )
)
"""Output of other tools, which has no drive's rates and latencies in it."""
_TABLE: Final = re.compile(r"\A[^\n,;\t]*(?:[,;\t][^\n,;\t]*)*[,;\t]\s*\"?iops\b[^\n]*\n", re.I)
_GENERAL: Final = struct.Struct("<IQIq")
"""A record of libCacheSim's oracleGeneral: time, object, size, when it is asked for next."""


def _is_oracle_general(raw: bytes) -> bool:
    """True if *raw* starts with records of a cache trace: each next use lies behind the record."""
    rows = list(_GENERAL.iter_unpack(raw[: 100 * _GENERAL.size][: len(raw) // 24 * 24]))
    times = [time for time, _, _, _ in rows]
    return (
        len(rows) > 1
        and b"\0" in raw
        and times == sorted(times)
        and all(0 < size < 1 << 31 for _, _, size, _ in rows)
        and all(following == -1 or following > at for at, (_, _, _, following) in enumerate(rows))
    )


def other_tool(head: Head) -> tuple[str, str] | None:
    r"""Return what a file is and what would do instead; None if it is of no known tool.

    >>> text = "procs -----------memory---------- ---swap--\\n"
    >>> other_tool(Head(text.encode(), text, True))
    ('is vmstat: no device, no latency', 'record drives with iostat -x -t 1')
    """
    for pattern, found, do in _OTHERS:
        if pattern.search(head.text):
            return found, do
    if _is_oracle_general(head.raw):
        return (
            "is a cache trace (oracleGeneral): objects and sizes, no reads, writes or latencies",
            "give the block trace that it was made of",
        )
    if _TABLE.search(head.text):
        first = shown(head.text.split("\n")[0], 60)
        return (
            f"is a table whose columns are not those of points ({first!r})",
            "name them op,block_size,jobs,iodepth,iops,lat_mean_us,p50_us,p99_us,source",
        )
    return None
