"""Files given by mistake where a capture or a scenario belongs, and what to do instead."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nvmesim.capture.other_tools import other_tool
from nvmesim.capture.text import Head

_SCENARIO: Final = re.compile(r"^\[+\s*(?:server|drives|workload|volume|adapters)\b", re.M)
_GOAL: Final = re.compile(r"^\[+\s*(?:constraints|candidates|objective)\b", re.M)
_PROFILE: Final = re.compile(r"^kind\s*=\s*[\"'](drive|cpu|stack|raid-engine|platform)[\"']", re.M)
_JOB: Final = re.compile(r"^[ \t]*\[[^\]\n]+\]\s*$", re.M)
_JOB_OPTION: Final = re.compile(r"^[ \t]*(?:rw|readwrite|ioengine|iodepth|bs|blocksize)\s*=", re.M)
_RESULT: Final = re.compile(r'"nvmesim"\s*:.*"(?:schema|scenario|engine)"\s*:', re.S)
_FAILED: Final = re.compile(
    r"^(?:.*modprobe: FATAL.*|.*[Pp]ermission denied.*|.*[Oo]peration not permitted.*|"
    r"Traceback \(most recent call last\):|.*command not found.*|.*: not found)$",
    re.M,
)
_FIO_MESSAGE: Final = re.compile(r"^fio: \S[^\n]*$", re.M)
_BTT: Final = re.compile(r"^=+ (?:All Devices|Device Overhead|Per Process) =+", re.M)
_PLAIN_IOSTAT: Final = re.compile(r"^[ \t]*(?:\S+: )?\S+\s+tps\s+\S+(?:_read|rtn)/s\s", re.M)
_PAGE: Final = re.compile(r"\s*<(?:!doctype html|html)\b", re.I)
_FORMAT: Final = re.compile(r"\Aname: \w+\nID: \d+\nformat:", re.M)
FAMILIES: Final = (
    "fio (JSON, text, terse, logs), DiskSpd, blktrace and blkparse, perf script, ftrace, "
    "biosnoop, biolatency, Iometer, iostat -x, sar -d, vdbench, elbencho, SPDK perf and bdevperf, "
    "CrystalDiskMark, KDiskMark, YABS, ioping, published traces as CSV, tables of points"
)


class Mistaken(NamedTuple):
    """A file that is not a capture."""

    kind: str
    """As "scenario", "goal", "profile", "job", "result", "other"."""
    text: str
    """Description that follows its name: "is a scenario, no capture"."""
    instead: str
    """Advice: what to do with it."""


def what_else(head: Head) -> Mistaken | None:
    r"""Say what a file that is not a capture is, and what to do with it; None if it is not known.

    >>> text = "[server]\\nstack = 'linux-libaio'\\n"
    >>> what_else(Head(text.encode(), text, True)).instead
    'predict it with nvmesim run'
    """
    text = head.text
    profile = _PROFILE.search(text)
    if _GOAL.search(text):
        return Mistaken("goal", "is a goal, no capture", "give it to nvmesim choose")
    if _SCENARIO.search(text):
        return Mistaken("scenario", "is a scenario, no capture", "predict it with nvmesim run")
    if profile:
        return Mistaken(
            "profile",
            f"is a {profile[1]} profile, no capture",
            "a scenario names it, as in examples/",
        )
    if _JOB.search(text) and _JOB_OPTION.search(text):
        return Mistaken(
            "job",
            "is a fio job file, no capture",
            "run it with fio --output-format=json+, or name it in a scenario: fio = 'FILE'",
        )
    if head.raw.startswith(b"PAR1"):
        return Mistaken(
            "other", "is a Parquet table", "captures are what fio, DiskSpd or a tracer wrote"
        )
    if _RESULT.search(text):
        return Mistaken(
            "result",
            "is a result of nvmesim, no capture",
            "give what fio, DiskSpd or a tracer wrote",
        )
    if _BTT.search(text):
        return Mistaken(
            "other",
            "is what btt made of a trace",
            "give the trace itself: blkparse's text or its files",
        )
    if _FORMAT.search(text):
        return Mistaken(
            "other", "describes a tracepoint", "give the events: perf script or the trace file"
        )
    if _PLAIN_IOSTAT.search(text):
        return Mistaken(
            "other", "is plain iostat: without -x it has no waits, no queue", "run iostat -x -t 1"
        )
    if _PAGE.match(text):
        return Mistaken(
            "other", "is a web page, no capture", "save the file itself, not the page that shows it"
        )
    message = _FIO_MESSAGE.search(text)
    if message and len(text) < 20_000:
        return Mistaken(
            "other",
            f"holds messages of fio and no result ({message[0].strip()[:80]!r})",
            "mend the cause and repeat the capture",
        )
    tool = other_tool(head)
    if tool:
        return Mistaken("other", *tool)
    failed = _FAILED.search(text)
    if failed and len(text) < 20_000:
        return Mistaken(
            "other",
            f"holds a failed command, no capture ({failed[0].strip()[:60]!r})",
            "mend the cause and repeat the capture",
        )
    return None
