"""Scenarios that cannot be, or came by mail: refused in one line, and they reach no other file."""

import os
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from nvmesim.errors import GeometryError, InputError, ScenarioError, UnitError
from nvmesim.scenario.load import load_scenario, scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.study.designs import load_goal

ONE = {"cpu": "xeon-gold-6130"}
DRIVES = [{"profile": "intel-p4610-1.6tb", "count": 4}]
LOAD = {"threads": 2, "outstanding": 4}


def resolved(**changes: object):  # type: ignore[no-untyped-def]
    tables = {"server": {"stack": "spdk", "sockets": [ONE]}, "drives": DRIVES, "workload": LOAD}
    return resolve(scenario_from_dict({**tables, **changes}))


def server(*sockets: dict, **more: object) -> dict:
    return {"stack": "spdk", "sockets": list(sockets), **more}


OWN = {"cores": 8, "threads_per_core": 2, "ghz": 3.0, "lanes": 48}
QUAD = {"name": "quad", "kind": "adapter", "link": "pcie3 x16"}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"server": server({**ONE, "memory": {"channels": 6, "rate": "fast"}})}, "memory"),
        ({"server": server(ONE, ONE, interconnect={"kind": "none"})}, "known: upi"),
        ({"server": server({"cpu": {**OWN, "interconnect_links": 0}}, ONE)},
         "joins no second socket"),
        ({"server": server(ONE, ONE, interconnect={"rate": "fast"})}, "server.interconnect"),
        ({"adapters": [QUAD, QUAD]}, "adapters.1.name is 'quad', which another adapter has"),
        *(({"volume": volume}, words) for volume, words in (
            ({"raid": "raid1", "columns": 2}, "columns is 2; raid1 has"),
            ({"raid": "raid6", "degraded": [1, 1]}, "names member 1 twice"),
            ({"raid": "raid10", "degraded": [2, 3]}, "array has failed"),
            ({"raid": "raid5", "engine": "storage-spaces-parity", "columns": 3,
              "degraded": [0, 3]}, "array has failed"),
            ({"raid": "raid0", "rebuild": True}, "no redundancy"),
            ({"raid": "raid5", "engine": "intel-vroc", "bitmap": "internal"}, "not Linux md"),
            ({"raid": "raid10", "engine": "storage-spaces-mirror", "columns": 3}, "columns is 3"),
            ({"raid": "raid5", "engine": "storage-spaces-parity", "columns": 2}, "at least 3"),
            ({"raid": "raid5", "chunk": "12 KiB"}, "volume.chunk is 12 KiB; raid5 takes a power"),
            ({"raid": "raid0", "chunk": "2 TB"}, "the smallest member holds"),
            ({"raid": "raid0", "layout": "left-symmetric"}, "layout is 'left-symmetric'"),
        )),
        ({"workload": {**LOAD, "fsync": 8}}, "fsync is about writes; the load only reads"),
        ({"workload": {**LOAD, "fdatasync": 8}}, "fdatasync is about writes"),
        ({"workload": {**LOAD, "sync": "dsync"}}, "sync is about writes"),
        ({"workload": {**LOAD, "fsync": 1, "fdatasync": 1}}, "fsync and fdatasync exclude each"),
        ({"workload": {**LOAD, "fsync": 0}}, "fsync is 0"),
        ({"workload": {**LOAD, "sync": "maybe"}}, "sync is 'maybe'"),
    ],
)  # fmt: skip
def test_refused_in_one_line(tables: dict, words: str) -> None:
    with pytest.raises(InputError) as caught:
        resolved(**tables)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ScenarioError | GeometryError | UnitError)


def said(**tables: object) -> str:
    return "; ".join(resolved(**tables).assumptions)


def test_an_adapter_of_two_sockets_says_where_it_was_put() -> None:
    two = server(ONE, ONE)
    assert "adapters.0: socket not stated, 0 taken" in said(server=two, adapters=[QUAD])
    assert "adapters.0: socket" not in said(server=two, adapters=[{**QUAD, "socket": 1}])


def test_numbers_of_a_state_that_is_not_known_are_said() -> None:
    fresh = [{"profile": "hdd-7200", "count": 1, "state": "fresh"}]
    assert "has no values for state fresh" in said(drives=fresh)


def test_files_of_a_command_line_that_the_scenario_does_not_have() -> None:
    line = "-b4K -t1 -o4 -r -d10 -Su {}"
    named = {"diskspd": line.format("drive1 drive2")}
    assert [t.name for t in resolved(workload=named).workload[0].targets] == ["drive1", "drive2"]
    other = {"diskspd": line.format("D:\\a.dat E:\\b.dat")}
    assert "2 files named, taken to be on drive0, drive1 only" in said(workload=other)
    chosen = {"diskspd": line.format("D:\\a.dat"), "targets": "drive3"}
    assert [t.name for t in resolved(workload=chosen).workload[0].targets] == ["drive3"]


