"""fio's job options, as fio prints them into its results, read as `Conditions`.

Source: fio HOWTO. Options are texts as they were typed; units are fio's (k = 1024 unless kb_base
says otherwise, and then ``ki`` is the other one).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nvmesim.capture.capture import Access, Op

SYNC_ENGINES: Final = frozenset(
    {"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "falloc", "ftruncate"}
)
"""They have one request outstanding whatever iodepth says."""
DEFAULT_BLOCK_BYTES: Final = 4096
_OPS: Final[tuple[Op, Op]] = ("read", "write")
_ALIASES: Final = {
    "blocksize": "bs",
    "readwrite": "rw",
    "blocksize_range": "bsrange",
    "buffered": "buffered",
}
_SIZE: Final = re.compile(r"(0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?)([kmgtp]?)(i?)b?", re.IGNORECASE)
_TIME: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_TIME_S: Final = {
    **{"": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "usec": 1e-6},
    **{"m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0},
}


def parse_bytes(text: str, kb_base: int = 1024) -> int | None:
    """Return the bytes that fio reads in *text*, None if it is no size.

    >>> parse_bytes("4k"), parse_bytes("1M"), parse_bytes("4ki"), parse_bytes("4k", 1000)
    (4096, 1048576, 4000, 4000)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    digits, prefix, inverted = match.groups()
    number = float(int(digits, 16)) if digits.lower().startswith("0x") else float(digits)
    other = 1000 if kb_base == 1024 else 1024
    base = other if inverted else kb_base
    return int(number * base ** ("kmgtp".find(prefix.lower()) + 1 if prefix else 0))


