"""Files and folders that their owner alone can use, made and tightened, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.file_locks import FileLocks
from pinlater.data_folder.identity import remember, server_id
from pinlater.data_folder.private_files import (
    make_private_file,
    make_private_folder,
    open_private_file,
    tighten,
    tighten_folder,
    write_private_file,
)
from pinlater.overflow import ownership
from pinlater.overflow.ownership import OwnerLock

UMASKS = [0o000, 0o022, 0o077, 0o277]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    """Of all that is in it, and of the folder itself."""
    return {str(path.relative_to(folder)): mode(path) for path in (folder, *folder.rglob("*"))}


def looked_at(found: dict[str, int]) -> set[int]:
    return {value for value in found.values() if value & 0o077}


@pytest.mark.parametrize("mask", UMASKS)
def test_what_is_made_is_private_under_any_umask(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "a" / "b"
    with umask(mask):
        make_private_folder(folder)
        make_private_file(folder / "made")
        os.close(open_private_file(folder / "opened"))
        write_private_file(folder / "written", "text")
        write_private_file(folder / "written", "other text")
    assert modes(tmp_path / "a") == {".": 0o700, "b": 0o700, "b/made": 0o600, "b/opened": 0o600, "b/written": 0o600}
    assert (folder / "written").read_text() == "other text"


@pytest.mark.parametrize("mask", UMASKS)
async def test_what_a_server_keeps_is_private_under_any_umask(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "data"
    shard = SqliteShard(f"sqlite:///{folder}/pinlater.db", "1")
    locks, owner = FileLocks(), OwnerLock(folder / "overflow.lock")
    with umask(mask):
        locks.take([folder / "pinlater.db"])
        await shard.open()
        server_id(folder)
        remember(folder, {"1": "x"})
        owner.take()
        ownership.publish_address(folder, "127.0.0.1:1")
    try:
        found = modes(folder)
        assert {"pinlater.db", "pinlater.db-wal", "pinlater.db-shm", "pinlater.db.lock", "shards.json"} < found.keys()
        assert {"server.json", "overflow.json", "overflow.lock"} < found.keys()
        assert not looked_at(found), found
    finally:
        owner.free()
        await shard.close()
        locks.keep([])


async def test_a_store_of_before_is_tightened_while_another_process_has_it_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    before = SqliteShard(str(path), "1")
    await before.open()
    for each in tmp_path.iterdir():
        each.chmod(0o644)
    tmp_path.chmod(0o755)
    with caplog.at_level("INFO", "pinlater.files"):
        after = SqliteShard(str(path), "1")
        await after.open()
    assert set(modes(tmp_path).items()) >= {("jobs.db", 0o600), ("jobs.db-wal", 0o600), ("jobs.db-shm", 0o600)}
    assert mode(tmp_path) == 0o755, "the folder of a store was named by a user, for whatever else is in it"
    assert f"{path}: permissions tightened from 0644 to 0600" in caplog.text
    await after.close()
    await before.ping()
    await before.close()


def test_a_data_folder_of_ours_is_tightened_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remember(tmp_path, {"1": "x"})
    (tmp_path / "pinlater.db-wal").touch()
    tmp_path.chmod(0o755)
    with caplog.at_level("INFO", "pinlater.files"):
        tighten_folder(tmp_path)
        tighten_folder(tmp_path)
    assert mode(tmp_path) == 0o700
    assert caplog.text.count("permissions tightened from 0755 to 0700") == 1


@pytest.mark.parametrize("way", ["sticky", "given to a group", "with other files in it"])
def test_a_folder_that_is_shared_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    remember(folder, {"1": "x"})
    if way == "with other files in it":
        (folder / "letter.txt").touch()
    before = {"sticky": 0o1777, "given to a group": 0o2770, "with other files in it": 0o755}[way]
    folder.chmod(before)
    tighten_folder(folder)
    assert mode(folder) == before
    assert "it stays as it is" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jobs.db"
    path.touch(0o644)
    os.chown(path, 12_345, -1)
    os.chown(tmp_path, 12_345, -1)
    tmp_path.chmod(0o755)
    tighten(path)
    tighten_folder(tmp_path)
    assert (mode(path), mode(tmp_path)) == (0o644, 0o755)
    assert "belongs to user 12345" in caplog.text


def test_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch(0o644)
    target.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(target)
    tighten(link)
    assert mode(target) == 0o644
    with pytest.raises(OSError, match="symbolic"):
        open_private_file(link)


def test_files_that_are_not_there_or_private_are_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tighten(tmp_path / "none")
    tighten_folder(tmp_path / "none")
    make_private_file(tmp_path / "private")
    tighten(tmp_path / "private")
    assert not caplog.text
