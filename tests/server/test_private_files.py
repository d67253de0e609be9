"""A server's files are its user's alone: new ones under any umask, and those that an earlier version made."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pinlater import Client, Job
from pinlater.data_folder.password import PASSWORD_FILE
from tests.server.running import RunningServer, running


def started(folder: Path, mask: int, *arguments: str) -> RunningServer:
    before = os.umask(mask)
    try:
        return RunningServer(folder, *arguments)
    finally:
        os.umask(before)


def used(server: RunningServer) -> None:
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        client.enqueue("mail", [Job(b"a secret")])


def open_to_others(folder: Path) -> dict[str, str]:
    found = {str(each): stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.rglob("*"))}
    return {name: oct(mode) for name, mode in found.items() if mode & 0o077}


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_all_that_a_server_writes_is_private(tmp_path: Path, mask: int) -> None:
    server = started(tmp_path, mask, "--data", "deep/data", "--overflow", "10MiB")
    try:
        used(server)
        names = {each.name for each in (tmp_path / "deep" / "data").iterdir()}
        assert {"pinlater.db", "pinlater.db-wal", "pinlater.db.lock", "overflow.db", "overflow.json"} <= names
        assert open_to_others(tmp_path / "deep") == {}
    finally:
        server.clean_up()
    assert open_to_others(tmp_path / "deep") == {}


def test_what_an_earlier_version_left_is_tightened_and_said(tmp_path: Path) -> None:
    data = tmp_path / "pinlater-data"
    with running(tmp_path) as server:
        used(server)
        server.stop()
    (data / PASSWORD_FILE).unlink()  # which earlier versions did not make
    for each in data.iterdir():
        each.chmod(0o644)
    data.chmod(0o755)
    with running(tmp_path) as server:
        used(server)
        said = [event["event"] for event in server.events]
        assert f"{data}: permissions tightened from 0755 to 0700, others could use it" in said
        assert f"{data}/pinlater.db: permissions tightened from 0644 to 0600, others could use it" in said
        assert open_to_others(data) == {}


def test_a_folder_with_other_things_in_it_stays_open_and_the_files_do_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").touch()
    with running(tmp_path, "--data", ".") as server:
        used(server)
        said = [event["event"] for event in server.events]
        assert any("it is not the server's alone" in text for text in said)
    assert set(open_to_others(tmp_path)) == {str(tmp_path), str(tmp_path / "letter.txt")}
