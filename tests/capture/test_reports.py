"""Readers of printed results: every number that is shown, against figures from the file's own text.

What is expected is worked out here by hand or by other means than the reader's: never copied from
what it returned.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from nvmesim.capture.capture import Capture, Measurement, Op
from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError

DATA = Path(__file__).parent / "data"
MIB = 2**20


def read(name: str) -> Capture:
    return read_capture(DATA / name)


def edited(name: str, old: str, new: str, tmp_path: Path) -> Path:
    text = (DATA / name).read_text()
    assert old in text
    path = tmp_path / Path(name).name
    path.write_text(text.replace(old, new))
    return path


def figures(m: Measurement, op: Op) -> tuple[float, float, float | None]:
    """IOPS, bytes/s and mean latency in us."""
    result = m.ops[op]
    latency = result.lat or result.clat
    return result.iops, result.bytes_per_s, latency and 1e6 * (latency.mean_s or 0)


def load(m: Measurement) -> tuple[object, ...]:
    c = m.conditions
    return c.read_fraction, c.access, c.block_size, c.jobs, c.iodepth


# vdbench


def test_vdbench_flatfile_of_raw_workloads() -> None:
    one, two = read("vdbench/flatfile.html").measurements
    assert (one.label, two.label) == ("rd1", "rd2")
    # 32,000 a second, three quarters read, for the two intervals of a second that are averaged.
    assert figures(one, "read") == pytest.approx((24_000, 125 * MIB * 0.75, 200))
    assert figures(one, "write") == pytest.approx((8_000, 125 * MIB * 0.25, 400))
    assert (one.ops["read"].count, one.ops["write"].count) == (48_000, 16_000)
    assert one.ops["read"].lat.max_s == pytest.approx(8.5e-3)
    assert load(one) == (0.75, "random", 4096, None, None)
    assert one.conditions.depth_mean == 8 == 32_000 * 0.25e-3
    assert figures(two, "write") == pytest.approx((2_000, 250 * MIB, 2_000))
    assert list(two.ops) == ["write"]
    assert load(two) == (0.0, "sequential", 131072, None, None)
    assert two.conditions.duration_s == 1


def test_vdbench_flatfile_of_file_systems() -> None:
    (m,) = read("vdbench/filesystem.html").measurements
    assert figures(m, "read") == pytest.approx((8_000, 62.5 * MIB, 1_250))
    assert figures(m, "write") == pytest.approx((2_000, 15.625 * MIB, 1_500))
    assert m.ops["read"].count == 8_000 * 2 * 2  # two intervals of two seconds
    assert m.ops["write"].lat.max_s == pytest.approx(25e-3)
    assert m.conditions.block_size == 8192  # printed as 8190: vdbench cuts the average


def test_vdbench_summary() -> None:
    (m,) = read("vdbench/summary.html").measurements
    assert figures(m, "read") == pytest.approx((42_000, 468.75 * MIB * 0.7, 240))
    assert figures(m, "write") == pytest.approx((18_000, 468.75 * MIB * 0.3, 320))
    assert m.ops["read"].count == 42_000 * 20
    assert m.ops["write"].lat.max_s == pytest.approx(5.2e-3)
    assert m.conditions.block_size == 8192
    assert m.conditions.depth_mean == pytest.approx(60_000 * 0.264e-3, rel=0.01)


@pytest.mark.parametrize("name", ["flatfile.html", "summary.html"])
def test_vdbench_cut_before_its_averages(name: str, tmp_path: Path) -> None:
    text = (DATA / "vdbench" / name).read_text()
    path = tmp_path / name
    path.write_text(text[: text.index("avg_2-3")].rpartition("\n")[0] + "\n")
    with pytest.raises(CaptureError, match="ends before its averages"):
        read_capture(path)


# sar


def test_sar() -> None:
    capture = read("sar/d.txt")
    (m,) = capture.measurements  # sda was idle
    assert m.label == "nvme0n1"
    assert m.mixed.iops == (12_000 + 18_000) / 2
    assert m.mixed.count == 5 * (12_000 + 18_000)
    assert m.mixed.bytes_per_s == (40_000 + 20_000) * 1024
    assert m.mixed.clat.mean_s == pytest.approx((12 * 0.10 + 18 * 0.15) / 30 * 1e-3)
    assert m.disk_util_pct == {"nvme0n1": 87.0}
    assert m.conditions.depth_mean == pytest.approx(1.95) == pytest.approx(15_000 * 0.13e-3)
    assert m.conditions.duration_s == 10


def test_sar_of_old_versions_over_midnight() -> None:
    (m,) = read("sar/old.txt").measurements
    assert m.mixed.bytes_per_s == 16_000 * 512
    assert m.mixed.count == 2_500  # ten seconds
    assert m.mixed.clat.mean_s == pytest.approx(4e-3)
    assert m.conditions.depth_mean == 1.0


def test_sar_with_the_device_last() -> None:
    (m,) = read("sar/pretty.txt").measurements
    assert m.label == "nvme0n1"
    assert (m.mixed.iops, m.mixed.bytes_per_s) == (2_000, 8_000 * 1024)
    assert m.mixed.count == 4_000
    assert m.mixed.clat.mean_s == pytest.approx((0.20e-3 + 3 * 0.30e-3) / 4)
    assert m.conditions.depth_mean == pytest.approx(2_000 * 0.275e-3) == 0.55


# YABS


def test_yabs() -> None:
    capture = read("yabs/table.txt")
    assert [m.conditions.block_size for m in capture.measurements] == [
        4096,
        65536,
        1 << 19,
        1 << 20,
    ]
    # What it calls MB/s are 1000 KiB/s: only so 200.00 MB/s of 4 KiB are 50.0k.
    read_rates = [50_000, 20_000, 800, 500]
    write_rates = [50_400, 20_625, 840, 540]
    for m, reads, writes in zip(capture.measurements, read_rates, write_rates, strict=True):
        size = m.conditions.block_size
        assert figures(m, "read")[:2] == pytest.approx((reads, reads * size))
        assert figures(m, "write")[:2] == pytest.approx((writes, writes * size))
        assert load(m) == (0.5, "random", size, 2, 64)


def test_the_whole_table_of_yabs_says_what_its_megabytes_are(tmp_path: Path) -> None:
    """409.60 MB/s of 512 KiB are 781 or 800 a second: a printed 0.78k does not outvote the rest."""
    capture = read_capture(edited("yabs/table.txt", "(800)", "(780)", tmp_path))
    assert capture.measurements[2].ops["read"].iops == pytest.approx(800)


def test_a_table_of_yabs_that_contradicts_itself(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"line 9: 4k: '200.00 MB/s  \(5.0k\)' makes 4.883e\+04"):
        read_capture(edited("yabs/table.txt", "(50.0k)", "(5.0k)", tmp_path))


# CrystalDiskMark


def test_crystaldiskmark_8() -> None:
    capture = read("crystaldiskmark/v8.txt")
    assert capture.version == "CrystalDiskMark 8.0.4"
    a, b, c, d, mix = capture.measurements
    assert figures(a, "read") == pytest.approx((2_000, 2_000 * MIB, 3_990))
    assert load(a) == (1.0, "sequential", MIB, 1, 8)
    assert figures(b, "read") == pytest.approx((800_000, 800_000 * 4096, 638))
    assert load(b) == (1.0, "random", 4096, 16, 32)
    assert figures(c, "write") == pytest.approx((1_000, 1_000 * MIB, 7_950))
    assert figures(d, "write") == pytest.approx((40_000, 40_000 * 4096, 24.8))
    assert load(mix) == (0.7, "random", 4096, 1, 32)
    assert not mix.ops
    assert (mix.mixed.iops, mix.mixed.lat.mean_s) == (100_000, pytest.approx(317e-6))


def test_crystaldiskmark_5() -> None:
    capture = read("crystaldiskmark/v5.txt")
    found = [(figures(m, op), load(m)) for m in capture.measurements for op in m.ops]
    assert [f[:2] for f, _ in found] == [
        pytest.approx((iops, iops * size))
        for iops, size in (
            *((10_000, 1 << 17), (5_000, 1 << 17), (100_000, 4096), (50_000, 4096)),
            *((1_000, MIB), (10_000, 4096)),
        )
    ]
    assert [c[3:] for _, c in found] == [(1, 32)] * 4 + [(1, 1)] * 2


def test_kdiskmark_divides_kibibytes_by_1000() -> None:
    capture = read("crystaldiskmark/kdiskmark.txt")
    rates = [figures(m, op)[1] for m in capture.measurements for op in m.ops]
    assert rates == pytest.approx([1_000 * MIB, 10_000 * 4096, 500 * MIB, 20_000 * 4096])


def test_a_row_of_zero_did_not_run(tmp_path: Path) -> None:
    path = edited(
        "crystaldiskmark/kdiskmark.txt",
        "1024.000 MB/s [   1000.0 IOPS] <  7950.00 us>",
        "   0.000 MB/s [      0.0 IOPS] <     0.00 us>",
        tmp_path,
    )
    capture = read_capture(path)
    assert len(capture.measurements) == 3
    assert "line 8: a row of zero did not run (left out)" in capture.warnings


# elbencho


def test_elbencho_table() -> None:
    a, b = read("elbencho/table.txt").measurements
    assert figures(a, "write") == pytest.approx((4_096, 4_096 * MIB, 3_900))
    assert (a.ops["write"].count, a.ops["write"].bytes) == (65_536, 65_536 * MIB)
    assert (a.ops["write"].lat.min_s, a.ops["write"].lat.max_s) == pytest.approx((120e-6, 25e-3))
    assert figures(b, "read") == pytest.approx((8_192, 8_192 * MIB, None))
    assert (a.conditions.block_size, a.conditions.jobs, b.label) == (MIB, 16, "read /mnt/a/64x1GiB")


def test_elbencho_csv() -> None:
    with (DATA / "elbencho" / "phases.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["operation"] != "MKDIRS"]
    ops: tuple[Op, ...] = ("write", "read")
    for m, row, op in zip(read("elbencho/phases.csv").measurements, rows, ops, strict=True):
        assert figures(m, op) == pytest.approx(
            (float(row["IOPS [last]"]), float(row["MiB/s [last]"]) * MIB,
             float(row["IO lat us [avg]"]))
        )  # fmt: skip
        assert m.ops[op].bytes == int(row["MiB [last]"]) * MIB
        assert load(m)[1:] == ("random", 4096, 8, 16)
        assert m.conditions.direct is True


def test_elbencho_with_times_for_people() -> None:
    a, b = read("elbencho/elapsed_time.txt").measurements
    assert figures(a, "write") == pytest.approx((200 * MIB / 4096, 200 * MIB, 620))
    assert figures(b, "read") == pytest.approx((400 * MIB / 4096, 400 * MIB, 310))
    assert (a.conditions.duration_s, b.conditions.duration_s) == (10, 10)


def test_an_elbencho_table_that_contradicts_itself(tmp_path: Path) -> None:
    path = edited("elbencho/table.txt", "     8000\n", "     4000\n", tmp_path)
    with pytest.raises(CaptureError, match=r"65536 MiB in 4 s make 16384 MiB/s, 8192 are printed"):
        read_capture(path)


# SPDK


def test_spdk_perf() -> None:
    (m,) = read("spdk/perf.txt").measurements
    assert figures(m, "read") == pytest.approx((400_000, 1562.5 * MIB, 79.8))
    assert load(m) == (1.0, "random", 4096, 1, 32)
    lat = m.ops["read"].lat
    assert (lat.min_s, lat.max_s) == pytest.approx((12.5e-6, 2345.5e-6))
    assert lat.percentiles_s[50.0] == pytest.approx(78e-6)
    assert lat.percentiles_s[99.9] == pytest.approx(310e-6)
    assert not m.warnings


def test_bdevperf_with_its_histogram() -> None:
    (m,) = read("spdk/bdevperf.txt").measurements
    lat = m.ops["write"].lat
    assert figures(m, "write") == pytest.approx((100_000, 781.25 * MIB, 159))
    assert m.ops["write"].count == lat.count == 100_000 * 10
    assert load(m) == (0.0, "random", 8192, 1, 16)
    assert lat.percentiles_s == pytest.approx({50.0: 180e-6, 99.0: 420e-6})
    assert lat.bin_s.tolist() == pytest.approx([110e-6, 170e-6, 240e-6, 400e-6])
    assert lat.bin_count.tolist() == [400_000, 400_000, 150_000, 50_000]


def test_bdevperf_before_it_had_latencies() -> None:
    a, b = read("spdk/bdevperf_2020.txt").measurements
    assert (a.mixed.iops, b.mixed.iops) == (312_345.6, 302_345.6)
    assert (a.mixed.bytes_per_s, b.mixed.bytes_per_s) == (1220.10 * MIB, 1181.04 * MIB)
    assert (a.conditions.block_size, a.mixed.lat, b.mixed.lat) == (4096, None, None)


def test_perf_that_calls_mebibytes_megabytes(tmp_path: Path) -> None:
    path = edited("spdk/perf.txt", "MiB/s", "MB/s ", tmp_path)
    (m,) = read_capture(path).measurements
    assert figures(m, "read") == pytest.approx((400_000, 1562.5 * MIB, 79.8))


def test_a_latency_summary_alone(tmp_path: Path) -> None:
    text = (DATA / "spdk" / "perf.txt").read_text()
    path = tmp_path / "summary.txt"
    path.write_text(text[text.index("Summary latency") :])
    (m,) = read_capture(path).measurements
    assert (m.mixed.iops, m.mixed.count) == (0, 0)
    assert m.mixed.lat.percentiles_s[99.0] == pytest.approx(150.25e-6)


# ioping


def test_ioping() -> None:
    a, b = read("ioping/two.txt").measurements
    assert (a.label, b.label) == ("/dev/nvme0n1", "/mnt/data")
    assert figures(a, "read") == pytest.approx((10 / 1e-3, 40 * 1024 / 1e-3, 100))
    assert figures(b, "write") == pytest.approx((200 / 2, 800 * 1024 / 2, 10_000))
    lat = b.ops["write"].lat
    assert (lat.min_s, lat.max_s, lat.stddev_s) == pytest.approx((2e-3, 30e-3, 4e-3))
    assert load(a) == (1.0, None, 4096, 1, 1)
    assert b.conditions.block_size == 4096  # 400 KiB/s over 100 a second


OLD_IOPING = """4.0 KiB from . (ext4 /dev/sda1): request=1 time=296 us
^C
--- . (ext4 /dev/sda1) ioping statistics ---
91 requests completed in 1.5 min, 66 iops, 267.8 KiB/s
min/avg/max/mdev = 296 us / 14.9 ms / 600.3 ms / 75.3 ms
"""


def test_old_ioping_prints_its_rate_and_a_time_with_pauses(tmp_path: Path) -> None:
    path = tmp_path / "ioping.txt"
    path.write_text(OLD_IOPING)
    (m,) = read_capture(path).measurements
    assert figures(m, "read") == pytest.approx((66, 66 * 4096, 14_900))
    assert (m.ops["read"].count, m.conditions.duration_s) == (91, None)


def test_a_flatfile_has_no_writes_of_a_rounding(tmp_path: Path) -> None:
    text = (DATA / "vdbench" / "flatfile.html").read_text()
    row = next(line for line in text.split("\n") if "avg_" in line)
    header = next(line for line in text.split("\n") if line.lstrip().startswith("tod")).split()
    cells = dict(zip(header, row.split(), strict=True))
    cells |= {"rate": "32000.1", "read%": "99.99999999999999"}
    path = tmp_path / "flatfile.html"
    path.write_text(text.replace(row, " ".join(cells.values())))
    assert set(read_capture(path).measurements[0].ops) == {"read"}


def test_quotes_inside_the_command_of_elbencho(tmp_path: Path) -> None:
    header, *rows = (DATA / "elbencho" / "phases.csv").read_text().splitlines()
    command = '"/bin/elbencho" "--hosts" "a,b" "--threads" "1" '
    lines = [f"{header},command", *(f"{row},{command}" for row in rows)]
    path = tmp_path / "phases.csv"
    path.write_text("\n".join(lines) + "\n")
    plain, found = read("elbencho/phases.csv"), read_capture(path)
    assert [m.ops for m in found.measurements] == [m.ops for m in plain.measurements]
    assert found.warnings == plain.warnings
