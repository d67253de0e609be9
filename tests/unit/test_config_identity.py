"""The record of which store each shard is."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from pinlater.data_folder.identity import FILE, RecordBroken, forget, known_stores, remember


def test_nothing_is_known_where_there_is_no_record(tmp_path: Path) -> None:
    assert known_stores(tmp_path / "none") == {}


def test_what_is_remembered_is_added_and_can_be_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    remember(folder, {"1": "x"})
    remember(folder, {"2": "y"})
    assert known_stores(folder) == {"1": "x", "2": "y"}
    forget(folder, ["1", "7"])
    assert known_stores(folder) == {"2": "y"}
    assert [path.name for path in folder.iterdir()] == [FILE], "no temporary file is left"


def test_what_is_known_already_is_not_written_again(tmp_path: Path) -> None:
    remember(tmp_path, {"1": "x"})
    before = (tmp_path / FILE).stat()
    remember(tmp_path, {"1": "x"})
    assert (tmp_path / FILE).stat().st_ino == before.st_ino


@pytest.mark.parametrize("text", ["", "{", "[]", '{"1": 2}'])
def test_a_broken_record_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    for call in (
        lambda: known_stores(tmp_path),
        lambda: remember(tmp_path, {"1": "x"}),
        lambda: forget(tmp_path, ["1"]),
    ):
        with pytest.raises(RecordBroken, match=FILE):
            call()
    assert (tmp_path / FILE).read_text() == text


def remember_some(folder: Path, name: str) -> None:
    for number in range(20):
        remember(folder, {f"{name}{number}": "x"})


def test_servers_that_share_a_folder_lose_nothing_of_each_other(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=remember_some, args=(tmp_path, name)) for name in "abc"]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert len(json.loads((tmp_path / FILE).read_text())) == 60
