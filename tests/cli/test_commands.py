"""Help, version, `trace`, `catalog`, examples, first commands, and what all have in common."""

import json
import re
import time
import tomllib
from pathlib import Path

import click
import pytest

from nvmesim import __version__
from nvmesim.catalog import load as catalog
from nvmesim.catalog import names
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import MODELS
from nvmesim.cli import output
from nvmesim.cli.main import nvmesim as group
from nvmesim.cli.main import run_command
from nvmesim.scenario.load import load_scenario
from nvmesim.scenario.loads import diskspd, fio_job
from nvmesim.scenario.workload_keys import presets
from nvmesim.study.measuring.rows import PLAN, minutes

FIO = json.loads((Path(__file__).parent / "data" / "qd4.json").read_text("utf-8"))


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "qd4.json"
    path.write_text(json.dumps(FIO), encoding="utf-8")
    return path


def commands():
    """Every command and subcommand that help lists."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {n}", c) for n, c in command.commands.items())


def test_version(nvmesim):
    said = nvmesim("--version")
    assert (said.code, said.out) == (0, f"nvmesim {__version__}\n")


def test_help_lists_what_there_is(nvmesim):
    said = nvmesim("--help")
    assert said.code == 0
    for name, _ in commands():
        assert f"  {name.split()[0]} " in said.out
    summaries = said.out.split("Commands:")[1]
    assert "..." not in summaries  # every command's summary fits its line


def test_no_arguments_print_the_help_as_an_error(nvmesim):
    said = nvmesim()
    assert (said.code, said.out) == (2, "")
    assert "Usage: nvmesim" in said.err


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_command_has_help_with_an_example(nvmesim, name, command):
    said = nvmesim(*name.split(), "--help")
    assert said.code == 0
    assert f"Example: nvmesim {name.split()[0]}" in said.out
    assert isinstance(command, click.Command)


def test_a_capture_in_a_table(nvmesim, capture):
    said = nvmesim("trace", capture)
    assert said.code == 0
    for words in ("fio-json 3.35", "random 4 KiB, 1x4", "200,000", "20k", "130", "20 %"):
        assert words in said.out


def test_a_capture_as_json_is_one_object_on_one_line(nvmesim, capture):
    said = nvmesim("trace", capture, "--json")
    assert said.out.count("\n") == 1
    assert json.loads(said.out)["ops"]["read"]["count"] == 200_000


def test_the_catalog_lists_every_entry(nvmesim):
    said = nvmesim("catalog")
    assert said.out == nvmesim("catalog", "list").out
    for name in (*names("drive"), *names("cpu"), *names("stack"), *names("raid-engine")):
        assert name in said.out


def test_the_catalog_as_json(nvmesim):
    every = json.loads(nvmesim("catalog", "list", "--json").out)
    cpus = json.loads(nvmesim("catalog", "--json", "list", "--kind", "cpu").out)
    assert [e for e in every if e["kind"] == "cpu"] == cpus
    assert {"kind", "name", "model", "numbers", "assumed"} == cpus[0].keys()


@pytest.mark.parametrize("name", [name for kind in MODELS for name in names(kind)])
def test_every_entry_can_be_shown(nvmesim, name):
    assert name in nvmesim("catalog", "show", name).out
    assert json.loads(nvmesim("catalog", "show", name, "--json").out)["name"] == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("samsung-980pro-1tb", ("read.die", " us ", "measured")),
        ("linux-md", ("raid5: per_request",)),
        ("intel-p4610-1.6tb", ("fresh: write.program",)),
        ("supermicro-x11ddw-nt", ("server.sockets.1.cpu",)),
    ],
)
def test_what_an_entry_shows(nvmesim, name, words):
    assert all(word in nvmesim("catalog", "show", name).out for word in words)


def test_a_profile_of_ones_own_is_shown(nvmesim, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('kind = "drive"\nextends = "sata-ssd"\ncommands = "77k/s"\n')
    assert "77k/s" in nvmesim("catalog", "show", own).out
    assert nvmesim("catalog", "show", tmp_path / "none.toml").code == 2


def test_a_reader_that_goes_away_is_no_error(monkeypatch):
    import sys

    app = sys.modules["nvmesim.cli.main"]

    def gone(*args, **kwargs):
        raise BrokenPipeError

    silenced = []
    monkeypatch.setattr(app.nvmesim, "main", gone)
    monkeypatch.setattr(app.os, "dup2", lambda *fds: silenced.append(fds))
    assert run_command(["catalog"]) == 0
    assert silenced


ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
EXAMPLE_GOAL = ROOT / "examples" / "goal.toml"
FITTED = {"raid5.toml", "eight-980pro.toml"}
"""Their drives are calibrated first, by `make run` and `make run-local`."""


@pytest.mark.parametrize("file", [e for e in EXAMPLES if e != EXAMPLE_GOAL], ids=lambda e: e.stem)
def test_an_example_is_predicted(nvmesim, file):
    drive = ["--set", "drives.0.profile=samsung-980pro-1tb"] if file.name in FITTED else []
    said = nvmesim("run", file, *drive, "--set", "run.requests=4000", "--set", "run.precision=50%",
                   "--json")  # fmt: skip
    assert said.code in (0, 1)  # so few requests need not be precise
    assert json.loads(said.out)["total"]["iops"]["value"] > 0


@pytest.mark.long
def test_the_goal_finds_a_winner(nvmesim):
    said = nvmesim("choose", EXAMPLE_GOAL, "--json")
    assert said.code == 0
    assert json.loads(said.out)["chosen"]


def test_a_scenario_with_a_drive_of_a_file_is_named_after_the_drive(nvmesim, tmp_path):
    drive = tmp_path / "both.toml"
    drive.write_text('kind = "drive"\nextends = "sata-ssd"\nname = "both"\n', encoding="utf-8")
    asked = ["--drive", drive, "--count", 4, "--cpu", "xeon-gold-6130", "--raid", "raid10"]
    said = nvmesim("init", *asked, "-o", tmp_path / "new.toml")
    assert said.code == 0, said.err
    assert load_scenario(tmp_path / "new.toml").name == "4 x both, raid10"


@pytest.mark.parametrize("load", presets())
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


def test_keys_that_the_comments_of_init_name_are_keys(nvmesim, tmp_path):
    """Those beside a table's head, written below it, are a scenario that can be."""
    text = re.sub(r"(?m)^(\[+(?:volume|workload)\]+) +# (.*)$",
                  lambda m: "\n".join([m[1], *re.findall(r'\w+ = "[^"]+"', m[2])]),
                  nvmesim("init").out)  # fmt: skip
    file = tmp_path / "named.toml"
    file.write_text(text, encoding="utf-8")
    found = load_scenario(file)
    assert found.volume[0].kernel == "5.14"
    assert (found.workload[0].filesystem, found.workload[0].guest) == ("xfs", "kvm-virtio")


