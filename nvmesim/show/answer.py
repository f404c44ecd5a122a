"""The answer of `nvmesim run` as blocks: what a terminal, a page and a notebook all show of it."""

import math
from collections.abc import Sequence
from typing import Final

from nvmesim.measure.figures import Interval, OpStats, Rebuild, Relief
from nvmesim.measure.latency import Syncs, enough
from nvmesim.predict.result import Result
from nvmesim.predict.uncertainty.parts import percent_of
from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup
from nvmesim.show import blocks as b
from nvmesim.show import words
from nvmesim.show.station_groups import equal_members, station_groups
from nvmesim.show.words import COLUMNS, kiops, microseconds, percent
from nvmesim.units import format_size

OPS: Final = ("", "IOPS", "95 % within", "GB/s", *(f"{c} [us]" for c in COLUMNS))
MOST_GROUPS: Final = 3
"""Workloads whose load is written out; more are counted."""
LIKELY_MISS: Final = 0.5
"""Probability to meet the goal below which the answer says that it misses."""
LITTLE: Final = 0.005
"""A gain below this is none: what brings no more is named below the table."""
SHOWN: Final = (50.0, 99.0, 99.9)
"""Percentiles of the table of operations."""
HELPS: Final = 0.02
"""A change whose gain begins above this is likely to help."""
LIGHTER: Final = 0.8
"""A load that does as much, in this share of the mean latency or less, is worth a line."""


def asked(scenario: ResolvedScenario) -> str:
    """Return the load of *scenario* in words, all workloads of it."""
    groups = scenario.workload
    shown = [
        f"{group.name}: {asked_of(group)}" if len(groups) > 1 else asked_of(group)
        for group in groups[:MOST_GROUPS]
    ]
    if len(groups) > MOST_GROUPS:
        shown.append(f"{words.plural(len(groups) - MOST_GROUPS, 'workload')} more")
    text = " | ".join(shown) or "the rebuild or check alone"
    logical = sum(socket.logical_cpus for socket in scenario.sockets)
    if sum(group.n_threads for group in groups if not group.is_open) > logical:
        text += f"; these are more threads than the {logical} logical CPUs"
    return text


def asked_of(group: WorkloadGroup) -> str:
    """Return the load of one workload in words: what it is, and how much of it is in flight.

    >>> from nvmesim.scenario.resolved import Target
    >>> drives = tuple(Target("drive", i, f"drive{i}") for i in range(24))
    >>> asked_of(WorkloadGroup("oltp", drives, read=0.7, threads=48, outstanding=32))
    'random 4 KiB, 70 % reads; 48 threads a drive x 24 drives = 1,152 threads, each with 32 in flight: 36,864 in flight'
    """  # noqa: E501
    if group.trace is not None:
        speed = "" if group.speed == 1 else f" at {group.speed:g} times its speed"
        return f"requests as recorded in {group.trace.name}{speed}"
    sizes = [(format_size(size), share) for size, share in group.block_sizes]
    mixed = ", ".join(f"{size} ({100 * share:.3g} %)" for size, share in sizes)
    what = {1.0: "reads", 0.0: "writes"}.get(group.read, f"{100 * group.read:.3g} % reads")
    text = f"{group.access} {sizes[0][0] if len(sizes) == 1 else mixed}, {what}; "
    if group.rate is not None:
        rate = words.about(group.rate)
        threads = words.plural(group.n_threads, "thread")
        return f"{text}{rate} requests/s by the clock from {threads}, however many are in flight"
    targets = len(group.targets)
    kind = "drive" if all(t.kind == "drive" for t in group.targets) else "volume"
    if any(t.parts > 1 for t in group.targets):
        kind = "file" if group.guest == "none" else "virtual disk"
    text += words.plural(group.threads, "thread")
    at_each = ""
    if targets > 1 and group.threads_are_per_target:
        text += f" a {kind} x {targets} {kind}s = {group.n_threads:,} threads"
    elif targets > 1 and group.outstanding_per == "thread-target":
        text += f" over {targets} {kind}s"
        at_each = f" at each {kind}"
    each = "each with " if group.n_threads > 1 else ""
    total = f": {group.in_flight:,} in flight" if group.in_flight != group.outstanding else ""
    return f"{text}, {each}{group.outstanding} in flight{at_each}{total}"


def head(result: Result) -> list[b.Block]:
    """What was asked, the answer in a sentence, and how sure it is, as bars."""
    scenario = result.resolved
    lines = [f"with {change}" for change in result.changes]
    if isinstance(scenario, ResolvedScenario):
        lines.append(f"asked: {asked(scenario)}")
    return [b.Line(result.scenario, "title"), *(b.Line(line, "soft") for line in lines),
            b.Line(headline(result), "head"), ranges(result)]  # fmt: skip


