"""What a row does not show stays open: behind a full thread, for small reads, and on a disk's arm.

Rows are those of `calibration/held-out` (G02-1, R10-1, R15-1, R07-2, N01, N03, N04, N07, N09,
S02-1, S07, T05, T08, U01, U08, V02, X02, B07; named in `cases.toml`).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from nvmesim.calibrate.asked_host import parse_host
from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.datasheet import Sheet
from nvmesim.calibrate.drive.batch_service import are_rounds, law_of_rounds
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.which_rows import one_by_one
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.scaled import host_of_rows
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import with_alternative
from nvmesim.errors import FitError
from tests.calibrate.bench import drive
from tests.servers import bare, one_server

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


def test_reads_and_writes_that_end_alike_behind_sata_share_its_commands():
    """A mix does as many, and large writes are not held to the bytes of small ones."""
    rows = [("randread", 4 * K, 1, 64, 84.1e3), ("randwrite", 4 * K, 1, 64, 75.9e3)]
    fit, predicted = fitted("linux-libaio,sata3", rows)
    assert predicted("randwrite", 128 * K, 1, 64) * 128 * K > 1.4 * 75.9e3 * 4 * K
    mix = replace(row("randread", 4 * K, 1, 64, 1.0), read_fraction=0.75)
    found = measure(fit.profile, parse_host("linux-libaio,sata3").host, mix).iops
    assert found == pytest.approx(81.9e3, rel=0.05)  # in turn: 0.75 / 84.1 + 0.25 / 75.9


def test_what_caps_small_requests_caps_large_ones_not_far_above():
    """An i7i.large of 77k reads/s read 518 MB/s in 128 KiB (R62-1), not what its link carries."""
    host = "linux-libaio,pcie5 x4,3.0 GHz"
    _, predicted = fitted(
        host, [("randread", 4 * K, 4, 64, 77_282), ("randwrite", 4 * K, 4, 64, 42_223)]
    )
    for op, rate in (("read", 77_282), ("write", 42_223)):
        small = rate * 4 * K
        assert predicted(op, 128 * K, 2, 32) * 128 * K == pytest.approx(3.4 * small, rel=0.1)
    _, of_a_thread = fitted(host, [("randread", 4 * K, 1, 256, 281e3)])  # its own ceiling
    assert of_a_thread("read", 128 * K, 4, 32) * 128 * K > 9e9


def test_a_slow_device_ends_at_requests_and_moves_what_such_devices_do():
    """A volume of 3,000 requests/s (O25) wrote 256 KiB at 499/s, not at the bytes of small ones."""
    fit, predicted = fitted("linux-libaio", [("randwrite", 4 * K, 1, 256, 2998.0)])
    assert fit.profile.write.commands.value == pytest.approx(2998, rel=0.1)
    assert any("buffer" in other.name for other in fit.profile.alternatives)
    assert 250 < predicted("randwrite", 256 * K, 1, 256) < 1000


def test_a_lone_stream_leaves_a_drive_the_bytes_that_a_full_thread_moved():
    """Random reads of one thread moved 419 MB/s (S17); the stream beside it is a latency."""
    rows = [("read", 4 * K, 1, 1, 10.47e3), ("randread", 4 * K, 1, 32, 102.3e3),
            ("randwrite", 4 * K, 1, 32, 82.2e3)]  # fmt: skip
    fit, _ = fitted("linux-libaio,pcie3 x2", rows)
    assert fit.profile.read_bandwidth.value >= 102.3e3 * 4 * K


def test_a_thread_that_reads_as_fast_as_it_writes_is_full():
    host = "linux-libaio,pcie4 x4,2.27 GHz"
    rows = [("randread", 4 * K, 1, 32, 109e3), ("randwrite", 4 * K, 1, 32, 91.9e3)]
    fit, _ = fitted(host, rows)
    assert fit.profile.captured.stack_cycles == pytest.approx(2, rel=0.1)
    assert {"commands", "write.program"} <= set(fit.profile.untold)
    alone, _ = fitted(host, rows[:1])  # nothing tells why it is slow
    assert alone.profile.captured.stack_cycles == 1
    notes: list[str] = []
    host_of_rows(parse_host(host).host, [row(*r) for r in rows], notes)
    assert "randread 4 KiB 1 x 32" in notes[0]  # the row that tells it; no CPU figure was given
    assert "CPU figures" not in notes[0]


def test_streams_that_do_as_random_reads_found_nothing_read_ahead():
    host = "linux-libaio,pcie3 x4"
    random = ("randread", 4 * K, 64, 1, 422e3)
    fit, predicted = fitted(host, [random, ("read", 4 * K, 64, 1, 427e3)])
    assert not fit.profile.read.ahead
    assert fit.profile.read_bandwidth.value > 1.5 * 427e3 * 4 * K
    assert predicted("read", 4 * K, 64, 1) == pytest.approx(427e3, rel=0.05)
    faster, _ = fitted(host, [random, ("read", 4 * K, 64, 1, 600e3)])
    assert faster.profile.read.ahead


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


def of_a_server(fit, stack, ghz, threads, outstanding, size, **cpu):
    load = {"block_size": size, "threads_total": threads, "outstanding": outstanding}
    cpu = {"cores": 8, "ghz": ghz, **cpu}
    tables = one_server(fit.profile.model_dump(mode="json"), [load], 8, cpu=cpu, stack=stack)
    return bare(tables, precision=0.02).total.iops.value


def test_large_requests_of_a_full_thread_tell_what_pages_cost():
    rows = [(4 * K, 430_656, 2.308e-6), (128 * K, 119_936, 8.354e-6)]  # B05, eight CM7-R
    points = [
        replace(row("randread", size, 1, 512, iops), targets=8, cpu_s=cpu_s, per_job_pct=100.0)
        for size, iops, cpu_s in rows
    ]
    fit = fit_drive(points, captured_on="linux-io_uring-batched,pcie5 x4,3.69 GHz")
    assert not fit.misses
    assert fit.profile.captured.stack_per_kib == pytest.approx(3.69e9 * 6.046e-6 / 124, rel=0.01)
    for size, iops in (("4 KiB", 430_656), ("128 KiB", 119_936), ("512 KiB", 44_064)):
        assert of_a_server(fit, "linux-io_uring-batched", 3.69, 1, 512, size) == pytest.approx(
            iops, rel=0.2
        )


def test_a_thread_that_gets_less_of_each_of_many_drives_is_full():
    rows = [row("randread", 512, 1, 128, 3_857_938), row("randread", 512, 1, 1024, 7.4e6)]
    rows[1] = replace(rows[1], targets=8)  # as B02, with eight drives
    fit = fit_drive(rows, captured_on="spdk,pcie5 x4,3.3 GHz")
    assert of_a_server(fit, "spdk", 3.3, 1, 1024, "512 B") == pytest.approx(7.4e6, rel=0.05)
    alone = fit_drive(rows[:1], captured_on="spdk,pcie5 x4,3.3 GHz")
    assert of_a_server(alone, "spdk", 3.3, 1, 1024, "512 B") > 9e6


def test_deep_rows_alone_tell_a_disk_and_no_full_threads():
    rows = [("randread", 4 * K, 16, 32, 428.0), ("randwrite", 4 * K, 16, 32, 343.0)]  # X05
    rows += [("read", 4 * M, 1, 32, 48.88), ("write", 4 * M, 1, 32, 49.07)]
    fit, predicted = fitted("linux-libaio,sas3,2.4 GHz", rows)
    assert fit.profile.sorts
    assert fit.profile.captured.stack_cycles == 1
    assert predicted("read", 4 * M, 1, 32) == pytest.approx(48.88, rel=0.05)


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


def test_threads_that_others_show_to_be_full_tell_the_stack_and_no_ceiling():
    host = parse_host("linux-libaio,pcie3 x4,2.4 GHz").host
    rows = [row("randread", 4 * K, n, 128, iops) for n, iops in ((1, 291_699), (2, 566_133))]
    rows = [replace(p, targets=7) for p in rows]
    fit = fit_drive(rows, host=host)
    assert not fit.misses
    assert fit.profile.captured.stack_cycles < 0.9
    assert {"commands", "read.base"} <= set(fit.profile.untold)
    assert 7 * fit.profile.commands.value > 3e6  # twelve threads do 3.3 M


@pytest.mark.parametrize(
    ("drives", "jobs", "shallow", "deep", "asked", "iops"),
    [
        (10, 80, (2, 1_656_818), (4, 2_547_562), 16, 3_643_441),
        (8, 64, (1, 998_404), (2, 1_602_834), 8, 2_837_764),
    ],
)
def test_two_depths_without_a_lone_read_tell_how_many_dies_there_are(
    drives, jobs, shallow, deep, asked, iops
):
    rows = [
        replace(row("randread", 4 * K, jobs, depth, rate), targets=drives)
        for depth, rate in (shallow, deep)
    ]
    host = parse_host("linux-libaio,pcie3 x4,2.4 GHz").host
    fit = fit_drive(rows, host=host)
    assert not fit.misses
    more = replace(rows[0], iodepth=asked)
    assert measure(fit.profile, host, more).iops == pytest.approx(iops, rel=0.2)


def test_a_slow_host_is_no_slow_die():
    rows = [("randread", 4 * K, n, 1, iops) for n, iops in ((2, 12_234), (4, 24_628))]
    profile = fitted("linux-libaio,pcie3 x4,2.4 GHz", rows)[0].profile
    assert profile.read.die.value <= 80e6
    assert profile.dies.value / profile.read.die.value * 1e12 > 64 / 4 * 24_628


def test_mixes_alone_are_fitted():
    mixes = [
        Point(f"randrw:70 {n}x1", 0.7, True, 4 * K, n, 1, iops, None)
        for n, iops in ((1, 24_554), (4, 94_463))
    ]
    fit = fit_drive(mixes, captured_on="linux-libaio,pcie4 x4,3.7 GHz")
    assert any("all random rows are mixes" in note for note in fit.warnings)
    assert [r.read for r in fit.profile.residuals] == [0.7, 0.7]
    host = parse_host("linux-libaio,pcie4 x4,3.7 GHz").host
    more = replace(mixes[0], jobs=8)
    assert measure(fit.profile, host, more).iops == pytest.approx(171_852, rel=0.1)


def test_a_sequential_mix_alone_is_fitted():
    mix = Point("", 0.5, False, 64 * K, 1, 64, 22e3, None)
    (judged,) = fit_drive([mix], captured_on="linux-libaio,pcie3 x4,2 GHz").points
    assert judged.residual["iops"] == pytest.approx(0, abs=0.03)


def test_one_deep_mix_tells_requests_and_no_bytes():
    """8 KiB are as many requests; a path of the reads' own would let half as many through."""
    mix = Point("", 0.7, True, 4096, 1, 64, 157e3, None)
    fit = fit_drive([mix], captured_on="linux-libaio,pcie4 x4,3.7 GHz")
    (judged,) = fit.points
    assert judged.residual["iops"] == pytest.approx(0, abs=0.03)
    host = parse_host("linux-libaio,pcie4 x4,3.7 GHz").host
    rate = measure(fit.profile, host, replace(mix, block_size=8192), requests=60_000).iops
    assert rate == pytest.approx(mix.iops, rel=0.05)


