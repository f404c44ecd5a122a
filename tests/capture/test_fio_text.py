"""fio's terse and normal output, held to the JSON of the same run."""

from pathlib import Path

import pytest

from nvmesim.capture.readers.fio.normal_section import NO_TIME, TRIMMED
from nvmesim.capture.registry import read_capture
from nvmesim.warning import has
from tests.capture.contract import DATA, only, read_text, refused, sample

BOTH = "fio-json/randread_4k_qd4.json_normal_terse.txt.gz"
NORMAL = sample("fio-text/randread_4k_qd4.normal.txt")
TERSE = sample("fio-terse/randrw_4k_qd4.terse_v3.txt")
PRINTED_S = 1e-6  # percentiles are printed in whole microseconds


def test_normal_says_what_json_says(tmp_path: Path) -> None:
    """Of one run, and without the JSON and the terse line in the same file."""
    both = sample(BOTH)
    terse = next(line for line in both.split("\n") if line.startswith("3;fio"))
    normal = both[: both.index("\n{\n")] + both[both.index("\n}\n") + 3 :].replace(terse, "")
    json = only(DATA / BOTH)
    (text,) = read_text(normal, tmp_path).measurements
    a, b = json.ops["read"], text.ops["read"]
    assert (a.count, a.bytes) == (b.count, b.bytes)
    assert b.iops == pytest.approx(a.iops, rel=1e-6)
    assert b.clat.mean_s == pytest.approx(a.clat.mean_s, rel=1e-3)
    assert b.clat.percentiles_s == pytest.approx(dict(a.clat.percentiles_s), abs=PRINTED_S)
    assert b.lat.mean_s == pytest.approx(a.lat.mean_s, rel=1e-3)
    for key in ("read_fraction", "access", "block_size", "jobs", "iodepth", "engine"):
        assert getattr(text.conditions, key) == getattr(json.conditions, key)
    assert text.conditions.direct is None
    assert text.cpu.total_pct == pytest.approx(json.cpu.total_pct, rel=1e-3)


@pytest.mark.parametrize("name", ["v2", "v3", "v5"])
def test_terse_versions(name: str) -> None:
    capture = read_capture(DATA / "fio-terse" / f"randrw_4k_qd4.terse_{name}.txt")
    assert capture.version.endswith(f"terse {name[1]}" + ")" * (name != "v2"))
    (m,) = capture.measurements
    assert m.conditions.read_fraction == pytest.approx(0.7, abs=0.01)
    assert m.conditions.block_size == 4096
    for op in m.ops.values():
        assert op.lat.mean_s == pytest.approx(
            (op.clat.mean_s or 0) + (op.slat.mean_s or 0), rel=0.01
        )
        assert len(op.clat.percentiles_s) == 17


def test_terse_version_4_has_trims_between(tmp_path: Path) -> None:
    """Version 4 is version 3 with a block of trims after the writes."""
    fields = TERSE.strip().split(";")
    none = ["0"] * 12 + ["1.000000%=0"] * 20 + ["0"] * 4 + ["0", "0", "0.000000%", "0", "0"]
    text = ";".join(["4", *fields[1:87], *none, *fields[87:]]) + "\n"
    (old,), (new,) = (read_text(t, tmp_path).measurements for t in (TERSE, text))
    assert new.ops == old.ops
    assert new.disk_util_pct == old.disk_util_pct


def test_terse_status_interval_keeps_the_last_line(tmp_path: Path) -> None:
    first = TERSE.split(";")
    first[8] = first[49] = "1000"
    capture = read_text(";".join(first) + TERSE, tmp_path)
    assert capture.rows == 2
    assert len(capture.measurements) == 1
    assert capture.measurements[0].conditions.duration_s == 3.001


def test_depths_that_nobody_knows_are_not_different_ones(tmp_path: Path) -> None:
    (m,) = read_text(TERSE + TERSE.replace(";t3;0;", ";t4;0;"), tmp_path).measurements
    assert m.conditions.iodepth is None
    assert not has(m.warnings, "unequal-depths")


