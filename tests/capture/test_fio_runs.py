"""Files of several runs, of versions that print otherwise, and runs that are not what was asked."""

from pathlib import Path
from typing import Any

import pytest

from nvmesim.calibrate.points import points_of
from nvmesim.capture.readers.fio.normal_section import TRIMMED
from nvmesim.capture.registry import read_capture, read_captures
from nvmesim.warning import has
from tests.capture.contract import DATA, read_text, sample
from tests.capture.test_fio_mailed import hard

TERSE = sample("fio-terse/randrw_4k_qd4.terse_v3.txt")


def banner(name: str, group: int, rw: str, depth: int, engine: str = "libaio") -> str:
    sizes = ", ".join(f"({op}) 4096B-4096B" for op in "RWT")
    return f"{name}: (g={group}): rw={rw}, bs={sizes}, ioengine={engine}, iodepth={depth}\n"


def section(
    name: str = "job", group: int = 0, *, pid: int = 7, ops: dict[str, int], seconds: int = 10,
    cpu: str = "usr=5.00%, sys=10.00%, ctx=100000", date: str = "Tue Aug 18 10:29:42 2020",
) -> str:  # fmt: skip
    """A report as fio 3 prints it, whose latencies are what the rate implies at depth 1."""
    lines = [f"{name}: (groupid={group}, jobs=1): err= 0: pid={pid}: {date}"]
    mean = 1e6 * seconds / sum(ops.values())
    for op, count in ops.items():
        mib = count * 4096 / 2**20
        lines += [
            f"  {op}: IOPS={count // seconds}, BW={mib / seconds:.1f}MiB/s (1MB/s)"
            f"({mib:.2f}MiB/{seconds}000msec)",
            f"     lat (usec): min=1, max=900000, avg={mean:.2f}, stdev= 1.00",
        ]
    reads, writes = ops.get("read", 0), ops.get("write", 0)
    return "\n".join([
        *lines, f"  cpu          : {cpu}, majf=0, minf=9",
        "  IO depths    : 1=100.0%",
        f"     issued rwts: total={reads},{writes},0,0 short=0,0,0,0 dropped=0,0,0,0", "",
    ])  # fmt: skip


def status(group: int, ops: dict[str, int]) -> str:
    lines = [f"\nRun status group {group} (all jobs):"]
    for op, count in ops.items():
        mib = count * 4096 / 2**20
        lines.append(f"  {op.upper()}: bw=1MiB/s (1MB/s), io={mib:.1f}MiB (1MB), run=1-1msec")
    return "\n".join(lines) + "\n"


def run(ops: dict[str, int], **more: Any) -> str:
    body = section(ops=ops, **more)
    return (
        banner("job", 0, "randread", 1) + "fio-3.7\nStarting 1 process\n\n" + body + status(0, ops)
    )


def test_runs_pasted_one_after_the_other_are_not_summed(tmp_path: Path) -> None:
    runs = [{"read": 130_000}, {"read": 140_000}, {"read": 150_000}]
    capture = read_text("".join(run(ops, pid=7) for ops in runs), tmp_path)
    assert [m.ops["read"].count for m in capture.measurements] == [130_000, 140_000, 150_000]
    assert [m.label for m in capture.measurements] == ["job (run 1)", "job (run 2)", "job (run 3)"]
    assert any("3 runs stand in this file" in w for w in capture.warnings)


def test_reports_alone_are_told_apart_by_their_dates(tmp_path: Path) -> None:
    ops = {"read": 100_000}
    later = "Tue Aug 18 11:29:42 2020"
    apart = section(ops=ops, pid=1) + section(ops=ops, pid=2, date=later)
    assert len(read_text(apart, tmp_path).measurements) == 2
    together = section(ops=ops, pid=1) + section(ops=ops, pid=2)
    (m,) = read_text(together, tmp_path).measurements
    assert m.ops["read"].count == 200_000


def test_targets_of_the_commands_name_the_runs(tmp_path: Path) -> None:
    text = "".join(
        f"$ fio --name=job --direct=1 --filename=/dev/sd{drive}\n" + run({"read": count})
        for drive, count in (("b", 100_000), ("c", 50_000))
    )
    capture = read_text(text, tmp_path)
    assert [m.label for m in capture.measurements] == ["job (/dev/sdb)", "job (/dev/sdc)"]
    assert [m.conditions.targets for m in capture.measurements] == [1, 1]
    assert all(m.conditions.direct for m in capture.measurements)


