"""`diagnose`: planted mistakes are found, healthy servers are left alone, rows are refused."""

import json
import math
import re
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, OpResult
from nvmesim.capture.caveats import UNKNOWN_COLUMN, UNSTATED_MIX
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.measure.figures import Interval
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.show.page import html
from nvmesim.show.views.measured import diagnosis_blocks
from nvmesim.study.diagnosis import short_runs
from nvmesim.study.diagnosis.diagnose import WAITS
from nvmesim.study.diagnosis.evidence import (
    RULED,
    SLICED,
    ErrorScale,
    MeasuredRow,
    log_likelihood,
    log_likelihood_as_is,
    log_likelihoods,
    log_mean,
    misfit,
    notes_of,
    of_arrays,
    rows_of,
)
from nvmesim.study.diagnosis.findings import (
    ComparedRow,
    Diagnosis,
    Explanation,
    NextMeasurement,
)
from nvmesim.study.diagnosis.mistakes import known, read_files
from nvmesim.study.diagnosis.ranges import DELAYS_US, PACE, Grid, Range, change_of
from nvmesim.study.diagnosis.server import (
    HELD,
    IGNORED,
    IN_TURN,
    IS_SET,
    NOT_HELD,
    NOT_IN_TURN,
    NOT_VIRTUAL,
    Server,
)
from nvmesim.study.diagnosis.short_runs import ShortRuns, slots_of_a_request
from tests.servers import bare
from tests.study.planted import (
    PLANTED,
    captured,
    followed,
    found_codes,
    healthy,
    plant,
    remembering,
    trial,
)
from tests.study.slow_servers import asked, place, slow_servers, threads

FOLLOWED = (0, 9, 11)
"""Trials: a link and a scheduler that one row of the whole server does not tell, and a depth."""
SERVER = """
name = "four drives"
[server]
stack = "linux-io_uring"
[[server.sockets]]
cpu = "epyc-7313"
[[drives]]
profile = "samsung-980pro-1tb"
count = 4
[[workload]]
threads_total = 4
outstanding = 32
"""


pytestmark = pytest.mark.xdist_group("diagnose")


@pytest.fixture(scope="module")
def remembered():
    """Most tests ask about one server: what was simulated of it is not simulated again."""
    with remembering():
        yield


@pytest.fixture
def written(tmp_path, remembered):
    """Writes a table of points, with columns *more* than what all have, and returns its path."""

    def write(*rows, more=""):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([f"op,block_size,jobs,iodepth,iops{more}", *rows, ""]))
        return path

    return write


def test_every_mistake_has_a_code_of_its_own_and_says_where_to_look():
    codes = [m.code for m in known().mistakes]
    assert len(set(codes)) == len(codes)
    assert all(m.check and m.mend and m.source for m in known().mistakes)
    assert {p.code for p in PLANTED} <= set(codes)


def test_what_all_rows_miss_alike_is_likelier_than_what_they_miss_apart():
    scale = ErrorScale(np.full(3, 0.2), np.full(3, 0.02), ("iops",) * 3, (0, 1, 2))
    alike, apart = np.full(3, 0.3), np.array([0.3, -0.3, 0.3])
    assert log_likelihood(alike, scale) > log_likelihood(apart, scale)
    assert misfit(alike, scale) < misfit(apart, scale)


@pytest.mark.parametrize("ratio", [0.0, 3.0])
def test_many_rows_have_a_likelihood_too(ratio):
    """Its logarithm lies beyond what a float's exponential holds, on either side."""
    n = 300
    scale = ErrorScale(np.full(n, 0.02), np.full(n, 0.005), ("iops",) * n, tuple(range(n)))
    spread = ratio * np.resize([1.0, -1.0], n)
    found = log_likelihood(spread, scale)
    assert math.isfinite(found)
    assert abs(found) > 710


def test_who_is_slower_waits_longer():
    scale = ErrorScale(np.full(2, 0.3), np.full(2, 0.02), ("iops", "p99"), (0, 0))
    slower, odd = np.array([-0.3, 0.3]), np.array([-0.3, -0.3])
    assert log_likelihood(slower, scale) > log_likelihood(odd, scale) + 1


def test_a_server_far_below_its_interval_is_rarely_as_it_should_be():
    """Published rows lie 3 standard deviations below and more in 0.4 %, above in 1.7 %."""
    scale = ErrorScale(np.array([0.17]), np.array([0.02]), ("iops",), (0,))
    steps = np.linspace(0, 6, 1201) * 0.17
    for side, least, most in ((-1, 0.003, 0.007), (1, 0.01, 0.017)):
        chance = np.exp([log_likelihood_as_is(np.array([side * x]), scale) for x in steps])
        beyond = chance[steps >= 3 * 0.17].sum() / chance.sum() / 2
        assert least < beyond < most


