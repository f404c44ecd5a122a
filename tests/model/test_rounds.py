"""A disk that serves in rounds: n requests in flight take base + n x each."""

import pytest

from nvmesim.catalog.profile import Quantity, Rounds
from nvmesim.fit.bench import free_host, measure
from nvmesim.fit.points import Point
from tests.fit.bench import drive

BASE, EACH = 46e-6, 11.7e-6


def disk(**changes):
    """A virtual disk's numbers, with nothing before its server."""
    q = Quantity
    made = drive()
    rounds = Rounds(
        base=q(value=BASE * 1e12), read=q(value=EACH * 1e12), write=q(value=2 * EACH * 1e12),
        **changes,
    )  # fmt: skip
    read = made.read.model_copy(update={"base": q(value=0.0)})
    write = made.write.model_copy(update={"base": q(value=0.0)})
    return made.model_copy(update={"rounds": rounds, "read": read, "write": write})


def answer(profile, depth, *, read=1.0, size=4096):
    asked = Point("", read, True, size, 1, depth, 1.0, None)
    return measure(profile, free_host(), asked, requests=20_000)


@pytest.mark.parametrize("depth", [1, 4, 16, 64])
def test_throughput_is_that_of_one_round_after_another(depth):
    assert answer(disk(), depth).iops == pytest.approx(depth / (BASE + depth * EACH), rel=0.015)


def test_a_round_takes_no_more_than_its_most():
    iops = answer(disk(most=Quantity(value=4)), 64).iops
    assert iops == pytest.approx(4 / (BASE + 4 * EACH), rel=0.02)


def test_what_a_request_has_beyond_4_kib_goes_at_the_bandwidth():
    made = disk().model_copy(update={"read_bandwidth": Quantity(value=1e9)})
    port = 65536 / 7e9
    took = answer(made, 1, size=65536).mean_s
    assert took == pytest.approx(BASE + EACH + (65536 - 4096) / 1e9 + port, rel=0.02)


def test_writes_may_add_more_than_reads():
    slow = answer(disk(), 16, read=0.0).iops
    assert slow == pytest.approx(16 / (BASE + 16 * 2 * EACH), rel=0.02)
