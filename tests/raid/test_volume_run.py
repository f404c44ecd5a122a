"""What the engines send to members is what the planner says: every level, state and engine."""

import numpy as np
import pytest

from tests.raid.expected import expectation
from tests.raid.volumes import expected, expected_members, ready_for, simulated, tables

REBUILD = {"degraded": [1], "rebuild": True}
LEVELS = {
    "raid0": ({"raid": "raid0"}, 4),
    "raid1": ({"raid": "raid1"}, 3),
    "raid10": ({"raid": "raid10"}, 4),
    "raid10 far3": ({"raid": "raid10", "layout": "far3"}, 5),
    "raid10 offset2": ({"raid": "raid10", "layout": "offset2"}, 5),
    "raid5": ({"raid": "raid5"}, 4),
    "raid5 asymmetric": ({"raid": "raid5", "layout": "right-asymmetric"}, 5),
    "raid5 parity-first": ({"raid": "raid5", "layout": "parity-first"}, 5),
    "raid6": ({"raid": "raid6"}, 6),
}
STATES = {"healthy": {}, "degraded": {"degraded": [1]}, "rebuilding": REBUILD}
LOADS = {
    "4K": {},
    "64K": {"block_size": "64 KiB"},
    "mixed": {"block_size": {"4 KiB": 0.6, "128 KiB": 0.4}, "read": 0.3},
    "4K at 512": {"align": "512 B"},
}
REQUESTS = 20_000


def check(ready, requests=REQUESTS, sigmas=5.0):
    """Sums over the members within *sigmas* of what *requests* draws may differ by."""
    found = simulated(ready, requests)
    wanted = expected(ready)
    squares = np.zeros(6)
    for share, table in tables(ready):
        e = expectation(table)
        means = np.array(
            [e.reads, e.writes, e.read_bios, e.write_bios, e.read_bytes, e.write_bytes]
        )
        squares += share * (means * means * 2 + means * 1.0)
    allowed = sigmas * np.sqrt(squares / requests) + 40 * wanted / requests
    assert np.all(np.abs(found.sum(axis=0) - wanted) <= allowed), (found.sum(axis=0), wanted)
    return found


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("level", LEVELS)
def test_members_do_what_the_planner_says(level, state, load):
    volume, count = LEVELS[level]
    if volume["raid"] == "raid0" and STATES[state]:
        pytest.skip("raid0 has no redundancy")
    ready = ready_for({"chunk": "64 KiB", **volume, **STATES[state]}, LOADS[load], count=count)
    found = check(ready)
    if volume["raid"] not in ("raid1", "raid10"):
        wanted = expected_members(ready)
        spread = 5 * np.sqrt((wanted + wanted**2) / REQUESTS) * (6 if load != "4K" else 1.5) + 0.01
        assert np.all(np.abs(found[:, :2] - wanted) <= spread)
    if STATES[state] == {"degraded": [1]}:
        assert found[1].sum() == 0
    assert len(ready.lowered.rebuilds) == (state == "rebuilding")


def test_sequential_streams_go_through_their_cycle():
    load = {"access": "sequential", "read": 0.0, "threads": 1, "outstanding": 1}
    ready = ready_for({"raid": "raid5", "chunk": "64 KiB"}, load, count=4)
    np.testing.assert_allclose(simulated(ready, 9_600).sum(axis=0), expected(ready), rtol=0.01)


@pytest.mark.parametrize(
    "engine", ["none", "intel-vroc", "tri-mode-9460", "hardware-raid", "storage-spaces-parity"]
)
def test_engines_other_than_md_send_whole_strips(engine):
    """A full stripe is one command a member, whatever md's 4 KiB rows merge into."""
    volume = {"raid": "raid5", "engine": engine, "chunk": "64 KiB"}
    load = {"block_size": "192 KiB", "read": 0.0}
    found = check(ready_for(volume, load, count=4)).sum(axis=0)
    assert found[1] == pytest.approx(4, rel=0.01)
    assert found[0] == 0


def test_columns_share_the_drives_evenly():
    volume = {"raid": "raid5", "engine": "storage-spaces-parity", "columns": 4}
    ready = ready_for(volume, {"read": 0.0}, count=6)
    found = check(ready)
    np.testing.assert_allclose(found[:, 1], 2 / 6, rtol=0.05)
    # two data chunks besides the one written: with three data columns a tie reconstructs
    assert found[:, 0].sum() == pytest.approx(2.0, rel=0.01)
    whole = ready_for({**volume, "columns": 6}, {"read": 0.0}, count=6)
    assert len(whole.lowered.network.order) < len(ready.lowered.network.order)


