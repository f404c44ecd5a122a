"""Machine code and pickles that somebody else left where compiled code is looked for.

Each test is a victim in a process of its own (as root: with another user's id); it need not
compile the engine, whose code is at hand. What is planted leaves a mark, and ends the process, if
it runs.
"""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import pytest

from nvmesim.engine.compiled import native
from tests.children import unmeasured

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
AS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="only root can take the part of another user")
VICTIM, ATTACKER = 54_321, 54_322  # users that are in no table
HIDDEN = ["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT"]
"""Variables that a victim has only if its test says so."""
RAN = 66  # exit code of what was planted

LOOP = """
native._linked_function.cache_clear()
say_if_compiling("compiled")
print("answered", compare_seeds(range(2))[0] > 0)
"""
READER = """
@compiled
def twice(x):
    return 2 * x
print("answered", twice(3))
"""
# Runs programs in forks of itself: what they import is there, and the engine need not be compiled.
NURSERY = """
import json, os, resource, signal, sys, types
from pathlib import Path
from nvmesim.cli.output import say_if_compiling
from nvmesim.engine.compiled import native
from nvmesim.capture.requests.kernel_cache import compiled
from tests.children import drop_to
from tests.engines.test_equality import compare_seeds

kernel_object = types.ModuleType("nvmesim.engine.compiled.kernel_object")
kernel_object.object_code = lambda machine: Path(sys.argv[1]).read_bytes()
sys.modules[kernel_object.__name__] = kernel_object

def begin(job, number):
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(120)
    os.chdir(job["cwd"])
    for number, end in ((1, f"out{number}"), (2, f"err{number}")):
        os.dup2(os.open(job["base"] + "/" + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    for name in job["hidden"]:
        os.environ.pop(name, None)
    os.environ.update(job["env"])
    if job["limit"]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"],) * 2)
    if job["user"]:
        drop_to(job["user"])
    try:
        exec(job["program"], globals())
        sys.stdout.flush()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    pids = [begin(job, number) for number in range(job["count"])]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps(codes), flush=True)
"""
ANSWERS = {"loop": "answered True", "reader": "answered 6"}

EVIL = """
target triple = "{triple}"
@mark = private constant [{length} x i8] c"{mark}\\00"
declare i32 @creat(ptr, i32)
declare void @_exit(i32)
define i32 @{entry}() {{
  %made = call i32 @creat(ptr @mark, i32 438)
  call void @_exit(i32 {code})
  ret i32 0
}}
"""


class Leaves:
    """Unpickled, it leaves *mark*."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return exec, (f"import os; open({str(self.mark)!r}, 'w'); os._exit({RAN})",)


def evil_object(mark: Path) -> bytes:
    """Machine code that stands in for the loop, and leaves *mark*."""
    text = EVIL.format(
        triple=llvm.get_process_triple(), length=len(str(mark)) + 1, mark=mark, entry=native.ENTRY,
        code=RAN,
    )  # fmt: skip
    return bytes(native.machine_here().emit_object(llvm.parse_assembly(text)))


def sealed(code: bytes) -> bytes:
    """*code* as a file holds it: anybody can compute that."""
    return hashlib.sha256(code).digest() + code


class Ended(NamedTuple):
    """A process that has ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Case:
    """What is planted under which name, and the victim that may find it."""

    base: Path
    kind: str
    program: str
    nursery: subprocess.Popen[str]
    name: str = ""
    planted: bytes = b""

    @property
    def mark(self) -> Path:
        return self.base / "marks" / "it-ran"

    def folder(self, *parts: str, mode: int = 0o755, owner: int = VICTIM) -> Path:
        """Make a folder; only root can give it away."""
        made = self.base.joinpath(*parts)
        made.mkdir(parents=True)
        return self._given(made, mode, owner)

    def plant(self, folder: Path, mode: int = 0o644, owner: int = VICTIM) -> Path:
        folder.mkdir(exist_ok=True)
        file = folder / self.name
        file.write_bytes(self.planted)
        return self._given(file, mode, owner)

    def _given(self, path: Path, mode: int, owner: int) -> Path:
        if IS_ROOT:
            os.chown(path, owner, owner)
        path.chmod(mode)
        return path

    def run(self, env: dict[str, str], cwd: Path | None = None, limit: int = 0) -> Ended:
        """The victim's process, ended; files may grow to *limit* bytes."""
        return self.run_many(1, env, cwd, limit)[0]

    def run_many(
        self, count: int, env: dict[str, str], cwd: Path | None = None, limit: int = 0
    ) -> list[Ended]:
        """The same, so many at once."""
        job = {
            "program": self.program, "base": str(self.base), "cwd": str(cwd or self.base),
            "env": env, "hidden": HIDDEN, "limit": limit, "count": count,
            "user": VICTIM if IS_ROOT else 0,
        }  # fmt: skip
        self.nursery.stdin.write(json.dumps(job) + "\n")
        self.nursery.stdin.flush()
        codes = json.loads(self.nursery.stdout.readline())
        read = [[(self.base / f"{w}{i}").read_text() for w in ("out", "err")] for i in range(count)]
        return [Ended(code, *texts) for code, texts in zip(codes, read, strict=True)]

    def assert_unharmed(self, done, word: str = "") -> None:
        """It answered, said so much in one line, and what was planted did not run."""
        assert not self.mark.exists()
        assert done.returncode == 0, done.stderr
        assert ANSWERS[self.kind] in done.stdout, done.stdout
        assert "Traceback" not in done.stderr
        said = [x for x in done.stderr.splitlines() if "compiled code" in x]
        assert len(said) == len(set(said)) <= 2, said
        assert word in done.stderr, done.stderr


