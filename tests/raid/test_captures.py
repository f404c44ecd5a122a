"""Single requests of captured runs: every command on every member, place and size.

The captures are block traces of queue depth 1 runs (md ground truth, kernel 6.1), reduced to the
requests on the volume and the commands issued to the members, in sectors.
"""

import gzip
import json

import pytest

from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.planner.parity import StripeCache
from tests.raid.md_truth import DATA, KIB
from tests.raid.requests import plan_request

SECTOR = 512
OPS = {"r": "read", "w": "write"}


def captures() -> dict[str, dict]:
    with gzip.open(DATA / "captures.json.gz", "rt") as text:
        return json.load(text)


@pytest.mark.parametrize("name", sorted(captures()))
def test_every_command_of_a_capture(name):
    capture = captures()[name]
    geometry = RaidGeometry(
        capture["level"], capture["members"], (capture["chunk_kib"] or 0) * KIB, capture["layout"]
    )
    cache = StripeCache(geometry.stripe_cache)
    assert capture["requests"]
    for op, start, length, commands in capture["requests"]:
        plan = plan_request(geometry, OPS[op], start * SECTOR, length * SECTOR, cache)
        planned = sorted(
            (child.member_alternatives[0], child.op, child.member_offset, child.n_bytes)
            for phase in plan.phases
            for child in phase
        )
        seen = sorted((m, OPS[o], s * SECTOR, n * SECTOR) for m, o, s, n in commands)
        assert planned == seen
