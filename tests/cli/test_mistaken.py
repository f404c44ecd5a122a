"""A file of the wrong kind is told what it is and what to do with it."""

from pathlib import Path

import pytest

from nvmesim.cli.main import run_command

ROOT = Path(__file__).parents[2]
GOOD = ROOT / "tests" / "capture" / "data" / "fio-json" / "psync_qd8.json"
PROFILE = ROOT / "nvmesim" / "catalog" / "data" / "drives" / "sata-ssd.toml"
JOB = "[global]\nioengine=libaio\n[a]\nrw=randread\n"
GOAL = "scenario = 'a.toml'\n[constraints]\niops = '1M/s'\n[candidates]\n"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(arguments) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (GOOD, "is a capture (fio-json), no scenario; fit a drive to it with 'nvmesim calibrate"),
        (PROFILE, "is a drive profile, no scenario; a scenario names it"),
        ("sata-ssd", "is a drive of the catalog, no scenario file"),
    ],
)
def test_run_tells_what_it_was_given(capsys, given: object, what: str) -> None:
    assert what in said(capsys, "run", str(given))


@pytest.mark.parametrize(("text", "what"), [(JOB, "fio job file"), (GOAL, "is a goal")])
def test_run_tells_other_files(capsys, tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert what in said(capsys, "run", str(path))
    assert what in said(capsys, "trace", str(path))


def test_a_broken_scenario_keeps_its_own_error(capsys, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("[server]\nstakc = 'linux-libaio'\n")
    assert "stakc" in said(capsys, "run", str(path))


def test_trace_shows_the_good_and_says_the_bad(capsys, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(GOOD.read_bytes()[:2000])
    for order in ((GOOD, cut), (cut, GOOD)):
        assert run_command(["trace", *map(str, order), str(tmp_path / "none.json")]) == 2
        shown = capsys.readouterr()
        assert "16,867" in shown.out
        assert "cut.json: ends inside the JSON" in shown.err
        assert "none.json: no such file" in shown.err
        assert shown.err.count("\n") == 2


def test_a_table_of_points_shows_its_means_and_no_counts(capsys) -> None:
    path = ROOT / "tests" / "capture" / "data" / "points" / "datasheet.csv"
    assert run_command(["trace", str(path)]) == 0
    text = capsys.readouterr().out
    assert "80 (lat)" in text
    assert "  0  " not in text
