"""Disks that are full at any write, folders nobody can write, files that vanish, no memory."""

import errno
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from tests.faults.conftest import assert_one_line
from tests.faults.test_kills import BEFORE, is_whole

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


MOST = 200  # operations of a command, none of which has more than some tens


class FullDisk:
    """Counts what is written below *place*; the operation number *at* finds no space."""

    def __init__(self) -> None:
        self.place, self.at, self.seen, self.met = "", -1, 0, False
        self.goes_on = False
        sys.addaudithook(self._heard)

    def arm(self, place: Path, at: int, *, goes_on: bool) -> None:
        self.place, self.at, self.goes_on, self.seen, self.met = str(place), at, goes_on, 0, False

    def disarm(self) -> None:
        self.place = ""

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.place or event not in ("open", "os.mkdir", "os.rename"):
            return
        path = arguments[0]
        if event == "open" and not _writes(arguments):
            return
        # names below a folder's descriptor (a cache) are relative
        if not isinstance(path, str | bytes | os.PathLike):
            return
        text = os.fsdecode(path)
        if os.path.isabs(text) and not text.startswith(self.place):
            return
        self.seen += 1
        if self.seen == self.at or (self.goes_on and self.seen > self.at):
            self.met = True
            raise OSError(errno.ENOSPC, "No space left on device", text)


def _writes(arguments: tuple[object, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wxa+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


_disk: list[FullDisk] = []


@pytest.fixture
def disk():
    """One for the process: an audit hook stays."""
    if not _disk:
        _disk.append(FullDisk())
    yield _disk[0]
    _disk[0].disarm()


WRITERS = {
    "init": (("init", "--drive", "hdd-7200", "--count", "2"), ["s.toml"], "-o"),
    "describe": (("describe", "lscpu.txt"), ["d.toml"], "-o"),
    "capture-plan": (("capture-plan",), ["plan.fio"], "-o"),
    "sweep": (
        ("sweep", "two.toml", "--over", "workload.outstanding=1,2", "--workers", "1"),
        ["s.parquet"], "-o",
    ),
    "run": (("run", "two.toml", "--requests", "rows.parquet"), ["r.html", "rows.parquet"],
            "--report"),
    "calibrate": (("calibrate", "points.csv", "--report", "c.html"), ["p.toml", "c.html"], "-o"),
}  # fmt: skip
SLOW = ("run", "calibrate")


@pytest.mark.parametrize(
    "goes_on", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "from then on"]
)
@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=pytest.mark.slow) if w in SLOW else w for w in WRITERS]
)
def test_full_at_each_operation(what, goes_on, files, disk, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "lscpu.txt").write_text(LSCPU)
    words, outputs, option = WRITERS[what]
    there = set(os.listdir(tmp_path)) | {"cache", *outputs}
    for at in range(1, MOST):
        for name in outputs:
            (tmp_path / name).unlink(missing_ok=True)
            if at % 2 and what != "init":  # which never replaces a file
                (tmp_path / name).write_text(BEFORE)
        for left in tmp_path.glob("*.partial"):
            left.unlink()
        disk.arm(tmp_path, at, goes_on=goes_on)
        code = run_command([*words, option, outputs[0]])
        disk.disarm()
        said = capfd.readouterr().err
        assert code in ((0, 3) if disk.met else (0, 1)), (at, code, said)
        if code == 3:
            assert_one_line(said)
            assert "No space left on device" in said
        assert all(is_whole(tmp_path / name) for name in outputs), at
        left_over = set(os.listdir(tmp_path)) - there
        assert not [name for name in left_over if not name.endswith(".partial")], (at, left_over)
        if not disk.met:
            assert at > 1, "nothing was written: the layer does not see it"
            return
    raise AssertionError(f"more than {MOST} operations")
