"""fio's job files and options: what they say, what is ignored, and when they say nothing."""

import re

import pytest

from nvmesim.errors import ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.loads.fio_job import load, parse
from nvmesim.scenario.loads.fio_options import FioOptions, parse_bytes
from nvmesim.scenario.resolve import resolve
from tests.scenario.conftest import REFUSED
from tests.servers import one_server


def only(content):
    """Return the one load of a job with the options in *content*."""
    (one,) = parse("[job]\n" + content)
    return one


def test_global_is_inherited_by_what_follows():
    readers, writer = parse(
        "; two jobs together\n[global]\nioengine=libaio\ndirect=1\nbs=4k\n"
        "[readers]\nrw=randread\niodepth=32\nnumjobs=4\n[global]\nbs=64k\n[writer]\nrw=write\n"
    )
    assert (readers.name, writer.name) == ("readers", "writer")
    keys = ("threads", "outstanding", "outstanding_per", "threads_are_per_target", "block_sizes")
    found = [readers.fields[key] for key in keys]
    assert found == [4, 32, "thread", False, ((4096, 1.0),)]
    keys = ("access", "read", "block_sizes")
    assert [writer.fields[key] for key in keys] == ["sequential", 0.0, ((65536, 1.0),)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("rw=randread", {"access": "random", "read": 1.0}),
        ("rw=randwrite", {"access": "random", "read": 0.0}),
        ("readwrite=randrw", {"read": 0.5}),
        ("rw=randrw\nrwmixread=70", {"read": 0.7}),
        ("rw=randrw\nrwmixwrite=20", {"read": 0.8}),
        ("rw=randrw\nrwmixread=70\nrwmixwrite=20", {"read": 0.8}),
        ("rw=rw", {"access": "sequential", "read": 0.5}),
        *((f"bs={text}", {"block_sizes": ((n, 1.0),)}) for text, n in (
            ("4kb", 4096), ("4K", 4096), ("1m", 2**20), ("512", 512), ("64ki", 64000))),
        ("kb_base=1000\nbs=4ki", {"block_sizes": ((4096, 1.0),)}),
        ("bssplit=4k/60:64k/40", {"block_sizes": ((4096, 0.6), (65536, 0.4))}),
        ("bssplit=4k/60:64k/", {"block_sizes": ((4096, 0.6), (65536, 0.4))}),
        ("bssplit=4k:64k", {"block_sizes": ((4096, 0.5), (65536, 0.5))}),
        ("bsrange=4k-8k", {"block_sizes": ((4096, 0.5), (8192, 0.5))}),
        ("rw=randwrite\nbs=4k,8k", {"block_sizes": ((8192, 1.0),)}),
        ("rw=randrw\nbs=4k,8k", {"write_block_sizes": ((8192, 1.0),), "align": 4096}),
        ("bs=8k\nba=4k", {"align": 4096}),
        ("rw=read\nrate_iops=1000", {"rate_limit": 1000.0}),
        ("rw=write\nrate_iops=1000,500", {"rate_limit": 500.0}),
        ("rw=randrw\nrate_iops=1000,500", {"rate_limit": 1500.0}),
        ("rw=read\nbs=4k\nrate=4m", {"rate_limit": 1024.0}),
        ("thinktime=100\nthinktime_blocks=4", {"think_ps": 10**8, "think_every": 4}),
        ("thinktime=2ms", {"think_ps": 2 * 10**9}),
        ("filename=/dev/a:/dev/b\nsize=8g", {"span": 4 * 2**30}),
        ("offset=1g\nsize=2g", {"offset": 2**30, "span": 2 * 2**30}),
        ("numa_cpu_nodes=1", {"socket": 1}),
        ("ioengine=libaio\niodepth=8", {"outstanding": 8}),
        ("ioengine=psync\niodepth=8", {"outstanding": 1}),
        ("rw=randwrite\nfsync=8", {"sync_every": 8, "write_through": False}),
        ("rw=randrw\nfdatasync=1", {"sync_every": 1, "write_through": False}),
        ("rw=write\nsync=1", {"sync_every": 0, "write_through": True}),
        ("rw=write\nsync=dsync\nfsync=2", {"sync_every": 2, "write_through": True}),
        ("rw=write\nfsync=0\nsync=none", {"sync_every": 0, "write_through": False}),
        ("rw=randread\nfsync=1", {"sync_every": None}),  # reads flush nothing
        ("ioengine=libaio\niodepth=64\niodepth_batch=16", {"batch": 16}),
        ("ioengine=libaio\niodepth=64\niodepth_batch_submit=0", {"batch": 64}),
        ("ioengine=libaio\niodepth=8\niodepth_batch_submit=32", {"batch": 8}),
        ("ioengine=libaio\niodepth=8", {"batch": None}),
    ],
)  # fmt: skip
def test_options_that_shape_the_load(content, expected):
    fields = only(content).fields
    assert {key: fields.get(key) for key in expected} == expected