def test_mixes_tell_writes_where_no_row_is_of_writes_alone():
    """Held-out V02-2: one of three drives by reads and two mixes; its writes do 419k a drive."""
    mixes = [
        Point(f"randrw:{share:.0%}", share, True, 4 * K, 16, 128, iops, None)
        for share, iops in ((0.6, 500_760), (0.3, 458_480), (0.1, 338_440))
    ]
    rows = [row("randread", 4 * K, 16, 128, 1.018e6), *mixes[::2]]
    fit = fit_drive(rows, captured_on="linux-io_uring,pcie4 x4")
    assert not fit.misses
    host = parse_host("linux-io_uring,pcie4 x4").host
    for mix in mixes:
        assert measure(fit.profile, host, mix).iops == pytest.approx(mix.iops, rel=0.25)
    assert measure(fit.profile, host, row("randwrite", 4 * K, 16, 128, 1.0)).iops < 450e3


def test_large_reads_that_the_link_lets_pass_tell_the_drive_s_bandwidth():
    """Held-out V02-6, a P4610: 64 KiB reads move 3.38 GB/s, where its link carries 3.58."""
    sizes = ((4, 639_320), (16, 201_280), (64, 51_564))
    rows = [row("randread", size * K, 16, 128, iops) for size, iops in sizes]
    fit = fit_drive(rows, captured_on="linux-io_uring,pcie3 x4")
    host = parse_host("linux-io_uring,pcie3 x4").host
    assert measure(fit.profile, host, rows[2]).iops == pytest.approx(51_564, rel=0.02)