def test_an_explanation_that_meets_all_rows_is_worth_more_than_one_within_wide_intervals():
    scale = ErrorScale(np.full(3, 0.2), np.full(3, 0.02), ("iops",) * 3, (0, 1, 2))
    close, wide = np.array([0.01, -0.01, 0.0]), np.array([0.06, -0.06, 0.06])
    assert log_likelihood(close, scale) > log_likelihood(wide, scale) + 2


@pytest.mark.long
def test_a_server_as_it_should_be_is_healthy():
    found = ns.diagnose(*healthy(3), workers=1)
    assert found.is_healthy
    assert found.healthy > 0.5


def test_the_command_finds_a_depth_without_effect(tmp_path, written, capfd):
    server = tmp_path / "server.toml"
    server.write_text(SERVER)
    # what four drives do with one request in flight for each of four threads
    rows = written("randread,4 KiB,4,32,57000", "randread,4 KiB,4,8,57000",
                   "randread,4 KiB,1,1,14400")  # fmt: skip
    code = run_command(["diagnose", str(server), str(rows), "--json"])
    answer = json.loads(capfd.readouterr().out)
    assert code == 1
    assert answer["explanations"][0]["code"] == "depth"
    assert answer["explanations"][0]["set"] == {"workload.*.outstanding": 1}
    assert answer["healthy"] < 0.1
    assert sum(e["probability"] for e in answer["explanations"]) <= 1 + 1e-9
    assert [row["inside"] for row in answer["rows"]] == [False, False, True]
    assert answer["next"]["tells"][0] == answer["explanations"][0]["name"]


def test_a_row_is_predicted_on_the_targets_that_the_scenario_names(written):
    """Two arrays, of which one was measured: `run` and `diagnose` predict the same."""
    tables = tomllib.loads(SERVER)
    tables["volume"] = [{"raid": "raid0", "members": [0, 1]}, {"raid": "raid0", "members": [2, 3]}]
    load = {"threads_total": 12, "outstanding": 64, "read": 1.0, "targets": ["volume1"]}
    tables["workload"] = [load]
    (row,) = ns.diagnose(tables, [written("randread,4 KiB,12,64,1300000")], workers=1).rows
    asked = bare(tables).total.iops.value
    assert row.predicted.value == pytest.approx(asked, rel=0.03)


@pytest.mark.parametrize(("column", "is_known"), [("", False), (",4", True)])
def test_a_job_may_have_loaded_one_drive_unless_it_says_how_many(written, column, is_known):
    path = written(f"randread,4 KiB,1,1,14500{column}", f"randread,4 KiB,4,32,731000{column}",
                   more=",drives" * is_known)  # fmt: skip
    found = ns.diagnose(tomllib.loads(SERVER), [path], workers=1)
    assert ("few-targets" in found_codes(found)) != is_known
    assert is_known or found.explanations[0].changes == {"workload.*.targets": ["drive0"]}


def load_of(threads, outstanding, read=1.0, size="4 KiB"):
    """The load of a row."""
    return {"access": "random", "block_size": size, "read": read, "threads_total": threads,
            "outstanding": outstanding}  # fmt: skip


def test_the_next_measurement_is_named_as_fio_names_it():
    told = NextMeasurement(load_of(4, 64, 0.0), 1, ("a", "b"), (1e5, 2e5)).to_json()
    assert (told["op"], told["jobs"], told["iodepth"], told["drives"]) == ("randwrite", 4, 64, 1)
    assert told["tells"] == ["a", "b"]


def server_of(stack="linux-io_uring", cpu="epyc-7313"):
    """`SERVER`, of eight drives, and a search for what explains two of its rows."""
    tables = tomllib.loads(SERVER)
    tables["server"] = {"stack": stack, "sockets": [{"cpu": cpu}]}
    tables["drives"][0] |= {"profile": "samsung-pm9a3-3.84tb", "count": 8}
    loads = [load_of(16, 8, read) for read in (1.0, 0.0)]
    runs = ShortRuns(tables, ".")
    rows = [MeasuredRow("", load, 1e5, None, is_buffered=True) for load in loads]
    return runs, loads, Server(tables, runs.scenario({}, *loads), rows)


def server_whose_rows(**changes):
    """The server of `server_of`, each of whose rows has *changes*."""
    server = server_of()[2]
    return replace(server, rows=[replace(row, **changes) for row in server.rows])


def mistake_of(code):
    """The mistake of that code."""
    return next(m for m in known().mistakes if m.code == code)


def forms(code, server):
    """The forms of one mistake that *server* can have."""
    return list(mistake_of(code).variants(server))


