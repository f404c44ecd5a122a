"""Designs under common random numbers: what they save, how they rank, what moves them most."""

import json

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.predict.simulate import compare
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.load import with_values as put
from nvmesim.scenario.resolve import resolve
from nvmesim.study.sensitivity import load_words
from tests.servers import one_server

SEEDS = 30
SMALL = """
name = "of the same name"
drives = [{ profile = "intel-p4610-1.6tb", count = 1 }]
workload = [{ threads = 1, outstanding = 4 }]
[server]
stack = "linux-io_uring"
sockets = [{ cpu = "epyc-7313" }]
"""
BASE = {
    "server": {
        "stack": "linux-io_uring",
        "sockets": [{"cpu": {"cores": 4, "threads_per_core": 2, "ghz": 3.0, "lanes": 64}}],
    },
    "drives": [{"profile": "intel-p4610-1.6tb", "count": 4, "link": "pcie3 x4", "socket": 0}],
    "workload": [{"block_size": "4 KiB", "read": 1.0, "threads": 8, "outstanding": 8}],
}
RAID5 = {"volume": [{"raid": "raid5", "chunk": "512 KiB"}], **BASE}
ACROSS = {
    **BASE,
    "server": {
        "stack": "linux-io_uring",
        "sockets": [{"cpu": "xeon-gold-6250"}, {"cpu": "xeon-gold-6250"}],
        "interconnect": {"kind": "upi", "links": 2, "rate": "10.4 GT/s"},
    },
    "drives": [{"profile": "intel-p4610-1.6tb", "count": 12, "link": "pcie3 x4", "socket": 1}],
    "workload": [
        {"block_size": "128 KiB", "read": 1.0, "threads": 1, "outstanding": 4, "socket": 0}
    ],
}
FASTER = {"extends": "intel-p4610-1.6tb", "commands": "900k/s"}
MORE_CORES = {"server.sockets.0.cpu.cores": 5}
MIXED = put({**RAID5, "volume": [{**RAID5["volume"][0], "group_thread_cnt": 8}]},
            {"workload.0.read": 0.7})  # fmt: skip
DEEP = {**BASE, "volume": [{"raid": "raid0", "chunk": "512 KiB"}]}
DEEP = put(DEEP, {"workload.0.outstanding": 32, "server.sockets.0.cpu.cores": 16})
RATES = {
    "a faster clock, JBOD": (BASE, {"server.sockets.0.cpu.ghz": 3.3}, 10),
    "faster controllers, RAID0": (DEEP, {"drives.*.profile": FASTER}, 10),
    "faster controllers, RAID5": (MIXED, {"drives.*.profile": FASTER}, 10),
    "three links of UPI": (
        put(ACROSS, {"workload.0.block_size": "64 KiB"}), {"server.interconnect.links": 3}, 10,
    ),
    # more than a rate: threads have other cores to themselves
    "more cores, JBOD": (BASE, MORE_CORES, 5),
    "more cores, RAID5": (MIXED, {"server.sockets.0.cpu.cores": 6}, 5),
}  # fmt: skip
"""Name -> a design, its change, and how many times the requests two runs apart would need."""


