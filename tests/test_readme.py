"""The README says what the project says elsewhere: its scoreboard, its commands."""

import re
from pathlib import Path

from nvmesim.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BEGIN, END = "<!-- scoreboard -->\n", "<!-- /scoreboard -->\n"


def overview() -> str:
    """The generated scoreboard down to its overview, with links as seen from the root."""
    board = (ROOT / "calibration/published/SCOREBOARD.md").read_text("utf-8")
    head = board.split("\n## ")[0].split("# Predicted against measured\n\n")[1]
    return re.sub(r"\]\((\S+)/report\.md\)", r"](calibration/published/\1/report.md)", head).strip()


def test_the_scoreboard_is_the_generated_one():
    shown = README.split(BEGIN)[1].split(END)[0].strip()
    assert shown == overview()


def test_commands_in_the_readme_exist():
    named = set(re.findall(r"(?:^|`)\s*nvmesim ([a-z]+)", README, flags=re.M))
    assert named <= set(COMMANDS)
    assert len(named) >= 5
