"""fio's terse and normal output: held to the JSON of the same run, and its rarer ways to report."""

import copy
import json
from pathlib import Path

import pytest

from nvmesim.capture.capture import Measurement
from nvmesim.capture.readers.fio.normal_section import NO_TIME, TRIMMED
from nvmesim.capture.registry import read_capture, read_captures
from nvmesim.warning import has
from tests.capture.contract import DATA, only, read_text, sample
from tests.capture.test_fio_runs import banner, section, status

BOTH = "fio-json/randread_4k_qd4.json_normal_terse.txt.gz"
NORMAL = sample("fio-text/randread_4k_qd4.normal.txt")
TERSE = sample("fio-terse/randrw_4k_qd4.terse_v3.txt")
PRINTED_S = 1e-6
"""Percentiles are printed in whole microseconds."""


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


def test_a_terse_line_beside_more_reports_hides_none(tmp_path: Path) -> None:
    """Of several runs in one file, one printed both its report and its terse line."""
    both = sample(BOTH)
    terse = next(line for line in both.split("\n") if line.startswith("3;fio"))
    other = NORMAL.replace("iodepth=32", "iodepth=16").replace("depth=32", "depth=16")
    found = read_text(f"{other}\n{NORMAL}\n{terse}\n", tmp_path)
    assert found.format == "fio-text"
    assert len(found.measurements) == 2


def test_terse_status_interval_keeps_the_last_line(tmp_path: Path) -> None:
    first = TERSE.split(";")
    first[8] = first[49] = "1000"
    capture = read_text(";".join(first) + TERSE, tmp_path)
    assert capture.rows == 2
    assert len(capture.measurements) == 1
    assert capture.measurements[0].conditions.duration_s == 3.001


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


JSON = json.loads(sample("fio-json/psync_qd8.json"))


def psync(number: int, milliseconds: int, /, elapsed: int, **read: int) -> dict:
    """Report *number* of a run that is reported so often, with figures of its reads."""
    run = copy.deepcopy(JSON)
    run["jobs"][0]["elapsed"] = elapsed
    run["jobs"][0]["read"].update(read)
    run["timestamp"] = 1_700_000_000 + number
    run["timestamp_ms"] = 1_700_000_000_000 + milliseconds * number
    return run


def measured(runs: list[dict], tmp_path: Path) -> tuple[Measurement, ...]:
    return read_text("\n".join(map(json.dumps, runs)), tmp_path, "a.json").measurements


CPU_AT = {3: 5 + 2 * 41, 5: 5 + 3 * 47}
"""Fields before those of the CPU, by terse version."""


def test_terse_lines_with_one_block_for_all(tmp_path: Path) -> None:
    fields = TERSE.strip().split(";")
    one = ";".join([*fields[: 5 + 41], *fields[CPU_AT[3] :]])
    (m,) = read_text(one + "\n", tmp_path).measurements
    assert not m.ops
    assert m.mixed.iops == float(fields[7])
    assert m.mixed.bytes == int(fields[5]) * 1024
    assert m.mixed.clat.mean_s == pytest.approx(float(fields[15]) * 1e-6)
    assert m.disk_util_pct == {fields[-9]: float(fields[-1].rstrip("%"))}


@pytest.mark.parametrize("version", ["3", "4"])
def test_terse_lines_with_a_further_block_for_both(version: str, tmp_path: Path) -> None:
    fields = TERSE.strip().split(";")
    trims = [*"0" * 12, *["0%=0"] * 20, *"0" * 6, "0.000000%", *"00"][:41] if version == "4" else []
    both = [version, *fields[1 : CPU_AT[3]], *trims, *fields[5:46], *fields[CPU_AT[3] :]]
    (m,) = read_text(";".join(both) + "\n", tmp_path).measurements
    (plain,) = read_text(TERSE, tmp_path).measurements
    assert m.mixed is None
    assert m.ops == plain.ops
    assert m.disk_util_pct == plain.disk_util_pct
    assert m.cpu == plain.cpu


