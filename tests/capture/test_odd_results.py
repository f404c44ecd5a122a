"""Results of fio, Iometer and iostat that are odd but real: what is read, said, or refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from nvmesim.capture.capture import Capture
from nvmesim.capture.readers.fio.normal_section import NO_TIME, TRIMMED
from nvmesim.warning import has
from tests.capture.contract import counted, read_text, refused
from tests.capture.test_fio_json import DATA as FIO_JSON
from tests.capture.test_fio_json import group, read_table, refusal

DATA = FIO_JSON.parent
NORMAL = (DATA / "fio-text" / "randread_4k_qd4.normal.txt").read_text()
TERSE = (DATA / "fio-terse" / "randrw_4k_qd4.terse_v3.txt").read_text()
IOSTAT = json.loads((DATA / "iostat" / "report.json").read_text())
IOMETER = (DATA / "iometer" / "results.csv").read_text()


def two_jobs(**second: object) -> dict:
    """A run of two jobs beside each other; *second* are options of the second."""
    table = group()
    other = copy.deepcopy(table["jobs"][0])
    other["jobname"] = "other"
    other["job options"] |= {key: str(value) for key, value in second.items()}
    table["jobs"].append(other)
    return table


def warnings(table: dict, tmp_path: Path) -> tuple[str, ...]:
    (measurement,) = read_table(table, tmp_path).measurements
    return measurement.warnings


def test_jobs_beside_each_other_that_differ(tmp_path: Path) -> None:
    assert has(warnings(two_jobs(iodepth=9), tmp_path), "unequal-depths")
    assert not has(warnings(two_jobs(), tmp_path), "unequal-depths")
    short = two_jobs()
    short["jobs"][1]["read"]["runtime"] //= 2
    assert has(warnings(short, tmp_path), "unequal-times")
    assert has(warnings(two_jobs(thinktime="5ms"), tmp_path), "thinktime")
    assert has(warnings(two_jobs(rate="8m"), tmp_path), "rate-limited")
    idle = two_jobs()
    idle["jobs"][1]["read"]["total_ios"] = 0
    assert counted(warnings(idle, tmp_path), "idle-jobs") == 1


def test_depths_that_nobody_knows_are_not_different_ones(tmp_path: Path) -> None:
    two = TERSE + TERSE.replace(";t3;0;", ";t4;0;")
    (measurement,) = read_text(two, tmp_path).measurements
    assert measurement.conditions.iodepth is None
    assert not has(measurement.warnings, "unequal-depths")


def test_a_job_that_waits_runs_alone(tmp_path: Path) -> None:
    assert len(read_table(two_jobs(), tmp_path).measurements) == 1
    assert len(read_table(two_jobs(wait_for="mj"), tmp_path).measurements) == 2
    assert len(read_table(two_jobs(wait_for_previous=1), tmp_path).measurements) == 2


def test_jobs_that_ask_different_things_are_counted(tmp_path: Path) -> None:
    table = two_jobs(rw="randwrite", bs="64k")
    table["jobs"][1]["write"], table["jobs"][1]["read"] = (
        table["jobs"][1]["read"],
        table["jobs"][1]["write"],
    )
    written = table["jobs"][1]["write"]
    for key in ("io_bytes", "bw_bytes"):
        written[key] *= 65536 // 4096
    conditions = read_table(table, tmp_path).measurements[0].conditions
    assert conditions.read_fraction == 0.5
    assert conditions.block_size == {4096: 0.5, 65536: 0.5}


def test_sizes_that_neither_options_nor_counts_tell(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["job options"]["bsrange"] = "4k-64k"
    table["jobs"][0]["read"]["io_bytes"] = 3 * table["jobs"][0]["read"]["io_bytes"] // 2
    assert read_table(table, tmp_path).measurements[0].conditions.block_size is None


def test_what_ran_beside_the_requests_is_said(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["trim"]["total_ios"] = 7
    table["jobs"][0]["sync"] = {"total_ios": 5}
    table["jobs"][0]["total_err"] = 2
    said = warnings(table, tmp_path)
    assert counted(said, "trims") == 7
    assert "5 flushes (fsync) ran between the requests" in said
    assert "2 requests failed and were continued over" in said


def test_a_mixed_report_of_reads_and_writes_is_neither(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["job options"]["rw"] = "randrw"
    table["jobs"][0]["mixed"] = table["jobs"][0].pop("read")
    del table["jobs"][0]["write"]
    (measurement,) = read_table(table, tmp_path).measurements
    assert not measurement.ops
    assert measurement.mixed is not None
    assert measurement.conditions.read_fraction == 0.5
    assert has(measurement.warnings, "mixed-report")
    table["jobs"][0]["job options"]["rwmixread"] = "many"
    assert read_table(table, tmp_path).measurements[0].conditions.read_fraction is None


def test_verify_found_other_data(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["error"] = 84
    assert "error=84 (verify found wrong data)" in refusal(table, tmp_path)
    table["jobs"][0]["error"] = -99_999
    assert refusal(table, tmp_path).startswith("job 'mj' failed with error=99999;")


def test_threads_of_merged_sections_are_counted_from_their_time(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["job_runtime"] *= 3
    (measurement,) = read_table(table, tmp_path).measurements
    assert measurement.conditions.jobs == 9
    assert "9 threads ran where numjobs says 3" in "; ".join(measurement.warnings)


def test_very_old_fio_has_no_counts(tmp_path: Path) -> None:
    table = group()
    read = table["jobs"][0]["read"]
    count = read.pop("total_ios")
    (measurement,) = read_table(table, tmp_path).measurements
    assert measurement.ops["read"].count == pytest.approx(count, rel=1e-3)


@pytest.mark.parametrize(
    ("bins", "found"),
    [
        ({"10": -1}, "holds something that is not the count"),
        ({"-10": 1}, "holds something that is not the count"),
        ({"10": 1.5}, "holds something that is not the count"),
        ({"ten": 1}, "holds something that is not the count"),
        ({"9" * 17: 1}, "holds something that is not the count"),
        ({"9" * 40: 1}, "holds something that is not the count"),
        ({"FIO_IO_U_PLAT_BITS": 6, "2560": 1}, "holds something that is not the count"),
    ],
)
def test_bins_that_are_none(bins: dict, found: str, tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["read"]["clat_ns"]["bins"] = bins
    assert found in refusal(table, tmp_path)


def test_bins_without_a_bin(tmp_path: Path) -> None:
    table = group()
    table["jobs"][0]["read"]["clat_ns"]["bins"] = {"FIO_IO_U_PLAT_BITS": 6}
    clat = read_table(table, tmp_path).measurements[0].ops["read"].clat
    assert clat.bin_s is None


def test_percentiles_that_cannot_be(tmp_path: Path) -> None:
    table = group()
    percentile = table["jobs"][0]["read"]["clat_ns"]["percentile"]
    percentile["50.000000"] = 1
    (m,) = read_table(table, tmp_path).measurements
    assert m.ops["read"].clat is None
    assert has(m.warnings, "impossible-latency")
    percentile["half"] = 5
    assert "has the key 'half', not a percentage" in refusal(table, tmp_path)


def test_json_of_fio_among_other_json(tmp_path: Path) -> None:
    text = json.dumps(group())
    assert len(read_table('{"note": 1}\n' + text, tmp_path).measurements) == 1
    assert "cut or none, at line 2" in " ".join(read_table(text + "\n{cut", tmp_path).warnings)
    noise = '{"fio version": 1' + "{" * 50 + "\n"
    capture = read_table(noise * 40 + text, tmp_path)
    assert len(capture.measurements) == 1
    assert "left out: 40 reports that are cut or no JSON" in capture.warnings
    inside = read_table(json.dumps({"host": [{"result": group()}]}), tmp_path)
    assert inside.measurements == read_table(text, tmp_path).measurements
    said = read_table("fio: terminating on signal 2\n" + text, tmp_path).warnings
    assert "the run was interrupted by a signal" in said


def test_reports_of_one_run_are_told_from_runs_of_one_job(tmp_path: Path) -> None:
    """A later report of the same run has counted on, and began when the first began."""
    first, second = group(), group()
    second["jobs"][0]["read"]["total_ios"] += 1

    def measured(one: dict, other: dict) -> int:
        return len(read_table(json.dumps(one) + "\n" + json.dumps(other), tmp_path).measurements)

    assert measured(first, second) == 1
    assert measured(second, first) == 2  # it counted back: another run
    third = copy.deepcopy(second)
    third["jobs"][0]["jobname"] = "else"
    assert measured(first, third) == 2
    for table in (first, second):
        table.pop("timestamp")
    assert measured(first, second) == 1  # without a time, the counts tell
    second["jobs"][0]["read"].pop("total_ios")
    assert measured(first, second) == 2  # nor counts: taken as two


def test_a_drive_without_a_figure_has_no_utilization(tmp_path: Path) -> None:
    table = group()
    table["disk_util"] = [{"name": "vda"}, {"name": "vdb", "util": 5.0}]
    assert read_table(table, tmp_path).measurements[0].disk_util_pct == {"vdb": 5.0}


def test_normal_output_that_was_cut(tmp_path: Path) -> None:
    """What is left is read, and what it rests on is said."""
    (whole,) = read_text(NORMAL, tmp_path).measurements
    for text, code in (
        (NORMAL.split("  cpu  ")[0], TRIMMED),
        (NORMAL.replace("/3001msec", ""), NO_TIME),
    ):
        capture = read_text(text, tmp_path)
        (m,) = capture.measurements
        assert has(capture.warnings, code)
        assert m.ops["read"].count == pytest.approx(whole.ops["read"].count, rel=0.01)
        assert m.ops["read"].iops == pytest.approx(whole.ops["read"].iops, rel=0.01)
    assert "is not whole" in refused(NORMAL[: NORMAL.index("/3001msec") - 40], tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("groupid=0", "groupid=1234567890", "line 5: 'jn_qd4"),
        ("avg=83.15", "avg=8.15", "read clat: its mean is 8.15 us, below its minimum"),
        ("50.00th=[   72]", "50.00th=[   12]", "read clat: its percentiles decrease"),
        ("rw=randread", "rw=randread, verify", "jn_qd4"),
    ],
)
def test_normal_output_that_cannot_be(old: str, new: str, found: str, tmp_path: Path) -> None:
    damaged = NORMAL.replace(old, new)
    assert damaged != NORMAL
    if "clat" in found:  # left out, and said
        (measurement,) = read_text(damaged, tmp_path).measurements
        assert measurement.ops["read"].clat is None
        assert any(text.startswith(found) for text in measurement.warnings)
        return
    if old == "rw=randread":  # not as fio prints it: all that is known is what the report says
        (measurement,) = read_text(damaged, tmp_path).measurements
        assert (measurement.conditions.iodepth, measurement.conditions.access) == (4, None)
        return
    assert found in refused(damaged, tmp_path)


def test_bytes_of_the_printed_text_where_no_banner_tells_the_size(tmp_path: Path) -> None:
    body = NORMAL[NORMAL.index("jn_qd4: (groupid") :]
    (measurement,) = read_text(body, tmp_path).measurements
    assert measurement.ops["read"].bytes == 516 << 20
    (measurement,) = read_text(body.replace("(516MiB/", "(lots/"), tmp_path).measurements
    assert measurement.ops["read"].bytes == 0
    assert "(99999999PiB" in refused(body.replace("(516MiB/", "(99999999PiB/"), tmp_path)


def test_a_range_of_sizes_is_none(tmp_path: Path) -> None:
    ranged = NORMAL.replace("(R) 4096B-4096B", "(R) 4096B-8192B")
    conditions = read_text(ranged, tmp_path).measurements[0].conditions
    assert conditions.block_size is None  # bytes over requests are a mean, which is not a size
    assert conditions.iodepth == 4


def test_a_latency_of_nothing_but_zeros_is_none(tmp_path: Path) -> None:
    zero = NORMAL.replace(
        "slat (usec): min=3, max=4837, avg= 7.37, stdev=36.35",
        "slat (usec): min=0, max=0, avg= 0.00, stdev= 0.00",
    )
    assert read_text(zero, tmp_path).measurements[0].ops["read"].slat is None


def iostat(change: object, tmp_path: Path) -> Capture:
    table = copy.deepcopy(IOSTAT)
    change(table["sysstat"]["hosts"][0])  # type: ignore[operator]
    return read_text(json.dumps(table), tmp_path)


def test_iostat_json_with_things_that_are_no_reports(tmp_path: Path) -> None:
    def spoil(host: dict) -> None:
        host["statistics"][1]["disk"] += [{"r/s": 1}, {"disk_device": "x"}, "sda"]
        host["statistics"][1]["avg-cpu"] = []
        host["statistics"].append("a word")

    capture = iostat(spoil, tmp_path)
    assert capture.skipped == 4
    assert "4 lines skipped" in " ".join(capture.warnings)


def test_iostat_that_cannot_be(tmp_path: Path) -> None:
    def busier_than_it_can_be(host: dict) -> None:
        for report in host["statistics"]:
            report["avg-cpu"] |= {"user": 80.0, "system": 80.0}

    def slow_beyond_reason(host: dict) -> None:
        for report in host["statistics"]:
            for disk in report["disk"]:
                disk["r_await"] = 1e13

    assert iostat(busier_than_it_can_be, tmp_path).measurements[0].cpu is None
    for measurement in iostat(slow_beyond_reason, tmp_path).measurements:
        assert "read" not in measurement.ops or measurement.ops["read"].clat is None


CPU = """avg-cpu:  %user   %nice %system %iowait  %steal   %idle
          10.00    0.00   20.00    0.00    0.00   70.00

