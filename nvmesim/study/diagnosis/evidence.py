"""Measured rows as loads of a scenario, and how probable they make each explanation.

The logarithm of measured over predicted is, under the explanation that holds, an error that rows
share in part (the model's and the profiles' errors, as wide as the prediction's interval) and an
error of each row. How much of that interval this server needs nobody knows: it is one factor for
all rows, and the likelihood is the mean over `WIDTHS`, so that an explanation that meets all rows
closely is worth more than one that stays within wide intervals. A multivariate t-distribution keeps
one odd row from deciding (Lange, Little and Taylor, Journal of the American Statistical Association
84, 1989). "None of these" is the same with an error of a factor that nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Captures, CpuUse, Measurement
from nvmesim.capture.caveats import UNKNOWN_COLUMN, UNSTATED_MIX
from nvmesim.errors import InputError
from nvmesim.scenario.loads.fio_options import synchronous_engines
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import format_size, parse_size
from nvmesim.warning import has

LEAST_NOISE: Final = 0.02
"""Relative standard error of a measured rate at least: repeats of one run differ by so much."""
TAIL_NOISE: Final = 0.08
"""The same of a measured p99."""
AS_IS: Final = 0.3
"""Correlation of the errors of two rows of a server as it is: of 434 published sets 0.2 to 0.35
makes both tables of the model's errors likeliest (one vote a source)."""
CHANGED: Final = 0.8
"""The same of one with a mistake, whose numbers all rows share (assumed)."""
OPPOSED: Final = -0.5
"""The same of a row's rate and its p99 (58 of these sets): who is slower waits longer."""
FREEDOM: Final = 5.0
"""Degrees of freedom of the t-distribution; of the same sets 5 are likelier than 30."""
SLOWER: Final = 12.0
"""The same of a server as it is that is slower than predicted: of 231 published sets 0.4 % of rows
lie 3 standard deviations below and more (5 degrees: 1.3 %, 12: 0.6 %), above 1.7 %."""
RULED: Final = 0.08
"""Standard deviation of the logarithm of a prediction in which neither drives nor CPUs count, as
where a link or a limit does: protocols' overheads (the published set "interfaces": 2 to 9 %)."""
BUSY_PCT: Final = 70.0
"""Percent of a CPU from which a job is busy nearly all the time."""
SLICED: Final = math.log(5.0)
"""The same of a p99: limiters let requests through in slices of 100 ms or 1 s (blk-throttle.c,
throtl_slice; github firecracker-microvm/firecracker issue 2176), which nobody states."""
PLACE: Final = (
    "targets", "socket", "buffers", "interrupts", "filesystem", "guest", "offset", "limits",
)  # fmt: skip
"""Keys of a workload that say where and through what it runs."""
SECTOR: Final = 512
ARRAYS: Final = ("md", "dm-", "9,", "252,", "253,")
"""How names of arrays begin, or major and minor number of theirs (Linux, devices.txt)."""
WIDTHS: Final = {0.125: 0.15, 0.25: 0.05, 0.5: 0.2, 1.0: 0.5, 1.5: 0.1}
"""The prediction's error on this server over what its interval says, and how likely each is: as 434
published sets tell by this likelihood (both tables of the model's errors; one vote a source)."""
UNKNOWN: Final = math.log(10.0)
"""Standard deviation of the logarithm of what an unknown mistake does: seven that the list lacked
cost public threads factors of 1.5 to 62, 14 in the root mean square of the logarithm."""
UNKNOWN_ROWS: Final = math.log(1.5)
"""What it does differently from row to row."""


@dataclass(frozen=True)
class MeasuredRow:
    """One measurement of the server."""

    label: str
    workload: Mapping[str, Any]
    """The load as a ``[[workload]]`` table."""
    iops: float
    p99_s: float | None
    """Of the completion latency of reads; None: not stated. That of writes alone tells how long a
    run was and what went before, as buffers fill and drain, and is no evidence."""
    is_buffered: bool | None
    """True if the page cache was in the way; None: not stated."""
    engine: str | None = None
    """fio's name of it; None: not stated."""
    spent_s: float | None = None
    """CPU time of a request, of jobs that were busy nearly all the time; None: they were not."""
    in_flight: float | None = None
    """Mean number of requests in flight, by their mean latency (Little's law); None: not stated."""
    submitting: float | None = None
    """Share of its time that a job submits, or is held up in it; None: slat is not stated."""
    devices: tuple[str, ...] = ()
    """Names of block devices that were busy, if stated."""
    drives: int | None = None
    """Drives, files or volumes that were loaded; None: not stated, or an array."""
    is_of_device: bool = False
    """True if it was seen at a block device (iostat, blkparse): what was in flight, of no jobs."""
    is_beside_array: bool = False
    """True if another row of its captures states the array that it measured."""

    @property
    def figures(self) -> dict[str, float]:
        """Figure -> measured value."""
        return {"iops": self.iops, **({} if self.p99_s is None else {"p99": self.p99_s})}

    @property
    def asked(self) -> float:
        """Requests that all jobs keep in flight."""
        load = self.workload
        return float(load["outstanding"] * load.get("threads_total", load.get("threads", 1)))


