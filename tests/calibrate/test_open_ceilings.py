"""What a row does not show stays open: behind a full thread, for small reads, and on a disk's arm.

Rows are those of `calibration/held-out` (G02-1, R10-1, R15-1, R07-2, each named in `cases.toml`).
"""

import pytest

from nvmesim.calibrate.bench import measure, parse_host
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.points import Point

K, M = 1 << 10, 1 << 20


def row(op, size, jobs, depth, iops):
    read = 0.0 if "write" in op else 1.0
    return Point(f"{op} {jobs}x{depth}", read, op.startswith("rand"), size, jobs, depth, iops, None)


def fitted(host, rows):
    fit = fit_drive([row(*r) for r in rows], captured_on=host)
    return fit, lambda *asked: measure(fit.profile, parse_host(host).host, row(*asked, 1.0)).iops


def test_a_thread_that_does_more_than_its_stack_allows_shows_no_ceiling():
    host = "linux-libaio,pcie3 x4,2.4 GHz"
    fit, _ = fitted(host, [("randread", 4 * K, 1, 128, 344e3)])
    assert not fit.misses
    assert {"commands", "read.base"} <= set(fit.profile.untold)
    commands = fit.profile.commands
    assert commands.basis == "assumed"
    assert 344e3 < commands.low < commands.value < commands.high


def test_a_thread_that_reads_as_fast_as_it_writes_is_full():
    host = "linux-libaio,pcie4 x4,2.27 GHz"
    rows = [("randread", 4 * K, 1, 32, 109e3), ("randwrite", 4 * K, 1, 32, 91.9e3)]
    fit, _ = fitted(host, rows)
    assert fit.profile.captured.stack_cycles == pytest.approx(2, rel=0.1)
    assert {"commands", "write.program"} <= set(fit.profile.untold)
    alone, _ = fitted(host, rows[:1])  # nothing tells why it is slow
    assert alone.profile.captured.stack_cycles == 1


def test_large_reads_that_move_all_there_is_tell_nothing_of_small_ones():
    host = "linux-io_uring,pcie4 x4,2.4 GHz"
    rows = [("read", 2 * M, 1, 8, 3303.53), ("randread", M, 1, 16, 6608.0)]
    fit, predicted = fitted(host, rows)
    assert not fit.misses
    assert {"commands", "read.base", "read.die"} <= set(fit.profile.untold)
    assert predicted("randread", 512 * K, 1, 32) == pytest.approx(13214, rel=0.06)
    assert predicted("randread", 4 * K, 8, 32) > 50 * 6608


@pytest.mark.parametrize(("size", "depth", "iops"), [(8, 32, 180), (128, 1, 76), (128, 32, 151)])
def test_a_disk_reads_deeper_queues_by_the_nearest_first(size, depth, iops):
    rows = [("randread", 8 * K, 1, 1, 84.0), ("read", M, 1, 32, 162.0)]
    fit, predicted = fitted("linux-libaio,sata3,2.4 GHz", rows)
    assert fit.profile.sorts
    assert not fit.misses
    assert predicted("randread", size * K, 1, depth) == pytest.approx(iops, rel=0.32)


def test_a_bandwidth_that_no_row_shows_is_that_of_data_sheets_of_its_link():
    small = [("randread", 4 * K, 1, 1, 12e3), ("randwrite", 4 * K, 1, 1, 50e3)]
    found = {}
    for link in ("pcie3 x4", "pcie5 x4"):
        profile = fitted(f"linux-io_uring,{link},2.4 GHz", small)[0].profile
        found[link] = profile.read_bandwidth.value, profile.write_bandwidth.value
        assert profile.write_bandwidth.basis == "assumed"
        assert profile.write_bandwidth.low < 0.5 * profile.write_bandwidth.value
    assert found["pcie5 x4"] == pytest.approx([4 * x for x in found["pcie3 x4"]], rel=0.01)
    assert found["pcie3 x4"][1] < 0.7 * found["pcie3 x4"][0]
