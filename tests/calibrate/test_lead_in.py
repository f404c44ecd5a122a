"""A trace of a drive whose write buffer was full: runs out of its middle begin with one."""

import numpy as np
import pytest

from nvmesim.calibrate.arrivals import (
    Arrivals,
    Replayer,
    acknowledged_s,
    arrivals_of,
    begins_full,
    lead_in,
)
from nvmesim.calibrate.bench import free_host
from nvmesim.calibrate.trace.fit import fit_trace
from nvmesim.capture.registry import read_capture
from nvmesim.catalog.profile import DriveProfile
from tests.calibrate.written import known_drive, varying_depth, write_blkparse

SLOW = 4.0
"""Programs take so much longer: the dies drain less than what is written at depth 32."""


def slow_drive() -> DriveProfile:
    known = known_drive()
    program = known.write.program.model_copy(update={"value": SLOW * known.write.program.value})
    return known.model_copy(update={"write": known.write.model_copy(update={"program": program})})


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Arrivals:
    """20,000 requests at depth 1, then 20,000 at depth 32, whose writes wait for the drain."""
    path = tmp_path_factory.mktemp("full") / "full.blkparse"
    rows = varying_depth(slow_drive(), (1, 32), 20_000, sizes=((4096, 1.0),), read=0.3)
    write_blkparse(path, rows)
    return arrivals_of(read_capture(path))


def test_runs_of_the_deep_part_begin_with_a_full_buffer(trace: Arrivals) -> None:
    soon = acknowledged_s(trace.latency_s[trace.write])
    assert soon == pytest.approx(known_drive().write.base.value / 1e12, rel=0.3)
    used = trace.windows(12_000)
    assert used.full == ((6_000, 9_000), (9_000, 12_000))
    assert trace.part(0, 10_000).windows(12_000).full == ()
    late = trace.part(30_000, 32_000)
    assert late.begun(soon).full == ((0, 2_000),)
    assert not begins_full(late.latency_s[late.write][:10], soon)


def test_writes_that_lead_in_are_not_among_the_latencies(trace: Arrivals) -> None:
    used = trace.windows(4_000)
    served = Replayer(used, free_host(), runs=2).latencies_s(slow_drive())
    assert served.shape == (2, 4_000)
    assert np.isfinite(served).all()


def test_a_full_buffer_makes_the_first_writes_wait(trace: Arrivals) -> None:
    """Begun empty, the buffer takes all of them at once."""
    late = trace.part(30_000, 32_000)
    full = late.begun(acknowledged_s(trace.latency_s[trace.write]))
    first = np.flatnonzero(late.write)[:20]

    def median(arrivals: Arrivals) -> float:
        return float(np.median(Replayer(arrivals, free_host()).latencies_s(slow_drive())[0][first]))

    assert median(full) > 3 * median(late)


def test_a_drive_that_drains_as_fast_as_it_is_told_has_none() -> None:
    known = known_drive()
    through = known.model_copy(update={"write": known.write.model_copy(update={"through": True})})
    fast = known.write.program.model_copy(update={"value": 1e6})
    write = known.write.model_copy(update={"program": fast})
    assert len(lead_in(known, 4096)) >= known.write.buffer.value // 4096
    assert len(lead_in(through, 4096)) == 0
    assert len(lead_in(known.model_copy(update={"write": write}), 4096)) == 0


@pytest.mark.long
@pytest.mark.xdist_group("trace_fit")
def test_the_drain_is_found_where_writes_waited_for_it(trace: Arrivals) -> None:
    """Begun empty, programs came out at a hundredth of the truth, and dies at a third."""
    fit = fit_trace(trace, name="x")
    known, found = slow_drive(), fit.profile
    drain = found.dies.value / found.write.program.value
    assert drain == pytest.approx(known.dies.value / known.write.program.value, rel=0.15)
    assert found.dies.low <= known.dies.value <= found.dies.high
    assert any("the write buffer was full" in w for w in fit.warnings)
    assert fit.misses == ()
