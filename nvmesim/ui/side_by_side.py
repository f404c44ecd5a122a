"""Two to four designs side by side: what differs, what each does, how sure the difference is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nvmesim.measure.paired import Comparison
from nvmesim.predict.result import Result
from nvmesim.show import page as html
from nvmesim.show import words as summary


def comparison(
    designs: Sequence[Mapping[str, Any]], results: Sequence[Result], gains: Sequence[Comparison]
) -> str:
    """Return the designs in a table and a chart; *gains* are those over the first."""
    from nvmesim.show.blocks import table
    from nvmesim.show.charts.designs import side_by_side

    names = [f"{n}: {r.scenario}" for n, r in enumerate(results, 1)]
    against = ["-", *(f"{summary.gain(g.gain.value)} "
               f"({summary.gain_span(g.gain.low, g.gain.high)})" for g in gains)]  # fmt: skip
    lines: dict[str, list[str]] = {
        **differing(designs),
        "IOPS": [summary.kiops(r.total.iops.value) for r in results],
        "95 % within": [summary.span(r.total.iops) for r in results],
        "mean, µs": [summary.microseconds(r.total.latency.mean) for r in results],
        "p99, µs": [summary.microseconds(r.total.latency.percentiles[99.0]) for r in results],
        "CPU": [summary.percent(r.cpu.logical_utilization) for r in results],
        "stopped by": [r.bottleneck.verdict for r in results],
        "IOPS against the first": against,
        "P(more IOPS than the first)": ["-", *(_chance(g.p_better) for g in gains)],
    }
    rows = [[what, *cells] for what, cells in lines.items()]
    why = html.listing(f"{n}: {r.bottleneck.sentence}" for n, r in enumerate(results, 1))
    drawn = side_by_side(dict(zip(names, results, strict=True)))
    charts = html.figures({title: (c, "Thin: 95 % interval.") for title, c in drawn.items()})
    shown = html.html([table("Designs side by side", ("", *names), rows)])
    return f'<h2 class="part">Side by side</h2>{shown}{why}{charts}'


def differing(designs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the keys that are not the same in all *designs*, with the value that each has.

    >>> differing([{"volume": [{"raid": "raid5"}]}, {"volume": [{"raid": "raid6"}]}])
    {'volume.raid': ['raid5', 'raid6']}
    """
    flat = [dict(_flat(tables, "")) for tables in designs]
    keys = dict.fromkeys(key for one in flat for key in one if key != "name")
    found = {key: [one.get(key, "-") for one in flat] for key in keys}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _flat(item: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield from _flat(value, f"{key}.{name}".lstrip("."))
    elif isinstance(item, list) and any(isinstance(i, Mapping) for i in item):
        for number, value in enumerate(item):
            yield from _flat(value, key if len(item) == 1 else f"{key}.{number}")
    else:
        yield key, ", ".join(map(str, item)) if isinstance(item, list) else str(item)


def _chance(p: float | None) -> str:
    if p is None:
        return "-"
    if p > 0.999 or p < 0.001:
        return "> 99.9 %" if p > 0.5 else "< 0.1 %"
    return f"{100 * p:.3g} %"