def test_files_are_split_at_colons_that_are_not_escaped():
    assert only(r"filename=/dev/a:/dev/b\:1").files == ("/dev/a", "/dev/b:1")


def test_ignored_options_are_listed():
    ignored = only(
        "runtime=60\ntime_based\nramp_time=5\ngroup_reporting\nioengine=libaio\n"
        "direct=0\nwrite_lat_log=x\nrandom_distribution=random\nfsync=0"
    ).ignored
    for text in ("runtime=60", "time_based=1", "ramp_time=5", "ioengine=libaio"):
        assert text in ignored
    assert any("page cache" in text for text in ignored)
    barrier, depth = (only(t).ignored for t in ("rw=write\nwrite_barrier=4", "iodepth=8"))
    assert "write_barrier=4: no engine acts on it" in barrier
    assert "iodepth=8: engine psync is synchronous, 1 taken" in depth


@pytest.mark.parametrize(("content", "said"), REFUSED["fio"].items())
def test_files_that_are_refused(content, said):
    with pytest.raises(ScenarioError, match=re.escape(said)) as caught:
        parse(content, where="job.fio")
    assert str(caught.value).startswith("job.fio")
    assert "\n" not in str(caught.value)


JOB = """
[global]
ioengine=libaio
direct=1
filename=/dev/nvme0n1
size=50%
runtime=30
[read]
rw=randread
iodepth=32
[write]
stonewall
rw=randwrite
"""


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "job.fio").write_text(JOB, "utf-8")
    return tmp_path


def tables(fio):
    return one_server("intel-p4510-1tb", {"fio": fio}, 2, stack="linux-libaio")


def test_one_section_of_a_file(lab):
    resolved = resolve(scenario_from_dict(tables("job.fio#read"), lab))
    (group,) = resolved.workload
    assert (group.name, group.read, group.in_flight) == ("read", 1.0, 32)
    assert group.span == 10**12 // 2 // 4096 * 4096
    assert [target.name for target in group.targets] == ["drive0"]
    assert "workload.0: runtime=30" in resolved.ignored