@pytest.mark.parametrize("mistake", known().mistakes, ids=lambda m: m.code)
@pytest.mark.usefixtures("remembered")
def test_every_form_can_be_built_and_none_makes_a_server_much_faster(mistake):
    """Eight drives: more than one VMD domain takes. Only blocks that were never written are fast,
    drives that are as new, and memory.
    """
    runs, loads, server = server_of()
    variants = list(mistake.variants(server))
    plain = runs.figures([({}, load) for load in loads], "")
    found = runs.figures([(v.change, load) for v in variants for load in loads], "")
    assert None not in found
    for variant, *pair in zip(variants, found[::2], found[1::2], strict=True):
        faster = [one["iops"] / was["iops"] for one, was in zip(pair, plain, strict=True)]
        assert max(faster) < 1.1 or mistake.code in ("fresh", "page-cache"), (variant.name, faster)


def test_a_short_run_waits_until_a_slow_member_has_filled_its_buffer():
    _, (_, writes), server = server_of()
    runs = ShortRuns({**server.tables, "volume": [{"raid": "raid0"}]}, ".")
    (slow,) = runs.figures([(server.last_profile(write={"program": "1 ms"}), writes)], "")
    (plain,) = runs.figures([({}, writes)], "")
    assert slow["iops"] < 0.5 * plain["iops"]


@pytest.mark.parametrize(
    ("measured", "healthy", "told", "explained"),
    [(1.6e5, 0.8, "Nothing is wrong", False), (1e5, 0.8, "the likeliest mistake has 25%", True),
     (1e5, 0.3, "nothing may be wrong", True), (1e5, 0.0, "something is different", True)],
)  # fmt: skip
def test_what_to_measure_next_comes_before_what_it_decides_between(
    measured, healthy, told, explained
):
    row = ComparedRow("a", measured, Interval(2e5, 1.5e5, 3e5), None, None)
    one = Explanation("link", "a narrow link", 0.25, {}, Interval(1e5, 1e5, 1e5), check="lspci")
    decides = NextMeasurement(load_of(4, 64), 1, ("a", "b"), (1e5, 2e5))
    text = html(diagnosis_blocks(Diagnosis("s", (row,), healthy, (one,), decides)))
    assert told in text
    assert ("a narrow link" in text) == explained
    if explained:
        assert text.index("Measure next") < text.index("a narrow link")


def test_a_flush_that_a_row_states_is_part_of_its_load(written):
    path = written("randwrite,4 KiB,1,1,574,fsync", more=",sync")
    ((row,), _) = rows_of(ns.read_captures([path]))
    assert row.workload["fsync"] == 1


def test_a_rate_that_fio_was_asked_for_is_part_of_its_load():
    runs = server_of()[0]
    conditions = Conditions(read_fraction=1.0, block_size=4096, jobs=2, iodepth=8, rate_iops=3000.0)
    ops = {"read": OpResult(0, 0, 3000.0, 0.0)}
    capture = Capture(None, "fio", None, (Measurement("a", conditions, ops),), 1)
    ((row,), _) = rows_of(ns.Captures((capture,)))
    (found,) = runs.figures([({}, row.workload)], "")
    assert found["iops"] == pytest.approx(3000, rel=0.02)


@pytest.mark.parametrize(("name", "told"), [("vda", {}), ("nvme0n1", {"guest": NOT_VIRTUAL})])
def test_the_name_of_a_device_tells_of_a_guest(name, told):
    assert server_whose_rows(devices=(name,), is_buffered=False).told == told


def test_how_common_each_mistake_is_was_learned_in_every_context():
    server = server_of()[2]
    contexts = server.contexts(is_inside=False)
    assert contexts == (False, True, False, False, False, False, True)
    load = {"outstanding": 1, "read": 0.0, "block_size": "1 MiB"}
    one = replace(server, rows=[replace(server.rows[0], workload=load)])
    assert one.contexts(is_inside=True) == (True, False, True, True, True, True, True)
    assert known().weights.keys() == {"healthy", "unknown", *(m.code for m in known().mistakes)}
    assert all(len(w) == 1 + len(contexts) and min(w) > 0 for w in known().weights.values())


@pytest.mark.parametrize(
    ("engine", "is_buffered", "has_forms", "told"),
    [("psync", False, True, IGNORED), ("io_uring", False, False, None),
     ("libaio", False, False, None), (None, False, True, None), (None, True, False, None)],
)  # fmt: skip
def test_a_depth_had_effect_where_an_asynchronous_engine_went_by_the_page_cache(
    engine, is_buffered, has_forms, told
):
    """A synchronous one decides that it had none; rows of a page cache tell nothing of engines."""
    server = server_whose_rows(engine=engine, is_buffered=is_buffered)
    assert bool(forms("depth", server)) == has_forms
    assert server.told.get("depth") == told


def test_jobs_that_were_busy_did_not_wait_for_a_drive(written, monkeypatch):
    """A hot drive leaves CPUs idle, slow CPUs are busy."""
    monkeypatch.setattr("nvmesim.study.diagnosis.diagnose.SHOWN", 0.0)
    odds = {}
    for pct in (390, 40):
        path = written(f"randread,4 KiB,4,32,250000,4,1,{pct}", more=",drives,direct,cpu_pct")
        ((row,), _) = rows_of(ns.read_captures([path]))
        assert (row.spent_s is None) == (pct == 40)
        found = ns.diagnose(tomllib.loads(SERVER), [path], workers=1).explanations
        chances = {e.code: e.probability for e in found}
        odds[pct] = chances["hot"] / chances["power"]
    assert odds[390] == pytest.approx(WAITS * odds[40])


