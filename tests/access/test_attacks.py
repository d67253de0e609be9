"""Texts that callers put into the fields that say who calls: long, broken and forged ones, sent to a real server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, DequeueRequest, JobState
from pinlater.access.guesses import FREE_TRIES, MAX_WAITING_EACH
from pinlater.data_folder.password import hash_password
from pinlater.model import Ack, ExtendedJob, Job, KeyRef, RequestContext, WorkerJob, WorkerReport
from pinlater.model.flow_words import NewFlow, Stage
from pinlater.wire.codec import decode_reply
from pinlater.wire.convert import dequeue_to_wire, enqueue_to_wire
from pinlater.wire.flow_methods import GET_FLOW
from pinlater.wire.methods import LOOKUP
from tests.access.cluster import PASSWORD
from tests.server.commands import Shell
from tests.server.planted import family
from tests.server.raw_thrift import LIST, STRING, STRUCT, framed, message
from tests.server.running import Plain, RunningServer, running
from tests.server.test_terminal_texts import EVIL, harmless

OPS = f"plt_{'o' * 43}"
MIB = 1024 * 1024
FORGED = 'x\n{"event": "forged"}\r\nforged 1\n' + EVIL
RULES = """
[[rules]]
who = ["anonymous"]
may = ["enqueue", "read"]
queues = ["mail"]

[[rules]]
who = ["cert:boss"]
may = ["operate"]