def mean_size(load: Mapping[str, Any]) -> float:
    """Return the mean bytes of a request of the table *load*.

    >>> mean_size({"block_size": {"4 KiB": 0.5, "8 KiB": 0.5}})
    6144.0
    """
    sizes = load["block_size"]
    parts = {sizes: 1.0} if isinstance(sizes, str) else sizes
    return sum(parse_size(size) * share for size, share in parts.items()) / sum(parts.values())


def rows_of(captures: Captures) -> tuple[list[MeasuredRow], list[str]]:
    """Return the rows of *captures* that can be simulated, and why the others cannot.

    InputError if none can.
    """
    rows, left_out = [], []
    for capture in captures.files:
        for measurement in capture.measurements:
            try:
                rows.append(_row(measurement))
            except InputError as error:
                left_out.append(f"{capture.file} ({measurement.label}): {error}")
    if any(m.conditions.raid for capture in captures.files for m in capture.measurements):
        rows = [replace(row, is_beside_array=True) for row in rows]
    if not rows:
        why = left_out[0] if left_out else "the captures hold requests but no measurements"
        raise InputError(f"no row can be compared with a prediction: {why}")
    return rows, left_out


def notes_of(captures: Captures) -> tuple[str, ...]:
    """Return what the rows of *captures* are not, though their commands may look like it."""
    engines = {m.conditions.engine or "" for c in captures.files for m in c.measurements}
    waits = (
        f"{engine}: each job has one request in flight, whatever iodepth asks; io_uring or libaio "
        "has as many as asked" for engine in sorted(engines & synchronous_engines())
    )  # fmt: skip
    said = (w for c in captures.files for w in c.warnings if has([w], UNSTATED_MIX, UNKNOWN_COLUMN))
    return (*waits, *dict.fromkeys(said))


