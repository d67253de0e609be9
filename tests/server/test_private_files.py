"""A server's files are its user's alone: new ones under any umask, and those that an earlier version made."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from pinlater import Client, Job
from pinlater.data_folder.password import PASSWORD_FILE
from pinlater.data_folder.private_files import SESSION_KEY, SESSIONS_FOLDER
from pinlater.model.flow_words import NewFlow, Stage
from tests.dashboard.visitor import Visitor
from tests.server.commands import Shell
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


EVERYTHING = ("--overflow", "10MiB", "--api", "127.0.0.1:0", "--bodies", "file://{}/deep/tier")
"""What leaves files."""


def used_in_all(server: RunningServer, folder: Path) -> None:
    used(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.enqueue("mail", [Job(b"a large secret" * 30_000)])
        client.create_flow(NewFlow("sums", [Stage("add", "", "mail")]))
    shell = Shell(folder, f"127.0.0.1:{server.port}")
    shell("token", "create", "web", "--role", "worker", "--output", "web.token", "--data", "deep/data")
    assert (folder / "web.token").stat().st_mode & 0o077 == 0
    address = str(server.wait_for("api_ready")["address"]).rstrip("/")
    Visitor(address).open(password=(folder / "deep" / "data" / PASSWORD_FILE).read_text().strip())
    ends_at = time.monotonic() + 60
    while not (found := {each.name for each in (folder / "deep" / "data").iterdir()}) >= KEPT:
        assert time.monotonic() < ends_at, KEPT - found
        time.sleep(0.05)


KEPT = {
    *("pinlater.db", "pinlater.db-wal", "pinlater.db.lock", "overflow.db", "overflow.json", "overflow.lock"),
    *("flows.db", "flows.db-wal", "history.sqlite", "history.sqlite-wal", "server-api-address", "admin-password"),
    *("shards.json", "server.json", SESSION_KEY, SESSIONS_FOLDER),
}


def open_to_others(folder: Path) -> dict[str, str]:
    found = {str(each): stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.rglob("*"))}
    return {name: oct(mode) for name, mode in found.items() if mode & 0o077}


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_all_that_a_server_writes_is_private(tmp_path: Path, mask: int) -> None:
    options = [each.format(tmp_path) for each in EVERYTHING]
    server = started(tmp_path, mask, "--data", "deep/data", *options)
    try:
        used_in_all(server, tmp_path)
        assert len(list((tmp_path / "deep" / "tier").rglob("*"))) > 3
        assert open_to_others(tmp_path / "deep") == {}
    finally:
        server.clean_up()
    assert open_to_others(tmp_path / "deep") == {}


def test_what_an_earlier_version_left_is_tightened_and_said(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    options = ["--data", "deep/data", *(each.format(tmp_path) for each in EVERYTHING)]
    with running(tmp_path, *options) as server:
        used_in_all(server, tmp_path)
        server.stop()
    (data / PASSWORD_FILE).unlink()  # which earlier versions did not make
    (session,) = (data / SESSIONS_FOLDER).iterdir()
    for each in (session, *data.iterdir()):
        each.chmod(0o644)
    data.chmod(0o755)
    with running(tmp_path, *options) as server:
        server.wait_for(f"{data}: permissions tightened from 0755 to 0700, others could use it")
        server.wait_for(f"{data}/sessions: permissions tightened from 0644 to 0700, others could use it")
        files = ("pinlater.db", "flows.db", "history.sqlite", "server-api-address", "session-key")
        for name in (*files, f"sessions/{session.name}"):
            server.wait_for(f"{data}/{name}: permissions tightened from 0644 to 0600, others could use it")
        assert open_to_others(data) == {}


def test_a_folder_with_other_things_in_it_stays_open_and_the_files_do_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").touch()
    with running(tmp_path, "--data", ".") as server:
        used(server)
        said = [event["event"] for event in server.events]
        assert any("it is not the server's alone" in text for text in said)
    assert set(open_to_others(tmp_path)) == {str(tmp_path), str(tmp_path / "letter.txt")}