def test_jobs_that_spin_at_a_lock_are_explained_by_locks():
    """48 us of each request's CPU time are more than a guest, a copy or a slow clock takes."""
    (thread,) = (t for t in threads() if t["name"] == "bfq on a desktop")
    with tempfile.TemporaryDirectory() as folder:
        found = [*found_codes(asked(thread, Path(folder))), "guest"]  # it may not even be listed
    assert found.index("scheduler") < found.index("guest")
    assert found.index("iommu") < found.index("guest")


def grid_of(rates, times_us, depth=32):
    """A grid of two rows, reads and writes of a server that takes *times_us* for each request."""
    loads = [load_of(1, depth, read) for read in (1.0, 0.0)]
    rows = [MeasuredRow("", load, rate, None, None)
            for load, rate in zip(loads, rates, strict=True)]  # fmt: skip
    late = [[math.log(rate / (depth * 1e6 / (t + us))) for rate, t in
             zip(rates, times_us, strict=True)] for us in (0.0, *DELAYS_US)]  # fmt: skip
    return Grid.of(rows, np.array(late))


def test_a_range_is_as_likely_as_a_fine_grid_of_it_is_in_the_mean():
    times, rates = (300.0, 500.0), (40_000.0, 30_000.0)
    grid = grid_of(rates, times)
    scale = ErrorScale(np.full(2, 0.2), np.full(2, 0.02), ("iops",) * 2, (0, 1))
    points = grid.points(Range("", delay_us=(100.0, 12_500.0)))
    fine = 100.0 * 125.0 ** np.linspace(0, 1, 2001)
    exact = [np.log(np.array(rates) / (32e6 / (np.array(times) + us))) for us in fine]
    found = log_mean(log_likelihoods(points.ratios, scale))
    assert found == pytest.approx(log_mean(log_likelihoods(np.array(exact), scale)), abs=0.1)


def test_a_wider_range_is_worth_less_and_one_beside_the_rows_nothing():
    grid = grid_of((9000.0, 9000.0), (300.0, 500.0))
    scale = ErrorScale(np.full(2, 0.2), np.full(2, 0.02), ("iops",) * 2, (0, 1))
    means = [log_mean(log_likelihoods(grid.points(Range("", iops=ends)).ratios, scale))
             for ends in ((8e3, 1e4), (8e2, 1e5), (2e4, 4e4))]  # fmt: skip
    assert means[0] > means[1] + 1 > means[2] + 2


def test_only_what_suffers_is_late_or_limited():
    grid = grid_of((100_000.0, 9000.0), (300.0, 500.0))
    points = grid.points(Range("", of="writes", delay_us=(20.0, 2500.0), iops=(5e3, 5e4)))
    assert np.allclose(points.ratios[:, 0], grid.curve[0, 0])
    assert points.counts[:, 0].all()
    assert abs(points.ratios[:, 1]).min() < 0.03, "the limit is 9000/s within a step"
    assert points.ratios[:, 1].min() > grid.curve[0, 1]


@pytest.mark.parametrize(
    "one",
    [Range("", delay_us=(400.0, 600.0), bandwidth=(3e8, 5e8)),
     Range("", delay_us=(20.0, 20.0), writes=(25.0,)),
     Range("", of="writes", delay_us=(100.0, 100.0), iops=(4e4, 6e4))],
)  # fmt: skip
def test_what_a_range_says_of_a_server_is_what_its_simulation_does(one):
    runs, loads, server = server_of()
    wanted = [{}, *({"drives.*.delay": f"{us:g} us"} for us in DELAYS_US)]
    found = runs.figures([(change, load) for change in wanted for load in loads], "")
    rates = np.log([f["iops"] for f in found]).reshape(-1, 2)
    rows = [replace(row, iops=1.0) for row in server.rows]
    points = Grid.of(rows, -rates).points(one)
    at = len(points.ratios) // 2
    base_ps = server.resolved.drives[0].profile.write.base.value
    change = change_of(one, points.waits_us[at], points.limits[at], 8, base_ps)
    said, does = -points.ratios[at], np.log([
        f["iops"] for f in runs.figures([(change, load) for load in loads], "")
    ])  # fmt: skip
    assert said == pytest.approx(does, abs=0.1)


