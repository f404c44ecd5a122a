"""What is fuzzed: every reader, and the readers of scenarios, job files and `inputs`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from nvmesim.capture.registry import READERS, Reader, guarded_read
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads import diskspd, fio_job
from tests.capture.contract import check_capture, check_refusal, check_whole
from tests.fuzz import inputs
from tests.fuzz.inputs import accepts
from tests.fuzz.memory import MemorySource

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "capture" / "data"
CORPUS = ROOT / "tests" / "corpus"
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


def _scenario_seeds() -> list[bytes]:
    files = sorted((ROOT / "examples").glob("*.toml"))
    return [path.read_bytes() for path in files]


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
TARGETS: list[Target] = [
    *_readers(),
    Target("scenario", _scenario_seeds, inputs.scenario_case),
    Target("describe", inputs.dump_seeds, inputs.describe_case),
    Target("profile", inputs.profile_seeds, inputs.profile_case),
    Target("goal", inputs.goal_seeds, inputs.goal_case),
    Target("set", lambda: inputs.SETS, inputs.set_case),
    Target("over", lambda: inputs.OVERS, inputs.over_case),
    Target("fio-job", lambda: JOBS, fio_job_case),
    Target("diskspd-line", lambda: LINES, diskspd_case),
]