@pytest.mark.parametrize(
    ("options", "more", "span", "offset"),
    [
        ("size=50%", {}, 800_000_000_000 // 4096 * 4096, 0),
        ("filesize=10g", {}, 10 << 30, 0),
        ("filesize=25%", {}, 400_000_000_000 // 4096 * 4096, 0),
        ("size=10g\noffset=50%", {}, 10 << 30, 800_000_000_000 // 4096 * 4096),
        ("size=50%", {"span": "1 GiB"}, 1 << 30, 0),  # the scenario's wins
    ],
)
def test_parts_of_a_file_of_fio(tmp_path, options: str, more: dict, span: int, offset: int) -> None:
    (tmp_path / "job.fio").write_text(f"[j]\nrw=randread\nbs=4k\niodepth=4\n{options}\n")
    tables = {"server": server(ONE), "drives": DRIVES, "workload": {"fio": "job.fio", **more}}
    (group,) = resolve(scenario_from_dict(tables, base=tmp_path)).workload
    assert (group.span, group.offset) == (span, offset)


SCENARIO = """
[server]
stack = "linux-io_uring"
sockets = [{{ cpu = "xeon-gold-6130" }}]
[[drives]]
profile = {profile}
[[workload]]
{load}
"""
CLOSED_LOOP = "threads = 1\noutstanding = 4"
WHOLE = SCENARIO.format(profile='"sata-ssd"', load=CLOSED_LOOP)
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


def written(mail: Path, profile: str = '"sata-ssd"', load: str = CLOSED_LOOP) -> Path:
    path = mail / "scenario.toml"
    path.write_text(SCENARIO.format(profile=profile, load=load))
    return path


@pytest.mark.parametrize(
    ("named", "found"),
    [
        *((("profile", f'"{p}"'), r"drives\.0\.profile names .* outside the file's folder")
          for p in ("../private.toml", "parts/../../private.toml", "/etc/hostname.toml",
                    "../x/../p.toml")),
        *((("load", f'{key} = "/etc/passwd"'), rf"workload\.0\.{key} names '/etc/passwd', outside")
          for key in ("trace", "fio")),
        (("profile", '"parts/d.toml"'), r"extends names '\.\./\.\./private\.toml', outside"),
    ],
)  # fmt: skip
def test_what_lies_elsewhere_is_refused(mail: Path, named: tuple[str, str], found: str) -> None:
    (mail / "parts" / "d.toml").write_text('kind = "drive"\nextends = "../../private.toml"\n')
    with pytest.raises(InputError, match=found):
        load_scenario(written(mail, **dict([named])))


def test_what_may_be_named(mail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user types may lead anywhere; a file, within its folder and within the user's."""
    typed = [f"drives.0.profile={mail.parent / 'private.toml'}"]
    assert load_scenario(written(mail), typed).drives[0].count == 1
    (mail / "parts" / "d.toml").write_text(PROFILE)
    assert load_scenario(written(mail, '"parts/../parts/d.toml"')).drives[0].count == 1
    monkeypatch.chdir(mail.parent)
    assert load_scenario(written(mail, '"../private.toml"')).drives[0].count == 1


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
        ("drives = [", "not TOML"),
        (b"\xff\xfe\x00", "not TOML"),
        ("", "server is missing"),
        ('[server]\nstack = "spdk"', "server.sockets is missing"),
        (None, "no such file"),
        (WHOLE + f"[run]\nseed = 1{'0' * 400}", "seed"),
        (WHOLE + "[run]\nprecision = '" + "9" * 4_000 + "%'", "precision"),
        (WHOLE.replace("threads = 1", "threads = 1" + "0" * 30), "threads"),
    ],
)
def test_files_that_are_no_scenario(mail: Path, text: str | bytes | None, found: str) -> None:
    path = mail / "s.toml"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
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


@pytest.mark.parametrize(("name", "found"), [("pipe", "a device or a pipe"), ("parts", "folder")])
def test_a_pipe_or_a_folder_is_no_scenario(mail: Path, name: str, found: str) -> None:
    os.mkfifo(mail / "pipe")
    with pytest.raises(ScenarioError, match=found):
        load_scenario(mail / name)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_scenario_that_windows_wrote_is_read(mail: Path, encoding: str) -> None:
    path = written(mail)
    path.write_bytes(path.read_text().replace("\n", "\r\n").encode(encoding))
    assert load_scenario(path).drives[0].count == 1
