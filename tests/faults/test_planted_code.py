"""Machine code that somebody else left where compiled code is looked for: it would be linked."""

import hashlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import platformdirs
import pytest

from nvmesim import code_cache
from nvmesim.engine.compiled import native

ATTACKER = 54_322  # a user that is in no table
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
GOOD, PLANTED = b"good code", b"planted code"


@dataclass
class Case:
    """What is planted under which name, and the victim that may find it."""

    name: str
    planted: bytes
    answers: Callable[[], bool]
    """Whether the victim has its own answer; it keeps what it compiled."""
    log: pytest.LogCaptureFixture

    def plant(self, folder: Path, mode: int = 0o700) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        file = folder / self.name
        # anybody can compute the digest
        file.write_bytes(hashlib.sha256(self.planted).digest() + self.planted)
        return file

    def assert_unharmed(self, word: str) -> None:
        """It answered, said so much in one line, and what was planted did not run."""
        assert self.answers()
        said = [record.getMessage() for record in self.log.records]
        assert len(said) == len(set(said)) <= 2, said
        assert any(word in text for text in said) if word else not said, said
        self.log.clear()
        code_cache._said.clear()


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> Case:
    monkeypatch.setattr(code_cache, "_said", set())
    compiler = ModuleType("nvmesim.engine.compiled.kernel_object")
    compiler.object_code = lambda machine: GOOD
    monkeypatch.setitem(sys.modules, compiler.__name__, compiler)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return Case(native._file_name(), PLANTED, lambda: native._object() == GOOD, caplog)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where compiled code is looked for."""
    return tmp_path / "home" / "nvmesim"


def test_what_is_planted_would_run(case: Case, folder: Path) -> None:
    """Where the victim itself has put it: otherwise the tests below could not fail."""
    case.plant(folder)
    assert not case.answers()


def test_a_folder_that_all_can_write(case: Case, folder: Path) -> None:
    case.plant(folder, mode=0o777)
    case.assert_unharmed("can be written by others")


def test_a_relative_folder(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "cache")
    case.plant(tmp_path / "cache")
    case.assert_unharmed("not an absolute path")


def test_a_user_without_a_home(case: Case, tmp_path: Path, monkeypatch) -> None:
    def no_home(*names: object, **options: object) -> Path:
        raise RuntimeError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    case.plant(tmp_path / "~" / ".cache")
    case.assert_unharmed("not an absolute path")


@AS_ROOT
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_folder_of_another_user(case: Case, variable: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "theirs"))
    for folder in (tmp_path / "theirs", tmp_path / "theirs" / "nvmesim"):
        case.plant(folder)
        os.chown(folder, ATTACKER, ATTACKER)
    case.assert_unharmed(f"belongs to user {ATTACKER}")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda file: file.chmod(0o664), "can be written by others"),
        (lambda file: file.symlink_to(file.rename(file.with_suffix(".x"))),
         "is not a regular file"),
        (lambda file: (file.unlink(), os.mkfifo(file)), "is not a regular file"),
        # the folder was open once; it is not any more, but what was planted is still there
        pytest.param(lambda file: os.chown(file, ATTACKER, ATTACKER), "belongs to user",
                     marks=AS_ROOT),
    ],
    ids=["mode", "link", "pipe", "owner"],
)  # fmt: skip
def test_a_file_that_is_not_the_victims_alone(case: Case, folder: Path, change, word: str) -> None:
    file = case.plant(folder)
    change(file)
    case.assert_unharmed(word)
    assert file.is_file()
    assert not file.is_symlink()  # replaced by what was compiled


def test_a_home_that_cannot_be_written(case: Case, folder: Path) -> None:
    folder.parent.write_text("no folder")
    case.assert_unharmed("is not kept")


def test_a_disk_that_is_full(case: Case, folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        answered = case.answers()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
    assert answered
    assert any("is not kept" in record.getMessage() for record in case.log.records)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_files(case: Case, folder: Path, damage: str) -> None:
    case.assert_unharmed("")
    file = folder / case.name
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file.write_bytes({"cut": whole[:middle], "flipped": flipped, "empty": b""}[damage])
    case.assert_unharmed("is damaged")
    case.assert_unharmed("")  # what was made anew is whole


def test_many_at_once(case: Case, folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: case.answers(), range(8)))
    case.assert_unharmed("")
    assert [file.name for file in folder.iterdir()] == [case.name]