def headline(result: Result) -> str:
    """The answer in plain words: how much, whether it meets the goal, what stops it."""
    total, known = result.total, words.span(result.total.iops)
    text = f"{words.about(total.iops.value)} IOPS" + (f", probably {known}" if known else "")
    if (goal := result.goal) is not None:
        limit, value = words.format_time(goal.limit), words.latency_at(total.latency, goal.what)
        if value is None:
            counts = total.latency.bin_count
            late = counts[total.latency.bin_s > goal.limit].sum() / max(1, counts.sum())
            text += f". {words.percent(float(late))} of its requests take longer than your {limit}"
            if goal.probability is not None:
                text += f" ({words.chance(goal.probability)} likely to meet it)"
        else:
            verdict = f"{'meets' if value <= goal.limit else 'misses'} your {limit}"
            if (p := goal.probability) is not None:
                verdict = f"meets your {limit} with a probability of {words.chance(p)}"
                if p < LIKELY_MISS:
                    verdict = f"misses your {limit} ({words.chance(p)} likely to meet it)"
            text += f". Its {goal.what} of {words.format_time(value)} {verdict}"
    return f"{text}. {result.bottleneck.sentence}"


def ranges(result: Result) -> b.Ranges:
    """IOPS and p99 as bars, each with the interval of everything that is not known."""
    total, goal = result.total, result.goal
    text = f"{kiops(total.iops.value)} ({words.span(total.iops)})"
    rows = [b.Range("IOPS", total.iops, text)]
    what = goal.what if goal else "p99"
    value, ends = words.latency_at(total.latency, what), total.latency.intervals.get(what)
    if value is not None and ends is not None:
        text = f"{words.format_time(value)} ({words.time_span(*ends)})"
        limit, says = (goal.limit, f"goal {words.format_time(goal.limit)}") if goal else (None, "")
        rows.append(b.Range(what, Interval(value, *ends), text, limit, says))
    known = [row for row in rows if math.isfinite(row.interval.high) and row.interval.value]
    return b.Ranges(tuple(known))


def cards(result: Result, *, is_first_look: bool = False) -> b.Cards:
    """The figures in large letters; of a first look it is not known yet how sure they are."""
    total, p99 = result.total, words.latency_at(result.total.latency, "p99")
    known = words.span(total.iops)
    sure = "how sure: …" if is_first_look else f"probably {known}" if known else "how sure: unknown"
    grows = result.bottleneck.verdict == "unstable"
    mean, tail = (
        words.format_time(value) if value is not None and math.isfinite(value) else "grows" if grows
        else "…" if is_first_look else "not known" for value in (total.latency.mean, p99)
    )  # fmt: skip
    return b.Cards((
        (f"{kiops(total.iops.value)} IOPS", sure),
        (f"{words.gigabytes(total.bytes_per_s.value)} GB/s", "moved, reads and writes"),
        (mean, "mean latency"),
        (tail, "p99: 99 % of the requests are faster"),
        (percent(result.cpu.logical_utilization), "CPU as the system shows it"),
    ))  # fmt: skip


def operations(result: Result) -> dict[str, OpStats]:
    """Name -> statistics: the total, and reads and writes if both are there."""
    if result.read is None or result.write is None:
        return {"total": result.total}
    return {"total": result.total, "read": result.read, "write": result.write}


def ops(result: Result) -> b.Table:
    """A row for each of the operations."""
    rows = [
        [name, kiops(s.iops.value), words.span(s.iops), words.gigabytes(s.bytes_per_s.value),
         *(microseconds(words.latency_at(s.latency, c)) for c in COLUMNS)]
        for name, s in operations(result).items()
    ]  # fmt: skip
    if len(rows) == 1:
        rows[0][0] = "read" if result.read is not None else "write"
    notes = [
        "95 % within: how sure that is; p99: 99 % of the requests take no longer, p50: half of them"
    ]
    if result.bottleneck.verdict != "unstable":
        notes += _untold(result)
    return b.table("Reads and writes", OPS, rows, looks=("strong",), notes=notes)


def _untold(result: Result) -> list[str]:
    """Why a percentile is not shown: few requests beyond it, or few episodes of slow ones."""
    of = [
        (name, enough(stats.count, percent))
        for name, stats in operations(result).items()
        for percent in SHOWN if stats.latency.percentiles.get(percent) is None
    ]  # fmt: skip
    notes = []
    if not all(is_enough for _, is_enough in of):
        notes.append("-: too few of the simulated requests lie beyond it to tell")
    if episodes := list(dict.fromkeys(name for name, is_enough in of if is_enough)):
        notes.append(
            f"- of {words.joined(episodes)}: enough requests, but the slow ones came in a few "
            "episodes; a longer run (run.requests) may tell"
        )
    return notes


