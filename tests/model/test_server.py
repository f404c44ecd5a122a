"""The server around the drives against calculations by hand: links, sockets, memory, cores."""

import copy

import pytest

from nvmesim.catalog import links
from nvmesim.errors import ScenarioError
from nvmesim.predict.simulate import simulate
from nvmesim.predict.upgrades import one_more_interconnect
from nvmesim.scenario.load import apply_sets, scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.servers import bare, one_server

CPU = {"cores": 8, "threads_per_core": 1, "ghz": 2.0, "lanes": 64, "pcie_generation": 3}
STACK = {"submit": 2000, "complete": 2000}
DRIVE = {"extends": "micron-7450-pro-3.84tb"}
BASE = {
    "server": {"stack": STACK, "sockets": [{"cpu": CPU}]},
    "drives": [{"profile": DRIVE, "count": 2, "link": "pcie3 x4", "socket": 0}],
    "workload": [{"block_size": "4 KiB", "threads": 4, "outstanding": 8, "read": 1.0}],
    "run": {"requests": 20000},
}
SOCKET = "{ cpu = { cores = 8, threads_per_core = 1, ghz = 2.0, lanes = 64, pcie_generation = 3 } }"
TWO = [
    f"server.sockets=[{SOCKET}, {SOCKET}]",
    'server.interconnect={ kind = "upi", links = 2, rate = "10.4 GT/s", latency = "50 ns" }',
]
ON_0 = "workload.0.socket=0"
ON_1 = "workload.0.socket=1"


def tables(*sets):
    """`BASE` with changes as of --set; ``key=@`` leaves a key of a list's only element out."""
    changed = copy.deepcopy(BASE)
    for gone in (text[:-2].split(".") for text in sets if text.endswith("=@")):
        changed[gone[0]][int(gone[1])].pop(gone[2], None)
    return apply_sets(changed, [text for text in sets if not text.endswith("=@")])


def run(*sets, reliefs=False, precision=None):
    scenario = scenario_from_dict(tables(*sets))
    return simulate(scenario, reliefs=reliefs, precision=precision, certainty=reliefs)


def station(result, name):
    found = [s for s in result.stations if s.name == name]
    assert found, f"{name} is none of {[s.name for s in result.stations]}"
    return found[0]


def has(result, text):
    return [s.name for s in result.stations if text in s.name]


def resolved(*sets):
    return resolve(scenario_from_dict(tables(*sets)))


def test_dma_copies_and_parity_use_the_memory():
    """Six channels of 2,666 MT/s and 8 bytes, of which 80 % are usable."""
    memory = station(run(), "socket0 memory")
    assert memory.kind == "link"
    assert memory.service_mean_s == pytest.approx(4096 / (6 * 2666e6 * 8 * 0.8), rel=1e-3)
    assert memory.visits_per_request == pytest.approx(1, rel=1e-3)
    copied = station(run("server.stack.copies=1"), "socket0 memory")
    once = station(run(), "socket0 memory")
    assert copied.visits_per_request == pytest.approx(2, rel=1e-3)
    assert copied.visits_per_request * copied.service_mean_s == pytest.approx(
        3 * once.service_mean_s, rel=0.01
    )
    raid = ('volume={ raid = "raid5", chunk = "64 KiB" }', "drives.0.count=4", "workload.0.read=0")
    parity = station(run(*raid), "socket0 memory")
    # two reads, two writes, and the parity of 4 KiB that reads and writes as much
    assert parity.visits_per_request * parity.service_mean_s == pytest.approx(
        (4 + 2) * once.service_mean_s, rel=0.02
    )


def test_one_slow_channel_is_what_stops_large_reads():
    slow = 'server.sockets.0.memory={ channels = 1, rate = "800 MT/s" }'
    found = run(slow, 'workload.0.block_size="128 KiB"', reliefs=True)
    assert found.bottleneck.station == "socket0 memory"
    assert found.bottleneck.verdict == "link"
    assert found.total.bytes_per_s.value == pytest.approx(800e6 * 8 * 0.8, rel=0.02)
    relief = {r.change: r.gain for r in found.bottleneck.reliefs}["twice the memory channels"]
    assert relief > 0.2


