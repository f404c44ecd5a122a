"""Disks that are full, folders that cannot be written, files that vanish, memory that ends."""

import resource
import signal
import time
from pathlib import Path

import pytest

from nvmesim.catalog.load import load
from nvmesim.cli.main import run_command
from tests.children import heed_ctrl_c
from tests.faults.conftest import assert_one_line

FULL = Path("/dev/full")
COMMANDS = {
    # what is done: arguments before the output's path
    "report": ("run", "{scenario}", "--report"),
    "requests": ("run", "{scenario}", "--requests"),
    "timeline": ("run", "{scenario}", "--timeline"),
    "sweep": ("sweep", "{scenario}", "--over", "workload.outstanding=1,2", "-o"),
    "calibrate": ("calibrate", "{points}", "-o"),
    "evidence": ("calibrate", "{points}", "-o", "p.toml", "--report"),
    "describe": ("describe", "{lscpu}", "-o"),
}
FITTED = ("calibrate", "evidence")  # commands that take seconds before they write
LSCPU = """Architecture:          x86_64
CPU(s):                32
Thread(s) per core:    2
Core(s) per socket:    16
Socket(s):             1
Model name:            Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz
"""


def arguments_of(what, files, tmp_path):
    lscpu = tmp_path / "lscpu.txt"
    lscpu.write_text(LSCPU)
    return [a.format(lscpu=lscpu, **files) for a in COMMANDS[what]]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("what", [w for w in COMMANDS if w not in ("sweep", *FITTED)])
def test_a_device_that_is_full(what, files, refused, tmp_path):
    said = refused(*arguments_of(what, files, tmp_path), FULL, with_code=3)
    assert "No space left" in said


@pytest.mark.parametrize("what", ["report", "requests", "timeline"])
def test_a_disk_that_fills_up_leaves_no_part(what, files, start, tmp_path):
    """A limit on the size of files, far below what is written."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    out = tmp_path / "out.file"
    before = {*tmp_path.rglob("*"), tmp_path / "lscpu.txt", tmp_path / "cache"}
    child = start(*arguments_of(what, files, tmp_path), out, limit=limit)
    _, said = child.communicate(timeout=300)
    assert child.returncode == 3, said
    assert_one_line(said)
    left = {p for p in tmp_path.rglob("*") if "cache" not in p.parts} - before
    assert left == set()


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=pytest.mark.slow) if w in FITTED else w for w in COMMANDS]
)
@pytest.mark.parametrize("place", ["/proc/nvmesim.out", "/nowhere/at/all.out", "."])
def test_a_place_that_cannot_be_written(what, place, files, refused, tmp_path):
    refused(*arguments_of(what, files, tmp_path), place)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "gone.toml"),
        ("calibrate", "gone.csv", "-o", "p.toml"),
        ("trace", "gone.json"),
        ("choose", "gone.toml"),
        ("describe", "gone.txt", "-o", "s.toml"),
        ("size", "--iops", "1M", "--utilization", "50%", "--from", "gone.toml"),
        ("run", "{scenario}", "--set", "drives.0.profile=gone.toml"),
        ("run", "{scenario}", "--set", "server.stack=gone.toml"),
        ("run", "{scenario}", "--set", 'workload.0={{trace="gone.blkparse"}}'),
        ("run", "{scenario}", "--set", 'workload.0={{fio="gone.fio"}}'),
        ("sweep", "{scenario}", "--over", "drives.0.profile=gone.toml", "-o", "s.parquet"),
    ],
    ids=lambda arguments: "-".join(a for a in arguments if a[0] not in "-{")[:40],
)
def test_a_file_that_is_gone(arguments, files, refused, tmp_path):
    for name in ("gone.toml", "gone.csv", "gone.json", "gone.txt", "gone.blkparse", "gone.fio"):
        (tmp_path / name).symlink_to(tmp_path / "was-here-once")
    refused(*(a.format(**files) for a in arguments))


@pytest.mark.parametrize("spare", [8 << 20, 64 << 20])
def test_memory_that_ends(spare, files, tmp_path):
    """The address space is limited to little more than the program itself takes."""
    import subprocess
    import sys

    code = f"""
import resource, sys
from nvmesim.cli import main
from nvmesim.cli.main import run_command
run_command(["run", {str(files["scenario"])!r}, "--json"])
with open("/proc/self/statm") as f:
    used = int(f.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {spare}, used + {spare}))
huge = ["--set", "workload.0.threads=4096", "--set", "workload.0.outstanding=4096"]
sys.argv[1:] = ["run", {str(files["scenario"])!r}, *huge]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert_one_line(done.stderr)
    assert "memory" in done.stderr


def test_ctrl_c_in_a_calibration(files, start, tmp_path):
    out = tmp_path / "p.toml"
    child = start("calibrate", files["points"], "-o", out, limit=heed_ctrl_c)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    if out.exists():
        assert load("drive", str(out)).name
        pytest.skip("the fit was quicker than the signal")
    assert child.returncode == 130
    assert "Traceback" not in said
    assert not out.exists()


@pytest.mark.parametrize("what", ["scenario", "folder"])
def test_an_input_that_vanishes_while_it_is_used(what, files, tmp_path, monkeypatch, capfd):
    """The scenario's own text stands in the report: it is read when that is written."""
    import shutil

    from nvmesim.predict import simulate as module

    simulate, inputs = module.simulate, tmp_path / "inputs"
    inputs.mkdir()
    scenario = inputs / "two.toml"
    scenario.write_bytes(files["scenario"].read_bytes())

    def vanish(*args, **options):
        scenario.unlink() if what == "scenario" else shutil.rmtree(inputs)
        return simulate(*args, **options)

    monkeypatch.setattr(module, "simulate", vanish)
    report = tmp_path / "r.html"
    code = run_command(["run", str(scenario), "--report", str(report)])
    out, said = capfd.readouterr()
    assert code == 2, said
    assert_one_line(said)
    assert str(scenario) in said
    assert "IOPS" in out  # the answer itself is there
    assert not report.exists()