def test_a_degraded_volume_of_columns_spares_the_other_stripes():
    volume = {"raid": "raid5", "engine": "storage-spaces-parity", "columns": 3, "degraded": [0]}
    found = check(ready_for(volume, {"read": 1.0}, count=6))
    # member 0 is in half of the stripes, and a third of those reads are lost: 1 read becomes 2
    assert found[:, 0].sum() == pytest.approx(1 + 1 / 6, rel=0.01)
    assert found[0].sum() == 0


def test_zones_of_unequal_members():
    """raid0 of md uses all of every member: the longer ones serve more, alone beyond the others."""
    drives = [
        {"profile": "intel-p4610-1.6tb", "count": 2},
        {"profile": "intel-p4610-6.4tb", "count": 2},
    ]
    for access in ("random", "sequential"):
        load = {"access": access, "read": 1.0}
        found = simulated(ready_for({"raid": "raid0"}, load, drives=drives), 60_000)[:, 0]
        if access == "random":
            np.testing.assert_allclose(found, [0.1, 0.1, 0.4, 0.4], rtol=0.1)
        assert found.sum() == pytest.approx(1.0, rel=1e-3)
    equal = simulated(ready_for({"raid": "raid5"}, {"read": 1.0}, drives=drives), 20_000)
    np.testing.assert_allclose(equal[:, 0], 0.25, rtol=0.05)
    ready = ready_for({"raid": "raid5"}, {}, drives=drives)
    assert any("% of the capacity lies idle" in text for text in ready.scenario.assumptions)
    assert any("ends with the slowest" in text for text in ready.scenario.assumptions)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [("md", [1, 0, 0]), ("first", [1, 0, 0]), ("round-robin", [1 / 3] * 3),
     ("shortest-queue", [1 / 3] * 3)],
)  # fmt: skip
def test_read_policies_at_queue_depth_1(policy, wanted):
    load = {"read": 1.0, "threads": 1, "outstanding": 1}
    found = simulated(ready_for({"raid": "raid1", "read_policy": policy}, load, count=3), 6_000)
    np.testing.assert_allclose(found[:, 0], wanted, atol=0.03)


def test_read_policies_at_depth():
    """md and shortest queue spread by load; the first copy alone does not."""
    load = {"read": 1.0, "threads": 1, "outstanding": 32}
    for policy, least in (("md", 0.3), ("shortest-queue", 0.3), ("first", 0.0)):
        volume = {"raid": "raid1", "read_policy": policy}
        found = simulated(ready_for(volume, load, count=3), 6_000)
        assert found[:, 0].min() >= least * 0.9
    # a stream stays where it is: 2000:0 in the md ground truth
    stream = simulated(
        ready_for({"raid": "raid1"}, {**load, "access": "sequential"}, count=2), 6_000
    )
    np.testing.assert_allclose(stream[:, 0], [1, 0], atol=0.01)


def test_two_streams_on_a_mirror_of_three_keep_apart():
    load = {"read": 1.0, "threads": 2, "outstanding": 8, "access": "sequential"}
    ready = ready_for({"raid": "raid1"}, load, count=3)
    engine = ready.make(ready.lowered.network, seed=1)
    shares = [engine.advance(500, 1 << 60).alternatives / 500 for _ in range(3)]
    for share in shares:
        assert 1 <= (share > 0.02).sum() <= 3


@pytest.mark.parametrize("engine", ["hardware-raid"])
def test_a_write_back_cache_answers_first_and_writes_later(engine):
    """Writes end in the cache while it has room; the members do the same work in the end."""
    volume = {"raid": "raid5", "engine": engine, "chunk": "64 KiB"}
    quiet = {"read": 0.0, "threads": 1, "outstanding": 1}
    ready = ready_for(volume, quiet, count=5)
    found = simulated(ready, 20_000).sum(axis=0)
    np.testing.assert_allclose(found, [2, 2, 2, 2, 8192, 8192], rtol=0.02)
    # a stream gathers to full stripes: no reads, a fourth more than the data
    stream = ready_for(volume, {**quiet, "access": "sequential"}, count=5)
    found = simulated(stream, 40_000).sum(axis=0)
    assert found[0] == 0
    assert found[5] == pytest.approx(4096 * 5 / 4, rel=0.1)