def parse_seconds(text: str) -> float | None:
    """Return the seconds that fio reads in *text*, None if it is no time.

    >>> parse_seconds("30"), parse_seconds("2m"), parse_seconds("500ms")
    (30.0, 120.0, 0.5)
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    unit = _TIME_S.get(match.group(2).lower())
    return None if unit is None else float(match.group(1)) * unit


class Options:
    """One job's options, with those of ``[global]`` beneath them.

    An absent option has fio's default if the options are *complete*, as in its JSON; in a banner
    or a terse line, which name a few of them, it is unknown.
    """

    def __init__(self, given: Mapping[str, object], *, complete: bool = True) -> None:
        self.given = {_ALIASES.get(key, key): str(value) for key, value in given.items()}
        self.complete = complete and bool(given)

    def __bool__(self) -> bool:
        return bool(self.given)

    def whole(self, key: str, default: int | None = None) -> int | None:
        """Return the whole number at *key*; *default* if it is absent, None if it is no number."""
        if key not in self.given:
            return default
        text = self.given[key].strip()
        return int(text) if text.isdecimal() and len(text) < 18 else None

    def flag(self, key: str) -> bool | None:
        """Return a yes-or-no option; a valueless flag is a yes, an absent one None."""
        text = self.given.get(key)
        if text is None:
            return None
        return text.strip() not in ("0", "false", "no")

    def seconds(self, key: str) -> float | None:
        """Return a time option in s, None if it is absent or unclear."""
        return parse_seconds(self.given[key]) if key in self.given else None

    def per_op(self, key: str) -> tuple[str, str] | None:
        """Return the read and write parts of an ``a,b,c`` option; a missing part inherits."""
        if key not in self.given:
            return None
        parts = [part.strip() for part in self.given[key].split(",")]
        return parts[0], parts[1] if len(parts) > 1 and parts[1] else parts[0]

    @property
    def kb_base(self) -> int:
        """1024 unless the job says 1000."""
        return 1000 if self.given.get("kb_base", "").strip() == "1000" else 1024

    @property
    def rw(self) -> str:
        """Kind of load without its ``:n``."""
        return self.given.get("rw", "read").split(":")[0].strip().lower()

    def access(self) -> Access | None:
        """Whether requests go to random places; None for hybrids of both."""
        text = self.given.get("rw", "read").strip().lower()
        if "rw" not in self.given and not self.complete:
            return None
        if self.whole("percentage_random", 100) != 100:
            return None
        if "rand" in text:
            return None if ":" in text and not text.endswith(":1") else "random"
        return "sequential"

    def read_fraction(self) -> float | None:
        """Fraction of reads that the options ask for, None if they do not say."""
        if "rw" not in self.given and not self.complete:
            return None
        kind = self.rw.removeprefix("rand")
        if kind in ("read", "write"):
            return 1.0 if kind == "read" else 0.0
        if kind not in ("rw", "readwrite"):
            return None
        read = self.whole("rwmixread")
        if "rwmixwrite" in self.given and (
            read is None
            or list(self.given).index("rwmixwrite") > list(self.given).index("rwmixread")
        ):
            write = self.whole("rwmixwrite")
            read = None if write is None else 100 - write
        elif "rwmixread" not in self.given and self.complete:
            read = 50
        return None if read is None or not 0 <= read <= 100 else read / 100

    @property
    def mixes_sizes(self) -> bool:
        """Whether requests of several sizes were asked for: their mean is no size."""
        return "bsrange" in self.given or "bssplit" in self.given

    def block_sizes(self, op: Op) -> dict[int, float] | None:
        """Bytes -> fraction of the requests of *op*; None if the options do not fix it."""
        which = 0 if op == "read" else 1
        if "bsrange" in self.given:
            return None
        split = self.per_op("bssplit")
        if split is not None:
            return self._split(split[which])
        sizes = self.per_op("bs")
        if sizes is None and not self.complete:
            return None
        size = DEFAULT_BLOCK_BYTES if sizes is None else parse_bytes(sizes[which], self.kb_base)
        return {size: 1.0} if size else None

    def _split(self, text: str) -> dict[int, float] | None:
        """``4k/60:64k/40``; sizes without a percentage share the rest evenly."""
        sizes: list[tuple[int, float | None]] = []
        for part in text.split(":"):
            size_text, _, share = part.partition("/")
            size = parse_bytes(size_text, self.kb_base)
            if not size or (share and not share.isdecimal()):
                return None
            sizes.append((size, float(share) if share else None))
        blank = sum(share is None for _, share in sizes)
        rest = 100 - sum(share or 0 for _, share in sizes)
        found: dict[int, float] = {}
        for size, given in sizes:
            weight = rest / blank if given is None else given
            found[size] = found.get(size, 0.0) + weight / 100
        if any(weight < 0 for weight in found.values()) or abs(sum(found.values()) - 1) > 1e-6:
            return None
        return {size: weight for size, weight in found.items() if weight > 0}

    def iodepth(self, reported: int | None) -> int | None:
        """Outstanding requests per job: 1 for a synchronous engine, else iodepth.

        *reported* is fio's ``latency_depth``: the only source in old versions, and the depth that
        was found when there is a ``latency_target``.
        """
        if not self:
            return reported
        if self.given.get("ioengine", "psync").strip().lower() in SYNC_ENGINES:
            return 1
        if "latency_target" in self.given and reported is not None:
            return reported
        return self.whole("iodepth", 1 if self.complete else None)

    def direct(self) -> bool | None:
        """Whether the page cache was bypassed; None if the options are unknown."""
        if (buffered := self.flag("buffered")) is not None:
            return not buffered
        return bool(self.flag("direct")) if self.complete else self.flag("direct")

    def engine(self) -> str | None:
        """Name of the I/O engine, None if it is unknown."""
        return self.given.get("ioengine", "psync" if self.complete else None)

    def ramp_s(self) -> float | None:
        """Lead-in that was not measured, s; None if it is unknown."""
        if "ramp_time" in self.given:
            return self.seconds("ramp_time")
        return 0.0 if self.complete else None

    def filenames(self) -> tuple[str, ...] | None:
        r"""Return the files or drives of the job, None if fio named them itself.

        >>> Options({"filename": "/dev/nvme0n1:/dev/nvme1n1"}).filenames()
        ('/dev/nvme0n1', '/dev/nvme1n1')
        """
        text = self.given.get("filename")
        if not text:
            return None
        names = [name.replace("\\:", ":") for name in re.split(r"(?<!\\):", text)]
        return tuple(dict.fromkeys(name for name in names if name))

    def rate_iops(self, bytes_per_request: Mapping[Op, float]) -> float | None:
        """Requests/s that one job may issue, over the operations it does; None if unlimited."""
        total = 0.0
        for key in ("rate_iops", "rate"):
            limits = self.per_op(key)
            if limits is None:
                continue
            for op, text in zip(_OPS, limits, strict=True):
                # rate_process and minimum rates may follow a colon or a second comma level.
                limit = parse_bytes(text.split(":")[0], self.kb_base)
                if limit and op in bytes_per_request:
                    total += limit if key == "rate_iops" else limit / bytes_per_request[op]
            if total:
                return total
        return None