def test_text_with_a_further_block_for_both(tmp_path: Path) -> None:
    body = section(ops={"read": 70_000, "write": 30_000})
    block = "  mixed: IOPS=10.0k, BW=39.1MiB/s (41.0MB/s)(390.62MiB/10000msec)\n  cpu "
    (m,) = read_text(body.replace("  cpu ", block), tmp_path).measurements
    assert m.mixed is None
    assert [m.ops[op].count for op in ("read", "write")] == [70_000, 30_000]
    assert not has(m.warnings, "mixed-report")


def test_the_sum_of_all_clients_is_no_further_run(tmp_path: Path) -> None:
    first, second = (
        section(name, ops={"read": 50_000}, pid=pid) for name, pid in (("a", 7), ("b", 8))
    )
    everything = section("All clients", ops={"read": 100_000}, pid=0)
    lines = "".join("<host> " + banner(name, 0, "randread", 1) for name in "ab")
    text = lines + first + second
    capture = read_text(text + everything, tmp_path)
    (m,) = capture.measurements
    assert m.ops["read"].count == 100_000
    assert (m.conditions.jobs, m.conditions.engine) == (2, "libaio")


def test_short_runs_appended_to_one_json_are_all_kept(tmp_path: Path) -> None:
    """Runs of a second start within the second by which fio rounds what has elapsed."""
    runs = [psync(n, 1_300, elapsed=2, total_ios=10_001 + n, runtime=1001) for n in range(3)]
    for depth, run in enumerate(runs, 1):
        run["jobs"][0]["job options"]["iodepth"] = str(depth)
    assert len(measured(runs, tmp_path)) == 3
    for run in runs:
        run["jobs"][0]["job options"]["iodepth"] = "1"
    assert len(measured(runs, tmp_path)) == 3
    for number, run in enumerate(runs):
        run["jobs"][0]["elapsed"] = 2 + number
        run["jobs"][0]["read"]["runtime"] = 1001 + 1_300 * number
    (m,) = measured(runs, tmp_path)
    assert m.ops["read"].count == 10_003


def waiting(text: str, seconds: list[int]) -> str:
    """Reports of two jobs, one after the other, at each of *seconds* of the first."""
    out = [text]
    for first, second in zip(seconds, [0, 0, *seconds], strict=False):
        first = min(first, 20)
        out.append(section("a", 0, pid=7, ops={"read": 1000 * first}, seconds=first))
        if second:
            out.append(section("b", 1, pid=8, ops={"write": 2000 * second}, seconds=second))
        out.append(status(0, {"READ": 1000 * first}))
        out.append(status(1, {"WRITE": 2000 * second} if second else {}))
    return "\n".join(out)


def test_jobs_that_wait_are_reported_again_and_again(tmp_path: Path) -> None:
    """With --status-interval a job of a later group appears when it begins."""
    text = banner("a", 0, "randread", 1) + banner("b", 1, "randwrite", 1) + "fio-3.33\n"
    a, b = read_text(waiting(text, [10, 20, 20, 20]), tmp_path).measurements
    assert (a.label, a.ops["read"].count) == ("a", 20_000)
    assert (b.label, b.ops["write"].count) == ("b", 40_000)


def test_json_of_jobs_that_wait_is_one_run(tmp_path: Path) -> None:
    reports = []
    for number, (first, second) in enumerate([(2000, 0), (4000, 60), (4000, 2060), (4000, 4000)]):
        run = copy.deepcopy(JSON)
        run.pop("global options", None)
        jobs = [run["jobs"][0], copy.deepcopy(run["jobs"][0])]
        for name, (job, ms) in zip("ab", zip(jobs, (first, second), strict=True), strict=True):
            job.update(jobname=name, groupid="ab".index(name), elapsed=4 + 2 * number)
            job["job options"] = {"rw": "randread", "bs": "4k"}
            job["read"].update(total_ios=10 * ms, runtime=ms)
        run["jobs"] = jobs
        run["timestamp"] = 1_700_000_004 + 2 * number
        run["timestamp_ms"] = 1_700_000_004_000 + 2_000 * number
        reports.append(json.dumps(run))
    a, b = read_text("\n".join(reports), tmp_path).measurements
    assert (a.ops["read"].count, b.ops["read"].count) == (40_000, 40_000)


