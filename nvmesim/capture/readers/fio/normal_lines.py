"""The lines of fio's normal output, whole again where they were wrapped, and the load they state.

A line is known by its words, not by its indentation, which versions and mailers vary. One that
begins as fio's do and does not end so is joined with those below it until it does. The load stands
in a banner, a command, a job file or a heading.
Source: fio stat.c, show_thread_status_normal, and init.c, of fio 1.50 to 3.42.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Final

from nvmesim.capture.text import shown
from nvmesim.scenario.loads.fio_options import FioOptions, full_name, known_options, listed

SECTION: Final = (
    r"(?P<name>[^\n\"]{1,300}?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): "
    r"err=\s*(?P<error>-?\d+)(?P<rest>[^\n]*)"
)
"""The first line of a report: of a job, or of a group of jobs."""
BANNER: Final = r"(?:<\S+> )?[^\n\"]{1,300}?: \(g=\d{1,9}\): rw=\w+[^\n]*"
DIRECTION: Final = r"[^\n:]{0,60}?\b(?P<op>read|write|trim|mixed)[ \t]*:[ \t]*(?=IOPS=|io=)"
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
        r"(?:[A-Z]{1,20} )?(?:READ|WRITE|TRIM|MIXED)\s*:\s*(?:bw|io)=",
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
    r"[ \t]*(?:" + "|".join(f"(?P<k_{kind}>{start})" for kind, (start, _) in _KINDS.items()) + ")"
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
_BANNER: Final = re.compile(
    r"[ \t]*(?:<\S+> )?(?P<name>[^\n]+?): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>\w+)[^,\n]*, "
    r"bs=(?P<bs>[^\n]+?), ?ioengine=(?P<engine>\w+), iodepth=(?P<depth>\d{1,9})"
)
_SIZE: Final = r"([0-9.]{1,24}[A-Za-z]{0,4})-([0-9.]{1,24}[A-Za-z]{0,4})"
_SIZES: Final = re.compile(rf"\([RWT]\)\s*{_SIZE}")
_OLD_SIZES: Final = re.compile(_SIZE)
_OLD_KB: Final = re.compile(r"(?<=[0-9])([KMG])i?B?$")
_STARTING: Final = re.compile(r"Starting (\d{1,7}) ")
_FIO: Final = re.compile(r"(?:^|[\s/;&|(])fio\s")
_FIRST_OPTION: Final = re.compile(r"\s--?[a-z]")
_SHELL_END: Final = re.compile(r"\d?[|>;&]")
_JOB_SECTION: Final = re.compile(r"\[([^\]\n]{1,60})\]")
_SETTING: Final = re.compile(r"([a-z][a-z0-9_-]*)(?:\s*=\s*(\S[^\n]*?))?\s*")
_HEADING: Final = re.compile(
    r"\s*(?:#+\s+(\S[^\n]{0,80})|(/[\w./-]{1,80}):?\s*|(\S[^\n]{0,60}?)\s*:\s*)"
)
_HEADING_LINES: Final = 6
Given = dict[str, str]


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
    return str(match.lastgroup).removeprefix("k_")


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
        line = _command(raw, at) if raw[at].kind == "command" else _joined(raw, at)
        at += line.parts
        yield line


def _joined(raw: list[Line], at: int) -> Line:
    """Return the line at *at*, with those below it that belong to it."""
    line = raw[at]
    whole = _WHOLE.get(line.kind)
    if whole is not None and not whole.fullmatch(line.text[:LONGEST]):
        line = _completed(raw, at, line.kind) or line
    elif len(line.text) >= _WRAPPED and _is_name(raw, at):
        # A long name may be cut before the words that say what the line is.
        line = _completed(raw, at, "section") or _completed(raw, at, "banner") or line
    below = raw[at + line.parts] if at + line.parts < len(raw) else None
    if whole is None or len(line.text) < _WRAPPED or below is None or below.kind != "other":
        return line
    # A terminal cuts within a number; without its tail the line looks whole.
    is_tail = _NUMBER_TAIL.fullmatch(below.text)
    return replace(line, text=line.text + below.text, parts=line.parts + 1) if is_tail else line


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
    text, parts = raw[at].text, 1
    for below in raw[at + 1 : at + 40]:
        if text.rstrip().endswith("\\"):
            text = _spaced(text.rstrip()[:-1], below.text)
        elif below.kind not in ("other", "command") or len(raw[at + parts - 1].text) < _WRAPPED:
            break
        elif re.search(r"\s--?$", text) and below.text[:1] in "-" + ascii_lowercase:
            text += below.text
        elif below.kind == "other" and _OPTION.match(below.text):
            text = _spaced(text, below.text)
        elif below.kind == "other" and _REST.fullmatch(below.text):
            # What stands behind a blank was not cut within a word.
            is_word = below.text[:1].isspace() or text[-1:].isspace()
            text = _spaced(text, below.text) if is_word else text + below.text
        else:
            break
        parts += 1
    return replace(raw[at], text=text, parts=parts)


@dataclass(frozen=True)
class StatedLoad:
    """Options by source, each perhaps missing."""

    version: str | None = None
    banner: Mapping[tuple[int, str], Given] = field(default_factory=dict)
    """(group, job) -> what a banner shows: rw, bs, ioengine, iodepth."""
    threads: int | None = None
    command: Mapping[str, Given] = field(default_factory=dict)
    """Job -> options of the last command."""
    is_whole: bool = False
    """True if the command has all options: no job file, no variable of a shell."""
    job_file: Mapping[str, Given] = field(default_factory=dict)
    heading: str = ""

    def options(self, group: int, name: str) -> FioOptions:
        """Return what is known of the options of job *name*, perhaps nothing.

        A banner names a few options, a whole command all of them. Where both stand they must
        agree: what else it says is then taken from the command, and an absent option has fio's
        default.
        """
        in_banner = self.banner.get((group, name), {})
        if name in self.job_file:
            below, is_whole = self.job_file[name], True
        elif len(self.command) == 1:
            (below,), is_whole = self.command.values(), self.is_whole
        else:
            below, is_whole = self.command.get(name, {}), self.is_whole and name in self.command
        if any(a and b and a != b for a, b in zip(_facts(below), _facts(in_banner), strict=True)):
            below, is_whole = {}, False
        return FioOptions({**below, **in_banner}, complete=is_whole)

    @property
    def target(self) -> str:
        """The file, drive or folder that the command names, or nothing."""
        given = next(iter(self.command.values()), {})
        return shown(given.get("filename") or given.get("directory") or "", 40)


def _facts(given: Given) -> tuple[object, ...]:
    """Return what a command and its banner must agree in."""
    options = FioOptions(given, complete=False)
    rw, engine = (options.given.get(key, "").partition(":")[0] for key in ("rw", "ioengine"))
    sizes = options.block_sizes("read"), options.block_sizes("write")
    return full_name(rw), engine, options.whole("iodepth"), *sizes


def read_stated_load(before: list[Line], lines: Iterable[Line]) -> StatedLoad:
    """Return the load stated in *lines* of fio and in what stands *before* them."""
    banner: dict[tuple[int, str], Given] = {}
    version, threads = None, None
    for line in lines:
        if line.kind == "banner" and (match := _BANNER.match(line.text)):
            given = {"rw": match["rw"], "ioengine": match["engine"], "iodepth": match["depth"]}
            # fio 3 prints "(R) 4096B-4096B, (W) ...", fio 2 "4K-4K/4K-4K/4K-4K".
            pattern = _SIZES if "(R)" in match["bs"] else _OLD_SIZES
            pairs = pattern.findall(match["bs"])[:2]
            if any(low != high for low, high in pairs):
                given["bsrange"] = match["bs"]
            elif pairs:
                given["bs"] = ",".join(_OLD_KB.sub(r"\1", low) for low, _ in pairs)
            banner[int(match["group"]), shown(match["name"], 60)] = given
        elif line.kind == "version":
            version = re.split(r"[- ]", line.text.strip(), maxsplit=1)[1]
        elif line.kind == "starting" and (starting := _STARTING.search(line.text)):
            threads = int(starting[1])
    commands = [line.text for line in before if line.kind == "command"]
    command, is_whole = parse_command(commands[-1]) if commands else ({}, False)
    return StatedLoad(
        version, banner, threads, command, is_whole, _job_files(before), _heading(before)
    )


def parse_command(text: str) -> tuple[dict[str, Given], bool]:
    """Return job -> options of a fio command, and whether they are all of them.

    >>> parse_command("$ sudo fio --name=a --direct=1 --bs 4k -iodepth=8 --thread")
    ({'a': {'direct': '1', 'bs': '4k', 'iodepth': '8', 'thread': '1'}}, True)
    >>> parse_command("fio job.fio --iodepth=$QD --rw=read")
    ({'': {'rw': 'read'}}, False)
    """
    option = _FIRST_OPTION.search(text)
    starts = [m.end() for m in _FIO.finditer(text, 0, option.end() if option else len(text))]
    tail = text[starts[-1] if starts else 0 :]
    try:
        parts = shlex.split(tail)
    except ValueError:
        parts = tail.replace('"', " ").replace("'", " ").split()
    common: Given = {}
    jobs: dict[str, Given] = {}
    given, is_whole = common, True
    waiting = ""
    for part in parts:
        if _SHELL_END.match(part):
            break
        if not re.match(r"--?[a-z]", part):
            is_whole &= bool(waiting)
            if waiting:
                given[waiting] = part
            waiting = ""
            continue
        key, equals, value = part.lstrip("-").partition("=")
        key = full_name(key)
        is_whole &= key in known_options() or key == "name"
        waiting = "" if equals or key in listed("fio", "flags") else key
        if key == "name" and equals:
            given = jobs[value] = dict(common)
        elif "$" in value or "`" in value:
            is_whole = False
        else:
            given[key] = value if equals else "1"
    return jobs or {"": common}, is_whole and bool(option)


def _job_files(lines: Iterable[Line]) -> dict[str, Given]:
    """Return section -> options of the job files that stand in *lines*."""
    found: dict[str, Given] = {}
    common: Given = {}
    given: Given | None = None
    for line in lines:
        text = line.text.strip()
        section, setting = _JOB_SECTION.fullmatch(text), _SETTING.fullmatch(text)
        key = full_name(setting[1]) if setting else ""
        if section is not None and section[1] == "global":
            given = common = {}
        elif section is not None:
            given = found[shown(section[1], 60)] = dict(common)
        elif given is not None and setting is not None and key in known_options():
            given[key] = setting[2] or "1"
        elif text and text[0] not in "#;":
            given = None
    return {name: options for name, options in found.items() if options}


def _heading(before: list[Line]) -> str:
    """Return the title that stands above a report: "# title", a path, or a line with a colon."""
    for line in reversed([line for line in before if line.text.strip()][-_HEADING_LINES:]):
        match = _HEADING.fullmatch(line.text) if line.kind == "other" else None
        if match is not None and not _SETTING.fullmatch(line.text.strip()):
            return shown(match[1] or match[2] or match[3], 40)
    return ""
