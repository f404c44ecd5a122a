"""Small files that ask for all of a machine: refused in one line that says the limit and the key,
or answered at once. Nothing of their size is made first."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nvmesim as ns
from nvmesim.catalog.toml import checked_toml
from nvmesim.cli.main import run_command
from nvmesim.errors import LimitError
from nvmesim.model.lower import lower
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.servers import bare, one_server

DRIVE = "samsung-980pro-1tb"
HEAD = f"""
[server]
stack = "linux-io_uring"
[[server.sockets]]
cpu = "xeon-gold-6130"
[[drives]]
profile = "{DRIVE}"
count = 4
"""
RAID0 = '[volume]\nraid = "raid0"\nchunk = "4 KiB"\n'
LOAD = "[[workload]]\n"
SIZES = ",".join(f'"{4 * i} KiB" = 0.001' for i in range(1, 1001))
BOMBS = {
    # what: the rest of the file, and what the refusal says
    "requests outstanding": (
        f"{LOAD}threads = 1024\noutstanding = 1024\n",
        "threads x outstanding x targets: 4,194,304 requests outstanding in all; 262,144 at most",
    ),
    "threads": (f"{LOAD}threads = 65536\noutstanding = 1\n", "262,144 threads in all; 65,536 at"),
    "threads of an open loop": (f'{LOAD}rate = "1M/s"\nthreads = 65536\n', "65,536 at most"),
    "drives": (
        f'[[drives]]\nprofile = "{DRIVE}"\ncount = 1024\n' * 20 + f"{LOAD}outstanding = 1\n",
        "drives: 20,484 drives in all; 4,096 at most",
    ),
    "volumes": (
        '[[volume]]\nraid = "raid1"\n' * 600 + f"{LOAD}outstanding = 1\n",
        "volume: 600 volumes in all; 512 at most",
    ),
    "workloads": (f"{LOAD}outstanding = 1\n" * 5000, "workload: 5,000 workloads in all; 256 at"),
    "sizes": (
        f"{LOAD}outstanding = 1\nblock_size = {{ {SIZES} }}\n",
        "workload.0.block_size: 1,000 sizes in all; 64 at most",
    ),
    "targets": (
        f"{LOAD}outstanding = 1\ntargets = [{'0,' * 200_000}]\n",
        "workload.0.targets: 200,000 targets in all; 4,096 at most",
    ),
    "kinds": (
        f"{LOAD}outstanding = 1\ntargets = 4096\n" * 9,
        "block_size x targets: 40,960 kinds of requests in all; 32,768 at most",
    ),
    "key parts": (f"[{'a.' * 100_000}a]\n", "line 9 has a key of more than 32 parts"),
    "commands of one request": (
        f'{RAID0}{LOAD}outstanding = 1\nblock_size = "1 GiB"\n',
        "workload.0.block_size: a request is 262,144 commands at once; 4,095 at most",
    ),
    "DiskSpd": (f'{LOAD}diskspd = "-b4K -t65536 -o65536 -r"\n', "65,536 at most"),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_file_that_asks_for_too_much(what, tmp_path, refused):
    rest, said = BOMBS[what]
    file = tmp_path / "bomb.toml"
    file.write_text(HEAD + rest)
    began = time.process_time()
    assert said in refused("run", file)
    assert time.process_time() - began < 10  # they took minutes and gigabytes


F1 = """
[volume]
raid = "raid6"
chunk = "4 KiB"
[[workload]]
block_size = "64 MiB"
align = "4 KiB"
read = 0.0
outstanding = 1
"""


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (F1, "workload.0.block_size: a request is 16,7"),  # took 12 GB
        (F1.replace("64 MiB", "16 MiB"), "a request is "),
        (F1.replace("4 KiB", "512 KiB", 1).replace("outstanding", 'access = "sequential"\noutst'
         "anding"), "too many pieces"),
        (F1.replace("4 KiB", "1 GiB", 1).replace("64 MiB", "512 B"), "places where requests may"),
    ],
)  # fmt: skip
def test_plans_are_bounded_before_they_are_made(rest, said, tmp_path, refused):
    file = tmp_path / "bomb.toml"
    head = HEAD.replace(DRIVE, "sata-ssd").replace("count = 4", "count = 100")
    file.write_text(head + rest)
    began = time.process_time()
    assert said in refused("run", file, "--max-memory", "100 MiB")
    assert time.process_time() - began < 5


def test_requests_under_way_are_counted_before_they_get_room(tmp_path, refused):
    file = tmp_path / "many.toml"
    file.write_text(f"{HEAD}{LOAD}threads = 64\noutstanding = 256\n")
    said = refused("run", file, "--max-memory", "1 MiB")
    assert "requests and commands in flight at once" in said
    assert "the limit is 1 MiB (--max-memory)" in said


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_backlog_that_grows_in_the_run(engine, monkeypatch):
    """Half of the time so many come that no room is enough: noticed when the room is to grow."""
    from nvmesim import limits

    monkeypatch.setenv(limits.VARIABLE, str(8 << 20))
    bursty = offered("300k/s", bursts={"on": "10 s", "off": "90 s", "lengths": "fixed"})
    with pytest.raises(LimitError, match=r"in flight at once .* the limit is 8 MiB"):
        bare(bursty, engine=engine)


@pytest.mark.parametrize("text", ["a.b = 1", 's = "1.2.3"', "x = 1.5\n" * 100, "[a.b.c]\nd.e = 1"])
def test_keys_as_people_write_them(text):
    assert checked_toml(text) == text


@pytest.mark.parametrize("part", ["a", '"a"', "'a'", " a "])
def test_long_keys_are_seen_however_they_are_written(part):
    with pytest.raises(ValueError, match="a key of more than 32 parts"):
        checked_toml(".".join([part] * 50) + " = 1")


def test_long_keys_and_tables_without_end(tmp_path, refused):
    file = tmp_path / "s.toml"
    file.write_text(f"{HEAD}{LOAD}outstanding = 1\n")
    began = time.process_time()
    refused("run", file, "--set", f"name={{{'a.' * 50_000}a=1}}", "--set", "run.seed=x")
    assert time.process_time() - began < 10
    file = tmp_path / "points.csv"
    file.write_text("op,iodepth,iops\n" + "randread,1,1000\n" * 10_001)
    assert "has more than 10,000 points" in refused("calibrate", file)


def offered(rate: str, **load: object) -> ns.Scenario:
    return scenario_from_dict(one_server(DRIVE, {"rate": rate, **load}))


@pytest.mark.parametrize("rate", ["1e9/s", "1e12/s"])
def test_an_absurd_rate_is_unstable_at_once(rate):
    result = bare(offered(rate))
    assert result.bottleneck.verdict == "unstable"
    assert result.requests < 50_000
    grows = float(rate[:-2]) - result.total.iops.value
    assert result.bottleneck.backlog_per_s == pytest.approx(grows, rel=0.01)
    assert result.total.latency.percentiles[99.0] is None


def test_an_overload_is_told_from_a_long_delay_and_a_carried_rate():
    """Of both only the first moments are seen, in which stations fill up one after the other."""
    carried, absurd = (bare(offered(rate)).total.iops.value for rate in ("12M/s", "1e9/s"))
    assert absurd == pytest.approx(carried, rel=0.5)
    # For a second nothing completes, and then all that comes does.
    tables = offered("25k/s").to_dict()
    tables["drives"][0] |= {"delay": "1 s", "count": 40, "link": "pcie3 x1"}
    from nvmesim.predict import pilots

    resolved = resolve(scenario_from_dict(tables))
    lowered = lower(resolved)
    assert pilots.carried_share(resolved, lowered) < pilots.CARRIED
    same, _, left_out = pilots.lowered_rate(resolved, lowered)
    assert (same, left_out) == (resolved, 0.0)
    from nvmesim.predict.pilots import lowered_rate

    resolved = resolve(offered("500k/s"))
    same, _, left_out = lowered_rate(resolved, lower(resolved))
    assert (same, left_out) == (resolved, 0.0)


def test_max_time_keeps_what_was_finished_of_runs_and_sweeps(files, capsys, tmp_path):
    requests = "run.requests=2000000000"
    assert run_command(["run", str(files["scenario"]), "--set", requests, "--json",
                        "--max-time", "3 s"]) == 1  # fmt: skip
    out, said = capsys.readouterr()
    assert json.loads(out)["converged"] is False
    assert json.loads(out)["requests"] > 0
    assert said.strip().endswith("stopped after --max-time 3 s: what was finished is printed")
    out = tmp_path / "s.parquet"
    over = "workload.outstanding=1..40000"
    assert run_command(["sweep", str(files["scenario"]), "--over", over, "-o", str(out),
                        "--workers", "1", "--no-cache", "--max-time", "4 s"]) == 1  # fmt: skip
    said = capsys.readouterr().err
    assert "--resume continues" in said
    assert said.strip().endswith("stopped after --max-time 4 s")
    assert Path(f"{out}.partial").stat().st_size > 0


@pytest.mark.parametrize("stated", ["0 s", "soon", "1 ps"])
def test_times_that_are_none(stated, files, refused):
    assert stated in refused("run", files["scenario"], "--max-time", stated)


LIMIT = 100 << 20
ROOM = 1 << 30  # address space of Python and its libraries, beside what is planned

PROGRAM = """
import json, os, random, resource, sys
from nvmesim.errors import InputError
from nvmesim.model.lower import lower
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

