"""`nvmesim run`: answers, files that appear whole or not at all, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from tests.children import heed_ctrl_c

OPTIONS_THAT_WRITE = ("--report", "--requests", "--timeline")


def leftovers(folder, *expected):
    return sorted(p.name for p in folder.iterdir() if p.name not in expected)


def test_a_person_reads_the_answer(nvmesim, scenario):
    said = nvmesim("run", scenario)
    assert said.code == 0
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0] == "one drive"
    assert lines[1] == "asked: random 4 KiB, reads; 1 thread, 4 in flight"
    heading = next(
        n for n, line in enumerate(lines) if line.split()[:1] == ["IOPS"] and "us" in line
    )
    assert (
        " ".join(lines[heading].split()) == "IOPS 95 % within GB/s mean us p50 us p99 us p99.9 us"
    )
    assert lines[heading + 1].startswith("read ")
    assert all(line == line.rstrip() and len(line) <= 120 for line in lines)
    assert "--verbose shows: how it is known" in said.out


def test_set_changes_a_value_and_the_seed_only_the_draws(nvmesim, scenario):
    iops = [
        json.loads(nvmesim("run", scenario, "--json", *more).out)["total"]["iops"]["value"]
        for more in ((), ("--set", "workload.0.outstanding=1"), ("--seed", 2), ())
    ]
    assert iops[0] == iops[3]
    assert iops[1] < 0.5 * iops[0]
    assert iops[2] == pytest.approx(iops[0], rel=0.02)


def test_every_file_is_written(nvmesim, scenario, tmp_path):
    files = [tmp_path / n for n in ("r.html", "q.parquet", "t.html")]
    options = [x for pair in zip(OPTIONS_THAT_WRITE, files, strict=True) for x in pair]
    said = nvmesim("run", scenario, *options)
    assert said.code == 0
    assert leftovers(tmp_path, "one.toml") == ["q.parquet", "r.html", "t.html"]
    report = files[0].read_text("utf-8")
    assert "one drive" in report
    assert "outstanding = 4" in report  # the scenario's own text
    assert pl.read_parquet(files[1]).height >= 20_000
    assert "every step" in files[2].read_text("utf-8")
    assert "wrote" in said.err
    assert "wrote" not in said.out


def test_an_engine_of_ones_own_choice_gives_the_same_answer(nvmesim, scenario):
    few = ("--set", "run.requests=3000")
    both = [
        json.loads(nvmesim("run", scenario, "--json", *few, "--engine", engine).out)
        for engine in ("compiled", "simpy")
    ]
    assert both[0]["total"]["iops"]["value"] == both[1]["total"]["iops"]["value"]
    assert both[1]["engine"] == "simpy"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.toml"], "none.toml"),
        (["run", "SCENARIO", "--set", "drives.0.cuont=2"], "cuont"),
        (["run", "SCENARIO", "--set", "drives"], "KEY=VALUE"),
        (["run", "SCENARIO", "--precision", "2"], "out of range"),
        (["run", "SCENARIO", "--precision", "one"], "not a fraction"),
        (["run", "SCENARIO", "--precision", "nan%"], "not a fraction"),
        (["run", "SCENARIO", "--engine", "fast"], "--engine"),
        (["run", "SCENARIO", "--seed", "-1"], "--seed"),
        (["run", "SCENARIO", "--report", "no/such/folder/r.html"], "no/such/folder"),
        (["run"], "Missing argument"),
        (["runn", "SCENARIO"], "did you mean 'run'?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(nvmesim, scenario, tmp_path, arguments, message):
    said = nvmesim(*[scenario if a == "SCENARIO" else a for a in arguments])
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("nvmesim: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert leftovers(tmp_path) == ["one.toml"]


def test_a_load_without_steady_state_exits_with_one(nvmesim, scenario):
    said = nvmesim(
        "run", scenario, "--json", "--set", "run={}",
        "--set", 'workload.0={block_size = "4 KiB", threads = 16, rate = "3M/s"}',
    )  # fmt: skip
    assert said.code == 1
    answer = json.loads(said.out)
    assert answer["bottleneck"]["verdict"] == "unstable"
    assert answer["bottleneck"]["backlog_per_s"] > 0


def test_a_report_is_written_even_if_nobody_reads_the_answer(scenario, tmp_path):
    command = [
        *(sys.executable, "-c", "from nvmesim.cli import main; main()"),
        *("run", str(scenario), "--report", str(tmp_path / "r.html")),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        said = child.stderr.read().decode()
    assert "Traceback" not in said
    assert (tmp_path / "r.html").stat().st_size > 100_000


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for a child there")
def test_ctrl_c_keeps_what_is_finished(scenario):
    command = [
        *(sys.executable, "-c", "from nvmesim.cli import main; print(flush=True); main()"),
        *("run", str(scenario), "--json", "--set", "run={}", "--precision", "0.01%"),
    ]
    out = b""
    for wait_s in (3, 9, 27):  # before its first batch a busy machine has nothing to keep
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_ctrl_c
        ) as child:
            assert child.stdout
            child.stdout.readline()  # the interpreter is up, and the command about to begin
            time.sleep(wait_s)
            child.send_signal(signal.SIGINT)
            out, _ = child.communicate(timeout=60)
        assert child.returncode == 130
        if out:
            break
    answer = json.loads(out)
    assert not answer["converged"]
    assert any(w["code"] == "interrupted" for w in answer["warnings"])