def test_reads_that_fill_their_link_leave_the_bandwidth_open():
    """One lane of Gen2 carries 442 MB/s; the same drive on one of Gen3 about twice as many."""
    rows = [("randread", 4 * K, 1, 1, 17.4e3), ("randread", M, 1, 1, 420.0),
            ("read", M, 1, 1, 421.0)]  # fmt: skip
    fit, predicted = fitted("linux-libaio,pcie2 x1", rows)
    assert predicted("read", M, 1, 1) == pytest.approx(421, rel=0.08)
    assert fit.profile.read_bandwidth.basis == "assumed"
    assert fit.profile.read_bandwidth.value > 1e9


def test_a_drive_on_few_lanes_is_as_fast_as_they_are():
    """Held-out U01-2: a drive for four lanes on two reads 443k, by a lone read and a stream."""
    _, predicted = fitted(
        "linux-libaio,pcie3 x2",
        [("randread", 4 * K, 1, 1, 14_915), ("read", M, 4, 32, 1781.0)],
    )
    assert predicted("randread", 4 * K, 4, 128) == pytest.approx(443_000, rel=0.1)


def test_a_lone_sequential_read_tells_its_latency_and_no_bandwidth():
    host = "linux-libaio,pcie4 x4,3 GHz"
    rows = [("read", 4 * K, 1, 1, 10_474), ("randread", 4 * K, 1, 1, 6_383)]  # S17
    fit, predicted = fitted(host, rows)
    width = fit.profile.read_bandwidth
    assert width.basis == "assumed"
    assert width.low < 5e9 < width.high
    assert fit.profile.read.stream.basis == "fitted"
    assert predicted("read", 4 * K, 1, 1) == pytest.approx(10_474, rel=0.06)
    assert predicted("read", 32 * K, 1, 1) == pytest.approx(9_529, rel=0.15)


