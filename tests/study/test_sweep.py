"""Sweeps: the frame, errors, the cache, and that nothing finished is lost."""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nvmesim as ns
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.load import with_values as put
from nvmesim.show.views.sweep_tables import MORE_MEMBERS, points
from nvmesim.study.sweep.api import SweepTally, simulate_all
from nvmesim.study.sweep.point import (
    KEPT_VERSIONS,
    RESULT_COLUMNS,
    PointCache,
    Settings,
    SweepJob,
    columns,
    fingerprint,
    passed_files,
)
from nvmesim.study.sweep.workers import WorkerPool
from tests.children import heed_ctrl_c, unmeasured
from tests.servers import bare, one_server
from tests.study.conftest import TABLES

OVER = {"drives.0.count": [1, 2], "workload.outstanding": "1..4..x2"}

sweep = functools.partial(ns.sweep, certainty=False)


def test_a_frame_has_every_parameter_and_result_and_a_point_is_what_run_says(small):
    frame = ns.sweep(small, OVER, workers=1)
    assert frame.columns == [*OVER, *RESULT_COLUMNS]
    assert frame["drives.0.count"].to_list() == [1, 1, 1, 2, 2, 2]
    assert frame["workload.outstanding"].to_list() == [1, 2, 4, 1, 2, 4]
    assert frame["error"].null_count() == 6
    assert (frame["iops_low"] <= frame["iops"]).all()
    assert frame["read_iops"].to_list() == frame["iops"].to_list()
    assert frame["write_iops"].null_count() == 6
    frame = ns.sweep(small, {"workload.outstanding": [4]}, workers=1, cache=False)
    row = columns(ns.simulate(small, reliefs=False))
    assert {k: frame[k][0] for k in row} == row


def test_more_drives_that_bring_less_by_a_raid_thread_are_explained():
    """Each row costs raid5d 1,690 cycles a member beside 27,000."""
    load = {"threads": 8, "outstanding": 16, "read": 0}
    tables = {**one_server("samsung-pm9a3-3.84tb", [load], 4), "volume": [{"raid": "raid5"}]}
    key, over = "drives.0.count", {"drives.0.count": [4, 8]}
    frame = sweep(scenario_from_dict(tables), over, workers=1)
    few, many = frame["iops"]
    assert many / few == pytest.approx((27000 + 4 * 1690) / (27000 + 8 * 1690), rel=0.03)
    assert frame["lat_p99_us"][1] > frame["lat_p99_us"][0]
    (note,) = points(frame.to_dicts(), [key]).notes
    assert note == MORE_MEMBERS
    assert not points(
        frame.reverse().with_columns(iops=pl.Series([few, few])).to_dicts(), [key]
    ).notes
    reads = put(tables, {"workload.0.read": 1.0})
    assert not points(sweep(scenario_from_dict(reads), over, workers=1).to_dicts(), [key]).notes


def test_without_certainty_the_figures_are_the_same_and_no_interval_is_told(small):
    over = {"workload.outstanding": [4]}
    whole, bare = (
        ns.sweep(small, over, workers=1, cache=False, certainty=c).row(0, named=True)
        for c in (True, False)
    )
    same = ("iops", "read_iops", "lat_mean_us", "lat_p99_us", "requests", "verdict")
    assert [bare[k] for k in same] == [whole[k] for k in same]
    assert whole["iops_low"] < whole["iops"] < whole["iops_high"]
    ends = ("iops_low", "iops_high", "lat_p99_low_us", "lat_p99_high_us")
    assert [bare[k] for k in ends] == [None] * 4
    assert bare["iops_simulation"] == whole["iops_simulation"] > 0


def precise(small, **workload):
    tables = {k: v for k, v in small.to_dict().items() if k != "run"}
    return put(tables, {f"workload.0.{k}": v for k, v in workload.items()})


def test_a_point_stops_when_it_is_precise_and_agrees_with_a_long_run(small):
    scenario = precise(small)
    row = sweep(scenario, {"workload.0.outstanding": [4]}, workers=1).row(0, named=True)
    whole = bare(scenario, requests=400_000)
    assert 40_000 <= row["requests"] < 200_000 < whole.requests
    assert row["converged"]
    assert row["iops"] == pytest.approx(whole.total.iops.value, rel=0.02)
    p99 = whole.total.latency.percentiles[99] * 1e6
    assert row["lat_p99_us"] == pytest.approx(p99, rel=0.1)


