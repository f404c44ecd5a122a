from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from nvmesim.catalog.links import parse_link
from nvmesim.catalog.quantity import Quantity
from nvmesim.errors import InputError
from nvmesim.measure.figures import Interval, Relief
from nvmesim.measure.paired import MIN_PAIRED, half_of_rate
from nvmesim.model.lower import lower
from nvmesim.network.check import check
from nvmesim.network.network import StationInfo
from nvmesim.predict import upgrades as reliefs
from nvmesim.predict.bottleneck import SaturatedStation, best_relief
from nvmesim.predict.changes import stated
from nvmesim.predict.pilots import filled
from nvmesim.predict.prepare import prepare
from nvmesim.predict.simulate import simulate
from nvmesim.predict.what_ifs import BY_RESOURCE, MOST, choose, scaled_outstanding
from nvmesim.scenario.load import scenario_from_dict, with_values
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from tests.predict.scenarios import CPU, scenario
from tests.servers import bare, one_server

ALL = tuple(dict.fromkeys((
    *(maker for makers in BY_RESOURCE.values() for maker in makers), reliefs.twice_the_outstanding,
)))  # fmt: skip


def resolved(**options: Any) -> ResolvedScenario:
    return resolve(scenario(**options))


VOLUMES: dict[str, dict[str, Any] | None] = {
    "jbod": None,
    "raid0": {"raid": "raid0"},
    "raid1": {"raid": "raid1"},
    "raid10": {"raid": "raid10", "layout": "near2"},
    "raid5": {"raid": "raid5"},
    "raid6": {"raid": "raid6"},
}


@pytest.mark.parametrize("volume", VOLUMES.values(), ids=VOLUMES.keys())
@pytest.mark.parametrize("maker", ALL, ids=lambda f: f.__name__)
def test_every_change_makes_a_scenario_that_can_be_lowered(
    maker: reliefs.ChangeFactory, volume: dict[str, Any] | None
) -> None:
    base = resolved(drives=4, volume=volume, read=0.5)
    change = maker(base)
    if change is not None:
        assert change.scenario != base
        assert change.text
        lower(change.scenario)


def test_what_there_is_no_room_for_is_not_offered() -> None:
    base = resolved(drives=4, volume={"raid": "raid5", "degraded": [1]})
    assert reliefs.one_more_drive(base) is None
    base = resolved(rate="10k/s")
    assert reliefs.twice_the_outstanding(base) is None
    assert reliefs.twice_the_threads(base) is None
    latencies = {"queue_depth": 32, "block_size": "4 KiB", "read_us": [100.0, 200.0]}
    assert reliefs.twice_the_outstanding(resolved(drives=1)) is not None
    assert reliefs.twice_the_outstanding(resolved(drives=1, drive={"latencies": latencies})) is None
    load = {"threads": 4, "outstanding": 8}
    given = {"server": {"platform": "aws-i4i-16xlarge"}, "workload": load}
    instance = resolve(scenario_from_dict(given))
    assert instance.bays == len(instance.drives) == 4
    assert reliefs.one_more_drive(instance) is None
    assert reliefs.one_more_drive(replace(instance, bays=None)) is not None
    assert reliefs.wider(parse_link("pcie6 x32")) is None
    assert reliefs.wider(parse_link("sata3")) is None
    assert str(reliefs.wider(parse_link("pcie6 x4"))) == "pcie6 x8"


def test_threads_that_cannot_send_what_arrives_are_as_many_as_cpus_and_carry_it() -> None:
    given = server_of(1, workload=[{"rate": "2M/s", "slo": "1 ms"}], run={"requests": 40_000})
    found = simulate(scenario_from_dict(given), over_time=False)
    relief = next(r for r in found.bottleneck.reliefs if r.set == {"workload.0.threads": 8})
    applied = simulate(scenario_from_dict(with_values(given, relief.set)), reliefs=False)
    assert found.bottleneck.verdict == "unstable"
    assert found.goal.probability < 0.1 < applied.goal.probability
    assert found.bottleneck.station == "threads"
    assert applied.bottleneck.backlog_per_s is None
    assert applied.total.iops.value == pytest.approx(relief.iops.value, rel=0.03)


