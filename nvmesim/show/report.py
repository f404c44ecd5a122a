"""The report of a result: one HTML page to send to a colleague, readable with no network."""

import math
from collections.abc import Sequence

from nvmesim.predict.result import Result
from nvmesim.show import answer
from nvmesim.show import blocks as b
from nvmesim.show.page import document
from nvmesim.show.picture import picture
from nvmesim.show.words import kiops, texts


def page(result: Result, *, scenario_text: str = "", changes: Sequence[str] = ()) -> str:
    """Return the report of *result*, of its scenario's file and ``--set`` values, as HTML."""
    from nvmesim.show.charts.result import all_charts

    several, stations = answer.ops(result), answer.stations(result)
    every = answer.stations(result, grouped=False)
    all_stations = b.Fold(f"All {len(every.rows)} parts", (every,))
    captions, glossary = texts("result"), tuple(texts("glossary").items())
    source = b.Fold("The scenario file", (b.Source(scenario_text),))
    charts = b.Charts({t: (c, captions.get(t, "")) for t, c in all_charts(result).items()})
    sections: dict[str, list[b.Block]] = {
        "What would help, and what would not": b.present(answer.reliefs(result.bottleneck.reliefs)),
        "The server under this load": b.present(server(result)),
        "Charts": [charts],
        "Latency": [answer.latencies(result)],
        "Workloads": b.present(answer.groups(result)),
        "Parts under this load": b.present(
            stations, all_stations if len(every.rows) > len(stations.rows) else None
        ),
        "Drives, per request": b.present(answer.members(result)),
        "Assumed": b.present(answer.assumed(result)),
        "Where this comes from": b.present(
            _provenance(result, changes), source if scenario_text else None
        ),
        "Words": [b.Fold("What the words mean", (b.Facts(glossary),))],
    }
    title = ", ".join([result.scenario, *map(str, changes or result.changes)])
    return document(f"{title} · nvmesim", b.present(
        *answer.head(result), answer.cards(result), several if len(several.rows) > 1 else None,
        answer.facts(result), answer.known(result), b.Warnings(tuple(result.warnings)),
        *(b.Section(title, tuple(inside)) for title, inside in sections.items() if inside),
    ))  # fmt: skip


def fragment(result: Result) -> list[b.Block]:
    """What a notebook shows of *result*: the answer in words, numbers, server."""
    return b.present(*answer.head(result), answer.ops(result), server(result))


def server(result: Result) -> b.Block | None:
    """The picture of the server; None if *result* does not know it."""
    svg = picture(result)
    return b.Drawn(svg, "The server") if svg else None


def _provenance(result: Result, changes: Sequence[str]) -> b.Block:
    bound = result.bottleneck.bound_iops
    pairs = [
        ("nvmesim", result.version),
        ("engine, seed", f"{result.engine}, {result.seed}"),
        ("simulated", f"{result.requests:,} requests, {result.simulated_s:.4g} s of load"),
        ("warm-up left out", f"{result.warmup_s:.4g} s"),
        ("computing time", f"{result.wall_s:.3g} s"),
        ("in flight", f"{result.outstanding:,} requests"),
        ("asymptotic bound", f"{kiops(bound)} IOPS" if math.isfinite(bound) else "none"),
    ]
    return b.Facts((*pairs, *(("changed by", f"--set {change}") for change in changes)))