@pytest.mark.parametrize(
    "workload",
    [
        {"read": 0.0, "outstanding": 64},  # a write buffer fills: it begins full
        {"threads": 64, "outstanding": 128},  # more in flight than a short run could turn over
    ],
)
def test_a_point_that_is_not_steady_at_once_is_simulated_longer(small, workload):
    over = {"run.seed": [1]}
    row = sweep(precise(small, **workload), over, workers=1, max_requests=400_000)
    whole = bare(precise(small, **workload), requests=400_000)
    assert row["requests"][0] > 30_000
    assert row["iops"][0] == pytest.approx(whole.total.iops.value, rel=0.02)


def test_rows_do_not_depend_on_the_number_of_workers(small):
    one = sweep(small, OVER, workers=1, cache=False)
    two = sweep(small, OVER, workers=2, cache=False)
    assert_frame_equal(one, two)


def test_a_script_without_a_main_guard_can_sweep(small, tmp_path):
    script = tmp_path / "script.py"
    tables = json.dumps(small.to_dict())
    script.write_text(
        "import json\nimport nvmesim as ns\n"
        f"frame = ns.sweep(json.loads({tables!r}), {OVER!r}, workers=2, certainty=False)\n"
        "print(len(frame))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("6", "")


@pytest.mark.parametrize(
    ("over", "failed", "why"),
    [
        ({"drives.0.count": [2, 4], "volume.raid": ["raid0", "raid6"]}, [1], "raid6"),
        ({"drives.0.count": [1, 100], "run.seed": [1, 2]}, [2, 3], "PCIe lanes"),
    ],
)
def test_what_cannot_be_has_its_reason_and_does_not_stop_the_others(small, over, failed, why):
    frame = sweep(small, over, workers=1)
    errors = frame.with_row_index().filter(pl.col("error").is_not_null())
    assert errors["index"].to_list() == failed
    assert why in errors["error"][0]
    assert errors["iops"].is_null().all()


@pytest.mark.parametrize(
    ("over", "match"),
    [
        ({"drives.0.cuont": [1, 2]}, "count"),
        ({"drives.7.count": [1]}, "drives has elements 0 to 0"),
        ({"volume.raid": ["raid55"], "drives.0.count": [4]}, "raid55"),
        ({"drives.*.count": []}, "no values"),
        ({"adapters.*.link": ["pcie3 x4"]}, "no list"),
        ({"server.stack": ["linux-iouring"]}, "linux-io_uring"),
        ({"drives.0.profile": ["nothing.toml"]}, "no such file"),
    ],
)
def test_what_no_point_takes_is_an_error_before_anything_runs(small, over, match):
    with pytest.raises(InputError, match=match) as caught:
        sweep(small, over)
    assert "\n" not in str(caught.value)
    assert "\x00" not in str(caught.value)


def swept(scenario, **options):
    tally = SweepTally()
    frame = sweep(scenario, OVER, workers=1, tally=tally, **options)
    return frame, tally


def test_finished_points_come_from_the_cache_and_others_do_not(small, own_cache, tmp_path):
    first, made = swept(small)
    again, found = swept(small)
    assert (made.cached, found.cached, found.simulated) == (0, 6, 0)
    assert_frame_equal(first, again)
    kept = list((own_cache / "nvmesim" / "points" / fingerprint()).rglob("*.json"))
    assert len(kept) == 6
    swept(small)
    assert swept(small, seed=5)[1].cached == 0
    assert swept(small, requests=5000)[1].cached == 0
    assert swept(small, cache=False)[1].cached == 0
    faster = put(small.to_dict(), {"drives.0.profile.read.die": "40 us"})
    assert swept(faster)[1].cached == 0
    named = small.to_dict() | {"name": "the same under a name"}
    assert swept(named)[1].cached == 6


def test_a_damaged_or_unwritable_cache_costs_only_time(small, own_cache):
    first, _ = swept(small)
    for damage in (
        lambda data: b"{torn",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:],  # perhaps a digit
        lambda data: b"",
        lambda data: data[32:],  # as it was before there was a digest
    ):
        for file in own_cache.rglob("*.json"):
            file.write_bytes(damage(file.read_bytes()))
        again, found = swept(small)
        assert found.cached == 0
        assert_frame_equal(first, again)
    blocked = own_cache / "file"
    blocked.write_text("")
    PointCache(blocked).put("00ff", {"iops": 1.0})
    assert PointCache(blocked).get("00ff") is None