def test_a_cut_run_leaves_the_others(tmp_path: Path) -> None:
    whole = run({"read": 100_000})
    cut = run({"read": 90_000}).partition("  cpu  ")[0]
    capture = read_text(whole * 5 + cut, tmp_path)
    assert [m.ops["read"].count for m in capture.measurements] == [100_000] * 5 + [90_000]
    assert has(capture.warnings, TRIMMED)
    capture = read_text(whole * 5 + cut.partition(", BW=")[0], tmp_path)
    assert len(capture.measurements) == 5
    assert any("left out: the report of job 'job' is not whole" in w for w in capture.warnings)


@pytest.mark.parametrize(
    ("engine", "cpu", "polled"),
    [
        ("xnvme", "usr=80.00%, sys=20.00%, ctx=700", True),
        ("pvsync2", "usr=20.00%, sys=80.00%, ctx=700", True),  # hipri, which no banner says
        ("pvsync2", "usr=20.00%, sys=80.00%, ctx=100000", False),  # it waited for each request
        ("libaio", "usr=5.00%, sys=10.00%, ctx=700", False),
    ],
)
def test_polled_runs_are_not_bound_by_the_cpu(
    engine: str, cpu: str, polled: bool, tmp_path: Path
) -> None:
    text = run({"read": 100_000}, cpu=cpu).replace("ioengine=libaio", f"ioengine={engine}")
    capture = read_text(text, tmp_path)
    (m,) = capture.measurements
    assert m.cpu.polled == polled
    assert has(m.warnings, "polled") == polled
    assert has(m.warnings, "cpu-bound") == (not polled and "80.00%" in cpu)
    (point,) = points_of(read_captures(capture.file))[0]
    assert point.is_cpu_bound == (not polled and "80.00%" in cpu)
    assert (point.cpu_s is None) == polled


def test_terse_behind_progress_text_on_its_line(tmp_path: Path) -> None:
    text = "Jobs: 1 (f=1): [r(1)][55.3%][r=2178KiB/s][eta 04" + TERSE.removesuffix("\n")
    plain = read_text(TERSE, tmp_path).measurements
    assert read_text(text, tmp_path).measurements == plain
    bar = "\r".join(f"Jobs: 1 (f=1): [r(1)][{n}.0%]" for n in range(9))
    assert read_text(f"{bar}\r{TERSE}", tmp_path).measurements == plain


@pytest.mark.parametrize("width", [60, 72, 77, 80, 132])
def test_terse_lines_that_were_wrapped(width: int, tmp_path: Path) -> None:
    for path in (DATA / "fio-terse").glob("*.txt"):
        wrapped = hard(width)(path.read_text())
        assert read_text(wrapped, tmp_path).measurements == read_capture(path).measurements


def test_terse_lines_of_two_runs_are_not_summed(tmp_path: Path) -> None:
    fields = TERSE.strip().split(";")
    fields[-1] = "12.34%"  # the drives' figures are those of the run
    fields[8] = str(int(fields[8]) + 1)  # a line that is the same again is a job that has ended
    capture = read_text(TERSE + ";".join(fields) + "\n", tmp_path)
    assert len(capture.measurements) == 2
    first, second = (m.ops["read"].iops for m in capture.measurements)
    assert first == second
    assert [m.label[-8:] for m in capture.measurements] == [" (run 1)", " (run 2)"]


def test_a_cut_terse_line_leaves_the_others(tmp_path: Path) -> None:
    capture = read_text(TERSE + TERSE[:500] + "\n", tmp_path)
    assert len(capture.measurements) == 1
    assert any("line 2 ends after" in w for w in capture.warnings)


def test_the_version_of_a_log_is_found_three_folders_above(tmp_path: Path) -> None:
    folder = tmp_path / "sample1" / "clients" / "host"
    folder.mkdir(parents=True)
    log = folder / "fio_clat.1.log"
    log.write_text("".join(f"{1000 * n}, {90_000 + n}, 0, 4096\n" for n in range(1, 9)))
    # Without a version the values decide, and 90,000 may be ns or us.
    (tmp_path / "fio-result.txt").write_text("fio-2.16\n" + TERSE)
    assert read_capture(log).requests.collect()["latency_ns"][0] == 90_001_000
    (tmp_path / "fio-result.txt").write_text("fio-3.3\n")
    capture = read_capture(log)
    assert capture.version == "3.3"
    assert capture.requests.collect()["latency_ns"][0] == 90_001
