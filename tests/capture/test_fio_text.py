"""fio's terse and normal output, held to the JSON of the same run."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.contract import only

DATA = Path(__file__).parent / "data"
BOTH = DATA / "fio-json" / "randread_4k_qd4.json_normal_terse.txt.gz"
PRINTED_S = 1e-6
"""Percentiles are printed in whole microseconds."""


def both_text() -> str:
    return gzip.decompress(BOTH.read_bytes()).decode()


def without_json(text: str, tmp_path: Path, name: str) -> Path:
    """Cut the JSON object out of a file of all three formats, and one of the other two."""
    start, end = text.index("\n{\n"), text.index("\n}\n") + 3
    terse = next(line for line in text.split("\n") if line.startswith("3;fio"))
    rest = text[:start] + text[end:]
    path = tmp_path / "part.txt"
    path.write_text(terse + "\n" if name == "terse" else rest.replace(terse, ""))
    return path


def test_normal_says_what_json_says(tmp_path: Path) -> None:
    json, text = only(BOTH), only(without_json(both_text(), tmp_path, "normal"))
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
    fields = (DATA / "fio-terse" / "randrw_4k_qd4.terse_v3.txt").read_text().strip().split(";")
    none = ["0"] * 12 + ["1.000000%=0"] * 20 + ["0"] * 4 + ["0", "0", "0.000000%", "0", "0"]
    path = tmp_path / "v4.txt"
    path.write_text(";".join(["4", *fields[1:87], *none, *fields[87:]]) + "\n")
    old, new = only(DATA / "fio-terse" / "randrw_4k_qd4.terse_v3.txt"), only(path)
    assert new.ops == old.ops
    assert new.disk_util_pct == old.disk_util_pct


def test_terse_status_interval_keeps_the_last_line(tmp_path: Path) -> None:
    fields = (DATA / "fio-terse" / "randrw_4k_qd4.terse_v3.txt").read_text().strip().split(";")
    first = [*fields]
    first[8] = first[49] = "1000"
    path = tmp_path / "terse.txt"
    path.write_text(";".join(first) + "\n" + ";".join(fields) + "\n")
    capture = read_capture(path)
    assert capture.rows == 2
    assert len(capture.measurements) == 1
    assert capture.measurements[0].conditions.duration_s == 3.001


OLD_REPORT = """\
rr: (g=0): rw=randread, bs=16K-16K/16K-16K/16K-16K, ioengine=libaio, iodepth=4
...
fio-2.16
Starting 2 processes

rr: (groupid=0, jobs=2): err= 0: pid=811: Thu Sep 28 00:45:52 2017
  read : io=1263.1MB, bw=129386KB/s, iops=8086, runt= 10003msec
    slat (usec): min=2, max=263, avg= 7.17, stdev= 5.02
    clat (usec): min=1, max=12176, avg=238.36, stdev=397.41
     lat (usec): min=4, max=12183, avg=245.53, stdev=397.45
    clat percentiles (usec):
     |  1.00th=[   48], 50.00th=[   97], 99.00th=[ 1352], 99.99th=[ 8384]
    bw (KB  /s): min=55232, max=73600, per=50.06%, avg=64776.96, stdev=4190.09
    lat (usec) : 2=0.01%, 50=2.16%, 100=49.12%
  cpu          : usr=1.54%, sys=4.04%, ctx=80889, majf=0, minf=27
  IO depths    : 1=100.0%, 2=0.0%, 4=0.0%, 8=0.0%, 16=0.0%, 32=0.0%, >=64=0.0%
     issued    : total=r=80891/w=0/d=0, short=r=0/w=0/d=0, drop=r=0/w=0/d=0

Run status group 0 (all jobs):
   READ: io=1263.1MB, aggrb=129386KB/s, minb=129386KB/s, maxb=129386KB/s, mint=10003msec
"""


def test_normal_output_of_fio_2(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text(OLD_REPORT)
    m = only(path)
    read = m.ops["read"]
    # Its banner asks for 4, its depths and its rate times latency say that 1 was in flight.
    assert (m.conditions.jobs, m.conditions.iodepth, m.conditions.block_size) == (2, 1, 16384)
    assert read.iops * 245.53e-6 == pytest.approx(2, rel=0.01)
    assert has(m.warnings, "depth-one")
    assert (read.count, read.bytes) == (80891, 80891 * 16384)
    assert read.iops == pytest.approx(8086.67, abs=0.01)
    assert read.clat.mean_s == pytest.approx(238.36e-6)
    assert read.clat.percentiles_s[99.0] == pytest.approx(1352e-6)


def test_a_cut_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    path.write_text(OLD_REPORT[: OLD_REPORT.index("86, runt=")])
    with pytest.raises(CaptureError, match="the report of job 'rr' is not whole; the run was cut"):
        read_capture(path)
    path.write_text(OLD_REPORT.replace("err= 0", "err= 5"))
    with pytest.raises(CaptureError, match=r"job 'rr' failed with error=5 \(Input/output error\)"):
        read_capture(path)
    path.write_text(OLD_REPORT.replace("  read :", "  none :"))
    with pytest.raises(CaptureError, match="counts 80891 reads and has no line of them"):
        read_capture(path)
    terse = (DATA / "fio-terse" / "randrw_4k_qd4.terse_v5.txt").read_text()
    path.write_text(terse[:900])
    with pytest.raises(CaptureError, match=r"line 1 ends after \d+ fields, terse version 5 has"):
        read_capture(path)
    path.write_text(terse.replace(";1.000000%=", ";1.000000%=9999", 1))
    m = only(path)
    assert m.ops["read"].clat is None
    assert has(m.warnings, "impossible-latency")