def test_sections_together_are_groups(lab):
    (lab / "two.fio").write_text("[a]\nrw=read\n[b]\nrw=randwrite\nnumjobs=3\n", "utf-8")
    groups = resolve(scenario_from_dict(tables("two.fio"), lab)).workload
    assert [(group.name, group.n_threads) for group in groups] == [("a", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("fio", "found"),
    [
        ("no.fio", r"'no\.fio'; there is no such file"),
        ("--name=x --rw=read --numa_cpu_nodes=3", "NUMA node 3 is not a socket"),
        ("job.fio", r"workload\.0\.fio: job\.fio: its sections run one after"),
        ("job.fio#raed", "has no section 'raed'; did you mean 'read'"),
    ],
)
def test_jobs_that_a_scenario_cannot_have(lab, fio, found):
    with pytest.raises(ScenarioError, match=found):
        scenario_from_dict(tables(fio), lab)


def test_a_command_line_is_accepted_too():
    (one,) = load("fio --name=x --rw=randread --bs=4k --iodepth=16 --ioengine=io_uring", "")
    assert (one.name, one.fields["outstanding"]) == ("x", 16)
    with pytest.raises(ScenarioError, match="is not an option"):
        load("--rw=randread /dev/nvme0n1", "")


def test_a_thread_that_polls_for_submissions():
    assert only("ioengine=io_uring\nsqthread_poll=1").fields["sqpoll"]
    load = {"fio": "fio --name=a --ioengine=io_uring --iodepth=4 --sqthread_poll=1"}
    found, other = (
        resolve(scenario_from_dict(one_server("micron-7450-pro-3.84tb", load, stack=stack)))
        for stack in ("linux-io_uring", "linux-libaio")
    )
    assert found.workload[0].sqpoll
    assert not other.workload[0].sqpoll
    assert "workload.0: sqthread_poll: stack linux-libaio has no such thread" in other.ignored


TWO_SIZES = {"read": 4096.0, "write": 65536.0}


@pytest.mark.parametrize(
    ("given", "asked", "answer"),
    [
        ({"ramp_time": "90"}, ("ramp_s",), 90.0),
        ({"ramp_time": "250us"}, ("ramp_s",), 250e-6),
        ({"ramp_time": "2 days"}, ("ramp_s",), None),
        ({"ramp_time": "soon"}, ("ramp_s",), None),
        ({"rw": "randread:1"}, ("access",), "random"),
        ({"rw": "randread:8"}, ("access",), None),  # eight in sequence from each random place
        ({"rw": "randread", "percentage_random": "60"}, ("access",), None),
        ({"name": "j"}, ("access",), "sequential"),  # fio's default is a sequential read
        ({"rw": "randtrim"}, ("read_fraction",), None),
        # the later one holds
        ({"rw": "randrw", "rwmixwrite": "20", "rwmixread": "70"}, ("read_fraction",), 0.7),
        ({"rw": "randrw", "rwmixread": "170"}, ("read_fraction",), None),
        ({"rw": "randrw", "rwmixwrite": "many"}, ("read_fraction",), None),
        ({"bssplit": "4k/50:8k:16k"}, ("block_sizes", "write"),
         {4096: 0.5, 8192: 0.25, 16384: 0.25}),
        ({"bssplit": "4k/50:4k/50"}, ("block_sizes", "write"), {4096: 1.0}),
        ({"bssplit": "4k/100:64k/0"}, ("block_sizes", "write"), {4096: 1.0}),
        ({"bssplit": "4k/120:64k"}, ("block_sizes", "write"), None),
        ({"bssplit": "4k/60:64k/60"}, ("block_sizes", "write"), None),
        # less than nothing is left for the third
        ({"bssplit": "4k/60:64k/60:8k"}, ("block_sizes", "write"), None),
        ({"bssplit": "4k/most:64k"}, ("block_sizes", "write"), None),
        ({"bssplit": "small/50:64k/50"}, ("block_sizes", "write"), None),
        ({"bssplit": "4k/100,8k/100"}, ("block_sizes", "write"), {8192: 1.0}),
        ({"bs": "4k,64k"}, ("block_sizes", "read"), {4096: 1.0}),
        ({"bs": "4k,64k"}, ("block_sizes", "write"), {65536: 1.0}),
        ({"bs": "some"}, ("block_sizes", "read"), None),
        ({"ioengine": "pvsync2", "iodepth": "32"}, ("iodepth", 32), 1),
        ({"ioengine": "libaio", "iodepth": "32"}, ("iodepth", None), 32),
        ({"ioengine": "libaio", "iodepth": "deep"}, ("iodepth", None), None),
        ({"ioengine": "libaio", "latency_target": "1ms"}, ("iodepth", 7), 7),
        ({}, ("iodepth", 5), 5),  # very old fio: the report alone knows
        ({"buffered": "1", "direct": "1"}, ("direct",), False),
        ({"direct": ""}, ("direct",), True),  # a flag without a value
        ({"direct": "no"}, ("direct",), False),
        ({"rate_iops": "1k,500"}, ("rate_iops", TWO_SIZES), 1524),
        ({"rate": "8m,"}, ("rate_iops", {"read": 4096.0}), 2048),
        ({"rate": "8m:4m"}, ("rate_iops", {"read": 4096.0}), 2048),
        ({"rate": "0"}, ("rate_iops", {"read": 4096.0}), None),
        ({"rate_iops": "100"}, ("rate_iops", {}), None),
    ],
)  # fmt: skip
def test_what_options_say(given: dict[str, str], asked: tuple, answer: object) -> None:
    found = getattr(FioOptions(given), asked[0])(*asked[1:])
    assert found == (pytest.approx(answer) if isinstance(answer, float | dict) else answer)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("0x1000", 4096), ("1.5k", 1536), ("2T", 2 << 40), ("4 k", None), ("", None)],
)
def test_sizes(text: str, n_bytes: int | None) -> None:
    assert parse_bytes(text) == n_bytes


def test_a_banner_that_says_nothing_leaves_it_unknown() -> None:
    banner = FioOptions({"ioengine": "libaio"}, complete=False)
    assert (banner.access(), banner.read_fraction(), banner.block_sizes("read")) == (None,) * 3
    assert (banner.iodepth(None), banner.direct(), banner.ramp_s()) == (None, None, None)
    mixed = FioOptions({"rw": "randrw"}, complete=False)
    assert mixed.read_fraction() is None
