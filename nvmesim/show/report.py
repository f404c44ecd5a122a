"""The report of a result: one HTML page to send to a colleague, readable with no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nvmesim.measure.figures import OpStats, Relief, StationStats
from nvmesim.predict import stragglers as waiting
from nvmesim.predict.result import Result
from nvmesim.show import page as html
from nvmesim.show import words as summary
from nvmesim.show.glossary import GLOSSARY
from nvmesim.show.page import escaped
from nvmesim.show.picture.server import picture

if TYPE_CHECKING:
    pass

CAPTIONS: Final = {
    "Busy, along the path": (
        "Share of the time that each station works; of equal ones (× how many) the busiest, a "
        "white mark at the least busy. Dashed: 90 %, from where a station counts as full."
    ),
    "What relief would bring": (
        "Gain in IOPS of each change, simulated again with the same random numbers; thin line: its "
        "95 % interval, cut where it leaves the chart."
    ),
    "Latency": "Each grid line up is one more nine. Dots are the percentiles of the table.",
    "Throughput against outstanding requests": (
        "Simulated; dashed: what the busiest stations and the unloaded latency allow."
    ),
    "Latency against throughput": "Beyond the bend more outstanding requests only wait.",
    "What each drive does": "Commands that each drive serves, after splitting and merging.",
    "Latency over time": (
        "Each point is one of at most 64 slices of the run: thick p99, thin p50. Level lines: the "
        "latency that requests should not exceed (slo)."
    ),
    "Throughput over time": "Completions in each slice, by workload.",
    **waiting.CAPTIONS,
}


def page(result: Result, *, scenario_text: str = "", changes: Sequence[str] = ()) -> str:
    """Return the report of *result* as one HTML page that loads nothing.

    *scenario_text* is the file it was run from, *changes* the ``--set`` values applied to it.
    """
    sections = {
        "What would relieve it, and what would not": _reliefs(result.bottleneck.reliefs),
        "The server under this load": _server(result),
        "Charts": _charts(result),
        "Latency": _latency(result),
        "Workloads": _groups(result),
        "Stations": _stations(result),
        "Drives, per request": _members(result),
        "Assumed": html.listing(result.assumptions) if result.assumptions else "",
        "Where this comes from": _provenance(result, scenario_text, changes),
        "Words": f"<details><summary>What the words mean</summary>{html.facts(GLOSSARY.items())}"
        "</details>",
    }
    known = {title: body for title, body in sections.items() if body}
    parts = [
        _answer(result, changes or result.changes),
        _warnings(result),
        html.contents(known),
        *(html.section(title, body) for title, body in known.items()),
    ]
    title = ", ".join([result.scenario, *map(str, changes or result.changes)])
    return html.document(f"{title} · nvmesim", "\n".join(p for p in parts if p))


def fragment(result: Result) -> str:
    """HTML that a notebook shows of *result*: numbers, reason, server."""
    rows = [_answer_row(row) for row in summary.op_rows(result)]
    return (
        f"<div><h3>{escaped(result.scenario)}</h3>{html.table(_ANSWER_HEADINGS, rows)}"
        f"<p><b>{escaped(result.bottleneck.sentence)}</b></p>{picture(result)}</div>"
    )


def live(result: Result) -> dict[str, str]:
    """Return the parts of a page that is still being worked on: name -> HTML, empty if none."""
    return {
        "figures": _figures(result),
        "warnings": _warnings(result),
        "reliefs": _reliefs(result.bottleneck.reliefs),
        "server": _server(result),
        "assumed": html.listing(result.assumptions) if result.assumptions else "",
    }


# The answer ---------------------------------------------------------------------------------------

_ANSWER_HEADINGS: Final = ("", "IOPS", "95 %", "GB/s", *(f"{c}, µs" for c in summary.COLUMNS))


def _answer_row(row: summary.OpRow) -> list[str]:
    cells = [row.name, row.iops, row.plus_minus, row.gigabytes, *row.latencies]
    return [escaped(cell) for cell in cells]


def _answer(result: Result, changes: Sequence[str]) -> str:
    changed = f" <small>with {escaped(', '.join(changes))}</small>" if changes else ""
    return (
        f"<h1>{escaped(result.scenario)}{changed}</h1>"
        '<p class="soft">Predicted by simulation, before the hardware is bought</p>'
        f"{_figures(result)}"
    )


def _figures(result: Result) -> str:
    """Numbers, reason, and how sure they are."""
    stop = result.bottleneck
    total, cpu = result.total, result.cpu
    p99 = summary.latency_at(total.latency, "p99")
    cards = [
        (f"{summary.kiops(total.iops.value)}IOPS", f"throughput, {summary.plus_minus(total.iops)}"),
        (f"{summary.gigabytes(total.bytes_per_s.value)} GB/s", "moved, reads and writes"),
        (f"{summary.microseconds(total.latency.mean)} µs", "mean latency"),
        (f"{summary.microseconds(p99)} µs", "p99 latency"),
        (summary.percent(cpu.logical_utilization), "CPU as the system shows it"),
    ]
    shown = "".join(f'<div class="card"><b>{escaped(b)}</b><span>{escaped(s)}</span></div>'
                    for b, s in cards)  # fmt: skip
    rows = [_answer_row(row) for row in summary.op_rows(result)]
    rebuild = ""
    if result.rebuild is not None:
        text = escaped(summary.rebuild_sentence(result.rebuild))
        rebuild = f"<p><b>Rebuild:</b> {text}.</p>"
    if result.sync is not None:
        rebuild += f"<p><b>Flushes:</b> {escaped(summary.sync_sentence(result.sync))}.</p>"
    several = ""
    if len(rows) > 1:
        several = html.table(_ANSWER_HEADINGS, rows, classes=("first",), name="Reads and writes")
    return (
        f'<div class="cards">{shown}</div>'
        f'<p class="why"><span class="badge">{escaped(stop.verdict)}</span> '
        f"{escaped(stop.sentence)}</p>{several}"
        f"<p><b>How sure:</b> {escaped(summary.sureness(result))}. "
        f"{escaped(_uncertainty(result))}</p>"
        f"<p><b>CPU:</b> {escaped(summary.cpu_sentence(cpu))}.</p>{_sockets(result)}{rebuild}"
    )


def _sockets(result: Result) -> str:
    """Limit of a load that crosses sockets."""
    found = result.crossing
    return "" if found is None else f"<p><b>Sockets:</b> {escaped(found.sentence())}.</p>"


def _uncertainty(result: Result) -> str:
    """Parts of the interval, and what of the load lies outside of the captures."""
    beyond = summary.outside_sentence(result)
    text = f"Outside of what was captured: {beyond}. " if beyond else ""
    if result.certainty.model_class:
        return text + "Every interval on this page holds all four parts, in quadrature."
    return text + "The intervals are those of the simulation alone."


def _warnings(result: Result) -> str:
    if not result.warnings:
        return ""
    count = summary.plural(len(result.warnings), "warning")
    return f'<div class="warnings"><p class="head">{count}</p>{html.listing(result.warnings)}</div>'


def _reliefs(reliefs: Sequence[Relief]) -> str:
    if not reliefs:
        return ""
    rows = [
        [
            escaped(relief.change),
            escaped(summary.kiops(relief.iops.value)),
            escaped(summary.gain(relief.gain)),
            escaped(f"{summary.gain(relief.gain_low)[:-2]} .. {summary.gain(relief.gain_high)}"),
        ]
        for relief in reliefs
    ]
    faint = ["" if relief.gain_low > 0.02 else "faint" for relief in reliefs]
    headings = ("change", "IOPS", "gain", "95 %")
    return html.table(headings, rows, classes=faint, name="Changes that were simulated")


def _server(result: Result) -> str:
    drawn = picture(result)
    if not drawn:
        return ""
    return f"<figure>{html.scrolled(drawn, 'The server')}</figure>"


def _charts(result: Result) -> str:
    from nvmesim.show.charts.result import all_charts

    charts = {t: (c, CAPTIONS.get(t, "")) for t, c in all_charts(result).items()}
    return html.figures(charts)


# Tables -------------------------------------------------------------------------------------------


def _latency(result: Result) -> str:
    parts = {"total": result.total, "read": result.read, "write": result.write}
    both = result.read is not None and result.write is not None
    named = {n: s for n, s in parts.items() if s is not None and (both or n == "total")}
    columns = ["mean", *(f"p{p:g}" for p in sorted(result.total.latency.percentiles))]
    rows = [_latency_row(name, stats, columns) for name, stats in named.items()]
    headings = ("µs", *columns, "max")
    note = "From submission to completion, as the application sees it; below it the 95 % interval."
    return f"{html.table(headings, rows, name='Latency')}<p class='soft'>{note}</p>"


def _groups(result: Result) -> str:
    """Each workload by itself, where there are several or one is held to something."""
    rows = [[escaped(cell) for cell in row] for row in summary.group_rows(result)]
    if not rows:
        return ""
    note = "Above: requests that took longer than agreed (slo), and the time in which 1 % did."
    table = html.table(summary.GROUP_COLUMNS, rows, name="Workloads")
    return f"{table}<p class='soft'>{note}</p>"


def _latency_row(name: str, stats: OpStats, columns: Sequence[str]) -> list[str]:
    cells = [escaped(name)]
    for column in columns:
        value = summary.latency_at(stats.latency, column)
        cell = escaped(summary.microseconds(value))
        if value is not None and column in stats.latency.intervals:
            low, high = (summary.microseconds(v) for v in stats.latency.intervals[column])
            cell += f"<small>{escaped(low)} .. {escaped(high)}</small>"
        cells.append(cell)
    return [*cells, escaped(summary.microseconds(stats.latency.max))]


_STATION_HEADINGS: Final = (
    "station",
    "kind",
    "servers",
    "busy",
    "wait, µs",
    "service, µs",
    "visits",
)


def _stations(result: Result) -> str:
    groups = summary.station_groups(result.stations)
    rows = []
    for group in groups:
        many = len(group.members)
        label = f"{group.label}, busiest of {many}" if many > 1 else group.label
        rows.append(_station_row(group.busiest, label))
    every = [_station_row(station, station.name) for station in result.stations]
    folded = ""
    if len(every) > len(rows):
        inner = html.table(_STATION_HEADINGS, every, left=(1,), name="All stations")
        folded = f"<details><summary>All {len(every)} stations</summary>{inner}</details>"
    return html.table(_STATION_HEADINGS, rows, left=(1,), name="Stations") + folded


def _station_row(station: StationStats, label: str) -> list[str]:
    cells = (
        label,
        station.kind,
        f"{station.servers:,}",
        summary.percent(station.utilization),
        summary.microseconds(station.wait_mean_s),
        summary.microseconds(station.service_mean_s),
        _aligned(station.visits_per_request),
    )
    return [escaped(cell) for cell in cells]


def _aligned(count: float) -> str:
    """A count per request with as many decimals as its neighbours above and below.

    >>> _aligned(0.0123), _aligned(1.0), _aligned(64.0)
    ('0.012', '1.000', '64.000')
    """
    return f"{count:,.3f}" if count < 1000 else f"{count:,.0f}"


def _members(result: Result) -> str:
    if not result.members:
        return ""
    headings = (
        "drive",
        "reads",
        "writes",
        "read bios",
        "write bios",
        "KiB read",
        "KiB written",
        "busy",
    )
    rebuilt = (result.rebuild.drive or "") if result.rebuild is not None else ""
    rows = []
    for alike in summary.alike(result.members, rebuilt):
        m, busy = alike[0], [m.utilization for m in alike]
        counts = [
            sum(getattr(m, count) for m in alike) / len(alike) / (1024 if "bytes" in count else 1)
            for count in _COUNTS
        ]
        name = summary.alike_name(alike) + (", rebuilt" if m.name == rebuilt else "")
        cells = [name, *(_aligned(c) for c in counts), summary.percent(max(busy))]
        rows.append([escaped(cell) for cell in cells])
    return html.table(headings, rows, name="Drives, per request")


_COUNTS: Final = (
    "reads_per_request", "writes_per_request", "read_bios_per_request", "write_bios_per_request",
    "read_bytes_per_request", "write_bytes_per_request",
)  # fmt: skip


# Doubts and provenance ----------------------------------------------------------------------------


def _provenance(result: Result, scenario_text: str, changes: Sequence[str]) -> str:
    bound = result.bottleneck.bound_iops
    pairs = [
        ("nvmesim", result.version),
        ("engine, seed", f"{result.engine}, {result.seed}"),
        ("simulated", f"{result.requests:,} requests, {result.simulated_s:.4g} s of load"),
        ("warm-up left out", f"{result.warmup_s:.4g} s"),
        ("computing time", f"{result.wall_s:.3g} s"),
        ("in flight", f"{result.outstanding:,} requests"),
        ("asymptotic bound", f"{summary.kiops(bound)}IOPS" if math.isfinite(bound) else "none"),
    ]
    pairs += [("changed by", f"--set {change}") for change in changes]
    text = f"<pre>{html.lines_escaped(scenario_text)}</pre>" if scenario_text else ""
    title = "<h3>The scenario file</h3>" if text else ""
    return f"{html.facts(pairs)}{title}{text}"
