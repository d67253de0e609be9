"""When a configuration's file counts as changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinlater.server.watched_file import WatchedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text("port = 1\n")
    return path


def test_what_it_holds_at_first_is_known(path: Path) -> None:
    watched = WatchedFile(path)
    assert [watched.has_changed() for _ in range(3)] == [False] * 3


def test_new_content_is_told_of_once_when_it_was_the_same_at_two_looks(path: Path) -> None:
    watched = WatchedFile(path)
    path.write_text("port = 2\n")
    assert [watched.has_changed() for _ in range(4)] == [False, True, False, False]


def test_a_file_that_is_still_being_written_is_not_told_of(path: Path) -> None:
    watched = WatchedFile(path)
    for half in ("po", "port =", "port = 22\n"):
        path.write_text(half)
        assert not watched.has_changed()
    assert watched.has_changed()


def test_the_same_content_written_again_is_no_change(path: Path) -> None:
    watched = WatchedFile(path)
    path.write_text("port = 1\n")
    os.utime(path, (1, 1))
    assert [watched.has_changed() for _ in range(3)] == [False] * 3


def test_a_file_put_in_its_place_is_a_change_and_one_that_is_away_is_none(path: Path, tmp_path: Path) -> None:
    watched = WatchedFile(path)
    path.unlink()
    assert not watched.has_changed()
    (tmp_path / "new").write_text("port = 3\n")
    os.replace(tmp_path / "new", path)
    assert [watched.has_changed() for _ in range(3)] == [False, True, False]


def test_what_was_accepted_meanwhile_is_not_told_of(path: Path) -> None:
    watched = WatchedFile(path)
    path.write_text("port = 2\n")
    assert not watched.has_changed()
    watched.accept()
    assert [watched.has_changed() for _ in range(2)] == [False, False]
    path.write_text("port = 1\n")
    assert [watched.has_changed() for _ in range(2)] == [False, True]
