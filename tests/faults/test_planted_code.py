"""Machine code that somebody else left where compiled code is looked for: it would be linked."""

import hashlib
import os
import resource
import signal
import sys
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


def answers() -> bool:
    """Whether the victim has its own answer; it keeps what it compiled."""
    return native._object() == GOOD


@dataclass
class Case:
    """What is planted, and the victim that may find it below *top*."""

    top: Path
    patch: pytest.MonkeyPatch
    log: pytest.LogCaptureFixture

    @property
    def folder(self) -> Path:
        """Where compiled code is looked for."""
        return self.top / "home" / "nvmesim"

    @property
    def file(self) -> Path:
        return self.folder / native._file_name()

    def plant(self, folder: Path | None = None, mode: int = 0o700) -> Path:
        folder = folder or self.folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        file = folder / native._file_name()
        # anybody can compute the digest
        file.write_bytes(hashlib.sha256(PLANTED).digest() + PLANTED)
        return file

    def plant_elsewhere(self, *names: str) -> None:
        self.patch.chdir(self.top)
        self.plant(self.top.joinpath(*names))

    def plant_as_another(self, variable: str) -> None:
        self.patch.setenv(variable, str(self.top / "theirs"))
        for folder in (self.top / "theirs", self.top / "theirs" / "nvmesim"):
            self.plant(folder)
            os.chown(folder, ATTACKER, ATTACKER)

    def assert_unharmed(self, word: str) -> None:
        """It answered, said so much in one line, and what was planted did not run."""
        assert answers()
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
    return Case(tmp_path, monkeypatch, caplog)


def test_what_is_planted_would_run(case: Case) -> None:
    """Where the victim itself has put it: otherwise the tests below could not fail."""
    case.plant()
    assert not answers()


def no_home(*names: object, **options: object) -> Path:
    raise RuntimeError


def linked(file: Path) -> None:
    file.symlink_to(file.rename(file.with_suffix(".x")))


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


OPEN, RELATIVE = "can be written by others", "not an absolute path"
LEFT = {
    # how somebody left it, and a part of what is said
    **{f"a folder of mode {mode:o}": (lambda c, mode=mode: c.plant(mode=mode), OPEN)
       for mode in (0o777, 0o775, 0o707, 0o1777)},
    "a relative folder": (lambda c: (c.patch.setenv("NUMBA_CACHE_DIR", "cache"),
                                     c.plant_elsewhere("cache")), RELATIVE),
    "a user without a home": (
        lambda c: (c.patch.setattr(platformdirs, "user_cache_path", no_home),
                   c.plant_elsewhere("~", ".cache")), RELATIVE),
    "a home that cannot be written": (lambda c: c.folder.parent.write_text(""), "is not kept"),
    "a file that all can write": (lambda c: c.plant().chmod(0o664), OPEN),
    "a file that is a link": (lambda c: linked(c.plant()), "is not a regular file"),
    "a file that is a pipe": (lambda c: piped(c.plant()), "is not a regular file"),
    # the folder was open once; it is not any more, but what was planted is still there
    "a file of another user": (lambda c: os.chown(c.plant(), ATTACKER, ATTACKER), "belongs to"),
    **{f"a folder of another user by {name}": (lambda c, name=name: c.plant_as_another(name),
                                               f"belongs to user {ATTACKER}")
       for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")},
}  # fmt: skip


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=[AS_ROOT] if "another user" in w else []) for w in LEFT]
)
def test_what_others_could_have_left_does_not_run(case: Case, what: str) -> None:
    leave, word = LEFT[what]
    leave(case)
    case.assert_unharmed(word)
    if what.startswith("a file"):  # replaced by what was compiled
        assert case.file.is_file()
        assert not case.file.is_symlink()


def test_a_disk_that_is_full(case: Case) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        answered = answers()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
    assert answered
    assert any("is not kept" in record.getMessage() for record in case.log.records)
    assert not list(case.folder.iterdir())


def test_damaged_files(case: Case) -> None:
    case.assert_unharmed("")
    whole = case.file.read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:middle] + b"\xff" + whole[middle + 1 :], b""):
        case.file.write_bytes(damaged)
        case.assert_unharmed("is damaged")
        case.assert_unharmed("")  # what was made anew is whole


def test_many_at_once(case: Case) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: answers(), range(8)))
    case.assert_unharmed("")
    assert list(case.folder.iterdir()) == [case.file]