def over_seeds(tables, change):
    """Comparisons, the variance of two runs apart, and of the gain between paired ones."""
    a, b = scenario_from_dict(tables), scenario_from_dict(put(tables, change))
    found = [
        compare(a, b, seed=seed, requests=60_000, certainty=False) for seed in range(1, SEEDS + 1)
    ]
    apart = sum(
        np.log([getattr(c, which).value for c in found]).var(ddof=1)
        for which in ("iops_a", "iops_b")
    )
    return found, apart, np.log1p([c.gain.value for c in found]).var(ddof=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_designs_that_differ_in_a_rate_need_a_tenth_of_the_requests(name):
    """Seen over seeds, not by the intervals' own word: variances of what the runs give."""
    tables, change, least = RATES[name]
    found, apart, paired = over_seeds(tables, change)
    middle = float(np.mean([c.gain.value for c in found]))
    assert middle > 0.003, "a change that does nothing shares everything"
    assert apart / paired > least
    # what each comparison says of itself is no more than was seen (within what 30 seeds tell)
    assert np.median([c.saved for c in found]) < 2 * apart / paired
    inside = [c.gain.low <= middle <= c.gain.high for c in found]
    assert np.mean(inside) > 0.85


@pytest.mark.slow
def test_where_one_design_knows_no_chance_there_is_none_to_share():
    """Two links of UPI are full of requests of one size: no run differs from another."""
    found, apart, paired = over_seeds(ACROSS, {"server.interconnect.links": 3})
    assert np.std([c.iops_a.value for c in found]) < 1e-4 * found[0].iops_a.value
    assert apart / paired < 2
    assert np.median([c.saved for c in found]) < 2
    assert np.sqrt(paired) < 0.002


def test_a_change_of_shape_says_its_ratio():
    tables = put(RAID5, {"workload.0.outstanding": 2})
    more = scenario_from_dict(put(tables, {"drives.0.count": 6}))
    found = compare(scenario_from_dict(tables), more, requests=20_000)
    assert 0.1 < found.saved < 1000
    assert f"would need {found.saved:.2g} times the requests" in str(found)
    same = compare(more, more, requests=20_000)
    assert same.saved == float("inf")
    assert "any number of requests" in str(same)


def test_the_command_compares_two_and_ranks_three(file, tmp_path, capsys):
    change = "drives.0.profile.commands=400k/s"
    args = ["compare", str(file), "--set", change, "--requests", "20000"]
    assert run_command(args) == 0
    out = capsys.readouterr().out
    assert "against small" in out
    assert "with the same random numbers" in out
    assert run_command([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["a"] == "small"
    assert found["gain"]["low"] <= found["gain"]["value"] <= found["gain"]["high"]
    assert found["gain"]["value"] <= 0.01
    files = [str(file)]
    for depth in (1, 2):
        other = tmp_path / f"depth{depth}.toml"
        other.write_text(file.read_text().replace("outstanding = 4", f"outstanding = {depth}"))
        files.append(str(other))
    assert run_command(["compare", *files]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("small is best by iops, with a probability of ")
    assert "depth1" in out
    assert "under different loads: outstanding 4 / " in out


def test_loads_that_differ_are_said(file, capsys):
    command = ["compare", str(file), "--json", "--requests", "2000", "--set"]
    for change, about in (("workload.0.outstanding=8", "outstanding 4 / 8"),
                          ("server.sockets.0.cpu=epyc-7763", None)):  # fmt: skip
        assert run_command([*command, change]) == 0
        found = json.loads(capsys.readouterr().out)["warnings"]
        said = [w["text"] for w in found if isinstance(w, dict) and w["code"] == "loads-differ"]
        assert [about in text for text in said] == [True] * (about is not None)


def test_designs_of_one_name_are_told_apart_by_files_and_names(file, tmp_path, capsys, monkeypatch):
    """By their files; the same file twice by its place."""
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_text(file.read_text())
    command = ["compare", "--json", "--requests", "4000", str(file)]
    for files, names in (
        ([str(other)], [str(file), str(other)]),
        ([str(file)], [f"{file} (1)", f"{file} (2)"]),
    ):
        assert run_command([*command, *files]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [found["a"], found["b"]] == names
        assert found["gain"]["value"] == 0
    assert run_command(["compare", str(file)]) == 2
    assert run_command(["compare", str(file), str(file), "--set", "name=x"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "b.toml").write_text(SMALL.replace("of the same", "another"), encoding="utf-8")
    assert run_command(["compare", "a.toml", "b.toml", "--requests", "2000"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a.toml: of the same name | b.toml: another name"
    heads = next(line for line in lines if "change" in line)
    assert "of the same name" in heads
    assert "another name" in heads
    assert "before" not in heads


def test_the_command_of_sensitivity(file, tmp_path, capsys):
    table, page = tmp_path / "s.csv", tmp_path / "s.html"
    options = ["--requests", "4000", "--workers", "1", "-o", str(table), "--report", str(page)]
    assert run_command(["sensitivity", str(file), *options]) == 0
    assert "IOPS is known to ±" in capsys.readouterr().out
    assert table.read_text().startswith("input,")
    assert "vega" in page.read_text()
    assert run_command(["sensitivity", str(file), "--metric", "iosp"]) == 2


def candidates(small, **changes):
    tables = small.to_dict()
    return {name: put(tables, change) for name, change in changes.items()}


def three(small):
    depth = {f"depth{n}": {"workload.0.outstanding": n} for n in (4, 5, 8)}
    return candidates(small, **depth)


def test_the_best_comes_first(small):
    ranking = ns.rank(three(small))
    assert ranking.best == "depth8"
    assert ranking.probability > 0.8
    assert ranking.as_good() == []
    assert ranking.table["mean"].is_sorted(descending=True)
    assert (ranking.table["low"] <= ranking.table["mean"]).all()
    same = ns.rank(candidates(small, a={}, b={}), requests=2000)
    assert same.probability == pytest.approx(0.5)
    assert same.as_good() == ["b"]


def test_a_ranking_shows_what_a_run_shows(small):
    long = small.to_dict() | {"run": {"seed": 1}}
    both = {name: put(long, {"workload.0.outstanding": n}) for n, name in ((4, "a"), (8, "b"))}
    shown = {r["candidate"]: (r["mean"], r["low"], r["high"])
             for r in ns.rank(both).table.to_dicts()}  # fmt: skip
    for name, tables in both.items():
        rate = ns.simulate(scenario_from_dict(tables), reliefs=False).total.iops
        assert shown[name] == pytest.approx((rate.value, rate.low, rate.high)), name


def test_one_design_is_not_ranked(small):
    with pytest.raises(InputError, match="at least 2"):
        ns.rank({"one": small})


def test_the_widest_input_comes_first_and_unknown_ones_are_refused(small):
    # A number without a stated basis is an assumed one, whatever the catalog knows.
    guessed = put(small.to_dict(), {"drives.0.profile.read.die": "54 us"})
    frame = ns.sensitivity(guessed, metric="lat_mean_us", requests=4000)
    assert frame["share"].is_sorted(descending=True)
    inputs = frame.filter(frame["basis"] != "part")
    assert inputs["input"][0] == "drives.0.profile.read.die"
    assert inputs["basis"][0] == "assumed"
    assert frame["share"].sum() == pytest.approx(1)
    (die,) = frame.filter(frame["input"] == "drives.0.profile.read.die").to_dicts()
    assert die["value"] == "54 us"
    assert die["change_low"] < -0.05
    assert die["change_high"] > 0.05
    with pytest.raises(InputError, match="iops"):
        ns.sensitivity(small, metric="iosp")


def test_a_capture_that_is_asked_for_has_all_sizes_of_the_load():
    asked = one_server("intel-p4610-1.6tb", {
        "threads_total": 4, "outstanding": 8, "read": 0.65,
        "block_size": {"4 KiB": 0.75, "64 KiB": 0.25},
    }, 4)  # fmt: skip
    words = load_words(resolve(scenario_from_dict(asked)))
    assert words == "randrw 65 % of 4 KiB (75%), 64 KiB (25%) at depth 8"


@pytest.mark.parametrize("metric", ["iops", "lat_p99_us"])
def test_the_whole_is_the_interval_that_a_run_prints(metric):
    """Of a fitted drive, whose numbers make up for each other: 15 times as wide one by one."""
    asked = one_server("samsung-980pro-1tb", {"threads_total": 4, "outstanding": 32}, 4)
    total = ns.simulate(scenario_from_dict(asked), reliefs=False).total
    value, low, high = total.iops.value, total.iops.low, total.iops.high
    if metric != "iops":
        value, (low, high) = total.latency.percentiles[99.0], total.latency.intervals["p99"]
    frame = ns.sensitivity(asked, metric=metric, requests=40_000)
    assert frame["whole"][0] == pytest.approx((high - low) / 2 / value, rel=0.02)
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["without"].max() <= frame["whole"][0] * (1 + 1e-9)


@pytest.mark.long
def test_each_input_of_equal_parts_moves_together(small):
    tables = small.to_dict()
    tables["drives"] = [{"profile": "sata-ssd"}, {"profile": "sata-ssd"}]
    tables["volume"] = [{"raid": "raid5"}]
    tables["drives"].append({"profile": "sata-ssd", "state": "fresh"})
    frame = ns.sensitivity(tables, requests=2000, workers=1)
    names = frame["input"].to_list()
    assert any(n.startswith("drives.0.profile.") for n in names)
    assert any(n.startswith("drives.2.profile.") for n in names)
    assert not any(n.startswith("drives.1.profile.") for n in names)
    inputs = frame.filter(frame["basis"] != "part")
    assert len(inputs) < len(frame)
    assert inputs["at_low"].null_count() == 0
    moved = frame.filter(frame["input"] == "volume.0.engine.serial_read")
    assert len(moved) <= 1
