"""Which points a sweep has, and what it leaves: a table in its name's format, and a summary."""

import os
from functools import partial

import polars as pl
import pytest

import nvmesim as ns
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.show.views.sweep_tables import impossible, never
from nvmesim.study.sweep.plan import make_plan, parse_over, parse_values


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
    assert parse_values(text) == expected
    assert [type(v) for v in parse_values(text)] == [type(v) for v in expected]


@pytest.mark.parametrize(
    ("made", "given", "match"),
    [
        *((parse_values, text, match) for text, match in (
            ("", "no values"), ("1,,2", "empty"), ("8..4", "8 is above 4"), ("0..1..0", "above 0"),
            ("0..0.5", "needs its step"), ("0.0..1.0", "needs its step"),
            ("0..8..x2", "starts above 0"), ("1..8..x1", "above 1"),
            ("1..9..two", "not a number"), ("1..big", "not a range"), ("1 us..2 ms", "two units"),
            ("4,8,4", "twice"), ("0..1e9", "more than 1,000,000"))),
        (make_plan, {}, "nothing to sweep"),
        (make_plan, {"a": []}, "no values"),
        (make_plan, {"a": 3}, "not a list of values"),
        (make_plan, {"": [1]}, "key is empty"),
        (make_plan, {"a": "1..10000", "b": "1..10000"}, "too many"),
        (parse_over, ["drives.0.count"], "is not KEY="),
        (parse_over, ["=4"], "is not KEY="),
        (parse_over, ["a=1", "a=2"], "twice"),
    ],
)  # fmt: skip
def test_what_is_no_value_plan_or_key_is_refused_in_one_line(made, given, match):
    with pytest.raises(InputError, match=match) as caught:
        made(given)
    assert "\n" not in str(caught.value)


def test_a_grid_is_in_order_and_the_command_makes_it(file, tmp_path, capsys):
    plan = make_plan({"a": [1, 2], "b": ["x", "y", "z"]})
    assert list(plan.points()) == [(a, b) for a in (1, 2) for b in "xyz"]
    assert len(plan) == 6
    assert parse_over(["a=1;b=2"]) == {"a": ("1;b=2",)}
    over = ("--over", "workload.0.outstanding=1,4,8", "--over", "drives.0.count=1,2")
    assert command(file, tmp_path, *over) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["outstanding", "each", "1", "drive", "2", "drives"] in lines
    assert any("outstanding each 8, " in " ".join(line) for line in lines)


COUNTS = {"drives.0.count": [1, 2]}

sweep = partial(ns.sweep, certainty=False)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_name_says_the_format(small, tmp_path, ending):
    out = tmp_path / f"points.{ending}"
    frame = sweep(small, COUNTS, output=out, workers=1)
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv}[ending](out)
    assert read.columns == frame.columns
    assert read["drives.0.count"].to_list() == [1, 2]
    assert read["iops"].to_list() == pytest.approx(frame["iops"].to_list(), rel=1e-12)
    assert os.listdir(tmp_path) == [out.name]
    again = sweep(small, COUNTS, output=out, resume=True, workers=1)
    assert again["iops"].to_list() == pytest.approx(frame["iops"].to_list(), rel=1e-12)


@pytest.mark.parametrize("name", ["points.xlsx", "points", "/dev/stdout", "/dev/null"])
def test_other_formats_are_refused_in_one_line(small, tmp_path, name):
    with pytest.raises(InputError, match=r"a table is \.parquet or \.csv"):
        sweep(small, COUNTS, output=tmp_path / name, workers=1)
    assert os.listdir(tmp_path) == []


def command(file, tmp_path, *options):
    return run_command(
        ["sweep", str(file), "-o", str(tmp_path / "o.parquet"), "--no-certainty", *options]
    )


def test_values_that_cannot_be_are_reported(file, tmp_path, capsys):
    over = ("--over", "volume.raid=raid0,raid9,raid6", "--over", "drives.0.count=3,4")
    assert command(file, tmp_path, *over) == 1
    out = capsys.readouterr().out
    assert "3 of 6 points cannot be built; the first: volume.0.raid is 'raid9'" in " ".join(
        out.split()
    )
    assert "volume.raid=raid9: none of its points can be built" in " ".join(out.split())
    over = ("--over", "volume.raid=raid0,raid6", "--over", "drives.0.count=3,4")
    assert command(file, tmp_path, *over) == 0
    assert "1 of 4 points cannot be built; the first: " in " ".join(capsys.readouterr().out.split())
    frame = pl.DataFrame({"a": [1, 1, 2, 2], "b": [5, 6, 5, 6], "error": ["x", "x", None, "y"]})
    assert never(frame, ["a", "b"]) == ["a=1", "b=6"]
    assert impossible(frame.filter(pl.col("error").is_null()), ["a"]) == []


def test_a_report_of_a_sweep_has_pictures_and_every_point(tmp_path, capfd):
    page, out = tmp_path / "grid.html", tmp_path / "grid.csv"
    scenario = tmp_path / "one.toml"
    scenario.write_text(
        'name = "grid <b>"\n[server]\n[[server.sockets]]\ncpu = "xeon-gold-6130"\n'
        '[[drives]]\nprofile = "samsung-980pro-1tb"\ncount = 2\n'
        '[volume]\nraid = "raid0"\n[[workload]]\nthreads = 2\n'
    )
    over = ["--over", "volume.raid=raid0,raid5", "--over", "workload.0.outstanding=1,32"]
    asked = ["sweep", str(scenario), *over, "-o", str(out), "--requests", "10000"]
    assert run_command([*asked, "--no-cache", "--workers", "1", "--report", str(page)]) == 1
    said = capfd.readouterr().out
    assert "p99 in us" in said
    html = page.read_text("utf-8")
    assert "grid <b>" not in html
    assert html.count('class="chart"') == 3
    assert "raid5 needs at least 3 members" in html
    assert html.count('<th scope="row">') == 4
    assert "(log)" in html
