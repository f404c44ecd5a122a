"""Files that are written: modes, owners, links, private folders; programs around the API."""

import asyncio
import itertools
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nvmesim as ns
from nvmesim import code_cache
from nvmesim.cli.main import run_command
from nvmesim.code_cache import read_private, write_private
from nvmesim.files import write_text, written
from nvmesim.study.sweep import store
from nvmesim.study.validate.published import new_set
from tests.servers import bare, one_server


def test_modes_of_what_was_there_and_of_new_files(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    for mode in (0o600, 0o640, 0o664):
        out.write_text("before")
        out.chmod(mode)
        write_text(out, "after")
        assert out.read_text() == "after"
        assert out.stat().st_mode & 0o777 == mode
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: nothing here can be given away")
def test_owner_of_what_was_there_stays(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.touch()
    os.chown(out, 54_321, 54_322)
    write_text(out, "after")
    assert (out.stat().st_uid, out.stat().st_gid) == (54_321, 54_322)


def test_the_part_beside_has_a_new_name_and_no_link_at_it_is_followed(
    tmp_path: Path, monkeypatch
) -> None:
    names = set()
    for _ in range(3):
        with written(tmp_path / "out") as beside:
            assert beside.parent == tmp_path
            assert beside.is_file()
            names.add(beside.name)
            beside.write_text("whole")
    assert len(names) == 3
    assert os.listdir(tmp_path) == ["out"]
    monkeypatch.setattr("nvmesim.files.secrets.token_hex", lambda _: "known")
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / ".out.known.part").symlink_to(precious)
    with pytest.raises(FileExistsError, match=r"out"):
        write_text(tmp_path / "out", "text")
    assert precious.read_text() == "kept"


def test_errors_name_the_file_and_names_may_be_long(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OSError, match="No space") as full, written(out):
        raise OSError(28, "No space left on device")
    assert full.value.filename == str(out)
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError) as gone:
        write_text(tmp_path / "no" / "out", "text")
    assert gone.value.filename == str(tmp_path / "no" / "out")
    long = tmp_path / ("n" * 255)
    write_text(long, "text")
    assert long.read_text() == "text"


@pytest.mark.parametrize("name", ["plain", 'quo"ted', "back\\slash", "new\nline", "{brace}", "ünï"])
def test_the_skeleton_of_a_set_is_toml_whatever_its_folder_is_called(name, tmp_path: Path) -> None:
    for path in new_set(tmp_path / name):
        if path.suffix == ".toml":
            assert tomllib.loads(path.read_text("utf-8"))["name"] == name


def test_rows_of_requests_keep_the_mode_too(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    out.touch()
    out.chmod(0o600)
    bare(one_server("hdd-7200", {"outstanding": 1}), requests=200, requests_file=out)
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.stat().st_size > 1000
    assert os.listdir(tmp_path) == ["rows.parquet"]


def kept(folder: Path) -> bytes:
    write_private(folder / "name", b"data")
    return read_private(folder / "name")


def test_what_is_made_is_closed_to_others_and_owners_may_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept(tmp_path / "a" / "b") == b"data"
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b" / "name").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "a" / "b") == ["name"]
    # Windows: nothing but a regular file.
    monkeypatch.setattr(code_cache, "IS_CHECKED", False)
    (tmp_path / "open").mkdir(mode=0o777)
    assert kept(tmp_path / "open") == b"data"


LOAD = {"threads": 2, "outstanding": 8}
TABLES = one_server("intel-p4610-1.6tb", LOAD, 2, run={"requests": 4_000})


def rate(seed=1):
    return bare(TABLES, seed=seed).total.iops.value


def test_threads_and_event_loops_get_what_one_alone_gets():
    alone = [rate(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(rate, range(4))) == alone

    async def both():
        inside = rate()
        beside = await asyncio.gather(*(asyncio.to_thread(rate) for _ in range(2)))
        return [inside, *beside]

    assert len(set(asyncio.run(both()))) == 1


@pytest.mark.parametrize("step", [-1000.0, 0.0, 1e6])
def test_a_sweep_does_not_care_about_the_clock(step, tmp_path, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(store.time, "monotonic", lambda: step * next(clock))
    monkeypatch.setattr(store.time, "time", lambda: step * next(clock))
    frame = ns.sweep(
        TABLES, {"workload.outstanding": [1, 2]}, output=tmp_path / "out.parquet", workers=1,
        cache=False, certainty=False,
    )  # fmt: skip
    assert frame["error"].null_count() == len(frame) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]


def test_two_writers_leave_one_whole_file(files, tmp_path):
    page = tmp_path / "page.html"
    command = ["run", str(files["scenario"]), "--report", str(page)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run_command, [command] * 3)) == [0, 0, 0]
    assert page.read_text("utf-8").rstrip().endswith("</html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "points.csv", "two.toml"]
