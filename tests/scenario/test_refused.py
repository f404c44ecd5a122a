"""Scenarios that cannot be: refused in one line that names the key; and what is assumed is said."""

import pytest

from nvmesim.errors import GeometryError, InputError, ScenarioError, UnitError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

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
        ({"volume": {"raid": "raid1", "columns": 2}}, "columns is 2; raid1 has"),
        ({"volume": {"raid": "raid6", "degraded": [1, 1]}}, "names member 1 twice"),
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
    ("options", "span", "offset"),
    [
        ("size=50%", 800_000_000_000 // 4096 * 4096, 0),
        ("filesize=10g", 10 << 30, 0),
        ("filesize=25%", 400_000_000_000 // 4096 * 4096, 0),
        ("size=10g\noffset=50%", 10 << 30, 800_000_000_000 // 4096 * 4096),
    ],
)
def test_parts_of_a_file_of_fio(tmp_path, options: str, span: int, offset: int) -> None:
    (tmp_path / "job.fio").write_text(f"[j]\nrw=randread\nbs=4k\niodepth=4\n{options}\n")
    tables = {
        "server": server(ONE), "drives": DRIVES, "workload": {"fio": "job.fio"},
    }  # fmt: skip
    (group,) = resolve(scenario_from_dict(tables, base=tmp_path)).workload
    assert (group.span, group.offset) == (span, offset)


def test_the_scenarios_span_wins_over_the_jobs(tmp_path) -> None:
    (tmp_path / "job.fio").write_text("[j]\nrw=randread\nbs=4k\nsize=50%\n")
    tables = {"server": server(ONE), "drives": DRIVES,
              "workload": {"fio": "job.fio", "span": "1 GiB"}}  # fmt: skip
    (group,) = resolve(scenario_from_dict(tables, base=tmp_path)).workload
    assert group.span == 1 << 30


def test_where_random_requests_of_a_sequential_load_come_from() -> None:
    assert resolved(workload={**LOAD, "access": "sequential"}).workload[0].random_fraction == 0
    mixed = {**LOAD, "access": "sequential", "random_fraction": 0.3}
    assert resolved(workload=mixed).workload[0].random_fraction == 0.3
