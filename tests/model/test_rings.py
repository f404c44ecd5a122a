"""Batches: disks that serve in rounds, rings of submissions and completions, SQPOLL, interrupts."""

import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import Pauses, Quantity, Rounds, Stalls
from nvmesim.errors import ScenarioError
from tests.calibrate.bench import drive
from tests.model.test_server import resolved, run, station

ONE = ("workload.0.threads_total=1", "workload.0.threads=@", "workload.0.outstanding=64")
FAST = (
    "drives.0.profile.read.base=2 us", "drives.0.profile.read.die=2 us",
    "drives.0.profile.commands=4M/s", "drives.0.profile.dies=256",
)  # fmt: skip
ALONE = (*ONE, *FAST, "drives.0.count=1", "workload.0.block_size=512 B")


def test_a_full_batch_pays_once_and_at_depth_1_it_is_one_request():
    """4,000 cycles a request at 2 GHz; of 1,600 a batch of 16 leaves 100."""
    per_batch = "server.stack.per_batch=1600"
    assert run(*ALONE, per_batch).total.iops.value == pytest.approx(500e3, rel=0.01)
    batched = run(*ALONE, per_batch, "workload.0.iodepth_batch=16")
    assert batched.total.iops.value == pytest.approx(2e9 / 2500, rel=0.02)
    assert batched.cpu.cycles_per_io == pytest.approx(2500, rel=0.02)
    one = (*ONE, *FAST, "workload.0.outstanding=1", "server.stack.per_batch=1600")
    alone, batched = run(*one), run(*one, "workload.0.iodepth_batch=16")
    # what submits is paid when it is reaped
    assert batched.total.iops.value == pytest.approx(alone.total.iops.value, rel=0.01)


def test_a_stack_that_was_measured_in_batches():
    """Its 4,000 cycles hold an eighth of a batch's 1,600: 3,800, and 1,600 once a batch."""
    sets = (*ALONE, "server.stack.per_batch=1600", "server.stack.batch=8")
    assert run(*sets).total.iops.value == pytest.approx(500e3, rel=0.02)
    one = run(*sets, "workload.0.iodepth_batch=1")
    assert one.total.iops.value == pytest.approx(2e9 / 5400, rel=0.01)
    two = run(*sets, "workload.0.iodepth_batch=2")
    assert two.total.iops.value == pytest.approx(2e9 / 4600, rel=0.02)


def test_batches_let_interrupts_merge():
    """Sixteen commands that are sent together come back together: one interrupt serves several."""
    costly = "server.stack.interrupt=2000"
    alone = run(*ALONE, costly).cpu.cycles_per_io
    batched = run(*ALONE, costly, "workload.0.iodepth_batch=16").cpu.cycles_per_io
    longer = "server.stack.handler=1000"
    merged = run(*ALONE, costly, longer, "workload.0.iodepth_batch=16").cpu.cycles_per_io
    assert 5000 < alone < 6000  # one by one few come while another's runs
    assert merged < batched < 0.9 * alone
    assert 4000 + 2000 / 16 < merged < 4000 + 2000 / 4


def test_a_thread_of_the_kernel_submits_and_interrupts_come_where_it_was_asked():
    """2,000 cycles to submit, 500 of them a call's: the kernel's thread takes 1,300, 200 are left.

    It is what stops a load of one thread: that has 1,700 left with what it reaps.
    """
    sets = (*ALONE, "server.stack.sqpoll=200", "server.stack.per_batch=1000")
    found = run(*sets, "workload.0.sqthread_poll=true", "server.stack.complete=1000", reliefs=True)
    assert found.total.iops.value == pytest.approx(2e9 / 1300, rel=0.02)
    assert found.bottleneck.station == "group0 sq threads"
    assert found.bottleneck.verdict == "cpu"
    assert any("threads" in relief.change for relief in found.bottleneck.reliefs)
    busy = station(found, "group0 sq threads").utilization
    assert busy == pytest.approx(1, rel=0.02)
    # its CPU is taken at any load: here two threads, one that polls and one that is not full
    own = 2e9 / 1300 * (200 + 500) / 2e9
    assert found.cpu.logical_utilization == pytest.approx((1 + own) / 8, rel=0.03)
    sets = (*ALONE, "server.stack.sqpoll=200", "server.stack.complete=1000")
    found = run(*sets, "workload.0.sqthread_poll=true", "server.stack.interrupt=1000")
    assert found.total.iops.value == pytest.approx(2e9 / (1800 + 1000), rel=0.02)
    with pytest.raises(ScenarioError, match="has no thread that polls for submissions"):
        resolved("workload.0.sqthread_poll=true")


def test_more_pollers_than_cpus_are_warned_of():
    found = run("server.stack.polled=true", "workload.0.threads=5")
    assert "crowded-pollers" in [w.code for w in found.warnings]
    fits = run("server.stack.polled=true")
    assert "crowded-pollers" not in [w.code for w in fits.warnings]
    sq = ("server.stack.sqpoll=200", "workload.0.sqthread_poll=true", "workload.0.threads=3")
    assert "crowded-pollers" in [w.code for w in run(*sq).warnings]


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


def test_rounds_have_a_most_a_bandwidth_and_longer_writes():
    iops = answer(disk(most=Quantity(value=4)), 64).iops
    assert iops == pytest.approx(4 / (BASE + 4 * EACH), rel=0.02)
    made = disk().model_copy(update={"read_bandwidth": Quantity(value=1e9)})
    took = answer(made, 1, size=65536).mean_s
    assert took == pytest.approx(BASE + EACH + (65536 - 4096) / 1e9, rel=0.02)
    slow = answer(disk(), 16, read=0.0).iops
    assert slow == pytest.approx(16 / (BASE + 16 * 2 * EACH), rel=0.02)
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