def test_twice_the_threads_or_cores_and_what_is_outstanding() -> None:
    base = resolved(threads=2, outstanding=8)
    change = reliefs.twice_the_threads(base)
    assert change.scenario.workload[0].in_flight == base.workload[0].in_flight
    odd = reliefs.twice_the_threads(resolved(threads=2, outstanding=1))
    assert odd.text == "twice the threads"
    few = resolved(threads_total=2, outstanding=64)
    assert reliefs.one_more_core(few) is None
    assert reliefs.twice_the_cores(few) is None
    joint = reliefs.twice_the_cores_and_threads(few)
    assert joint.set["workload.0.threads_total"] == 4
    many = resolved(threads_total=4096, outstanding=1)
    assert reliefs.twice_the_cores_and_threads(many) is None
    assert reliefs.twice_the_cores(many) is not None


@pytest.mark.parametrize(
    ("outstanding", "factor", "expected"),
    [(8, 0.5, (4, 4)), (8, 0.125, (4, 1)), (8, 0.0625, (2, 1)), (8, 0.03125, (1, 1)),
     (8, 4.0, (4, 32)), (8, 1 / 64, None), (3, 0.5, None)],
)  # fmt: skip
def test_outstanding_is_scaled_down_to_fewer_threads(
    outstanding: int, factor: float, expected: tuple[int, int] | None
) -> None:
    changed = scaled_outstanding(resolved(threads=4, outstanding=outstanding), factor)
    found = changed and (changed.workload[0].threads, changed.workload[0].outstanding)
    assert found == expected


def test_one_more_interconnect_is_wider() -> None:
    two = [{"cpu": {**CPU, "interconnect": "upi"}}, {"cpu": {**CPU, "interconnect": "upi"}}]
    base = resolved(sockets=two)
    assert base.interconnect is not None
    change = reliefs.one_more_interconnect(base)
    joined = change.scenario.interconnect
    assert joined.link.lanes == base.interconnect.link.lanes + 1
    per_link = base.interconnect.link.raw_bytes_per_s / base.interconnect.link.lanes
    assert joined.link.raw_bytes_per_s == pytest.approx(per_link * joined.link.lanes)
    assert reliefs.one_more_interconnect(resolved()) is None


def full(resource: str, kind: str, bound: float) -> SaturatedStation:
    return SaturatedStation(StationInfo(resource, kind, 0, resource=resource), 0.5, bound)  # type: ignore[arg-type]


def test_what_stops_it_is_relieved_first_or_outstanding() -> None:
    base = resolved(drives=2)
    stations = [full("commands", "drive", 1e5), full("cores", "cpu", 2e5)]
    texts = [c.text for c in choose(base, stations, stations[0])]
    assert texts[:2] == [
        "one more drive with threads of its own",
        "drives with twice the command rate",
    ]
    assert "10 % more GHz" in texts, "each thread has a CPU: more cores would not be used"
    assert texts[-1] == "twice as many outstanding"
    assert len(texts) <= MOST
    stations = [full("commands", "drive", 1e5)]
    assert choose(resolved(), stations, None)[0].text == "twice as many outstanding"


def test_filled_buffers_hold_their_share_in_programs() -> None:
    lowered = lower(resolved(read=0.5, drives=2))
    net = lowered.network
    gates = np.unique(net.die_gate[net.die_gate >= 0])
    assert len(gates) == 2
    for share in (0.0, 0.37, 1.0):
        full_net = filled(net, share)
        check(full_net)
        for gate in gates:
            held = full_net.die_backlog[full_net.die_gate == gate]
            assert held.sum() == int(share * net.station_servers[gate])
            assert held.max() - held.min() <= 1


