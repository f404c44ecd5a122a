"""What a sweep leaves: a table in the format of its name, and a summary on the terminal."""

import json
import os
from functools import partial

import polars as pl
import pytest

import nvmesim as ns
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.show.views.sweep_tables import impossible, never
from nvmesim.study.sweep.store import read_frame

COUNTS = {"drives.0.count": [1, 2]}

sweep = partial(ns.sweep, certainty=False)


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_the_name_says_the_format(small, tmp_path, ending):
    out = tmp_path / f"points.{ending}"
    frame = sweep(small, COUNTS, output=out, workers=1)
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "json": read_frame}[ending](out)
    assert read.columns == frame.columns
    assert read["drives.0.count"].to_list() == [1, 2]
    assert read["iops"].to_list() == pytest.approx(frame["iops"].to_list(), rel=1e-12)
    assert os.listdir(tmp_path) == [out.name]
    again = sweep(small, COUNTS, output=out, resume=True, workers=1)
    assert again["iops"].to_list() == pytest.approx(frame["iops"].to_list(), rel=1e-12)


def test_json_remembers_its_sweep(small, tmp_path):
    out = tmp_path / "points.json"
    sweep(small, COUNTS, output=out, workers=1)
    assert len(json.loads(out.read_text())["rows"]) == 2
    with pytest.raises(InputError, match="sweeps over other values"):
        sweep(small, {"drives.0.count": [3]}, output=out, resume=True, workers=1)
    out.write_text("[]")
    with pytest.raises(InputError, match="not written by a sweep"):
        sweep(small, COUNTS, output=out, resume=True, workers=1)
    out.write_text("{")
    with pytest.raises(InputError, match="no JSON file"):
        sweep(small, COUNTS, output=out, resume=True, workers=1)


@pytest.mark.parametrize("name", ["points.xlsx", "points", "/dev/stdout", "/dev/null"])
def test_other_formats_are_refused_in_one_line(small, tmp_path, name):
    with pytest.raises(InputError, match=r"a table is \.parquet, \.csv or \.json"):
        sweep(small, COUNTS, output=tmp_path / name, workers=1)
    assert os.listdir(tmp_path) == []


def command(file, tmp_path, *options):
    return run_command(
        ["sweep", str(file), "-o", str(tmp_path / "o.parquet"), "--no-certainty", *options]
    )


def test_two_keys_make_a_grid(file, tmp_path, capsys):
    over = ("--over", "workload.0.outstanding=1,4,8", "--over", "drives.0.count=1,2")
    assert command(file, tmp_path, *over) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["outstanding", "count", "1", "count", "2"] in lines
    assert any("outstanding 8, count" in " ".join(line) for line in lines)


@pytest.mark.long
def test_many_keys_show_axes_and_the_best(file, tmp_path, capsys):
    over = ("--over", "workload.0.outstanding=1..64", "--over", "workload.0.read=0.5..1.0")
    assert command(file, tmp_path, *over, "--samples", "9") == 0
    out = capsys.readouterr().out
    assert "(9 values)" in out
    assert "best 8 of 9 points by IOPS" in out


def test_a_value_that_is_in_no_point_is_reported_and_fails(file, tmp_path, capsys):
    over = ("--over", "volume.raid=raid0,raid9,raid6", "--over", "drives.0.count=3,4")
    assert command(file, tmp_path, *over) == 1
    out = capsys.readouterr().out
    assert "3 of 6 points cannot be built; the first: volume.0.raid is 'raid9'" in " ".join(
        out.split()
    )
    assert "volume.raid=raid9: none of its points can be built" in " ".join(out.split())


def test_a_combination_that_cannot_be_is_reported_and_fails_not(file, tmp_path, capsys):
    over = ("--over", "volume.raid=raid0,raid6", "--over", "drives.0.count=3,4")
    assert command(file, tmp_path, *over) == 0
    assert "1 of 4 points cannot be built; the first: " in " ".join(capsys.readouterr().out.split())


def test_values_that_never_can_be():
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
