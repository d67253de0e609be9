"""What one identity may keep stored, at a server with rules: its own bounds, and nobody else's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from pinlater.errors import Forbidden, LimitReached
from pinlater.model import ScheduleChange
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from pinlater.model.owner_bounds import OwnedKind
from tests.access.cluster import PASSWORD, private, until
from tests.server.commands import Shell
from tests.server.running import RunningServer, running

RULES = """
[roles.tenant]
may = ["enqueue", "consume", "read", "operate", "admin"]
max-queues = 3
max-schedules = 2
max-tokens = 2
max-flows = 2
max-flow-items = 5

[[rules]]
who = ["token:ops"]
roles = ["admin"]
"""
BOUNDS = {"flows": 2, "flow-items": 5, "queues": 3, "schedules": 2, "tokens": 2}
Make = Callable[[Client, str, int], object]


def token_of(name: str) -> str:
    return f"plt_{hashlib.sha256(name.encode()).hexdigest()[:43]}"


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("bounds")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--api", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with running(folder, *options, "--admin-password-hash", hash_password(PASSWORD)) as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            for name, role in (("ada", "tenant"), ("bob", "tenant"), ("ops", "admin")):
                client.update_token(name, hash_of(token_of(name)), [role], PASSWORD)
        yield server


def client_of(server: RunningServer, name: str) -> Client:
    return Client(f"127.0.0.1:{server.port}", token=token_of(name))


def make_schedule(client: Client, name: str, number: int) -> object:
    change = ScheduleChange(name=f"{name}-{number}", queue=f"{name}-0", cron="0 3 1 1 *", body=b"x")
    return client.update_schedule(change, "")


def make_flow(client: Client, name: str, number: int) -> object:
    return client.create_flow(NewFlow(f"{name}-{number}", [Stage("s", "s", f"{name}-0")]))


MAKERS: dict[str, Make] = {
    "queues": lambda client, name, number: client.create_queue(f"{name}-{number}"),
    "schedules": make_schedule,
    "tokens": lambda client, name, number: client.update_token(
        f"{name}-{number}", hash_of(f"{name}{number}"), ["viewer"], ""
    ),
    "flows": make_flow,
}


def limits_hit(server: RunningServer) -> dict[str, float]:
    found = {}
    address = str(server.wait_for("http_ready")["address"]).rstrip("/")
    for line in httpx.get(f"{address}/metrics", timeout=60).text.splitlines():
        if line.startswith("pinlater_limits_hit") and 'limit="identity_' in line:
            found[line.partition('limit="')[2].partition('"')[0]] = float(line.rpartition(" ")[2])
    return found


def test_a_tenant_at_its_bounds_is_refused_with_what_stands_and_others_go_on(server: RunningServer) -> None:
    with client_of(server, "ada") as ada, client_of(server, "bob") as bob, client_of(server, "ops") as ops:
        for kind, make in MAKERS.items():
            for number in range(BOUNDS[kind]):
                make(ada, "ada", number)
            with pytest.raises(LimitReached) as error:
                make(ada, "ada", 9)
            text = f"token:ada has {BOUNDS[kind]} {kind}, and may have {BOUNDS[kind]}: "
            assert text in str(error.value), kind
            assert f"max-{kind}" in str(error.value)
            assert (error.value.reason, error.value.retryable) == ("LIMIT_REACHED", False)
            make(ada, "ada", 0) if kind in ("queues", "schedules") else None  # what is there is not made anew
            make(bob, "bob", 0)
            for number in range(BOUNDS[kind] + 1):
                make(ops, "ops", number)
        flow = ada.get_flows(name="ada-0").flows[0].id
        ada.add_flow_items(flow, "s", [NewItem(b"1")] * 5)
        with pytest.raises(LimitReached, match="the owner of this flow may have no more items of flows: ") as error:
            ops.add_flow_items(flow, "s", [NewItem(b"1")])
        assert "5" not in str(error.value), "how much somebody has is nobody else's to know"
        ada.update_queue("ada-1", "", set={"max_body": "1KiB"})  # a change keeps the owner
        with pytest.raises(LimitReached):
            ada.update_queue("ada-8", "", create=True)
        stored = {str(each.kind): (each.used, each.limit) for each in ada.get_access().stored}
        assert stored == {kind: (bound, bound) for kind, bound in BOUNDS.items()}
        ops.delete_queue("ada-2", "")
        make_queue = MAKERS["queues"]
        make_queue(ada, "ada", 7)
        with pytest.raises(LimitReached):
            make_queue(ada, "ada", 8)
        with pytest.raises(Forbidden), Client(f"127.0.0.1:{server.port}") as nobody:
            nobody.get_usage()
        usage = {each.identity: {str(count.kind): count.used for count in each.stored} for each in ops.get_usage()}
    assert usage["token:ada"] == BOUNDS
    assert usage["token:bob"] == {"flows": 1, "flow-items": 0, "queues": 1, "schedules": 1, "tokens": 1}
    until(lambda: limits_hit(server).keys() >= {kind.limit for kind in OwnedKind})


def test_a_tenant_sees_what_it_has_and_an_operator_who_has_how_many(server: RunningServer, tmp_path: Path) -> None:
    with client_of(server, "bob") as bob:
        for number in range(3):
            bob.create_queue(f"bob-{number}")
    base = str(server.wait_for("api_ready")["address"])
    with httpx.Client(base_url=base, timeout=60) as http:
        headers = {"Authorization": f"Bearer {token_of('bob')}"}
        answer = http.put("/v1/queues/bob-9", headers=headers)
        problem = answer.json()
        assert (answer.status_code, problem["reason"], problem["retryable"]) == (409, "LIMIT_REACHED", False)
        stored = http.get("/v1/access", headers=headers).json()["stored"]
        assert {"kind": "queues", "used": 3, "limit": 3} in stored
        headers = {"Authorization": f"Bearer {token_of('ops')}"}
        of_all = http.get("/v1/access/usage", headers=headers).json()["identities"]
        assert {"kind": "queues", "used": 3, "limit": 3} in next(
            each["stored"] for each in of_all if each["identity"] == "token:bob"
        )
    shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
    for name in ("bob", "ops"):
        private(tmp_path / f"{name}.token", token_of(name))
    shown = shell("access", "show", "--token-file", "bob.token").out
    assert ["queues", "3", "3"] in [line.split() for line in shown.splitlines()]
    (told,) = json.loads(shell("access", "show", "--token-file", "bob.token", "-o", "json").out)
    assert {"kind": "queues", "used": 3, "limit": 3} in told["stored"]
    listed = shell("access", "usage", "--token-file", "ops.token").out
    assert ["token:bob", "queues", "3", "3"] in [line.split() for line in listed.splitlines()]
    assert "bob" in shell("access", "usage", "--token-file", "ops.token", "-o", "json").out
    refused = shell("queue", "create", "bob-9", "--token-file", "bob.token", code=1).err
    assert "token:bob has 3 queues, and may have 3: delete queues that nobody needs" in refused