@pytest.mark.slow
def test_what_ifs_from_full_buffers_say_what_a_run_of_the_change_says() -> None:
    load = {"read": 0.7, "threads": 32, "outstanding": 16}
    raid = {"raid": "raid10"}
    tables = one_server("intel-p4610-1.6tb", [load], 8, cpu="epyc-7763", volume=[raid])
    base = simulate(scenario_from_dict(tables), max_requests=4_000_000)
    gains = [r.gain for r in base.bottleneck.reliefs]
    assert gains == sorted(gains, reverse=True)
    ready = prepare(scenario_from_dict(tables), "compiled", None)
    makers = (reliefs.one_more_drive, reliefs.twice_the_outstanding, reliefs.one_more_core)
    changes = {c.text: c for maker in makers if (c := maker(ready.scenario)) is not None}
    tried = [r for r in base.bottleneck.reliefs if r.change in changes]
    assert tried
    for relief in tried:
        direct = simulate(changes[relief.change].scenario, reliefs=False, max_requests=4_000_000)
        gain = direct.total.iops.value / base.total.iops.value - 1
        apart = sum((i.high - i.low) / 2 / i.value for i in (direct.total.iops, base.total.iops))
        slack = apart + (relief.gain_high - relief.gain_low) / 2
        assert relief.gain == pytest.approx(gain, abs=slack), relief.change


def test_a_change_that_fills_the_buffers_says_what_a_run_of_it_says() -> None:
    """Twice the cores and threads leave the drives as the limit, once their buffers are full."""
    tables = one_server(
        "intel-p4610-1.6tb", [{"read": 0.7, "threads": 2, "outstanding": 32}], 8,
        cpu="xeon-gold-6250", stack="windows-2019", drive={"state": "steady"},
    )  # fmt: skip
    base = simulate(scenario_from_dict(tables), certainty=False, over_time=False)
    joint = next(r for r in base.bottleneck.reliefs if "workload.0.threads" in r.set
                 and "server.sockets.*.cpu.cores" in r.set)  # fmt: skip
    applied = bare(with_values(tables, joint.set))
    assert applied.bottleneck.verdict == "drive"
    assert joint.iops.value == pytest.approx(applied.total.iops.value, rel=0.06)


@pytest.mark.slow
def test_a_change_of_a_deep_load_is_run_until_its_queues_are_even() -> None:
    """36,864 in flight: 10 % more GHz would do 30.4 M at first, and 27.7 M, as before, at last."""
    load = [{"threads": 48, "outstanding": 32}]
    tables = one_server("kioxia-cd6-r-15.36tb", load, 12, cpu="epyc-9354", sockets=2)
    tables["drives"] = [{**tables["drives"][0], "socket": s} for s in (0, 1)]
    found = simulate(scenario_from_dict(tables), certainty=False, over_time=False)
    gains = {relief.change: relief.gain for relief in found.bottleneck.reliefs}
    assert abs(gains["10 % more GHz"]) < 0.03


def test_a_what_if_ends_once_its_gain_is_known() -> None:
    ready = prepare(scenario(drives=2), "compiled", 1)
    least = 24
    whole = ready.run_short(500, 500 * least)
    assert len(whole) == least
    early = ready.run_short(500, 500 * least, lambda kept: len(kept) >= MIN_PAIRED)
    assert len(early) == MIN_PAIRED
    np.testing.assert_array_equal(early.records, whole.records[:MIN_PAIRED])
    assert half_of_rate(whole.records, early.records) == 0


TWO = [{"name": "a", "raid": "raid5", "members": [0, 1, 2]}, {"raid": "raid0", "members": [3]}]


@pytest.mark.parametrize("volume", [VOLUMES["raid5"], TWO], ids=["one", "two"])
@pytest.mark.parametrize("make", [m for m in ALL if m is not reliefs.no_bitmap])
def test_the_setting_of_a_change_is_the_change(make: Any, volume: Any) -> None:
    """The scenario file with those keys resolves to the changed scenario, where there are any."""
    tables = scenario(drives=4, volume=volume, threads_total=2, outstanding=64, read=0.5)
    given = tables.to_dict()
    change = make(resolve(tables))
    if change is None or not change.set:
        return
    again = resolve(scenario_from_dict(with_values(given, change.set)))
    made, meant = (
        [[g.n_threads for g in s.workload], [k.cpu.cores for k in s.sockets],
         [(v.stripe_cache, v.workers, len(v.members)) for v in s.volumes],
         [stated(d.profile, key) for d in s.drives
          for key in ("dies", "commands", "write.program")],
         [d.link for d in s.drives]]
        for s in (again, change.scenario)
    )  # fmt: skip
    assert made == meant
    ghz = [k.ghz for k in change.scenario.sockets]
    assert [k.ghz for k in again.sockets] == pytest.approx(ghz, rel=1e-3)


