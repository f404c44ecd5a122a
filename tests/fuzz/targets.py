"""What is fuzzed: every reader, scenarios, job files, dumps, profiles, goals, ``--set``."""

import json
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from nvmesim.capture.registry import READERS, Reader, guarded_read
from nvmesim.capture.text import Source
from nvmesim.catalog import load as catalog
from nvmesim.describe import description
from nvmesim.errors import CaptureError, InputError
from nvmesim.scenario.load import load_scenario
from nvmesim.scenario.loads import diskspd, fio_job
from nvmesim.study.designs import load_goal
from nvmesim.study.sweep.plan import check, make_plan, parse_over
from tests.capture.contract import check_capture, check_refusal, check_whole
from tests.fuzz.memory import MemorySource

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "capture" / "data"
CORPUS = ROOT / "tests" / "corpus"
EXAMPLES = ROOT / "examples"
DUMPS = ROOT / "tests" / "describe" / "data"
PROFILES = ROOT / "nvmesim" / "catalog" / "data"
SMALL = 1500  # bytes of a seed: a case then takes some 100 us. One seed in fifty is whole.

Case = Callable[[bytes], bool]
"""Run one input; whether it was read. Anything but a refusal in one line is raised."""


@dataclass(frozen=True)
class Target:
    """One thing to fuzz."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Case


def read_case(reader: Reader, data: bytes) -> bool:
    """Read *data* with *reader*, which may never have been asked: `sniff` must not matter."""
    source = MemorySource(data)
    try:
        reader.sniff(source.head)
        # Looking closely costs as much as reading; one case in eight shows the same.
        look = check_whole if crc32(data) % 8 == 0 else check_capture
        look(guarded_read(reader, source))
    except CaptureError as error:
        check_refusal(error, str(source.path))
        return False
    return True


def _reader_seeds(name: str) -> list[bytes]:
    whole = [Source(path).raw() for path in sorted((DATA / name).glob("*"))]
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    whole += [data for data in kept if len(data) <= SMALL]
    small = [piece for data in whole for piece in _shortened(name, data)]
    # The whole files come last and are one case in fifty, so that most cases are quick.
    few = [data for data in whole if len(data) <= 40_000][:2]
    return small * max(4, 49 * len(few) // len(small)) + few


def _shortened(name: str, data: bytes) -> list[bytes]:
    if len(data) <= SMALL:
        return [data]
    if name == "fio-json":
        return [_short_json(data)]
    if name == "iostat" and data.lstrip().startswith(b"{"):
        return [data]
    if name == "diskspd-xml":
        return [_short_xml(data)]
    if name in ("fio-text", "fio-terse", "diskspd-text", "iometer"):
        return [data[: 4 * SMALL]]
    if name == "blktrace":
        return [data[:1440]]
    lines = data.splitlines(keepends=True)
    head = b"".join(lines[:12])
    middle = b"".join(lines[len(lines) // 2 :][:12])
    return [head[: 2 * SMALL], middle[: 2 * SMALL]]


def _short_json(data: bytes) -> bytes:
    text = data.decode()
    start = text.index("{")
    value, _ = json.JSONDecoder().raw_decode(text, start)
    keep = {"percentile": 3, "bins": 6}

    def short(item: object, key: str = "") -> object:
        if isinstance(item, dict):
            pairs = list(item.items())[: keep.get(key, 100)]
            dull = ("latency_us", "latency_ms", "latency_ns", "iodepth_submit", "iodepth_complete")
            return {k: short(v, k) for k, v in pairs if k not in dull}
        if isinstance(item, list):
            return [short(v) for v in item[:2]]
        return item

    return (text[:start][-200:] + json.dumps(short(value))).encode()


def _short_xml(data: bytes) -> bytes:
    """Without most of the percentiles and the series."""
    pieces = data.split(b"<Bucket")
    first = pieces[0] + b"".join(b"<Bucket" + p for p in pieces[1:4])
    last = pieces[-1]
    return first + last[last.find(b"</Bucket>") + 9 :] if len(pieces) > 5 else data


def _readers() -> list[Target]:
    return [
        Target(r.name, lambda r=r: _reader_seeds(r.name), lambda data, r=r: read_case(r, data))
        for r in READERS
    ]


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
    alone = accepts(lambda: description([path]).text)
    return accepts(lambda: tomllib.loads(description([DUMPS / "lscpu.txt", path]).text)) or alone


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


def fio_job_case(data: bytes) -> bool:
    """Read *data* as a fio job file."""
    return accepts(lambda: fio_job.parse(data.decode("utf-8", "replace")))


def diskspd_case(data: bytes) -> bool:
    """Read *data* as a DiskSpd command line."""
    return accepts(lambda: diskspd.parse(data.decode("utf-8", "replace")))


JOBS = [
    b"[global]\nioengine=libaio\ndirect=1\nbs=4k\niodepth=32\nruntime=10\n[a]\nrw=randread\n"
    b"numjobs=4\nfilename=/dev/nvme0n1:/dev/nvme1n1\n[b]\nstonewall\nrw=randrw\nrwmixread=70\n",
    b"[x]\nrw=write\nbssplit=4k/60:64k/40\nsize=10g\noffset=5%\nrate_iops=1000,500\n"
    b"thinktime=100us\nfsync=16\n",
]
LINES = [
    b"-b4K -t32 -o32 -w30 -r -Su -d10 -L #1",
    b"diskspd.exe -b64K -F8 -O16 -si64K -T1M -w100 -g100i -rs50 -f10G -B1M:2G C:\\a.dat D:\\b.dat",
]
profile_case = OneFile("profile.toml", lambda path: catalog.read(None, path))
goal_case = OneFile("goal.toml", load_goal)
scenario_case = OneFile("scenario.toml", load_scenario)
TARGETS: list[Target] = [
    *_readers(),
    Target("scenario", lambda: _contents(EXAMPLES, "*.toml"), scenario_case),
    Target("describe", dump_seeds, describe_case),
    Target("profile", lambda: _contents(PROFILES, "*/*.toml"), profile_case),
    Target("goal", lambda: _contents(EXAMPLES, "goal*.toml"), goal_case),
    Target("set", lambda: SETS, set_case),
    Target("over", lambda: OVERS, over_case),
    Target("fio-job", lambda: JOBS, fio_job_case),
    Target("diskspd-line", lambda: LINES, diskspd_case),
]