def test_old_versions_leave_the_cache(own_cache):
    for i in range(9):
        (own_cache / "nvmesim" / "points" / f"old{i}").mkdir(parents=True)
    PointCache().put("00ff", {"iops": 1.0})
    assert len(list((own_cache / "nvmesim" / "points").iterdir())) == KEPT_VERSIONS
    assert PointCache().get("00ff") == {"iops": 1.0}


def test_the_fingerprint_sees_what_a_point_passes_and_no_chart():
    """Every module that is loaded to simulate a point counts; what only draws or asks does not."""
    script = (
        "import sys, json\nfrom pathlib import Path\nimport nvmesim as ns\n"
        "from nvmesim.study.sweep.point import SweepJob, answer\n"
        "answer(SweepJob.from_text(sys.argv[1]))\n"
        "top = Path(ns.__file__).parent.parent\n"
        "found = [m.__file__ for n, m in sys.modules.items() if n.startswith('nvmesim.')]\n"
        "print(json.dumps([Path(f).relative_to(top).as_posix() for f in found]))\n"
    )
    job = SweepJob(0, TABLES, ".", Settings(cache=False, requests=1000)).to_text()
    command = [sys.executable, "-c", script, job]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {f for f in json.loads(done.stdout) if not f.endswith("__init__.py")}
    assert len(loaded) > 50
    assert loaded <= set(passed_files())
    assert not [f for f in passed_files() if f.startswith(("nvmesim/show/", "nvmesim/cli/"))]


POINTS = 40


def resumed(file, out, *more):
    return run_command(
        ["sweep", str(file), "--over", f"workload.outstanding=1..{POINTS}", "-o", str(out),
         "--no-cache", "--no-certainty", "--resume", *more]
    )  # fmt: skip


def started(file, out, *more, **options):
    command = [
        sys.executable, "-c", "from nvmesim.cli import main; main()", "sweep", str(file),
        "--over", f"workload.outstanding=1..{POINTS}", "-o", str(out), "--no-cache",
        "--no-certainty", *more,
    ]  # fmt: skip
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


def until_some_are_finished(process, partial, lines=4):
    end = time.monotonic() + 120
    while not partial.exists() or partial.read_bytes().count(b"\n") < lines + 1:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_goes_on_where_it_was_stopped(file, tmp_path, how, capfd):
    out, partial = tmp_path / "s.parquet", tmp_path / "s.parquet.partial"
    process = started(file, out, "--workers", "2", preexec_fn=heed_ctrl_c)
    until_some_are_finished(process, partial)
    process.send_signal(how)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if how == signal.SIGINT else -9)
    assert "--resume continues" in said or how == signal.SIGKILL
    assert not out.exists()
    kept = partial.read_bytes().count(b"\n") - 1
    if kept == POINTS:
        pytest.skip("the sweep was quicker than the signal")
    assert run_command(["sweep", str(file), "--over", "workload.outstanding=1..200",
                        "-o", str(out), "--no-certainty"]) == 2  # fmt: skip
    assert "--resume" in capfd.readouterr().err
    assert resumed(file, out, "--workers", "2") == 0
    assert f"{kept} kept" in capfd.readouterr().out
    assert not partial.exists()
    whole = sweep(file, {"workload.outstanding": f"1..{POINTS}"}, cache=False, workers=1)
    assert_frame_equal(pl.read_parquet(out), whole)


def stopped_early(small, out, after=3):
    """A sweep that is interrupted after some points."""

    def progress(what, share):
        if share >= after / 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(small, OVER, output=out, workers=1, cache=False, progress=progress)