"""


def test_iostat_text_with_its_cpu(tmp_path: Path) -> None:
    text = (DATA / "iostat" / "text.txt").read_text().replace("Device ", CPU + "Device ")
    (measurement, *_) = read_text(text, tmp_path).measurements
    assert (measurement.cpu.user_pct, measurement.cpu.system_pct) == (20.0, 40.0)  # two CPUs
    damaged = text.replace("          10.00    0.00 ", "          10.00 ")
    capture = read_text(damaged, tmp_path)
    assert capture.measurements[0].cpu is None
    assert capture.skipped == text.count("avg-cpu")


def test_iometer_specifications_and_rows_that_are_none(tmp_path: Path) -> None:
    for size in ("4096,100,70", "4096,100,-70,100,0,1,4096,0", "large,100,70,100"):
        damaged = IOMETER.replace("4096,100,70,100,0,1,4096,0", size, 1)
        capture = read_text(damaged, tmp_path)
        assert capture.skipped == 1
        assert capture.measurements[0].conditions.block_size is None
        assert capture.measurements[0].conditions.access is None
    short = IOMETER.replace("\nALL,All,", "\nALL,All,1,2\nALL,All,", 1)
    assert read_text(short, tmp_path).skipped == 1
    blank = IOMETER.replace(
        "\n'Time Stamp\n2024-07-01 10:01", "\n\n ,\n'Time Stamp\n2024-07-01 10:01"
    )
    assert blank != IOMETER
    assert read_text(blank, tmp_path).rows == read_text(IOMETER, tmp_path).rows


def test_iometer_without_one_request(tmp_path: Path) -> None:
    first, _, _ = IOMETER.partition("'Time Stamp\n2024-07-01 10:01")
    zeroed = first.replace(",2583021,", ",0,").replace(",1106960,", ",0,")
    assert zeroed != first
    assert refused(zeroed, tmp_path).startswith("is iometer without one whole result")