OLD_REPORT = sample("fio-old/2.16.txt")


def test_normal_output_of_fio_2(tmp_path: Path) -> None:
    (m,) = read_text(OLD_REPORT, tmp_path).measurements
    read = m.ops["read"]
    # Its banner asks for 4, its depths and its rate times latency say that 1 was in flight.
    assert (m.conditions.jobs, m.conditions.iodepth, m.conditions.block_size) == (2, 1, 16384)
    assert read.iops * 245.53e-6 == pytest.approx(2, rel=0.01)
    assert has(m.warnings, "depth-one")
    assert (read.count, read.bytes) == (80891, 80891 * 16384)
    assert read.iops == pytest.approx(8086.67, abs=0.01)
    assert read.clat.mean_s == pytest.approx(238.36e-6)
    assert read.clat.percentiles_s[99.0] == pytest.approx(1352e-6)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            OLD_REPORT[: OLD_REPORT.index("86, runt=")],
            "the report of job 'rr' is not whole; the run was cut",
        ),
        (
            OLD_REPORT.replace("err= 0", "err= 5"),
            "job 'rr' failed with error=5 (Input/output error)",
        ),
        (
            OLD_REPORT.replace("  read :", "  none :"),
            "counts 80891 reads and has no line of them",
        ),
        (sample("fio-terse/randrw_4k_qd4.terse_v5.txt")[:900], "fields, terse version 5 has"),
        (NORMAL[: NORMAL.index("/3001msec") - 40], "is not whole"),
        (NORMAL.replace("groupid=0", "groupid=1234567890"), "line 5: 'jn_qd4"),
    ],
)
def test_a_cut_or_damaged_report_is_refused(text: str, found: str, tmp_path: Path) -> None:
    assert found in refused(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (NORMAL.replace("avg=83.15", "avg=8.15"), "its mean is 8.15 us, below its minimum"),
        (NORMAL.replace("50.00th=[   72]", "50.00th=[   12]"), "its percentiles decrease"),
        (TERSE.replace(";1.000000%=", ";1.000000%=9999", 1), "its percentiles decrease"),
    ],
)
def test_latencies_that_cannot_be_are_left_out(text: str, found: str, tmp_path: Path) -> None:
    (m,) = read_text(text, tmp_path).measurements
    assert m.ops["read"].clat is None
    assert has(m.warnings, "impossible-latency")
    assert any(text.startswith(f"read clat: {found}") for text in m.warnings)


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


def test_a_banner_that_fio_does_not_print_is_not_believed(tmp_path: Path) -> None:
    damaged = NORMAL.replace("rw=randread", "rw=randread, verify")
    (m,) = read_text(damaged, tmp_path).measurements
    assert (m.conditions.iodepth, m.conditions.access) == (4, None)
    ranged = NORMAL.replace("(R) 4096B-4096B", "(R) 4096B-8192B")
    conditions = read_text(ranged, tmp_path).measurements[0].conditions
    assert conditions.block_size is None  # bytes over requests are a mean, which is not a size
    assert conditions.iodepth == 4


def test_bytes_of_the_printed_text_where_no_banner_tells_the_size(tmp_path: Path) -> None:
    body = NORMAL[NORMAL.index("jn_qd4: (groupid") :]
    for printed, n_bytes in (("(516MiB/", 516 << 20), ("(lots/", 0)):
        (m,) = read_text(body.replace("(516MiB/", printed), tmp_path).measurements
        assert m.ops["read"].bytes == n_bytes
    assert "(99999999PiB" in refused(body.replace("(516MiB/", "(99999999PiB/"), tmp_path)


def test_a_latency_of_nothing_but_zeros_is_none(tmp_path: Path) -> None:
    zero = NORMAL.replace(
        "slat (usec): min=3, max=4837, avg= 7.37, stdev=36.35",
        "slat (usec): min=0, max=0, avg= 0.00, stdev= 0.00",
    )
    assert read_text(zero, tmp_path).measurements[0].ops["read"].slat is None
