"""A file belongs to one server at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinlater.data_folder.file_locks import FileInUse, FileLocks


def test_a_second_one_is_refused_by_name_until_the_first_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "jobs.db"
    first, second = FileLocks(), FileLocks()
    first.take([path])
    with pytest.raises(FileInUse, match=rf"jobs.db is in use by another server \(process {os.getpid()}\)"):
        second.take([path])
    first.keep([])
    second.take([path])
    second.keep([])


def test_what_is_held_already_is_taken_again(tmp_path: Path) -> None:
    locks = FileLocks()
    for _ in range(2):
        locks.take([tmp_path / "jobs.db"])
    locks.keep([])


def test_all_are_taken_or_none(tmp_path: Path) -> None:
    taken, free = tmp_path / "taken.db", tmp_path / "free.db"
    first, second, third = FileLocks(), FileLocks(), FileLocks()
    first.take([taken])
    with pytest.raises(FileInUse):
        second.take([free, taken])
    third.take([free])
    for locks in (first, third):
        locks.keep([])


def test_the_same_file_by_another_name_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "real")
    first, second = FileLocks(), FileLocks()
    first.take([tmp_path / "real" / "jobs.db"])
    with pytest.raises(FileInUse):
        second.take([tmp_path / "other" / "jobs.db"])
    first.keep([])


def test_where_no_folder_can_be_made_nothing_is_held(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    FileLocks().take([tmp_path / "file" / "jobs.db"])
