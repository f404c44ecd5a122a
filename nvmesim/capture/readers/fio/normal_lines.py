"""The lines of fio's normal output: what each is, and those that a mailer or terminal wrapped.

A line is known by its words, not by its indentation, which versions and mailers vary. One that
begins as fio's do and does not end so is joined with those below it until it does.
Source: fio stat.c, show_thread_status_normal, and init.c, of fio 1.50 to 3.42.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SECTION: Final = (
    r"(?P<name>[^\n\"]{1,300}?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): "
    r"err=\s*(?P<error>-?\d+)(?P<rest>[^\n]*)"
)
"""The first line of a report: of a job, or of a group of jobs."""
BANNER: Final = r"(?:<\S+> )?[^\n\"]{1,300}?: \(g=\d{1,9}\): rw=\w+[^\n]*"
DIRECTION: Final = r"[^\n:]{0,60}?\b(?P<op>read|write|trim|mixed)[ \t]*:[ \t]*(?=IOPS=|io=)"
INTERRUPTED: Final = "terminating on signal"
"""Text that fio prints of Ctrl-C and timeouts from outside."""
_DATE: Final = r"\w{3} \w{3}\s+\d{1,2} \d\d:\d\d:\d\d \d{4}"
_KINDS: Final = {
    # kind: (how it begins, how it is when whole; None: it is never wrapped)
    "section": (
        r"[^\n\"]{1,300}?: \(groupid=",
        SECTION.replace(r"(?P<rest>[^\n]*)", rf".*?pid=\d+(?:: {_DATE})?\s*"),
    ),
    "banner": (r"(?:<\S+> )?[^\n\"]{1,300}?: \(g=\d", rf"{BANNER}iodepth=\d+\s*"),
    "version": (r"fio[- ]\d[^\s;]*\s*$", None),
    "starting": (r"(?:<\S+> )?Starting \d+ (?:process|thread)", None),
    "direction": (DIRECTION, r".*(?:/\s*\d+msec\)|runt=\s*\d+msec)(?:; \d+ zone resets)?\s*"),
    "moments": (r"(?:slat|clat|lat) \([mnu]sec\)\s*:\s*min=", r".*stdev=\s*[\d.]+[kKM]?\s*"),
    "percentiles": (r"(?:(?:slat|clat|lat) )?percentiles \([mnu]sec\)\s*:", None),
    "percentile": (r"(?:\|\s*)?[\d.]+th=\[|\|\s*$", r".*\]\s*,?\s*"),
    "cpu": (r"cpu\s*:\s*usr=", r".*minf=\s*\d+.*"),
    "depths": (r"IO depths\s*:", r".*>=64=\s*[\d.]+%.*"),
    "issued": (r"issued(?: rwts?| r/w(?:/d)?)?\s*:\s*total=", r".*\bshort=.*"),
    "target": (r"latency\s*:\s*target=", r".*\bdepth=\d+\s*"),
    "group": (r"Run status group \d{1,9}\b", None),
    "sum": (
        r"(?:READ|WRITE|TRIM|MIXED)\s*:\s*(?:bw|io)=",
        r".*(?:run=\d+-\d+msec|m\w\w?t=\d+msec).*",
    ),
    "drives": (r"Disk stats", None),
    "drive": (r"[^\s:]+: ios=\d", r".*\butil=[\d.]+%.*"),
    "progress": (r"Jobs: \d+ \(f=", None),
    "message": (r"fio: ", None),
    "window": (r"(?:bw\s*\(|iops\s*:)", r".*stdev=\s*[\d.]+(?:, samples=\d+)?\s*"),
    "detail": (
        r"[,;] ?\w|(?:lat|submit|complete|errors|fsync/\S+|sync|slat|clat|Description|zone resets)"
        r"\b[^\n]{0,20}?[:=]",
        None,
    ),
    "ellipsis": (r"(?:\.{3}|…|[\[<(]\s*(?:\.{3}|…|snip|cut)[^\n]{0,40}[\]>)])\s*$", None),
    "command": (
        r"(?:[^\n]{0,200}?[\s/;&|(])?fio\s(?=[^\n]*(?:\s--?[a-z]|\.(?:fio|ini|job)\b|\\$))",
        None,
    ),
}
_START: Final = re.compile(
    r"[ \t]*(?:"
    + "|".join(f"(?P<k_{kind}>{start})" for kind, (start, _) in _KINDS.items())
    + ")".replace("(?P<op>", "(?:")
)
_WHOLE: Final = {
    kind: re.compile(r"[ \t]*" + whole) for kind, (_, whole) in _KINDS.items() if whole
}
LONGEST: Final = 4096
"""Characters of a line that are looked at."""
_MOST_PARTS: Final = 5
_WRAPPED: Final = 55
"""Shorter lines were not wrapped by anybody."""
_NUMBER_TAIL: Final = re.compile(r"[\d.]+[kKMG]?\s*")
_OPTION: Final = re.compile(r"\s*--?[a-z]")
_REST: Final = re.compile(r"\s*\S+\s*|[^\n]*\s--?(?:[a-z][^\n]*)?")
"""The rest of a command: a part of a word, or something with options."""


@dataclass
class Line:
    """One line of fio's, or of what stands around it."""

    number: int
    kind: str
    """A key of `_KINDS`; "blank", or "other"."""
    text: str
    parts: int = 1
    """Lines of the file that it was wrapped into."""


