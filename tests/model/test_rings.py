"""Batches of submissions and completions, SQPOLL, and interrupts that merge, by hand."""

import pytest

from nvmesim.errors import ScenarioError
from tests.model.test_server import resolved, run, station

ONE = ("workload.0.threads_total=1", "workload.0.threads=@", "workload.0.outstanding=64")
FAST = (
    "drives.0.profile.read.base=2 us", "drives.0.profile.read.die=2 us",
    "drives.0.profile.commands=4M/s", "drives.0.profile.dies=256",
)  # fmt: skip
ALONE = (*ONE, *FAST, "drives.0.count=1", "workload.0.block_size=512 B")


def test_a_full_batch_pays_once_what_each_paid():
    """4,000 cycles a request at 2 GHz; of 1,600 a batch of 16 leaves 100."""
    per_batch = "server.stack.per_batch=1600"
    assert run(*ALONE, per_batch).total.iops.value == pytest.approx(500e3, rel=0.01)
    batched = run(*ALONE, per_batch, "workload.0.iodepth_batch=16")
    assert batched.total.iops.value == pytest.approx(2e9 / 2500, rel=0.02)
    assert batched.cpu.cycles_per_io == pytest.approx(2500, rel=0.02)


def test_at_depth_1_a_batch_is_one_request():
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


def test_a_thread_of_the_kernel_submits():
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


def test_interrupts_come_to_the_cpu_that_submitted():
    sets = (*ALONE, "server.stack.sqpoll=200", "server.stack.complete=1000")
    found = run(*sets, "workload.0.sqthread_poll=true", "server.stack.interrupt=1000")
    assert found.total.iops.value == pytest.approx(2e9 / (1800 + 1000), rel=0.02)


def test_sqpoll_needs_a_stack_that_can():
    with pytest.raises(ScenarioError, match="has no thread that polls for submissions"):
        resolved("workload.0.sqthread_poll=true")


def test_more_pollers_than_cpus_are_warned_of():
    found = run("server.stack.polled=true", "workload.0.threads=5")
    assert "crowded-pollers" in [w.code for w in found.warnings]
    fits = run("server.stack.polled=true")
    assert "crowded-pollers" not in [w.code for w in fits.warnings]
    sq = ("server.stack.sqpoll=200", "workload.0.sqthread_poll=true", "workload.0.threads=3")
    assert "crowded-pollers" in [w.code for w in run(*sq).warnings]
