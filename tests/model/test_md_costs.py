"""What md costs: rows of one thread or of workers, locks that spin, threads that share an array."""

import re

import pytest

from nvmesim.catalog.load import get, known_kernel, with_kernel, with_level
from nvmesim.errors import GeometryError, ScenarioError
from nvmesim.model.lowered import caveats
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict, with_values
from nvmesim.scenario.resolve import resolve
from tests.servers import bare, one_server

GHZ = 3.0
MEMORY = {
    "name": "memory", "capacity": "10 GB", "link": "pcie5 x16", "dies": 64, "channels": 64,
    "commands": "20M/s", "read_bandwidth": "60 GB/s", "write_bandwidth": "60 GB/s", "tags": 65536,
    "read": {"base": "2 us", "die": "0.01 us", "channel": "0.001 us", "unit": "128 KiB"},
    "write": {"base": "2 us", "program": "0.001 us", "buffer": "64 MiB", "unit": "128 KiB"},
}  # fmt: skip
"""A drive that is no limit."""


def tables(volume, load=None, *, drives=6, cores=16, sockets=1, **stack):
    cpu = {"cores": cores, "threads_per_core": 1, "ghz": GHZ, "lanes": 512, "pcie_generation": 5}
    if sockets > 1:
        cpu |= {"interconnect_links": 4, "interconnect_rate": "24 GT/s"}
    costs = {"submit": 1500, "complete": 1500, **stack}
    asked = {"threads": 16, "outstanding": 16, "read": 0.0} if load is None else load
    return {
        "server": {"stack": costs, "sockets": [{"cpu": cpu}] * sockets},
        "drives": [{"profile": MEMORY, "count": drives, "socket": 0}],
        "volume": {"chunk": "64 KiB", **volume},
        "workload": [{"block_size": "4 KiB", **asked}] if asked else [],
        "run": {"requests": 12000},
    }


def run(*args, reliefs=False, **more):
    asked = scenario_from_dict(tables(*args, **more))
    return simulate(asked, reliefs=reliefs, certainty=False)


def row_us(members):
    rows = get("raid-engine", "linux-md").rows
    return (rows.base.value + rows.per_member.value * members) / GHZ / 1e3


@pytest.mark.parametrize("kib", [4, 8, 16])
def test_one_thread_handles_a_row_after_the_other(kib):
    load = {"threads": 16, "outstanding": 16, "read": 0.0, "block_size": f"{kib} KiB"}
    found = run({"raid": "raid6"}, load)
    xor = kib * 1024 / 10e9 * 1e6
    assert found.total.iops.value == pytest.approx(1e6 / (kib / 4 * row_us(6) + xor), rel=0.01)
    assert (found.bottleneck.verdict, found.bottleneck.station) == ("raid-engine", "volume0 raid5d")


def test_its_time_is_cpu_time():
    found = run({"raid": "raid6"})
    own = 3000 / GHZ / 1e3  # what submitting and completing costs
    engine = with_level(get("raid-engine", "linux-md"), "raid6")
    own += (engine.per_request.value + 15 * engine.per_sharer.value) / GHZ / 1e3
    own += 5 * engine.per_child.value / GHZ / 1e3
    busy = found.cpu.logical_utilization * 16
    assert busy == pytest.approx(1 + found.total.iops.value * own / 1e6, rel=0.1)


@pytest.mark.parametrize(
    ("captured_on", "times"), [("linux-libaio", 2), ("linux-io_uring", 2), ("windows-2019", 1)]
)
def test_threads_of_a_faster_host_pay_less_in_md_too(captured_on, times):
    """And on another stack of its system: the processor is the same."""

    def rate(cycles):
        found = tables({"raid": "raid0"}, {"threads": 1, "outstanding": 64}, drives=2)
        captured = {"stack": captured_on, "stack_cycles": cycles}
        found["drives"][0]["profile"] = MEMORY | {"captured": captured}
        found["server"]["stack"] = "linux-libaio"
        return bare(found).total.iops.value

    assert rate(0.5) == pytest.approx(times * rate(1.0), rel=0.02)


def test_rows_that_are_written_whole_or_read_degraded():
    whole = {"threads": 4, "outstanding": 4, "read": 0.0, "block_size": "256 KiB"}
    found = run({"raid": "raid6"}, whole)
    n = 16  # rows of 4 data members
    assert found.total.iops.value == pytest.approx(1e6 / (n * row_us(6) / 2 + 26.2), rel=0.02)
    reads = {"threads": 16, "outstanding": 16, "read": 1.0}
    found = run({"raid": "raid5", "degraded": [0]}, reads)
    assert found.bottleneck.station == "volume0 raid5d"
    assert found.total.iops.value == pytest.approx(6 * 1e6 / (row_us(6) / 2), rel=0.05)


