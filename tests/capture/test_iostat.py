"""iostat -x as versions, options and collectors print it."""

import copy
import json
import re
from pathlib import Path

import pytest

from nvmesim.capture.capture import Capture
from nvmesim.capture.registry import read_capture
from tests.capture.contract import DATA, read_text, sample

BANNER = "Linux 6.1.0 (node) \t03/14/2026 \t_x86_64_\t(4 CPU)\n\n"
HEAD = "Device r/s rkB/s r_await rareq-sz w/s wkB/s w_await wareq-sz aqu-sz %util"
BOOT = "sda 1.00 4.00 9.00 4.00 1.00 4.00 9.00 4.00 0.02 0.10"
BUSY = "sda 1000.00 4000.00 0.50 4.00 500.00 8000.00 1.00 16.00 1.00 80.00"
BUSIER = "sda 3000.00 12000.00 0.30 4.00 500.00 8000.00 2.00 16.00 1.90 90.00"
TEXT = sample("iostat/text.txt")
CPU = """avg-cpu:  %user   %nice %system %iowait  %steal   %idle
          10.00    0.00   20.00    0.00    0.00   70.00

"""


def report(row: str, second: int = 0, head: str = HEAD) -> str:
    return f"03/14/2026 10:00:{second:02d}\n{head}\n{row}\n\n"


TWO = report(BUSY, 5) + report(BUSIER, 10)
USUAL = BANNER + report(BOOT) + TWO


def check_two(capture: Capture, seconds: float | None = 10) -> None:
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


def name_last() -> str:
    head = " ".join([*HEAD.split()[1:], "Device"])
    rows = (" ".join([*row.split()[1:], "sda"]) for row in (BOOT, BUSY, BUSIER))
    return BANNER + "".join(report(row, 5 * n, head) for n, row in enumerate(rows))


@pytest.mark.parametrize(
    "text",
    [
        USUAL,
        TWO,  # of a log that was cut before: its first report is of the load
        USUAL + BANNER + report(BOOT, 20),
        name_last(),
        "".join(f"    {line}\n" for line in USUAL.split("\n")),
    ],
    ids=["usual", "no banner", "two banners", "name last", "indented"],
)
def test_the_report_since_boot_is_left_out(text: str, tmp_path: Path) -> None:
    check_two(read_text(text, tmp_path))


def test_without_times_counts_are_unknown(tmp_path: Path) -> None:
    bare = "".join(f"{HEAD}\n{row}\n\n" for row in (BOOT, BUSY, BUSIER))
    capture = read_text(BANNER + bare, tmp_path)
    check_two(capture, None)
    assert "no times (iostat -t): rates are known and counts are not" in capture.warnings


def test_a_name_too_long_for_its_line(tmp_path: Path) -> None:
    long = "mapper-with-a-very-long-name"
    capture = read_text(USUAL.replace("sda ", f"{long}\n         "), tmp_path)
    check_two(capture)
    assert capture.skipped == 0
    assert capture.measurements[0].label == long


def test_lines_of_two_hosts(tmp_path: Path) -> None:
    lines = [f"{host}: {line}" for line in USUAL.split("\n") for host in ("a-1", "b-2")]
    first, second = read_text("\n".join(lines) + "\n", tmp_path).measurements
    assert (first.label, second.label) == ("a-1 sda", "b-2 sda")
    assert first.ops == second.ops
    assert first.ops["read"].iops == 2000


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path: Path) -> None:
    text = BANNER + report(BOOT) + report(BUSY, 5) + report(BUSIER + "\nsdb" + BUSY[3:], 10).strip()
    capture = read_text(text, tmp_path)
    assert capture.skipped == 0
    assert [m.label for m in capture.measurements] == ["sda", "sdb"]
    assert read_text(text[:-1], tmp_path).skipped == 1


@pytest.mark.parametrize("word", ["Gerät", "Périphérique", "Устройство", "デバイス"])
def test_other_languages(word: str, tmp_path: Path) -> None:
    foreign = USUAL.replace("Device", word).replace("03/14/2026", "14.03.2026")
    check_two(read_text(foreign.replace(".00", ",00").replace("0.", "0,"), tmp_path))


