"""Percentiles of one answer rise, and so do both ends of their intervals."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvmesim.measure.figures import PERCENTILES, Distribution
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict
from tests.servers import one_server

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
