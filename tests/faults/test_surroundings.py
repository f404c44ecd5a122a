"""What programs do around the API: threads, event loops, jumping clocks, two writers on a file."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

import nvmesim as ns
from nvmesim.cli.main import run_command
from nvmesim.study.sweep import store

TABLES = {
    "server": {"sockets": [{"cpu": "xeon-gold-6130"}]},
    "drives": [{"profile": "intel-p4610-1.6tb", "count": 2}],
    "workload": {"threads": 2, "outstanding": 8},
    "run": {"requests": 4_000},
}


def rate(seed=1):
    return ns.simulate(ns.Scenario(**TABLES), seed=seed, reliefs=False).total.iops.value


def test_threads_get_what_one_alone_gets():
    alone = [rate(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(rate, range(4))) == alone


def test_it_can_be_called_inside_an_event_loop_and_beside_it():
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
