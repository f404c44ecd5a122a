"""A sweep on a real Dask scheduler with worker processes on loopback, one of which is killed."""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import NamedTuple

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nvmesim as ns
from nvmesim.cli.main import run_command
from nvmesim.errors import InfrastructureError
from nvmesim.scenario.load import to_text
from nvmesim.study.sweep import workers as cluster_module
from nvmesim.study.sweep.api import SweepTally

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of Dask itself
]

OVER = {"workload.outstanding": "1..60"}


def start(*arguments):
    command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ.copy())


class Cluster(NamedTuple):
    address: str
    scheduler: subprocess.Popen
    workers: list[subprocess.Popen]


@contextmanager
def started(folder, workers, *options):
    """A scheduler with so many workers on loopback."""
    scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    address = ""
    for line in scheduler.stderr:
        found = re.search(r"Scheduler at:\s*(tcp://\S+)", line)
        if found:
            address = found[1]
            break
    found = [
        start("dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
              "--local-directory", str(folder), *options)
        for _ in range(workers)
    ]  # fmt: skip
    try:
        yield Cluster(address, scheduler, found)
    finally:
        for process in [*found, scheduler]:
            process.kill()
            process.wait()
            process.stderr.close()


@pytest.fixture
def cluster(tmp_path):
    with started(tmp_path, 3) as found:
        yield found


def test_nothing_is_lost_or_doubled_when_a_worker_dies(cluster, small, tmp_path):
    address, _, workers = cluster
    tally, killed = SweepTally(), []

    def progress(what, share):
        if share > 0.1 and not killed:
            killed.append(workers[0])
            workers[0].kill()

    frame = ns.sweep(small, OVER, dask=address, output=tmp_path / "c.parquet", cache=False,
                     progress=progress, tally=tally)  # fmt: skip
    assert killed
    assert (tally.points, tally.failed, len(frame)) == (60, 0, 60)
    assert_frame_equal(frame, ns.sweep(small, OVER, workers=1, cache=False))


def test_a_scheduler_that_dies_is_one_line_and_exit_code_3(small, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(cluster_module, "GONE_S", 3.0)
    scenario, out = tmp_path / "small.toml", tmp_path / "c.parquet"
    scenario.write_text(to_text(small.to_dict()))
    arguments = ["sweep", str(scenario), "--over", "workload.outstanding=1..400", "-o", str(out),
                 "--no-cache"]  # fmt: skip
    with started(tmp_path, 2) as found:
        partial = tmp_path / "c.parquet.partial"

        def kill():
            while not (partial.exists() and len(partial.read_bytes().splitlines()) > 20):
                time.sleep(0.05)
            found.scheduler.kill()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        code = run_command([*arguments, "--dask", found.address])
    said = capfd.readouterr().err
    assert code == 3, said
    assert "Traceback" not in said
    assert said.strip().splitlines()[-1].startswith("nvmesim: the Dask scheduler at tcp://127")
    assert "the finished points are kept; --resume continues with the rest" in said
    done = len(partial.read_bytes().splitlines()) - 1
    assert done >= 20
    assert run_command([*arguments, "--resume", "--workers", "1"]) in (0, 1)
    assert len(pl.read_parquet(out)) == 400
    assert re.search(rf"{done} kept from before", capfd.readouterr().out)


def test_no_scheduler_is_one_line(small, monkeypatch):
    monkeypatch.setattr(cluster_module, "TIMEOUT", "2s")
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", "2s")
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match="no Dask scheduler answers"):
        ns.sweep(small, OVER, dask="tcp://127.0.0.1:1")
    assert time.monotonic() - started < 60