def facts(result: Result) -> b.Facts:
    """CPU, flushes, a rebuild, what it holds and takes in one line each."""
    busy = [f"{percent(result.cpu.logical_utilization)} busy, as the system shows it"]
    if result.usable_bytes is not None:
        busy.append(f"usable: {words.terabytes(result.usable_bytes)} TB")
    takes = {"W": result.watts, "list price": result.price}
    said = [f"{value:,.0f} {unit}" for unit, value in takes.items() if value is not None]
    busy += [f"drives and CPUs: {', '.join(said)}"] if said else []
    pairs = [("CPU", " | ".join(busy))]
    if result.sync is not None:
        pairs.append(("flushes", sync_sentence(result.sync)))
    if result.rebuild is not None:
        pairs.append(("rebuild", rebuild_sentence(result.rebuild)))
        if any(v.rebuild and v.raid.mirrored for v in getattr(result.resolved, "volumes", ())):
            text = "its new member, having less to do, takes most reads of what is restored: a "
            pairs.append(("", f"{text}mirror may be as fast as a healthy one meanwhile"))
    if result.outside:
        beyond = [f"{o.what} {o.asked} (measured: {o.captured})"
                  for o in result.outside]  # fmt: skip
        pairs.append(("extrapolated", "; ".join(beyond)))
    return b.Facts(tuple(pairs))


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


def helping(found: Sequence[Relief]) -> list[Relief]:
    """The changes that bring something."""
    return [relief for relief in found if relief.gain >= LITTLE]


def reliefs(tried: Sequence[Relief]) -> b.Table | None:
    """What helps, with its setting as --set takes it, command, W and price; then what does not."""
    found = helping(tried)
    settings = [" ".join(f"{key}={value}".replace(", ", ",") for key, value in r.set.items()
                         if value is not None) for r in found]  # fmt: skip
    more_w = [f"{r.watts:+,.0f}" if r.watts else "" for r in found]
    prices = [f"{r.price:+,.0f}" if r.price else "" for r in found]
    extra = {"W": more_w, "price": prices, "<set": settings}
    shown = {name: cells for name, cells in extra.items() if any(cells)}
    rows = [
        [r.change, kiops(r.iops.value), words.gain(r.gain),
         words.gain_span(r.gain_low, r.gain_high), *more]
        for r, *more in zip(found, *shown.values(), strict=True)
    ]  # fmt: skip
    heads = ["what would help", "IOPS", "gain", "95 % within", *shown]
    looks: list[b.Look] = ["" if relief.gain_low > HELPS else "faint" for relief in found]
    notes = [f"{r.change}: {r.command}" for r in found if r.command]
    for r in tried:
        if r not in found and r.gain > -HELPS and r.latency is not None and r.latency < LIGHTER:
            notes.append(f"{r.change} do as much ({words.gain(r.gain)}) at less latency "
                         f"({words.gain(r.latency - 1)} on average)")  # fmt: skip
            found.append(r)
    if idle := [f"{r.change}, {words.gain(r.gain)}" for r in tried if r not in found]:
        notes.append(f"tried, and no help: {'; '.join(idle)}")
    title = "Changes that were simulated"
    return b.table(title, heads, rows, looks=looks, notes=notes) if tried else None


def groups(result: Result) -> b.Table | None:
    """Each workload by itself, where there are several or one is held to something."""
    found = result.groups
    if len(found) < 2 and not any(g.slo or g.limit_used is not None for g in found):
        return None
    extra = {
        "limit": ["" if g.limit_used is None else f"{percent(g.limit_used)} used" for g in found],
        "goal [us]": [f"{g.slo.limit_s * 1e6:,.4g}" if g.slo else "" for g in found],
        "above": [words.small_share(g.slo.requests_above.value) if g.slo else ""
                           for g in found],
        "time above": [words.small_share(g.slo.time_above) if g.slo else "" for g in found],
    }  # fmt: skip
    shown = {name: cells for name, cells in extra.items() if any(cells)}
    rows = [
        [g.name, kiops(g.iops.value), words.span(g.iops), microseconds(g.mean_s),
         *(microseconds(g.percentiles[p]) for p in COLUMNS[1:]), *(c[i] for c in shown.values())]
        for i, g in enumerate(found)
    ]  # fmt: skip
    note = "above: requests slower than the goal (slo); time above: when more than 1 % of them were"
    heads = ["workload", "IOPS", "95 % within", *(f"{c} [us]" for c in COLUMNS), *shown]
    return b.table("Workloads", heads, rows, notes=[note] if "goal [us]" in shown else [])


