"""Meaning of fio's options: for loads of a scenario, and for options found in captures alike.

Option lists are data (``options.toml``). Sizes, times, lists and modes are read as fio reads them.
Source: fio HOWTO, parameter types and job options.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from nvmesim import units
from nvmesim.errors import ScenarioError
from nvmesim.files import package_tables

Access = Literal["random", "sequential"]
Direction = Literal["read", "write", "mixed"]
Op = Literal["read", "write"]

DEFAULT_ENGINE: Final = "psync"
DEFAULT_BLOCK_BYTES: Final = 4096
DEFAULT_READ_PERCENT: Final = 50
MAX_RANGE_SIZES: Final = 256
OPS: Final[tuple[Op, Op]] = ("read", "write")
_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_SIZE: Final = re.compile(
    r"(0x[0-9a-f]{1,15}|[0-9]{1,18}(?:\.[0-9]{1,9})?)([kmgtp]?)(i?)b?", re.IGNORECASE
)
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]*)?)%")
_TIME: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)", re.IGNORECASE)
_TIME_PS: Final = {
    **{name: units.TIME_PS[name] for name in ("us", "ms", "s", "h")},
    **{"usec": units.TIME_PS["us"], "msec": units.TIME_PS["ms"], "sec": units.TIME_PS["s"]},
    **{"m": units.TIME_PS["min"], "min": units.TIME_PS["min"], "hour": units.TIME_PS["h"]},
    **{"d": 24 * units.TIME_PS["h"], "day": 24 * units.TIME_PS["h"]},
}


@dataclass(frozen=True)
class ParsedLoad:
    """One group of threads as another tool's options describe it."""

    name: str
    fields: dict[str, Any]
    """Values of `resolved.WorkloadGroup`, but for name, targets and what the scenario adds."""
    files: tuple[str, ...] = ()  # targets as that tool names them; empty: none were named
    span_percent: float | None = None
    """Span as a share of each target; instead of ``fields["span"]``."""
    offset_percent: float | None = None
    ignored: tuple[str, ...] = ()
    """Options that do not shape the load, with the reason where it is not plain."""
    direct: bool | None = None  # True if the file cache is bypassed
    random_fraction: float | None = None  # of the requests; between 0 and 1 all are taken as random


def whole(text: str) -> int | None:
    """Return the whole number that *text* is, None if it is none of at most 18 digits.

    `str.isdigit` takes a superscript two as a digit and `int` refuses thousands of them.

    >>> whole("32"), whole("-1"), whole("²"), whole("9" * 5000)
    (32, None, None, None)
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def listed(tool: str, table: str) -> Any:
    """Return what ``options.toml`` lists of a tool: aliases, known, ignored, refused, modes ...

    >>> listed("fio", "aliases")["blocksize"], listed("fio", "modes")["randrw"]
    ('bs', ['random', 'mixed'])
    """
    return package_tables(__package__, "options.toml")[tool][table]


def full_name(option: str) -> str:
    """Return fio's own name of an *option* that may be an alias.

    >>> full_name("blocksize"), full_name("bs")
    ('bs', 'bs')
    """
    name: str = listed("fio", "aliases").get(option, option)
    return name


@functools.cache
def synchronous_engines() -> frozenset[str]:
    """Return the engines on which a depth has no effect. Source: fio HOWTO, iodepth."""
    return frozenset(name for name, told in listed("fio", "engines").items() if "waits" in told)


def is_synchronous(engine: str | None) -> bool:
    """True if a thread of *engine*, as a capture names it, has one request in flight.

    >>> is_synchronous("psync"), is_synchronous("libaio"), is_synchronous(None)
    (True, False, False)
    """
    return (engine or "").partition(":")[0].strip().lower() in synchronous_engines()


@functools.cache
def known_options() -> tuple[str, ...]:
    """Return every option of fio that is known, those that are refused too."""
    tables = ("honoured", "ignored", "refused")
    return tuple(name for table in tables for name in listed("fio", table))


class Mode(NamedTuple):
    """What ``rw`` asks for."""

    access: Access
    direction: Direction
    number: int | None  # behind a colon: requests between two jumps, or bytes of a hole


def why_refused(option: str, value: str) -> str:
    """Return why a load with *option* at *value* is refused; empty if it is not.

    >>> why_refused("verify", "crc32c"), why_refused("verify", "0"), why_refused("bs", "4k")
    ('reads back what it wrote, which is not modelled', '', '')
    """
    harmless = listed("fio", "harmless")
    allowed = (harmless[option], "") if option in harmless else ("0", "none", "")
    return "" if value in allowed else str(listed("fio", "refused").get(option, ""))


def parse_bytes(text: str, kb_base: int = 1024) -> int | None:
    """Return the bytes that fio reads in *text*, None if it is not a size.

    With the usual *kb_base* of 1024 ``4k`` and ``4kb`` are 4096 and ``4ki`` is 4000; with 1000 it
    is the other way round.

    >>> parse_bytes("4k"), parse_bytes("1M"), parse_bytes("4ki"), parse_bytes("4k", 1000)
    (4096, 1048576, 4000, 4000)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    digits, prefix, inverted = match.groups()
    base = (1000 if kb_base == 1024 else 1024) if inverted else kb_base
    scale: int = base ** ("kmgtp".find(prefix.lower()) + 1 if prefix else 0)
    if "." in digits:
        return int(float(digits) * scale)
    return int(digits, 16 if digits.lower().startswith("0x") else 10) * scale


