"""A page of one thing is not a capture, and is told so at once: no pattern may be quadratic."""

from __future__ import annotations

import time

import pytest

from nvmesim.capture.registry import READERS
from nvmesim.capture.text import HEAD_BYTES, Source
from nvmesim.capture.unrecognised import what_else
from tests.fuzz.mutate import RUNS

LONGEST_S = 3.0
"""CPU time that no reader needs to look at a head: linear patterns take milliseconds, quadratic
ones took 5 to 90 s."""


@pytest.mark.parametrize("before", ["", "1.1 ", "[server]\n[", "block_rq_ nvme_ "])
@pytest.mark.parametrize("run", RUNS, ids=repr)
def test_every_reader_looks_at_it_in_no_time(run: bytes, before: str, tmp_path) -> None:
    path = tmp_path / "page.txt"
    path.write_bytes(before.encode() + run * (HEAD_BYTES // len(run)))
    head = Source(path).head
    for look in (*(reader.sniff for reader in READERS), what_else):
        began = time.process_time()
        look(head)
        assert time.process_time() - began < LONGEST_S, look
