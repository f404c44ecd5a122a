"""Option combinations, terminals and files that are odd: each has its answer or its one line."""

import copy
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nvmesim.cli import output
from nvmesim.cli.main import run_command
from nvmesim.files import written
from tests.cli.conftest import SMALL
from tests.cli.test_commands import FIO

DATA = Path(__file__).parents[1] / "capture" / "data"
PUBLISHED = Path(__file__).parents[2] / "calibration" / "published"


def test_progress_on_a_terminal(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.steps("calibrating") as tell:
        tell("the [bold]buffer\n")  # names of files may look like markup
    for left in (False, True):
        with output.progress_bar(left=left) as report:
            report("[red]12 of 20", 0.6)
    with output.bytes_read("reading") as moved:
        moved(5, 10)
    assert capfd.readouterr().out == ""


def test_silence_in_a_pipe(capfd):
    with output.steps("calibrating") as tell:
        tell("nothing")
    for left in (False, True):
        with output.progress_bar(left=left) as report:
            assert report is None
    with output.bytes_read("reading") as moved:
        assert moved is None
    assert capfd.readouterr().err == ""


def test_ctrl_c_is_noted_on_the_main_thread_only():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with output.noting_interrupt() as pressed:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), 2)
            assert pressed.is_set()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with output.noting_interrupt() as pressed:  # a script's job in the background
            os.kill(os.getpid(), 2)
        assert not pressed.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
    inside: list[bool] = []

    def elsewhere() -> None:
        with output.noting_interrupt() as noted:
            inside.append(noted.is_set())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert inside == [False]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with written(pipe) as beside:
        beside.write_text("all of it")
    reader.join()
    assert read == [b"all of it"]
    assert pipe.is_fifo()


def test_trace_of_a_folder_says_what_it_could_not_read(nvmesim, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(FIO))
    (tmp_path / "notes.txt").write_text("hello\n")
    said = nvmesim("trace", tmp_path)
    assert said.code == 0
    assert "not read:" in said.out
    assert "notes.txt" in said.out
    as_json = nvmesim("trace", tmp_path, "--json")
    assert json.loads(as_json.out)["format"] == "fio-json"
    assert "notes.txt" in as_json.err


def test_trace_shows_the_first_of_many_and_all_when_asked(nvmesim, tmp_path):
    table = copy.deepcopy(FIO)
    job = table["jobs"][0]
    table["jobs"] = [{**job, "jobname": f"job-{k}", "groupid": k} for k in range(60)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps(table))
    short, long = nvmesim("trace", path), nvmesim("trace", path, "-v")
    assert "40 more measurements" in short.out
    assert "job-59 " not in short.out
    assert "job-59 " in long.out


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("blkparse/rr_qd4_opt_t.txt.gz", ["every request is known"]),
        ("fio-json/randrw_bssplit_qd8.json.gz", ["random ?", "is unknown"]),
        ("iostat/text.txt", ["unknown access", "depth"]),
        ("points/datasheet.csv", ["80 (lat)"]),
        ("fio-json/randread_4k_qd4_latpct_only.json.gz", [" lat "]),
    ],
)
def test_trace_of_what_a_format_does_not_say(nvmesim, sample, words):
    said = nvmesim("trace", DATA / sample)
    assert said.code == 0
    assert all(word in said.out for word in words)
    assert "  0  " not in said.out  # of what is not counted


def test_skipped_lines_are_in_the_headline(nvmesim, tmp_path):
    import gzip

    text = gzip.decompress((DATA / "blkparse" / "rr_qd4_opt_t.txt.gz").read_bytes())
    (tmp_path / "t.txt").write_bytes(text + b"damage\n")
    assert "1 skipped" in nvmesim("trace", tmp_path / "t.txt").out


TRACE = DATA / "blkparse" / "rr_qd4_opt_t.txt.gz"


def test_one_capture_is_drawn_from(nvmesim, tmp_path):
    for name in ("a", "b"):
        shutil.copy(TRACE, tmp_path / f"{name}.txt.gz")
    said = nvmesim("calibrate", tmp_path, "--empirical")
    assert said.code == 2
    assert "2 captures; name the one whose latencies are drawn" in said.err


LSCPU = Path(__file__).parents[1] / "describe" / "data" / "lscpu.txt"


def test_a_described_scenario_is_printed_or_written(nvmesim, tmp_path):
    printed = nvmesim("describe", LSCPU)
    assert printed.code == 0
    assert "[server]" in printed.out
    said = nvmesim("describe", LSCPU, "-o", tmp_path / "s.toml")
    assert "s.toml; check what it assumes" in said.out
    assert "missing: drives" in said.out
    assert (tmp_path / "s.toml").read_text("utf-8") == printed.out
    assert json.loads(nvmesim("describe", LSCPU, "--json").out)["scenario"]["server"]


