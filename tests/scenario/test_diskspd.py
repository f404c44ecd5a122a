"""DiskSpd command lines: what shapes the load, what is listed as ignored, what is refused."""

import re

import pytest

from nvmesim.errors import ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.loads.diskspd import parse
from nvmesim.scenario.resolve import resolve
from tests.scenario.conftest import REFUSED
from tests.servers import one_server

# RUVDS, 2022, NVMe across UPI.
PUBLISHED = "DiskSpd64.exe -b4K -t32 -o32 -w0 -d10 -r -S -c100G F:/testfile.dat G:/testfile.dat"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("x.dat", {"block_sizes": ((65536, 1.0),), "threads": 1, "outstanding": 2, "read": 1.0}),
        ("x.dat", {"access": "sequential"}),
        ("-w30", {"read": 0.7}),
        ("-r", {"access": "random", "align": 65536}),
        ("-b4K -r64K", {"align": 65536}),
        ("-b4K -r8b", {"align": 32768}),
        ("-rs70", {"access": "random"}),
        ("-si", {"access": "sequential", "interlocked": True}),
        ("-si4096", {"interlocked": True}),
        ("-F8 -o4", {"threads": 8, "threads_are_per_target": False, "outstanding": 4}),
        ("-F8 -o4", {"outstanding_per": "thread-target"}),
        ("-F8 -O4", {"outstanding": 4, "outstanding_per": "thread"}),
        ("-t8 -o4", {"threads": 8, "threads_are_per_target": True}),
        ("-B1G:10G", {"offset": 2**30, "span": 10 * 2**30}),
        ("-B1G -f3G", {"offset": 2**30, "span": 2 * 2**30}),
        ("-f10G", {"span": 10 * 2**30}),
        ("-b4K -g1000i", {"rate_limit": 1000.0}),
        ("-b4K -g4096", {"rate_limit": 1000.0}),
        ("-i16 -j5", {"think_every": 16, "think_ps": 5 * 10**9}),
        # FILE_FLAG_WRITE_THROUGH is a matter of writes; -S alone turns off the file cache only
        *(
            (line, {"write_through": True})
            for line in ("-w100 -Sh", "-w30 -Suw", "-w9 -Sw", "-w9 -h")
        ),
        *((line, {"write_through": False}) for line in ("-w9 -Su", "-w9 -S", "-w9", "-w0 -Sh")),
    ],
)
def test_flags_that_shape_the_load(flags, expected):
    fields = parse(flags).fields
    assert {key: fields[key] for key in expected} == expected


UNSHAPED = "-T1M -d60 -W5 -C0 -D500 -L -Zr -Z20M -x -n -a0,1 -ag0,1 -z -l -I3 -Su -Sr -Rxml -v -frs"


@pytest.mark.parametrize("flag", UNSHAPED.split())
def test_flags_that_do_not_are_listed(flag):
    assert flag in parse(flag).ignored


@pytest.mark.parametrize(("line", "share"), [("-rs70", 0.7), ("-r", 1.0), ("-si", 0.0)])
def test_a_share_of_random_requests_is_listed(line, share):
    load = parse(line)
    assert load.random_fraction == share
    assert any("as random" in text for text in load.ignored) == (0 < share < 1)


def test_a_cached_run_is_said_not_to_be_modelled():
    assert any("file cache" in text for text in parse("-b4K").ignored)
    assert not any("file cache" in text for text in parse("-b4K -Sh").ignored)


@pytest.mark.parametrize(("line", "said"), REFUSED["diskspd"].items())
def test_lines_that_are_refused(line, said):
    with pytest.raises(ScenarioError, match=re.escape(said)) as caught:
        parse(line, key="workload.0.diskspd")
    assert str(caught.value).startswith("workload.0.diskspd: ")
    assert "\n" not in str(caught.value)


def scenario(line, n_drives=4, **tables):
    load = {"diskspd": line}
    given = one_server("intel-p4610-1.6tb", load, n_drives, stack="spdk", **tables)
    return resolve(scenario_from_dict(given))


def test_named_targets_are_laid_on_what_is_there():
    two = scenario(PUBLISHED, 2).workload[0]
    assert [target.name for target in two.targets] == ["drive0", "drive1"]
    assert (two.n_threads, two.in_flight) == (64, 2048)
    four = scenario(PUBLISHED)
    assert [target.name for target in four.workload[0].targets] == ["drive0", "drive1"]
    assert any("2 files named" in text for text in four.assumptions)
    volume = scenario(PUBLISHED, volume={"raid": "raid0"}).workload[0]
    assert [(t.name, t.part, t.parts) for t in volume.targets] == [
        ("volume0", 0, 2),
        ("volume0", 1, 2),
    ]


def test_a_line_without_targets_means_all():
    resolved = scenario("-b4K -t32 -o32 -w30 -r -S -d10")
    assert len(resolved.workload[0].targets) == 4
    assert resolved.ignored == ("workload.0: -S", "workload.0: -d10")


def test_a_file_larger_than_the_drive_is_refused():
    with pytest.raises(ScenarioError, match="offset \\+ span is 100 TiB"):
        scenario("-b4K -c100T x.dat", 1)