@pytest.mark.parametrize("drives", [4, 8])
def test_flushes_pass_one_lock_before_6_12(drives):
    """A flush goes to each member under it, also where their caches need none."""
    load = {"threads": 64, "outstanding": 1, "read": 0.0, "fsync": 1}
    before, after = (
        run({"raid": "raid0", "kernel": kernel}, load, drives=drives, cores=64)
        for kernel in ("5.14", "6.12")
    )
    each_us = drives * 1.0
    assert before.total.iops.value == pytest.approx(1e6 / each_us, rel=0.01)
    assert before.bottleneck.station == "volume0 flush lock"
    assert after.total.iops.value > 4 * before.total.iops.value


@pytest.mark.parametrize(("outstanding", "wake_ups"), [(1, 3), (16, 0)])
def test_a_lone_write_wakes_raid5d_three_times_and_a_busy_one_is_awake(outstanding, wake_ups):
    load = {"threads": outstanding, "outstanding": outstanding, "read": 0.0}
    rows = {"wakeup": 6000, "wakeup_half": "0 us"}

    def latency_us(**more):
        engine = {"extends": "linux-md", "by_level": {"raid5": {"rows": {**rows, **more}}}}
        return run({"raid": "raid5", "engine": engine}, load).total.latency.mean * 1e6

    asleep, awake = latency_us(), latency_us(wakeup=0)
    assert asleep - awake == pytest.approx(wake_ups * 6000 / GHZ / 1e3, abs=0.01 * awake)


@pytest.mark.parametrize(("raid", "outstanding"), [("raid1", 1), ("raid5", 1), ("raid1", 16)])
def test_an_external_bitmaps_page_is_written_before_the_first_write_to_a_region(raid, outstanding):
    load = {"threads": outstanding, "outstanding": outstanding, "read": 0.0}
    first = {"chunk": "64 KiB", "since_clean": "1 ms"}  # so short that nearly all are first

    def latency_us(kind):
        volume = {"raid": raid, "bitmap": {"kind": kind, **first}, "engine": "linux-md"}
        drives = 2 if raid == "raid1" else 6
        return run(volume, load, drives=drives).total.latency.mean * 1e6

    page = get("raid-engine", "linux-md").bitmap_file.value / 1e6
    more = latency_us("external") - latency_us("none")
    if outstanding == 1:
        assert 0.98 * page < more < 1.1 * page  # raid5d sleeps meanwhile, and the deeper
    else:  # of 256 that wait all are noted by the next write of the page
        assert page < more < 3 * page


def test_workers_take_part_share_locks_and_are_a_group_a_node():
    alone = run({"raid": "raid6"}).total.iops.value
    two = run({"raid": "raid6", "group_thread_cnt": 2}, cores=32).total.iops.value
    assert 1.5 * alone < two < 2.1 * alone
    many = run({"raid": "raid6", "group_thread_cnt": 16}, cores=32)
    assert many.bottleneck.station == "volume0 stripe locks"
    shared = get("raid-engine", "linux-md").rows.shared.value / GHZ / 1e3
    assert many.total.iops.value == pytest.approx(1e6 / (shared * 32), rel=0.03)
    assert many.cpu.logical_utilization > 0.8  # most of it waits for the locks
    gone = {"raid": "raid6", "degraded": [0]}
    reads = {"threads": 16, "outstanding": 16, "read": 1.0}
    missing = run({**gone, "group_thread_cnt": 16}, reads, cores=32)  # a read of six needs its row
    assert missing.bottleneck.station == "volume0 stripe locks"
    assert missing.total.iops.value == pytest.approx(6e6 / (shared * 32), rel=0.03)
    flood = {"threads": 16, "read": 0.0, "rate": f"{2 * many.total.iops.value:.0f}/s"}
    over = run({"raid": "raid6", "group_thread_cnt": 16}, flood, cores=32)
    assert over.bottleneck.verdict == "unstable"
    assert over.bottleneck.bound_iops == pytest.approx(many.total.iops.value, rel=0.1)
    sides = {"cores": 32, "sockets": 2, "reliefs": True}
    away = run({"raid": "raid6", "group_thread_cnt": 16}, **sides)
    assert away.total.iops.value < many.total.iops.value  # twice the workers pass the locks
    assert {r.change: r.gain for r in away.bottleneck.reliefs}["half the md workers"] > 0.1
    two = tables({"raid": "raid5", "group_thread_cnt": 4}, sockets=2)
    assert resolve(scenario_from_dict(two)).volumes[0].workers == 8


