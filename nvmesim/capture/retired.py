"""Formats that nvmesim once read: how their files are recognised, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from nvmesim.capture.text import Head

OWN_READER: Final = "write a reader (docs/howto/reader.md)"
_TRACE: Final = (
    "write its rows as Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (100 ns, bytes)"
)
_VSCSI: Final = re.compile(
    rb"""(?sx)\A(?:
      (?: .{4} \0... .{4} [\x08\x28\xa8\x88\x0a\x2a\xaa\x8a]\0 .\x01 .{16} ){2,8}    # 1
    | (?: [\x08\x28\xa8\x88\x0a\x2a\xaa\x8a]\0 .\x02 .{4} \0... .{4} .{24} ){2,8}            # 2
    )"""
)
"""Two requests or more: the version's byte, a SCSI READ or WRITE (SBC-4), a length in sectors."""
_LCS: Final = 0x123456789ABCDEF0.to_bytes(8, "little")
"""Source: 1a1a11a/libCacheSim, generalReader/lcs.h."""


class RetiredFormat(NamedTuple):
    """A format that is not read any more."""

    name: str
    is_of: Callable[[Head], object]
    """True for the head of a file of this format; may assume that no reader accepts it."""
    instead: str
    """What to do with such a file."""


def _text(pattern: str) -> Callable[[Head], object]:
    """Return a test for *pattern* in the text of a head."""
    regex = re.compile(pattern, re.M)
    return lambda head: regex.search(head.text)


def _bytes(*starts: bytes) -> Callable[[Head], object]:
    """Return a test for a head that starts with one of *starts*."""
    return lambda head: head.raw.startswith(starts)


RETIRED: Final = (
    RetiredFormat(
        "fio's compressed log (log_store_compressed)",
        _bytes(b"x\x01", b"x\x9c", b"x\xda"),
        "expand it with fio --inflate-log=FILE",
    ),
    RetiredFormat(
        "fio's histogram log (write_hist_log)",
        _text(r"\A\s*\d{1,15}, [0-2], \d{1,13}(?:, \d{1,19}){19}"),
        "give the report of the run: fio --output-format=json+ has the histogram",
    ),
    RetiredFormat(
        "esxtop -b",
        _text(r'\A"?\(PDH-CSV 4\.0\)[^\n]*\\(?:Physical Disk SCSI Device\(|Physical Cpu)'),
        "run fio --output-format=json+ in a guest, or make a table of points of it",
    ),
    RetiredFormat(
        "kbench",
        _text(r"^[ \t]*FIO Benchmark Summary\s*$"),
        "run fio --output-format=json+ in the pod",
    ),
    RetiredFormat(
        "kubestr",
        _text(r"^FIO test results:|^[ \t]*JobName: \S+\s+blocksize=\S* filesize="),
        "run its jobs with fio --output-format=json+ (kubestr fio -f names the job file)",
    ),
    RetiredFormat(
        "node_exporter",
        _text(r"^node_(?:disk_(?:reads|writes)_completed_total|cpu_seconds_total)\{"),
        "record drives with iostat -x -t 1",
    ),
    RetiredFormat(
        "rados bench",
        _text(r"^[ \t]*Total (?:writes|reads) made:|^[ \t]*sec Cur ops\s+started\s+finished"),
        "measure the drives below the pool with fio --output-format=json+",
    ),
    RetiredFormat("xperf -a dumper", _text(r"^[ \t]*Disk(?:Read|Write),\s*TimeStamp\s*,"), _TRACE),
    RetiredFormat("vSCSI", lambda head: _VSCSI.match(head.raw), _TRACE),
    RetiredFormat("LCS of libCacheSim", _bytes(_LCS), _TRACE),
    RetiredFormat(
        "arrivals of MQSim", _text(r"\A\s*(?:\d+ \d+ \d+ \d+ [01][ \t]*(?:\n|\Z))+"), _TRACE
    ),
)
"""The first that fits names the file."""


def retired_format(head: Head) -> RetiredFormat | None:
    r"""Return the retired format that *head* is of, None if it is of none.

    >>> text = "Total time run:  10.0\nTotal reads made:  12\n"
    >>> retired_format(Head(text.encode(), text, True)).name
    'rados bench'
    """
    return next((retired for retired in RETIRED if retired.is_of(head)), None)