def _row(measurement: Measurement) -> MeasuredRow:
    """One row; InputError says what its load or its rate does not state."""
    stated = measurement.conditions
    rates = {op: result.iops for op, result in measurement.ops.items()}
    total, reading = sum(rates.values()), rates.get("read", 0.0)
    if total <= 0:
        raise InputError("states no rate; IOPS or requests and run time are needed")
    sizes, jobs, depth = stated.block_size, stated.jobs, stated.iodepth
    is_of_device = jobs is None and depth is None and stated.depth_mean is not None
    if is_of_device:  # how many threads they were of it does not tell: as many as requests
        jobs, depth = max(1, round(stated.depth_mean or 0)), 1
    if sizes is None and (moved := sum(result.bytes_per_s for result in measurement.ops.values())):
        sizes = max(1, round(moved / total / SECTOR)) * SECTOR
    needed = {"jobs": jobs, "iodepth": depth, "block_size": sizes}
    missing = [name for name, value in needed.items() if value is None]
    if sizes is None or missing:
        raise InputError(
            f"does not state {' and '.join(missing)}; add columns, or the command that was run"
        )
    share = stated.read_fraction if stated.read_fraction is not None else reading / total
    load: dict[str, Any] = {
        "block_size": format_size(sizes) if isinstance(sizes, int)
        else {format_size(size): part for size, part in sizes.items()},
        "access": stated.access or "random", "read": share, "outstanding": depth,
    }  # fmt: skip
    if stated.targets_per_job == 1 and stated.targets and jobs:
        load["threads"] = max(1, jobs // stated.targets)
    else:
        load["threads_total"] = jobs
    if stated.sync is not None and total > reading:
        load[stated.sync] = "sync" if stated.sync == "sync" else 1
    if stated.rate_iops is not None and jobs:
        load["rate_limit"] = f"{stated.rate_iops / jobs:.6g}/s"
    shown = measurement.ops["read"].clat if reading > 0 else None
    return MeasuredRow(
        label=measurement.label,
        workload=load,
        iops=total,
        p99_s=None if shown is None else shown.percentiles_s.get(99.0) or None,
        is_buffered=None if stated.direct is None else not stated.direct,
        engine=stated.engine,
        spent_s=_spent_s(measurement.cpu, total),
        in_flight=_latencies_s(measurement, "lat"),
        submitting=None
        if (slat := _latencies_s(measurement, "slat")) is None or not jobs
        else slat / jobs,
        devices=tuple(measurement.disk_util_pct),
        drives=None if stated.raid else stated.targets,
        is_of_device=is_of_device,
    )


def _latencies_s(measurement: Measurement, kind: str) -> float | None:
    """Mean latencies of *kind* of what is served in a second, s; None if one is not stated."""
    found = [(op.iops, getattr(op, kind)) for op in measurement.ops.values()]
    means = [None if latency is None else latency.mean_s for _, latency in found]
    if None in means:
        return None
    return sum(iops * (mean or 0.0) for (iops, _), mean in zip(found, means, strict=True))


def _spent_s(cpu: CpuUse | None, iops: float) -> float | None:
    if cpu is None or cpu.scope != "jobs" or cpu.polled or (cpu.per_job_pct or 0.0) < BUSY_PCT:
        return None
    return cpu.total_pct / 100 / iops


def of_arrays(rows: Sequence[MeasuredRow]) -> tuple[list[MeasuredRow], list[str]]:
    """Return *rows* of a server with an array without those that were seen at a member of it.

    InputError if no other is left.
    """
    kept = [row for row in rows if not row.is_of_device or row.label.startswith(ARRAYS)]
    if not kept:
        raise InputError("no row is of the array: capture what md0 does, not what its members do")
    return kept, [f"{row.label}: a member of the array" for row in rows if row not in kept]


def on_drives(row: MeasuredRow, scenario: ResolvedScenario) -> MeasuredRow:
    """Return *row* with the drives as targets that it loaded, if it says that it did not load all.

    Beside a volume only rows of captures that name the array of others are of drives.
    """
    names = [drive.name for drive in scenario.drives]
    is_whole = not row.is_beside_array if scenario.volumes else (row.drives or 0) >= len(names)
    if row.drives is None or is_whole:
        return row
    return replace(row, workload={**row.workload, "targets": names[: row.drives]})


def placed(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all workloads of a scenario say alike of `PLACE`: rows do not state it.

    >>> placed({"workload": [{"guest": "kvm-virtio", "outstanding": 4}]})
    {'guest': 'kvm-virtio'}
    """
    first, *others = tables["workload"]
    return {k: first[k] for k in PLACE if k in first and all(o.get(k) == first[k] for o in others)}


def log_ratios(rows: Iterable[MeasuredRow], predicted: Iterable[Mapping[str, Any]]) -> Floats:
    """Return log(measured / predicted) row by row and figure by figure, NaN where one is unknown.

    >>> row = MeasuredRow("a", {"read": 1.0}, 100.0, None, None)
    >>> log_ratios([row], [{"iops": 100.0}])
    array([0.])
    """
    return np.array([
        math.log(measured / value) if (value := answer.get(figure)) else math.nan
        for row, answer in zip(rows, predicted, strict=True)
        for figure, measured in row.figures.items()
    ])  # fmt: skip


@dataclass(frozen=True)
class ErrorScale:
    """Standard deviations of log(measured / predicted), one a figure of a row."""

    model: Floats
    """float64[n]: of the prediction, by its interval."""
    noise: Floats
    """float64[n]: of the measurement."""
    figure: tuple[str, ...]
    """Name of each."""
    row: tuple[int, ...]
    """Number of its row."""

    def where_it_counts(self, counts: Floats) -> ErrorScale:
        """Return the scale of a prediction that follows drives and CPUs by *counts* of what it did.

        *counts* float64[n]: 0 where something else sets the figure, 1 where they do as before.
        """
        counts = np.clip(counts, 0.0, 1.0)
        rates = np.minimum(self.model, np.hypot(self.model * counts, RULED))
        tails = np.maximum(self.model, SLICED * (1 - counts))
        return replace(self, model=np.where(np.equal(self.figure, "iops"), rates, tails))

    def covariance(self, shared: float, width: float = 1.0, *, unknown: bool = False) -> Floats:
        """float64[n, n]; *unknown* adds what a mistake that is not in the list may do."""
        same = np.equal.outer(self.figure, self.figure)
        rows = np.where(np.equal.outer(self.row, self.row), 1.0, shared)
        model = width * self.model
        out: Floats = np.outer(model, model) * rows * np.where(same, 1.0, OPPOSED)
        out = out + np.diag(self.noise**2)
        if unknown:
            out = out + UNKNOWN**2 * same + np.diag(np.full(len(self.noise), UNKNOWN_ROWS**2))
        return out


def log_likelihood_as_is(ratios: Floats, scale: ErrorScale) -> float:
    """Return the log density of *ratios* (float64[n]; NaN is left out) of a server as it should be.

    >>> scale = ErrorScale(np.array([0.1]), np.array([0.01]), ("iops",), (0,))
    >>> slow, fast = (log_likelihood_as_is(np.array([x]), scale) for x in (-0.5, 0.5))
    >>> slow < fast
    True
    """
    is_slower = np.nanmean(ratios[np.equal(scale.figure, "iops")]) < 0
    freedom = SLOWER if is_slower else FREEDOM
    return float(log_likelihoods(ratios[None], scale, shared=AS_IS, freedom=freedom)[0])


def log_likelihood(ratios: Floats, scale: ErrorScale, *, unknown: bool = False) -> float:
    """Return the log density of *ratios* (float64[n]; NaN is left out) under one explanation.

    >>> scale = ErrorScale(np.array([0.1]), np.array([0.01]), ("iops",), (0,))
    >>> near, far = (log_likelihood(np.array([x]), scale) for x in (0.0, 0.5))
    >>> near > far
    True
    """
    return float(log_likelihoods(ratios[None], scale, unknown=unknown)[0])


def log_likelihoods(
    ratios: Floats, scale: ErrorScale, *, unknown: bool = False, shared: float = CHANGED,
    freedom: float = FREEDOM,
) -> Floats:  # fmt: skip
    """Return the same of each row of *ratios* (float64[m, n]; all lack what the first lacks)."""
    known = np.isfinite(ratios[0])
    n, values = int(known.sum()), ratios[:, known].T
    constant = math.lgamma((freedom + n) / 2) - math.lgamma(freedom / 2)
    constant -= 0.5 * n * math.log(freedom * math.pi)
    found: Floats = np.full(len(ratios), -math.inf)  # logarithms: those of many rows overflow
    for width, share in WIDTHS.items():
        covariance = scale.covariance(shared, width, unknown=unknown)[np.ix_(known, known)]
        sign, log_det = np.linalg.slogdet(covariance)
        assert sign > 0
        square = (values * np.linalg.solve(covariance, values)).sum(0)
        tail = (freedom + n) * np.log1p(square / freedom)
        log_density = math.log(share) + constant - 0.5 * (float(log_det) + tail)
        found = np.logaddexp(found, log_density)
    return found


def log_mean(logs: Sequence[float] | Floats, weights: Floats | None = None) -> float:
    """Return the logarithm of the mean, by *weights*, of what *logs* are the logarithms of.

    >>> round(log_mean([0.0, 0.0, -1000.0, -1000.0]), 6) == round(math.log(0.5), 6)
    True
    """
    found, most = np.asarray(logs), float(np.max(logs))
    if most == -math.inf:
        return most
    return most + math.log(float(np.average(np.exp(found - most), weights=weights)))


def misfit(ratios: Floats, scale: ErrorScale) -> float:
    """Return the mean square of *ratios* in standard deviations: about 1 for what holds.

    >>> scale = ErrorScale(np.array([0.1]), np.array([0.0]), ("iops",), (0,))
    >>> round(misfit(np.array([0.2]), scale), 6)
    4.0
    """
    known = np.isfinite(ratios)
    covariance = scale.covariance(CHANGED)[np.ix_(known, known)]
    values = ratios[known]
    return float(values @ np.linalg.solve(covariance, values)) / max(1, len(values))


def probabilities(scores: Mapping[str, float], priors: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each explanation, by its log likelihood and how common it is.

    >>> probabilities({"a": 0.0, "b": math.log(3)}, {"a": 0.5, "b": 0.5})
    {'a': 0.25, 'b': 0.75}
    """
    most = max(scores.values())
    weights = {name: priors[name] * math.exp(score - most) for name, score in scores.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
