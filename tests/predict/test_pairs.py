"""Two designs drawn jointly: who is named first changes signs only; percentiles of one rise."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvmesim.measure.figures import PERCENTILES, Distribution, Interval
from nvmesim.predict.simulate import compare, simulate
from nvmesim.predict.uncertainty.derived import Pair, gain_of, pair_of
from nvmesim.predict.uncertainty.parts import Parts
from nvmesim.scenario.load import scenario_from_dict
from tests.predict.scenarios import scenario
from tests.servers import one_server

SIDE = st.floats(0, 3)
SPANS = st.tuples(SIDE, SIDE)
PARTS = st.builds(Parts, SPANS, SPANS, SPANS, SPANS)
VALUE = st.floats(1, 1e3)
RAID5 = {"raid": "raid5", "chunk": "64 KiB"}
UNSURE = {"commands": {"value": "500k/s", "low": "200k/s", "high": "700k/s", "basis": "fitted"}}


def assert_mirrored(one: Interval, other: Interval) -> None:
    """One is the other's negative, its ends changed."""
    ends = (one.value, one.low, one.high)
    size = max(map(abs, ends))
    assert ends == pytest.approx((-other.value, -other.high, -other.low), abs=1e-7 * size)


def log(gain: Interval) -> Interval:
    return Interval(*map(math.log1p, (gain.value, gain.low, gain.high)))


@given(VALUE, VALUE, PARTS, PARTS, st.booleans(), st.floats(-1, 1), SIDE)
def test_a_ratio_and_a_difference_mirror(a, b, first, second, same_class, numbers, chance):
    known = {"same_class": same_class, "numbers": numbers, "chance": chance}
    one, other = (
        pair_of((a, b), (first, second), **known),
        pair_of((b, a), (second, first), **known),
    )
    assert_mirrored(log(one.gain.interval), log(other.gain.interval))
    assert_mirrored(one.difference, other.difference)
    assert one.gain.p_better == pytest.approx(1 - other.gain.p_better, abs=1e-9)
    for found in (one.gain.interval, one.difference):
        assert found.low <= found.value <= found.high


@given(VALUE, VALUE, SPANS, SPANS, st.booleans())
def test_a_gain_of_a_change_mirrors(a, b, first, second, same_class):
    changes = (Interval(r, r, r) for r in (b / a - 1, a / b - 1))
    rests = ((first, second), (second, first))
    one, other = (
        gain_of(change, rest, same_class=same_class)
        for change, rest in zip(changes, rests, strict=True)
    )
    assert_mirrored(log(one.interval), log(other.interval))
    assert one.p_better == pytest.approx(1 - other.p_better, abs=1e-4)


@given(VALUE, PARTS)
def test_a_design_against_itself_is_known_exactly(value, parts):
    found = pair_of((value, value), (parts, parts), same_class=True, numbers=1.0, chance=0.0)
    assert found.difference == found.gain.interval == Interval(0.0, 0.0, 0.0)
    assert found.gain.p_better == 0.5


@given(VALUE, SPANS, st.floats(-1, 1))
def test_a_side_is_drawn_as_it_is_printed(value, span, correlation):
    """Against something that is known exactly, the gain is the side's own interval."""
    found = Pair((1.0, value), ((0.0, 0.0), span), correlation).gain.interval
    down, up = Parts(model=span).total
    assert math.log((1 + found.low) / value) == pytest.approx(-down, abs=0.01 * down + 1e-9)
    assert math.log((1 + found.high) / value) == pytest.approx(up, abs=0.01 * up + 1e-9)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"read": 0.7}, {"read": 0.7, "drives": 4, "volume": RAID5}),
        ({"drive": UNSURE, "outstanding": 64}, {"outstanding": 32, "run": {"requests": 25_000}}),
        ({"run": {"requests": 20_000, "seed": 5}}, {"rate": "100k/s"}),
    ],
    ids=["another class", "one drive with other numbers", "a rate, another seed"],
)
@pytest.mark.parametrize("certainty", [True, False])
def test_designs_compared_the_other_way_round_mirror(a, b, certainty):
    designs = scenario(**a), scenario(**b)
    one, other = (compare(*each, certainty=certainty) for each in (designs, designs[::-1]))
    assert (one.iops_a, one.iops_b) == (other.iops_b, other.iops_a)
    assert_mirrored(log(one.gain), log(other.gain))
    for figure in ("iops", "mean_s", "p99_s"):
        assert_mirrored(getattr(one, figure), getattr(other, figure))
    if certainty:
        assert 1 + one.gain.value == pytest.approx(one.iops_b.value / one.iops_a.value)
        assert one.p_better == pytest.approx(1 - other.p_better, abs=1e-9)


TIME = st.floats(1e-6, 1.0)
SPAN = st.tuples(TIME, TIME, TIME).map(sorted)
NAMES = [f"p{q:g}" for q in PERCENTILES]
EMPTY = np.zeros(0)


def distribution(spans):
    ends = {name: (low, high) for name, (low, _, high) in zip(NAMES, spans, strict=True)}
    values = dict(zip(PERCENTILES, (value for _, value, _ in spans), strict=True))
    return Distribution(1e-3, 1.0, values, {"mean": (1e-3, 2e-3), **ends}, EMPTY, EMPTY)


def assert_rising(found):
    known = [name for name in NAMES if name in found.intervals]
    values = [v for q in PERCENTILES if (v := found.percentiles[q]) is not None]
    for line in (values, *zip(*(found.intervals[name] for name in known), strict=True)):
        assert all(a <= b for a, b in pairwise(line))
    for q, name in zip(PERCENTILES, NAMES, strict=True):
        if name in found.intervals:
            low, high = found.intervals[name]
            assert low <= found.percentiles[q] <= high


@given(st.lists(SPAN, min_size=len(NAMES), max_size=len(NAMES)),
       st.lists(TIME, min_size=len(NAMES), max_size=len(NAMES)).map(sorted))  # fmt: skip
def test_ordered_intervals_hold_what_they_held(spans, truth):
    """Of percentiles that rise, as those of any run do, none is missed for the first time."""
    before, after = distribution(spans), distribution(spans).in_order()
    assert_rising(after)
    assert after.intervals["mean"] == before.intervals["mean"]
    assert after.in_order() == after
    missed_below = False
    for name, value in zip(NAMES, truth, strict=True):
        (low, high), (new_low, new_high) = before.intervals[name], after.intervals[name]
        missed_below |= value < low
        assert new_low >= low
        assert new_high >= high
        assert missed_below or value >= new_low


@pytest.mark.parametrize(("drive", "read", "depth"), [
    ("intel-p4610-1.6tb", 1.0, 1), ("intel-p4610-1.6tb", 0.7, 1), ("samsung-980pro-1tb", 0.7, 8),
])  # fmt: skip
def test_an_answer_has_percentiles_that_rise(drive, read, depth):
    load = {"threads": 4, "outstanding": depth, "read": read}
    asked = scenario_from_dict(one_server(drive, load, run={"requests": 20_000}))
    found = simulate(asked, reliefs=False)
    for op in filter(None, (found.total, found.read, found.write)):
        assert_rising(op.latency)
        assert_rising(op.clat)