@pytest.mark.parametrize("mps", [128, 256, 512])
def test_payload_of_packets_is_the_scenario_s(mps):
    found = run(f'server.max_payload="{mps} B"')
    wire = 4096 / mps * (mps + 24) + 92 + 48
    rate = 8e9 * 4 / 8 * 128 / 130 * (1 - 4 / 1538)
    assert station(found, "drive0 port up").service_mean_s == pytest.approx(wire / rate, rel=1e-3)


def test_a_drive_takes_the_smallest_payload_on_its_way():
    card = 'adapters=[{ name = "quad", link = "pcie3 x16", max_payload = "128 B" }]'
    here = resolved(card, 'drives.0.behind="quad"', "drives.0.socket=@")
    assert here.drives[0].link.mps == here.adapters[0].link.mps == 128
    assert resolved('server.max_read_request="4 KiB"').drives[0].link.mrrs == 4096


def test_drives_behind_a_chipset_share_its_dmi():
    """DMI 3 is four lanes of PCIe 3, taken from no CPU's budget."""
    chipset = 'adapters=[{ name = "pch", kind = "switch", link = "dmi3 x4" }]'
    where = ('drives.0.behind="pch"', "drives.0.socket=@", "drives.0.count=4")
    few = "server.sockets.0.cpu.lanes=0"
    found = run(chipset, *where, few, "workload.0.outstanding=64")
    ceiling = links.command_ceiling(links.parse_link("dmi3 x4"), "read", 4096)
    assert found.total.iops.value == pytest.approx(ceiling, rel=0.01)
    assert found.bottleneck.station == "pch uplink up"


def test_vmd_costs_each_drive_alike():
    """10 to 25 % at one to four drives on two Silver 4114, as published in words."""
    base = {
        "server": {"stack": "windows-2019", "sockets": [{"cpu": "xeon-silver-4114"}] * 2},
        "adapters": [{"name": "vmd0", "kind": "vmd", "link": "pcie3 x16"}],
        "workload": [{"block_size": "4 KiB", "threads_total": 40, "outstanding": 16}],
        "run": {"requests": 60000},
    }
    for count in (1, 2, 3, 4):
        drive = {"profile": "intel-p4510-1tb", "count": count, "state": "fresh"}
        off, on = (bare({**base, "drives": [d]}) for d in (drive, {**drive, "behind": "vmd0"}))
        loss = 1 - on.total.iops.value / off.total.iops.value
        print(f"{count} drives: VMD costs {loss:.1%}")
        assert 0.10 <= loss <= 0.25


def test_a_read_and_a_write_across_sockets_by_hand():
    """Data and ownership requests one way, grants and acknowledgements the other."""
    found = run(*TWO, ON_1)
    raw, lines = 2 * 20.8e9, 64
    data = 4096 / (raw * 0.82) + lines * 8 / raw
    assert station(found, "upi 0>1").service_mean_s == pytest.approx(data, rel=1e-3)
    assert station(found, "upi 1>0").service_mean_s == pytest.approx(2 * lines * 8 / raw, rel=1e-3)
    # a directory's entry is written with the line: twice the bytes at the buffers' socket
    assert station(found, "socket1 memory").service_mean_s == pytest.approx(
        2 * 4096 / (6 * 2666e6 * 8 * 0.8), rel=1e-3
    )
    assert not has(found, "socket0 memory")
    found = run(*TWO, ON_1, "workload.0.read=0")
    assert station(found, "upi 1>0").service_mean_s == pytest.approx(4096 / (raw * 0.82), rel=1e-3)
    assert station(found, "upi 0>1").service_mean_s == pytest.approx(lines * 8 / raw, rel=1e-3)


def test_crossing_adds_its_latency_once_for_each_hop():
    one = ("workload.0.threads=1", "workload.0.outstanding=1", "drives.0.count=1")
    near, far = (run(*TWO, *one, where).total.latency.mean for where in (ON_0, ON_1))
    raw = 2 * 20.8e9
    wires = 4096 / (raw * 0.82) + 3 * 64 * 8 / raw + 4096 / (6 * 2666e6 * 8 * 0.8)
    assert far - near == pytest.approx(4 * 50e-9 + wires, rel=0.02)