@pytest.mark.parametrize(
    ("raid", "load", "further"),
    [
        ("raid0", {"read": 1.0, "block_size": "64 KiB"}, 0),
        ("raid0", {"read": 1.0, "block_size": "256 KiB"}, 3),
        ("raid10", {"read": 0.0}, 1),
        ("raid5", {"read": 0.0}, 0),  # raid5d sends them: its rows hold that
    ],
)
def test_each_further_command_of_a_request_costs_its_thread(raid, load, further):
    asked = {"threads": 1, "outstanding": 1, "access": "sequential", **load}

    def latency_us(cycles):
        return run({"raid": raid}, asked, per_child=cycles).total.latency.mean * 1e6

    more = latency_us(9000) - latency_us(0)
    assert more == pytest.approx(further * 9000 / GHZ / 1e3, abs=0.05)


def test_waiting_for_a_lock_burns_the_waiters_cpu():
    reads = {"threads": 16, "outstanding": 16, "read": 1.0}
    old = run({"raid": "raid5", "kernel": "5.10"}, reads, reliefs=True)
    lock = with_level(with_kernel(get("raid-engine", "linux-md"), "5.10"), "raid5")
    held = lock.locks["device_lock of reads"].read.value / 1e6
    assert old.total.iops.value == pytest.approx(1e6 / held, rel=0.01)
    assert old.cpu.logical_utilization == pytest.approx(1, abs=0.03)
    assert old.bottleneck.station == "volume0 device_lock of reads"
    assert old.bottleneck.verdict == "raid-engine"
    gains = {r.change: r.gain for r in old.bottleneck.reliefs}
    assert gains["kernel 5.14"] > 0.5
    assert gains["two arrays of half the members"] == pytest.approx(1, abs=0.05)


def test_locks_go_round_more_slowly_between_sockets_and_mirrors_wake_nobody():
    load = {"threads": 32, "outstanding": 16, "read": 1.0}
    one = run({"raid": "raid1", "kernel": "5.10"}, {**load, "socket": 0}, drives=2, sockets=2)
    both = run({"raid": "raid1", "kernel": "5.10"}, load, drives=2, sockets=2)
    assert one.total.iops.value == pytest.approx(1e6 / 0.68, rel=0.02)
    assert both.total.iops.value == pytest.approx(1e6 / (0.68 + 0.5 * 3 * 0.092), rel=0.02)
    writes = {"threads": 16, "outstanding": 16, "read": 0.0}
    before, after = (
        run({"raid": "raid1", "kernel": kernel}, writes, drives=2) for kernel in ("6.3", "6.5")
    )
    assert before.total.iops.value == pytest.approx(1e6 / 2.05, rel=0.02)
    assert after.total.iops.value > 2 * before.total.iops.value


def test_threads_that_share_a_drive_slow_each_other_and_a_file_each_is_tried():
    load = {"threads_total": 4, "outstanding": 32, "read": 1.0}
    shared = {**tables({}, load, drives=1, per_sharer=600), "volume": []}
    alone = {**tables({}, load, drives=1), "volume": []}
    slow, fast = bare(shared), bare(alone)
    assert slow.total.iops.value == pytest.approx(4e6 / ((3000 + 3 * 600) / GHZ / 1e3), rel=0.02)
    assert fast.total.iops.value == pytest.approx(4e6 / (3000 / GHZ / 1e3), rel=0.02)
    load = {"threads": 4, "outstanding": 32, "read": 1.0}
    shared = {**tables({}, load, drives=1, per_sharer=600), "volume": []}
    found = simulate(scenario_from_dict(shared)).bottleneck
    gains = {r.change: r.gain for r in found.reliefs}
    assert gains["one file a thread"] == pytest.approx(4800 / 3000 - 1, rel=0.1)


