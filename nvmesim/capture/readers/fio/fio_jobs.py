"""One job's report as numbers, whichever of fio's formats it stood in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from nvmesim.capture.capture import Op, OpResult
from nvmesim.capture.caveats import CPU_BOUND_PCT
from nvmesim.capture.plausible import LITTLE
from nvmesim.scenario.loads.fio_options import FioOptions

OPS: Final[tuple[Op, ...]] = ("read", "write")
ALL_CLIENTS: Final = "All clients"
"""Name under which fio sums the jobs of its clients, which stand by themselves, too."""
INTERRUPTED: Final = "terminating on signal"
"""Text that fio prints of Ctrl-C and timeouts from outside."""
RUNTIME_SPREAD: Final = 0.05
"""Jobs whose run times differ by more did not load the drive together all the time."""
MOSTLY_ALONE: Final = 0.5
ALWAYS_ALONE: Final = 0.99
"""Shares of requests issued with no other in flight; fsyncs and the ends of a run make a few."""
POLLED_ENGINES: Final = ("spdk", "xnvme", "nvme_")
"""They spin for completions whatever else is asked. Source: SPDK's and xNVMe's fio plugins."""
FEW_SWITCHES: Final = 0.1
CACHED_S: Final = 5e-6
"""Memory answers in less, no drive does."""
_PACED: Final = {"thinktime", "rate", "rate_iops", "latency_target", "iodepth_batch"}


@dataclass(frozen=True)
class FioJob:
    """One entry: a job, or all jobs of a group that fio merged."""

    name: str
    group: int
    options: FioOptions
    reported: Mapping[str, OpResult | None]
    """Results of ``read``, ``write`` and ``mixed``, the two as one."""
    runtime_s: float
    host: str = ""
    error: int = 0
    threads: int | None = None
    """How many threads the entry stands for, None if it does not say."""
    depth: int | None = None
    """fio's latency_depth."""
    user_pct: float | None = None
    system_pct: float | None = None
    notes: tuple[str, ...] = ()
    switches: int | None = None
    """Context switches, all threads."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """How many were in flight at submission, as fio counts it: "1", "2", "4", ... -> percent."""
    runtimes_s: Mapping[str, float] = field(default_factory=dict)
    """Run time of each operation: those of a mixture are the same, those of phases are not."""

    @cached_property
    def ops(self) -> dict[Op, OpResult]:
        """What was read and written; a report as one of a job that only reads is of its reads."""
        found = {op: result for op in OPS if (result := self.reported.get(op)) is not None}
        merged, fraction = self.reported.get("mixed"), self.options.read_fraction()
        if found or merged is None or fraction not in (0.0, 1.0):
            return found
        return {"read" if fraction else "write": merged}

    @cached_property
    def mixed(self) -> OpResult | None:
        """Reads and writes, where they were reported as one only."""
        return None if self.ops else self.reported.get("mixed")

    @cached_property
    def results(self) -> list[OpResult]:
        """Results by operation, or as one if the file has it so."""
        return [*self.ops.values(), *([self.mixed] if self.mixed else [])]

    @property
    def has_failed(self) -> bool:
        """True if the job ended by an error; one that was told to go on did not."""
        goes_on = self.options.given.get("continue_on_error", "none").strip() not in ("none", "0")
        return bool(self.error) and not (goes_on and self.results)

    @cached_property
    def share_alone(self) -> float | None:
        """Fraction of requests issued with no other in flight, as fio counted; None if unknown."""
        total = sum(self.levels.values())
        return self.levels.get("1", 0.0) / total if total else None

    @cached_property
    def true_depth(self) -> int | None:
        """Outstanding requests that the job kept: what was asked, unless fio counted otherwise.

        The default engine is synchronous on Linux and asynchronous (windowsaio) on Windows, which
        no option tells.
        """
        alone, asked = self.share_alone, self.options.whole("iodepth")
        if alone is not None and asked not in (None, 1):
            if alone < MOSTLY_ALONE and "ioengine" not in self.options.given:
                return asked
            if alone > ALWAYS_ALONE and _PACED.isdisjoint(self.options.given):
                return 1
        return self.options.iodepth(self.depth)

    @property
    def engine(self) -> str | None:
        """Name of the I/O engine; None if it is unknown, as where fio's default is asynchronous."""
        alone = self.share_alone
        is_default = "ioengine" not in self.options.given and self.true_depth != 1
        is_unknown = is_default and alone is not None and alone < MOSTLY_ALONE
        return None if is_unknown else self.options.engine()

    @property
    def is_polled(self) -> bool:
        """True if the job spins for completions, so that its CPU is full at any load.

        A job that waits for each request in turn gives up its CPU each time; one that does so for
        fewer than a tenth of them and is busy all the time must have polled, if the requests took
        longer than memory does.
        """
        if self.options.given.get("ioengine", "").startswith(POLLED_ENGINES):
            return True
        if self.options.flag("hipri"):
            return True
        if self.switches is None or self.true_depth != 1 or self.options.direct() is False:
            return False
        latencies = [x.mean_s for r in self.results for x in (r.lat, r.clat) if x and x.mean_s]
        return (
            (self.user_pct or 0.0) + (self.system_pct or 0.0) >= CPU_BOUND_PCT
            and self.switches < FEW_SWITCHES * sum(result.count for result in self.results)
            and min(latencies, default=0.0) > CACHED_S
        )

    @property
    def is_phased(self) -> bool:
        """True if the reads came after the writes (verify), not between them.

        A mixture has one run time and no more in flight than its depth; phases have two of each.
        """
        if len(self.ops) < len(OPS):
            return False
        times = [time for time in self.runtimes_s.values() if time]
        if self.threads == 1 and len(times) > 1 and min(times) < (1 - RUNTIME_SPREAD) * max(times):
            return True
        found = [
            r.iops * next((x.mean_s or 0.0 for x in (r.lat, r.clat) if x), 0.0)
            for r in self.results
        ]
        if self.true_depth is None or self.threads is None or not all(found):
            return self.options.read_fraction() in (0.0, 1.0) and not all(found)
        return sum(found) > (1 + LITTLE) * self.true_depth * self.threads >= max(found)


def one_size(options: FioOptions, op: str) -> int | None:
    """Return the size of all requests of *op*, which may be both as one; None if it is not known.

    >>> one_size(FioOptions({"bs": "4k,8k"}), "write"), one_size(FioOptions({"bs": "4k"}), "mixed")
    (8192, 4096)
    """
    names: tuple[Op, ...] = OPS if op == "mixed" else ("write",) if op == "write" else ("read",)
    first, *others = [options.block_sizes(name) or {} for name in names]
    return next(iter(first)) if len(first) == 1 and all(o == first for o in others) else None