def test_credits_bound_what_the_wire_would_carry():
    """16 lines of 64 bytes a round trip of 100 ns are 10.24 GB/s."""
    large = ('workload.0.block_size="128 KiB"', "drives.0.count=8", ON_1)
    free = run(*TWO, *large)
    found = run(*TWO, *large, "server.interconnect.credits=16")
    assert free.total.bytes_per_s.value > 1.5 * 10.24e9
    assert found.total.bytes_per_s.value == pytest.approx(10.24e9, rel=0.01)
    assert found.bottleneck.station == "upi 0>1"
    more = run(*TWO, *large, "server.interconnect.credits=16", reliefs=True).bottleneck.reliefs
    assert {r.change: r for r in more}["3 UPI links instead of 2"].gain == pytest.approx(
        0.5, abs=0.05
    )
    assert suspects(found)["credits"].utilization == pytest.approx(1.0, abs=0.02)
    assert suspects(found)["wire"].utilization == pytest.approx(10.24 / (41.6 * 0.82), rel=0.03)
    assert "bound by credits" in found.crossing.sentence()
    assert found.to_json()["crossing"]["suspects"][0]["name"] == "wire"


@pytest.mark.parametrize(("links", "more"), [(2, "3 UPI links instead of 2"), (3, None)])
def test_no_more_links_between_sockets_are_offered_than_the_cpu_has(links, more):
    tables = one_server("intel-p4610-1.6tb", {"threads": 1, "outstanding": 1}, sockets=2)
    tables["server"]["interconnect"] = {"links": links}
    found = one_more_interconnect(resolve(scenario_from_dict(tables)))
    assert more == (found.text if found else None)


FACTORS = {
    # (submit, complete) in cycles: 2,000 each here; drives on socket 0
    "none": ((), 4000),
    "one factor": (("server.stack.remote=1.5",), 6000),
    "both away": (("server.stack.remote=1.5", "workload.0.buffers=0"), 6000),
}  # fmt: skip


@pytest.mark.parametrize("case", FACTORS)
def test_remote_costs_by_what_is_remote(case):
    sets, cycles = FACTORS[case]
    assert run(*TWO, ON_1, *sets).cpu.cycles_per_io == pytest.approx(cycles, rel=0.01)
    if not any("buffers" in s for s in sets):
        assert run(*TWO, ON_0, *sets).cpu.cycles_per_io == pytest.approx(4000, rel=0.01)


def test_what_sockets_share_and_interrupts_elsewhere_cost_cycles():
    shared = "server.stack.shared=1000"
    both = run(*TWO, shared)
    assert both.cpu.cycles_per_io == pytest.approx(5000, rel=0.01)
    assert run(*TWO, shared, ON_0).cpu.cycles_per_io == pytest.approx(4000, rel=0.01)
    sets = ("server.stack.interrupt=1000", ON_0, "workload.0.interrupts=1")
    found = run(*TWO, *sets)
    here, there = (s.logical_utilization for s in found.cpu.sockets)
    assert there / here == pytest.approx(1000 / 4000, rel=0.02)


def test_contention_makes_requests_dearer_with_busy_cpus():
    full = ("workload.0.outstanding=64", "server.stack.submit=20000", "drives.0.count=4")
    plain, contended = run(*full), run(*full, "server.stack.contention=0.02")
    assert plain.bottleneck.verdict == contended.bottleneck.verdict == "cpu"
    ratio = contended.total.iops.value / plain.total.iops.value
    assert ratio == pytest.approx(1 / (1 + 0.02 * 7), rel=0.01)


def test_a_lock_of_files_between_sockets_is_software():
    ntfs = ('workload.0.filesystem="ntfs"', 'server.stack={ extends = "windows-2016" }')
    fast = ("server.sockets.0.ghz=4", "server.sockets.1.ghz=4", "workload.0.threads=16")
    found = run(*TWO, *ntfs, *fast, reliefs=True)
    assert "lock" in found.bottleneck.station
    assert (found.bottleneck.kind, found.bottleneck.verdict) == ("lock", "cpu")
    gains = {r.change: r.gain for r in found.bottleneck.reliefs}
    assert abs(gains["3 UPI links instead of 2"]) < 0.01
    assert gains["threads and buffers on socket 0, where the drives are"] > 0.3