[[rules]]
who = ["anonymous"]
from = ["10.0.0.0/8"]
may = ["operate"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--processes", "1", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *options, PINLATER_HTTP="127.0.0.1:0") as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            client.update_token("ops", hashlib.sha256(OPS.encode()).hexdigest(), ["admin"], PASSWORD)
        with Client(f"127.0.0.1:{server.port}", token=OPS) as client:
            client.create_queue("mail")
        yield server


def resident(server: RunningServer) -> int:
    """Bytes of memory of all its processes."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in family(server.process.pid)]
    return sum(int(line.split()[1]) * 1024 for text in texts for line in text.splitlines() if line[:5] == "VmRSS")


def page(address: str) -> list[str]:
    with urllib.request.urlopen(address) as response:
        return list(response.read().decode().splitlines())


async def enqueue(connection: Plain, context: RequestContext, queue: str = "mail") -> Any:
    """The exception of the answer."""
    await connection.send("enqueueJobs", context=context, request=_one(queue))
    return (await connection.answer()).exception


async def test_long_texts_of_callers_are_not_kept(server: RunningServer) -> None:
    connection = await Plain.to(server.port, "127.0.0.4")
    before = resident(server)
    for number in range(120):
        far = RequestContext("me", on_behalf_of="cert:boss", caller_address=f"{number}" + "a" * MIB)
        assert (await enqueue(connection, far, "other")).reason == "FORBIDDEN"
    assert resident(server) - before < 60 * MIB
    await connection.close()


@pytest.mark.parametrize("field", [101, 102], ids=["onBehalfOf", "callerAddress"])
async def test_who_is_no_gateway_gains_nothing_by_saying_for_whom_it_calls(server: RunningServer, field: int) -> None:
    connection = await Plain.to(server.port, "127.0.0.5")
    context = RequestContext("me", on_behalf_of="cert:boss") if field == 101 else RequestContext("me")
    if field == 102:
        context = RequestContext("me", caller_address="10.0.0.7")
    await connection.send("createQueue", context=context, name="taken")
    refused = (await connection.answer()).exception
    assert refused.reason == "FORBIDDEN"
    assert "anonymous may not" in refused.message
    await connection.close()


TOKENS = {
    "1 MB": b"plt_" + b"MARK" * (MIB // 4),
    "NUL": b"plt_MARK\x00x",
    "not UTF-8": b"plt_MARK\xff\xc3\x28\xed\xa0\x80",
    "lines": b"plt_MARK\nforged 1\r\n\x1b[2J",
}
assert len(TOKENS) < FREE_TRIES


async def test_odd_tokens_are_refused_on_a_connection_that_goes_on(server: RunningServer) -> None:
    connection = await Plain.to(server.port, "127.0.0.6")
    request = (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, [[(1, STRING, b"x")]]))])
    for what, token in TOKENS.items():
        context = (1, STRUCT, [(1, STRING, b"me"), (100, STRING, token)])
        connection.writer.write(framed(message("enqueueJobs", [context, request])))
        size = int.from_bytes(await connection.reader.readexactly(4), "big")
        refused = decode_reply(await connection.reader.readexactly(size)).exception
        assert refused.reason == "FORBIDDEN", what
        assert "MARK" not in refused.message, what
        assert await enqueue(connection, RequestContext("me")) is None
    await connection.close()
    assert "MARK" not in json.dumps(server.events)


async def test_texts_of_callers_forge_no_line_anywhere(server: RunningServer, tmp_path: Path) -> None:
    connection = await Plain.to(server.port, "127.0.0.7")
    context = RequestContext(FORGED, on_behalf_of=FORGED, caller_address=FORGED)
    assert (await enqueue(connection, context, FORGED)).reason in ("FORBIDDEN", "QUEUE_NAME_INVALID")
    await connection.send("createQueue", context=context, name=FORGED)
    assert (await connection.answer()).exception is not None
    await connection.send("createQueue", context=context, name="other")
    assert (await connection.answer()).exception.reason == "FORBIDDEN"
    for _ in range(FREE_TRIES):
        await connection.send("enqueueJobs", context=RequestContext(FORGED, token="plt_wrong"), request=_one())
        assert (await connection.answer()).exception.reason == "FORBIDDEN"
    await connection.close()
    address = server.wait_for("http_ready")["address"].rstrip("/")
    for path in ("/metrics", "/"):
        assert not [line for line in page(address + path) if line.startswith(("forged", "{"))]
    server.wait_for("token_wrong", address="127.0.0.7")
    assert "forged" not in [event["event"] for event in server.events]
    shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
    for format in ("table", "jsonl"):
        told = shell("audit", "--limit", "100", "-o", format, PINLATER_TOKEN=OPS).out
        assert harmless(told)
        assert "wrong_token" in told
        assert not [line for line in told.splitlines() if line.startswith(("forged", '{"event"'))]


def _one(queue: str = "mail") -> Any:
    return enqueue_to_wire(queue, [Job(b"x")])


async def test_a_lookup_that_waits_tells_nothing_to_a_token_that_was_revoked_meanwhile(server: RunningServer) -> None:
    waiting, other = await Plain.to(server.port, "127.0.0.10"), await Plain.to(server.port, "127.0.0.11")
    shown = RequestContext("me", token="plt_" + "w" * 43)
    with Client(f"127.0.0.1:{server.port}", token=OPS) as ops:
        ops.create_queue("awaited")
        ops.update_token("waiting", hashlib.sha256(str(shown.token).encode()).hexdigest(), ["operator", "producer"], "")
        (made,) = ops.enqueue("awaited", [Job(b"secret")])
        assert await enqueue(other, shown, "awaited") is None
        request = LOOKUP.request([made], True, True, 8_000)
        await waiting.send("lookupJobs", context=shown, request=request)
        ops.delete_token("waiting", "")
        assert (await enqueue(other, shown, "awaited")).reason == "FORBIDDEN"
        jobs = ops.dequeue(DequeueRequest("awaited", 2))
        ops.ack("awaited", [Ack(job.descriptor) for job in jobs])
        reply = await waiting.answer()
        assert reply.exception is not None
        assert reply.exception.reason == "FORBIDDEN"
    await waiting.close()
    await other.close()


async def test_a_wait_for_a_flow_tells_nothing_to_a_token_that_was_revoked_meanwhile(server: RunningServer) -> None:
    waiting, other = await Plain.to(server.port, "127.0.0.10"), await Plain.to(server.port, "127.0.0.11")
    shown = RequestContext("me", token="plt_" + "f" * 43)
    with Client(f"127.0.0.1:{server.port}", token=OPS) as ops:
        ops.update_token(
            "following", hashlib.sha256(str(shown.token).encode()).hexdigest(), ["operator", "producer"], ""
        )
        ops.create_queue("steps")
        assert await enqueue(other, shown, "steps") is None
        flow_id = ops.create_flow(NewFlow("secret", [Stage("one", "", "steps")])).id
        await waiting.send("getFlow", context=shown, request=GET_FLOW.request(flow_id, 8_000))
        ops.delete_token("following", "")
        assert (await enqueue(other, shown, "steps")).reason == "FORBIDDEN"
        ops.seal_stage(flow_id)
        reply = await waiting.answer()
        assert reply.exception is not None
        assert reply.exception.reason == "FORBIDDEN"
    await waiting.close()
    await other.close()


@pytest.mark.parametrize("wait_ms", [0, 8_000])
def test_a_serialize_key_shows_nothing_of_queues_that_the_caller_may_not_read(
    server: RunningServer, wait_ms: int
) -> None:
    """The first job of a key may be of any queue."""
    with Client(f"127.0.0.1:{server.port}", token=OPS) as ops, Client(f"127.0.0.1:{server.port}") as anybody:
        ops.create_queue(f"pay{wait_ms}")
        ops.enqueue(f"pay{wait_ms}", [ExtendedJob(b"secret", serialize_key=f"ann{wait_ms}")])
        wanted = KeyRef(serialize_key=f"ann{wait_ms}")
        for client, bodies in ((ops, [b"secret"]), (anybody, [])):
            found = client.lookup(
                [], queue="mail", keys=[wanted], include_body=True, wait_ms=client is anybody and wait_ms
            )
            assert [each.body for each in found.values()] == bodies


async def test_workers_of_a_queue_show_nothing_of_other_queues(server: RunningServer) -> None:
    report = WorkerReport(
        "run",
        "w",
        1,
        queues={"mail": 1, "pay": 2},
        running=[WorkerJob("mail:1:p1:7", "a"), WorkerJob("pay:1:p1:7", "b")],
    )
    with Client(f"127.0.0.1:{server.port}", token=OPS) as boss, Client(f"127.0.0.1:{server.port}") as anybody:
        boss.dequeue(DequeueRequest("mail", 1, worker=report, dry_run=True))
        for client, queues in ((boss, {"mail": 1, "pay": 2}), (anybody, {"mail": 1})):
            (worker,) = client.get_workers(queue="mail", include_running=True).workers
            assert worker.queues == queues
            assert {job.job_descriptor.partition(":")[0] for job in worker.running} == set(queues)


async def test_a_revoked_token_counts_no_more_on_the_connection_that_it_was_shown_on(server: RunningServer) -> None:
    """Also where a long poll is under way: it gets no job that came later."""
    held, polling = await Plain.to(server.port, "127.0.0.8"), await Plain.to(server.port, "127.0.0.9")
    shown = RequestContext("me", token="plt_" + "r" * 43)
    with Client(f"127.0.0.1:{server.port}", token=OPS) as ops:
        ops.create_queue("held")
        ops.update_token("held", hashlib.sha256(str(shown.token).encode()).hexdigest(), ["worker", "producer"], "")
        assert await enqueue(held, shown, "held") is None
        request = dequeue_to_wire(DequeueRequest("held", 1))
        await held.send("dequeueJobs", context=shown, request=request)
        assert (await held.answer()).success.jobs
        await polling.send(
            "dequeueJobs", context=shown, request=dequeue_to_wire(DequeueRequest("held", 1, wait_ms=8_000))
        )
        ops.delete_token("held", "")
        assert (await enqueue(held, shown, "held")).reason == "FORBIDDEN"
        (made,) = ops.enqueue("held", [Job(b"later")])
        reply = await polling.answer()
        assert reply.exception is not None or not reply.success.jobs
        assert ops.lookup([made])[made].state is JobState.PENDING
    await held.close()
    await polling.close()


async def test_a_flood_of_wrong_tokens_is_slowed_down_and_a_right_one_at_the_same_address_is_not(
    server: RunningServer,
) -> None:
    answers: Counter[str] = Counter()

    async def guess(number: int) -> None:
        connection = await Plain.to(server.port, "127.0.0.2")
        try:
            while True:
                await connection.send("getAccess", context=RequestContext("guesser", token=f"plt_{number}"))
                answers[(await connection.answer()).exception.reason] += 1
        finally:
            await connection.close()

    guesses = [asyncio.create_task(guess(number)) for number in range(20)]
    owner = await Plain.to(server.port, "127.0.0.2")
    calls = 0
    while answers["FORBIDDEN"] < FREE_TRIES + 1:
        await owner.send("getAccess", context=RequestContext("owner", token=OPS))
        answer = await owner.answer()
        assert answer.success.identity == "token:ops"
        calls += 1
        await asyncio.sleep(0.01)
    for task in guesses:
        task.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)
    await owner.close()
    assert calls > FREE_TRIES, "it was answered while the others waited"
    assert answers["FORBIDDEN"] <= FREE_TRIES + MAX_WAITING_EACH
    assert answers["OVERLOADED"] > answers["FORBIDDEN"]
    server.wait_for("token_wrong", address="127.0.0.2")
    said = [each for each in server.events if each["event"] == "token_wrong" and each["address"] == "127.0.0.2"]
    assert len(said) == 1


def test_who_made_a_token_is_harmless_on_a_terminal(server: RunningServer, tmp_path: Path) -> None:
    address = f"127.0.0.1:{server.port}"
    with Client(address, source=EVIL, token=OPS) as client:
        client.update_token("evil", hashlib.sha256(b"evil").hexdigest(), ["viewer"])
    shell = Shell(tmp_path, address)
    for command in (("token", "list"), ("audit",), ("access", "show"), ("worker", "list")):
        shown = shell(*command, PINLATER_TOKEN=OPS)
        assert harmless(shown.out + shown.err), command
    refused = shell("token", "create", EVIL, "--role", EVIL, code=2, PINLATER_TOKEN=OPS)
    assert harmless(refused.out + refused.err)
