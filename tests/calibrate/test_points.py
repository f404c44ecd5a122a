"""From captures to points: which are used, which held out, and what is said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.points import Point, hold_out, points_of
from nvmesim.capture.capture import Capture, Captures, Conditions, Measurement, OpResult
from nvmesim.capture.registry import read_captures
from nvmesim.errors import FitError
from nvmesim.model.drive import PAGE_PS
from nvmesim.units import PS_PER_S
from tests.calibrate import bench
from tests.calibrate.bench import fio_json


def point(jobs=1, depth=16, size=4096, read=1.0, **more):
    return Point("p", read, True, size, jobs, depth, 1e5, 1e-4, {50.0: 9e-5, 99.0: 2e-4}, **more)


def captures(tmp_path, *points):
    for number, p in enumerate(points):
        (tmp_path / f"{number}.json").write_text(fio_json(p), encoding="utf-8")
    return read_captures(tmp_path)


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        ("QD=16", [True, False, False, False]),
        ("qd = 64", [False, True, True, False]),
        ("BS=64 KiB", [False, False, False, True]),
        ("OP=write", [False, False, True, False]),
        ("OP=randread", [True, True, False, True]),
        ("JOBS=4", [False, True, False, False]),
    ],
)
def test_a_rule_names_points(rule, held):
    points = [point(), point(4, 16), point(1, 64, read=0.0), point(1, 1, 65536)]
    assert [p.held_out for p in hold_out(points, [rule])] == held


@pytest.mark.parametrize("rule", ["QD=17", "QD", "depth=16", "QD=x", "", "OP=trim"])
def test_a_rule_that_names_nothing_is_an_error(rule):
    with pytest.raises(FitError, match="--hold-out"):
        hold_out([point()], [rule])


def test_a_rule_that_holds_nothing_out_is_told_what_there_is():
    points = [replace(point(), iodepth=depth) for depth in (4, 1)]
    with pytest.raises(FitError, match=r"--hold-out QD=17: no point matches; there are QD=1, QD=4"):
        hold_out(points, ["QD=17"])


def test_the_longest_run_of_a_point_is_used(tmp_path):
    alone = replace(point(depth=1, count=4_000), iops=1e4)
    found, notes = points_of(captures(tmp_path, point(count=5_000), point(count=700_000), alone))
    assert [(p.outstanding, p.count) for p in found] == [(1, 4_000), (16, 700_000)]
    assert any("longest run" in n and "0.json" in n for n in notes)


def test_percentiles_with_few_requests_beyond_are_left_out_and_said(tmp_path):
    found, notes = points_of(captures(tmp_path, point(count=1_500)))
    assert list(found[0].percentiles_s) == [50.0]
    assert any("randread 4 KiB 1 x 16 (p99)" in n for n in notes)


def test_files_of_a_folder_that_are_no_captures_are_named_once(tmp_path):
    for name in ("notes.md", "run.sh"):
        (tmp_path / name).write_text("some words\n", encoding="utf-8")
    _, notes = points_of(captures(tmp_path, point(count=90_000)))
    assert "no captures, not read: notes.md, run.sh" in notes


def test_mixes_are_told_apart_from_reads(tmp_path):
    text = json.loads(fio_json(point(count=70_000)))
    job = text["jobs"][0]
    job["job options"]["rw"] = "randrw"
    write = {"iops": 43_000.0, "bw_bytes": 43_000 * 4096, "total_ios": 30_000}
    job["write"] = {**job["read"], **write}
    (tmp_path / "mix.json").write_text(json.dumps(text), encoding="utf-8")
    found, _ = points_of(read_captures(tmp_path))
    assert found[0].op == "randrw:70"
    assert found[0].percentiles_s == {}


def test_total_percentiles_stand_for_a_host_that_stays_in():
    p = replace(point(), totals_s={50.0: 1e-4})
    assert p.with_totals().percentiles_of == "lat"
    assert point().with_totals().percentiles_of == "clat"


TOGETHER = """name,op,block_size,jobs,iodepth,iops,lat_mean_us,rate,arrivals,limit,beside
load,randwrite,4k,6,,5000,10,5000,poisson,384,
probe,randread,4k,1,64,1000,70,1000,fixed,64,load
full,randwrite,4k,6,,80000,4800,200000,poisson,384,
,randread,4k,4,,50000,80,,,,
"""


def test_rows_keep_the_load_that_they_state(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(TOGETHER, encoding="utf-8")
    found = {p.name: p for p in points_of(read_captures(path))[0]}
    probe = found["randread 4 KiB 1,000/s"]
    assert (probe.rate, probe.arrivals, probe.beside.rate) == (1000, "paced", 5000)
    full = found["randwrite 4 KiB 6 x 64"]  # it does not keep up: a closed loop of its limit
    assert full.rate is None
    deep = found["randread 4 KiB 4 x 1"]  # by Little's law
    assert not deep.is_bounded
    drive = bench.drive()
    answer = measure(drive, bench.host(), probe, requests=20_000)
    assert answer.iops == pytest.approx(1000, rel=0.01)
    alone = measure(drive, bench.host(), deep).mean_s
    busy = 5000 * drive.write.program.value / PS_PER_S / drive.dies.value
    waits = busy * PAGE_PS / PS_PER_S / 2  # of a read that finds a program: half of what it takes
    assert answer.mean_s == pytest.approx(alone + waits, rel=0.1)


def test_a_flush_follows_each_write_and_an_array_is_simulated():
    one = point(1, 1, read=0.0)
    safe = bench.drive()  # with capacitors Linux sends no flush
    lost = safe.model_copy(update={"write": safe.write.model_copy(update={"volatile": True})})
    plain, synced, array = (
        measure(lost, bench.host(), p, requests=20_000).iops
        for p in (one, replace(one, sync="fdatasync"), replace(one, raid="raid1", targets=2))
    )
    assert synced < 0.8 * plain
    assert array < 1.05 * plain
    wide = replace(one, raid="raid0:65536", targets=2, jobs=64)
    lone = measure(bench.drive(), bench.host(), replace(one, jobs=64), requests=20_000).iops
    assert measure(bench.drive(), bench.host(), wide, requests=20_000).iops > 1.5 * lone


@pytest.mark.parametrize(
    ("targets", "per_job", "own"),
    [
        (2, 1, True),
        (4, 1, True),
        (4, 4, False),
        (2, 2, False),
        (1, 1, False),
        (4, None, False),
        (None, 1, False),
    ],
)
def test_jobs_have_targets_of_their_own(
    targets: int | None, per_job: int | None, own: bool
) -> None:
    conditions = Conditions(
        read_fraction=1.0,
        access="random",
        block_size=4096,
        jobs=4,
        iodepth=8,
        targets=targets,
        targets_per_job=per_job,
    )
    result = OpResult(count=10_000, bytes=0, iops=1000.0, bytes_per_s=4096e3)
    capture = Capture(
        Path("a.json"), "fio-json", None, (Measurement("a", conditions, {"read": result}),), rows=1
    )
    ((point,), _) = points_of(Captures((capture,)))
    assert point.own_targets is own
    assert point.targets == (targets or 1)
