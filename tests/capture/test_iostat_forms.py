"""iostat -x as versions, options and collectors print it; histograms by the unit of their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nvmesim.capture.capture import Capture
from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from tests.capture.contract import read_text

BANNER = "Linux 6.1.0 (node) \t03/14/2026 \t_x86_64_\t(4 CPU)\n\n"
HEAD = "Device r/s rkB/s r_await rareq-sz w/s wkB/s w_await wareq-sz aqu-sz %util"
BOOT = "sda 1.00 4.00 9.00 4.00 1.00 4.00 9.00 4.00 0.02 0.10"
BUSY = "sda 1000.00 4000.00 0.50 4.00 500.00 8000.00 1.00 16.00 1.00 80.00"
BUSIER = "sda 3000.00 12000.00 0.30 4.00 500.00 8000.00 2.00 16.00 1.90 90.00"


def report(row: str, second: int = 0, head: str = HEAD) -> str:
    return f"03/14/2026 10:00:{second:02d}\n{head}\n{row}\n\n"


def check_two(capture: Capture, seconds: float | None) -> None:
    """The figures of BUSY and BUSIER, averaged by hand."""
    (m,) = capture.measurements
    reads, writes = m.ops["read"], m.ops["write"]
    assert (reads.iops, writes.iops) == (2000, 500)
    assert (reads.bytes_per_s, writes.bytes_per_s) == (8000 * 1024, 8000 * 1024)
    assert reads.clat.mean_s == pytest.approx((1000 * 0.5 + 3000 * 0.3) / 4000 * 1e-3)
    assert writes.clat.mean_s == pytest.approx(1.5e-3)
    assert m.conditions.depth_mean == pytest.approx(1.45)
    assert list(m.disk_util_pct.values()) == [pytest.approx(85)]
    assert reads.count == (round(2000 * seconds) if seconds else 0)


def test_the_report_since_boot_follows_the_banner(tmp_path: Path) -> None:
    two = report(BUSY, 5) + report(BUSIER, 10)
    check_two(read_text(BANNER + report(BOOT) + two, tmp_path), 10)
    # A log that was cut before has no banner: its first report is of the load.
    check_two(read_text(two, tmp_path), 10)
    check_two(read_text(BANNER + report(BOOT) + two + BANNER + report(BOOT, 20), tmp_path), 10)


def test_without_times_counts_are_unknown(tmp_path: Path) -> None:
    bare = "".join(f"{HEAD}\n{row}\n\n" for row in (BOOT, BUSY, BUSIER))
    capture = read_text(BANNER + bare, tmp_path)
    check_two(capture, None)
    assert "no times (iostat -t): rates are known and counts are not" in capture.warnings


def test_the_name_may_stand_last(tmp_path: Path) -> None:
    head = " ".join([*HEAD.split()[1:], "Device"])
    rows = [" ".join([*row.split()[1:], "sda"]) for row in (BOOT, BUSY, BUSIER)]
    text = "".join(report(row, 5 * n, head) for n, row in enumerate(rows))
    check_two(read_text(BANNER + text, tmp_path), 10)


def test_units_of_human_output(tmp_path: Path) -> None:
    human = BUSIER.replace("12000.00", "11.7M").replace("8000.00", "8000.0k")
    text = BANNER + report(BOOT) + report(BUSY, 5) + report(human, 10)
    (m,) = read_text(text, tmp_path).measurements
    assert m.ops["read"].bytes_per_s == pytest.approx((4000 + 11.7 * 1024) * 1024 / 2)
    assert m.ops["write"].bytes_per_s == 8000 * 1024


def test_a_name_too_long_for_its_line(tmp_path: Path) -> None:
    text = BANNER + report(BOOT) + report(BUSY, 5) + report(BUSIER, 10)
    long = "mapper-with-a-very-long-name"
    capture = read_text(text.replace("sda ", f"{long}\n         "), tmp_path)
    check_two(capture, 10)
    assert capture.skipped == 0
    assert capture.measurements[0].label == long


def test_indented_lines_and_hosts(tmp_path: Path) -> None:
    text = BANNER + report(BOOT) + report(BUSY, 5) + report(BUSIER, 10)
    indented = "".join(f"    {line}\n" for line in text.split("\n"))
    check_two(read_text(indented, tmp_path), 10)
    lines = [f"{host}: {line}" for line in text.split("\n") for host in ("a-1", "b-2")]
    capture = read_text("\n".join(lines) + "\n", tmp_path)
    first, second = capture.measurements
    assert (first.label, second.label) == ("a-1 sda", "b-2 sda")
    assert first.ops == second.ops
    assert first.ops["read"].iops == 2000


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path: Path) -> None:
    text = BANNER + report(BOOT) + report(BUSY, 5) + report(BUSIER + "\nsdb" + BUSY[3:], 10).strip()
    capture = read_text(text, tmp_path)
    assert capture.skipped == 0
    assert [m.label for m in capture.measurements] == ["sda", "sdb"]
    assert read_text(text[:-1], tmp_path).skipped == 1


def test_reads_and_writes_as_one(tmp_path: Path) -> None:
    head = "Device tps kB/s rqm/s await areq-sz aqu-sz %util"
    boot, busy = "sda 2 8 0 9.00 4.00 0.02 0.10", "sda 1500 12000 0 0.60 8.00 0.90 80.0"
    text = "".join(report(row, 5 * n, head) for n, row in enumerate((boot, busy)))
    (m,) = read_text(BANNER + text, tmp_path).measurements
    assert not m.ops
    assert (m.mixed.iops, m.mixed.bytes_per_s) == (1500, 12000 * 1024)
    assert m.mixed.clat.mean_s == pytest.approx(0.6e-3)


@pytest.mark.parametrize("word", ["Gerät", "Périphérique", "Устройство", "デバイス"])
def test_other_languages(word: str, tmp_path: Path) -> None:
    text = BANNER + report(BOOT) + report(BUSY, 5) + report(BUSIER, 10)
    foreign = text.replace("Device", word).replace("03/14/2026", "14.03.2026")
    check_two(read_text(foreign.replace(".00", ",00").replace("0.", "0,"), tmp_path), 10)


def test_plain_iostat_is_told_what_is_missing(tmp_path: Path) -> None:
    plain = (
        "Device:  tps  kB_read/s  kB_wrtn/s  kB_read  kB_wrtn\nsda  0.2  5.2  1.1  203305  42368\n"
    )
    with pytest.raises(CaptureError, match=r"is plain iostat: without -x .*; run iostat -x -t 1"):
        read_text(BANNER + plain, tmp_path)


# Histograms


def histogram(name: str, *bins: tuple[str, int]) -> str:
    return f"@{name}:\n" + "".join(f"[{span}) {n} |@@@@|\n" for span, n in bins) + "\n"


@pytest.mark.parametrize(
    ("name", "unit_s"),
    [("usecs", 1e-6), ("latency_ssd_ns", 1e-9), ("lat_us", 1e-6), ("io_ms", 1e-3)],
)
def test_the_unit_of_a_map_is_in_its_name(name: str, unit_s: float, tmp_path: Path) -> None:
    text = histogram(name, ("16, 32", 10), ("32, 64", 980), ("64, 128", 10))
    (m,) = read_text(text, tmp_path).measurements
    middle = (32 * 64) ** 0.5 * unit_s
    assert m.mixed.clat.percentiles_s[50.0] == pytest.approx(middle)
    assert m.mixed.count == 1000


def test_each_map_is_a_series_of_its_own(tmp_path: Path) -> None:
    bins = ("16K, 32K", 5)
    text = "".join(histogram(f"layer_{n}_ns", bins) for n in range(3)) + histogram("bytes", bins)
    capture = read_text("some program says hello\n" + text, tmp_path)
    assert [m.label for m in capture.measurements] == [f"layer_{n}_ns" for n in range(3)]
    assert capture.skipped == 0
    assert any("@bytes: its name does not say" in w for w in capture.warnings)


def test_a_latency_of_months_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"a latency of 12.7 days or more, which no request"):
        read_text(histogram("usecs", ("32, 64", 100), ("1T, 2T", 1)), tmp_path)


# A log that is larger than memory should be


@pytest.mark.slow
def test_a_huge_log_with_one_good_line(tmp_path: Path) -> None:
    """A gibibyte of damage takes no more memory than a chunk of it."""
    path = tmp_path / "fio_clat.1.log"
    good = "".join(f"{n}, 90000, 0, 4096\n" for n in range(40))
    with path.open("w") as file:
        file.write(good)
        junk = "damaged, damaged, damaged, damaged\n" * 30_000
        for _ in range((1 << 30) // len(junk)):
            file.write(junk)
    code = (
        "import resource, sys; from nvmesim.capture.registry import read_capture\n"
        "c = read_capture(sys.argv[1])\n"
        "print(c.rows, c.skipped, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    rows, skipped, mib = map(int, done.stdout.split())
    assert rows == 40
    assert skipped > 30_000_000
    assert mib < 900


def test_times_of_day_alone() -> None:
    """sysstat 9 prints ``Time: 02:15:41 PM`` with -t."""
    (m,) = read_capture(Path(__file__).parent / "data" / "iostat" / "times_alone.txt").measurements
    assert m.conditions.duration_s == 20
    assert (m.ops["read"].count, m.ops["write"].count) == (3_000, 5_000)
    assert m.ops["read"].bytes == 10 * (1600 + 3200) * 512
    assert m.ops["write"].clat.mean_s == pytest.approx((300 * 2.33e-3 + 200 * 3e-3) / 500)


MAIL_HEADER = (
    "Device            r/s     w/s     rkB/s     wkB/s   rrqm/s   wrqm/s\n"
    "%rrqm  %wrqm r_await w_await aqu-sz rareq-sz wareq-sz  svctm  %util\n"
)
MAIL_ROW = (
    "sdc           {reads}    1.40  38956.00      5.80     0.40     0.40\n"
    "0.00  22.22    0.20    0.00   1.93     4.00     4.14   0.07  71.82\n"
)


def test_a_table_that_a_mail_wrapped(tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    path.write_text("Hello,\n\n" + MAIL_HEADER + MAIL_ROW.format(reads="9738.60") + "\nBye\n")
    (m,) = read_capture(path).measurements
    assert m.ops["read"].iops == 9738.6
    assert m.ops["read"].clat.mean_s == pytest.approx(200e-6)
    assert m.ops["write"].clat is None  # 0.00 is unknown
    assert m.disk_util_pct == {"sdc": 71.82}


@pytest.mark.parametrize("quote", ["", "> ", ">> "])
def test_tables_with_text_between_are_two_measurements(quote: str, tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    header = " ".join(MAIL_HEADER.split()) + "\n"
    first, second = (" ".join(MAIL_ROW.format(reads=n).split()) + "\n" for n in ("900", "100"))
    blocks = (header + first, "[and with the patch]\n", header + second)
    path.write_text("".join(f"{quote}{line}\n" for b in blocks for line in b.splitlines()))
    found = read_capture(path).measurements
    assert [m.label for m in found] == ["table 1 sdc", "table 2 sdc"]
    assert [m.ops["read"].iops for m in found] == [900, 100]
    path.write_text(header + first + "\n" + header + second)
    (m,) = read_capture(path).measurements
    assert m.ops["read"].iops == 500


def test_one_or_two_requests_are_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    report = "11/23/26 10:00:0{}\n" + " ".join(MAIL_HEADER.split()) + "\n"
    row = " ".join(MAIL_ROW.format(reads="900").split()) + "\n\n"
    path.write_text("".join(report.format(second) + row for second in (1, 2)))
    (m,) = read_capture(path).measurements  # 2 s at 1.4 writes a second: three
    assert m.ops["write"].count == 3
    path.write_text("".join(report.format(s) + row.replace("1.40", "0.90") for s in (1, 2)))
    (m,) = read_capture(path).measurements
    assert set(m.ops) == {"read"}
