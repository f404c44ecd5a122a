"""The answer of `nvmesim run` as blocks: what a terminal, a page and a notebook all show of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from nvmesim.measure.figures import Interval, OpStats, Rebuild, Relief
from nvmesim.measure.groups import GroupStats
from nvmesim.measure.syncs import Syncs
from nvmesim.predict.result import Result
from nvmesim.predict.uncertainty.parts import Certainty, percent_of
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.show import words
from nvmesim.show.asked import asked
from nvmesim.show.blocks import (
    Block,
    Bullets,
    Cards,
    Cell,
    Facts,
    Fold,
    Line,
    Look,
    Range,
    Ranges,
    Table,
    table,
)
from nvmesim.show.blocks import Warnings as Doubts
from nvmesim.show.station_groups import equal_members, group_name, station_groups
from nvmesim.show.words import COLUMNS, kiops, microseconds, percent

OPS: Final = ("", "IOPS", "95 % within", "GB/s", *(f"{c} [us]" for c in COLUMNS))
PARTS: Final = {
    "simulation": "chance in this simulation",
    "numbers": "numbers of the parts that are not known exactly",
    "misfit": "what the drive's calibration misses",
    "model": "errors of the model, as seen on measured servers",
    "total": "all together",
}
"""Part of an interval -> what it stands for."""
LIKELY_MISS: Final = 0.5
"""Probability to meet the goal below which the answer says that it misses."""
HELPS: Final = 0.02
"""A change whose gain begins above this is likely to help."""


# The answer ---------------------------------------------------------------------------------------


def head(result: Result) -> list[Block]:
    """What was asked, the answer in a sentence, and how sure it is, as bars."""
    scenario = result.resolved
    blocks: list[Block] = [Line(result.scenario, "title")]
    blocks += [Line(f"with {change}", "soft") for change in result.changes]
    if isinstance(scenario, ResolvedScenario):
        blocks.append(Line(f"asked: {asked(scenario)}", "soft"))
    return [*blocks, Line(headline(result), "head"), ranges(result)]


def headline(result: Result) -> str:
    """The answer in plain words: how much, whether it meets the goal, what stops it."""
    total = result.total.iops
    known = words.span(total)
    parts = [f"{words.about(total.value)} IOPS" + (f", probably {known}" if known else "")]
    parts += [_goal_text(result)]
    return ". ".join(p for p in parts if p) + f". {result.bottleneck.sentence}"


def _goal_text(result: Result) -> str:
    goal = result.goal
    value = None if goal is None else words.latency_at(result.total.latency, goal.what)
    if goal is None:
        return ""
    limit = words.time(goal.limit)
    if value is None:
        late = _late_share(result, goal.limit)
        return f"{words.percent(late)} of its requests take longer than your {limit}"
    verdict = f"meets your {limit}" if value <= goal.limit else f"misses your {limit}"
    if goal.probability is not None:
        verdict = f"meets your {limit} with a probability of {words.chance(goal.probability)}"
        if goal.probability < LIKELY_MISS:
            verdict = f"misses your {limit} ({words.chance(goal.probability)} likely to meet it)"
    return f"Its {goal.what} of {words.time(value)} {verdict}"


def _late_share(result: Result, limit_s: float) -> float:
    """Share of the requests that took longer than *limit_s*."""
    found = result.total.latency
    late = found.bin_count[found.bin_s > limit_s].sum()
    return float(late) / max(1, int(found.bin_count.sum()))


def ranges(result: Result) -> Ranges:
    """IOPS and p99 as bars, each with the interval of everything that is not known."""
    total = result.total
    text = f"{kiops(total.iops.value)} ({words.span(total.iops)})"
    rows = [Range("IOPS", total.iops, text)]
    goal = result.goal
    what = goal.what if goal else "p99"
    value, ends = words.latency_at(total.latency, what), total.latency.intervals.get(what)
    if value is not None and ends is not None:
        text = f"{words.time(value)} ({words.time_span(*ends)})"
        limit, says = (goal.limit, f"goal {words.time(goal.limit)}") if goal else (None, "")
        rows.append(Range(what, Interval(value, *ends), text, limit, says))
    known = [row for row in rows if math.isfinite(row.interval.high) and row.interval.value]
    return Ranges(tuple(known))


def cards(result: Result) -> Cards:
    """The figures in large letters."""
    total, p99 = result.total, words.latency_at(result.total.latency, "p99")
    return Cards((
        (f"{kiops(total.iops.value)} IOPS", f"probably {words.span(total.iops) or 'unknown'}"),
        (f"{words.gigabytes(total.bytes_per_s.value)} GB/s", "moved, reads and writes"),
        (f"{microseconds(total.latency.mean)} µs", "mean latency"),
        (f"{microseconds(p99)} µs", "p99: 99 % of the requests are faster"),
        (percent(result.cpu.logical_utilization), "CPU as the system shows it"),
    ))  # fmt: skip


def ops(result: Result) -> Table:
    """Total, and reads and writes if both are there."""
    both = result.read is not None and result.write is not None
    only = "read" if result.read is not None else "write"
    rows = [_op_row("total" if both else only, result.total)]
    if both:
        rows += [_op_row(n, s) for n, s in (("read", result.read), ("write", result.write)) if s]
    return table("Reads and writes", OPS, rows, looks=("strong",))


def _op_row(name: str, stats: OpStats) -> list[str]:
    latencies = (microseconds(words.latency_at(stats.latency, c)) for c in COLUMNS)
    rate, bandwidth = stats.iops, words.gigabytes(stats.bytes_per_s.value)
    return [name, kiops(rate.value), words.span(rate), bandwidth, *latencies]


def facts(result: Result) -> Facts:
    """CPU, flushes and a rebuild in one line each."""
    pairs = [("CPU", f"{percent(result.cpu.logical_utilization)} busy, as the system shows it")]
    if result.sync is not None:
        pairs.append(("flushes", sync_sentence(result.sync)))
    if result.rebuild is not None:
        pairs.append(("rebuild", rebuild_sentence(result.rebuild)))
    if result.outside:
        beyond = "; ".join(map(str, result.outside))
        pairs.append(("beyond", f"what was measured of the drive: {beyond}"))
    return Facts(tuple(pairs))


def sync_sentence(sync: Syncs) -> str:
    """How many flushes follow writes, and how long they take.

    >>> sync_sentence(Syncs(5400.0, 10_000, 158e-6, 0.9e-3, {50.0: 150e-6, 99.0: 410e-6}))
    '5.4k flushes a second of 158 us on average (p50 150, p99 410), beside the writes they follow'
    """
    known = [f"p{p:g} {microseconds(v)}" for p, v in sync.percentiles.items() if v is not None]
    tail = f" ({', '.join(known)})" if known else ""
    return (
        f"{kiops(sync.per_s)} flushes a second of {microseconds(sync.mean)} us on average{tail}, "
        "beside the writes they follow"
    )


def rebuild_sentence(rebuild: Rebuild) -> str:
    """How fast a rebuild or check goes beside the load, and how long it takes.

    >>> rebuild_sentence(Rebuild("volume0", "drive1", 204.8e6, 2.17))
    'volume0: drive1 is rebuilt at 205 MB/s, 2.2 hours for the whole member at this load'
    """
    what = f"{rebuild.drive} is rebuilt" if rebuild.drive else "all members are checked"
    if not math.isfinite(rebuild.hours):
        return f"{rebuild.volume}: {what}, yet nothing moved during the run"
    return (
        f"{rebuild.volume}: {what} at {rebuild.bytes_per_s / 1e6:,.3g} MB/s, "
        f"{rebuild.hours:.2g} hours for the whole member at this load"
    )


# What would help, and each workload ---------------------------------------------------------------


def reliefs(found: Sequence[Relief]) -> Table:
    """Every change that was simulated, with its exact setting where it has one."""
    settings = [_setting(relief) for relief in found]
    rows = [
        [r.change, kiops(r.iops.value), words.gain(r.gain),
         words.gain_span(r.gain_low, r.gain_high), *([setting] if any(settings) else [])]
        for r, setting in zip(found, settings, strict=True)
    ]  # fmt: skip
    headings = ["what would help", "IOPS", "gain", "95 % within"]
    looks: list[Look] = ["" if relief.gain_low > HELPS else "faint" for relief in found]
    return table("Changes that were simulated", headings + ["<set"] * any(settings), rows,
                 looks=looks)  # fmt: skip


def _setting(relief: Relief) -> str:
    """Keys and values as --set takes them."""
    return " ".join(f"{key}={value}" for key, value in relief.set.items())


def groups(result: Result) -> Table | None:
    """Each workload by itself, where there are several or one is held to something."""
    found = result.groups
    if len(found) < 2 and not any(g.slo or g.limit_used is not None for g in found):
        return None
    heads = ["workload", "IOPS", "95 % within", *(f"{c} [us]" for c in COLUMNS)]
    extra = {
        "of its limit": [_used(g) for g in found],
        "goal [us]": [f"{g.slo.limit_s * 1e6:,.4g}" if g.slo else "" for g in found],
        "requests above": [words.small_share(g.slo.requests_above.value) if g.slo else ""
                           for g in found],
        "time above": [words.small_share(g.slo.time_above) if g.slo else "" for g in found],
    }  # fmt: skip
    shown = {name: cells for name, cells in extra.items() if any(cells)}
    rows = [
        [g.name, kiops(g.iops.value), words.span(g.iops), microseconds(g.mean_s),
         *(microseconds(g.percentiles[p]) for p in COLUMNS[1:]), *(c[i] for c in shown.values())]
        for i, g in enumerate(found)
    ]  # fmt: skip
    note = "above: slower than the goal (slo); time above: when more than 1 % of the requests were"
    return table("Workloads", [*heads, *shown], rows, notes=[note] if "goal [us]" in shown else [])


def _used(group: GroupStats) -> str:
    return "" if group.limit_used is None else f"{percent(group.limit_used)} used"


# For those who want to know more ------------------------------------------------------------------


def known(result: Result) -> Fold:
    """How the numbers are known: parts of the interval, what the run took, what the CPU did."""
    took = (
        f"{result.requests:,} requests, {result.simulated_s:.3g} s of load after "
        f"{result.warmup_s:.3g} s of warm-up; {result.engine} engine, seed {result.seed}, "
        f"{words.seconds(result.wall_s)}"
    )
    state = "" if result.converged else "; the precision asked for was not reached"
    pairs = [("simulated", took + state)]
    certainty = result.certainty
    if certainty.model_class:
        pairs.append(("model", f"{certainty.model_class}: {certainty.rests_on()}"))
    cpu = result.cpu
    pairs.append(("CPU", (
        f"{percent(cpu.logical_utilization)} as the operating system shows it, "
        f"{percent(cpu.physical_utilization)} of what the cores can do; "
        f"{cpu.cycles_per_io / 1e3:.1f} kcycles per IO, {cpu.ghz_per_miops:.1f} GHz per MIOPS"
    )))  # fmt: skip
    if (crossing := result.crossing) is not None:
        pairs.append(("sockets", crossing.sentence()))
    basis: Sequence[Any] = getattr(certainty, "basis", ())
    blocks: list[Block] = [Facts(tuple(pairs))]
    if certainty.figures:
        blocks.append(_interval_parts(certainty))
    else:
        blocks.append(Line("Intervals are those of the simulation alone.", "soft"))
    if basis:
        rows = [[b.source, f"{b.rows:,}", percent(b.weight)] for b in basis]
        blocks.append(table("Sources of the model's error", ["source", "rows", "weight"], rows))
    return Fold("how it is known", tuple(blocks))


def _interval_parts(certainty: Certainty) -> Table:
    """How wide each part of the interval is, figure by figure."""
    figures = [
        name for name in ("iops", "mean", "p50", "p99", "p99.9") if name in certainty.figures
    ]
    rows = [
        [says, *(_width(getattr(certainty.figures[name], part)) for name in figures)]
        for part, says in PARTS.items()
    ]
    heads = [f"{'IOPS' if name == 'iops' else name} [%]" for name in figures]
    return table("Parts of the intervals", ["95 % interval, by where it is from", *heads], rows,
                 notes=["the parts add up as squares"])  # fmt: skip


def _width(found: tuple[float, float]) -> str:
    text = percent_of(found)
    return text if "/" in text else f"±{text}"


def assumed(result: Result) -> Fold | None:
    """Numbers that nobody measured."""
    if not result.assumptions:
        return None
    title = words.plural(len(result.assumptions), "assumption")
    return Fold(title, (Bullets(tuple(result.assumptions)),))


def doubts(result: Result) -> Doubts:
    """Reasons to doubt the numbers."""
    return Doubts(tuple(result.warnings))


def latencies(result: Result) -> Table:
    """Mean and percentiles with their intervals."""
    parts = {"total": result.total, "read": result.read, "write": result.write}
    both = result.read is not None and result.write is not None
    columns = ["mean", *(f"p{p:g}" for p in sorted(result.total.latency.percentiles))]
    rows = [
        [Cell(name), *_latency_cells(stats, columns), Cell(microseconds(stats.latency.max))]
        for name, stats in parts.items()
        if stats is not None and (both or name == "total")
    ]
    note = "From submission to completion, as the application sees it; below it the 95 % interval."
    return table("Latency", ["", *(f"{c} [us]" for c in columns), "max [us]"], rows, notes=[note])


def _latency_cells(stats: OpStats, columns: Sequence[str]) -> Iterator[Cell]:
    for column in columns:
        value, ends = words.latency_at(stats.latency, column), stats.latency.intervals.get(column)
        small = ""
        if value is not None and ends is not None:
            small = " to ".join(microseconds(end) for end in ends)
        yield Cell(microseconds(value), small)


STATIONS: Final = ("station", "<kind", "servers", "busy", "wait [us]", "service [us]", "visits")


def stations(result: Result, *, grouped: bool = True) -> Table:
    """What requests wait for along the path; of equal ones the busiest."""
    rows = []
    for group in station_groups(result.stations):
        for s in (group.busiest,) if grouped else group.members:
            many = len(group.members)
            label = f"{group.label}, busiest of {many}" if many > 1 and grouped else s.name
            rows.append([
                label, s.kind, f"{s.servers:,}", percent(s.utilization),
                microseconds(s.wait_mean_s), microseconds(s.service_mean_s),
                aligned(s.visits_per_request),
            ])  # fmt: skip
    return table("Stations" if grouped else "All stations", STATIONS, rows)


def aligned(count: float) -> str:
    """A count per request with as many decimals as its neighbours above and below.

    >>> aligned(0.0123), aligned(1.0), aligned(64.0)
    ('0.012', '1.000', '64.000')
    """
    return f"{count:,.3f}" if count < 1000 else f"{count:,.0f}"


_COUNTS: Final = {
    "reads": "reads_per_request", "writes": "writes_per_request",
    "read bios": "read_bios_per_request", "write bios": "write_bios_per_request",
    "read [KiB]": "read_bytes_per_request", "written [KiB]": "write_bytes_per_request",
}  # fmt: skip


def members(result: Result) -> Table | None:
    """Commands of each drive, per request; of many equal ones the mean."""
    if not result.members:
        return None
    rebuilt = (result.rebuild.drive or "") if result.rebuild is not None else ""
    rows: list[list[str]] = []
    for group in equal_members(result.members, rebuilt):
        counts = (
            sum(getattr(m, key) for m in group) / len(group) / (1024 if "KiB" in name else 1)
            for name, key in _COUNTS.items()
        )
        name = group_name(group) + (", rebuilt" if group[0].name == rebuilt else "")
        rows.append([name, *map(aligned, counts), percent(max(m.utilization for m in group))])
    return table("Drives, per request", ["drive", *_COUNTS, "busy"], rows)


def blocks_of(result: Result) -> list[Block]:
    """What `nvmesim run` prints; folds are for ``--verbose``."""
    by_drive = members(result)
    found: list[Block | None] = [
        *head(result), ops(result), facts(result),
        reliefs(result.bottleneck.reliefs) if result.bottleneck.reliefs else None,
        groups(result), doubts(result), known(result), assumed(result),
        Fold("stations and drives", (stations(result), *([by_drive] if by_drive else []))),
    ]  # fmt: skip
    return [block for block in found if block is not None]


def printed(result: Result) -> str:
    """Return what `nvmesim run` prints, without colours."""
    from nvmesim.show.terminal import text

    return text(blocks_of(result))
