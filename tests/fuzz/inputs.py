"""What else is fuzzed: dumps of servers, catalog profiles, goals, and what follows ``--set``."""

import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nvmesim.catalog import load as catalog
from nvmesim.describe import describe
from nvmesim.errors import InputError
from nvmesim.scenario.load import load_scenario
from nvmesim.study.designs import load_goal
from nvmesim.study.sweep.plan import check, make_plan, parse_over

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DUMPS = ROOT / "tests" / "describe" / "data"
PROFILES = ROOT / "nvmesim" / "catalog" / "data"
_MEMORY = Path("/dev/shm")
_FOLDER = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
MOST_LINES = 4


@dataclass(frozen=True)
class OneFile:
    """A reader of one file, as a case: the file lies in memory and has a name of its own."""

    name: str
    read: Callable[[Path], object]

    def __call__(self, data: bytes) -> bool:
        path = _FOLDER / f"nvmesim-fuzz-{self.name}"
        path.write_bytes(data)
        return accepts(lambda: self.read(path), path.name)


def accepts(call: Callable[[], object], where: str = "") -> bool:
    """Whether *call* goes through; a refusal must be one line that holds *where*."""
    refusal = ""
    try:
        call()
    except InputError as error:
        refusal = str(error)
    if refusal and ("\n" in refusal or where not in refusal):
        raise AssertionError(refusal)
    return not refusal


def describe_case(data: bytes) -> bool:
    """Describe the server of a dump, by itself and beside a good lscpu."""
    path = _FOLDER / "nvmesim-fuzz-dump"
    path.write_bytes(data)
    alone = accepts(lambda: describe([path]))
    return accepts(lambda: tomllib.loads(describe([DUMPS / "lscpu.txt", path]))) or alone


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()[:MOST_LINES]


def set_case(data: bytes) -> bool:
    """Change an example by lines of ``KEY=VALUE``."""
    return accepts(lambda: load_scenario(EXAMPLES / "two-sockets.toml", _lines(data)))


def over_case(data: bytes) -> bool:
    """Plan a sweep of an example over lines of ``KEY=V1,V2``."""
    tables = tomllib.loads((EXAMPLES / "two-sockets.toml").read_text())
    return accepts(lambda: check(tables, str(EXAMPLES), make_plan(parse_over(_lines(data)))))


def _contents(folder: Path, pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(pattern))]


def dump_seeds() -> list[bytes]:
    """The samples of other tools; a small piece of the large ones."""
    return [data if len(data) < 8000 else data[:8000] for data in _contents(DUMPS, "*.*")]


def profile_seeds() -> list[bytes]:
    """The catalog."""
    return _contents(PROFILES, "*/*.toml")


def goal_seeds() -> list[bytes]:
    """The goals among the examples."""
    return _contents(EXAMPLES, "goal*.toml")


SETS = [
    b"drives.0.count=2\nworkload.0.socket=1",
    b"server.interconnect.links=3\nserver.interconnect.rate=11.2 GT/s\nrun.seed=2",
    b'drives.0.profile="samsung-980pro-1tb"\nserver.sockets.0.cpu=xeon-gold-6130',
    b"drives.0.profile.read.die=50 us\nadapters.0.socket=0",
    b"server.stack={ extends = 'windows-2019' }\nname=two",
]
OVERS = [
    b"drives.0.count=1,2,4\nserver.interconnect.links=1..3",
    b"run.seed=1..1024..x2\nserver.interconnect.rate=9.6 GT/s,10.4 GT/s",
    b'drives.0.profile="samsung-980pro-1tb","micron-7450-pro-3.84tb"',
    b"drives.0.profile.read.die=50 us..80 us..10 us\nworkload.*.socket=0,1",
]

profile_case = OneFile("profile.toml", lambda path: catalog.read(None, path))
goal_case = OneFile("goal.toml", load_goal)
scenario_case = OneFile("scenario.toml", load_scenario)
