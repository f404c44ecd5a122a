"""DiskSpd command lines: as workloads, and as the load of results found in captures.

Source: microsoft/diskspd wiki, Command line and parameters (2.2).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from nvmesim import units
from nvmesim.errors import ScenarioError, nearest
from nvmesim.scenario.loads.fio_options import OPTIONS
from nvmesim.scenario.loads.parsed_load import ParsedLoad, whole

_IGNORED: Final = tuple(f"-{letter}" for letter in OPTIONS["diskspd"]["ignored"])
_REFUSED: Final[dict[str, str]] = OPTIONS["diskspd"]["refused"]
DEFAULT_BLOCK: Final = 64 * 1024
DEFAULT_OUTSTANDING: Final = 2
DEFAULT_THREADS: Final = 1
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(b|[kmgt](?:ib)?)?", re.IGNORECASE)
_SCALE: Final = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SLASHED: Final = re.compile(r"/(?:[A-Za-z]{1,2}[0-9,:.]*[KMGTBkmgtbi]?|Rxml|Rtext|Suw)")
_QUOTES: Final = "\"'"


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

    >>> flags_and_targets(["diskspd.exe", "-b4K", "/t8", "#1", '"C:\\a.dat"'])
    (['-b4K', '-t8'], ['#1', 'C:\\a.dat'])
    """
    bare = [word.strip(_QUOTES) for word in words]
    if bare and re.search(r"diskspd(64)?(\.exe)?$", bare[0], re.IGNORECASE):
        bare = bare[1:]
    targets = [word for word in bare if not _is_flag(word)]
    return [f"-{word[1:]}" for word in bare if _is_flag(word)], targets


def _is_flag(word: str) -> bool:
    """True if *word* is a flag; a slash begins one as well, and the path of a file on Linux."""
    return word.startswith("-") or _SLASHED.fullmatch(word) is not None


@dataclass
class _Line:
    """Values of one command line while its flags are read."""

    key: str
    block: int = DEFAULT_BLOCK
    values: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def fail(self, flag: str, why: str) -> ScenarioError:
        return ScenarioError(f"{self.key}: {flag!r} {why}")

    def size(self, flag: str, text: str) -> int:
        """Bytes: K M G T are powers of 1024, b counts blocks, no suffix is bytes."""
        found = size_bytes(text, self.block)
        if found is None:
            raise self.fail(flag, "needs a size; write for example -b4K")
        return found

    def number(self, flag: str, text: str, low: int, high: int) -> int:
        number = whole(text)
        if number is None or not low <= number <= high:
            raise self.fail(flag, f"needs a whole number from {low} to {high}")
        return number


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
    flags, files = _split(line, key)
    state = _Line(key)
    for flag in flags:  # the block size first: other flags count in blocks
        if flag.startswith("-b"):
            state.block = state.size(flag, flag[2:])
            if state.block < 512 or state.block % 512:
                raise state.fail(flag, "is not a multiple of 512 bytes")
    for flag in flags:
        try:
            _read(flag, state)
        except ScenarioError:
            if strict:
                raise
            state.ignored.append(flag)
    if strict:
        _check(state)
    caching = next((flag[2:] for flag in flags if flag[:2] == "-S"), None)
    direct = (caching is not None and not set(caching) & set("bmr")) or "-h" in flags
    if not {"-S", "-h"} & {flag[:2] for flag in flags}:
        state.ignored.append("no -S: the file cache that DiskSpd would use is not modelled")
    return ParsedLoad(
        "diskspd", _fields(state), tuple(files), direct=direct, ignored=tuple(state.ignored)
    )


def _split(line: str, key: str) -> tuple[list[str], list[str]]:
    """Return flags and targets; a first word that ends in diskspd is the program."""
    try:
        parts = shlex.split(line, posix=False)
    except ValueError:
        raise ScenarioError(f"{key}: {line!r} has an unclosed quote") from None
    return flags_and_targets(parts)


def _read(flag: str, state: _Line) -> None:
    """Hand *flag* to the reader of the longest name that begins it."""
    for name in sorted(_READERS, key=len, reverse=True):
        if flag.startswith("-" + name):
            _READERS[name](flag, flag[len(name) + 1 :], state)
            return
    if flag[:2] in _IGNORED:
        state.ignored.append(flag)
        return
    if flag[:2] in _REFUSED:
        raise state.fail(flag, _REFUSED[flag[:2]])
    known = [f"-{name}" for name in _READERS] + list(_IGNORED) + list(_REFUSED)
    raise state.fail(flag, f"is not a DiskSpd flag; {nearest(flag[:2], known)}")


def _whole(name: str, low: int, high: int) -> Callable[[str, str, _Line], None]:
    def read(flag: str, text: str, state: _Line) -> None:
        state.values[name] = state.number(flag, text, low, high)

    return read


def _block(flag: str, text: str, state: _Line) -> None:
    """Read already: the block size comes before everything else."""


def _random(flag: str, text: str, state: _Line) -> None:
    state.values["random"] = True
    if text:
        state.values["align"] = state.size(flag, text)


def _sequential(flag: str, text: str, state: _Line) -> None:
    state.values["sequential"] = flag
    if text.startswith("i"):
        state.values["interlocked"], text = True, text[1:]
    if text:
        state.values["stride"] = state.size(flag, text)


