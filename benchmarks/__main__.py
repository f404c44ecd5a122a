"""`python -m benchmarks`: requests per CPU second, ratios, agreement, growth; as table or JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import asdict

from benchmarks.growth import Point, elapsed, points
from benchmarks.measure import (
    BASE,
    MOST_TOKENS,
    NAMES,
    OUTSTANDING,
    QUICK,
    Effort,
    Measured,
    measure_full,
    measure_pool,
)
from benchmarks.models import FULLS, POOLS

GROWTH = "growth"
WORKLOADS = (*POOLS, *FULLS, GROWTH)
LEAST_VISITS_PER_S = 10_000_000
LEAST_RATIO = {"simpy_plain": 100.0, "c_heap": 0.6, "c_wheel": 0.4}
"""Of the compiled engine on (a) and (b)."""
LEAST_RATE = {"jbod": 2_000_000, "raid5": 700_000}
SERVER_MIOPS = {"jbod": 3, "raid5": 1}
"""Servers that a second of simulation is to be compared with."""


def main(words: list[str] | None = None) -> int:
    """Measure; 1 if implementations disagree, 2 for an unknown workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="requests per second as one object")
    parser.add_argument("--detail", action="store_true", help="... and all else that was measured")
    parser.add_argument("--only", default="", help=f"of {','.join(WORKLOADS)}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    given = parser.parse_args(words)
    only = [x for x in given.only.split(",") if x] or list(WORKLOADS)
    if unknown := [x for x in only if x not in WORKLOADS]:
        parser.error(f"unknown workload {unknown[0]}; known: {', '.join(WORKLOADS)}")
    effort = QUICK if given.quick else Effort()
    start = time.perf_counter()

    def note(what: str) -> None:
        print(f"[{elapsed(start)}] {what}", file=sys.stderr, flush=True)

    measured: list[Measured] = []
    for name in only:
        for outstanding in _outstanding(name, given.quick):
            note(f"{name}, {outstanding:,} outstanding")
            if name in POOLS:
                measured.append(measure_pool(POOLS[name], outstanding, effort))
            else:
                own = outstanding == FULLS[name].outstanding
                measured.append(measure_full(FULLS[name], outstanding, effort, slow=own))
    grown: list[Point] = []
    if GROWTH in only:
        note("growth")
        grown = list(points(given.quick))
    wrong = [line for m in measured for line in m.disagreements()]
    for line in wrong if given.json else ():
        note(line)
    if given.json:
        rates: dict[str, object] = {m.name: m.row() for m in measured}
        more = _detail(measured, grown, wrong) if given.detail or grown else {}
        print(json.dumps(rates | more, indent=1))
    else:
        _print(measured, grown, wrong)
    return 1 if wrong else 0


def _outstanding(name: str, quick: bool) -> list[int]:
    """Return the workload's own outstanding, then the others that make sense."""
    if name == GROWTH:
        return []
    model = POOLS.get(name) or FULLS[name]
    if name in POOLS:
        others = () if quick else OUTSTANDING
        return [model.outstanding, *(o for o in others if o != model.outstanding)]
    tokens = 33 if name == "raid0" else 5
    others = () if quick else OUTSTANDING
    return [
        model.outstanding,
        *(o for o in others if o != model.outstanding and o * tokens <= MOST_TOKENS),
    ]


def _detail(measured: list[Measured], grown: list[Point], wrong: list[str]) -> dict[str, object]:
    out: dict[str, object] = {"detail": {m.name: m.detail() for m in measured}}
    out["goals"] = {what: {"value": v, "least": least} for what, v, least in _goals(measured)}
    out["agreement"] = wrong or "all"
    if grown:
        out[GROWTH] = [asdict(point) for point in grown]
    out["machine"] = {"processor": platform.machine(), "cpus": os.cpu_count(),
                      "python": platform.python_version()}  # fmt: skip
    return out


def _goals(measured: list[Measured]) -> list[tuple[str, float, float]]:
    """Figures to reach: what, value, least."""
    out: list[tuple[str, float, float]] = []
    for m in measured:
        rate = m.rate(BASE) or 0.0
        out.append((f"{m.name}: visits/s", rate * m.visits, LEAST_VISITS_PER_S))
        for other, least in LEAST_RATIO.items() if m.name in ("a", "b") else ():
            ratio = m.ratio(other)
            if ratio is not None:
                out.append((f"{m.name}: compiled / {other}", ratio, least))
        if m.name in LEAST_RATE:
            out.append((f"{m.name}: requests/s", rate, LEAST_RATE[m.name]))
            miops = SERVER_MIOPS[m.name]
            out.append((f"{m.name}: s / s of {miops} MIOPS", rate / 1e6 / miops, 0.7))
    return out


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.3g}"


def _print(measured: list[Measured], grown: list[Point], wrong: list[str]) -> None:
    if measured:
        _print_rates(measured)
        _print_latencies(measured)
        print()
        for name, why in sorted({(n, w) for m in measured for n, w in m.missing.items()}):
            print(f"{name}: {why}")
        print("\n".join(wrong) or "Means within 1 %, p99 within 3 %, the two engines equal")
        print("\nFigures to reach")
        for what, value, least in _goals(measured):
            verdict = "reached" if value >= least else "MISSED"
            print(f"  {what:28} {_number(value):>9}  (least {_number(least)}): {verdict}")
    if grown:
        print("\nCost growth of the compiled engine")
        print(_line("", "", "ns/request", "ns/visit", "engine", "peak"))
        for p in grown:
            cells = f"{p.engine_bytes / 1e6:.1f} MB", f"{p.peak_mb:.0f} MB"
            times = f"{p.ns_per_request:.0f}", f"{p.ns_per_visit:.1f}"
            print(_line(p.axis, f"{p.value:,}", *times, *cells))


def _print_rates(measured: list[Measured]) -> None:
    print("Requests per CPU second (one core; median of the rounds, +- half the spread)")
    print(_line("", "outst.", *NAMES, "visits/s", "sim s/s"))
    for m in measured:
        rate = m.rate(BASE) or 0.0
        ends = _number(rate * m.visits), f"{m.simulated_per_s:.2f}"
        print(_line(m.name, f"{m.outstanding:,}", *(_cell(m, name) for name in NAMES), *ends))
    print("\nCompiled engine / other (median of the rounds' ratios)")
    print(_line("", "outst.", *NAMES[1:]))
    for m in measured:
        ratios = (m.ratio(name) for name in NAMES[1:])
        cells = ("-" if r is None else f"{r:.3g}" for r in ratios)
        print(_line(m.name, f"{m.outstanding:,}", *cells))


def _print_latencies(measured: list[Measured]) -> None:
    print("\nMean / p99 latency, us")
    print(_line("", "outst.", *NAMES))
    for m in measured:
        pairs = (m.latency(n) if n in m.samples else None for n in NAMES)
        cells = ("-" if p is None else f"{p[0]:.4g}/{p[1]:.4g}" for p in pairs)
        print(_line(m.name, f"{m.outstanding:,}", *cells))


def _cell(m: Measured, name: str) -> str:
    rate = m.rate(name)
    return "-" if rate is None else f"{_number(rate)} {50 * m.spread(name):.0f}%"


def _line(first: str, second: str, *cells: str) -> str:
    return f"{first:12}{second:>10} " + "".join(f" {cell:>14}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
