"""The shipped examples: each is predicted, and the goal finds a winner."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
GOAL = ROOT / "examples" / "goal.toml"
FITTED = {"raid5.toml", "eight-980pro.toml"}
"""Their drives are calibrated first, by `make run` and `make run-local`."""


def test_every_example_is_tried():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("file", [e for e in EXAMPLES if e != GOAL], ids=lambda e: e.stem)
def test_an_example_is_predicted(nvmesim, file):
    drive = ["--set", "drives.0.profile=samsung-980pro-1tb"] if file.name in FITTED else []
    said = nvmesim("run", file, *drive, "--set", "run.requests=4000", "--set", "run.precision=50%",
                   "--json")  # fmt: skip
    assert said.code in (0, 1)  # so few requests need not be precise
    assert json.loads(said.out)["total"]["iops"]["value"] > 0


@pytest.mark.long
def test_the_goal_finds_a_winner(nvmesim):
    said = nvmesim("choose", GOAL, "--json")
    assert said.code == 0
    assert json.loads(said.out)["chosen"]