@pytest.mark.parametrize(
    ("large", "asked"),
    [
        ((7 * M, 1, 128, 486.5), {(2 * M, 1, 1): 1_337, (4 * M, 1, 1): 753.7}),  # S11
        ((576 * K, 1, 1, 2_562), {(2 * M, 1, 32): 1_643}),
    ],
)
def test_large_reads_take_their_latency_and_their_bytes(large, asked):
    rows = [("randread", 4 * K, 1, 1, 14_003), ("randread", *large)]
    _, predicted = fitted("linux-io_uring,pcie4 x4,3 GHz", rows)
    for load, iops in asked.items():
        assert predicted("randread", *load) == pytest.approx(iops, rel=0.25)


def test_a_large_read_does_not_make_a_disk():
    rows = [("randread", 4 * M, 1, 1, 115.4), ("randread", 4 * K, 8, 32, 64_864)]  # S01, SATA
    fit, predicted = fitted("linux-libaio,sata3,3 GHz", rows)
    assert not fit.profile.sorts
    assert not fit.misses
    assert predicted("randread", 4 * K, 8, 8) == pytest.approx(65_565, rel=0.1)


def test_a_write_of_a_part_of_a_sector_tells_nothing_of_whole_ones():
    host = "linux-libaio,pcie4 x4,3 GHz"
    part, whole = ("randwrite", 512, 1, 1, 2_087), ("randwrite", 4 * K, 1, 1, 31_900)  # M05
    with pytest.raises(FitError, match="add a row of writes of 4 KiB"):
        fitted(host, [part])
    fit, predicted = fitted(host, [part, whole])
    assert predicted("randwrite", 4 * K, 1, 1) == pytest.approx(31_900, rel=0.05)
    assert any("not fitted" in note for note in fit.warnings)


