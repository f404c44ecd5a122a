"""Help, version, `trace`, `catalog`, and what every command has in common."""

import json
from pathlib import Path

import click
import pytest

from nvmesim import __version__
from nvmesim.catalog import names
from nvmesim.catalog.load import MODELS
from nvmesim.cli.main import nvmesim as group
from nvmesim.cli.main import run_command

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
    found = json.loads(said.out)
    assert {"file", "format", "version", "conditions", "rows", "skipped", "ops", "warnings"} <= set(
        found
    )
    assert found["ops"]["read"]["count"] == 200_000


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


def test_an_entry_shows_unit_basis_and_source(nvmesim):
    said = nvmesim("catalog", "show", "samsung-980pro-1tb")
    assert "read.die" in said.out
    assert " us " in said.out
    assert any(basis in said.out for basis in ("measured", "fitted"))


def test_an_entry_shows_what_differs_by_level_or_while_fresh(nvmesim):
    assert "raid5: per_request" in nvmesim("catalog", "show", "linux-md").out
    assert "fresh: write.program" in nvmesim("catalog", "show", "intel-p4610-1.6tb").out


def test_a_platform_shows_the_server_it_stands_for(nvmesim):
    assert "server.sockets.1.cpu" in nvmesim("catalog", "show", "supermicro-x11ddw-nt").out


def test_a_profile_of_ones_own_is_shown(nvmesim, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('kind = "drive"\nextends = "sata-ssd"\ncommands = "77k/s"\n')
    assert "77k/s" in nvmesim("catalog", "show", own).out
    assert nvmesim("catalog", "show", tmp_path / "none.toml").code == 2


def test_an_unknown_entry_names_the_nearest(nvmesim):
    said = nvmesim("catalog", "show", "samsung-980pro")
    assert said.code == 2
    assert "did you mean 'samsung-980pro-1tb'?" in said.err


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
