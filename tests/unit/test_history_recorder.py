"""The recorder of calls: what it writes of a call and of its copies, and what it never writes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from pinlater import errors
from pinlater.client.async_client import AsyncClient
from pinlater.client.connection import CallFailed
from pinlater.client.dispatcher import CallSpec, CallTransport, Failure, FirstAttempt
from pinlater.client.recorded_calls import RecordedCalls
from pinlater.client.server_list import Server
from pinlater.clock import SystemClock
from pinlater.embedded import EmbeddedServer, EmbeddedTransport
from pinlater.history.call_events import CallBegin, CallEnd, CallError, Event
from pinlater.history.history_files import files_in, merged_history, read_history
from pinlater.history.plain_form import digest, plain_answer, plain_arguments
from pinlater.history.recorder import Recorder, header
from pinlater.job_limits import JobLimits
from pinlater.model import Ack, Checkpoint, DequeueRequest, ExtendedJob, Job, RequestContext, WorkerReport
from pinlater.wire import methods
from pinlater.wire.interface import SIGNATURES, STRING, Layout, Node, filled, struct

ME = RequestContext("me", token="plt_secret")
SECRET = re.compile("password|token|secret|certificate", re.IGNORECASE)


class Scripted:
    """A transport whose calls fail as given, one attempt after the other, and are answered then."""

    def __init__(self, failures: list[Failure], end: Any) -> None:
        self._failures = failures
        self._end = end

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        for failure in self._failures:
            if call.revise is not None:
                call.revise(failure)
        if isinstance(self._end, BaseException):
            raise self._end
        return self._end

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        return False

    def cancel_long_polls(self, why: str) -> None: ...

    def resume_long_polls(self) -> None: ...

    async def close(self, why: str) -> None: ...


class Begun(Scripted):
    """The first attempt of a call is sent at once, and fails as its first failure says, if there is one."""

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        first = FirstAttempt(cast(Server, None), on_end)
        if self._failures:
            asyncio.get_running_loop().call_soon(first.set_exception, self._failures[0])
        else:
            first.success = self._end
            asyncio.get_running_loop().call_soon(on_end, first)
        return True


class Recorded:
    """A recorder by a clock of whole milliseconds, and what it wrote."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "run.jsonl"
        self._path.write_bytes(header(0))
        self._now_ms = 0.0
        self.recorder = Recorder(self._write, self._tick)

    def _write(self, line: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(line)

    def _tick(self) -> float:
        self._now_ms += 1
        return self._now_ms

    @property
    def text(self) -> str:
        return self._path.read_text()

    @property
    def events(self) -> list[Event]:
        return list(read_history(self._path))

    def client(self, transport: CallTransport) -> AsyncClient:
        return AsyncClient(transport=RecordedCalls(transport, self.recorder), source="me", token="")


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def stored(*names: str) -> Any:
    return filled(struct("PinLaterEnqueueResponse"), job_descriptors=list(names))


async def test_a_call_is_a_begin_and_an_end(recorded: Recorded) -> None:
    client = recorded.client(Begun([], stored("mail:s1:p1:1")))
    await client.enqueue("mail", Job(b"hello", run_after_ms=5))
    begin, end = recorded.events
    assert isinstance(begin, CallBegin)
    assert (begin.call, begin.by, begin.at_ms, begin.method) == (1, "me", 1, "enqueueJobs")
    assert list(begin.args) == ["request"]
    (job,) = begin.args["request"]["jobs"]
    assert (job["body"], job["runAfterTimestampMillis"]) == (digest(b"hello"), 5)
    assert end == CallEnd(1, 2, {"jobDescriptors": ["mail:s1:p1:1"]})


async def test_a_first_attempt_that_failed_and_what_follows_it_are_one_call(recorded: Recorded) -> None:
    client = recorded.client(Begun([errors.Overloaded("x")], stored("mail:s1:p1:1")))
    await client.enqueue("mail", Job(b"hello"))
    begin, end = recorded.events
    assert isinstance(begin, CallBegin)
    assert (begin.call, begin.at_ms) == (1, 1)
    assert end == CallEnd(1, 2, {"jobDescriptors": ["mail:s1:p1:1"]})


async def test_single_jobs_that_travel_together_are_one_call(recorded: Recorded) -> None:
    client = recorded.client(Scripted([], stored("mail:s1:p1:1", "mail:s1:p1:2")))
    assert len(await asyncio.gather(client.enqueue("mail", b"1"), client.enqueue("mail", b"2"))) == 2
    assert [type(each) for each in recorded.events] == [CallBegin, CallEnd]


@pytest.mark.parametrize(
    ("failures", "resent"),
    [
        ([], False),
        ([errors.Overloaded("x"), CallFailed("refused", sent=False)], False),
        ([CallFailed("broke", sent=True)], True),
        ([errors.OutcomeUnknown("x"), errors.Overloaded("x")], True),
        ([errors.DequeueRateLimited("x", acks_applied=True)], True),
    ],
)
async def test_an_end_says_whether_an_earlier_copy_may_count(
    recorded: Recorded, failures: list[Failure], resent: bool
) -> None:
    client = recorded.client(Scripted(failures, filled(struct("AckJobsResponse"), outcomes=[0])))
    await client.ack("mail", [Ack("mail:s1:p1:1", claim_descriptor="c")])
    assert recorded.events[-1] == CallEnd(1, 2, {"outcomes": [0]}, None, resent)


@pytest.mark.parametrize(
    ("failures", "error", "expected"),
    [
        ([], errors.QueueNotFound("x"), CallError("QueueNotFound", "QUEUE_NOT_FOUND", "nothing")),
        ([], errors.OutcomeUnknown("x"), CallError("OutcomeUnknown", "OUTCOME_UNKNOWN", "unknown")),
        ([], errors.ShardConnectionFailed("x"), CallError("ShardConnectionFailed", "SHARD_CONNECTION_FAILED")),
        ([], errors.UnknownError("x"), CallError("UnknownError", "UNKNOWN", "unknown")),
        ([], errors.ProtocolError("x"), CallError("ProtocolError", "PROTOCOL_ERROR", "unknown")),
        ([], errors.HomeOut("x"), CallError("HomeOut", "HOME_OUT", "nothing")),
        ([CallFailed("broke", sent=True)], errors.Overloaded("x"), CallError("Overloaded", "OVERLOADED", "unknown")),
        (
            [],
            errors.RequestInvalid("x", acks_applied=True),
            CallError("RequestInvalid", "REQUEST_INVALID", "nothing", None, True),
        ),
        (
            [],
            errors.EnqueueRejected("x", job_descriptors=["", "mail:s1:p1:1"]),
            CallError("EnqueueRejected", "ENQUEUE_REJECTED", "nothing", ["", "mail:s1:p1:1"]),
        ),
        ([], asyncio.CancelledError(), CallError("CancelledError")),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_says_what_the_call_may_have_changed(
    recorded: Recorded, failures: list[Failure], error: BaseException, expected: CallError
) -> None:
    client = recorded.client(Scripted(failures, error))
    with pytest.raises(type(error)):
        await client.create_queue("mail")
    (_, end) = recorded.events
    assert isinstance(end, CallEnd)
    assert end.error == expected
    assert '"answer"' not in recorded.text.splitlines()[-1]


async def test_what_cannot_be_sent_is_no_call(recorded: Recorded) -> None:
    client = recorded.client(Scripted([], errors.RequestInvalid("cannot be encoded")))
    with pytest.raises(errors.RequestInvalid):
        await client.ack("mail", [Ack("mail:s1:p1:1", result=5)])  # type: ignore[arg-type]  # which is the mistake
    assert recorded.events == []


class Handle(str):
    """As the worker framework's handles of jobs are."""


async def test_texts_of_a_class_of_their_own_are_texts(recorded: Recorded) -> None:
    client = recorded.client(Scripted([], {}))
    await client.lookup([Handle("mail:s1:p1:1")])
    begin, _ = recorded.events
    assert isinstance(begin, CallBegin)
    assert begin.args["request"]["jobDescriptors"] == ["mail:s1:p1:1"]


async def test_a_call_that_could_not_be_recorded_is_told(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    args = methods.LOOKUP.arguments(ME, [object()], False)
    calls = RecordedCalls(Scripted([], {}), recorded.recorder)
    assert await calls.call(CallSpec(methods.LOOKUP, args, methods.LOOKUP.idempotency, 0.0)) == {}
    assert recorded.events == []
    assert "cannot be judged" in caplog.text


async def test_a_run_against_a_real_service_is_recorded(recorded: Recorded) -> None:
    server = EmbeddedServer(SystemClock(), JobLimits(), lambda: (), lambda *_: None, lambda *_: None)
    try:
        client = recorded.client(EmbeddedTransport(server))
        await client.create_queue("mail")
        await client.enqueue("mail", [ExtendedJob(b"a", dedupe_key="k", tags=("red",)), ExtendedJob(b"b", send_id="s")])
        (job, other) = await client.dequeue("mail", 2)
        await client.ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=b"done")])
        await client.dequeue(DequeueRequest("mail", 1, failed=[Ack(other.descriptor, permanent=True)]))
        found = await client.lookup([job.descriptor, other.descriptor], include_result=True)
    finally:
        server.close()
    answers = {
        begin.method: (begin.args, end.answer)
        for begin, end in zip(recorded.events[::2], recorded.events[1::2], strict=True)
        if isinstance(begin, CallBegin) and isinstance(end, CallEnd)
    }
    asked, answer = answers["enqueueJobs"]
    assert asked["request"]["jobs"][0]["dedupeKey"] == "k"
    assert set(answer["jobDescriptors"]) == {job.descriptor, other.descriptor}
    assert answers["ackJobs"][1] == {"outcomes": [1]}
    _, looked_up = answers["lookupJobs"]
    assert looked_up[job.descriptor]["result"] == digest(b"done")
    assert looked_up[other.descriptor]["jobState"] == found[other.descriptor].state == 3


def test_no_secret_and_no_body_is_in_the_plain_form_of_arguments() -> None:
    report = WorkerReport("w", "name", "host")
    args = methods.DEQUEUE.arguments(ME, DequeueRequest("mail", 1, worker=report))
    assert plain_arguments("dequeueJobs", args) == {"request": {"queueName": "mail", "limit": 1} | _defaults(args)}
    args = methods.DELETE_QUEUE.arguments(ME, "mail", "hunter2")
    assert plain_arguments("deleteQueue", args) == {"name": "mail"}
    sent = Checkpoint("mail:s1:p1:1", new_body=b"private", prepend_status="private")
    shown = json.dumps(plain_arguments("checkpointJobs", methods.CHECKPOINT.arguments(ME, "mail", [sent])))
    assert "private" not in shown
    assert digest(b"private") in shown


def test_a_job_shows_its_group_where_it_has_one() -> None:
    sent = [ExtendedJob(b"1", group="acme"), ExtendedJob(b"2", dedupe_key="k")]
    request = plain_arguments("enqueueJobs", methods.ENQUEUE.arguments(ME, "mail", sent))["request"]
    assert [job.get("group", "") for job in request["jobs"]] == ["acme", ""]


def _defaults(args: Any) -> dict[str, Any]:
    request = args.request
    return {"dryRun": request.dry_run, "coverage": request.coverage}


def _filled(layout: Layout) -> Any:
    """A struct with secrets wherever a text may be one, and with all that is inside it."""
    value = layout.cls()
    for field in layout.fields.values():
        node = field.node
        inner = node.struct or (node.value.struct if node.value is not None else None)
        if inner is not None:
            entry = _filled(inner)
            setattr(value, field.attribute, entry if node.struct else {"k": entry} if node.key else [entry])
        elif SECRET.search(field.name) or node == Node(STRING):
            setattr(value, field.attribute, "hunter2")
    return value


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_no_field_of_a_call_that_may_be_secret_is_written(name: str) -> None:
    signature = SIGNATURES[name]
    shown = json.dumps(plain_arguments(name, _filled(signature.args)))
    success = _filled(signature.result).success if 0 in signature.result.fields else None
    assert "hunter2" not in shown + json.dumps(plain_answer(name, success))


def test_equal_bodies_have_equal_digests_and_none_is_empty() -> None:
    assert digest(b"a") == digest("a") != digest(b"b")
    assert digest(b"") == digest("") == ""


def test_an_answer_of_nothing_is_none() -> None:
    assert plain_answer("createQueue", None) is None
    assert plain_answer("getQueueNames", ["mail"]) == ["mail"]


async def test_a_client_records_where_it_or_the_environment_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINLATER_HISTORY", raising=False)
    given, variable = tmp_path / "given", tmp_path / "variable"

    async def calls(**options: Any) -> None:
        client = AsyncClient("127.0.0.1:9", timeout=0.01, retry_unavailable=False, **options)
        with pytest.raises(errors.PinLaterError):
            await client.create_queue("mail")
        await client.close()

    await calls()
    assert not any(tmp_path.iterdir())
    await calls(history=given)
    monkeypatch.setenv("PINLATER_HISTORY", str(variable))
    await calls(history="")
    await calls(history=given)
    assert not variable.exists()
    await calls()
    assert len(list(merged_history(files_in([given])))) == 4
    assert len(list(merged_history(files_in([variable])))) == 2


def test_a_program_that_records_nothing_loads_nothing_of_it() -> None:
    code = "import sys, pinlater; pinlater.AsyncClient(); print('pinlater.history' in sys.modules)"
    command = [sys.executable, "-c", f"{code}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "False\n"
