"""Which tools printed the text of a file: one dump or several, as collected or as pasted.

What all dumps of one server say is put together here.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from nvmesim.capture.text import Source, TextSource, shown
from nvmesim.describe import listings, pci
from nvmesim.describe.facts import Array, Disk, Facts, FoundCpu, Nodes, Slot
from nvmesim.errors import InputError
from nvmesim.files import package_tables

LARGEST: Final = 32 << 20  # bytes; lstopo of the largest machines writes 2 MB
MARK: Final = "#####"
"""Begins the lines that the collecting script puts before each command."""


@dataclass(frozen=True)
class Dump:
    """One kind of dump."""

    tool: str
    start: str  # pattern of its first line
    rest: str  # pattern of what follows; "json": to the end of the value
    read: Callable[[Source], Facts]


_FUNCTION: Final = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [^:\n]+: .*"
_INDENTED: Final = r"[ \t]+\S.*|[ \t]*"
DUMPS: Final = (
    # Where two say the same thing, the earlier one is believed.
    Dump("lspci -vv", rf"{_FUNCTION}$",
        rf"(?:\n(?:{_FUNCTION}|{_INDENTED}|(?:Lnk\w+|NUMA node):.*)$)*", pci.read_lspci),
    Dump("nvme list -o json", r"[ \t]*\{\s{0,99}\"Devices\"\s*:", "json", listings.read_nvme_list),
    Dump("nvme list", r"Node +(?:Generic +)?SN +Model\b.*\n-[- ]+$", r"(?:\n/dev/\S+ .*$)*",
        listings.read_nvme_table),
    Dump("lscpu", r"Architecture *\u00a0?:.*$",
        r"(?:\n(?!Personalities)[ \t]*[^\W\d][^:\n]*:(?:[ \t\u00a0].*)?$)*", listings.read_lscpu),
    Dump("lscpu -J", r"[ \t]*\{\s{0,99}\"lscpu\"\s*:", "json", listings.read_lscpu_json),
    Dump("lsblk -J", r"[ \t]*\{\s{0,99}\"blockdevices\"\s*:", "json", listings.read_lsblk),
    Dump("lstopo --of xml", r"[ \t]*<(?:\?xml|!DOCTYPE topology|topology|object)\b",
        r"(?s:(?!.*</topology>).*|.*?</topology>)", pci.read_lstopo),
    Dump("mdadm --detail", r"/dev/\S+:\n[ \t]+(?:Version|Container) : .*$",
        rf"(?:\n(?:/dev/\S+:|[A-Z][\w ]+ : .*|{_INDENTED})$)*", listings.read_detail),
    Dump("/proc/mdstat", r"Personalities :.*$",
        rf"(?:\n(?:md\S+ : .*|{_INDENTED})$)*(?:\nunused devices:.*$)?", listings.read_mdstat),
)  # fmt: skip
_START: Final = re.compile("|".join(f"(^{dump.start})" for dump in DUMPS), re.M)
_COMMAND: Final = re.compile(
    rf"^(?:{MARK}.*|[^#$%>\n]{{0,80}}[#$%>] ?(?:sudo |LC_ALL=C )*"
    r"(?:lscpu|lspci|lsblk|lstopo|nvme|mdadm|cat)\b.*)$",
    re.M,
)
"""A line that names the command below it: of the script, or after a shell's prompt."""
_ABSENT: Final = re.compile(rf"^{MARK} (?:not installed|failed): (.{{1,80}})$", re.M)


@dataclass(frozen=True)
class ReadDump:
    """The facts of one dump, and the file that it is in."""

    path: Path
    dump: Dump
    facts: Facts


@dataclass(frozen=True)
class FileSections:
    """Everything that a file holds."""

    dumps: tuple[ReadDump, ...]
    ignored: tuple[str, ...]  # pieces that are no dump, each with its line
    absent: tuple[str, ...]  # commands that the collecting script could not run


def read_file(path: Path) -> FileSections:
    """Return what the file *path* says, dump by dump.

    Raises
    ------
    InputError
        One line: the file, what was found, what would do.
    """
    source = Source(path)
    if not source.head.raw.strip():
        raise source.error("is empty", "run the command again")
    text = source.text(LARGEST)
    dumps: list[ReadDump] = []
    ignored: list[str] = []
    at = 0
    while match := _START.search(text, at):
        dump = DUMPS[(match.lastindex or 1) - 1]
        ignored += _ignored(path, text, at, match.start())
        at = _end(dump, text, match)
        is_all = (match.start(), at) == (0, len(text))
        part = source if is_all else TextSource(source, text[match.start() : at])
        try:
            facts = dump.read(part)
        except InputError:
            raise
        except ValueError as error:  # of more digits than Python converts, or of other digits
            found = f"holds a number that cannot be read ({shown(error, 60)})"
            raise part.error(found, "run the command again") from None
        dumps.append(ReadDump(path, dump, facts))
    if not dumps:
        raise _unknown(source, text)
    ignored += _ignored(path, text, at, len(text))
    return FileSections(tuple(dumps), tuple(ignored), tuple(_ABSENT.findall(text)))


