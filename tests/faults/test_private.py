"""Which folders count as this user's alone: modes, groups, links, and who made them."""

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
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b" / "name").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "a" / "b") == ["name"]


def test_a_link_on_the_way_leads_to_what_is_checked(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert kept(tmp_path / "link" / "inner") == b"data"
    (tmp_path / "open").chmod(0o707)
    with pytest.raises(PermissionError, match=f"by others.*{tmp_path / 'open'}"):
        read_private(tmp_path / "link" / "inner" / "name")


@pytest.mark.parametrize("has_list", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("mode", [0o775, 0o770, 0o720, 0o777])
def test_a_group_that_is_this_users_own(
    mode: int, is_alone: bool, has_list: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bits are the most that an access list, where there is one, may allow to anybody."""
    (tmp_path / "group").mkdir()
    (tmp_path / "group").chmod(mode)
    monkeypatch.setattr(code_cache, "_is_alone", lambda group, user: is_alone)
    if has_list:
        monkeypatch.setattr(os, "getxattr", lambda *_: b"a list")
    if is_alone and not has_list and mode != 0o777:
        assert kept(tmp_path / "group") == b"data"
        return
    with pytest.raises(PermissionError, match="can be written by others"):
        kept(tmp_path / "group")


def test_a_sticky_folder_itself_is_not_private(tmp_path: Path) -> None:
    """Others cannot rename what is in it, but they can put something there first."""
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    with pytest.raises(PermissionError, match="can be written by others"):
        kept(tmp_path / "sticky")
    (tmp_path / "sticky" / "inner").mkdir(mode=0o700)
    assert kept(tmp_path / "sticky" / "inner") == b"data"


def test_a_file_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "LARGEST", 3)
    with pytest.raises(PermissionError, match="is larger than"):
        kept(tmp_path / "a")


def test_where_owners_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows: nothing but a regular file."""
    monkeypatch.setattr(code_cache, "IS_CHECKED", False)
    (tmp_path / "a").mkdir(mode=0o777)
    assert kept(tmp_path / "a" / "b") == b"data"
