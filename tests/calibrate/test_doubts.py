"""Each warning of a calibration: a capture that deserves it gets it, and one that does not, not."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.bench import BenchAnswer
from nvmesim.calibrate.drive import gate
from nvmesim.calibrate.drive.explanations import Explanation
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.evidence import Judged, Side
from nvmesim.calibrate.notes import doubts, drifts, mixed_devices, network_of
from nvmesim.calibrate.over_time.buffers import buffers_of
from nvmesim.calibrate.points import Point, points_of
from nvmesim.calibrate.smallest.line_fit import KEYS
from nvmesim.calibrate.trace import task
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.load import get
from nvmesim.model.lowered import IN_WORDS
from tests.calibrate.bench import drive, fio_json, host, simulated, stack
from tests.calibrate.written import requests_of, slow_writer, write_blkparse

DEPTH_1 = Point("qd1", 1.0, True, 4096, 1, 1, 12.5e3, 8e-5, {50.0: 7.9e-5, 99.0: 1e-4}, count=10**5)


def result(**changes: object) -> dict[str, object]:
    """fio's report of one job at depth 1."""
    whole = json.loads(fio_json(DEPTH_1))
    whole["jobs"][0].update(changes)
    return whole


def reported(folder: Path) -> str:
    """What `calibrate` says of the captures in *folder*, before anything is fitted."""
    captures = read_captures([folder])
    points, notes = points_of(captures)
    used = {p.source for p in points}
    said = [*notes, *doubts(captures, used), *mixed_devices(captures), *drifts(captures)]
    return "\n".join([*said, *buffers_of(captures)[1].values()])


