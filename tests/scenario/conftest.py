import shutil
import tomllib
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
REFUSED = tomllib.loads((DATA / "refused.toml").read_text("utf-8"))
"""What is stated -> a part of the line that refuses it; of scenarios, fio and DiskSpd."""


@pytest.fixture
def example(tmp_path):
    """A scenario file with nearly every key in it."""
    return Path(shutil.copy(DATA / "lab.toml", tmp_path))
