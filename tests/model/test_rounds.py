"""A disk that serves in rounds: n requests in flight take base + n x each."""

import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import Pauses, Quantity, Rounds, Stalls
from tests.calibrate.bench import drive

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
    took = answer(made, 1, size=65536).mean_s
    assert took == pytest.approx(BASE + EACH + (65536 - 4096) / 1e9, rel=0.02)


def test_writes_may_add_more_than_reads():
    slow = answer(disk(), 16, read=0.0).iops
    assert slow == pytest.approx(16 / (BASE + 16 * 2 * EACH), rel=0.02)


def test_all_in_flight_leave_together_at_any_depth():
    answered = answer(disk(), 64)  # no port lets some of them miss their round
    assert answered.percentiles_s[99.9] == pytest.approx(answered.percentiles_s[50.0], rel=0.15)


@pytest.mark.parametrize("depth", [1, 16])
def test_a_stall_holds_up_the_round_that_it_is_in(depth):
    stalls = Stalls(share=Quantity(value=0.004), length=Quantity(value=1e9), cv=Quantity(value=0.1))
    round_s = BASE + depth * EACH + depth * 0.004 * 1e-3
    assert answer(disk(read_stalls=stalls), depth).iops == pytest.approx(depth / round_s, rel=0.03)
    writes = answer(disk(read_stalls=stalls), depth, read=0.0)
    assert writes.percentiles_s[99.9] < 1e-3  # they are of reads


@pytest.mark.parametrize("law", ["gamma", "lognormal"])
def test_pauses_come_as_time_passes(law):
    pauses = Pauses(
        every=Quantity(value=10e9), length=Quantity(value=1e9), cv=Quantity(value=0.5), law=law
    )
    for depth in (1, 64):
        round_s = (BASE + depth * EACH) * 1.1
        iops = answer(disk(pauses=pauses), depth).iops
        assert iops == pytest.approx(depth / round_s, rel=0.06)