def tables(r):
    size = lambda low, high: f"{2 ** r.randint(low, high)} B"
    n = r.choice([2, 3, 4, 5, 8, 24, 100])
    raid = r.choice(["raid0", "raid1", "raid10", "raid5", "raid6", "raidz1", "zfs-mirror"])
    volume = {"raid": raid}
    if not raid.startswith(("raidz", "zfs")):
        volume["chunk"] = size(12, r.choice([16, 20, 36]))
    if raid in ("raid5", "raid6"):
        volume["layout"] = r.choice(["left-symmetric", "left-asymmetric", "parity-first"])
        volume["rebuild"] = r.random() < 0.2
    if r.random() < 0.2 and volume.get("chunk"):
        volume["bitmap"] = "internal"
    if r.random() < 0.3 and raid == "raid10":
        volume["degraded"] = sorted(r.sample(range(n), 2))
        volume["read_policy"] = "shortest-queue"
    load = {
        "block_size": size(9, r.choice([14, 20, 27])), "align": size(9, r.choice([12, 20])),
        "access": r.choice(["random", "sequential"]), "read": r.choice([0.0, 0.5, 1.0]),
        "outstanding": r.choice([1, 64]),
    }
    return {
        "server": {"sockets": [{"cpu": "epyc-9654"}]},
        "drives": [{"profile": "sata-ssd", "count": n}], "volume": volume, "workload": load,
    }

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
answered = 0
for seed in range(int(sys.argv[1])):
    try:
        lower(resolve(scenario_from_dict(tables(random.Random(seed)))))
        answered += 1
    except InputError:
        pass
print(json.dumps(answered))
"""


@pytest.mark.long
def test_what_is_planned_stays_within_the_memory_stated(monkeypatch):
    """A MemoryError, or a minute for one of them, ends the program and fails the test."""
    monkeypatch.setenv("NVMESIM_MAX_MEMORY", str(LIMIT))
    args = [sys.executable, "-c", PROGRAM, "60", str(ROOM + 2 * LIMIT)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 15 < json.loads(done.stdout) < 55  # some of each kind
