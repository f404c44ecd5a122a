"""The report of a result: one HTML page to send to a colleague, readable with no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nvmesim.predict import stragglers
from nvmesim.predict.result import Result
from nvmesim.show import answer
from nvmesim.show.blocks import Block, Bullets, Charts, Drawn, Facts, Fold, Section, Source
from nvmesim.show.glossary import GLOSSARY
from nvmesim.show.page import document, html
from nvmesim.show.picture.server import picture
from nvmesim.show.words import kiops

CAPTIONS: Final = {
    "Busy, along the path": (
        "Share of the time that each station works; of equal ones (× how many) the busiest, a "
        "white mark at the least busy. Dashed: 90 %, from where a station counts as full."
    ),
    "What would help": (
        "IOPS after each change, simulated again with the same random numbers; thin line: the "
        "95 % interval of the gain, cut where it leaves the chart. Dashed: as it is."
    ),
    "Latency": "Each grid line up is one more nine. Dots are the percentiles of the table.",
    "Throughput against outstanding requests": (
        "Simulated; band: as uncertain as the answer. Dashed: what the busiest stations and the "
        "unloaded latency allow."
    ),
    "Latency against throughput": (
        "Beyond the bend more outstanding requests only wait. Band: as uncertain as the answer."
    ),
    "What each drive does": "Commands that each drive serves, after splitting and merging.",
    "Latency over time": (
        "Each point is one of at most 64 slices of the run: thick p99, thin p50. Level lines: the "
        "latency that requests should not exceed (slo)."
    ),
    "Throughput over time": "Completions in each slice, by workload.",
    **stragglers.CAPTIONS,
}


def page(result: Result, *, scenario_text: str = "", changes: Sequence[str] = ()) -> str:
    """Return the report of *result* as one HTML page that loads nothing.

    *scenario_text* is the file it was run from, *changes* the ``--set`` values applied to it.
    """
    several = answer.ops(result)
    groups, drives = answer.groups(result), answer.members(result)
    sections: dict[str, list[Block | None]] = {
        "What would help, and what would not": [_reliefs(result)],
        "The server under this load": [_server(result)],
        "Charts": [_charts(result)],
        "Latency": [answer.latencies(result)],
        "Workloads": [groups],
        "Stations": [answer.stations(result), _all_stations(result)],
        "Drives, per request": [drives],
        "Assumed": [Bullets(result.assumptions) if result.assumptions else None],
        "Where this comes from": [_provenance(result, changes), _source(scenario_text)],
        "Words": [Fold("What the words mean", (Facts(tuple(GLOSSARY.items())),))],
    }
    blocks: list[Block] = [
        *answer.head(result), answer.cards(result), *([several] if len(several.rows) > 1 else []),
        answer.facts(result), answer.known(result), answer.doubts(result),
    ]  # fmt: skip
    for title, inside in sections.items():
        shown = tuple(block for block in inside if block is not None)
        blocks += [Section(title, shown)] if shown else []
    title = ", ".join([result.scenario, *map(str, changes or result.changes)])
    return document(f"{title} · nvmesim", blocks)


def fragment(result: Result) -> str:
    """HTML that a notebook shows of *result*: the answer in words, numbers, server."""
    server = _server(result)
    blocks = [*answer.head(result), answer.ops(result), *([server] if server else [])]
    return f"<div>{html(blocks)}</div>"


def live(result: Result) -> dict[str, str]:
    """Return the parts of a page that is still being worked on: name -> HTML, empty if none."""
    several = answer.ops(result)
    parts: dict[str, Sequence[Block | None]] = {
        "figures": [*answer.head(result)[-2:], answer.cards(result),
                    several if len(several.rows) > 1 else None, answer.facts(result),
                    answer.known(result)],
        "warnings": [answer.doubts(result)],
        "reliefs": [_reliefs(result)],
        "server": [_server(result)],
        "assumed": [Bullets(result.assumptions) if result.assumptions else None],
    }  # fmt: skip
    return {name: html(b for b in found if b is not None) for name, found in parts.items()}


def _reliefs(result: Result) -> Block | None:
    found = result.bottleneck.reliefs
    return answer.reliefs(found) if found else None


def _server(result: Result) -> Block | None:
    svg = picture(result)
    return Drawn(svg, "The server") if svg else None


def _charts(result: Result) -> Block:
    from nvmesim.show.charts.result import all_charts

    return Charts({t: (c, CAPTIONS.get(t, "")) for t, c in all_charts(result).items()})


def _all_stations(result: Result) -> Block | None:
    every = answer.stations(result, grouped=False)
    folded = len(every.rows) > len(answer.stations(result).rows)
    return Fold(f"All {len(every.rows)} stations", (every,)) if folded else None


def _provenance(result: Result, changes: Sequence[str]) -> Block:
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
    return Facts((*pairs, *(("changed by", f"--set {change}") for change in changes)))


def _source(text: str) -> Block | None:
    return Fold("The scenario file", (Source(text),)) if text else None