def test_small_sequential_writes_tell_how_long_random_ones_take():
    rows = [("write", 4 * K, 1, 1, 58_600), ("randwrite", M, 1, 4096, 540)]  # S04
    _, predicted = fitted("linux-libaio,pcie3 x4,2.5 GHz", rows)
    assert predicted("randwrite", 4 * K, 1, 1) == pytest.approx(53_200, rel=0.2)


def test_a_ceiling_of_few_threads_may_be_of_the_threads():
    rows = [("randread", 4 * K, 4, 256, 828e3)]
    found = {}
    for host in (
        "linux-libaio,pcie4 x4",
        "linux-libaio,pcie4 x4,3 GHz",
        "linux-libaio,pcie4 x4,5 GHz",
    ):
        profile = fitted(host, rows)[0].profile
        threads = [a for a in profile.alternatives if a.name.startswith("the threads")]
        found[host] = sum(a.weight for a in threads)
        for a in threads:
            assert a.values["captured.stack_cycles"] > 1.2
    unknown, stated, fast = found.values()
    assert 0.2 < unknown < 0.6  # a clock that nobody stated
    assert stated < 0.2
    assert fast == 0.0
    many = fitted("linux-libaio,pcie4 x4", [("randread", 4 * K, 32, 32, 828e3)])[0].profile
    assert not [a for a in many.alternatives if a.name.startswith("the threads")]


def test_threads_that_do_no_more_at_depth_wait_for_each_request():
    host = "linux-libaio,pcie3 x4"  # T08: one drive, and RAID0 of two did 30.4k at 1x64
    rows = [("randwrite", 4 * K, 1, 1, 26278.0), ("randwrite", 4 * K, 1, 64, 31553.0)]
    fit, _ = fitted(host, rows)
    assert fit.profile.captured.synchronous
    assert "write.program" in fit.profile.untold
    tables = one_server(
        fit.profile.model_dump(mode="json"), [{"read": 0, "threads": 1, "outstanding": 64}], 2,
        cpu={"cores": 8, "ghz": 3}, stack="linux-libaio",
        volume=[{"raid": "raid0", "chunk": "64 KiB"}],
    )  # fmt: skip
    result = bare(tables, precision=0.02)
    assert result.total.iops.value == pytest.approx(30389, rel=0.15)
    assert "synchronous" in [w.code for w in result.warnings]
    more = [*rows, ("randwrite", 4 * K, 4, 64, 120e3)]  # of other rows nothing is known
    assert not fitted(host, more)[0].profile.captured.synchronous


def test_a_thread_that_is_held_up_in_submissions_has_one_request_in_flight():
    rows = [("randwrite", 4 * K, 1, 16, 17200.0), ("randwrite", 128 * K, 1, 16, 7123.0)]  # R79
    small, large = (row(*r) for r in rows)
    small = replace(small, mean_s=921.6e-6, slat_s=57.4e-6)
    synchronous = []
    for busy, depth in ((8.2, 16), (98.0, 16), (8.2, 64)):
        first = replace(small, per_job_pct=busy, iodepth=depth)
        found = one_by_one([first, large], parse_link("pcie4 x4"), [])
        synchronous.append([p.iodepth == 1 and p.mean_s is None for p in found])
    assert synchronous == [[True, True], [False, False], [False, False]]


@pytest.mark.parametrize(("size", "jobs", "depth", "iops"), [(4, 4, 4, 124663), (4096, 4, 4, 605)])
def test_small_sequential_rows_tell_a_wait_or_commands_and_no_bandwidth(size, jobs, depth, iops):
    rows = [("read", 4 * K, 1, 4, 35119.0), ("read", 4 * M, 16, 16, 577.0),
            ("read", 4 * K, 16, 16, 432229.0)]  # fmt: skip
    fit, predicted = fitted("linux-libaio,pcie3 x4", rows)  # S07
    assert fit.profile.commands.value == pytest.approx(432229)
    assert fit.profile.read.stream.value > 80e6
    assert predicted("read", size * K, jobs, depth) == pytest.approx(iops, rel=0.2)


