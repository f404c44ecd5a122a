"""Scenarios and profiles that came by mail: they reach no other file, and break in one line."""

import os
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from nvmesim.errors import InputError, ScenarioError
from nvmesim.scenario.load import apply_sets, load_scenario
from nvmesim.study.designs import load_goal

SCENARIO = """
[server]
stack = "linux-io_uring"
sockets = [{{ cpu = "xeon-gold-6130" }}]
[[drives]]
profile = {profile}
[[workload]]
{load}
"""
LOAD = "threads = 1\noutstanding = 4"
WHOLE = SCENARIO.format(profile='"sata-ssd"', load=LOAD)
PROFILE = 'kind = "drive"\nextends = "sata-ssd"\n'


@pytest.fixture
def mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below which a mail was unpacked; beside it lies a file that is none of its business.

    The user stands in another folder still.
    """
    (tmp_path / "private.toml").write_text(PROFILE)
    (tmp_path / "mail" / "parts").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "mail"


def written(mail: Path, profile: str = '"sata-ssd"', load: str = LOAD) -> Path:
    path = mail / "scenario.toml"
    path.write_text(SCENARIO.format(profile=profile, load=load))
    return path


@pytest.mark.parametrize(
    "reference",
    ["../private.toml", "parts/../../private.toml", "/etc/hostname.toml", "../x/../p.toml"],
)
def test_a_profile_elsewhere_is_refused(mail: Path, reference: str) -> None:
    with pytest.raises(
        ScenarioError, match=r"drives\.0\.profile names .* outside the file's folder"
    ):
        load_scenario(written(mail, f'"{reference}"'))


@pytest.mark.parametrize("key", ["trace", "fio"])
def test_a_load_elsewhere_is_refused(mail: Path, key: str) -> None:
    with pytest.raises(ScenarioError, match=rf"workload\.0\.{key} names '/etc/passwd', outside"):
        load_scenario(written(mail, load=f'{key} = "/etc/passwd"'))


def test_a_profile_that_extends_elsewhere_is_refused(mail: Path) -> None:
    (mail / "parts" / "d.toml").write_text('kind = "drive"\nextends = "../../private.toml"\n')
    with pytest.raises(InputError, match=r"extends names '\.\./\.\./private\.toml', outside"):
        load_scenario(written(mail, '"parts/d.toml"'))


def test_within_its_folder_a_file_may_be_named(mail: Path) -> None:
    (mail / "parts" / "d.toml").write_text(PROFILE)
    assert load_scenario(written(mail, '"parts/../parts/d.toml"')).drives[0].count == 1


def test_within_the_users_folder_a_file_may_be_named(
    mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(mail, '"../private.toml"')
    monkeypatch.chdir(mail.parent)
    assert load_scenario(path).drives[0].count == 1


def test_what_the_user_types_may_lead_anywhere(mail: Path) -> None:
    private = mail.parent / "private.toml"
    scenario = load_scenario(written(mail), [f"drives.0.profile={private}"])
    assert scenario.drives[0].count == 1


def test_profiles_that_extend_each_other_are_refused(mail: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (mail / f"{name}.toml").write_text(f'kind = "drive"\nextends = "{other}.toml"\n')
    with pytest.raises(InputError, match="extends itself"):
        load_scenario(written(mail, '"a.toml"'))


def test_a_goal_names_no_scenario_elsewhere(mail: Path) -> None:
    path = mail / "goal.toml"
    path.write_text('scenario = "../private.toml"\n[constraints]\niops = "1/s"\n')
    with pytest.raises(InputError, match=r"scenario names '\.\./private\.toml', outside"):
        load_goal(path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = " + "[" * 20_000, "nested too deeply"),
        ("x = " + "9" * 5_000, "not TOML: Exceeds the limit"),
        ("name = 'x'\n" + "#" * (1 << 24), "larger than 16 MiB"),
        ("\0", "not TOML"),
        (WHOLE + f"[run]\nseed = 1{'0' * 400}", "seed"),
        (WHOLE + "[run]\nprecision = '" + "9" * 4_000 + "%'", "precision"),
        (WHOLE.replace("threads = 1", "threads = 1" + "0" * 30), "threads"),
    ],
)
def test_hostile_numbers_and_sizes(mail: Path, text: str, found: str) -> None:
    path = mail / "s.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=found) as caught:
        load_scenario(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 600


def test_the_terminal_is_not_flooded(mail: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mail / "s.toml"
    path.write_text(WHOLE.replace("sata-ssd", "s" * 50_000))
    assert run_command(["run", str(path)]) == 2
    said = capsys.readouterr().err
    assert "the catalog has no" in said
    assert said.rstrip().endswith(" more")  # names that it lists
    assert len(said) < 2_000


def test_a_pipe_is_no_scenario(mail: Path) -> None:
    path = mail / "s.toml"
    os.mkfifo(path)
    with pytest.raises(ScenarioError, match="a device or a pipe"):
        load_scenario(path)


def test_a_scenario_that_powershell_wrote_is_read(mail: Path) -> None:
    path = written(mail)
    path.write_bytes(path.read_text().replace("\n", "\r\n").encode("utf-16"))
    assert load_scenario(path).drives[0].count == 1


def test_a_key_of_thousands_of_parts_is_refused():
    with pytest.raises(ScenarioError, match="a key has 32 parts at most"):
        apply_sets({}, ["a." * 1000 + "a=1"])
