"""What stands before fio's reports about their load: a banner, a command, a job file, a heading.

A banner names a few options, a whole command all of them. Where both stand they must agree: what
else it says is then taken from the command, and an absent option has fio's default.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.readers.fio.normal_lines import Line
from nvmesim.capture.readers.fio.options import Options
from nvmesim.capture.text import shown
from nvmesim.scenario.loads import fio_words as words
from nvmesim.scenario.loads.fio_options import HONOURED, IGNORED, REFUSED

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
_SECTION: Final = re.compile(r"\[([^\]\n]{1,60})\]")
_SETTING: Final = re.compile(r"([a-z][a-z0-9_-]*)(?:\s*=\s*(\S[^\n]*?))?\s*")
_HEADING: Final = re.compile(
    r"\s*(?:#+\s+(\S[^\n]{0,80})|(/[\w./-]{1,80}):?\s*|(\S[^\n]{0,60}?)\s*:\s*)"
)
_KNOWN: Final = frozenset((*HONOURED, *IGNORED, *REFUSED, *words.ALIASES))
_FLAGS: Final = frozenset(
    (
        *("time_based", "group_reporting", "thread", "norandommap", "stonewall", "exitall"),
        *("minimal", "new_group", "hipri", "fixedbufs", "gtod_reduce", "refill_buffers"),
        *("zero_buffers", "overwrite", "unlink", "do_verify"),
    )
)
"""Options that stand without a value. Source: fio HOWTO."""
_HEADING_LINES: Final = 6
Given = dict[str, str]


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

    def options(self, group: int, name: str) -> Options:
        """Return what is known of the options of job *name*, perhaps nothing."""
        shown_there = self.banner.get((group, name), {})
        below = self.job_file.get(name)
        is_whole = below is not None
        if below is None and len(self.command) == 1:
            below, is_whole = next(iter(self.command.values())), self.is_whole
        elif below is None:
            below, is_whole = self.command.get(name, {}), self.is_whole and name in self.command
        if _contradicts(below, shown_there):
            below, is_whole = {}, False
        return Options({**below, **shown_there}, complete=is_whole)

    @property
    def target(self) -> str:
        """The file, drive or folder that the command names, or nothing."""
        given = next(iter(self.command.values()), {})
        return shown(given.get("filename") or given.get("directory") or "", 40)


def read_stated_load(before: list[Line], lines: Iterable[Line]) -> StatedLoad:
    """Return the load stated in *lines* of fio and in what stands *before* them."""
    banner: dict[tuple[int, str], Given] = {}
    version, threads = None, None
    for line in lines:
        if line.kind == "banner" and (match := _BANNER.match(line.text)):
            banner[int(match["group"]), shown(match["name"], 60)] = _of_banner(match)
        elif line.kind == "version":
            version = re.split(r"[- ]", line.text.strip(), maxsplit=1)[1]
        elif line.kind == "starting" and (starting := _STARTING.search(line.text)):
            threads = int(starting[1])
    commands = [line.text for line in before if line.kind == "command"]
    command, is_whole = parse_command(commands[-1]) if commands else ({}, False)
    return StatedLoad(
        version, banner, threads, command, is_whole, _job_files(before), _heading(before)
    )


def _of_banner(match: re.Match[str]) -> Given:
    given = {"rw": match["rw"], "ioengine": match["engine"], "iodepth": match["depth"]}
    # fio 3 prints "(R) 4096B-4096B, (W) ...", fio 2 "4K-4K/4K-4K/4K-4K".
    pattern = _SIZES if "(R)" in match["bs"] else _OLD_SIZES
    pairs = pattern.findall(match["bs"])[:2]
    if any(low != high for low, high in pairs):
        given["bsrange"] = match["bs"]
    elif pairs:
        given["bs"] = ",".join(_OLD_KB.sub(r"\1", low) for low, _ in pairs)
    return given


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
        key = words.ALIASES.get(key, key)
        is_whole &= key in _KNOWN or key == "name"
        waiting = "" if equals or key in _FLAGS else key
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
        section, setting = _SECTION.fullmatch(text), _SETTING.fullmatch(text)
        if section is not None:
            if section[1] == "global":
                given = common = {}
            else:
                given = found[shown(section[1], 60)] = dict(common)
        elif given is not None and setting is not None and setting[1] in _KNOWN:
            key = words.ALIASES.get(setting[1], setting[1])
            given[key] = setting[2] or "1"
        elif text and text[0] not in "#;":
            given = None
    return {name: options for name, options in found.items() if options}


def _heading(before: list[Line]) -> str:
    """Return the title that stands above a report: "# title", a path, or a line with a colon."""
    near = [line for line in before if line.text.strip()]
    for line in reversed(near[-_HEADING_LINES:]):
        match = _HEADING.fullmatch(line.text) if line.kind == "other" else None
        if match is not None and not _SETTING.fullmatch(line.text.strip()):
            return shown(match[1] or match[2] or match[3], 40)
    return ""


def _contradicts(command: Mapping[str, str], banner: Mapping[str, str]) -> bool:
    """True if a command cannot be that of a banner."""
    both = Options(command, complete=False), Options(banner, complete=False)
    if not command or not banner:
        return False
    facts = [
        (o.given.get("rw", "").partition(":")[0], o.given.get("ioengine", "").partition(":")[0])
        for o in both
    ]
    numbers = [(o.whole("iodepth"), o.block_sizes("read"), o.block_sizes("write")) for o in both]
    pairs = [*zip(*facts, strict=True), *zip(*numbers, strict=True)]
    return any(
        a and b and words.ALIASES.get(a, a) != b if isinstance(a, str) else a and b and a != b
        for a, b in pairs
    )
