import shutil
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parents[2] / "calibration" / "published"


@pytest.fixture
def copied(tmp_path):
    """Copy a published set, with texts replaced in its files."""

    def copy(name, **replacements):
        folder = tmp_path / name
        shutil.copytree(PUBLISHED / name, folder)
        for file, pairs in replacements.items():
            path = next(folder.glob(f"{file}.*"))
            text = path.read_text("utf-8")
            for old, new in pairs.items():
                assert old in text
                text = text.replace(old, new)
            path.write_text(text, "utf-8")
        return folder

    return copy