def test_reports_of_sets_are_written_where_the_sets_are(nvmesim, tmp_path):
    shutil.copytree(PUBLISHED / "interfaces", tmp_path / "interfaces")
    before = (tmp_path / "interfaces" / "report.md").read_text("utf-8")
    (tmp_path / "interfaces" / "report.md").unlink()
    said = nvmesim("validate", tmp_path / "interfaces", "--write")
    assert said.code == 0
    assert (tmp_path / "interfaces" / "report.md").read_text("utf-8") == before
    assert not (tmp_path / "SCOREBOARD.md").exists()  # of all sets, not of one
    assert "3 of 3 targets within their budgets" in said.out


def test_all_sets_make_a_scoreboard(nvmesim, tmp_path, monkeypatch):
    from nvmesim.cli import calibrate as command

    shutil.copytree(PUBLISHED / "interfaces", tmp_path / "interfaces")
    scores = command._scores((str(tmp_path / "interfaces"),))
    command._write_reports(scores, whole=True)
    assert "interfaces" in (tmp_path / "SCOREBOARD.md").read_text("utf-8")


def test_a_sweep_as_json(nvmesim, scenario, tmp_path):
    said = nvmesim(
        "sweep", scenario, "--over", "workload.0.outstanding=1,4", "-o", tmp_path / "g.csv",
        "--json", "--workers", "1", "--requests", "4000", "--no-cache",
    )  # fmt: skip
    answer = json.loads(said.out)
    assert answer["points"] == 2
    assert [row["workload.0.outstanding"] for row in answer["rows"]] == [1, 4]


def test_a_file_that_ends_too_early_is_no_ctrl_c(monkeypatch, capfd) -> None:
    """Click takes an EOFError for the end of what was typed at a prompt; there is no prompt."""

    def cut(*_: object, **__: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr("nvmesim.capture.registry.read_captures", cut)
    assert run_command(["trace", str(DATA)]) == 2
    assert "ends before it is complete" in capfd.readouterr().err


OWN_DATA = Path(__file__).parent / "data"
GOAL = """
scenario = "server.toml"
[candidates]
"drives.0.count" = [1, 2]
[constraints]
iops = "50k/s"
[objective]
minimize = "drives"
"""
LEAST = 0.05
"""Width of an interval of IOPS by its value: the error of the model is wider, chance narrower."""
COMMANDS = {
    "run": ["run", "server.toml"],
    "best": ["best", "server.toml", "--p99", "1ms"],
    "choose": ["choose", "goal.toml", "--workers", "1"],
    "compare": ["compare", "server.toml", "--set", "workload.0.outstanding=8"],
    "sweep": ["sweep", "server.toml", "--over", "workload.0.outstanding=1,4", "--workers", "1"],
    "sensitivity": ["sensitivity", "server.toml", "--requests", "2000", "--workers", "1"],
    "diagnose": ["diagnose", "server.toml", str(OWN_DATA / "qd4.json"), "--workers", "1"],
    "size": ["size", "--iops", "3M"],
    "validate": ["validate", "interfaces"],
}


def intervals(tree: Any, path: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Where, value, low and high of all that has ends: `value`, `x` beside `x_low`, pairs."""
    if isinstance(tree, list):
        for i, item in enumerate(tree):
            yield from intervals(item, f"{path}.{i}")
    if not isinstance(tree, dict):
        return
    for key, item in tree.items():
        yield from intervals(item, f"{path}.{key}")
        ends = tree.get(f"{key}_low"), tree.get(f"{key}_high")
        if isinstance(item, float) and None not in ends:
            yield f"{path}.{key}", item, *ends
    if {"value", "low", "high"} <= set(tree) and None not in (tree["low"], tree["high"]):
        yield path, tree["value"], tree["low"], tree["high"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_a_partial_interval(command, nvmesim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("server.toml").write_text(SMALL, encoding="utf-8")
    Path("goal.toml").write_text(GOAL, encoding="utf-8")
    said = nvmesim(*COMMANDS[command], "--json")
    assert said.code in (0, 1), said.err
    found = [i for i in intervals(json.loads(said.out)) if i[1]]
    assert [path for path, _, low, high in found if not low < high] == []
    outside = [i for i in found if isinstance(i[1], float) and not i[2] <= i[1] <= i[3]]
    assert outside == []
    rates = [(path, (high - low) / value) for path, value, low, high in found if "iops" in path]
    assert [path for path, width in rates if width < LEAST] == []
    assert rates or command in ("size", "validate", "sensitivity", "diagnose")
