"""An interval stays within what the drives' own rows leave."""

import math

import pytest

from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.room import ANY, FASTER, LEAST, LOST, room
from nvmesim.scenario.resolve import resolve
from tests.predict.scenarios import scenario

LONE, DEEP = 17_000.0, 320_000.0


def row(depth, measured, **more):
    return {"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": depth, "iops": 0.0,
            "measured": measured, **more}  # fmt: skip


ROWS = [row(1, LONE), row(32, DEEP)]


def asked(rows=ROWS, depth=8, drives=1, captured=None, **load):
    captured = {"depths": [1, 32], "block_sizes": [4096], "read_shares": [1.0], **(captured or {})}
    drive = {"residuals": rows, "captured": captured}
    load = {"threads_total": 1, "outstanding": depth, "read": 1.0, **load}
    return scenario(drives=drives, drive=drive, **load)


def left(iops, **more):
    return room(resolve(asked(**more)), iops)


def test_between_two_rows_both_bound_it():
    down, up = left(100_000.0)
    assert down == pytest.approx(math.log(100_000 / (LOST[True] * LONE)))
    assert up == pytest.approx(math.log(FASTER * 8 * LONE / 100_000))


def test_beyond_all_rows_the_deepest_is_the_least():
    down, _ = left(500_000.0, depth=256)
    assert down == pytest.approx(math.log(500_000 / (LOST[True] * DEEP)))


def test_more_drives_with_fewer_in_flight_have_no_least_but_the_lone_row():
    down, _ = left(100_000.0, depth=16, drives=4)
    assert down == pytest.approx(math.log(100_000 / (LOST[True] * LONE)))


def test_a_prediction_that_rows_contradict_is_not_cut():
    assert left(1_000.0)[0] == math.inf
    assert left(10 * FASTER * 8 * LONE)[1] == math.inf


def test_a_shallower_load_does_not_exceed_a_deeper_row():
    _, up = left(250_000.0, rows=[row(32, DEEP)])
    assert up == pytest.approx(math.log(FASTER * DEEP / 250_000))


def test_some_room_is_left_always():
    assert left(LOST[True] * LONE * 1.01)[0] == LEAST


@pytest.mark.parametrize(
    "other",
    [
        {"read": 0.0},
        {"access": "sequential"},
        {"rate": "10k/s", "threads_total": 1},
        {"rows": [row(1, LONE, sync="fsync"), row(8, DEEP, held_out=True)]},
        {"captured": {"datasheet": True}},
    ],
)
def test_rows_of_other_loads_say_nothing(other):
    assert left(100_000.0, **other) == ANY


def test_the_printed_interval_is_within():
    found = simulate(asked(depth=8), reliefs=False, requests=20_000)
    value = found.total.iops
    down, up = left(value.value)
    assert value.low >= 0.999 * value.value * math.exp(-down)
    assert value.high <= 1.001 * value.value * math.exp(up)
    assert value.low < value.value < value.high


def test_a_write_of_a_part_of_a_sector_does_not_bound_whole_ones():
    part = row(1, 2_000.0, read=0.0, block_size=512)
    assert left(2_500.0, rows=[part], depth=1, read=0.0)[1] == math.inf
    whole = row(1, 2_000.0, read=0.0)
    assert left(2_500.0, rows=[whole], depth=1, read=0.0)[1] < math.inf