def test_small_sequential_reads_tell_no_bandwidth_and_end_where_random_ones_do():
    few = [("read", 4 * K, 1, 4, 35119.0), ("read", 4 * K, 4, 4, 124663.0)]  # S07
    fit, predicted = fitted("linux-libaio,pcie3 x4", few)
    assert fit.profile.commands.basis == fit.profile.read_bandwidth.basis == "assumed"
    assert fit.profile.commands.low < 432229 < fit.profile.commands.high
    assert fit.profile.read_bandwidth.low < 2.5e9 < fit.profile.read_bandwidth.high
    assert predicted("read", 4 * K, 16, 16) == pytest.approx(432229, rel=0.3)


def test_lone_reads_of_a_page_tell_its_channel_and_no_bandwidth():
    rows = [("randread", 4 * K, 1, 4, 55990.0), ("randread", 16 * K, 1, 4, 37360.0)]
    fit, predicted = fitted("linux-libaio,pcie3 x4", rows)  # U08
    assert predicted("randread", 16 * K, 1, 4) == pytest.approx(37360, rel=0.05)
    assert fit.profile.read_bandwidth.low < 2.6e9 < fit.profile.read_bandwidth.high
    channels = fit.profile.channels.value * 4096 / fit.profile.read.channel.value * 1e12
    assert channels > fit.profile.read_bandwidth.value


def test_large_writes_alone_tell_bytes_and_no_program():
    fit, predicted = fitted("linux-libaio,pcie3 x4", [("randwrite", 4 * M, 32, 1, 128.5)])  # T05
    assert predicted("randwrite", 64 * K, 32, 1) == pytest.approx(64 * 128.5, rel=0.1)
    assert {"write.base", "write.program"} <= set(fit.profile.untold)


def test_small_writes_alone_do_not_tell_the_bandwidth_that_streams_exceed():
    """Z05: by its small random writes a latency and 1.1 GB/s would do; streams move twice that."""
    rows = [("randwrite", 4 * K, 1, 1, 34844.8), ("randwrite", 4 * K, 1, 16, 267572.0),
            ("randwrite", 8 * K, 1, 1, 30919.8), ("randwrite", 16 * K, 1, 1, 21865.3),
            ("write", 128 * K, 1, 64, 17059.8), ("write", 4 * M, 1, 64, 529.51)]  # fmt: skip
    _, predicted = fitted("linux-libaio,pcie3 x4", rows)
    for op, size, jobs, depth, iops in rows[1::4] + rows[4:]:
        assert predicted(op, size, jobs, depth) == pytest.approx(iops, rel=0.15)


def test_quick_writes_tell_that_reads_are_not_served_in_batches():
    """Y13: random reads follow a + b n, but a write takes a quarter of a."""
    rows = [("randread", 4 * K, 1, 1, 22949.5), ("randread", 4 * K, 1, 16, 209346.0),
            ("randread", 4 * K, 1, 64, 383398.0), ("randwrite", 4 * K, 1, 1, 83968.4),
            ("randwrite", 4 * K, 1, 16, 452536.0)]  # fmt: skip
    host = "linux-io_uring,pcie4 x4"
    assert fitted(host, rows[:3])[0].profile.rounds is not None
    fit, predicted = fitted(host, rows)
    assert fit.profile.rounds is None
    assert predicted("randwrite", 4 * K, 1, 1) == pytest.approx(83968.4, rel=0.05)


def test_a_ceiling_of_requests_is_no_disk_of_rounds():
    """Three depths follow the law of batches, too: the one that is left out tells."""
    rows = [row("randread", 4 * K, *r) for r in ((1, 1, 11.2e3), (2, 1, 22.1e3), (8, 64, 250e3))]
    notes: list[str] = []
    assert law_of_rounds(rows) is not None
    assert not are_rounds(drive(), free_host(), rows, [], lambda _: None, notes)
    assert "taken as flash dies" in notes[0]


