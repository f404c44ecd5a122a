"""DiskSpd command lines: as workloads, and as the load of results found in captures.

Source: microsoft/diskspd wiki, Command line and parameters (2.2).
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from nvmesim import units
from nvmesim.errors import ScenarioError, nearest
from nvmesim.scenario.loads.fio_options import ParsedLoad, listed, whole

_FLAGS: Final = ("b", "c", "r", "rd", "s", "B", "f", "g", "S", "h")
"""Flags beside those that are a number."""
DEFAULT_BLOCK: Final = 64 * 1024
DEFAULT_OUTSTANDING: Final = 2
DEFAULT_THREADS: Final = 1
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(b|[kmgt](?:ib)?)?", re.IGNORECASE)
_SCALE: Final = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SLASHED: Final = re.compile(r"/(?:[A-Za-z]{1,2}[0-9,:.]*[KMGTBkmgtbi]?|Rxml|Rtext|Suw)")


def flag_of_key() -> Mapping[str, str]:
    """Return the flag that says a key of a workload, by that key."""
    found: dict[str, str] = listed("diskspd", "keys")
    return found


def size_bytes(text: str, block: int = 1) -> int | None:
    """Return the bytes of a size as DiskSpd takes or prints it; None if it is none.

    K M G T are powers of 1024, ``b`` counts blocks of *block* bytes, no suffix is bytes.

    >>> size_bytes("4KiB"), size_bytes("4096"), size_bytes("64K"), size_bytes("2b", 4096)
    (4096, 4096, 65536, 8192)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    suffix = (match[2] or "")[:1].lower()
    return int(match[1]) * (block if suffix == "b" else _SCALE.get(suffix, 1))


def flags_and_targets(words: list[str]) -> tuple[list[str], list[str]]:
    r"""Return flags, each with a dash, and targets of the words behind the program's name.

    A slash begins a flag as well, and the path of a file on Linux.

    >>> flags_and_targets(["diskspd.exe", "-b4K", "/t8", "#1", '"C:\\a.dat"'])
    (['-b4K', '-t8'], ['#1', 'C:\\a.dat'])
    """
    bare = [word.strip("\"'") for word in words]
    if bare and re.search(r"diskspd(64)?(\.exe)?$", bare[0], re.IGNORECASE):
        bare = bare[1:]
    is_flag = [word.startswith("-") or bool(_SLASHED.fullmatch(word)) for word in bare]
    flags = [f"-{word[1:]}" for word, flag in zip(bare, is_flag, strict=True) if flag]
    return flags, [word for word, flag in zip(bare, is_flag, strict=True) if not flag]


def parse(line: str, *, key: str = "diskspd", strict: bool = True) -> ParsedLoad:
    """Return the load of a DiskSpd command line, with or without the program's name in front.

    What shapes the load is honoured, what does not is listed in ``ignored``; ScenarioError names
    a flag that is unknown, broken, or shapes the load in a way that is not modelled. Without
    *strict*, as for a line that has run already, such a flag is ignored as well.

    >>> load = parse("-b4K -t32 -o32 -w30 -r -S -d10")
    >>> load.fields["threads"], load.fields["outstanding"], load.fields["read"]
    (32, 32, 0.7)
    >>> load.ignored
    ('-S', '-d10')
    """
    try:
        flags, files = flags_and_targets(shlex.split(line, posix=False))
    except ValueError:
        raise ScenarioError(f"{key}: {line!r} has an unclosed quote") from None
    state = _Line(key)
    for flag in flags:  # the block size first: other flags count in blocks
        if flag.startswith("-b"):
            state.block = state.size(flag, flag[2:])
            if state.block < 512 or state.block % 512:
                raise state.error(flag, "is not a multiple of 512 bytes")
    for flag in flags:
        try:
            state.read(flag)
        except ScenarioError:
            if strict:
                raise
            state.ignored.append(flag)
    if strict:
        state.check()
    caching = next((flag[2:] for flag in flags if flag[:2] == "-S"), None)
    direct = (caching is not None and not set(caching) & set("bmr")) or "-h" in flags
    if not {"-S", "-h"} & {flag[:2] for flag in flags}:
        state.ignored.append("no -S: the file cache that DiskSpd would use is not modelled")
    fields = state.fields()
    percent = state.values.get("random_percent", 100) if fields["access"] == "random" else 0
    if 0 < percent < 100:
        state.ignored.append(f"-rs{percent}: all requests are taken as random")
    return ParsedLoad(
        "diskspd", fields, tuple(files), direct=direct, ignored=tuple(state.ignored),
        random_fraction=percent / 100,
    )  # fmt: skip


def with_key(line: str, key: str, value: Any) -> str:
    """Return the command *line* with the flag for a workload's *key* at *value*.

    >>> with_key("diskspd.exe -b4K -t8 -o32 -w30 -r", "outstanding", 64)
    'diskspd.exe -b4K -t8 -o64 -w30 -r'
    >>> with_key("-b4K -t8 -o32", "read", "70%")
    '-w30 -b4K -t8 -o32'
    """
    text = str(value)
    if key == "read":
        share = units.parse_fraction(text) if isinstance(value, str) else float(value)
        text = f"{100 * (1 - share):.6g}"
    elif key == "block_size":
        text = str(units.parse_size(text) if isinstance(value, str) else value)
    letter = flag_of_key()[key]
    flag = f"-{letter}{text}"
    changed, count = re.subn(rf"(?<!\S)[-/]{letter}[0-9]\S*", lambda _: flag, line)
    return changed if count else re.sub(r"^(\S*diskspd\S*\s+)?", rf"\g<0>{flag} ", line, count=1)


