"""Which folders count as this user's alone: modes, groups, links, and who made them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nvmesim import private
from nvmesim.private import PrivateFolder


def kept(folder: Path) -> bytes:
    with PrivateFolder(folder, create=True) as opened:
        opened.write("name", b"data")
        return opened.read("name")


def test_what_is_made_is_closed_to_others(tmp_path: Path) -> None:
    assert kept(tmp_path / "a" / "b") == b"data"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "a" / "b" / "name").stat().st_mode & 0o022
    assert os.listdir(tmp_path / "a" / "b") == ["name"]


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(PermissionError, match="not an absolute path"):
        PrivateFolder(Path("relative"))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "gone")):
        PrivateFolder(tmp_path / "gone" / "inner")


def test_a_link_on_the_way_leads_to_what_is_checked(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert kept(tmp_path / "link" / "inner") == b"data"
    (tmp_path / "open").chmod(0o707)
    with pytest.raises(PermissionError, match=f"by others.*{tmp_path / 'open'}"):
        PrivateFolder(tmp_path / "link" / "inner")


@pytest.mark.parametrize("mode", [0o775, 0o770, 0o720])
def test_a_group_that_is_this_users_own(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "group").mkdir()
    (tmp_path / "group").chmod(mode)
    monkeypatch.setattr(private, "_is_alone", lambda group, user: True)
    assert kept(tmp_path / "group") == b"data"
    monkeypatch.setattr(private, "_is_alone", lambda group, user: False)
    with pytest.raises(PermissionError, match="can be written by others"):
        PrivateFolder(tmp_path / "group")


def test_an_access_list_may_let_others_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of the group are then the most that the list may allow to anybody."""
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed").chmod(0o770)
    monkeypatch.setattr(private, "_is_alone", lambda group, user: True)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"a list")
    with pytest.raises(PermissionError, match="can be written by others"):
        PrivateFolder(tmp_path / "listed")


def test_a_sticky_folder_itself_is_not_private(tmp_path: Path) -> None:
    """Others cannot rename what is in it, but they can put something there first."""
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    with pytest.raises(PermissionError, match="can be written by others"):
        PrivateFolder(tmp_path / "sticky")
    (tmp_path / "sticky" / "inner").mkdir(mode=0o700)
    assert kept(tmp_path / "sticky" / "inner") == b"data"


def test_a_file_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "LARGEST", 3)
    with pytest.raises(PermissionError, match="is larger than"):
        kept(tmp_path / "a")


def test_where_owners_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows: paths instead of descriptors, and nothing but a regular file."""
    monkeypatch.setattr(private, "IS_CHECKED", False)
    assert kept(tmp_path / "a" / "b") == b"data"
    with PrivateFolder(tmp_path / "a" / "b") as folder:
        folder.write("name-2", b"more")
        folder.keep_newest("name", "", 1)
    assert len(os.listdir(tmp_path / "a" / "b")) == 1