def test_reads_that_take_long_alone_seldom_end_where_data_sheets_do():
    """U02, W06: lone reads of 118 us, 67k and 82k/s at most; a lone read of 80 us tells no less."""
    ends = [
        fitted("linux-libaio,pcie3 x4", [("randread", 4 * K, 1, 1, rate)])[0].profile.commands
        for rate in (8.5e3, 12.5e3)
    ]
    assert ends[0].value == pytest.approx(163e3, rel=0.1)
    assert ends[1].value == pytest.approx(484e3, rel=0.1)
    assert ends[0].low < 67e3
    assert ends[1].low < 150e3  # some do far less


def test_small_streams_may_do_less_than_random_reads():
    """As Y13, by four threads: read ahead at depth 1, and 220k/s at most; random reads do 383k."""
    rows = [("randread", 4 * K, 1, 1, 22949.5), ("randread", 4 * K, 4, 16, 383398.0),
            ("read", 4 * K, 1, 1, 45038.7), ("read", 4 * K, 4, 16, 219550.6)]  # fmt: skip
    fit, predicted = fitted("linux-io_uring,pcie4 x4", rows)
    assert fit.profile.read.stream_commands.basis == "fitted"
    for op, size, jobs, depth, iops in rows:
        assert predicted(op, size, jobs, depth) == pytest.approx(iops, rel=0.1)
    shallow = [*rows[:2], ("read", 4 * K, 1, 1, 18e3)]  # slower, but it has no other to wait for
    assert fitted("linux-io_uring,pcie4 x4", shallow)[0].profile.read.stream_commands is None


def test_small_and_large_streams_wait_for_times_of_their_own():
    """W07: 4 KiB are read ahead; 128 KiB take as long as if they were not."""
    rows = [("randread", 4 * K, 1, 1, 16691.2), ("randread", 128 * K, 1, 1, 6608.0),
            ("read", 4 * K, 1, 1, 50944.0), ("read", 128 * K, 1, 1, 7064.0)]  # fmt: skip
    fit, predicted = fitted("linux-libaio,pcie4 x4", rows)
    assert fit.profile.read.stream.value < 20e6 < 80e6 < fit.profile.read.stream_large.value
    for op, size, jobs, depth, iops in rows[2:]:
        assert predicted(op, size, jobs, depth) == pytest.approx(iops, rel=0.1)


def test_cpu_figures_of_flushed_rows_are_not_of_the_stack():
    """C, dell32: a plain write takes 12 us of CPU; what a flushed one takes holds its journal."""
    host = "linux-libaio,pcie4 x4,3 GHz"
    plain = [
        replace(row("randwrite", 16 * K, *r), cpu_s=12e-6) for r in ((1, 1, 43.4e3), (4, 1, 163e3))
    ]
    synced = replace(row("randwrite", 16 * K, 1, 1, 1.1e3), sync="fsync", cpu_s=27e-6)
    alone, beside = (
        fit_drive(rows, captured_on=host).profile.captured.stack_cycles
        for rows in (plain, [*plain, synced])
    )
    assert beside == pytest.approx(alone, rel=1e-6)


LIBAIO = "linux-libaio,pcie3 x4"
SHALLOW = [("randread", 4 * K, 1, 1, 11.2e3), ("randread", 4 * K, 2, 1, 22.1e3),
           ("randwrite", 4 * K, 1, 1, 38e3)]  # fmt: skip


def with_sheet(rows, **figures):
    """What the rows and a sheet of these figures (1/s, bytes/s, s) lead to, and its bench."""
    sheet = Sheet(Path("sheet.toml"), figures, 1.9e12, "pcie3 x4", {"model": "of a test"})
    fit = fit_drive([row(*r) for r in rows], captured_on=LIBAIO, datasheet=sheet)
    return fit.profile, lambda *a: measure(fit.profile, parse_host(LIBAIO).host, row(*a, 1.0)).iops