def test_a_delay_between_those_that_are_simulated_is_found(written):
    """1.1 ms more, one after the other and 32 deep; 0.5 and 2.5 ms are simulated."""
    tables = tomllib.loads(SERVER)
    tables["drives"][0]["count"] = 1
    loads = [load_of(1, depth) for depth in (1, 32)]
    late = [({"drives.*.delay": "1100 us"}, load) for load in loads]
    one, deep = (f["iops"] for f in ShortRuns(tables, ".").figures(late, ""))
    path = written(f"randread,4k,1,1,{one}", f"randread,4k,1,32,{deep}")
    found = ns.diagnose(tables, [path], workers=1)
    assert found_codes(found)[0] == "network"
    (network,) = (e for e in found.explanations if e.code == "network")
    delay_us = float(str(network.changes["drives.*.delay"]).split()[0])
    assert delay_us == pytest.approx(1100, rel=0.3)


def test_a_disk_on_another_host_is_late_and_carries_what_its_network_does():
    """1377 requests/s one after the other, and 125.2 MiB/s however large they are."""
    (thread,) = (t for t in threads() if t["name"].startswith("c7i.4xlarge"))
    with tempfile.TemporaryDirectory() as folder:
        assert found_codes(asked(thread, Path(folder)))[0] == "network"


def asked_of(tables, load, **how):
    """The server of *tables* under one row of *load*, and what simulates it."""
    runs = ShortRuns(tables, ".")
    rows = [MeasuredRow("", load, 1e3, None, **{"is_buffered": False, **how})]
    return runs, Server(tables, runs.scenario({}, load), rows)


WINDOWS_SERVER = {"stack": "windows-2019", "sockets": [{"cpu": "epyc-7313"}]}


@pytest.mark.parametrize(("size", "count"), [("4 KiB", 3), ("1 MiB", 1)])
def test_only_small_writes_suffer_from_where_they_begin(size, count):
    server = server_of()[2]
    rows = [replace(r, workload={**r.workload, "block_size": size}) for r in server.rows]
    assert len(forms("alignment", replace(server, rows=rows))) == count


def test_the_requests_of_a_single_drive_may_be_cut_too():
    tables = tomllib.loads(SERVER)
    tables["drives"][0]["count"] = 1
    load = {**load_of(1, 1, size="256 KiB"), "access": "sequential"}
    runs, server = asked_of(tables, load)
    cuts = forms("cut", server)
    rates = [run["iops"] for run in runs.figures([({}, load), (cuts[-1].change, load)], "")]
    assert rates[1] < 0.7 * rates[0]


def test_a_windows_server_may_be_a_guest():
    _, server = asked_of({**tomllib.loads(SERVER), "server": WINDOWS_SERVER}, load_of(4, 32))
    kinds = {v.change.get("workload.*.guest") for v in forms("guest", server)}
    assert kinds == {"hyper-v", None}


LINUX = re.compile(r"/sys/|/proc/|lspci|lsblk|nvme |dmesg|cpupower|iostat|numactl|mpstat|virsh")
WINDOWS = re.compile(r"Get-|powercfg|manage-bde|Task Manager|Device Manager|diskspd")


@pytest.mark.parametrize(
    ("stack", "own", "other"),
    [("linux-io_uring", LINUX, WINDOWS), ("windows-2019", WINDOWS, LINUX)],
)
def test_checks_are_those_of_the_servers_system(stack, own, other):
    _, _, server = server_of(stack)
    told = [m.on(server) for m in known().mistakes if forms(m.code, server)]
    texts = [f"{of['check']}; {of['mend']}" for of in told]
    assert len(texts) > 10
    assert any(own.search(text) for text in texts)
    assert not [text for text in texts if other.search(text)]


@pytest.mark.parametrize(("cpu", "least"), [("xeon-gold-6130", 0.8), ("epyc-7742", 1.5)])
def test_no_clock_is_below_what_the_cpu_has(cpu, least):
    _, _, server = server_of(cpu=cpu)
    found = [v.change.get("server.sockets.*.ghz", 9.0) for v in forms("power", server)]
    assert least <= min(found) < server.resolved.sockets[0].ghz


def test_what_cannot_be_told_apart_is_named_together_once():
    row = ComparedRow("a", 1e5, Interval(2e5, 1.5e5, 3e5), None, None)
    codes = ("a", "b", "c")
    alike = tuple(
        Explanation(code, f"thing {code}", 0.3, {}, None, check="look",
                    alike=tuple(c for c in codes if c != code)) for code in codes
    )  # fmt: skip
    text = html(diagnosis_blocks(Diagnosis("s", (row,), 0.1, alike, None)))
    assert text.count("cannot tell them apart") == 1
    assert text.count("thing c") == 2


def test_a_limit_may_be_one_of_bytes_where_sizes_differ():
    """200 MB/s of 4 KiB and of 128 KiB are two rates."""
    server = server_of()[2]
    sizes, rates = ("4 KiB", "128 KiB"), (2e8 / 4096, 2e8 / 131_072)
    rows = [replace(row, workload={**row.workload, "block_size": size}, iops=rate)
            for row, size, rate in zip(server.rows, sizes, rates, strict=True)]  # fmt: skip
    grid = Grid.of(rows, np.full((1 + len(DELAYS_US), 2), -2.0))
    kinds = mistake_of("limit").ranges_on(server)
    best = {one.bandwidth is not None: np.abs(grid.points(one).ratios).max(1).min()
            for one in kinds}  # fmt: skip
    assert best[True] < 0.05
    assert best[False] > 0.5