def kind_of(text: str) -> str:
    """Return what kind of line *text* begins.

    >>> kind_of("   READ: bw=1MiB/s"), kind_of("With the patch:"), kind_of("  ")
    ('sum', 'other', 'blank')
    """
    match = _START.match(text[:LONGEST])
    if match is None:
        return "other" if text.strip() else "blank"
    return str(match.lastgroup)[2:] if match.lastgroup else "other"


def read_lines(text: str) -> Iterator[Line]:
    r"""Yield the lines of *text*; those that were wrapped are whole again.

    >>> a, b = read_lines("j: (g=0): rw=read, bs=(R) 4096B-4096B, (W) 4096B-4096B,\n"
    ...                   "\t(T) 4096B-4096B, ioengine=libaio, iodepth=16\nfio-3.36\n".rstrip())
    >>> a.kind, a.parts, a.text[-9:], b.kind
    ('banner', 2, 'odepth=16', 'version')
    """
    raw = [Line(n, kind_of(line), line) for n, line in enumerate(text.split("\n"), start=1)]
    at = 0
    while at < len(raw):
        line = _joined(raw, at)
        at += line.parts
        yield line


def _joined(raw: list[Line], at: int) -> Line:
    """Return the line at *at*, with those below it that belong to it."""
    line = raw[at]
    if line.kind == "command":
        return _command(raw, at)
    if line.kind == "blank":
        return line
    whole = _WHOLE.get(line.kind)
    if whole is not None and not whole.fullmatch(line.text[:LONGEST]):
        line = _completed(raw, at, line.kind) or line
    elif len(line.text) >= _WRAPPED and _is_name(raw, at):
        # A long name may be cut before the words that say what the line is.
        line = _completed(raw, at, "section") or _completed(raw, at, "banner") or line
    following = raw[at + line.parts] if at + line.parts < len(raw) else None
    is_long = whole is not None and len(line.text) >= _WRAPPED
    is_tail = following is not None and following.kind == "other"
    if is_long and is_tail and following and _NUMBER_TAIL.fullmatch(following.text):
        # A terminal cuts within a number; without its tail the line looks whole.
        return Line(line.number, line.kind, line.text + following.text, line.parts + 1)
    return line


def _is_name(raw: list[Line], at: int) -> bool:
    """True if the line at *at* may be the start of one that begins with a job's name."""
    below = raw[at + 1] if at + 1 < len(raw) else None
    if raw[at].kind != "other" or below is None or below.kind != "other":
        return False
    seam = raw[at].text[-12:] + below.text[:80]
    return re.search(r":\s*\(\s*g(?:roupid)?=\d", seam) is not None


def _completed(raw: list[Line], at: int, kind: str) -> Line | None:
    """Return the line at *at* with as many below as make it whole; None if none do."""
    texts = [raw[at].text]
    for count, below in enumerate(raw[at + 1 : at + _MOST_PARTS], start=2):
        if below.kind not in ("other", "percentile", "detail", "window") or not below.text.strip():
            return None
        texts = [join for text in texts for join in (text + below.text, _spaced(text, below.text))]
        for text in texts:
            if _WHOLE[kind].fullmatch(text[:LONGEST]):
                return Line(raw[at].number, kind, text, count)
    return None


def _spaced(text: str, below: str) -> str:
    return f"{text.rstrip()} {below.lstrip()}"


def _command(raw: list[Line], at: int) -> Line:
    """Return a command with the lines that go on with it.

    It goes on behind a backslash, with an option, or within a word that a terminal cut.
    """
    line = raw[at]
    text, parts = line.text, 1
    for below in raw[at + 1 : at + 40]:
        if text.rstrip().endswith("\\"):
            text = _spaced(text.rstrip()[:-1], below.text)
        elif below.kind not in ("other", "command") or len(raw[at + parts - 1].text) < _WRAPPED:
            break
        elif re.search(r"\s--?$", text) and below.text[:1] in "-" + "abcdefghijklmnopqrstuvwxyz":
            text += below.text
        elif below.kind == "other" and _OPTION.match(below.text):
            text = _spaced(text, below.text)
        elif below.kind == "other" and _REST.fullmatch(below.text):
            text = _seam(text, below.text)
        else:
            break
        parts += 1
    return Line(line.number, "command", text, parts)


def _seam(text: str, below: str) -> str:
    """Join a word that was cut; what stands behind a blank was not."""
    return _spaced(text, below) if below[:1].isspace() or text[-1:].isspace() else text + below