@pytest.fixture(scope="module")
def nursery(tmp_path_factory) -> Iterator[subprocess.Popen[str]]:
    """The process that victims are forked from, with the loop as it is compiled here."""
    good = tmp_path_factory.mktemp("good") / "good.o"
    good.write_bytes(native._object())
    environment = {**unmeasured(), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-P", "-c", NURSERY, str(good)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that every user may pass."""
    made = Path(tempfile.mkdtemp(prefix="nvmesim-planted-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def reader_name(nursery: subprocess.Popen[str]) -> str:
    """The name that every user's file of this function has."""
    folder = Path(tempfile.mkdtemp(prefix="nvmesim-planted-"))
    folder.chmod(0o755)
    made = Case(folder, "reader", READER, nursery)
    seen = made.folder("seen", mode=0o700)
    made.assert_unharmed(made.run({"NUMBA_CACHE_DIR": str(seen)}))
    (file,) = seen.iterdir()
    shutil.rmtree(folder)
    return file.name


@pytest.fixture(params=["loop", "reader"])
def case(request, base: Path, nursery: subprocess.Popen[str]) -> Case:
    made = Case(base, request.param, READER, nursery)
    made.folder("marks", mode=0o777)
    if request.param == "reader":
        made.name = request.getfixturevalue("reader_name")
        made.planted = sealed(pickle.dumps(Leaves(made.mark)))
        return made
    made.program = LOOP
    made.name, made.planted = native._file_name(), sealed(evil_object(made.mark))
    return made


def test_what_is_planted_would_run(case: Case) -> None:
    """Where the victim itself has put it: otherwise the tests below could not fail."""
    home = case.folder("home", mode=0o700)
    case.plant(case.folder("home", "nvmesim", mode=0o700))
    done = case.run({"XDG_CACHE_HOME": str(home)})
    assert done.returncode == RAN, done.stderr
    assert case.mark.exists()


def test_a_folder_that_all_can_write(case: Case) -> None:
    home = case.folder("home", mode=0o777)
    case.plant(case.folder("home", "nvmesim", mode=0o777))
    case.assert_unharmed(case.run({"XDG_CACHE_HOME": str(home)}), "can be written by others")


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        pytest.param({}, ("~", ".cache"), marks=AS_ROOT),  # no home, and no entry in passwd
        ({"XDG_CACHE_HOME": "cache"}, ("cache",)),
    ],
)
def test_a_relative_folder(case: Case, env: dict[str, str], parts: tuple[str, ...]) -> None:
    here = case.folder("here")
    case.plant(case.folder("here", *parts, "nvmesim"))
    case.assert_unharmed(case.run(env, cwd=here), "not an absolute path")


@AS_ROOT
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_folder_of_another_user(case: Case, variable: str) -> None:
    theirs = case.folder("theirs", owner=ATTACKER)
    case.plant(theirs, owner=ATTACKER)
    case.plant(case.folder("theirs", "nvmesim", owner=ATTACKER), owner=ATTACKER)
    case.assert_unharmed(case.run({variable: str(theirs)}), f"belongs to user {ATTACKER}")


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
def test_a_file_that_is_not_the_victims_alone(case: Case, change, word: str) -> None:
    home = case.folder("home", mode=0o700)
    file = case.plant(case.folder("home", "nvmesim", mode=0o700))
    change(file)
    case.assert_unharmed(case.run({"XDG_CACHE_HOME": str(home)}), word)
    assert file.is_file()
    assert not file.is_symlink()  # replaced by what was compiled


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_a_home_that_cannot_be_written(case: Case, variable: str) -> None:
    file = case.base / "file"
    file.write_text("no folder")
    home = file if variable == "XDG_CACHE_HOME" else case.folder("home", mode=0o500)
    case.assert_unharmed(case.run({variable: str(home)}), "is not kept")


def test_a_disk_that_is_full(case: Case) -> None:
    home = case.folder("home", mode=0o700)
    done = case.run({"XDG_CACHE_HOME": str(home)}, limit=4096)
    case.assert_unharmed(done, "is not kept")
    assert not list((home / "nvmesim").iterdir())


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_files(case: Case, damage: str) -> None:
    home = case.folder("home", mode=0o700)
    env = {"XDG_CACHE_HOME": str(home)}
    case.assert_unharmed(case.run(env))
    (file,) = (home / "nvmesim").glob(case.name)
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file.write_bytes({"cut": whole[:middle], "flipped": flipped, "empty": b""}[damage])
    case.assert_unharmed(case.run(env), "is damaged")
    said = case.run(env)  # what was made anew is whole
    case.assert_unharmed(said)
    assert "compiled code" not in said.stderr


def test_a_pickle_that_is_whole_but_of_another_library(case: Case) -> None:
    if case.kind == "loop":
        pytest.skip("machine code is linked, not unpickled")
    home = case.folder("home", mode=0o700)
    case.planted = sealed(pickle.dumps(("not", "ours")))
    case.plant(case.folder("home", "nvmesim", mode=0o700))
    case.assert_unharmed(case.run({"XDG_CACHE_HOME": str(home)}), "cannot be used")


@pytest.mark.long
def test_many_processes_at_once(case: Case) -> None:
    home = case.folder("home", mode=0o700)
    for done in case.run_many(4, {"XDG_CACHE_HOME": str(home)}):
        case.assert_unharmed(done)
        assert "compiled code" not in done.stderr
    assert [file.name for file in (home / "nvmesim").iterdir()] == [case.name]
