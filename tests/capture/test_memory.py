"""A trace larger than memory: what reading takes does not grow with the rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture import composed

READ = """
import resource, sys
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.registry import read_capture
request_table.KEEP_ROWS = 50_000
capture = read_capture(sys.argv[1])
print(capture.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
GROWTH_MIB = 60
"""Chunks in flight, and what the allocator keeps; twenty times the rows would take 200 MiB."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alibaba", "msr", "biosnoop"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    block = getattr(composed, name)(20_000)
    peaks = []
    for times in (10, 200):
        path = tmp_path / f"{name}{times}"
        with path.open("w") as file:
            for _ in range(times):
                file.write(block)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
        )
        rows, peak = map(int, done.stdout.split())
        assert rows == 20_000 * times
        peaks.append(peak)
    print(f"{name}: {peaks[0]} MiB, with twenty times the rows {peaks[1]} MiB")
    assert peaks[1] - peaks[0] < GROWTH_MIB
