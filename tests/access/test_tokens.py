"""Tokens over two servers of one cluster: made, exchanged, ended and revoked, by clients and by commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import AsyncClient, Client, Job, JobFilter, JobState, RequestContext
from pinlater.errors import Forbidden, PasswordInvalid
from pinlater.model.owner_bounds import OwnedKind
from tests.access.cluster import PASSWORD, Cluster, private, two_servers, until
from tests.server.commands import Shell
from tests.server.older import older_server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_servers(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def is_refused(client: Client) -> bool:
    try:
        client.enqueue("mail", Job(b"x"))
    except Forbidden:
        return True
    return False


def test_a_new_token_counts_at_the_other_server_at_once_and_a_revoked_one_not_two_seconds_later(
    cluster: Cluster,
) -> None:
    with cluster.client(1, cluster.make("web", "producer", everywhere=False)) as client:
        assert client.enqueue("mail", Job(b"x"))
        cluster.revoke("web")
        until(lambda: is_refused(client), within_s=2.0)
        with pytest.raises(Forbidden, match="the token is wrong"):
            client.get_access()


def test_a_token_that_has_ended_is_refused(cluster: Cluster) -> None:
    token = cluster.make("short", "producer", expires_ms=int(time.time() * 1000) + 1_000)
    with cluster.client(1, token) as client:
        assert not is_refused(client)
        until(lambda: is_refused(client))


def test_a_rule_gives_a_token_more_than_its_roles_do(cluster: Cluster) -> None:
    with cluster.client(1, cluster.make("by-rule", "viewer")) as client:
        assert client.enqueue("mail", Job(b"x"))
        assert client.count(JobFilter("mail", JobState.PENDING))
        with pytest.raises(Forbidden, match="token:by-rule may not operate on queue 'mail'"):
            client.retry_failed("mail")


def test_a_token_with_admin_takes_the_place_of_the_password(cluster: Cluster) -> None:
    with cluster.client(1, cluster.make("boss", "admin")) as client:
        client.update_queue("mail", "", set={"max_attempts": "7"})
    with cluster.client(1, cluster.make("clerk", "producer")) as client:
        with pytest.raises(Forbidden):
            client.update_queue("mail", "", set={"max_attempts": "8"})
        with pytest.raises(PasswordInvalid):
            client.update_queue("mail", "guess", set={"max_attempts": "8"})
        client.update_queue("mail", PASSWORD, set={"max_attempts": "9"})


def test_a_token_is_exchanged_without_a_failed_call(cluster: Cluster, tmp_path: Path) -> None:
    file = private(tmp_path / "me.token", cluster.make("before", "producer"))

    async def exchanged() -> None:
        async with AsyncClient(cluster.address(1), token=file) as client:
            assert len(await client.enqueue("mail", [Job(b"x")])) == 1
            file.write_text(cluster.make("after", "producer"))
            cluster.revoke("before")
            await asyncio.to_thread(until, lambda: "before" not in cluster.uses(1))
            stored = await asyncio.gather(*(client.enqueue("mail", Job(b"x")) for _ in range(20)))
            assert len(set(stored)) == 20
            assert await client.count(JobFilter("mail", JobState.PENDING)) >= 21
            assert await client.enqueue("mail", Job(b"x"), context=RequestContext("for whom"))
            with pytest.raises(Forbidden, match="anonymous may not"):
                await client.enqueue("mail", Job(b"x"), context=RequestContext("for whom", token=""))

    asyncio.run(exchanged())


# -- commands ----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_token_by_commands(cluster: Cluster) -> None:
    one, other = cluster.shells
    admin = {"PINLATER_ADMIN_PASSWORD": PASSWORD}
    made = one("token", "create", "shop", "--role", "producer", "--expires", "90d", "--output", "shop.token", **admin)
    file = one.folder / "shop.token"
    assert (made.out, stat.S_IMODE(file.stat().st_mode)) == ("", 0o600)
    token = file.read_text().strip()
    assert re.fullmatch(r"plt_[A-Za-z0-9_-]{43}", token)
    ops = one("token", "create", "ops", "--role", "admin", **admin).out.strip()
    shown = {"PINLATER_TOKEN": ops}
    until(lambda: knows(other, ops))
    (view,) = [each for each in json.loads(other("token", "list", "-o", "json", **shown).out) if each["name"] == "shop"]
    assert view["roles"] == ["producer"]
    assert (view["made_by"], view["last_used_ms"]) == (view["made_by"], None)
    assert abs(view["expires_ms"] - view["made_at_ms"] - 90 * 86_400_000) < 60_000
    assert "shop" in other("token", "list", **shown).out
    other("job", "enqueue", "mail", "x", PINLATER_TOKEN_FILE=str(file))
    other("job", "enqueue", "mail", "x", "--token-file", str(file), PINLATER_TOKEN=ops)
    until(lambda: last_use(other, "shop", ops))
    said = one("token", "create", "shop", "--role", "producer", "--output", "shop.token", code=2, **shown)
    assert "one of no token yet, or replace" in said.err
    assert file.read_text().strip() == token
    one("token", "create", "shop", "--role", "worker", "--replace", "--output", "shop.token", **shown)
    assert file.read_text().strip() != token
    refused = one("job", "enqueue", "mail", "x", code=1, PINLATER_TOKEN=token).err
    assert re.fullmatch(r"pinlater: the token is wrong: .* \(the token came from PINLATER_TOKEN\)\n", refused)
    partly = one("token", "revoke", "shop", "nobody", code=5, **shown)
    assert partly.err == "pinlater: there is no token nobody\n"
    assert "token is wrong" in one("access", "show", "--token-file", "shop.token", code=1).err
    everything = cluster.log() + one("audit", "-o", "json", **shown).out + one("token", "list", **shown).out
    assert "update_token" in everything
    assert not [
        each for each in (token, ops) if each in everything or hashlib.sha256(each.encode()).hexdigest() in everything
    ]


def knows(shell: Shell, token: str) -> bool:
    """A token counts at every server within two seconds."""
    try:
        return bool(shell("token", "list", PINLATER_TOKEN=token).out)
    except AssertionError:
        return False


def last_use(shell: Shell, name: str, token: str) -> bool:
    found = json.loads(shell("token", "list", "-o", "json", PINLATER_TOKEN=token).out)
    return any(each["name"] == name and each["last_used_ms"] for each in found)


def test_a_file_that_holds_something_else_is_not_overwritten(cluster: Cluster) -> None:
    shell = cluster.shells[0]
    kept = private(shell.folder / "diary", "dear diary")
    said = shell(
        "token", "create", "x", "--role", "viewer", "--output", "diary", code=1, PINLATER_ADMIN_PASSWORD=PASSWORD
    )
    assert "diary holds no token" in said.err
    assert kept.read_text() == "dear diary"
    shell("token", "create", "x", "--role", "no role", "--output", "new", code=2, PINLATER_ADMIN_PASSWORD=PASSWORD)
    assert not list(shell.folder.glob("new*"))


def test_commands_ask_for_a_password_only_where_the_token_does_not_allow_them(cluster: Cluster) -> None:
    shell = cluster.shells[1]
    operator = {"PINLATER_TOKEN": cluster.make("night-shift", "operator")}
    assert "5" in shell("queue", "set", "mail", "max_attempts=5", **operator).out
    shell("schedule", "set", "nightly", "--queue", "mail", "--every", "1h", "--yes", **operator)
    shell("schedule", "delete", "nightly", "--yes", **operator)
    assert "no admin password" in shell("queue", "delete", "other", "--yes", code=2, **operator).err
    shell("queue", "delete", "other", "--yes", stdin=f"{PASSWORD}\n", **operator)
    viewer = {"PINLATER_TOKEN": cluster.make("guest", "viewer")}
    assert "no admin password" in shell("queue", "pause", "mail", code=2, **viewer).err


def test_who_i_am_is_shown(cluster: Cluster) -> None:
    shell = cluster.shells[1]
    assert shell("access", "show").err == "pinlater: anonymous\n"
    view = shell("access", "show", "-o", "json", PINLATER_TOKEN=cluster.make("by-rule", "viewer"))
    (told,) = json.loads(view.out)
    assert {each["kind"]: each["used"] for each in told.pop("stored")} == dict.fromkeys(OwnedKind, 0)
    assert told == {
        "identity": "token:by-rule",
        "roles": ["viewer"],
        "has_rules": True,
        "grants": [
            {"actions": ["read"], "queues": ["*"], "bodies": False, "groups": ["*"]},
            {"actions": ["enqueue"], "queues": ["mail"], "bodies": True, "groups": ["*"]},
        ],
    }


async def test_of_a_server_that_knows_no_tokens_commands_say_so_and_ask_for_the_password(cluster: Cluster) -> None:
    shell = cluster.shells[0]
    admin = cluster.make("old-boss", "admin")
    async with older_server(cluster.servers[0].port, "updateToken", "getTokens", "deleteToken", "getAccess") as older:

        def said(*arguments: str, **options: Any) -> str:
            return shell(*arguments, "--server", older.address, PINLATER_TOKEN=admin, **options).err

        for arguments in (("list",), ("revoke", "x"), ("create", "x", "--role", "viewer")):
            refused = await asyncio.to_thread(said, "token", *arguments, stdin=f"{PASSWORD}\n", code=1)
            assert refused == "pinlater: UNKNOWN_METHOD: this server is of an earlier version, which knows no tokens\n"
        assert "limits no access" in await asyncio.to_thread(said, "access", "show", code=1)
        assert "no admin password" in await asyncio.to_thread(said, "queue", "set", "mail", "max_attempts=6", code=2)
        await asyncio.to_thread(said, "queue", "set", "mail", "max_attempts=6", stdin=f"{PASSWORD}\n")