def test_threads_of_raid0_are_stopped_by_md_and_one_member_costs_it_too():
    reads = {"threads": 16, "outstanding": 16, "read": 1.0}
    old = run({"raid": "raid0", "kernel": "5.15"}, reads)
    assert old.bottleneck.verdict == "raid-engine"
    assert "RAID engine's" in old.bottleneck.sentence
    one = run({"raid": "raid0", "kernel": "5.15"}, {**reads, "threads": 1})
    assert one.bottleneck.verdict == "cpu"
    reads = {"threads": 1, "outstanding": 64, "read": 1.0}
    found = run({"raid": "raid0"}, reads, drives=1)
    assert found.total.iops.value == pytest.approx(1e9 * GHZ / (3000 + 1000 + 500), rel=0.02)


def test_kernels_between_two_are_the_older_and_old_names_stay():
    scenario = tables({"raid": "raid5", "kernel": "5.15"})
    said = resolve(scenario_from_dict(scenario)).assumptions
    assert any("5.15 costs what 5.14 does" in text for text in said)
    assert known_kernel("6.17", ("4.18", "6.12")) == "6.12"
    assert known_kernel("7.0", ("4.18", "6.12")) == "6.12"  # it follows 6.19
    both = (
        resolve(scenario_from_dict(tables({"raid": "raid5", key: 512}))).volumes[0].stripe_cache
        for key in ("stripe_cache", "stripe_cache_size")
    )
    assert list(both) == [512, 512]
    assert known_kernel("3.0", ("4.18", "6.12")) == "4.18"
    old = resolve(scenario_from_dict(tables({"raid": "raid5", "kernel": "2.6"})))
    assert any("2.6 costs what 4.18 does" in text for text in old.assumptions)