def test_what_forms_are_met_oftener_does_not_make_a_mistake_commoner():
    assert np.mean([v.usual for v in forms("link", server_of()[2])]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rate", "times"),
    [(6004, IS_SET[0]), (32051, IS_SET[0]), (6300, None), (6311, IS_SET[1])],
)
def test_people_set_round_limits(rate, times):
    """32,051 requests/s of 4 KiB are 125.2 MiB/s; 6,300 is as round as who told it made it."""
    assert server_whose_rows(iops=rate).told.get("limit") == times


def test_a_flush_takes_as_long_as_any_of_such_drives():
    _, (_, writes), server = server_of()
    runs = ShortRuns(tomllib.loads(SERVER), ".")
    of_volatile = replace(server, resolved=runs.scenario({}, writes))
    assert len(forms("flushes", of_volatile)) == 8
    assert len(forms("flushes", server)) == 2, "with capacitors nothing is flushed"


def test_windows_flushes_too():
    load = load_of(1, 1, 0.0)
    runs, server = asked_of({**tomllib.loads(SERVER), "server": WINDOWS_SERVER}, load,
                            is_buffered=None)  # fmt: skip
    found = forms("flushes", server)
    answers = runs.figures([({}, load), *((v.change, load) for v in found)], "")
    rates = [answer["iops"] for answer in answers]
    assert len(found) == 4
    assert max(rates[1:]) < 0.1 * rates[0]


def test_the_writes_of_a_store_may_wait_for_its_copies():
    """Fifteen times as long, and a fifteenth of them passes."""
    grid = grid_of((100_000.0, 100_000.0), (300.0, 300.0))
    points = grid.points(Range("", delay_us=(100.0, 100.0), writes=(1.0, 15.0), iops=(2e3, 2e3)))
    alike, copied = points.ratios
    assert alike[0] == alike[1] == copied[0]
    assert copied[1] - copied[0] == pytest.approx(math.log(15))
    assert points.waits_us[1, 1] == pytest.approx(15 * points.waits_us[1, 0], rel=PACE**0.5 - 1)


@pytest.mark.parametrize(("op", "is_said"), [("randrw", True), ("rw", True), ("randrw:50", False)])
def test_a_mix_without_a_share_is_said_to_be_half_reads(written, op, is_said):
    notes = notes_of(ns.read_captures([written(f"{op},4 KiB,1,1,14000")]))
    assert [note.code for note in notes] == [UNSTATED_MIX] * is_said
    path = written("read,4 KiB,1,1,14000,9", more=",lat_mean_kg")
    assert [note.code for note in notes_of(ns.read_captures([path]))] == [UNKNOWN_COLUMN]


@pytest.mark.parametrize(("high", "is_asked"), [(2.5e5, False), (6.5e5, True)])
def test_a_row_inside_of_a_wide_interval_is_no_end(high, is_asked):
    row = ComparedRow("a", 1.6e5, Interval(2e5, 1.5e5, high), None, None)
    following = NextMeasurement(load_of(4, 64), 1, ("nothing is wrong", "b"), (1e5, 2e5))
    text = html(diagnosis_blocks(Diagnosis("s", (row,), 0.9, (), following)))
    assert ("Measure next" in text) == is_asked


def test_spdk_unmaps_no_memory_and_knows_its_network():
    tables = {**tomllib.loads(SERVER), "server": {"stack": "spdk"}}
    tables["server"]["sockets"] = [{"cpu": "epyc-7313"}]
    _, (reads, _), server = server_of()
    of_spdk = replace(server, resolved=ShortRuns(tables, ".").scenario({}, reads))
    assert forms("iommu", server)
    assert not forms("iommu", of_spdk)
    network = mistake_of("network")
    assert network.ranges_on(server)
    assert not network.ranges_on(of_spdk), "it names the transport"


def test_an_engine_on_which_a_depth_has_no_effect_is_named():
    rows = [Measurement("a", Conditions(engine=name), {}) for name in ("psync", "io_uring", None)]
    (note,) = notes_of(ns.Captures((Capture(None, "fio", None, tuple(rows), 3),)))
    assert note.startswith("psync:")


def test_rows_that_do_not_state_their_load_are_counted_or_refused(written):
    rows, left_out = rows_of(ns.read_captures([written("randread,4 KiB,1,1,14000")]))
    assert [row.workload["outstanding"] for row in rows] == [1]
    assert left_out == []
    with pytest.raises(InputError, match="no row can be compared"):
        rows_of(ns.Captures(()))


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 4, 9])
def test_a_planted_mistake_is_among_the_first_three(number):
    """Fixed seeds: what happens is always the same; of new ones 1 in 20 may miss."""
    tables, rows, code = plant(number)
    assert code in found_codes(ns.diagnose(tables, rows, workers=1))[:3]


