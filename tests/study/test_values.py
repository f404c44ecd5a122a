"""Lists, ranges, samples: which points a sweep has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvmesim.errors import InputError
from nvmesim.study.sweep.plan import SweptRange, make_plan, parse_over, parse_values


def values(text):
    found = parse_values(text)
    return tuple(found.values(text)) if isinstance(found, SweptRange) else found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4,8", (4, 8)),
        ("4..7", (4, 5, 6, 7)),
        ("4..24..8", (4, 12, 20)),
        ("1..256..x4", (1, 4, 16, 64, 256)),
        ("0..1..0.25", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("0.1..0.3..0.1", (0.1, 0.2, 0.3)),
        ("1..3..x1.5", (1.0, 1.5, 2.25)),
        ("50 us..70 us..10 us", ("50 us", "60 us", "70 us")),
        ("100k/s..300k/s..100", ("100 k/s", "200 k/s", "300 k/s")),
        ("100k..300k/s..100k", ("100 k/s", "200 k/s", "300 k/s")),
        ("raid0, raid5", ("raid0", "raid5")),
        ("[0], [0, 1]", ([0], [0, 1])),
        ("true,false", (True, False)),
        ("512 KiB,1 MiB", ("512 KiB", "1 MiB")),
        ("../a.toml,b..c", ("../a.toml", "b..c")),
    ],
)
def test_values_mean_what_they_say(text, expected):
    assert values(text) == expected
    assert [type(v) for v in values(text)] == [type(v) for v in expected]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no values"),
        ("1,,2", "empty"),
        ("8..4", "8 is above 4"),
        ("0..1..0", "above 0"),
        ("0..0.5", "needs its step"),
        ("0.0..1.0", "needs its step"),
        ("0..8..x2", "starts above 0"),
        ("1..8..x1", "above 1"),
        ("1..9..two", "not a number"),
        ("1..big", "not a range"),
        ("1 us..2 ms", "two units"),
        ("4,8,4", "twice"),
        ("0..1e9", "more than 1,000,000"),
    ],
)
def test_bad_values_are_refused_in_one_line(text, match):
    with pytest.raises(InputError, match=match) as caught:
        values(text)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 40), st.integers(0, 2**31))
def test_a_latin_hypercube_hits_every_part_of_every_axis_once(n, seed):
    plan = make_plan({"a": f"0..{n * 10 - 1}", "b": "0.0..1.0"}, n, "lhs", seed)
    points = list(plan.points())
    assert sorted(a // 10 for a, _ in points) == list(range(n))
    shares = sorted(b * n for _, b in points)
    assert all(k - 1e-3 <= share <= k + 1.001 for k, share in enumerate(shares))
    assert points == list(plan.points())


def test_random_samples_take_lists_and_ranges():
    plan = make_plan({"raid": ["raid0", "raid5"], "n": "4..24..4"}, 200, "random")
    raids, counts = zip(*plan.points(), strict=True)
    assert set(raids) == {"raid0", "raid5"}
    assert set(counts) == {4, 8, 12, 16, 20, 24}


def test_a_grid_is_in_order():
    plan = make_plan({"a": [1, 2], "b": ["x", "y", "z"]})
    assert list(plan.points()) == [(a, b) for a in (1, 2) for b in "xyz"]
    assert len(plan) == 6
    assert plan.axes[1].ends() == ("x", "y", "z")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (({},), "nothing to sweep"),
        (({"a": []},), "no values"),
        (({"a": 3},), "not a list of values"),
        (({"": [1]},), "key is empty"),
        (({"a": [1]}, 5), "belong together"),
        (({"a": [1]}, None, "lhs"), "belong together"),
        (({"a": [1]}, 0, "lhs"), "at least 1"),
        (({"a": [1]}, 5, "sobol"), "unknown"),
        (({"a": "1..10000", "b": "1..10000"},), "too many"),
    ],
)
def test_plans_without_points_are_refused(arguments, match):
    with pytest.raises(InputError, match=match):
        make_plan(*arguments)


@pytest.mark.parametrize(
    ("texts", "match"),
    [(["drives.0.count"], "is not KEY="), (["=4"], "is not KEY="), (["a=1", "a=2"], "twice")],
)
def test_over_needs_a_key_and_values(texts, match):
    with pytest.raises(InputError, match=match):
        parse_over(texts)
    assert parse_over(["a=1;b=2"]) == {"a": ("1;b=2",)}


def test_the_number_of_points_is_counted_once(monkeypatch):
    """A sweep asks for it at each point: 20,000 points took 20,000 times as long."""
    made = []
    values = SweptRange.values
    monkeypatch.setattr(SweptRange, "values", lambda *a: made.append(1) or values(*a))
    plan = make_plan(parse_over(["run.seed=1..500"]))
    assert {len(plan) for _ in range(20)} == {500}
    assert len(list(plan.points())) == 500
    assert len(made) == 1
