"""What commands say where there is nothing to show, and where a name is not quite right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from tests.server.commands import Shell
from tests.server.running import running

PASSWORD = "correct horse"

# -- nothing is there --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def empty_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on which nobody has made anything."""
    with running(tmp_path_factory.mktemp("served"), "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield f"127.0.0.1:{server.port}"


LISTS = {
    "queue list": "`pinlater queue create NAME`",
    "queue stats": "`pinlater queue create NAME`",
    "queue show": "`pinlater queue set NAME KEY=VALUE`",
    "schedule list": "`pinlater schedule set NAME`",
    "schedule list --made-by shop": "`pinlater schedule list` lists all",
    "flow list": "`pinlater flow create`",
    "flow list --state running": "`pinlater flow list` lists all",
    "token list": "`pinlater token create NAME --role ROLE`",
    "access usage": "no identity",
    "audit": "operators have changed nothing",
}


@pytest.mark.parametrize("command", LISTS)
def test_an_empty_list_says_so_and_what_to_do(empty_address: str, tmp_path: Path, command: str) -> None:
    result = Shell(tmp_path, empty_address)(*command.split())
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert LISTS[command] in line


@pytest.mark.parametrize("command", LISTS)
def test_an_empty_list_is_to_programs_what_it_was(empty_address: str, tmp_path: Path, command: str) -> None:
    result = Shell(tmp_path, empty_address)(*command.split(), "-o", "json")
    assert (json.loads(result.out), result.err) == ([], "")


def test_a_cluster_without_queues_says_so(empty_address: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, empty_address)
    assert "there are no queues; `pinlater queue create NAME`" in shell("cluster", "status").err
    assert "there are no queues; `pinlater queue create NAME`" in shell("top", "--once").out


# -- a name that is not quite right ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with two queues."""
    with running(tmp_path_factory.mktemp("served"), "--admin-password-hash", hash_password(PASSWORD)) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            client.create_queue("mail")
            client.create_queue("thumbnails")
        yield address


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


@pytest.mark.parametrize(
    "command",
    [
        "queue stats mial",
        "queue show mial",
        "queue set mial max_attempts=2",
        "queue pause mial",
        "queue drain mial --no-wait",
        "queue replay mial",
        "job enqueue mial x",
        "job scan mial --state failed",
        "job count mial --state failed",
        "job retry mial",
        "job cancel --queue mial --yes",
        "job get --filter queue:mial",
        "job delete --filter queue:mial&state:failed --yes",
        "watch mial",
        "schedule set x --queue mial --every 10m --body x --yes",
    ],
)
def test_a_queue_that_does_not_exist_is_told_with_the_one_that_may_be_meant(shell: Shell, command: str) -> None:
    words = [word.replace("&", " ") for word in command.split()]
    (line,) = shell(*words, code=1, PINLATER_ADMIN_PASSWORD=PASSWORD).err.splitlines()[-1:]
    assert "queue 'mial' does not exist (did you mean mail?); " in line


def test_a_deletion_of_no_queue_names_the_one_that_may_be_meant(shell: Shell) -> None:
    said = shell("queue", "delete", "thumbnials", "--yes", PINLATER_ADMIN_PASSWORD=PASSWORD).err
    assert "queue thumbnials does not exist (did you mean thumbnails?)" in said


def test_a_name_that_is_close_to_none_is_told_as_it_is(shell: Shell) -> None:
    said = shell("queue", "stats", "payroll", code=1).err
    assert "queue 'payroll' does not exist; create it" in said


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("queu list", "queue"),
        ("clustr status", "cluster"),
        ("queue stat", "stats"),
        ("job rety", "retry"),
        ("admin hash-pasword", "hash-password"),
    ],
)
def test_an_unknown_command_is_told_with_the_one_that_may_be_meant(shell: Shell, command: str, meant: str) -> None:
    name = command.split()[0 if " list" in command or " status" in command else 1]
    assert f"No such command '{name}' (did you mean {meant}?)." in shell(*command.split(), code=2).err


def test_a_scan_that_finds_nothing_says_so(shell: Shell) -> None:
    result = shell("job", "scan", "mail", "--state", "failed")
    assert result.out == ""
    assert "no jobs of queue mail are in that state; `pinlater queue stats mail`" in result.err
    assert "in that state and match" in shell("job", "scan", "mail", "--state", "failed", "--match", "x").err