@pytest.mark.parametrize("drive", ["intel-p4610-1.6tb", "PM9A3", "samsung-pm1743-15.36tb"])
def test_init_takes_a_cpu_of_the_drives_generation(nvmesim, drive):
    said = nvmesim("init", "--drive", drive)
    tables = tomllib.loads(said.out)
    cpu = catalog.get("cpu", tables["server"]["sockets"][0]["cpu"])
    link = parse_link(catalog.get("drive", tables["drives"][0]["profile"]).link)
    assert cpu.pcie_generation == link.generation
    assert not said.err


def test_init_says_where_a_cpu_is_older_than_the_drives(nvmesim):
    said = nvmesim("init", "--drive", "PM1743", "--cpu", "xeon-gold-6130")
    assert said.code == 0
    assert "PCIe 5" in said.err
    assert "PCIe 3" in said.err


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


GOOD = ROOT / "tests" / "capture" / "data" / "fio-json" / "psync_qd8.json"
PROFILE = ROOT / "nvmesim" / "catalog" / "data" / "drives" / "sata-ssd.toml"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", EXAMPLE_GOAL, "-o", "x.html"], "--report"),
        (["run", EXAMPLES[0], "--set", "server.*.cpu=x"], "no list"),
        (["init", "--drive", "intel-p4611"], "intel-p4610"),
        (["init", "--cpu", "xeon"], ""),
        (["init", "--load", "oltpp"], "oltp"),
    ],
)
def test_a_wrong_option_or_name_is_one_line(nvmesim, arguments, words):
    said = nvmesim(*arguments)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert words in said.err


@pytest.mark.parametrize(
    ("given", "command", "what"),
    [
        (GOOD, "run", "is a capture (fio-json), no scenario"),
        (PROFILE, "run", "is a drive profile, no scenario"),
        ("sata-ssd", "run", "is a drive of the catalog, no scenario file"),
        *((text, command, what) for command in ("run", "trace") for text, what in (
            ("[global]\nioengine=libaio\n[a]\nrw=randread\n", "fio job file"),
            ("scenario = 'a.toml'\n[constraints]\niops = '1M/s'\n[candidates]\n", "is a goal"),
        )),
        ("[server]\nstakc = 'linux-libaio'\n", "run", "stakc"),  # a scenario, and its own error
    ],
)  # fmt: skip
def test_commands_tell_what_they_were_given(nvmesim, tmp_path, given, command, what) -> None:
    if "\n" in str(given):
        (tmp_path / "x.toml").write_text(given)
        given = tmp_path / "x.toml"
    said = nvmesim(command, given)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert what in said.err


def test_trace_shows_the_good_and_says_the_bad(capsys, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(GOOD.read_bytes()[:2000])
    for order in ((GOOD, cut), (cut, GOOD)):
        assert run_command(["trace", *map(str, order), str(tmp_path / "none.json")]) == 2
        shown = capsys.readouterr()
        assert "16,867" in shown.out
        assert "cut.json: ends inside the JSON" in shown.err
        assert "none.json: no such file" in shown.err
        assert shown.err.count("\n") == 2