def test_a_data_sheet_says_where_ceilings_are_that_no_row_shows():
    """AWS states 412,500 and 175,000 requests/s of a drive of i3.16xlarge."""
    profile, predicted = with_sheet(SHALLOW, random_read=412.5e3, random_write=175e3)
    assert predicted("randread", 4 * K, 16, 64) == pytest.approx(412.5e3, rel=0.05)
    assert predicted("randwrite", 4 * K, 16, 64) == pytest.approx(1.2 * 175e3, rel=0.1)
    assert predicted("randread", 4 * K, 1, 1) == pytest.approx(11.2e3, rel=0.02)  # still a row
    for ceiling in (profile.commands, profile.write.commands or profile.write.program):
        assert ceiling.basis in ("datasheet", "assumed")
        assert ceiling.low < ceiling.value < ceiling.high
    assert profile.commands.basis == "datasheet"
    assert "commands" not in profile.untold
    assert profile.capacity.value == 1.9e12
    alone, _ = fitted(LIBAIO, SHALLOW)
    open_ends = alone.profile.commands
    assert open_ends.high / open_ends.low > 1.5 * profile.commands.high / profile.commands.low


def test_rows_that_show_a_ceiling_are_worth_more_than_a_data_sheet():
    full = [*SHALLOW[::2], ("randread", 4 * K, 8, 64, 250e3), ("randwrite", 4 * K, 8, 64, 60e3)]
    _, predicted = with_sheet(full, random_read=412.5e3, random_write=175e3)
    assert predicted("randread", 4 * K, 16, 64) == pytest.approx(250e3, rel=0.03)
    assert predicted("randwrite", 4 * K, 16, 64) == pytest.approx(60e3, rel=0.03)


def test_a_data_sheet_tells_operations_of_which_there_is_no_row():
    profile, predicted = with_sheet(
        SHALLOW[:2], random_read=412.5e3, random_write=175e3, write_latency=20e-6,
        sequential_write=1.4e9,
    )  # fmt: skip
    assert predicted("randwrite", 4 * K, 16, 64) == pytest.approx(1.2 * 175e3, rel=0.05)
    host_s = 1 / predicted("randwrite", 4 * K, 1, 1) - 20e-6
    assert 0 < host_s < 20e-6
    assert predicted("write", 128 * K, 1, 32) * 128 * K == pytest.approx(1.4e9, rel=0.03)
    assert [(r.read, r.stated) for r in profile.residuals].count((1.0, False)) == 2
    assert sum(r.stated for r in profile.residuals) == 4
    assert profile.captured.depths == (1, 2)


def test_those_who_write_are_full_only_if_those_who_read_are():
    """One thread stops at 195k reads and 180k writes: four do four times as many of both."""
    rows = [("randread", 4 * K, 1, n, x) for n, x in ((1, 14_700), (16, 120e3), (32, 195e3))]
    rows += [("randwrite", 4 * K, 1, n, x) for n, x in ((1, 60e3), (16, 180e3), (32, 180e3))]
    profile = fitted("linux-libaio,pcie4 x4,2.8 GHz", rows)[0].profile
    alone, both = [a for a in profile.alternatives if a.name.startswith("the threads")]
    assert 0 < both.weight < alone.weight + both.weight <= 0.5
    faster = [with_alternative(profile, a) for a in (alone, both)]
    assert all(x.dies.value > 2 * profile.dies.value for x in faster)
    assert [x.write.commands.value > 2 * 180e3 for x in faster] == [False, True]


def test_reads_that_slow_each_other_at_few_in_flight_meet_at_few_dies() -> None:
    """B07 and S02-1: four in flight took 1.2 times as long as one; 128 did 145k/s of both."""
    for lone, four, deep in ((12600, 42200, 145000), (12544, 42157, 145254)):
        points = [row("randread", 4 * K, 1, depth, x) for depth, x in ((1, lone), (4, four))]
        fit = fit_drive(points, link="pcie3 x4")
        asked = row("randread", 4 * K, 1, 128, deep)
        got = measure(fit.profile, free_host(fit.profile.link), asked, requests=10_000)
        assert got.iops == pytest.approx(deep, rel=0.25)