def known(result: Result) -> b.Fold:
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
        pairs.append(("model", certainty.rests_on()))
    cpu = result.cpu
    pairs.append(("CPU", (
        f"{percent(cpu.logical_utilization)} as the operating system shows it, "
        f"{percent(cpu.physical_utilization)} of what the cores can do; "
        f"{cpu.cycles_per_io / 1e3:.1f} kcycles per IO, {cpu.ghz_per_miops:.1f} GHz per MIOPS"
    )))  # fmt: skip
    if result.crossing is not None:
        pairs.append(("sockets", result.crossing.sentence()))
    blocks: list[b.Block] = [b.Facts(tuple(pairs))]
    figures = {name: certainty.figures[name] for name in ("iops", "mean", "p50", "p99", "p99.9")
               if name in certainty.figures}  # fmt: skip
    if certainty.figures:
        parts = words.texts("parts")
        heads = [f"{'IOPS' if name == 'iops' else name} [%]" for name in figures]
        widths = {part: [percent_of(getattr(f, part)) for f in figures.values()] for part in parts}
        rows = [[says, *(w if "/" in w else f"±{w}" for w in widths[part])]
                for part, says in parts.items()]  # fmt: skip
        heads.insert(0, "95 % interval, by where it is from")
        notes = ["their logarithms add up as squares"]
        blocks.append(b.table("Parts of the intervals", heads, rows, notes=notes))
    else:
        blocks.append(b.Line("Intervals are those of the simulation alone.", "soft"))
    return b.Fold("how it is known", tuple(blocks))


def latencies(result: Result) -> b.Table:
    """Mean and percentiles with their intervals."""
    columns = ["mean", *(f"p{p:g}" for p in sorted(result.total.latency.percentiles))]
    rows = []
    for name, stats in operations(result).items():
        ends = [map(microseconds, stats.latency.intervals.get(c, ())) for c in columns]
        values = [words.latency_at(stats.latency, c) for c in columns]
        cells = [b.Cell(microseconds(value), "" if value is None else " to ".join(within))
                 for value, within in zip(values, ends, strict=True)]  # fmt: skip
        rows.append([b.Cell(name), *cells, b.Cell(microseconds(stats.latency.max))])
    note = "From submission to completion, as the application sees it; below it the 95 % interval."
    return b.table("Latency", ["", *(f"{c} [us]" for c in columns), "max [us]"], rows, notes=[note])


STATIONS: Final = ("part", "<kind", "servers", "busy", "wait [us]", "service [us]", "visits")


def stations(result: Result, *, grouped: bool = True) -> b.Table:
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
    return b.table("Parts" if grouped else "All parts", STATIONS, rows)


def aligned(count: float) -> str:
    """A count per request with as many decimals as its neighbours above and below."""
    return f"{count:,.3f}" if count < 1000 else f"{count:,.0f}"


_COUNTS: Final = {
    "reads": "reads_per_request", "writes": "writes_per_request",
    "read bios": "read_bios_per_request", "write bios": "write_bios_per_request",
    "read [KiB]": "read_bytes_per_request", "written [KiB]": "write_bytes_per_request",
}  # fmt: skip


def members(result: Result) -> b.Table | None:
    """Commands of each drive, per request; of many equal ones the mean."""
    rows: list[list[str]] = []
    for name, group in equal_members(result).items():
        counts = (
            sum(getattr(m, key) for m in group) / len(group) / (1024 if "KiB" in heading else 1)
            for heading, key in _COUNTS.items()
        )
        rows.append([name, *map(aligned, counts), percent(max(m.utilization for m in group))])
    return b.table("Drives, per request", ["drive", *_COUNTS, "busy"], rows) if rows else None


def assumed(result: Result) -> b.Bullets | None:
    """Numbers that nobody measured."""
    return b.Bullets(tuple(result.assumptions)) if result.assumptions else None


def blocks_of(result: Result) -> list[b.Block]:
    """What `nvmesim run` prints; folds are for ``--verbose``."""
    assumptions = assumed(result)
    title = words.plural(len(result.assumptions), "assumption")
    return b.present(
        *head(result), ops(result), facts(result), reliefs(result.bottleneck.reliefs),
        groups(result), b.Warnings(tuple(result.warnings)), known(result),
        b.Fold(title, (assumptions,)) if assumptions else None,
        b.Fold("parts and drives", tuple(b.present(stations(result), members(result)))),
    )  # fmt: skip