class FioOptions:
    """One job's options, with those of ``[global]`` beneath them.

    An absent option has fio's default if the options are *complete*, as in a job file or fio's
    JSON; in a banner, which names a few of them, it is unknown: None. So is one that cannot be
    read, unless *where* says where the job stands: then it is a ScenarioError.
    """

    def __init__(
        self, given: Mapping[str, object], *, complete: bool = True, where: str = ""
    ) -> None:
        self.given = {full_name(key): str(value) for key, value in given.items()}
        self.complete = complete and bool(given or where)
        self.where = where

    def __bool__(self) -> bool:
        return bool(self.given)

    def unreadable(self, option: str, why: str) -> None:
        """Refuse the value of *option*, where values must be right; else it is unknown."""
        if self.where:
            raise ScenarioError(f"{self.where}: {option}={self.given.get(option)} {why}")

    def whole(
        self, option: str, default: int | None = None, low: int = 0, high: int = 10**17
    ) -> int | None:
        """Return the whole number at *option*; *default* without it."""
        text = self.given.get(option)
        number = default if text is None else whole(text.strip())
        if text is not None and (number is None or not low <= number <= high):
            self.unreadable(option, f"needs a whole number from {low} to {high}")
            return None
        return number

    def flag(self, option: str) -> bool | None:
        """Return a yes-or-no option; a valueless flag is a yes, an absent one None."""
        text = self.given.get(option)
        return None if text is None else text.strip() not in ("0", "false", "no")

    def time_ps(self, option: str, bare_ps: int) -> int | None:
        """Return a time; a number without a unit counts in *bare_ps*."""
        if option not in self.given:
            return None
        match = _TIME.fullmatch(self.given[option].strip())
        unit = (_TIME_PS.get(match[2].lower()) if match[2] else bare_ps) if match else None
        if match is None or unit is None:
            self.unreadable(option, "needs a time; write for example 100us")
            return None
        return round(float(match[1]) * unit)

    @property
    def kb_base(self) -> int:
        """1024 unless the job says 1000."""
        text = self.given.get("kb_base", "1024").strip()
        if text not in ("1024", "1000"):
            self.unreadable("kb_base", "is 1024 or 1000")
        return 1000 if text == "1000" else 1024

    def bytes_of(self, option: str, text: str) -> int | None:
        """Return the size that *text*, a part of *option*, is."""
        found = parse_bytes(text, self.kb_base)
        if found is None:
            self.unreadable(option, "needs a size; write for example 4k")
        return found

    def size(self, option: str) -> int | None:
        """Return the size at *option*."""
        return self.bytes_of(option, self.given[option]) if option in self.given else None

    def percent(self, option: str) -> float | None:
        """Return a size given as a share of the target, 0 to 100; None if it is none."""
        text = self.given.get(option, "")
        match = _SHARE.fullmatch(text)
        if match is not None and float(match[1]) <= 100:
            return float(match[1])
        if text.endswith("%"):
            self.unreadable(option, "needs a share from 0% to 100%")
        return None

    def per_op(self, option: str) -> tuple[str, str] | None:
        """Return the read and write parts of an ``a,b,c`` option; a missing part inherits.

        >>> FioOptions({"bs": "4k,8k"}).per_op("bs"), FioOptions({"bs": "4k,,16k"}).per_op("bs")
        (('4k', '8k'), ('4k', '4k'))
        """
        if option not in self.given:
            return None
        parts = [part.strip() for part in self.given[option].split(",")]
        return parts[0], parts[1] if len(parts) > 1 and parts[1] else parts[0]

    def mode(self) -> Mode | None:
        """Return what ``rw`` asks for."""
        if "rw" not in self.given and not self.complete:
            return None
        name, colon, number = self.given.get("rw", "read").lower().partition(":")
        modes: Mapping[str, tuple[Access, Direction]] = listed("fio", "modes")
        if name.strip() not in modes:
            trims = "trims are not modelled" if "trim" in name else f"one of {', '.join(modes)}"
            self.unreadable("rw", f"is not a load; {trims}")
            return None
        return Mode(*modes[name.strip()], self.bytes_of("rw", number) if colon else None)

    def random_fraction(self) -> float | None:
        """Return the share of requests that jump to a random place."""
        mode = self.mode()
        if mode is None or mode.access == "sequential":
            return None if mode is None else 0.0
        share = self.whole("percentage_random", 100, 0, 100)
        return None if share is None else share / 100 / (mode.number or 1)

    def access(self) -> Access | None:
        """Return where requests go; None for hybrids of both."""
        share = self.random_fraction()
        if share == 1:
            return "random"
        return "sequential" if share == 0 else None

    def read_fraction(self) -> float | None:
        """Return the fraction of reads; of rwmixread and rwmixwrite the later one holds."""
        mode = self.mode()
        if mode is None or mode.direction != "mixed":
            return None if mode is None else float(mode.direction == "read")
        options = [name for name in self.given if name in ("rwmixread", "rwmixwrite")]
        option = options[-1] if options else "rwmixread"
        default = DEFAULT_READ_PERCENT if self.complete else None
        share = self.whole(option, default, 0, 100)
        if share is None:
            return None
        return (share if option == "rwmixread" else 100 - share) / 100

    def block_sizes(self, op: Op) -> dict[int, float] | None:
        """Return bytes -> fraction of the requests of *op*: bssplit over bsrange over bs."""
        read = {"bssplit": self._split, "bsrange": self._range, "bs": self._single}
        option = next((name for name in read if name in self.given), None)
        if option is None:
            return {DEFAULT_BLOCK_BYTES: 1.0} if self.complete else None
        text = (self.per_op(option) or ("", ""))[OPS.index(op)]
        sizes = read[option](text)
        if sizes and self.where and any(size < 512 or size % 512 for size in sizes):
            self.unreadable(option, "is not a multiple of 512 bytes")
        return sizes or None

    def _single(self, text: str) -> dict[int, float]:
        size = self.bytes_of("bs", text)
        return {} if size is None or (size == 0 and not self.where) else {size: 1.0}

    def _range(self, text: str) -> dict[int, float]:
        """Every multiple of the smaller size is as likely as another."""
        low_text, _, high_text = text.partition("-")
        low = self.bytes_of("bsrange", low_text)
        high = self.bytes_of("bsrange", high_text or low_text)
        if low is None or high is None:
            return {}
        if not 0 < low <= high:
            self.unreadable("bsrange", "needs a smaller and a larger size, as 4k-16k")
            return {}
        sizes = range(low, high + 1, low)
        if len(sizes) > MAX_RANGE_SIZES:
            self.unreadable("bsrange", f"has {len(sizes)} sizes; at most {MAX_RANGE_SIZES}")
            return {}
        return dict.fromkeys(sizes, 1 / len(sizes))

    def _split(self, text: str) -> dict[int, float]:
        """Return the mix of "4k/60:64k/40"; sizes without a share have even parts of the rest.

        >>> FioOptions({"bssplit": "4k/50:8k:16k"}).block_sizes("read")
        {4096: 0.5, 8192: 0.25, 16384: 0.25}
        """
        parts = [part.partition("/")[::2] for part in text.split(":") if part]
        sizes = [parse_bytes(size, self.kb_base) for size, _ in parts]
        shares = [
            float(share) if share else None
            for _, share in parts
            if not share or whole(share) is not None
        ]
        blanks = shares.count(None)
        rest = 100 - sum(share or 0 for share in shares)
        is_right = (
            all(sizes) and len(shares) == len(parts) > 0 and rest >= 0 and (blanks or not rest)
        )
        if not is_right:
            self.unreadable("bssplit", "needs sizes with shares that sum to 100, as 4k/60:64k/40")
            return {}
        found: dict[int, float] = {}
        for size, given in zip(sizes, shares, strict=True):
            weight = rest / blanks if given is None else given
            found[size or 0] = found.get(size or 0, 0.0) + weight / 100
        return {size: weight for size, weight in sorted(found.items()) if weight > 0}

    def engine(self) -> str | None:
        """Return the name of the I/O engine."""
        return self.given.get("ioengine", DEFAULT_ENGINE if self.complete else None)

    @property
    def synchronous(self) -> bool:
        """True if the engine has one request in flight."""
        return is_synchronous(self.engine())

    def iodepth(self, reported: int | None = None) -> int | None:
        """Return outstanding requests per job: 1 for a synchronous engine, else iodepth.

        *reported* is fio's ``latency_depth``: the only source in old versions, and the depth that
        was found when there is a ``latency_target``.
        """
        if not self and not self.where:
            return reported
        asked = self.whole("iodepth", 1 if self.complete else None, 1, 65536)
        if self.synchronous:
            return 1
        return reported if "latency_target" in self.given and reported is not None else asked

    def direct(self) -> bool | None:
        """Return whether the page cache was bypassed."""
        if (buffered := self.flag("buffered")) is not None:
            return not buffered
        return bool(self.flag("direct")) if self.complete else self.flag("direct")

    def ramp_s(self) -> float | None:
        """Return the lead-in that was not measured, s."""
        if "ramp_time" not in self.given:
            return 0.0 if self.complete else None
        ps = self.time_ps("ramp_time", units.PS_PER_S)
        return None if ps is None else ps / units.PS_PER_S

    def filenames(self) -> tuple[str, ...]:
        r"""Return the files or drives of the job, which stand between colons; none if unnamed.

        >>> FioOptions({"filename": "/dev/nvme0n1:/dev/nvme1n1:C\\:/a.dat"}).filenames()
        ('/dev/nvme0n1', '/dev/nvme1n1', 'C:/a.dat')
        """
        names = re.split(r"(?<!\\):", self.given.get("filename", ""))
        return tuple(n.replace("\\:", ":").strip() for n in names if n.strip())

    def rate_iops(self, bytes_per_request: Mapping[Op, float]) -> float | None:
        """Return requests/s that one job may issue, over the operations it does; None: any."""
        total = 0.0
        for option in ("rate_iops", "rate"):
            for op, text in zip(OPS, self.per_op(option) or (), strict=False):
                # rate_process and minimum rates may follow a colon or a second comma level.
                limit = self.bytes_of(option, text.split(":")[0])
                if limit and op in bytes_per_request:
                    total += limit if option == "rate_iops" else limit / bytes_per_request[op]
            if total:
                return total
        return None