@pytest.mark.long
def test_two_suggested_measurements_find_what_one_row_cannot():
    """It begins with one row of the whole server; fixed seeds."""
    with remembering():
        trials = [followed(number) for number in FOLLOWED]
    first = [[codes[0] == code for codes in found] for code, found in trials]
    assert sum(row[-1] for row in first) == len(FOLLOWED) > sum(row[0] for row in first)


@pytest.mark.slow
def test_planted_mistakes_come_first_and_healthy_servers_are_left_alone():
    """200 servers, one mistake each, noise of 1.5 % on rates and 5 % on p99; 200 without."""
    with remembering():
        codes, found, well = zip(*map(trial, range(200)), strict=True)
    ranks = [[*f, code].index(code) for code, f in zip(codes, found, strict=True)]
    assert np.mean([rank == 0 for rank in ranks]) >= 0.8
    assert np.mean([rank < 3 for rank in ranks]) >= 0.95
    assert np.mean(well) >= 0.95


@pytest.mark.slow
def test_published_slow_servers():
    places = {s.name: place(ns.diagnose(s.tables, s.captures()), s.code) for s in slow_servers()}
    assert sum(n == 1 for n in places.values()) >= 0.8 * len(places), places
    assert sum(n <= 3 for n in places.values()) >= 0.95 * len(places), places