@pytest.mark.parametrize(
    ("volume", "error", "says"),
    [
        ({"raid": "raid5", "kernel": "9.1"}, ScenarioError, "the nearest is '6.12'"),
        ({"raid": "raid5", "kernel": "new"}, ScenarioError, "a Linux kernel as '6.12'"),
        ({"raid": "raid5", "kernel": 6.1}, ScenarioError, "6.10 is another kernel"),
        ({"raid": "raid5", "kernel": "6.1", "engine": "none"}, GeometryError, "leave it out"),
        ({"raid": "raid0", "group_thread_cnt": 4}, GeometryError, "only raid5 and raid6"),
        ({"raid": "raid5", "bitmap": {"kind": "internal", "chunk": "3 MiB"}}, ScenarioError,
         "a power of two"),
        ({"raid": "raid5", "stripe_cache": 256, "stripe_cache_size": 512}, ScenarioError,
         "say the same; keep one"),
        ({"raid": "raid5", "check": True, "degraded": [0]}, GeometryError, "leave check out"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(volume, error, says):
    with pytest.raises(error, match=says) as found:
        scenario_from_dict(tables(volume))
    assert "\n" not in str(found.value)


def rebuild(volume, **more):
    return run({"sync_speed_max": "20 GB/s", "rebuild": True, **volume}, {}, **more)


def test_a_rebuild_needs_no_load_and_its_limit_is_said():
    found = rebuild({"raid": "raid6", "degraded": [1]})
    rows = get("raid-engine", "linux-md").rows
    us = (rows.restore.value + rows.per_member.value * 6) / GHZ / 1e3 + 5 * 4096 / 10e9 * 1e6
    assert found.rebuild.bytes_per_s == pytest.approx(4096 / us * 1e6, rel=0.02)
    assert found.rebuild.hours == pytest.approx(10e9 / found.rebuild.bytes_per_s / 3600, rel=0.01)
    assert found.bottleneck.station == "volume0 raid5d"
    limited = rebuild({"raid": "raid5", "degraded": [0], "sync_speed_max": "200 MB/s"})
    assert limited.rebuild.bytes_per_s == pytest.approx(200e6, rel=0.02)
    (said,) = [w for w in limited.warnings if w.code == "sync-speed-max"]
    (key,) = re.findall(r"[\w.]*sync_speed_max", said)  # as --set takes it
    faster = with_values(tables({"raid": "raid5", "degraded": [0], "rebuild": True}, {}),
                         {key: "300 MB/s"})  # fmt: skip
    assert scenario_from_dict(faster).volume[0].sync_speed_max == 300_000_000
    assert not any(
        "sync_speed_max" in w for w in rebuild({"raid": "raid5", "degraded": [0]}).warnings
    )
    with pytest.raises(GeometryError, match=r"no member is missing.*check = true"):
        scenario_from_dict(tables({"raid": "raid5", "rebuild": True}, {}))
    with pytest.raises(ScenarioError, match="workload is missing"):
        scenario_from_dict(tables({"raid": "raid5"}, {}))


def test_workers_make_it_faster_and_many_members_slower():
    alone = rebuild({"raid": "raid6", "degraded": [1]}).rebuild.bytes_per_s
    with_workers = rebuild({"raid": "raid6", "degraded": [1], "group_thread_cnt": 4})
    assert with_workers.rebuild.bytes_per_s == pytest.approx((1 + 3 * 0.64) * alone, rel=0.03)
    wide, wider = (
        rebuild({"raid": "raid6", "rebuild": False, "check": True}, drives=n) for n in (16, 17)
    )
    assert wider.rebuild.bytes_per_s < 0.7 * wide.rebuild.bytes_per_s


def test_reads_of_an_empty_drive_ask_no_die_and_wait_for_no_program():
    drive = {"profile": "samsung-980pro-1tb", "state": "empty"}
    load = {"threads": 1, "outstanding": 1, "read": 1.0}
    scenario = {**tables({}, load), "volume": [], "drives": [drive]}
    empty, full = bare(scenario), bare({**scenario, "drives": [{**drive, "state": "fresh"}]})
    assert empty.total.latency.mean < 0.5 * full.total.latency.mean
    # A RAID5 write reads first: on full dies it would wait for what is being programmed.
    slow = {"extends": "samsung-980pro-1tb", "write": {"program": "5 ms"}}
    asked = tables({"raid": "raid5"}, {"threads": 1, "outstanding": 1, "read": 0.0})
    fast, other = (
        bare({**asked, "drives": [{"profile": d, "count": 5, "state": "empty"}]}, requests=2000)
        for d in ("samsung-980pro-1tb", slow)
    )
    assert other.total.latency.mean == pytest.approx(fast.total.latency.mean, rel=0.02)


def disks(depth, read=1.0, **drive):
    profile = {"extends": "hdd-7200", **drive}
    load = {"threads": 1, "outstanding": depth, "read": read}
    scenario = {**tables({}, load), "volume": [], "drives": [{"profile": profile}]}
    return bare(scenario, requests=4_000)


@pytest.mark.parametrize("read", [0.0, 1.0])
def test_a_disk_sorts_what_it_holds(read):
    """By the shortest of n positioning times: 8 outstanding take 0.575 of the time each."""
    alone, eight = disks(1, read), disks(8, read)
    assert eight.total.iops.value / alone.total.iops.value == pytest.approx(1 / 0.575, rel=0.05)
    assert eight.members[0].utilization > alone.members[0].utilization


def test_a_disk_that_sorts_answers_writes_from_the_disk():
    with pytest.raises(ScenarioError, match=r"sorts = true needs write\.through"):
        disks(1, write={"through": False})


@pytest.mark.parametrize(("stack", "said"), [("spdk", True), ("linux-io_uring", False)])
def test_md_is_not_polled(stack, said):
    load, raid = {"threads": 1, "outstanding": 1}, {"raid": "raid1", "kernel": "6.5"}
    tables = one_server("intel-p4610-1.6tb", [load], 2, stack=stack, volume=[raid])
    codes = [warning.code for warning in caveats(resolve(scenario_from_dict(tables)))]
    assert ("polled-volume" in codes) == said


@pytest.mark.parametrize(("raid", "commands"), [("raid0", 1), ("raid1", 2), ("raid5", 4)])
@pytest.mark.parametrize("of", ["adapter", "link"])
def test_commands_through_an_adapter_and_those_of_scsi_cost_cycles(of, raid, commands):
    """A mirrored write is two of them. raid5d sends the four of a row itself, through SAS."""
    cycles = 20_000
    by_row = raid == "raid5"
    drives = 6 if by_row else 2

    def full(each):
        costs = {"scsi": each} if of == "link" else {}
        asked = tables({"raid": raid}, drives=drives, cores=16 if by_row else 1, **costs)
        drive = {"profile": MEMORY | {"link": "sas4 x4", "interface": "sas"}, "count": drives}
        if of == "adapter":
            asked["adapters"] = [
                {"name": "a", "kind": "controller", "link": "pcie5 x16", "commands": "100M/s",
                 "cycles_per_command": each}
            ]  # fmt: skip
            drive = {"profile": MEMORY, "count": drives, "behind": "a"}
        asked["drives"] = [drive]
        found = simulate(scenario_from_dict(asked), reliefs=False, certainty=False)
        assert found.bottleneck.verdict == ("raid-engine" if by_row else "cpu")
        return 1e9 * GHZ / found.total.iops.value

    assert full(cycles) - full(0) == pytest.approx(commands * cycles, rel=0.1)