@pytest.mark.parametrize("name", ["text.txt", "report.json"])
def test_iostat_with_decimal_commas(name: str, tmp_path: Path) -> None:
    text = sample(f"iostat/{name}")
    comma = re.sub(r"(?<=\d)\.(?=\d\d\b)", ",", text)
    assert comma != text
    plain = read_capture(DATA / "iostat" / name)
    assert read_text(comma, tmp_path).measurements == plain.measurements


def test_iostat_text_with_its_cpu(tmp_path: Path) -> None:
    text = TEXT.replace("Device ", CPU + "Device ")
    (m, *_) = read_text(text, tmp_path).measurements
    assert (m.cpu.user_pct, m.cpu.system_pct) == (20.0, 40.0)  # two CPUs
    capture = read_text(text.replace("          10.00    0.00 ", "          10.00 "), tmp_path)
    assert capture.measurements[0].cpu is None
    assert capture.skipped == text.count("avg-cpu")


def test_json_with_things_that_cannot_be(tmp_path: Path) -> None:
    table = json.loads(sample("iostat/report.json"))
    reports = table["sysstat"]["hosts"][0]["statistics"]
    plain = copy.deepcopy(reports)
    reports[1]["disk"] += [{"r/s": 1}, {"disk_device": "x"}, "sda"]
    reports[1]["avg-cpu"] = []
    reports.append("a word")
    capture = read_text(json.dumps(table), tmp_path)
    assert capture.skipped == 4
    assert "4 lines skipped" in " ".join(capture.warnings)
    for one in plain:
        one["avg-cpu"] |= {"user": 80.0, "system": 80.0}
        for disk in one["disk"]:
            disk["r_await"] = 1e13
    reports[:] = plain
    (m,) = read_text(json.dumps(table), tmp_path).measurements
    assert m.cpu is None
    assert m.ops["read"].clat is None


MAIL_HEADER = (
    "Device            r/s     w/s     rkB/s     wkB/s   rrqm/s   wrqm/s\n"
    "%rrqm  %wrqm r_await w_await aqu-sz rareq-sz wareq-sz  svctm  %util\n"
)
MAIL_ROW = (
    "sdc           {reads}    1.40  38956.00      5.80     0.40     0.40\n"
    "0.00  22.22    0.20    0.00   1.93     4.00     4.14   0.07  71.82\n"
)


@pytest.mark.parametrize("quote", ["", "> ", ">> "])
def test_tables_with_text_between_are_two_measurements(quote: str, tmp_path: Path) -> None:
    header = " ".join(MAIL_HEADER.split()) + "\n"
    first, second = (" ".join(MAIL_ROW.format(reads=n).split()) + "\n" for n in ("900", "100"))
    blocks = (header + first, "[and with the patch]\n", header + second)
    text = "".join(f"{quote}{line}\n" for b in blocks for line in b.splitlines())
    found = read_text(text, tmp_path).measurements
    assert [m.label for m in found] == ["table 1 sdc", "table 2 sdc"]
    assert [m.ops["read"].iops for m in found] == [900, 100]
    (m,) = read_text(header + first + "\n" + header + second, tmp_path).measurements
    assert m.ops["read"].iops == 500


def test_one_or_two_requests_are_no_rate(tmp_path: Path) -> None:
    """2 s at 1.4 writes a second are three, at 0.9 two."""
    table = " ".join(MAIL_HEADER.split()) + "\n" + " ".join(MAIL_ROW.format(reads="900").split())
    for rate, writes in (("1.40", 3), ("0.90", None)):
        text = "".join(f"11/23/26 10:00:0{s}\n{table}\n\n" for s in (1, 2)).replace("1.40", rate)
        ops = read_text(text, tmp_path).measurements[0].ops
        assert ops["write"].count == writes if writes else set(ops) == {"read"}
