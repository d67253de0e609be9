"""The disk that is cut: what was synced is there, and of the rest what a journal may have kept."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tests.powercuts.disk import Disk
from tests.powercuts.held_back import PAGE

pytestmark = pytest.mark.parametrize("seed", [1])
CUTS = 30


def synced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    sync(path)


def sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def cut(disk: Disk, seed: int) -> dict[str, int]:
    disk.hold()
    disk.off()
    return disk.cut(seed)


@pytest.mark.parametrize("kept", [os.O_DSYNC, os.O_SYNC, 0], ids=["O_DSYNC", "O_SYNC", "fdatasync"])
def test_what_was_synced_is_there(disk: Disk, kept: int) -> None:
    for number in range(CUTS):
        opened = os.open(disk.folder / f"file-{number}", os.O_CREAT | os.O_RDWR | kept)
        os.write(opened, b"%d" % number * PAGE)
        if not kept:
            os.fdatasync(opened)
        os.close(opened)
        sync(disk.folder)
        cut(disk, number)
        for before in range(number + 1):
            assert (disk.folder / f"file-{before}").read_bytes() == b"%d" % before * PAGE


def test_pages_that_were_not_synced_survive_or_not_each_by_itself(disk: Disk) -> None:
    file, seen = disk.folder / "file", set()
    for number in range(CUTS):
        synced(file, b"a" * 4 * PAGE)
        sync(disk.folder)
        with file.open("r+b", buffering=0) as opened:
            opened.write(b"b" * 4 * PAGE)
        cut(disk, number)
        found = file.read_bytes()
        pages = [found[start : start + PAGE] for start in range(0, len(found), PAGE)]
        assert all(page in (b"a" * PAGE, b"b" * PAGE) for page in pages)
        seen.add("".join(chr(page[0]) for page in pages))
    assert {"aaaa", "bbbb"} < seen
    assert len(seen) > 4


def test_a_file_that_grew_may_end_early_or_in_zeros(disk: Disk) -> None:
    file, seen = disk.folder / "file", set()
    for number in range(CUTS):
        synced(file, b"a" * 100)
        sync(disk.folder)
        with file.open("ab", buffering=0) as opened:
            opened.write(b"b" * 3 * PAGE)
        cut(disk, number)
        found = file.read_bytes()
        assert found[:100] == b"a" * 100
        assert set(found[100:]) <= set(b"b\0")
        seen.add((len(found), b"\0" in found))
    assert {(100, False), (100 + 3 * PAGE, False), (100 + 3 * PAGE, True)} < seen


def test_a_truncation_that_was_not_synced_is_there_or_not(disk: Disk) -> None:
    file, seen = disk.folder / "file", set()
    for number in range(CUTS):
        synced(file, b"a" * 3 * PAGE)
        sync(disk.folder)
        os.truncate(file, 10)
        cut(disk, number)
        seen.add(file.read_bytes())
    assert seen == {b"a" * 3 * PAGE, b"a" * 10}


def test_a_length_that_was_set_by_one_call_is_there_or_not(disk: Disk) -> None:
    file, seen = disk.folder / "file", set()
    for number in range(CUTS):
        synced(file, b"")
        sync(disk.folder)
        with file.open("r+b", buffering=0) as opened:
            os.posix_fallocate(opened.fileno(), 0, 4 * PAGE)
            opened.write(b"b" * PAGE)
        cut(disk, number)
        seen.add(file.read_bytes())
    assert seen == {b"", b"b" * PAGE + bytes(3 * PAGE), bytes(4 * PAGE)}


def test_names_survive_as_far_as_the_journal_does(disk: Disk) -> None:
    """What was done later is never there without what was done before."""
    lengths = set()
    for number in range(CUTS):
        folder = disk.folder / f"folder-{number}"
        folder.mkdir()
        for step in range(4):
            (folder / f"{step}").touch()
        found = cut_and_listed(disk, folder, number)
        assert found == [str(step) for step in range(len(found))]
        lengths.add(len(found))
    assert len(lengths) > 2


def cut_and_listed(disk: Disk, folder: Path, seed: int) -> list[str]:
    cut(disk, seed)
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_file_in_place_of_another_is_one_of_the_two(disk: Disk) -> None:
    """What was written before the rename without a sync may be missing behind it."""
    file, seen = disk.folder / "file", set()
    for number in range(CUTS):
        synced(file, b"old")
        sync(disk.folder)
        fresh = disk.folder / "fresh"
        fresh.write_bytes(b"new")
        fresh.rename(file)
        cut(disk, number)
        seen.add(file.read_bytes())
        fresh.unlink(missing_ok=True)
    assert {b"old", b"new"} < seen
    assert seen <= {b"old", b"new", b"", b"\0\0\0"}


def test_the_sync_of_a_file_is_none_of_its_name(disk: Disk) -> None:
    there = set()
    for number in range(CUTS):
        file = disk.folder / f"file-{number}"
        synced(file, b"x")
        cut(disk, number)
        there.add(file.exists())
    assert there == {True, False}


def test_syncs_that_were_planted_to_do_nothing_do_nothing(disk: Disk) -> None:
    disk.sync_all()
    disk.plant("folder/*")
    folder = disk.folder / "folder"
    folder.mkdir()
    sync(disk.folder)
    sizes = set()
    for number in range(CUTS):
        synced(folder / f"file-{number}", b"x")
        sync(folder)
        cut(disk, number)
        sizes.add((folder / f"file-{number}").stat().st_size)
    assert sizes == {0, 1}


def test_programs_are_answered_nothing_after_the_cut(disk: Disk) -> None:
    opened = os.open(disk.folder / "file", os.O_CREAT | os.O_WRONLY)
    disk.hold()
    disk.off()
    with pytest.raises(OSError, match="Input/output error"):
        os.write(opened, b"x")
    with pytest.raises(OSError, match="Input/output error"):
        os.close(opened)


def test_an_sqlite_file_opens_after_every_cut(disk: Disk) -> None:
    """A log in shared memory, locks, truncations and a checkpoint are of a file system that can be relied on."""
    file, stored = disk.folder / "file.db", 0
    for number in range(CUTS):
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 20")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (text)")
        for _ in range(10):
            with connection:
                connection.execute("INSERT INTO rows VALUES (?)", ["x" * 3_000])
            stored += 1
        disk.hold()
        disk.off()
        connection.close()
        disk.cut(number)
        with sqlite3.connect(file) as again:
            assert again.execute("SELECT count(*) FROM rows").fetchone() == (stored,)
            assert again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        again.close()