def _end(dump: Dump, text: str, start: re.Match[str]) -> int:
    if dump.rest != "json":
        rest = re.compile(dump.rest, re.M).match(text, start.end())
        return rest.end() if rest else start.end()
    try:
        return json.JSONDecoder().raw_decode(text, text.index("{", start.start()))[1]
    except (ValueError, RecursionError):  # cut or broken: the reader says where
        following = _COMMAND.search(text, start.end())
        return following.start() if following else len(text)


def _ignored(path: Path, text: str, start: int, end: int) -> Iterator[str]:
    """Name what stands between two dumps, but for lines that name a command."""
    piece = _COMMAND.sub("", text[start:end])
    lines = [line for line in piece.split("\n") if line.strip()]
    if not lines:
        return
    first = text.count("\n", 0, text.find(lines[0], start)) + 1
    named = [f"{what} (give {instead})" for what, instead in _others(piece)]
    what = " and ".join(named) or repr(shown(lines[0], 40))
    yield f"{shown(path.name)}, {len(lines)} lines from line {first}: {what}"


def _others(text: str) -> list[tuple[str, str]]:
    others = package_tables(__package__, "others.toml")["other"]
    found = [other for other in others if re.search(other["pattern"], text, re.M)]
    return [(other["what"], other["give"]) for other in found]


def _unknown(source: Source, text: str) -> InputError:
    plain = text.lstrip()
    for what, instead in _others(plain[:4000]):
        return source.error(f"is {what}", f"give {instead}")
    absent = _ABSENT.findall(text)
    if absent:
        return source.error(f"holds no dump: not run were {', '.join(absent)}", "run it as root")
    known = ", ".join(dump.tool for dump in DUMPS)
    return source.error(
        f"is not a dump that nvmesim knows (it starts with {shown(plain, 40)!r})", known
    )


Record = TypeVar("Record", Slot, Disk, Array)


def merged(read: Sequence[ReadDump]) -> Facts:
    """Return what all dumps say together, the more exact ones first.

    Where they contradict each other, an InputError says so.
    """
    ordered = sorted(read, key=lambda entry: DUMPS.index(entry.dump))
    every = [entry.facts for entry in ordered]
    whole = Facts(cpu=_cpu(ordered))
    memory, socket_of = (
        _known(vars(facts.nodes)[name] for facts in every if facts.nodes)
        for name in ("memory", "socket_of")
    )
    whole.nodes = Nodes(memory, socket_of) if memory else None
    whole.packets = next((facts.packets for facts in every if facts.packets), None)
    whole.slots = _union((slot for facts in every for slot in facts.slots), "address")
    whole.disks = _union((disk for facts in every for disk in facts.disks), "name")
    whole.arrays = _union((array for facts in every for array in facts.arrays), "name")
    # what dumps say of all arrays, or of one
    answers = {(e.dump.tool, "") for e in read}
    answers |= {(e.dump.tool, array.name) for e in read for array in e.facts.arrays}
    for entry in read:
        name = f"{shown(entry.path.name)} ({entry.dump.tool})"
        whole.read += [f"{name}: {text}" for text in entry.facts.read]
        for a in entry.facts.assumed:
            if a not in whole.assumed and (a.unless, a.array) not in answers:
                whole.assumed.append(a)
    return whole


def _known(tables: Iterable[Mapping[int, int | None]]) -> dict[int, int | None]:
    """Return all *tables* as one, the last that knows a value counts."""
    found: dict[int, int | None] = {}
    for table in tables:
        for key, value in table.items():
            found[key] = found.get(key) if value is None else value
    return found


def _cpu(read: Sequence[ReadDump]) -> FoundCpu | None:
    """Return the CPU of the first dump that names one; all must count alike."""
    found = [(entry, entry.facts.cpu) for entry in read if entry.facts.cpu]
    if not found:
        return None
    one, first = found[0]
    for entry, cpu in found[1:]:
        if (cpu.sockets, cpu.cores) != (first.sockets, first.cores):
            raise InputError(
                f"{one.path.name} ({one.dump.tool}) says {first.sockets} sockets of {first.cores} "
                f"cores, {entry.path.name} ({entry.dump.tool}) {cpu.sockets} of {cpu.cores}; give "
                "the dumps of one server"
            )
    best = next((cpu for _, cpu in found if cpu.model), first)
    return replace(
        best,
        base_ghz=next((c.base_ghz for _, c in found if c.base_ghz), None),
        bogomips=next((c.bogomips for _, c in found if c.bogomips), None),
        guest=any(c.guest for _, c in found),
    )


def _union(records: Iterable[Record], key: str) -> list[Record]:
    """Return one record for each *key*; what an earlier one leaves open a later one fills."""
    found: dict[str, Record] = {}
    for record in records:
        name = getattr(record, key)
        first = found.get(name, record)
        unknown = {k: getattr(record, k) for k, v in vars(first).items() if v in (None, "", ())}
        found[name] = replace(first, **unknown)
    return list(found.values())
