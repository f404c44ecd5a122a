"""A sweep on a real Dask scheduler with worker processes on loopback, one of which is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest
from polars.testing import assert_frame_equal

import nvmesim as ns
from nvmesim.errors import InputError
from nvmesim.study.sweep import Tally
from nvmesim.study.sweep import cluster as cluster_module

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of Dask itself
]

OVER = {"workload.outstanding": "1..60"}


def start(*arguments):
    command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ.copy())


@pytest.fixture
def cluster(tmp_path):
    """Start a scheduler and three workers; give its address and the workers' processes."""
    scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    address = ""
    for line in scheduler.stderr:
        found = re.search(r"Scheduler at:\s*(tcp://\S+)", line)
        if found:
            address = found[1]
            break
    workers = [
        start("dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
              "--local-directory", str(tmp_path))
        for _ in range(3)
    ]  # fmt: skip
    yield address, workers
    for process in [*workers, scheduler]:
        process.kill()
        process.wait()
        process.stderr.close()


def test_nothing_is_lost_or_doubled_when_a_worker_dies(cluster, small, tmp_path):
    address, workers = cluster
    tally, killed = Tally(), []

    def progress(what, share):
        if share > 0.1 and not killed:
            killed.append(workers[0])
            workers[0].kill()

    frame = ns.sweep(small, OVER, dask=address, output=tmp_path / "c.parquet", cache=False,
                     progress=progress, tally=tally)  # fmt: skip
    assert killed
    assert (tally.points, tally.failed, len(frame)) == (60, 0, 60)
    assert_frame_equal(frame, ns.sweep(small, OVER, workers=1, cache=False))


def test_no_scheduler_is_one_line(small, monkeypatch):
    monkeypatch.setattr(cluster_module, "TIMEOUT", "2s")
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", "2s")
    started = time.monotonic()
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        ns.sweep(small, OVER, dask="tcp://127.0.0.1:1")
    assert time.monotonic() - started < 60