def _size_of(name: str) -> Callable[[str, str, _Line], None]:
    def read(flag: str, text: str, state: _Line) -> None:
        state.values[name] = state.size(flag, text)

    return read


def _region(flag: str, text: str, state: _Line) -> None:
    offset, _, length = text.partition(":")
    state.values["offset"] = state.size(flag, offset)
    if length:
        state.values["length"] = state.size(flag, length)


def _end(flag: str, text: str, state: _Line) -> None:
    """-f with a size ends the region; with letters it is a hint to the file cache."""
    if re.fullmatch(r"[rst]+", text):
        state.ignored.append(flag)
    else:
        state.values["end"] = state.size(flag, text)


def _throttle(flag: str, text: str, state: _Line) -> None:
    """Bytes per millisecond, or IOPS with i; per thread and target."""
    by_iops = text.endswith("i")
    amount = state.number(flag, text.removesuffix("i"), 1, 10**12)
    state.values["rate_limit"] = float(amount) if by_iops else amount * 1000 / state.block


def _caching(flag: str, text: str, state: _Line) -> None:
    """-S: no file cache; with w (as h, and the old -h) writes go through the drive's cache too."""
    if not re.fullmatch(r"[bhmruw]*", text):
        raise state.fail(flag, "knows b, h, m, r, u and w")
    if flag == "-h" or "h" in text or "w" in text:
        state.values["write_through"] = True
    else:
        state.ignored.append(flag)


_READERS: Final[dict[str, Callable[[str, str, _Line], None]]] = {
    "b": _block,
    "o": _whole("outstanding", 1, 65536),
    "O": _whole("thread_outstanding", 1, 65536),
    "t": _whole("threads", 1, 65536),
    "F": _whole("total_threads", 1, 65536),
    "w": _whole("write_percent", 0, 100),
    "r": _random,
    "rs": _whole("random_percent", 1, 100),
    "s": _sequential,
    "T": _size_of("thread_stride"),
    "B": _region,
    "f": _end,
    "c": _size_of("file_size"),
    "g": _throttle,
    "i": _whole("burst", 1, 10**9),
    "j": _whole("pause_ms", 1, 10**9),
    "S": _caching,
    "h": _caching,
}


def _distribution(flag: str, text: str, state: _Line) -> None:
    raise state.fail(flag, "(a non-uniform distribution) shapes the load and is not modelled")


_READERS["rd"] = _distribution


def _fields(state: _Line) -> dict[str, Any]:
    """Return the values of a `WorkloadGroup`."""
    values = state.values
    random = bool(values.get("random")) or "random_percent" in values
    fields: dict[str, Any] = {
        "block_sizes": ((state.block, 1.0),),
        "access": "random" if random else "sequential",
        "align": values.get("align", state.block) if random else state.block,
        "read": 1 - values.get("write_percent", 0) / 100,
        "random_fraction": values.get("random_percent", 100) / 100 if random else 0.0,
        "stride": None if random else values.get("stride"),
        "interlocked": values.get("interlocked", False),
        "thread_stride": values.get("thread_stride", 0),
        "rate_limit": values.get("rate_limit"),
        "write_through": values.get("write_through", False) and values.get("write_percent", 0) > 0,
    }
    return {**fields, **_threads(values), **_span(state), **_think(values)}


def _check(state: _Line) -> None:
    """Refuse the combinations that DiskSpd refuses."""
    values = state.values
    if "random" in values and "sequential" in values:
        raise state.fail(values["sequential"], "conflicts with -r; keep one")
    if "total_threads" in values and values.get("threads", 1) > 1:
        raise state.fail("-F", "and -t cannot be used together; keep one")
    if "thread_outstanding" in values and "total_threads" not in values:
        raise state.fail("-O", "counts per thread over all targets and needs -F")
    if "thread_outstanding" in values and "outstanding" in values:
        raise state.fail("-O", "and -o exclude each other; keep one")
    if "interlocked" in values and "thread_stride" in values:
        raise state.fail("-T", "conflicts with -si; keep one")
    if ("burst" in values) != ("pause_ms" in values):
        raise state.fail("-i" if "burst" in values else "-j", "needs both -i and -j")


def _threads(values: dict[str, Any]) -> dict[str, Any]:
    in_all = "total_threads" in values
    per_thread = "thread_outstanding" in values
    outstanding = values.get("outstanding", DEFAULT_OUTSTANDING)
    return {
        "threads": values["total_threads"] if in_all else values.get("threads", DEFAULT_THREADS),
        "threads_are_per_target": not in_all,
        "outstanding": values["thread_outstanding"] if per_thread else outstanding,
        "outstanding_per": "thread" if per_thread else "thread-target",
    }


def _span(state: _Line) -> dict[str, Any]:
    """-B base[:length] and -f end bound the region; -c states the size of the file."""
    values = state.values
    offset = values.get("offset", 0)
    end = values.get("end", values.get("file_size"))
    span = values.get("length")
    if span is None and end is not None:
        if end <= offset:
            raise state.fail("-B", f"begins at {offset}, behind the end at {end}")
        span = end - offset
    return {"offset": offset, "span": span}


def _think(values: dict[str, Any]) -> dict[str, Any]:
    """A burst of -i requests, then -j ms of rest; a throttle (-g) switches both off."""
    if "burst" not in values or "rate_limit" in values:
        return {}
    return {"think_every": values["burst"], "think_ps": values["pause_ms"] * units.TIME_PS["ms"]}
