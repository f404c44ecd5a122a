"""A full thread tells the host, and no ceiling of the drive: nor does a connection of NVMe-oF."""

from dataclasses import replace

import pytest

from nvmesim.calibrate.asked_host import parse_host
from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.capture.registry import read_captures
from tests.calibrate.test_open_ceilings import K, fitted, row


def test_writes_of_a_full_thread_show_no_ceiling_of_the_drive():
    """Q04: four threads write 525k, where one writes 180k and reads 195k."""
    rows = [("randread", 1, 14_700), ("randread", 128, 195_000), ("randwrite", 1, 60_000),
            ("randwrite", 128, 180_000)]  # fmt: skip
    fit, asked = fitted(
        "linux-libaio,pcie4 x4,2.8 GHz", [(op, 4 * K, 1, depth, iops) for op, depth, iops in rows]
    )
    assert not fit.misses
    assert asked("randwrite", 4 * K, 4, 128) == pytest.approx(525_000, rel=0.3)


@pytest.mark.parametrize(("said", "iops"), [("NVMe over TCP", 944_000), ("NVMe", 88_000)])
def test_one_thread_over_nvme_of_tells_its_connection_and_no_ceiling(tmp_path, said, iops):
    """R54: with 30 % of a CPU, which its connection's worker is not in."""
    lines = [f"randread,4 KiB,1,{n},{x},{cpu},{said}"
             for n, x, cpu in ((1, 13_252, 8), (32, 84_464, 29.8))]  # fmt: skip
    head = "op,block_size,jobs,iodepth,iops,cpu_pct,source"
    (tmp_path / "a.csv").write_text("\n".join([head, *lines]))
    on = "linux-io_uring,pcie4 x4,3 GHz"
    fit = fit_drive(read_captures([tmp_path]), captured_on=on)
    scaled = fit.profile.captured.stack_cycles
    host = parse_host(on).host
    bench = replace(host, stack=host.stack.with_cycles(scaled))
    many = measure(fit.profile, bench, row("randread", 4 * K, 16, 32, 1.0)).iops
    assert many == pytest.approx(iops, rel=0.3)
