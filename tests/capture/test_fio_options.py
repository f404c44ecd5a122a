"""fio's job options: what they say, and when they say nothing."""

import pytest

from nvmesim.scenario.loads.fio_options import FioOptions, parse_bytes


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("0x1000", 4096), ("1.5k", 1536), ("4kb", 4096), ("2T", 2 << 40), ("4 k", None), ("", None)],
)
def test_sizes(text: str, n_bytes: int | None) -> None:
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("250us", 250e-6), ("2 days", None), ("soon", None)]
)
def test_times(text: str, seconds: float | None) -> None:
    assert FioOptions({"ramp_time": text}).ramp_s() == seconds


@pytest.mark.parametrize(
    ("given", "access"),
    [
        ({"rw": "randrw"}, "random"),
        ({"rw": "randread:1"}, "random"),
        ({"rw": "randread:8"}, None),  # eight in sequence from each random place
        ({"rw": "randread", "percentage_random": "60"}, None),
        ({"rw": "write"}, "sequential"),
        ({}, "sequential"),  # fio's default is a sequential read
    ],
)
def test_access(given: dict[str, str], access: str | None) -> None:
    assert FioOptions({"name": "j", **given}).access() == access


@pytest.mark.parametrize(
    ("given", "fraction"),
    [
        ({"rw": "randtrim"}, None),
        ({"rw": "randrw", "rwmixwrite": "20", "rwmixread": "70"}, 0.7),  # the later one holds
        ({"rw": "randrw", "rwmixread": "170"}, None),
        ({"rw": "randrw", "rwmixwrite": "many"}, None),
    ],
)
def test_read_fraction(given: dict[str, str], fraction: float | None) -> None:
    assert FioOptions(given).read_fraction() == (
        None if fraction is None else pytest.approx(fraction)
    )


def test_a_banner_that_says_nothing_leaves_it_unknown() -> None:
    banner = FioOptions({"ioengine": "libaio"}, complete=False)
    assert (banner.access(), banner.read_fraction(), banner.block_sizes("read")) == (None,) * 3
    assert (banner.iodepth(None), banner.direct(), banner.ramp_s()) == (None, None, None)
    mixed = FioOptions({"rw": "randrw"}, complete=False)
    assert mixed.read_fraction() is None


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ("4k/50:8k:16k", {4096: 0.5, 8192: 0.25, 16384: 0.25}),
        ("4k/50:4k/50", {4096: 1.0}),
        ("4k/100:64k/0", {4096: 1.0}),
        ("4k/120:64k", None),
        ("4k/60:64k/60", None),
        ("4k/60:64k/60:8k", None),  # less than nothing is left for the third
        ("4k/most:64k", None),
        ("small/50:64k/50", None),
    ],
)
def test_splits_of_block_sizes(split: str, sizes: dict[int, float] | None) -> None:
    found = FioOptions({"bssplit": split}).block_sizes("write")
    assert found == (None if sizes is None else pytest.approx(sizes))


def test_reads_and_writes_have_sizes_of_their_own() -> None:
    both = FioOptions({"bs": "4k,64k"})
    assert (both.block_sizes("read"), both.block_sizes("write")) == ({4096: 1.0}, {65536: 1.0})
    assert FioOptions({"bssplit": "4k/100,8k/100"}).block_sizes("write") == {8192: 1.0}
    assert FioOptions({"bs": "some"}).block_sizes("read") is None


def test_depth() -> None:
    assert FioOptions({"ioengine": "pvsync2", "iodepth": "32"}).iodepth(32) == 1
    assert FioOptions({"ioengine": "libaio", "iodepth": "32"}).iodepth(None) == 32
    assert FioOptions({"ioengine": "libaio", "iodepth": "deep"}).iodepth(None) is None
    assert FioOptions({"ioengine": "libaio", "latency_target": "1ms"}).iodepth(7) == 7
    assert FioOptions({}).iodepth(5) == 5  # very old fio: the report alone knows


def test_flags() -> None:
    assert FioOptions({"buffered": "1", "direct": "1"}).direct() is False
    assert FioOptions({"direct": ""}).direct() is True  # a flag without a value
    assert FioOptions({"direct": "no"}).direct() is False


def test_rates() -> None:
    per_op = {"read": 4096.0, "write": 65536.0}
    assert FioOptions({"rate_iops": "1k,500"}).rate_iops(per_op) == 1524  # type: ignore[arg-type]
    assert FioOptions({"rate": "8m,"}).rate_iops({"read": 4096.0}) == 2048
    assert FioOptions({"rate": "8m:4m"}).rate_iops({"read": 4096.0}) == 2048
    assert FioOptions({"rate": "0"}).rate_iops({"read": 4096.0}) is None
    assert FioOptions({"rate_iops": "100"}).rate_iops({}) is None