def test_what_ran_in_the_ramp_time_is_no_run(tmp_path: Path) -> None:
    """fio reports it with --status-interval, and begins to count anew when the ramp is over."""
    counted = [(9_000, 1_900), (4_000, 700), (12_000, 2_700)]
    runs = [
        psync(2 * n, 1_000, elapsed=2 + 2 * n, total_ios=count, runtime=ms)
        for n, (count, ms) in enumerate(counted)
    ]
    for run in runs:
        run["jobs"][0]["job options"]["ramp_time"] = "2"
    (m,) = measured(runs, tmp_path)
    assert m.ops["read"].count == 12_000
    texts = [section(ops={"read": n}, seconds=s) for n, s in ((9_000, 2), (4_000, 1), (12_000, 3))]
    (m,) = read_text("\n".join(texts), tmp_path, "run.out").measurements
    assert m.ops["read"].count == 12_000


def test_terse_lines_of_jobs_that_wait_or_have_ended(tmp_path: Path) -> None:
    line = TERSE.strip().split(";")
    idle = [*line[:2], "b", "1", "0", *["0%=0" if "%=" in f else "0" for f in line[5:]]]
    idle = [f"{f}%" if CPU_AT[3] <= k < CPU_AT[3] + 2 or (f == "0" and line[k].endswith("%") and
            "=" not in line[k]) else f for k, f in enumerate(idle)]  # fmt: skip
    a, b = [*line[:2], "a", "0", *line[4:]], [*line[:2], "b", "1", *line[4:]]
    first = ";".join(a) + "\n" + ";".join(idle) + "\n"
    capture = read_text(first + ";".join(a) + "\n" + ";".join(b) + "\n", tmp_path)
    (plain,) = read_text(TERSE, tmp_path, "plain.txt").measurements
    assert [m.label for m in capture.measurements] == ["a", "b"]
    assert [m.ops for m in capture.measurements] == [plain.ops, plain.ops]


def test_the_log_of_one_job_has_the_load_of_that_job(tmp_path: Path) -> None:
    run = copy.deepcopy(JSON)
    run.pop("global options", None)
    first = run["jobs"][0]
    first["job options"] = {"rw": "randread", "bs": "4k", "iodepth": "4", "ioengine": "libaio",
                            "direct": "1", "write_lat_log": "lg"}  # fmt: skip
    first.pop("iodepth_level")
    second = copy.deepcopy(first)
    second["jobname"] = "other"
    second["job options"].update(rw="randwrite", bs="8k", iodepth="2")
    second["write"], second["read"] = first["read"], first["write"]
    run["jobs"] = [first, second]
    (tmp_path / "lg.json").write_text(json.dumps(run))
    for job, (op, size) in enumerate((("0", 4096), ("1", 8192)), start=1):
        rows = [f"{k}, 80000, {op}, {size}, 0\n" for k in range(1, 2001)]
        (tmp_path / f"lg_clat.{job}.log").write_text("".join(rows))
    found = [read_capture(tmp_path / f"lg_clat.{job}.log") for job in (1, 2)]
    loads = [capture.measurements[0].conditions for capture in found]
    assert [(c.read_fraction, c.block_size, c.jobs, c.iodepth) for c in loads] == [
        (1.0, 4096, 1, 4),
        (0.0, 8192, 1, 2),
    ]
    assert has(found[0].warnings, "logs-missing")
    both = read_captures([tmp_path / f"lg_clat.{job}.log" for job in (1, 2)])
    (m,) = both.measurements
    assert (m.conditions.jobs, m.conditions.iodepth) == (2, None)
    assert (m.ops["read"].count, m.ops["write"].count) == (2000, 2000)