@pytest.mark.parametrize(("second", "warned"), [("nvme1n1", True), ("nvme0n1", False)])
def test_captures_of_different_devices(tmp_path, second, warned):
    for name, disk in (("a", "nvme0n1"), ("b", second)):
        whole = {**result(), "disk_util": [{"name": disk, "util": 90.0}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(whole))
    said = reported(tmp_path)
    assert ("captures of different devices (nvme0n1: a.json; nvme1n1: b.json)" in said) == warned


@pytest.mark.parametrize(
    ("source", "warned"),
    [
        ("NVMe-oF, 1 target", True),
        ("nvme/tcp", True),
        ("NVMe over TCP", True),
        ("nvme0n1 off", False),
    ],
)
def test_rows_that_passed_a_network(tmp_path, source, warned):
    head = "op,block_size,jobs,iodepth,iops,source\n"
    (tmp_path / "a.csv").write_text(f'{head}randread,4 KiB,4,32,670k,"{source}"\n')
    assert bool(network_of(read_captures([tmp_path]))) == warned


def test_an_array_and_its_members_are_one_device(tmp_path):
    for name, disks in (("a", ["md0", "sda", "sdb"]), ("b", ["md0"])):
        whole = {**result(), "disk_util": [{"name": d, "util": 9.0} for d in disks]}
        (tmp_path / f"{name}.json").write_text(json.dumps(whole))
    assert "different devices" not in reported(tmp_path)


@pytest.mark.parametrize(
    ("disks", "iops", "captured_on", "link"),
    [
        (["sda"], 80.0, None, "sata3"),
        (["sdb", "dm-0"], 80.0, "linux-libaio", "sata3"),
        (["sda"], 80.0, "linux-libaio,pcie3 x4", "pcie3 x4"),
        (["nvme0n1"], 80.0, None, "pcie4 x4"),
        (["sda", "nvme0n1"], 80.0, None, "pcie4 x4"),
        (["sda"], 300e3, None, "pcie4 x4"),  # 1.2 GB/s: SATA does not carry that
    ],
)
def test_a_device_called_sd_is_behind_sata(tmp_path, disks, iops, captured_on, link):
    """Reads of 12 ms are an arm's, and deeper ones are sorted: no flash does so."""
    row = replace(DEPTH_1, iops=iops, mean_s=1 / iops, percentiles_s={})
    whole = json.loads(fio_json(row)) | {"disk_util": [{"name": d, "util": 9.0} for d in disks]}
    (tmp_path / "a.json").write_text(json.dumps(whole))
    fit = fit_drive(read_captures([tmp_path]), captured_on=captured_on)
    assert fit.profile.link == link
    assert fit.profile.sorts == (link == "sata3")


@pytest.mark.parametrize("has_json", [False, True])
def test_a_log_without_its_run_has_no_depth(tmp_path, has_json):
    rows = "".join(f"{k}, 80000, 0, 4096, 0\n" for k in range(3000))
    (tmp_path / "qd1_clat.1.log").write_text(rows)
    if has_json:
        whole = result()
        whole["jobs"][0]["job options"]["write_lat_log"] = "qd1"
        (tmp_path / "qd1.json").write_text(json.dumps(whole))
    captures = read_captures([tmp_path])
    (log,) = [c for c in captures.files if c.format == "fio-log"]
    said = "\n".join(log.warnings)
    assert ("engine, depth and drive are unknown" in said) == (not has_json)
    assert log.measurements[0].conditions.iodepth == (1 if has_json else None)
    if not has_json:
        with pytest.raises(Exception, match="the queue depth is not known"):
            points_of(captures)


@pytest.mark.parametrize(
    ("asked", "found", "busy", "kept"),
    [(128, 16, 40.0, 16), (128, 110, 40.0, 128), (128, 16, 97.0, 128), (64, 1.2, 40.0, 64)],
)
def test_a_depth_that_was_not_kept_is_the_one_of_littles_law(tmp_path, asked, found, busy, kept):
    """Two threads; a full one, or one request at a time, is told by others."""
    row = replace(DEPTH_1, jobs=2, iodepth=asked, iops=2 * found / 800e-6, mean_s=800e-6)
    (tmp_path / "a.json").write_text(fio_json(replace(row, per_job_pct=busy, percentiles_s={})))
    (point,), notes = points_of(read_captures([tmp_path]))
    assert point.iodepth == kept
    assert any("1 of 1 rows" in note for note in notes) == (kept != asked)


FLUSHED = """\
j: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, \
ioengine=libaio, iodepth=1
fio-3.33
Starting 1 process
j: (groupid=0, jobs=1): err= 0: pid=7: Fri Nov  6 10:00:00 2026
  read: IOPS={rate}, BW={kib}KiB/s (410kB/s)({mib}MiB/60000msec)
     lat (usec): min=60, max=900, avg=100.00, stdev=9.00
  write: IOPS={rate}, BW={kib}KiB/s (410kB/s)({mib}MiB/60000msec); 0 zone resets
     lat (usec): min=10, max=900, avg=20.00, stdev=9.00
  cpu          : usr=1.00%, sys=2.00%, ctx=60001, majf=0, minf=10
     issued rwts: total={count},{count},0,{count} short=0,0,0,0 dropped=0,0,0,0
     latency   : target=0, window=0, percentile=100.00%, depth=1
"""


@pytest.mark.parametrize(("rate", "kept"), [(500, 1 / 60e-6), (8000, 16_000)])
def test_a_mix_that_mostly_flushed_is_as_fast_as_its_latencies(tmp_path, rate, kept):
    """2 ms a pair, of which 120 us with a request in flight; CPU time holds the flushes."""
    text = FLUSHED.format(rate=rate, kib=4 * rate, mib=round(240 * rate / 1024), count=60 * rate)
    (tmp_path / "a.txt").write_text(text)
    (point,), notes = points_of(read_captures([tmp_path]))
    assert point.iops == pytest.approx(kept)
    assert (point.cpu_s is None) == any("between requests" in n for n in notes) == (rate == 500)


@pytest.mark.parametrize(("busy", "warned"), [(97.0, True), (40.0, False)])
def test_a_full_job(tmp_path, busy, warned):
    (tmp_path / "a.json").write_text(json.dumps(result(usr_cpu=busy / 4, sys_cpu=0.75 * busy)))
    assert ("CPU-bound: a job was 97 % busy" in reported(tmp_path)) == warned


def at_depths(cpu_s: float, *, size: int = 4096, iops: float = 12.5e3) -> list[Point]:
    """Reads at two depths, with so much CPU time each."""
    return [
        Point(f"qd{n}", 1.0, True, size, 1, n, n * iops, 1 / iops, cpu_s=cpu_s, count=10**5)
        for n in (1, 2)
    ]


@pytest.mark.parametrize(("cpu_s", "warned"), [(30e-6, True), (7e-6, False)])
def test_cpu_time_that_contradicts_the_stated_host(cpu_s, warned):
    said = "\n".join(fit_drive(at_depths(cpu_s)[:1], host=host(stack())).warnings)
    assert ("it is not the stack that measured" in said) == warned


def test_a_mix_that_the_drive_misses_stays_in_the_profile():
    (read,) = at_depths(0.0)[:1]
    mix = replace(read, label="mix", read_fraction=0.7, iops=0.4 * read.iops, mean_s=None)
    other = replace(mix, label="other", read_fraction=0.5)
    fit = fit_drive([read, replace(read, label="w", read_fraction=0.0), mix, other], name="x")
    (error,) = (j.residual["iops"] for j in fit.points if j.point.label == "mix")
    assert abs(error) > 0.2
    assert fit.profile.missed["randrw:70"] == pytest.approx(error, abs=1e-3)
    (said,) = (w for w in fit.warnings if "the model has no cause" in w)
    assert all(p.name in said for p in (mix, other))


@pytest.mark.parametrize(("size", "warned"), [(1 << 20, True), (4096, False)])
def test_more_than_the_link_carries(size, warned):
    points = [replace(p, cpu_s=None) for p in at_depths(0.0, size=size, iops=10e3)[:1]]
    said = "\n".join(fit_drive(points, host=host(stack())).warnings)
    assert ("are more than pcie4 x4 carries" in said) == warned


@pytest.mark.parametrize(("buffer", "warned"), [(64 << 20, True), (1 << 30, False)])
def test_a_write_buffer_that_fills(tmp_path, buffer, warned):
    requests = requests_of(slow_writer(buffer), 32, 60_000, read=0.0)
    write_blkparse(tmp_path / "w.blkparse", requests)
    found, said = buffers_of(read_captures([tmp_path]))
    assert (found is not None) == warned
    assert list(said) == (["w.blkparse"] if warned else [])


def series(folder: Path, kind: str, values: np.ndarray) -> None:
    rows = "".join(f"{1000 * (i + 1)}, {v:.0f}, 0, 0, 0\n" for i, v in enumerate(values))
    (folder / f"qd1_{kind}.1.log").write_text(rows)
    (folder / "qd1.json").write_text(json.dumps(result()))


@pytest.mark.parametrize("kind", ["clat", "iops", "bw"])
@pytest.mark.parametrize(("end", "warned"), [(1.0, False), (1.1, False), (0.5, True), (2.0, True)])
def test_a_course_that_ends_elsewhere(tmp_path, kind, end, warned):
    values = 80e3 * np.linspace(1.0, end, 60) * np.random.default_rng(1).normal(1, 0.02, 60)
    series(tmp_path, kind, values)
    assert ("from the first quarter to the last (heat" in reported(tmp_path)) == warned


def test_a_drift_that_a_step_explains_is_said_once(tmp_path):
    series(tmp_path, "iops", np.repeat([90e3, 30e3], [20, 40]))
    captures = read_captures([tmp_path])
    assert len(drifts(captures)) == 1
    assert drifts(captures, ["qd1_iops.1.log"]) == []


MIX_OPEN = (("mix fitted", True, "reads at 3 depths"), ("mix held out", False, "if it were fitted"))


@pytest.mark.parametrize(("name", "used", "said"), MIX_OPEN)
def test_a_mix_that_is_there_is_not_asked_for(name, used, said):
    """Neither where it is fitted and leaves explanations open, nor where it was held out."""
    profile = get("drive", "intel-p4610-1.6tb")
    reads = [Point("", 1.0, True, 4096, jobs, 1, 1e4, None) for jobs in (1, 64)]
    mix = Judged(Point(name, 0.7, True, 4096, 4, 64, 4e5, None), BenchAnswer(4e5, 1e-4, {}), used)
    judged = [*(Judged(p, BenchAnswer(1e4, 1e-4, {})) for p in reads), mix]
    others = [(Explanation(profile, "dies", "drain", reads=Side(profile, {})), 0.4)]
    text = " ".join(gate.undetermined(profile, judged, reads, {}, ["dies"], others))
    assert said in text
    assert "70/30" not in text
    without = " ".join(gate.undetermined(profile, judged[:2], reads, {}, ["dies"], others))
    assert "70/30" in without


def test_what_was_fitted_is_not_called_unknown():
    few = [simulated(drive(), 1, 1), simulated(drive(), 4, 64)]
    fit = fit_drive(few)
    names = {"dies": "dies", "commands": "read commands"}
    assert fit.free_parameters
    assert not [k for k in fit.profile.untold if names.get(k) in fit.free_parameters]


def test_every_number_that_a_fit_may_leave_open_is_named_in_words_with_its_key():
    open_ones = {key for of in (*KEYS.values(), task.KEYS) for keys in of.values() for key in keys}
    assert not open_ones - set(IN_WORDS)
    fit = fit_drive([simulated(drive(), 1, 1)])
    assert fit.profile.untold
    assert all(f"{IN_WORDS[key]} ({key})" in fit.verdict for key in fit.profile.untold)
