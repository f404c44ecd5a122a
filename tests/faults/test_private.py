"""Which folders count as this user's alone: modes, links, and who made them."""

import os
from pathlib import Path

import pytest

from nvmesim import code_cache
from nvmesim.code_cache import read_private, write_private


def kept(folder: Path) -> bytes:
    write_private(folder / "name", b"data")
    return read_private(folder / "name")


def test_what_is_made_is_closed_to_others(tmp_path: Path) -> None:
    assert kept(tmp_path / "a" / "b") == b"data"
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b" / "name").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "a" / "b") == ["name"]


@pytest.mark.parametrize("mode", [0o775, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_not_private(mode: int, tmp_path: Path) -> None:
    """A sticky one neither: others can put something there first. A link leads to its folder."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for folder in ("open", "link"):
        with pytest.raises(PermissionError, match="can be written by others"):
            kept(tmp_path / folder)
    assert kept(tmp_path / "open" / "inner") == b"data"


def test_where_owners_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows: nothing but a regular file."""
    monkeypatch.setattr(code_cache, "IS_CHECKED", False)
    (tmp_path / "a").mkdir(mode=0o777)
    assert kept(tmp_path / "a") == b"data"
