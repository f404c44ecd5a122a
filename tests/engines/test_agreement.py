"""The models of the benchmarks give the same latencies however they are written."""

import pytest

from benchmarks import c_program, engines, plain_simpy
from benchmarks.measure import MEAN_WITHIN, P99_WITHIN
from benchmarks.models import POOLS, network
from benchmarks.sample import Piece, Sample

# what several other programs gave for these two models: mean and p99 in us, IOPS
KNOWN = {"a": (109.3, 200.0, 2.34e6), "b": (125.6, 198.5, 0.509e6)}


def run(make: object, name: str, warm: int, requests: int) -> Sample:
    model = POOLS[name]
    piece: Piece = make(model, model.outstanding, warm)  # type: ignore[operator]
    return piece(requests)


def agree(one: Sample, mean: float, p99: float) -> None:
    assert abs(one.mean_us / mean - 1) < MEAN_WITHIN
    assert abs(one.p99_us / p99 - 1) < P99_WITHIN


@pytest.mark.parametrize("name", KNOWN)
def test_compiled_engine_gives_the_known_latencies(name: str) -> None:
    ours = run(engines.compiled_pool, name, 10_000, 300_000)
    mean, p99, iops = KNOWN[name]
    agree(ours, mean, p99)
    assert abs(ours.iops / iops - 1) < MEAN_WITHIN


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("kind", ["c_heap", "c_wheel"])
def test_c_programs_agree(name: str, kind: str) -> None:
    if c_program.compiler() is None:
        pytest.skip("no C compiler here")
    ours = run(engines.compiled_pool, name, 10_000, 300_000)
    theirs = run(getattr(c_program, kind), name, 10_000, 300_000)
    agree(theirs, ours.mean_us, ours.p99_us)


@pytest.mark.parametrize(("name", "requests"), [("a", 30_000), ("b", 15_000)])
def test_plain_simpy_agrees(name: str, requests: int) -> None:
    ours = run(engines.compiled_pool, name, 10_000, 300_000)
    theirs = run(plain_simpy.simpy_plain, name, 2_000, requests)
    agree(theirs, ours.mean_us, ours.p99_us)


@pytest.mark.parametrize("name", POOLS)
def test_both_engines_are_equal_on_every_model(name: str) -> None:
    assert engines.same(network(POOLS[name]), 400)
