"""Files and folders that their owner alone can use, made and tightened, whatever the umask."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import pinlater
import pinlater_workers
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.file_locks import FileLocks
from pinlater.data_folder.identity import remember, server_id
from pinlater.data_folder.private_files import (
    make_private_database,
    make_private_file,
    make_private_folder,
    new_whole_file,
    open_private_file,
    tighten,
    tighten_folder,
    write_private_file,
)
from pinlater.http.sessions import Credential, Sessions
from pinlater.overflow import ownership
from pinlater.overflow.ownership import OwnerLock

MAKERS = {
    "pinlater/data_folder/private_files.py",
    "pinlater/cli/dashboard_command.py",  # a temporary file
    "pinlater/standard_streams.py",  # descriptors that are there
    "pinlater/backends/dynamodb/claims.py",  # `touch` of a record
    "pinlater_workers/outbox/database.py",  # a lock, with 0600: workers import no part of a server
    "pinlater_workers/pools/child.py",  # a file of the system
    "pinlater/cli/history_commands.py",  # a temporary folder
    "pinlater/embedded.py",  # a temporary folder
}
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
        assert new_whole_file(folder / "whole", b"text")
        assert not new_whole_file(folder / "whole", b"other text")
    files = dict.fromkeys(("b/made", "b/opened", "b/written", "b/whole"), 0o600)
    assert modes(tmp_path / "a") == {".": 0o700, "b": 0o700, **files}
    assert (folder / "whole").read_bytes() == b"text"
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
        Sessions(data=folder).begin(Credential("plt_x"))
    try:
        found = modes(folder)
        assert {"pinlater.db", "pinlater.db-wal", "pinlater.db-shm", "pinlater.db.lock", "shards.json"} < found.keys()
        assert {"server.json", "overflow.json", "overflow.lock", "session-key", "sessions"} < found.keys()
        assert len([name for name in found if name.startswith("sessions/")]) == 1
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
@pytest.mark.parametrize("user", [0, 12_346])
def test_what_belongs_to_somebody_else_is_tightened_where_it_can_be_and_else_named(
    caplog: pytest.LogCaptureFixture, user: int
) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        path = folder / "flows.db"
        path.touch(0o644)
        for each in (path, folder):
            os.chown(each, 12_345, -1)
        path.chmod(0o644)
        folder.chmod(0o755)
        os.seteuid(user)
        try:
            tighten_folder(folder)
        finally:
            os.seteuid(0)
        assert (mode(path), mode(folder)) == ((0o644, 0o755) if user else (0o600, 0o700))
        for each, right in ((path, 600), (folder, 700)):
            assert (f"{each}: others can use it" in caplog.text) == bool(user)
            assert (f"user 12345, who owns it, or root can: chmod {right}" in caplog.text) == bool(user)


def test_files_of_a_server_are_tightened_in_a_folder_that_it_shares(tmp_path: Path) -> None:
    """A password that others could read is refused later: who knows it is unknown."""
    ours = ["flows.db", "flows.db-wal", "history.sqlite-shm", "server-api-address", "shards.json"]
    ours += ["overflow.lock", "session-key"]
    others = ["shop.db", "server.pem", "admin-password"]
    for name in ours + others:
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    tmp_path.chmod(0o755)
    tighten_folder(tmp_path)
    assert {name for name in ours + others if mode(tmp_path / name) == 0o600} == set(ours)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_folder_of_sessions_is_tightened_but_one_with_other_things_in_it(tmp_path: Path, is_ours: bool) -> None:
    """Its files are, in either. Nobody could use a folder without the right to enter it."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    session, letter = folder / ("0f" * 32), folder / "letter.txt"
    for each in (session,) if is_ours else (session, letter):
        each.touch()
        each.chmod(0o644)
    folder.chmod(0o644)
    tighten_folder(tmp_path)
    assert (mode(folder), mode(session)) == (0o700 if is_ours else 0o644, 0o600)
    assert is_ours or mode(letter) == 0o644


def test_a_folder_of_sessions_behind_a_link_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (tmp_path / "data" / "sessions").symlink_to(elsewhere)
    tighten_folder(tmp_path / "data")
    assert mode(elsewhere) == 0o755


def test_a_link_to_a_database_that_is_not_there_yet_makes_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "disk" / "real.db")
    make_private_database(tmp_path / "link.db")
    assert modes(tmp_path / "disk") == {".": 0o700, "real.db": 0o600}


def test_one_module_makes_every_file_and_folder() -> None:
    """Others ask it; what is opened for a moment, or made by the system under a name of its own, is in the list."""
    makes = re.compile(
        r"\.(mkdir|makedirs|touch|write_text|write_bytes)\(|O_CREAT|mkstemp|mkfifo|AF_UNIX, socket.SOCK_STREAM"
        r"|\bopen\([^)]*[\"'][wax][b+t]*[\"']|NamedTemporaryFile|TemporaryDirectory\("
    )
    root = Path(pinlater.__file__).parent
    found = {
        path.relative_to(package.parent).as_posix()
        for package in (root, Path(pinlater_workers.__file__).parent)
        for path in package.rglob("*.py")
        if any(makes.search(line) for line in path.read_text().splitlines())
    }
    assert found == MAKERS


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