def test_a_torn_last_line_is_simulated_again_and_a_finished_sweep_is_not(small, tmp_path):
    out = tmp_path / "s.parquet"
    stopped_early(small, out)
    partial = tmp_path / "s.parquet.partial"
    partial.write_bytes(partial.read_bytes()[:-20])
    tally = SweepTally()
    frame = sweep(small, OVER, output=out, resume=True, workers=1, tally=tally)
    assert tally.kept == 2
    assert_frame_equal(frame, sweep(small, OVER, workers=1))
    assert_frame_equal(frame, pl.read_parquet(out))
    out = tmp_path / "whole.parquet"
    frame = sweep(small, OVER, output=out, workers=1)
    tally = SweepTally()
    again = sweep(small, OVER, output=out, resume=True, tally=tally)
    assert (tally.kept, tally.simulated) == (6, 0)
    assert_frame_equal(frame, again)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"nvmesim": "0.0.9"}, "written by nvmesim 0.0.9"),
        ({"fingerprint": "0" * 16}, "have changed"),
        ({"format": 0}, "not written by a sweep of this version"),
        ({"plan": {"over": []}}, "other values"),
        ({"inputs": ""}, "another scenario"),
        ({"settings": {"seed": 2}}, "other settings"),
    ],
)
def test_a_file_of_another_sweep_is_refused(small, tmp_path, finished, change, match):
    out = tmp_path / "s.parquet"
    if finished:
        frame = sweep(small, OVER, output=out, workers=1)
        head = json.loads(pl.read_parquet_metadata(out)["nvmesim"]) | change
        frame.write_parquet(out, metadata={"nvmesim": json.dumps(head)})
        changed = out
    else:
        stopped_early(small, out)
        changed = tmp_path / "s.parquet.partial"
        head, *lines = changed.read_text().splitlines(keepends=True)
        changed.write_text(json.dumps(json.loads(head) | change) + "\n" + "".join(lines))
    before = changed.read_bytes()
    with pytest.raises(InputError, match=match):
        sweep(small, OVER, output=out, resume=True, workers=1)
    assert changed.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"PAR1 not", b"{}"])
def test_what_is_no_parquet_file_is_refused(small, tmp_path, content):
    out = tmp_path / "s.parquet"
    out.write_bytes(content)
    with pytest.raises(InputError, match="no Parquet file"):
        sweep(small, OVER, output=out, resume=True)


def test_two_sweeps_do_not_write_one_file(small, tmp_path):
    out = tmp_path / "s.parquet"

    def progress(what, share):
        if share > 0:
            with pytest.raises(InputError, match="another sweep"):
                sweep(small, OVER, output=out, resume=True, workers=1)

    sweep(small, OVER, output=out, workers=1, progress=progress)


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on file sizes")
def test_a_full_disk_loses_nothing_finished(file, tmp_path, capfd):
    import resource

    out, partial = tmp_path / "s.parquet", tmp_path / "s.parquet.partial"
    limit = 8_000
    process = started(
        file, out, "--workers", "1", env=unmeasured(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 3
    assert said.strip().splitlines()[-1].startswith("nvmesim: ")
    assert "Traceback" not in said
    kept = partial.read_bytes().count(b"\n") - 1
    assert 1 <= kept < POINTS
    assert resumed(file, out, "--workers", "1") == 0
    assert f"{kept} kept" in capfd.readouterr().out


def jobs(small, n):
    tables = small.to_dict()
    for i in range(n):
        changed = put(tables, {"workload.outstanding": i + 1})
        yield SweepJob(i, changed, ".", Settings(cache=False, certainty=False))


def test_a_worker_that_dies_is_replaced_and_a_point_that_kills_them_given_up(small, monkeypatch):
    with WorkerPool(2) as pool:
        answers = {}
        for answer in pool.answers(jobs(small, 12)):
            answers[answer.number] = answer.row
            if len(answers) == 2:
                next(iter(pool._workers)).process.kill()
    assert sorted(answers) == list(range(12))
    assert all(row["error"] is None for row in answers.values())
    list(simulate_all(jobs(small, 1), 1))
    from nvmesim.study.sweep import workers

    real = workers.Worker.ask

    def ask(self, job):
        if job.number == 5:
            self.process.kill()
        return real(self, job)

    monkeypatch.setattr(workers.Worker, "ask", ask)
    with WorkerPool(1) as pool:
        answers = {a.number: a for a in pool.answers(jobs(small, 7))}
    assert answers[5].died
    assert "died 2 times" in answers[5].row["error"]
    assert sum(a.row["error"] is None for a in answers.values()) == 6


def test_workers_that_never_start_are_one_line(small, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Exception, match="no worker process answers"):
        sweep(small, OVER, workers=2, cache=False)
