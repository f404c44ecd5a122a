"""fio's job options, as fio prints them into its results, read as `Conditions`.

Options are texts as they were typed; what they mean is said in `scenario.loads.fio_words`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvmesim import units
from nvmesim.capture.capture import Access, Op
from nvmesim.scenario.loads import fio_words as words

_OPS: Final[tuple[Op, Op]] = ("read", "write")


class Options:
    """One job's options, with those of ``[global]`` beneath them.

    An absent option has fio's default if the options are *complete*, as in its JSON; in a banner
    or a terse line, which name a few of them, it is unknown.
    """

    def __init__(self, given: Mapping[str, object], *, complete: bool = True) -> None:
        self.given = {words.ALIASES.get(key, key): str(value) for key, value in given.items()}
        self.complete = complete and bool(given)

    def __bool__(self) -> bool:
        return bool(self.given)

    def whole(self, key: str, default: int | None = None) -> int | None:
        """Return the whole number at *key*; *default* without it, None if it is not a number."""
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
        ps = words.parse_time_ps(self.given[key], units.PS_PER_S) if key in self.given else None
        return None if ps is None else ps / units.PS_PER_S

    def per_op(self, key: str) -> tuple[str, str] | None:
        """Return the read and write parts of an ``a,b,c`` option; a missing part inherits."""
        return words.per_op(self.given[key]) if key in self.given else None

    @property
    def kb_base(self) -> int:
        """1024 unless the job says 1000."""
        return 1000 if self.given.get("kb_base", "").strip() == "1000" else 1024

    @property
    def rw(self) -> str:
        """Kind of load without its ``:n``."""
        return self.given.get("rw", "read").split(":")[0].strip().lower()

    def access(self) -> Access | None:
        """True if requests go to random places; None for hybrids of both."""
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
        direction = words.MODES.get(self.rw, ("", ""))[1]
        if direction != "mixed":
            return {"read": 1.0, "write": 0.0}.get(direction)
        option = words.mix_option(self.given)
        if option is None:
            return words.DEFAULT_READ_PERCENT / 100 if self.complete else None
        share = self.whole(option)
        if share is None or share > 100:
            return None
        return share / 100 if option == "rwmixread" else 1 - share / 100

    @property
    def mixes_sizes(self) -> bool:
        """True if requests of several sizes were asked for: their mean is not a size."""
        return "bsrange" in self.given or "bssplit" in self.given

    def block_sizes(self, op: Op) -> dict[int, float] | None:
        """Bytes -> fraction of the requests of *op*; None if the options do not fix it."""
        which = 0 if op == "read" else 1
        if "bsrange" in self.given:
            return None
        split = self.per_op("bssplit")
        if split is not None:
            return words.split_sizes(split[which], self.kb_base)
        sizes = self.per_op("bs")
        if sizes is None and not self.complete:
            return None
        size: int | None = words.DEFAULT_BLOCK_BYTES
        if sizes is not None:
            size = words.parse_bytes(sizes[which], self.kb_base)
        return {size: 1.0} if size else None

    @property
    def synchronous(self) -> bool:
        """True if the engine, fio's default if none is given, has one request in flight."""
        engine = self.engine() or ""
        return engine.partition(":")[0].strip().lower() in words.SYNC_ENGINES

    def iodepth(self, reported: int | None) -> int | None:
        """Outstanding requests per job: 1 for a synchronous engine, else iodepth.

        *reported* is fio's ``latency_depth``: the only source in old versions, and the depth that
        was found when there is a ``latency_target``.
        """
        if not self:
            return reported
        if self.synchronous:
            return 1
        if "latency_target" in self.given and reported is not None:
            return reported
        return self.whole("iodepth", 1 if self.complete else None)

    def direct(self) -> bool | None:
        """True if the page cache was bypassed; None if the options are unknown."""
        if (buffered := self.flag("buffered")) is not None:
            return not buffered
        return bool(self.flag("direct")) if self.complete else self.flag("direct")

    def engine(self) -> str | None:
        """Name of the I/O engine, None if it is unknown."""
        return self.given.get("ioengine", words.DEFAULT_ENGINE if self.complete else None)

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
        return tuple(dict.fromkeys(words.filenames(text))) if text else None

    def rate_iops(self, bytes_per_request: Mapping[Op, float]) -> float | None:
        """Requests/s that one job may issue, over the operations it does; None if unlimited."""
        total = 0.0
        for key in ("rate_iops", "rate"):
            limits = self.per_op(key)
            if limits is None:
                continue
            for op, text in zip(_OPS, limits, strict=True):
                # rate_process and minimum rates may follow a colon or a second comma level.
                limit = words.parse_bytes(text.split(":")[0], self.kb_base)
                if limit and op in bytes_per_request:
                    total += limit if key == "rate_iops" else limit / bytes_per_request[op]
            if total:
                return total
        return None
