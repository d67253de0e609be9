"""What callers say of workers and jobs that are not theirs, over Thrift and over HTTP, to a real server with rules."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinlater import Client, DequeueRequest, Job, JobState
from pinlater.cluster.worker_entries import MAX_SLOTS
from pinlater.data_folder.password import hash_password
from pinlater.errors import Forbidden, PinLaterError, RequestInvalid
from pinlater.model import (
    Ack,
    CancelOutcome,
    CommandOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatOutcome,
    KeyRef,
    OutboxReport,
    RescheduleJob,
    RescheduleOutcome,
    ScheduleChange,
    WorkerCommand,
    WorkerInfo,
    WorkerJob,
    WorkerReport,
)
from pinlater.model.flow_words import CompletionCallback, FlowState, NewFlow, NewItem, Stage
from tests.access.cluster import PASSWORD, until
from tests.server.running import RunningServer, running

RULES = """
[roles.ann]
may = ["enqueue", "consume", "read"]
queues = ["ann*"]

[roles.bob]
may = ["enqueue", "consume", "read"]
queues = ["bob*"]

[roles.maker]
may = ["enqueue", "read"]
queues = ["pay", "told", "nightly"]

[roles.half]
may = ["read", "operate"]
queues = ["bob-mail", "anybody"]

[[rules]]
who = ["anonymous"]
may = ["enqueue", "operate"]
queues = ["anybody"]
"""
ROLES = {"ann": "ann", "bob": "bob", "bob2": "bob", "maker": "maker", "half": "half", "ops": "admin"}
BOB = WorkerReport("run-b", "shop", 10_000, "host-b", 7, {"bob-mail": 1}, 8, 2)


def token_of(name: str) -> str:
    return f"plt_{hashlib.sha256(name.encode()).hexdigest()[:43]}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("word")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--api", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *options, "--processes", "1", PINLATER_HTTP="127.0.0.1:0") as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            for name, role in ROLES.items():
                client.update_token(name, hashlib.sha256(token_of(name).encode()).hexdigest(), [role], PASSWORD)
        with Client(f"127.0.0.1:{server.port}", token=token_of("ops")) as ops:
            for queue in ("ann-mail", "bob-mail", "pay", "told", "nightly"):
                ops.create_queue(queue)
        yield server


class ThriftDoor:
    """Calls as a holder of a token."""

    def __init__(self, server: RunningServer) -> None:
        self._address = f"127.0.0.1:{server.port}"

    def _as(self, name: str) -> Client:
        return Client(self._address, token=token_of(name))

    def report(self, name: str, queue: str, report: WorkerReport) -> None:
        with self._as(name) as client:
            client.heartbeat(queue, [], worker=report)

    def cancel(self, name: str, queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef] = ()) -> None:
        with self._as(name) as client:
            client.cancel(queue, descriptors, keys=keys)

    def reschedule(self, name: str, queue: str, change: RescheduleJob) -> str:
        with self._as(name) as client:
            return client.reschedule(queue, [change])[0].name


class HttpDoor:
    """The same over HTTP."""

    def __init__(self, server: RunningServer) -> None:
        self._base = str(server.wait_for("api_ready")["address"]).rstrip("/")

    def _post(self, name: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {token_of(name)}"}
        answer = httpx.post(f"{self._base}/v1/queues/{path}", json=body, headers=headers, timeout=60)
        if answer.status_code >= 400:
            kind: type[PinLaterError] = {403: Forbidden, 400: RequestInvalid, 422: RequestInvalid}[answer.status_code]
            raise kind(answer.text)
        return answer.json() if answer.content else None

    def report(self, name: str, queue: str, report: WorkerReport) -> None:
        self._post(name, f"{queue}/heartbeat", {"heartbeats": [], "worker": asdict(report)})

    def cancel(self, name: str, queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef] = ()) -> None:
        named = [{"dedupe_key": each.dedupe_key, "serialize_key": each.serialize_key} for each in keys]
        self._post(name, f"{queue}/jobs/cancel", {"descriptors": list(descriptors), "keys": named})

    def reschedule(self, name: str, queue: str, change: RescheduleJob) -> str:
        job: dict[str, Any] = {"descriptor": change.descriptor} if change.key is None else {}
        if change.key is not None:
            job["key"] = {"dedupe_key": change.key.dedupe_key, "serialize_key": change.key.serialize_key}
        job["body"] = (change.body or b"").decode()
        return str(self._post(name, f"{queue}/jobs/reschedule", {"jobs": [job]})["outcomes"][0]).upper()


Door = ThriftDoor | HttpDoor


@pytest.fixture(params=[ThriftDoor, HttpDoor])
def door(server: RunningServer, request: pytest.FixtureRequest) -> Door:
    made: Door = request.param(server)
    return made


@pytest.fixture
def ops(server: RunningServer) -> Iterator[Client]:
    with Client(f"127.0.0.1:{server.port}", token=token_of("ops")) as client:
        yield client


@pytest.fixture
def run(door: Door, request: pytest.FixtureRequest) -> str:
    """The id of a worker of this test alone."""
    return f"{type(door).__name__}-{request.node.name}"[:100]


def listed(ops: Client, run: str) -> dict[str | None, WorkerInfo]:
    """The entries of that id, by who reported each."""
    return {
        each.identity: each for each in ops.get_workers(include_running=True, limit=1_000).workers if each.id == run
    }


# -- reports of workers ------------------------------------------------------------------------------------------------


def test_nobody_ends_or_changes_the_entry_of_another_identity(door: Door, ops: Client, run: str) -> None:
    door.report("bob", "bob-mail", replace(BOB, id=run))
    door.report("ann", "ann-mail", replace(BOB, id=run, up_ms=10**12, has_stopped=True))
    assert list(listed(ops, run)) == ["token:bob"]
    door.report("ann", "ann-mail", replace(BOB, id=run, up_ms=10**12 + 1, queues={"ann-mail": 1}, name="ours"))
    door.report("bob", "bob-mail", replace(BOB, id=run, up_ms=10_001, busy_slots=3))
    assert {who: (each.name, each.busy_slots) for who, each in listed(ops, run).items()} == {
        "token:ann": ("ours", 2),
        "token:bob": ("shop", 3),
    }
    door.report("bob", "bob-mail", replace(BOB, id=run, up_ms=10_002, has_stopped=True))
    assert list(listed(ops, run)) == ["token:ann"]


def test_a_relay_of_an_outbox_needs_no_more_than_the_right_to_enqueue(door: Door, ops: Client, run: str) -> None:
    relay = replace(BOB, id=run, outbox=OutboxReport("shop.db", 3, 1_000, 60_000))
    door.report("half", "anybody", relay)
    assert listed(ops, run) == {}
    with pytest.raises(Forbidden):
        door.report("maker", "bob-mail", replace(BOB, id=run))
    door.report("maker", "bob-mail", relay)
    ((who, found),) = listed(ops, run).items()
    assert (who, found.outbox, found.queues, found.slots) == ("token:maker", relay.outbox, {}, 0)
    given = ops.command_workers(WorkerCommand.QUIET, workers=[run]).workers
    assert [each.outcome for each in given] == [CommandOutcome.NOT_KNOWN]
    door.report("maker", "bob-mail", replace(relay, up_ms=10_001, has_stopped=True))
    assert listed(ops, run) == {}


def test_a_worker_does_what_those_say_who_may_operate_all_of_its_queues(
    server: RunningServer, door: Door, ops: Client, run: str
) -> None:
    both = replace(BOB, id=run, queues={"bob-mail": 1, "bob-news": 1}, is_quiet=False)
    door.report("bob", "bob-mail", both)
    with (
        Client(f"127.0.0.1:{server.port}", token=token_of("half")) as half,
        Client(f"127.0.0.1:{server.port}") as anybody,
        Client(f"127.0.0.1:{server.port}", token=token_of("bob")) as bob,
    ):

        def told(client: Client, **meant: Any) -> list[tuple[str, CommandOutcome]]:
            given = client.command_workers(WorkerCommand.QUIET, **meant)
            return [(each.id, each.outcome) for each in given.workers if each.id == run]

        assert told(half, workers=[run]) == [(run, CommandOutcome.FORBIDDEN)]
        assert told(half, all_workers=True) == [(run, CommandOutcome.FORBIDDEN)]
        assert told(anybody, workers=[run]) == [(run, CommandOutcome.NOT_KNOWN)]
        assert told(anybody, all_workers=True) == []
        with pytest.raises(Forbidden):
            told(bob, workers=[run])
        answers = bob.heartbeat("bob-mail", [], worker=replace(both, up_ms=10_001))
        assert answers.command is None
        assert told(ops, workers=[run]) == [(run, CommandOutcome.TAKEN)]
        forged = bob.heartbeat("bob-mail", [], worker=replace(both, id=f"{run}-2", up_ms=10_001))
        assert forged.command is None
        answers = bob.heartbeat("bob-mail", [], worker=replace(both, up_ms=10_002))
        assert answers.command is not None
        assert answers.command.command is WorkerCommand.QUIET
        one = replace(both, up_ms=10_003, queues={"bob-mail": 1})
        door.report("bob", "bob-mail", one)
        assert told(half, workers=[run]) == [(run, CommandOutcome.TAKEN)]
        door.report("bob", "bob-mail", replace(one, up_ms=10_004, has_stopped=True))


def test_a_report_counts_for_queues_that_its_caller_may_consume(
    server: RunningServer, door: Door, ops: Client, run: str
) -> None:
    before = ops.get_workers(queue="bob-mail")
    workers = ops.get_workers(queue="ann-mail").total
    forged = replace(BOB, id=run, queues={"bob-mail": 1}, slots=1_000_000, busy_slots=1_000_000)
    door.report("ann", "ann-mail", forged)
    assert listed(ops, run) == {}
    jobs = [WorkerJob("bob-mail:s1:p1:1790000000000001", "theirs"), WorkerJob("ann-mail:s1:p1:1790000000000001", "our")]
    both = {"bob-mail": 5, "ann-mail": 1}
    door.report(
        "ann", "ann-mail", replace(forged, id=run, up_ms=10_001, queues=both, running=jobs, stuck_slots=2**31 - 1)
    )
    worker = listed(ops, run)["token:ann"]
    assert (worker.queues, [each.job_type for each in worker.running]) == ({"ann-mail": 1}, ["our"])
    assert (worker.slots, worker.busy_slots, worker.stuck_slots) == (MAX_SLOTS, MAX_SLOTS, MAX_SLOTS)
    after = ops.get_workers(queue="bob-mail")
    assert (after.total, after.slots, after.stuck_slots) == (before.total, before.slots, before.stuck_slots)
    address = server.wait_for("http_ready")["address"].rstrip("/")

    def figure(queue: str) -> float:
        with urllib.request.urlopen(f"{address}/metrics") as response:
            lines = response.read().decode().splitlines()
        return sum(float(each.split()[-1]) for each in lines if "queue_workers{" in each and f'"{queue}"' in each)

    until(lambda: figure("ann-mail") == workers + 1)
    assert figure("bob-mail") == before.total


def test_a_worker_that_begins_anew_or_has_another_token_is_not_locked_out(door: Door, ops: Client, run: str) -> None:
    door.report("bob", "bob-mail", replace(BOB, id=run))
    door.report("bob2", "bob-mail", replace(BOB, id=run, up_ms=10_001, busy_slots=5))
    assert listed(ops, run)["token:bob2"].busy_slots == 5
    door.report("bob2", "bob-mail", replace(BOB, id=run, up_ms=10_002, has_stopped=True))
    door.report("bob2", "bob-mail", replace(BOB, id=f"{run}2"[-100:], up_ms=1))
    assert "token:bob2" in listed(ops, f"{run}2"[-100:])


# -- jobs that the servers make ----------------------------------------------------------------------------------------


def flow(ops: Client, **values: Any) -> str:
    """With one item whose job is in its queue."""
    new = NewFlow("payroll", [Stage("pay", "", "pay")], items={"pay": [NewItem(b'"real"')]}, sealed=["pay"], **values)
    flow_id = ops.create_flow(new).id
    until(lambda: ops.get_flow(flow_id).stages[0].queued == 1)
    return flow_id


def waiting(ops: Client, queue: str) -> str:
    (info,) = ops.dequeue(DequeueRequest(queue, 10, dry_run=True))
    return info.descriptor


def test_who_may_enqueue_changes_no_job_of_an_item(door: Door, ops: Client) -> None:
    flow_id = flow(ops)
    (item,) = ops.get_flow_items(flow_id).items
    descriptor, key = waiting(ops, "pay"), KeyRef(f"@flow/{item.number}")
    for name in ("maker", "ops"):
        with pytest.raises(RequestInvalid, match="@ in front"):
            door.reschedule(name, "pay", RescheduleJob(key=key, body=b"forged"))
        with pytest.raises(RequestInvalid, match="@ in front"):
            door.cancel(name, "pay", [], [key])
    with pytest.raises(Forbidden, match="operate"):
        door.reschedule("maker", "pay", RescheduleJob(descriptor, body=b"forged"))
    with pytest.raises(Forbidden, match="cancelFlow"):
        door.cancel("maker", "pay", [descriptor])
    assert door.reschedule("ops", "pay", RescheduleJob(descriptor, body=b'"mended"')) == "RESCHEDULED"
    (job,) = ops.dequeue(DequeueRequest("pay", 1))
    assert job.body == b'"mended"'
    ops.ack("pay", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=b"1")], [])
    assert ops.get_flow(flow_id, wait_ms=20_000).state is FlowState.COMPLETE


def test_who_may_enqueue_cancels_a_flow_as_a_whole(door: Door, ops: Client, server: RunningServer) -> None:
    flow_id = flow(ops)
    with Client(f"127.0.0.1:{server.port}", token=token_of("maker")) as maker:
        maker.cancel_flow(flow_id)
    assert ops.get_flow(flow_id, wait_ms=20_000).state is FlowState.CANCELLED
    until(lambda: not ops.dequeue(DequeueRequest("pay", 1, dry_run=True)))


@pytest.mark.parametrize("queue", ["told", "nightly"])
def test_who_may_enqueue_changes_no_callback_and_no_firing(door: Door, ops: Client, queue: str) -> None:
    if queue == "told":
        ops.cancel_flow(flow(ops, on_complete=CompletionCallback("told", "over")))
    else:
        ops.update_schedule(ScheduleChange(name="close", queue="nightly", body=b"real", every_ms=1_000), PASSWORD)
    until(lambda: ops.dequeue(DequeueRequest(queue, 1, dry_run=True)))
    if queue == "nightly":
        ops.delete_schedule("close", PASSWORD)
    found = ops.dequeue(DequeueRequest(queue, 100, dry_run=True))
    with pytest.raises(Forbidden, match="made by the servers"):
        door.reschedule("maker", queue, RescheduleJob(found[0].descriptor, body=b"forged"))
    with pytest.raises(Forbidden, match="made by the servers"):
        door.cancel("maker", queue, [found[0].descriptor])
    key = ops.lookup([found[0].descriptor])[found[0].descriptor].dedupe_key
    assert key is not None
    with pytest.raises(RequestInvalid, match="@ in front"):
        door.reschedule("maker", queue, RescheduleJob(key=KeyRef(key), body=b"forged"))
    door.cancel("ops", queue, [each.descriptor for each in found])
    until(lambda: not ops.dequeue(DequeueRequest(queue, 1, dry_run=True)))


def test_who_may_enqueue_changes_jobs_of_other_producers_as_documented(
    server: RunningServer, door: Door, ops: Client
) -> None:
    (first, second) = (ops.enqueue("pay", [ExtendedJob(b"x", dedupe_key=f"order-{number}")])[0] for number in (1, 2))
    assert door.reschedule("maker", "pay", RescheduleJob(key=KeyRef("order-1"), body=b"y")) == "RESCHEDULED"
    assert door.reschedule("maker", "pay", RescheduleJob(second, body=b"y")) == "RESCHEDULED"
    door.cancel("maker", "pay", [first], [KeyRef("order-2")])
    assert ops.lookup([first, second]) == {}


# -- whose claims, whose names -----------------------------------------------------------------------------------------


def test_a_claim_of_another_queue_is_nobodys_to_keep_or_end(server: RunningServer, ops: Client) -> None:
    """By a queue that the caller may consume."""
    (descriptor,) = ops.enqueue("bob-mail", [Job(b"bob's")])
    (job,) = ops.dequeue(DequeueRequest("bob-mail", 1))
    with Client(f"127.0.0.1:{server.port}", token=token_of("ann")) as ann:
        (beat,) = ann.heartbeat("ann-mail", [Heartbeat(descriptor, job.claim_descriptor, 0.9, "forged")])
        assert beat.outcome is HeartbeatOutcome.LOST
        ann.ack("ann-mail", [Ack(descriptor, claim_descriptor=job.claim_descriptor)], [])
        assert ann.cancel("ann-mail", [descriptor]) == {descriptor: CancelOutcome.NOT_FOUND}
        (outcome,) = ann.reschedule("ann-mail", [RescheduleJob(descriptor, body=b"forged")])
        assert outcome is RescheduleOutcome.NOT_FOUND
        with pytest.raises(Forbidden):
            ann.ack("bob-mail", [Ack(descriptor)], [])
    info = ops.lookup([descriptor])[descriptor]
    assert (info.state, info.progress) == (JobState.IN_PROGRESS, None)
    ops.ack("bob-mail", [Ack(descriptor, claim_descriptor=job.claim_descriptor)], [])


@pytest.mark.parametrize("source", ["token:ops (web)", "cert:boss.example", "a server"])
def test_no_source_passes_for_an_identity_in_the_audit(server: RunningServer, ops: Client, source: str) -> None:
    with Client(f"127.0.0.1:{server.port}", source=source) as anybody:
        anybody.create_queue("anybody")
        anybody.delete_queue("anybody", PASSWORD)
    whos = [each.who for each in ops.audit(limit=10) if each.target == "anybody"]
    assert whos[:2] == [f"anonymous ({source})"] * 2


def test_without_rules_a_source_is_shown_unless_it_could_be_an_identity(tmp_path: Path) -> None:
    sources = ["token:ops (web)", "cert:boss.example", "ann@web-1"]
    with running(tmp_path, "--processes", "1") as server:
        for number, source in enumerate(sources):
            with Client(f"127.0.0.1:{server.port}", source=source) as anybody:
                anybody.create_queue(f"mail{number}")
                (made,) = [each.who for each in anybody.audit(limit=10) if each.target == f"mail{number}"]
                assert made == (source if source == "ann@web-1" else f"anonymous ({source})")
