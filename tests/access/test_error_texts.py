"""What the texts of errors carry: nothing of bodies to who may not read them, and nothing of other services."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from pinlater.model import Ack, DequeueRequest
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CallbackStatus,
    CompletionCallback,
    FlowStatus,
    ItemState,
    NewFlow,
    NewItem,
    Stage,
)
from tests.access.cluster import PASSWORD
from tests.flows.flow_stand import flow_stand
from tests.flows.stand import ROOT
from tests.server.running import RunningServer, running

WITHIN_S = 60.0
CARD = "4111-1111-1111-1111"
RULES = """
[roles.boss]
may = ["enqueue", "consume", "read", "operate", "admin"]

[roles.keeper]
may = ["read", "operate"]
bodies = false
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--processes", "1", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *options) as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            for role in ("boss", "keeper", "viewer"):
                client.update_token(role, hashlib.sha256(token(role).encode()).hexdigest(), [role], PASSWORD)
        yield server


def token(role: str) -> str:
    return f"plt_{role * 43}"[:47]


def as_role(server: RunningServer, role: str) -> Client:
    return Client(f"127.0.0.1:{server.port}", token=token(role))


def child(expression: str) -> Stage:
    return Stage("child", "", "texts", "root", Applet(AppletKind.MAP, expression))


BY_JOB = Stage("child", "", "texts", "root", Applet(AppletKind.JOB, job="splitter", queue="texts"))


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        (child("abs(result)"), "abs() takes number, and is given string"),
        (child("sum([result])"), "sum() takes array-number, and is given str"),
        (child("map(&ceil(@), [payload])"), "ceil() takes number, and is given string"),
        (child("max_by([{a: result}], &@)"), "max_by(): what it compares"),
        (child("result < `1` || join(result, `[1]`)"), "its values do not go together"),
        (BY_JOB, f"its job splitter failed: cannot split {CARD}"),
    ],
    ids=["abs", "sum", "map", "by", "unforeseen", "job"],
)
def test_why_children_were_not_made_is_no_way_to_read_payloads(
    server: RunningServer, stage: Stage, reason: str
) -> None:
    with as_role(server, "boss") as boss, as_role(server, "viewer") as viewer, as_role(server, "keeper") as keeper:
        new = NewFlow("cards", [Stage("root", "", "texts"), stage], items={"root": [NewItem(f'"{CARD}"'.encode())]})
        flow_id = boss.create_flow(new).id

        def one() -> Ack:
            (job,) = boss.dequeue(DequeueRequest("texts", 1, wait_ms=10_000))
            return Ack(job.descriptor, f"cannot split {CARD}", claim_descriptor=job.claim_descriptor, **values)

        values: dict[str, bytes] = {"result": f'"{CARD}"'.encode()}
        boss.ack("texts", [one()], [])
        if stage is BY_JOB:
            values = {}
            boss.ack("texts", [], [one()])

        def told(client: Client) -> list[FlowStatus]:
            return [client.get_flow(flow_id), *(each for each in client.get_flows().flows if each.id == flow_id)]

        for status in told(boss):
            assert any(reason in trouble for trouble in status.troubles)
            assert (CARD in str(status)) == (CARD in reason)
        for client in (viewer, keeper):
            for status in told(client):
                assert "could not be made: why is shown to who may see bodies; `pinlater flow resume" in str(
                    status.troubles
                )
                assert CARD not in str(status)
            assert CARD not in str(client.get_flow_items(flow_id, include_body=False))
        assert CARD not in str(keeper.resume_flow(flow_id))
        assert CARD not in str(keeper.cancel_flow(flow_id))
        assert boss.get_flow_items(flow_id, state=ItemState.SUCCEEDED).items[0].result
    assert CARD not in str(server.events)


# -- callbacks ---------------------------------------------------------------------------------------------------------

BROKEN = "the connection broke before an answer came"
NO_HTTP = "it answered, and not in HTTP"


async def failed_callback(folder: Path, url: str) -> CallbackStatus:
    async with flow_stand(folder) as at:
        new = NewFlow("payroll", [ROOT], sealed=[ROOT.name], on_complete=CompletionCallback(url=url))
        flow_id = (await at.at.service.create_flow(new)).id
        async with asyncio.timeout(WITHIN_S):
            while (told := (await at.at.service.get_flow(flow_id)).callback) is None or not told.tries:
                await asyncio.sleep(0.01)
    return told


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.6 internal-banner\r\n", NO_HTTP),
        (b"-ERR internal-banner\r\n", NO_HTTP),
        (b"\x00\xff internal-banner\x00", None),
        (b"HTTP/1.1 internal-banner\r\n\r\n", NO_HTTP),
        (b"HTTP/1.1 200 internal-banner", BROKEN),
        (b"HTTP/1.1 500 internal-banner\r\nContent-Length: 15\r\n\r\ninternal-banner", "it answered 500"),
        (b"HTTP/1.1 302 internal-banner\r\nLocation: http://internal-banner/\r\nContent-Length: 0\r\n\r\n", None),
        (b"HTTP/1.1 500 Oops\r\ninternal-banner: %b\r\n\r\n" % (b"x" * 20_000), NO_HTTP),
        (b"HTTP/1.1 500 Oops\r\nbroken internal-banner\r\n\r\n", NO_HTTP),
        (b"", BROKEN),
    ],
    ids=["ssh", "redis", "binary", "status", "cut", "500", "redirect", "long", "header", "nothing"],
)
async def test_what_is_said_of_a_callback_has_nothing_of_what_answered(
    tmp_path: Path, answer: bytes, error: str | None
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        told = await failed_callback(tmp_path, f"http://127.0.0.1:{port}/over")
    finally:
        server.close()
    assert "internal-banner" not in told.error
    assert told.error == (error or told.error)
    assert told.error.startswith(("it answered", BROKEN))


async def test_what_is_said_of_a_callback_to_where_nobody_listens(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert (await failed_callback(tmp_path, f"http://127.0.0.1:{port}/over")).error == "it refused the connection"


async def test_what_is_said_of_a_callback_by_tls_to_what_speaks_none(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"SSH-2.0-OpenSSH_9.6 internal-banner\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told = await failed_callback(tmp_path, f"https://127.0.0.1:{port}/over")
    server.close()
    assert "TLS" in told.error
    assert "internal-banner" not in told.error