def server_of(sockets: int, **tables: Any) -> dict[str, Any]:
    """Four drives on each of *sockets* sockets, and what *tables* say of volumes and load."""
    given = one_server("samsung-pm9a3-3.84tb", [], 4, sockets=sockets)
    return {
        **given,
        "drives": [{**given["drives"][0], "socket": i} for i in range(sockets)],
        **tables,
    }


OLD = {"raid": "raid5", "name": "data", "kernel": "5.10", "members": [0, 1, 2, 3, 4, 5]}
LOAD = {"threads": 32, "outstanding": 8}


@pytest.mark.parametrize(
    ("make", "given", "keys"),
    [
        (reliefs.two_arrays, server_of(2, volume=OLD, workload=[{**LOAD, "targets": ["data"]}]),
         {"volume.0.arrays": 2, "workload.0.threads": 16}),
        (reliefs.two_arrays, server_of(1, volume={"raid": "raid10"}, workload=[
            {"threads_total": 32, "outstanding": 8}]), {"volume.0.arrays": 2}),
        (reliefs.two_arrays_with_workers, server_of(2, volume={"raid": "raid5"}, workload=[LOAD]),
         {"volume.*.group_thread_cnt": 4, "volume.0.arrays": 2, "workload.0.threads": 16}),
        (reliefs.near_the_drives, server_of(2, workload=[LOAD]), {"workload.*.socket": "near"}),
        (reliefs.near_the_drives, server_of(2, workload=[LOAD], volume=[
            {"raid": "raid5", "members": [0, 1, 2, 3]}, {"raid": "raid5", "members": [4, 5, 6, 7]},
        ]), {"workload.*.socket": "near"}),
    ],
)  # fmt: skip
def test_several_arrays_and_sockets_are_set_by_a_key(make: Any, given: Any, keys: Any) -> None:
    change = make(resolve(scenario_from_dict(given)))
    assert change.set == keys
    assert resolve(scenario_from_dict(with_values(given, change.set))) == replace(
        change.scenario, assumptions=ANY, ignored=ANY
    )


def test_two_arrays_applied_do_what_was_promised() -> None:
    given = server_of(2, volume=OLD, workload=[LOAD], run={"requests": 40_000})
    base = simulate(scenario_from_dict(given), over_time=False)
    relief = next(r for r in base.bottleneck.reliefs if "volume.0.arrays" in r.set)
    applied = bare(with_values(given, relief.set))
    assert relief.gain > 0.7
    assert relief.iops.value == pytest.approx(applied.total.iops.value, rel=0.03)
    assert [v.members for v in applied.resolved.volumes] == [(0, 1, 2), (3, 4, 5)]


@pytest.mark.parametrize(
    "given",
    [
        server_of(1, volume={**OLD, "members": [0, 1, 2], "arrays": 2}, workload=[LOAD]),
        server_of(2, volume={"raid": "raid5"}, workload=[{**LOAD, "socket": "near"}]),
        server_of(2, workload=[{"threads_total": 8, "socket": "near"}]),
    ],
)
def test_arrays_and_sockets_that_cannot_be_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"arrays|near"):
        scenario_from_dict(given)


def test_an_array_of_several_is_a_target_by_itself_and_takes_no_single_drive() -> None:
    arrays = {"raid": "raid5", "arrays": 2, "spares": 1, "degraded": [0], "engine": "linux-md"}
    given = server_of(1, volume=arrays, workload=[{**LOAD, "targets": ["volume0 2"]}])
    given["drives"][0]["count"] = 7
    found = resolve(scenario_from_dict(given))
    assert [t.index for t in found.workload[0].targets] == [1]
    assert [(v.members, v.rebuild, v.degraded) for v in found.volumes] == [
        ((6, 1, 2), True, ()), ((3, 4, 5), False, (0,)),
    ]  # fmt: skip
    given["volume"] = {"raid": "raid5", "arrays": 2, "members": [0, 1, 2, 3, 4, 5]}
    change = reliefs.one_more_drive(resolve(scenario_from_dict(given)))
    assert change is not None
    assert change.set == {}
    assert reliefs.two_arrays(resolve(scenario_from_dict(given))) is None