@pytest.mark.slow
def test_public_threads():
    """As their owners would have asked: a few rows, and no more of the server than they said.

    The goals are 80 and 95 %: the first 66 meet them, those that were added since do not yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = {t["name"]: place(asked(t, Path(folder)), t["cause"]) for t in threads()}
    for some, first, three in (
        (list(places.values())[:66], 0.8, 0.95),
        (list(places.values())[:98], 0.75, 0.9),
        (places.values(), 0.65, 0.8),
    ):
        assert sum(n == 1 for n in some) >= first * len(some), places
        assert sum(n <= 3 for n in some) >= three * len(some), places


@pytest.mark.parametrize(("direct", "is_buffered"), [("0", True), ("1", False), ("", None)])
def test_a_table_says_whether_the_page_cache_was_in_the_way(written, direct, is_buffered):
    path = written(f"randread,4k,1,1,14000,{direct}", more=",direct")
    ((row,), _) = rows_of(ns.read_captures([path]))
    assert row.is_buffered is is_buffered


def test_what_a_block_device_did_is_a_load_of_what_was_in_flight():
    conditions = Conditions(read_fraction=1.0, targets=1, depth_mean=7.6)
    rate = {"read": OpResult(0, 0, 1000.0, 8_192_000.0)}
    rows = [Measurement(name, conditions, rate) for name in ("md0", "nvme0n1")]
    found, _ = rows_of(ns.Captures((Capture(None, "iostat", None, tuple(rows), 2),)))
    loads = [(r.workload["threads_total"], r.workload["outstanding"]) for r in found]
    assert loads == [(8, 1)] * 2
    assert found[0].workload["block_size"] == "8 KiB"
    kept, left_out = of_arrays(found)
    assert [row.label for row in kept] == ["md0"]
    assert len(left_out) == 1
    with pytest.raises(InputError, match="no row is of the array"):
        of_arrays(found[1:])


def test_a_prediction_is_sure_where_neither_drives_nor_cpus_count_and_its_tail_unsure():
    scale = ErrorScale(np.full(3, 0.3), np.full(3, 0.02), ("iops", "iops", "p99"), (0, 1, 2))
    assert scale.where_it_counts(np.array([0, 1, 0])).model.tolist() == [RULED, 0.3, SLICED]


def test_what_nothing_explains_is_none_of_these(written):
    path = written("randread,4k,4,1,2000000,1", more=",direct")
    found = ns.diagnose(tomllib.loads(SERVER), [path], workers=1)
    assert found_codes(found)[0] == "unknown"
    assert found.healthy < 0.01


def test_where_no_mistake_fits_it_is_said_what_was_tried_and_what_to_measure(
    tmp_path, written, capfd
):
    """Twice as fast in both rows: no mistake makes a server faster, and "nothing" is no answer."""
    server = tmp_path / "server.toml"
    server.write_text(SERVER)
    rows = written("randread,4 KiB,4,32,2900000", "randread,4 KiB,1,1,34000")
    assert run_command(["diagnose", str(server), str(rows), "--json", "--workers", "1"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert not any(row["inside"] for row in found["rows"])
    assert len(found["tried"]) > 20
    name, off = found["nearest"]
    least = min(r["measured"] / r["predicted"]["value"] - 1 for r in found["rows"])
    assert off > least > 0.5
    ends = found["next"]
    assert (ends["drives"], ends["tells"]) == (1, ["nothing is wrong"])
    (alone,) = ends["iops"]
    assert alone == pytest.approx(found["rows"][1]["predicted"]["value"], rel=0.05)
    loaded = Diagnosis("s", (ComparedRow("a", 4e5, Interval(2e5, 1.5e5, 3e5), None, None),), 0.6,
                       (Explanation("unknown", "none of these", 0.4, {}, None),), None,
                       tried=("link", "guest"), nearest=(name, off))  # fmt: skip
    text = html(diagnosis_blocks(loaded))
    assert all(said in text for said in ("+100 %", "link, guest", name, f"{100 * off:+.0f} %"))
    one = replace(loaded, explanations=(Explanation("link", "", 0.3, {}, None),))
    assert not one.is_unexplained
    assert loaded.is_unexplained


@pytest.mark.parametrize(("raid", "read", "size", "slots"), [
    ("", 0.0, "4 KiB", 1), ("", 0.0, "128 KiB", 32), ("raid10", 0.0, "4 KiB", 2),
    ("raid5", 0.0, "4 KiB", 2), ("raid6", 0.0, "16 KiB", 12), ("raid5", 0.7, "4 KiB", 1),
])  # fmt: skip
def test_a_short_run_is_as_long_as_buffers_take_to_fill(raid, read, size, slots):
    tables = tomllib.loads(SERVER)
    tables["drives"][0] |= {"profile": "intel-p4610-1.6tb"}
    tables["workload"] = [{"read": read, "block_size": size, "threads": 1, "outstanding": 1}]
    if raid:
        tables["volume"] = [{"raid": raid, "chunk": "64 KiB"}]
    assert slots_of_a_request(resolve(scenario_from_dict(tables))) == pytest.approx(slots)


def test_a_change_without_effect_on_a_load_is_not_simulated_again(monkeypatch):
    _, loads, server = server_of()
    runs = ShortRuns({**server.tables, "name": "of which nothing is remembered"}, ".")
    seen = []
    monkeypatch.setattr(short_runs, "_window", lambda *given: seen.append(given))
    wanted = [({}, loads[0]), ({"workload.*.sync": "dsync"}, loads[0]), ({}, loads[1]),
              ({"workload.*.sync": "dsync"}, loads[1])]  # fmt: skip
    runs.figures(wanted, "")
    assert len(seen) == 3


def test_the_place_of_the_workload_is_that_of_all_rows(written):
    path = written("randread,4k,4,32,120000")
    guest = SERVER.replace("outstanding = 32", 'outstanding = 32\nguest = "kvm-virtio"')
    rates = [ns.diagnose(tomllib.loads(text), [path], workers=1).rows[0].predicted.value
             for text in (SERVER, guest)]  # fmt: skip
    assert rates[1] < 0.8 * rates[0]


def test_what_files_name_is_told_and_counts(tmp_path, written):
    rows = written("randread,4 KiB,4,32,57000,libaio,/dev/nvme0n1", more=",engine,device")
    (tmp_path / "server.txt").write_text("$ cat /proc/mdstat\nzd0: ios=12\n")
    server = tomllib.loads(SERVER)
    without = ns.diagnose(server, [rows], workers=1)
    found = ns.diagnose(server, [rows, tmp_path / "server.txt"], workers=1)
    before, after = ({e.code: e.probability for e in d.explanations} for d in (without, found))
    assert after["zfs"] > before.get("zfs", 0.0) + 0.1
    assert any("zd0" in note for note in found.notes)
    assert not any("server.txt" in reason for reason in found.left_out)


def test_a_file_that_tells_nothing_is_left_out_and_said(tmp_path, written):
    notes = tmp_path / "notes.txt"
    notes.write_text("nothing of use\n")
    captures, _, refused = read_files([written("randread,4k,1,1,14400"), notes])
    assert (len(captures.files), len(refused)) == (1, 1)
    with pytest.raises(InputError):
        read_files([notes])


@pytest.mark.parametrize(
    ("lat_us", "slat_us", "told"),
    [
        (64.0, 1.0, {"depth": IN_TURN, "zfs": NOT_HELD, "page-cache": NOT_HELD}),
        (1024.0, 32.0, {"depth": NOT_IN_TURN, "zfs": HELD, "page-cache": HELD}),
    ],
)
def test_latencies_tell_whether_requests_waited_in_turn(lat_us, slat_us, told):
    latency = {"lat": Latency(0, mean_s=lat_us / 1e6), "slat": Latency(0, mean_s=slat_us / 1e6)}
    rows, _ = rows_of(captured([Measurement(
        "a", Conditions(read_fraction=1.0, block_size=4096, jobs=1, iodepth=32, engine="libaio"),
        {"read": OpResult(0, 0, 31_000.0, 0.0, **latency)},
    )]))  # fmt: skip
    assert Server({}, None, rows).told == told