class _Line:
    """Values of one command line while its flags are read."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.block = DEFAULT_BLOCK
        self.values: dict[str, Any] = {}
        self.ignored: list[str] = []

    def error(self, flag: str, why: str) -> ScenarioError:
        return ScenarioError(f"{self.key}: {flag!r} {why}")

    def size(self, flag: str, text: str) -> int:
        found = size_bytes(text, self.block)
        if found is None:
            raise self.error(flag, "needs a size; write for example -b4K")
        return found

    def number(self, flag: str, text: str, low: int, high: int) -> int:
        number = whole(text)
        if number is None or not low <= number <= high:
            raise self.error(flag, f"needs a whole number from {low} to {high}")
        return number

    def read(self, flag: str) -> None:
        """Take *flag*: the longest name that begins it says what it is."""
        numbers, refused = listed("diskspd", "numbers"), listed("diskspd", "refused")
        ignored = [f"-{letter}" for letter in listed("diskspd", "ignored")]
        flags = (*_FLAGS, *numbers)
        name = max((n for n in flags if flag.startswith("-" + n)), key=len, default="")
        text, values = flag[len(name) + 1 :], self.values
        if name in numbers:
            value, low, high = numbers[name]  # value, least, most
            values[value] = self.number(flag, text, low, high)
        elif name == "c":
            values["file_size"] = self.size(flag, text)
        elif name == "r":
            values["random"] = True
            if text:
                values["align"] = self.size(flag, text)
        elif name == "s":
            values["sequential"] = flag
            if text.startswith("i"):
                values["interlocked"], text = True, text[1:]
            if text:
                self.size(flag, text)
                self.ignored.append(f"{flag}: its stride is not modelled")
        elif name == "B":
            offset, _, length = text.partition(":")
            values["offset"] = self.size(flag, offset)
            if length:
                values["length"] = self.size(flag, length)
        elif name == "f" and not re.fullmatch(r"[rst]+", text):  # these are hints to the file cache
            values["end"] = self.size(flag, text)
        elif name == "g":  # bytes per millisecond, or IOPS with i; per thread and target
            amount = self.number(flag, text.removesuffix("i"), 1, 10**12)
            by_iops = text.endswith("i")
            values["rate_limit"] = float(amount) if by_iops else amount * 1000 / self.block
        elif name in ("S", "h"):
            # No file cache; with w (as h, and the old -h) writes pass the drive cache, too.
            if not re.fullmatch(r"[bhmruw]*", text):
                raise self.error(flag, "knows b, h, m, r, u and w")
            if flag == "-h" or "h" in text or "w" in text:
                self.values["write_through"] = True
            else:
                self.ignored.append(flag)
        elif name == "rd":
            why = "(a non-uniform distribution) shapes the load and is not modelled"
            raise self.error(flag, why)
        elif name == "f" or (not name and flag[:2] in ignored):
            self.ignored.append(flag)
        elif flag[:2] in refused:
            raise self.error(flag, refused[flag[:2]])
        elif not name:
            known = [*(f"-{known}" for known in flags), *ignored, *refused]
            raise self.error(flag, f"is not a DiskSpd flag; {nearest(flag[:2], known)}")

    def check(self) -> None:
        """Refuse the combinations that DiskSpd refuses."""
        values = self.values
        if "random" in values and "sequential" in values:
            raise self.error(values["sequential"], "conflicts with -r; keep one")
        if "total_threads" in values and values.get("threads", 1) > 1:
            raise self.error("-F", "and -t cannot be used together; keep one")
        if "thread_outstanding" in values and "total_threads" not in values:
            raise self.error("-O", "counts per thread over all targets and needs -F")
        if "thread_outstanding" in values and "outstanding" in values:
            raise self.error("-O", "and -o exclude each other; keep one")
        if ("burst" in values) != ("pause_ms" in values):
            raise self.error("-i" if "burst" in values else "-j", "needs both -i and -j")

    def fields(self) -> dict[str, Any]:
        """Values of a `WorkloadGroup`."""
        values, block = self.values, self.block
        random = bool(values.get("random")) or "random_percent" in values
        in_all, per_thread = "total_threads" in values, "thread_outstanding" in values
        writes = values.get("write_percent", 0)
        # -B base[:length] and -f end bound the region; -c states the size of the file
        offset, span = values.get("offset", 0), values.get("length")
        end = values.get("end", values.get("file_size"))
        if span is None and end is not None:
            if end <= offset:
                raise self.error("-B", f"begins at {offset}, behind the end at {end}")
            span = end - offset
        fields = {
            "block_sizes": ((block, 1.0),),
            "access": "random" if random else "sequential",
            "align": values.get("align", block) if random else block,
            "read": 1 - writes / 100,
            "interlocked": values.get("interlocked", False),
            "rate_limit": values.get("rate_limit"),
            "write_through": values.get("write_through", False) and writes > 0,
            "threads": values.get("total_threads", values.get("threads", DEFAULT_THREADS)),
            "threads_are_per_target": not in_all,
            "outstanding": values.get(
                "thread_outstanding", values.get("outstanding", DEFAULT_OUTSTANDING)
            ),
            "outstanding_per": "thread" if per_thread else "thread-target",
            "offset": offset,
            "span": span,
        }
        # a burst of -i requests, then -j ms of rest; a throttle (-g) switches both off
        if "burst" in values and "rate_limit" not in values:
            pause_ps = values.get("pause_ms", 0) * units.TIME_PS["ms"]
            fields |= {"think_every": values["burst"], "think_ps": pause_ps}
        return fields
