"""A disk of one arm: by few large bytes, by its write cache, by what depth does."""

from dataclasses import replace

import pytest

from nvmesim.calibrate.asked_host import parse_host
from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.points import Point
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import with_alternative
from tests.calibrate.test_open_ceilings import K, M, fitted, row


def alone(fit, **wanted):
    """Alternatives of *fit* by a number of theirs."""
    others = [(a.weight, with_alternative(fit.profile, a)) for a in fit.profile.alternatives]
    return sum(w for w, other in others if all(getattr(other, k) == v for k, v in wanted.items()))


@pytest.mark.parametrize("host", ["linux-libaio,sata3", "linux-libaio,sas3"])
def test_few_large_bytes_alone_are_an_arm_s_or_flash(host):
    fit, predicted = fitted(host, [("read", M, 1, 1, 90.0), ("write", M, 1, 1, 85.0)])
    assert fit.profile.sorts
    assert predicted("randread", 4 * K, 1, 1) < 150
    assert predicted("read", M, 1, 1) == pytest.approx(90, rel=0.03)
    assert predicted("write", M, 1, 8) == pytest.approx(85, rel=0.05)
    assert 0.1 < alone(fit, sorts=False) < 0.5
    assert "read.die" in fit.profile.untold
    fast, _ = fitted(host, [("read", M, 1, 1, 400.0), ("write", M, 1, 1, 85.0)])
    assert not fast.profile.sorts
    assert not alone(fast, sorts=True)


@pytest.mark.parametrize(
    ("more", "link"), [("", "sata3"), ("randread,4 KiB,1,1,9000\n", "pcie4 x4")]
)
def test_no_nvme_drive_streams_so_slowly(tmp_path, more, link):
    table = f"op,block_size,jobs,iodepth,iops\nread,1 MiB,1,1,75\n{more}"
    (tmp_path / "a.csv").write_text(table)
    assert fit_drive(read_captures([tmp_path])).profile.link == link


def test_depth_does_nothing_for_writes_that_a_cache_sorts():
    """`calibration/held-out`, R07: 84 reads and 197 writes/s alone, 180 and 196 of 32."""
    rows = [("randread", 8 * K, 1, 1, 84.0), ("randwrite", 8 * K, 1, 1, 197.0)]
    fit, predicted = fitted("linux-libaio,sata3,2.4 GHz", [*rows, ("write", M, 1, 32, 163.0)])
    assert predicted("randwrite", 8 * K, 1, 32) == pytest.approx(196, rel=0.05)
    assert predicted("randread", 8 * K, 1, 32) == pytest.approx(180, rel=0.1)
    assert predicted("write", M, 1, 1) == pytest.approx(163, rel=0.05)
    assert fit.profile.write_caveat
    plain, sorted_ = fitted(
        "linux-libaio,sata3,2.4 GHz", [rows[0], ("randwrite", 8 * K, 1, 1, 80.0)]
    )
    assert not plain.profile.write_caveat
    assert sorted_("randwrite", 8 * K, 1, 32) > 150


@pytest.mark.parametrize(("deep", "tags"), [(86.0, 1), (190.0, 32)])
def test_reads_of_two_depths_tell_whether_a_disk_sorts(deep, tags):
    rows = [("randread", 4 * K, 1, 1, 80.0), ("randread", 4 * K, 1, 32, deep)]
    fit, predicted = fitted("linux-libaio,sata3,2.4 GHz", rows)
    assert fit.profile.tags.value == tags
    assert predicted("randread", 4 * K, 1, 32) == pytest.approx(deep, rel=0.1)
    one, _ = fitted("linux-libaio,sata3,2.4 GHz", rows[:1])
    assert one.profile.tags.value == 32
    assert any(with_alternative(one.profile, a).tags.value == 1 for a in one.profile.alternatives)


def test_a_short_run_of_writes_into_a_cache_is_not_fitted():
    rows = [row("randread", 4 * K, 1, 1, 76.0), row("randwrite", 4 * K, 1, 1, 240.0)]
    fit = fit_drive(
        [*rows, row("randwrite", 4 * K, 1, 32, 3678.0)], captured_on="linux-libaio,sata3"
    )
    assert not fit.misses
    assert [j.used for j in fit.points].count(False) == 1


LONE = [("randread", 4 * K, 1, 1, 5_078.6), ("randwrite", 4 * K, 1, 1, 6_281.0)]


@pytest.mark.parametrize(("link", "is_one"), [("usb3 bot", True), ("usb3 uas", False)])
def test_a_bridge_of_usb_passes_one_command_or_many(link, is_one):
    fit, predicted = fitted(f"windows-2019,{link},3.6 GHz", LONE)
    deep = predicted("randread", 4 * K, 1, 32)
    assert (deep < 1.1 * 5_078.6) == is_one
    assert predicted("read", M, 4, 8) * M < 450e6
    assert fit.profile.link == link
    assert parse_link(link).kind == "sata"


def test_one_request_at_a_time_moves_one_arm_of_an_array():
    """Four disks striped (R117 of `calibration/held-out`): 155/s alone is an arm's, not 39."""
    lone = [
        Point("", read, True, 4 * K, 1, 1, iops, None, targets=4, raid="raid0:65536")
        for read, iops in ((1.0, 155.0), (0.0, 81.0))
    ]
    fit = fit_drive(lone, captured_on="linux-libaio,sata3")
    assert not fit.misses
    host = parse_host("linux-libaio,sata3").host
    for point, iops in zip(lone, (1191, 489), strict=True):
        deep = replace(point, iodepth=32, iops=1.0)
        assert measure(fit.profile, host, deep, requests=8000).iops == pytest.approx(iops, rel=0.2)


def test_an_arm_streams_as_disks_do_where_no_row_tells_it():
    rows = [("randread", 4 * K, 1, 1, 155.0), ("randwrite", 4 * K, 1, 1, 81.0)]
    _, predicted = fitted("linux-libaio,sata3", rows)
    assert 100 < predicted("read", M, 1, 32) < 300  # R117: 239, of four
