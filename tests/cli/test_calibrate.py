"""`nvmesim calibrate`: profiles that appear whole or not at all, evidence, errors in one line."""

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from nvmesim.calibrate.points import Point
from nvmesim.catalog import load
from nvmesim.cli import calibrate as command
from tests.calibrate.bench import fio_json

pytestmark = pytest.mark.xdist_group("calibrate")

POINTS = """\
# an invented drive
op,block_size,jobs,iodepth,iops,lat_mean_us,p50_us,p99_us,cpu_pct
randread,4 KiB,1,1,12500,80,78,95,12
randread,4 KiB,1,8,92000,87,82,150,48
"""


@pytest.fixture
def points(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(POINTS, encoding="utf-8")
    return path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_profile_that_loads_a_table_and_a_report(nvmesim, points, tmp_path):
    said = nvmesim(
        "calibrate", points, "-o", tmp_path / "drive.toml", "--name", "mine",
        "--report", tmp_path / "r.html",
    )  # fmt: skip
    assert said.code == 0
    assert "wrote" in said.err
    profile = load.read("drive", tmp_path / "drive.toml")
    assert profile.name == "mine"
    assert profile.captured.stack == "linux-libaio"
    assert not profile.host_included
    assert profile.read.die.basis == "fitted"
    lines = said.out.splitlines()
    assert lines[0] == "mine"
    assert lines[2].startswith("Reproduces all ")
    heading = next(line for line in lines if line.startswith("point"))
    assert heading.split()[:4] == ["point", "IOPS", "mean", "us"]
    assert sum(line.startswith("randread 4 KiB 1 x") for line in lines) == 2
    assert "warning" in said.out
    assert all(len(line) <= 120 for line in lines)
    assert names(tmp_path) == ["drive.toml", "points.csv", "r.html"]
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "randread 4 KiB 1 x 8" in text
    assert "https://" not in text.split("<script")[0]  # it loads nothing
    for title in ("Throughput against queue depth", "Latency against queue depth"):
        assert title in text


def test_evidence_as_json(nvmesim, points):
    said = nvmesim(
        "calibrate", points, "--json", "--hold-out", "QD=8", "--captured-on",
        "linux-io_uring,pcie4 x4,2.4 GHz",
    )  # fmt: skip
    answer = json.loads(said.out)
    assert said.code == 0
    assert answer.keys() >= {"profile", "points", "warnings"}
    assert [p["held_out"] for p in answer["points"]] == [False, True]
    point = answer["points"][1]
    assert point["queue_depth"] == 8
    assert point["residual"]["iops"] == pytest.approx(
        point["model"]["iops"] / point["measured"]["iops"] - 1
    )
    assert answer["profile"]["host_included"] is False
    assert "linux-io_uring" in answer["profile"]["captured_on"]


def test_a_folder_with_other_files_in_it(nvmesim, tmp_path):
    folder = tmp_path / "captures"
    folder.mkdir()
    for depth, iops in ((1, 12_500), (8, 92_000)):
        p = Point("p", 1.0, True, 4096, 1, depth, iops, depth / iops, count=10**6)
        (folder / f"{depth}.json").write_text(fio_json(p), encoding="utf-8")
    (folder / "notes.md").write_text("how it was done\n", encoding="utf-8")
    said = nvmesim("calibrate", folder, "--json", "--hold-out", "QD=8")
    answer = json.loads(said.out)
    assert [p["queue_depth"] for p in answer["points"]] == [1, 8]
    assert "no captures, not read: notes.md" in answer["warnings"]
    assert nvmesim("calibrate", f"{folder}/*.txt").code == 2
    # a glob is files as well
    globbed = nvmesim("calibrate", f"{folder}/*.json", "--json", "--hold-out", "QD=8")
    assert len(json.loads(globbed.out)["points"]) == 2


FULL = """\
op,block_size,jobs,iodepth,iops,lat_mean_us,cpu_pct,engine
randread,4 KiB,1,64,300000,210,99,mmap
"""
NO_CPU = """\
op,block_size,jobs,iodepth,iops,lat_mean_us
randread,4 KiB,1,1,12500,80
randread,4 KiB,1,8,92000,87
"""


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (POINTS, ["--hold-out", "QD=5"], "--hold-out QD=5: no point matches"),
        (POINTS, ["--hold-out", "QD"], "write QD=16"),
        (POINTS, ["--captured-on", "linux-uring"], "did you mean"),
        (POINTS, ["--captured-on", "linux-libaio,pcie7 x4"], "pcie7"),
        (POINTS, ["--cpu", "2.4 GHz"], "--cpu is for --stack"),
        (POINTS, ["--link", "pcie4 x4"], "--link is for --stack"),
        (POINTS, ["--stack"], "--stack needs --cpu"),
        (POINTS, ["--stack", "--cpu", "2.4 GHz", "--captured-on", "spdk"], "--captured-on is for"),
        (POINTS, ["--stack", "--cpu", "xeon-gold-613x"], "did you mean"),
        (POINTS, ["--stack", "--cpu", "fast"], "fast"),
        (POINTS, ["--stack", "--cpu", "240 GHz"], "out of range"),
        (POINTS, ["--empirical", "--captured-on", "spdk"], "leave out --captured-on"),
        (POINTS, ["--empirical", "--stack", "--cpu", "2 GHz"], "leave out --empirical or --stack"),
        (POINTS, ["--empirical", "--hold-out", "QD=4"], "none is predicted: no --hold-out"),
        (NO_CPU, ["--stack", "--cpu", "2.4 GHz"], "CPU cost needs rows with CPU figures"),
        (FULL, [], "no point measures the drive alone"),
        ('{"fio version": "fio-3.35", "jobs": [{"jobname"', [], "p.csv"),
        (POINTS, ["--datasheet", "s.toml"], "s.toml: no such file"),
        (POINTS, ["--datasheet", "samsung-990-pro"], "did you mean 'samsung-990-pro-2tb'"),
        (
            POINTS,
            ["--datasheet", "intel-p4510-1tb", "--stack", "--cpu", "2 GHz"],
            "leave it out with --stack",
        ),
        (None, [], "name captures of a drive, or --datasheet FILE"),
        (None, ["--datasheet", "s.toml", "--empirical"], "leave it out with --stack"),
        (None, ["--datasheet", "s.toml", "--hold-out", "QD=8"], "or leave these options out"),
        (None, ["--datasheet", "s.toml"], "s.toml: no such file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(
    nvmesim, tmp_path, monkeypatch, text, options, words
):
    monkeypatch.chdir(tmp_path)
    given = [] if text is None else ["p.csv"]
    for name in given:
        Path(name).write_text(text, encoding="utf-8")
    said = nvmesim("calibrate", *given, "-o", "out.toml", *options)
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert words in said.err
    assert names(tmp_path) == given


def test_no_such_file_and_no_such_folder(nvmesim, points, tmp_path):
    said = nvmesim("calibrate", tmp_path / "pints.csv")
    assert said.code == 2
    assert "did you mean 'points.csv'" in said.err
    said = nvmesim("calibrate", points, "-o", tmp_path / "no" / "drive.toml")
    assert (said.code, said.out) == (2, "")
    assert "there is no folder" in said.err


@pytest.fixture
def heeded():
    """A run in a shell's background has Ctrl-C ignored, and its tests with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pressed(times):
    """`steps` of a terminal at which Ctrl-C is pressed so often, at the first step."""

    @contextmanager
    def steps(what):
        left = [None] * times

        def tell(step):
            while left:
                left.pop()
                os.kill(os.getpid(), signal.SIGINT)

        yield tell

    return steps


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_keeps_the_best_so_far_and_marks_it(nvmesim, points, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "steps", pressed(1))
    said = nvmesim("calibrate", points, "-o", tmp_path / "drive.toml")
    assert said.code == 130
    assert "finishing with the best so far; Ctrl-C again stops at once" in said.err
    profile = load.read("drive", tmp_path / "drive.toml")
    assert profile.notes.startswith("stopped early")
    assert profile.alternatives == ()
    assert "warning  stopped early" in said.out


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_twice_writes_nothing(nvmesim, points, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "steps", pressed(2))
    assert nvmesim("calibrate", points, "-o", tmp_path / "drive.toml").code == 130
    assert names(tmp_path) == ["points.csv"]
