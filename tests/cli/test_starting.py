"""init, capture-plan, and * in --set: the first commands of a new user."""

import time
import tomllib

import pytest

from nvmesim.cli import output
from nvmesim.scenario.load import apply_sets, load_scenario
from nvmesim.scenario.loads import diskspd, fio_job
from nvmesim.scenario.workload_keys import PRESETS
from nvmesim.study.measuring.rows import PLAN, minutes


@pytest.mark.parametrize("load", PRESETS)
def test_init_writes_a_scenario_that_can_be(nvmesim, tmp_path, load):
    file = tmp_path / "new.toml"
    asked = ["--drive", "sata-ssd", "--count", 4, "--cpu", "xeon-gold-6130", "--raid", "raid10"]
    said = nvmesim("init", *asked, "--load", load, "-o", file)
    assert said.code == 0
    assert "next: nvmesim run" in said.err
    scenario = load_scenario(file)
    assert scenario.drives[0].count == 4
    assert scenario.volume[0].raid == "raid10"
    assert "# " in file.read_text("utf-8")
    again = nvmesim("init", *asked, "--load", load, "-o", file)
    assert again.code == 2
    assert "is there already" in again.err


def test_init_without_a_terminal_takes_usual_values(nvmesim):
    said = nvmesim("init")
    assert said.code == 0
    assert tomllib.loads(said.out)["volume"]["raid"] == "raid5"


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [("--drive", "intel-p4611", "intel-p4610"), ("--cpu", "xeon", ""), ("--load", "oltpp", "oltp")],
)
def test_init_says_what_a_wrong_name_may_have_meant(nvmesim, option, value, hint):
    said = nvmesim("init", option, value)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert hint in said.err


def test_the_plan_is_a_fio_job_that_our_own_reader_of_jobs_takes(nvmesim, tmp_path):
    file = tmp_path / "plan.fio"
    assert nvmesim("capture-plan", "-o", file).code == 0
    for row in PLAN:
        (load,) = fio_job.load(f"{file.name}#{row.name}", tmp_path, key="plan")
        assert (load.fields["threads"], load.fields["outstanding"]) == (row.jobs, row.depth)
        assert load.fields["block_sizes"] == ((row.kib * 1024, 1.0),)
    assert minutes() <= 10


def test_the_plan_for_windows_is_lines_that_our_own_reader_takes(nvmesim):
    said = nvmesim("capture-plan", "--os", "windows")
    lines = [n for n in said.out.splitlines() if n.startswith("diskspd.exe")]
    assert len(lines) == len(PLAN)
    for line, row in zip(lines, PLAN, strict=True):
        options = line.partition(" $drive")[0].removeprefix("diskspd.exe ")
        load = diskspd.parse(options, key="plan")
        assert load.fields["outstanding"] == row.depth


def test_a_star_in_set_stands_for_each_element():
    tables = {"drives": [{"count": 1}, {"count": 2}]}
    assert apply_sets(tables, ["drives.*.count=8"]) == {"drives": [{"count": 8}, {"count": 8}]}


def test_a_star_where_no_list_is(nvmesim, scenario):
    said = nvmesim("run", scenario, "--set", "server.*.cpu=x")
    assert said.code == 2
    assert "no list" in said.err


def test_long_work_off_a_terminal_says_where_it_is(monkeypatch, capfd):
    monkeypatch.setattr(output, "EVERY_S", 0.02)
    with output.steps("calibrating") as tell:
        tell("reads at 4 KiB")
        time.sleep(0.3)
    with output.progress_bar("validating") as report:
        report("set one", 0.5)
        time.sleep(0.3)
    said = capfd.readouterr().err.splitlines()
    assert "nvmesim: calibrating: reads at 4 KiB" in said
    assert "nvmesim: set one (50 %)" in said