def test_one_more_drive_is_counted_where_that_alone_makes_it_and_has_lanes() -> None:
    def setting(**how: Any) -> Any:
        change = reliefs.one_more_drive(resolved(**how))
        return change and change.set

    assert setting(drives=4) == {"drives.0.count": 5}
    assert setting(drives=4, volume={"raid": "raid10"}) == {"drives.0.count": 6}
    assert reliefs.one_more_drive(resolved(drives=4, volume={"raid": "raid5"})).text == (
        "one more drive"
    )
    assert setting(drives=4, volume={"raid": "raid5", "members": [0, 1, 2, 3]}) == {
        "drives.0.count": 5, "volume.0.members": [0, 1, 2, 3, 4],
    }  # fmt: skip
    full = one_server("intel-p4610-1.6tb", [{"threads": 1, "outstanding": 1}], 12)
    assert reliefs.one_more_drive(resolve(scenario_from_dict(full))) is None


def test_a_setting_has_its_command_and_one_more_drive_its_watts_and_price() -> None:
    base = resolved(drives=4, volume={"raid": "raid5"}, read=0.5)
    workers = reliefs.eight_workers(base)
    assert workers.set == {"volume.*.group_thread_cnt": 8}
    assert workers.command.endswith("/md/group_thread_cnt")
    two = reliefs.eight_workers(
        resolved(drives=4, volume={"raid": "raid5"}, sockets=[{"cpu": CPU}] * 2)
    )
    assert two.set == {"volume.*.group_thread_cnt": 4}
    assert two.scenario.volumes[0].workers == 8
    fewer = reliefs.half_the_workers(two.scenario)
    assert (fewer.set, fewer.scenario.volumes[0].workers) == ({"volume.*.group_thread_cnt": 2}, 4)
    assert reliefs.half_the_workers(base) is None
    assert workers.added(base, "power_active_w") == workers.added(base, "price") == 0
    power = Quantity(value=14.0, basis="datasheet", source="a sheet")
    price = Quantity(value=420.0, basis="datasheet", source="a quote")
    drives = tuple(
        replace(d, profile=d.profile.model_copy(update={"power_active_w": power, "price": price}))
        for d in base.drives
    )
    stated = replace(base, drives=drives)
    more = reliefs.one_more_drive(stated)
    assert more.added(stated, "power_active_w") == 14
    assert more.added(stated, "price") == 420
    unknown = reliefs.one_more_drive(base)
    assert unknown.added(base, "price") is None
    faster = reliefs.more_ghz(stated)
    assert faster.added(stated, "price") is None


def test_threads_held_on_a_full_socket_are_tried_on_all() -> None:
    two = [{"cpu": {**CPU, "interconnect": "upi"}}, {"cpu": {**CPU, "interconnect": "upi"}}]
    base = resolved(sockets=two, socket=0)
    assert reliefs.on_all_sockets(resolved(sockets=two)) is None
    crossing = replace(full("interconnect", "link", 3e5), utilization=0.2)
    stop = full("cores", "cpu", 1e5)
    texts = [c.text for c in choose(base, [stop, crossing], stop)]
    assert texts[0] == "threads on all sockets"
    assert {"10 % more GHz", "twice the cores and twice the threads"} < set(texts)


def test_of_two_that_bring_as_much_the_one_that_buys_nothing_is_named() -> None:
    rate = Interval(2e6, 1.9e6, 2.1e6)
    bought = Relief("twice the cores", rate, 0.532, 0.5, 0.56)
    moved = Relief("threads on all sockets", rate, 0.531, 0.5, 0.56, watts=0.0)
    assert best_relief([bought, moved]).startswith("threads on all sockets")
    assert best_relief([bought, replace(moved, gain=0.3)]).startswith("twice the cores")


def test_a_change_of_two_parts_is_not_advised_where_one_part_brings_it_all() -> None:
    near = Interval(450e3, 440e3, 460e3)
    part = Relief("8 md workers", near, 2.74, 2.7, 2.8, set={"volume.*.group_thread_cnt": 8})
    both = Relief("two arrays, 8 md workers", near, 2.744, 2.7, 2.8, set={**part.set, "a": 2})
    assert best_relief([both, part]).startswith("8 md workers would give")
    more = replace(both, gain=3.2)
    assert best_relief([more, part]).startswith("two arrays, 8 md workers")