REFUSED = {
    "a payload that PCIe has not": (['server.max_payload="200 B"'], "200 B is not a size"),
    "buffers on a socket not there": (["workload.0.buffers=1"], "socket 0 only"),
    "interrupts on a socket not there": (["workload.0.interrupts=4"], "socket 0 only"),
    "buffers without memory": ([*TWO, "server.sockets.1.memory=false", "workload.0.buffers=1"],
                               "without memory"),
    "too many lanes": (["drives.0.count=17"], "needs 68 PCIe lanes"),
    "a drive on a socket not there": (["drives.0.socket=1"], "socket 0 only"),
    "a rate that no DIMM has": (['server.sockets.0.memory={ rate = "20 GT/s" }'], "no DIMM has"),
    "no memory channel": (["server.sockets.0.memory={ channels = 0 }"],
                          r"memory\.channels is 0; from 1 to 16"),
    "a fourth VMD domain": (["adapters=[" + ", ".join(
        f'{{ name = "v{i}", kind = "vmd", link = "pcie3 x4" }}' for i in range(4)) + "]"],
        "4 VMD domains"),
    "a VMD domain of 32 lanes": (['adapters=[{ name = "v", kind = "vmd", link = "pcie3 x32" }]'],
                                 "16 lanes"),
    "credits without a round trip": ([*TWO, "server.interconnect.credits=8",
                                      'server.interconnect.latency="0 ns"'], "state a latency"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_what_would_do(case):
    sets, match = REFUSED[case]
    with pytest.raises(ScenarioError, match=match):
        resolved(*sets)


def suspects(result):
    return {s.name: s for s in result.crossing.suspects}


def test_what_crosses_is_told_apart_and_nothing_is_said_where_nothing_does():
    """4 KiB reads: bytes by hand, nothing is full, one more link changes nothing."""
    found = run(*TWO, ON_1, reliefs=True, precision=0.005)
    wire = 2 * 20.8e9 * 0.82
    busy = station(found, "upi 0>1").utilization
    assert found.crossing.wire_bytes_per_s == pytest.approx(wire)
    assert found.crossing.bytes_per_s == pytest.approx(busy * wire)
    assert found.crossing.lines_under_way == pytest.approx(busy * wire / 64 * 100e-9)
    assert not any(s.binds for s in found.crossing.suspects)
    assert set(suspects(found)) == {"wire", "cycles", "memory", "drive"}
    gains = {r.change: r for r in found.bottleneck.reliefs}
    more = gains["3 UPI links instead of 2"]
    assert more.gain == pytest.approx(0, abs=0.005)
    assert more.gain_low < 0 < more.gain_high
    assert run(*TWO, ON_0).crossing is None
    assert run().to_json()["crossing"] is None


def test_large_transfers_stream_through_memory_side_by_side():
    """Sixteen drives take a chunk each: memory has time for all within that of one on its port."""
    load = {"block_size": "8 MiB", "align": "8 MiB", "read": 0.0, "threads": 1, "outstanding": 1}
    raid = {"raid": "raid0", "chunk": "512 KiB", "engine": "none"}
    table = one_server("sata-ssd", [load], 16, stack="linux-libaio", volume=raid)
    found = bare(table, requests=2000)
    memory = station(found, "socket0 memory")
    assert memory.service_mean_s > 4e-6
    assert memory.wait_mean_s == 0


@pytest.mark.parametrize(("guest", "threads", "kiops"), [
    ("kvm-virtio", 1, 250), ("kvm-virtio", 2, 500), ("kvm-vhost", 1, None), ("none", 1, None),
])  # fmt: skip
def test_a_virtual_disk_has_one_thread_of_the_host(guest, threads, kiops):
    """Deep enough, it does what its thread does; without such a thread what the drive does."""
    section = {"read": "4 us", "across": False, "threads": threads}
    tables = one_server(
        "intel-p4610-1.6tb", [{"threads": 16, "outstanding": 32, "guest": guest}], cpu="epyc-9654",
        stack={"extends": "linux-io_uring", "sections": {"kvm-virtio": section}},
    )  # fmt: skip
    result = simulate(scenario_from_dict(tables), requests=40_000, certainty=False)
    reliefs = {relief.change for relief in result.bottleneck.reliefs}
    if kiops is None:
        assert result.total.iops.value > 600e3
        assert "twice the threads that serve a virtual disk" not in reliefs
    else:
        assert result.total.iops.value == pytest.approx(1e3 * kiops, rel=0.01)
        assert "kvm-virtio thread of the virtual disk" in result.bottleneck.sentence
        assert {
            "twice the threads that serve a virtual disk",
            "one virtual disk a thread",
        } <= reliefs


def test_each_guest_may_have_a_virtual_disk_of_its_own():
    """As many files on a volume as guests: the relief says so, and does what following it does."""
    load = {"threads": 8, "outstanding": 16, "guest": "kvm-virtio"}
    tables = one_server("intel-p4610-1.6tb", [load], cpu="epyc-9654", count=2,
                        volume={"raid": "raid0"})  # fmt: skip
    found = simulate(scenario_from_dict(tables), requests=40_000, certainty=False)
    (relief,) = (r for r in found.bottleneck.reliefs if r.change == "one virtual disk a thread")
    assert relief.set == {"workload.0.targets": 8, "workload.0.threads": 1}
    tables["workload"][0] |= {"targets": 8, "threads": 1}
    followed = simulate(scenario_from_dict(tables), requests=40_000, certainty=False)
    assert relief.iops.value == pytest.approx(followed.total.iops.value, rel=0.02)
    assert followed.total.iops.value > 1.5 * found.total.iops.value


@pytest.mark.parametrize(
    ("drive", "least", "most"), [("samsung-pm9a3-3.84tb", 0.95, 1.05), ("intel-p5800x", 1.5, 2.0)]
)
def test_flash_reads_and_writes_large_requests_by_turns(drive, least, most):
    """A mix moves the harmonic mean of both bandwidths; phase change does both at once."""
    rates = []
    for read in (1.0, 0.0, 0.5):
        load = {"block_size": "1 MiB", "read": read, "access": "sequential", "outstanding": 32}
        found = bare(one_server(drive, load, cpu="epyc-9354"), requests=4000)
        rates.append(found.total.iops.value)
    reads, writes, mixed = rates
    assert least < mixed * (1 / reads + 1 / writes) / 2 < most


@pytest.mark.parametrize(("die", "times"), [("2 us", 8.0), ("60 us", 1.0)])
def test_flash_moves_whole_pages_and_phase_change_what_is_asked(die, times):
    """Where the channels stop reads, those of 512 B are as many, or eight times as many."""
    read = {"base": "1 us", "die": die, "channel": "4 us", "unit": "4 KiB", "serial": 0}
    drive = {"extends": "intel-p5800x", "read": read, "channels": 2, "dies": 512}
    rates = [
        simulate(scenario_from_dict(one_server(
            drive, [{"block_size": size, "read": 1.0, "threads": 8, "outstanding": 64}],
            cpu="epyc-9654", stack="spdk",
        )), requests=30_000, reliefs=False, certainty=False).total.iops.value
        for size in ("4 KiB", "512 B")
    ]  # fmt: skip
    assert rates[0] == pytest.approx(2 / 4e-6, rel=0.02)
    assert rates[1] == pytest.approx(times * rates[0], rel=0.02)


@pytest.mark.parametrize(
    ("mib", "depth", "least"), [(1, 8, 0.75), (4, 2, 0.65), (4, 8, 0.75), (16, 2, 0.5)]
)
def test_a_write_as_large_as_the_buffer_keeps_dies_busy(mib, depth, least):
    """It takes room by parts; a write that waited for an empty buffer would halve the rate.

    All of it is programmed, however large: no more bytes than dies drain.
    """
    write = {"program": "1 ms", "program_cv": 0, "unit": "16 KiB", "buffer": "4 MiB"}
    drive = {"extends": "micron-7450-pro-3.84tb", "write": write, "dies": 64}
    load = [{"block_size": f"{mib} MiB", "read": 0, "access": "random", "outstanding": depth}]
    result = bare(one_server(drive, load), requests=2000)
    drained = 64 * (16 << 10) / 1e-3
    assert least * drained < result.total.bytes_per_s.value < 1.01 * drained
