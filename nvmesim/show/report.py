"""The report of a result: one HTML page to send to a colleague, readable with no network."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from nvmesim.predict.result import Result
from nvmesim.show import answer
from nvmesim.show import blocks as b
from nvmesim.show.page import document
from nvmesim.show.picture import picture
from nvmesim.show.words import kiops

CAPTIONS: Final = {
    "Busy, along the path": (
        "Share of the time that each part works; of equal ones (× how many) the busiest, a "
        "white mark at the least busy. Dashed: 90 %, from where a part counts as full."
    ),
    "What would help": (
        "IOPS after each change, simulated again with the same random numbers; thin line: the "
        "95 % interval of the gain, cut where it leaves the chart. Dashed: as it is."
    ),
    "Latency": "Each grid line up is one more nine. Dots are the percentiles of the table.",
    "Throughput against outstanding requests": (
        "Simulated; band: as uncertain as the answer. Dashed: what the busiest parts and the "
        "unloaded latency allow."
    ),
    "Latency against throughput": (
        "Beyond the bend more outstanding requests only wait. Band: as uncertain as the answer."
    ),
    "What each drive does": "Commands that each drive serves, after splitting and merging.",
}


GLOSSARY: Final[Mapping[str, str]] = {
    "die": "the part of a drive that holds data and does one thing at a time; a drive has "
    "dozens, each with a queue",
    "channel": "the bus inside a drive that several dies share to send data",
    "part": "anything that requests wait for: a die, a link, a CPU, a lock",
    "gate": "a number of slots, such as a write buffer's; a request that finds none free waits",
    "section": "a part of the run that the statistics look at by itself, to know how much "
    "chance there is",
    "interval": "where the true value lies with 95 % probability, as far as the model knows",
    "outstanding": "requests that were sent and are not answered yet: fio's iodepth times jobs",
    "closed loop": "threads that send the next request when one is answered",
    "open loop": "requests that arrive by the clock, whether or not earlier ones are answered",
    "relief": "a change that was simulated to see what it brings",
    "bound": "the throughput if the busiest part never waits for work: no load can exceed it",
}


def page(result: Result, *, scenario_text: str = "", changes: Sequence[str] = ()) -> str:
    """Return the report of *result*, of its scenario's file and ``--set`` values, as HTML."""
    from nvmesim.show.charts.result import all_charts

    several, stations = answer.ops(result), answer.stations(result)
    every = answer.stations(result, grouped=False)
    all_stations = b.Fold(f"All {len(every.rows)} parts", (every,))
    source = b.Fold("The scenario file", (b.Source(scenario_text),))
    charts = b.Charts({t: (c, CAPTIONS.get(t, "")) for t, c in all_charts(result).items()})
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
        "Words": [b.Fold("What the words mean", (b.Facts(tuple(GLOSSARY.items())),))],
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
