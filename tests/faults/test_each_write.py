"""The disk is full at the first, the second, … the last time that a command writes: each one.

After SQLite's tests of out-of-disk errors: the fault moves on by one operation until the command
ends without meeting it. Operations are what Python's own audit events name: files that are opened
to be written, folders that are made, renames. (Full while a file is written: `test_places`.)
"""

import errno
import os
import sys
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from tests.faults.conftest import assert_one_line
from tests.faults.test_kills import BEFORE, is_whole
from tests.faults.test_places import LSCPU

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


COMMANDS = {
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
    "what", [pytest.param(w, marks=pytest.mark.slow) if w in SLOW else w for w in COMMANDS]
)
def test_full_at_each_operation(what, goes_on, files, disk, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "lscpu.txt").write_text(LSCPU)
    words, outputs, option = COMMANDS[what]
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
