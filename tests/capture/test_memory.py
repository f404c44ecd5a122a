"""A trace larger than memory: what reading takes does not grow with the rows."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.composed import FORMS, requests

READ = """
import resource, sys
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.registry import read_capture
request_table.KEEP_ROWS = 50_000
c = read_capture(sys.argv[1])
print(c.rows, c.skipped, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
GROWTH_MIB = 60
"""Chunks in flight, and what the allocator keeps; twenty times the rows would take 200 MiB."""


def peak_of(path: Path) -> tuple[int, ...]:
    """Rows, lines skipped, and the memory in MiB of a process that reads *path*."""
    code = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alibaba", "msr-cambridge", "biosnoop"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    block = FORMS[name].text(requests(20_000))
    peaks = []
    for times in (10, 200):
        path = tmp_path / f"{name}{times}"
        with path.open("w") as file:
            for _ in range(times):
                file.write(block)
        rows, _, peak = peak_of(path)
        assert rows == 20_000 * times
        peaks.append(peak)
    print(f"{name}: {peaks[0]} MiB, with twenty times the rows {peaks[1]} MiB")
    assert peaks[1] - peaks[0] < GROWTH_MIB


@pytest.mark.slow
def test_a_huge_log_with_one_good_line(tmp_path: Path) -> None:
    """A gibibyte of damage takes no more memory than a chunk of it."""
    path = tmp_path / "fio_clat.1.log"
    with path.open("w") as file:
        file.write("".join(f"{n}, 90000, 0, 4096\n" for n in range(40)))
        junk = "damaged, damaged, damaged, damaged\n" * 30_000
        for _ in range((1 << 30) // len(junk)):
            file.write(junk)
    rows, skipped, peak = peak_of(path)
    assert rows == 40
    assert skipped > 30_000_000
    assert peak < 900
