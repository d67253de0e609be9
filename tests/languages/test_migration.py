"""docs/migration.md is true: its settings, what it says that differs, and its commands, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import thriftpy2
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import client_context
from thriftpy2.server import TThreadedServer
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TFramedTransportFactory, TServerSocket

from pinlater import Ack, AckOutcome, Client, DequeueRequest, Job, JobFilter, JobState
from pinlater.errors import BodyTooLarge, PriorityNotSupported
from tests.languages.conftest import INTERFACE, PASSWORD, PINLATER, ROOT, serving
from tests.languages.test_python_clients import OURS

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
CLASSIC_CALLS = [
    "createQueue", "deleteQueue", "enqueueJobs", "dequeueJobs", "ackDequeuedJobs", "checkpointJobs", "lookupJobs",
    "getJobCount", "getQueueNames", "scanJobs", "retryFailedJobs", "deleteJobs",
]  # fmt: skip
LONGEST_DESCRIPTOR = 103
WITHIN_S = 60.0
SHOWN = {'"180s"': '"3m"', "65535": '"65535B"'}
"""How a server writes the values that the page has in another unit."""


def block(language: str, holds: str) -> str:
    """The one block of the page in this language that has this text in it."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (text,) = [text for text in found if holds in text]
    return str(text)


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The interface of the original: its fields and its twelve calls."""
    file = tmp_path_factory.mktemp("classic") / "original.thrift"
    file.write_text(OURS.sub("", INTERFACE.read_text(encoding="utf-8")), encoding="utf-8")
    types = thriftpy2.load(str(file), module_name="original_thrift")
    types.PinLater.thrift_services[:] = CLASSIC_CALLS
    return types


@pytest.fixture(scope="module")
def port(password_hash: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server with the settings of the page, but that it looks for expired claims more often."""
    folder = tmp_path_factory.mktemp("like_there")
    (folder / "server.toml").write_text(block("toml", "claim-timeout"), encoding="utf-8")
    (folder / "queues.toml").write_text(block("toml", "max_jobs_per_second"), encoding="utf-8")
    files = ("--config", "server.toml", "--queue-file", "queues.toml")
    with serving(folder, *files, "--maintenance-interval", "100ms", "--admin-password-hash", password_hash) as port:
        yield port


class OldCaller:
    """A client that has only ever known the original."""

    def __init__(self, types: ModuleType, calls: Any, queue: str) -> None:
        self.types, self.calls, self.queue = types, calls, queue
        self.me = types.RequestContext(source="worker:host")

    def enqueue(self, *jobs: dict[str, Any]) -> list[str]:
        made = [self.types.PinLaterJob(**({"body": b"x"} | job)) for job in jobs]
        request = self.types.PinLaterEnqueueRequest(queueName=self.queue, jobs=made)
        return list(self.calls.enqueueJobs(self.me, request).jobDescriptors)

    def dequeue(self, limit: int = 10, acks: Any = None, queue: str = "") -> Any:
        request = self.types.PinLaterDequeueRequest(queueName=queue or self.queue, limit=limit, jobAckRequest=acks)
        return self.calls.dequeueJobs(self.me, request)

    def acks(self, *, queue: str = "", **lists: list[str]) -> Any:
        infos = {
            name: [self.types.PinLaterJobAckInfo(jobDescriptor=each, appendCustomStatus="+") for each in descriptors]
            for name, descriptors in lists.items()
        }
        return self.types.PinLaterJobAckRequest(queueName=queue or self.queue, **infos)

    def ack(self, **lists: Any) -> None:
        self.calls.ackDequeuedJobs(self.me, self.acks(**lists))

    def checkpoint(self, descriptor: str, source: str = "worker:host", **fields: Any) -> None:
        beat = self.types.PinLaterCheckpointJobRequest(jobDescriptor=descriptor, **fields)
        request = self.types.PinLaterCheckpointJobsRequest(queueName=self.queue, requests=[beat])
        self.calls.checkpointJobs(self.types.RequestContext(source=source), request)

    def info(self, descriptor: str) -> Any:
        request = self.types.PinLaterLookupJobRequest(jobDescriptors=[descriptor, "no descriptor"])
        return self.calls.lookupJobs(self.me, request)[descriptor]

    def refused(self, call: Any, *arguments: Any, **fields: Any) -> int:
        """The code of the error."""
        with pytest.raises(self.types.PinLaterException) as error:
            call(*arguments, **fields)
        return int(error.value.errorCode)


@pytest.fixture
def old_caller(classic: ModuleType, port: int, queue: str) -> Iterator[OldCaller]:
    with client_context(
        classic.PinLater, "127.0.0.1", port, trans_factory=TFramedTransportFactory(), socket_timeout=60_000
    ) as calls:
        calls.createQueue(classic.RequestContext(source="worker:host"), queue)
        yield OldCaller(classic, calls, queue)


# -- the settings


def test_a_server_with_these_settings_is_as_the_original_was(port: int, queue: str) -> None:
    with Client(f"127.0.0.1:{port}") as client:
        client.create_queue(queue)
        (view,) = client.get_queues([queue])
        settings = {key: setting.value for key, setting in view.settings.items()}
        assert (settings["succeeded_ttl"], settings["failed_ttl"], settings["crash_budget"]) == ("1h", "2h", "0")
        client.enqueue(queue, Job(bytes(65_535), priority=3))
        with pytest.raises(BodyTooLarge):
            client.enqueue(queue, Job(bytes(65_536)))
        with pytest.raises(PriorityNotSupported):
            client.enqueue(queue, Job(b"", priority=4))
        (job,) = client.dequeue(DequeueRequest(queue, 1))
        info = client.lookup([job.descriptor])[job.descriptor]
        assert info.claimed_at_ms is not None
        assert (info.claim_expires_at_ms or 0) - info.claimed_at_ms == 180_000


def test_all_keys_of_the_page_are_settings_with_the_values_that_it_shows(tmp_path: Path) -> None:
    written = block("toml", "claim-timeout")
    (tmp_path / "server.toml").write_text(written, encoding="utf-8")
    command = [PINLATER, "serve", "--config", "server.toml", "--print-config"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300).stdout
    for key, value in re.findall(r"^([\w-]+) = (\S+)", written, re.MULTILINE):
        (line,) = re.findall(rf"^{key} = .*", printed, re.MULTILINE)
        assert line.startswith(f"{key} = {SHOWN.get(value, value)}  # "), line
        assert line.endswith("server.toml")


def test_without_a_crash_budget_a_job_has_all_its_attempts_and_the_status_says_what_it_went_through(
    port: int, queue: str
) -> None:
    with Client(f"127.0.0.1:{port}") as client:
        client.create_queue(queue)
        descriptor = client.enqueue(queue, Job(b"", attempts_allowed=6, custom_status="mine"))
        ends_at = time.monotonic() + WITHIN_S
        while (info := client.lookup([descriptor])[descriptor]).crashes < 5:
            assert time.monotonic() < ends_at, info
            if info.state is JobState.PENDING:
                client.dequeue(DequeueRequest(queue, 1, claim_timeout_ms=1))
        assert (info.state, info.attempts_remaining) == (JobState.PENDING, 1)
        assert info.custom_status.startswith("mine[claim expired at ")
        assert info.custom_status.count("[claim expired at ") == 5


def test_a_rate_of_0_refuses_the_dequeue_and_carries_out_its_riding_acks(old_caller: OldCaller, port: int) -> None:
    paused = "pinlater_test_paused_queue"
    for name in ("pinlater_test_queue", paused):
        old_caller.calls.createQueue(old_caller.me, name)
    (descriptor,) = old_caller.enqueue({})
    old_caller.dequeue()
    riding = old_caller.acks(jobsSucceeded=[descriptor])
    assert old_caller.refused(old_caller.dequeue, acks=riding, queue=paused) == 429
    assert old_caller.info(descriptor).jobState == JobState.SUCCEEDED
    old_caller.ack(jobsSucceeded=[descriptor])  # sent again, as after the original's refusal
    assert old_caller.info(descriptor).customStatus == "+"
    with Client(f"127.0.0.1:{port}") as client:
        (view,) = client.get_queues(["pinlater_test_queue"])
    assert view.settings["max_jobs_per_second"].value == "100/s"


# -- what differs whatever is set


def test_jobs_are_as_the_page_says(old_caller: OldCaller) -> None:
    now_ms = int(time.time() * 1000)
    zeros, late, held = old_caller.enqueue({"runAfterTimestampMillis": 0, "numAttemptsAllowed": -1}, {}, {})
    assert old_caller.info(zeros).attemptsAllowed == 1
    assert old_caller.info(zeros).runAfterTimestampMillis >= now_ms - 1_000
    assert set(old_caller.dequeue().jobs) == {zeros, late, held}
    old_caller.checkpoint(held, source="host", prependCustomStatus="in part")
    assert old_caller.info(held).customStatus == ""
    old_caller.checkpoint(held, prependCustomStatus="beat", runAfterTimestampMillis=now_ms + 3_600_000)
    assert old_caller.info(held).customStatus == "beat"
    old_caller.checkpoint(late, moveToPending=True, runAfterTimestampMillis=now_ms + 3_600_000)
    old_caller.ack(jobsSucceeded=[late])
    assert (old_caller.info(late).jobState, old_caller.info(late).customStatus) == (JobState.PENDING, "")
    old_caller.ack(jobsFailed=[zeros], jobsSucceeded=[held])
    assert (old_caller.info(zeros).jobState, old_caller.info(held).customStatus) == (JobState.FAILED, "beat+")


def test_acks_are_as_the_page_says(old_caller: OldCaller, port: int) -> None:
    types, calls, me = old_caller.types, old_caller.calls, old_caller.me
    late, good, ridden = old_caller.enqueue({"numAttemptsAllowed": 3}, {}, {})
    old_caller.dequeue()
    delayed = types.PinLaterJobAckInfo(jobDescriptor=late, retryDelayMillis=-5_000)
    calls.ackDequeuedJobs(me, types.PinLaterJobAckRequest(queueName=old_caller.queue, jobsFailed=[delayed]))
    assert list(old_caller.dequeue().jobs) == [late]
    bad = {"jobsSucceeded": ["no descriptor", good], "jobsFailed": [f"{old_caller.queue}:s1d1:p1:17"]}
    assert old_caller.refused(old_caller.ack, **bad) == types.ErrorCode.UNKNOWN
    assert old_caller.info(good).jobState == JobState.SUCCEEDED
    riding = old_caller.acks(jobsSucceeded=[ridden])
    assert old_caller.refused(old_caller.dequeue, 0, riding) == types.ErrorCode.UNKNOWN
    assert old_caller.info(ridden).jobState == JobState.SUCCEEDED
    old_caller.ack(jobsFailed=[late])
    (job,) = old_caller.dequeue().jobs
    old_caller.ack(jobsFailed=[late])  # again: it ends an attempt that is not its own
    old_caller.ack(jobsSucceeded=[job])
    assert (old_caller.info(late).jobState, old_caller.info(late).attemptsRemaining) == (JobState.FAILED, 0)
    with Client(f"127.0.0.1:{port}") as client:
        assert client.ack(old_caller.queue, succeeded=[Ack(good)], failed=[]) == [AckOutcome.IGNORED]


def test_a_checkpoint_for_later_keeps_the_job_until_then(port: int, old_caller: OldCaller) -> None:
    (descriptor,) = old_caller.enqueue({})
    old_caller.dequeue()
    later_ms = int(time.time() * 1000) + 3_600_000
    old_caller.checkpoint(descriptor, runAfterTimestampMillis=later_ms)
    with Client(f"127.0.0.1:{port}") as client:
        assert client.lookup([descriptor])[descriptor].claim_expires_at_ms == later_ms + 180_000


def test_names_are_as_the_page_says(old_caller: OldCaller, port: int) -> None:
    (descriptor,) = old_caller.enqueue({})
    assert re.fullmatch(rf"{old_caller.queue}:s1:p1:\d{{16}}", descriptor)
    old_caller.dequeue()
    claim = old_caller.info(descriptor).claimDescriptor
    assert claim.split(":", 4)[4] == "worker:host"
    longest = f"{'q' * 64}:s{'x' * 16}:p10:{'1' * 16}"
    assert len(longest) == LONGEST_DESCRIPTOR
    assert f"up to {LONGEST_DESCRIPTOR} characters" in PAGE


def test_calls_are_as_the_page_says(old_caller: OldCaller) -> None:
    types, calls, me = old_caller.types, old_caller.calls, old_caller.me
    assert old_caller.refused(old_caller.dequeue, queue="nowhere") == types.ErrorCode.QUEUE_NOT_FOUND
    old_caller.ack(queue="nowhere", jobsSucceeded=["nowhere:s1d1:p1:17"])
    assert old_caller.enqueue() == []
    old_caller.ack()
    found = calls.lookupJobs(me, types.PinLaterLookupJobRequest(jobDescriptors=["mail:s1d1:p1:17", "nothing"]))
    assert found == {}
    old_caller.enqueue(*[{}] * 3)
    scan = types.PinLaterScanJobsRequest(queueName=old_caller.queue, jobState=JobState.PENDING, limit=2)
    page = calls.scanJobs(me, scan)
    scan.continuation = page.continuation
    assert [len(page.scannedJobs), len(calls.scanJobs(me, scan).scannedJobs)] == [2, 1]
    none = types.PinLaterDeleteJobsRequest(queueName=old_caller.queue, jobState=JobState.PENDING, limit=0)
    assert old_caller.refused(calls.deleteJobs, me, none) == types.ErrorCode.UNKNOWN
    count = types.PinLaterGetJobCountRequest(
        queueName=old_caller.queue, jobState=JobState.PENDING, bodyRegexToMatch="^x$"
    )
    assert calls.getJobCount(me, count) == 3
    calls.createQueue(me, f"{old_caller.queue}_gone")
    calls.deleteQueue(me, f"{old_caller.queue}_gone", PASSWORD)
    assert f"{old_caller.queue}_gone" not in calls.getQueueNames(me)


# -- moving


@contextmanager
def an_old_server(types: ModuleType, behind: int) -> Iterator[str]:
    """A server that knows the original's calls and fields alone, and shows one page; its jobs are on another server."""

    def passed_on(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            with client_context(
                types.PinLater, "127.0.0.1", behind, trans_factory=TFramedTransportFactory(), socket_timeout=60_000
            ) as calls:
                answer = getattr(calls, name)(*arguments)
            if name == "scanJobs":
                answer.continuation = types.CONTINUATION_END
            return answer

        return call

    handler = SimpleNamespace(**{name: passed_on(name) for name in CLASSIC_CALLS})
    socket = TServerSocket("127.0.0.1", 0)
    socket.listen()
    address = f"127.0.0.1:{socket.sock.getsockname()[1]}"
    socket.listen = lambda: None
    server = TThreadedServer(
        TProcessor(types.PinLater, handler),
        socket,
        itrans_factory=TFramedTransportFactory(),
        iprot_factory=TBinaryProtocolFactory(),
    )
    server.daemon = True
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        server.close()
        thread.join(WITHIN_S)


class Mover:
    """Runs what the page says, as it stands there."""

    def __init__(self, folder: Path, old: str, new: str) -> None:
        self._folder = folder
        path = f"{Path(PINLATER).parent}:{os.environ['PATH']}"
        self._environment = {"PATH": path, "HOME": str(folder), "OLD": old, "NEW": new}
        (folder / "move_pending.py").write_text(block("python", "PENDING jobs"), encoding="utf-8")

    def __call__(self, text: str) -> list[str]:
        """The lines that it prints."""
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.splitlines()


def test_the_steps_of_the_move_and_the_way_back(
    classic: ModuleType, password_hash: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    behind_folder, new_folder = tmp_path_factory.mktemp("behind"), tmp_path_factory.mktemp("new")
    hashed = ("--admin-password-hash", password_hash)
    with (
        serving(behind_folder, *hashed) as behind,
        serving(new_folder, *hashed) as new_port,
        an_old_server(classic, behind) as old,
        Client(old) as there,
        Client(f"127.0.0.1:{new_port}") as here,
    ):
        later_ms = int(time.time() * 1000) + 3_600_000
        for name in ("mail", "images"):
            there.create_queue(name)
        there.enqueue("mail", [Job(b"due \xff", 2, attempts_allowed=5, custom_status="mine")])
        there.enqueue("mail", [Job(b"later", 3, later_ms), Job(b"taken")])
        (taken,) = there.dequeue(DequeueRequest("mail", 1))
        move = Mover(tmp_path, old, f"127.0.0.1:{new_port}")

        move(block("sh", "xargs"))
        assert here.queue_names() == {"mail", "images"}

        left = move(block("sh", "in_progress"))
        assert {"mail, pending: 1", "mail, pending --future: 1", "mail, in_progress: 1", "images, pending: 0"} < {*left}
        assert taken.body == b"taken"
        there.ack("mail", succeeded=[Ack(taken.descriptor)])

        script = f"alias python={sys.executable}; shopt -s expand_aliases\n{block('sh', 'move_pending')}"
        printed = move(script)
        assert [line for line in printed if not line.endswith("0 of 0")] == [
            "mail priority 2 due 1 of 1",
            "mail priority 3 later 1 of 1",
        ]
        (later,) = [
            info for page in here.scan_pages(JobFilter("mail", JobState.PENDING, future=True)) for info in page.jobs
        ]
        assert (later.priority, later.run_after_ms, later.attempts_remaining) == (3, later_ms, 2)
        (due,) = here.dequeue(DequeueRequest("mail", 5))
        info = here.lookup([due.descriptor])[due.descriptor]
        assert (due.body, due.priority, due.attempts_allowed, info.custom_status) == (b"due \xff", 2, 5, "mine")

        move(script)  # again: what was copied is not copied twice
        assert here.count(JobFilter("mail", JobState.PENDING)) == 0
        assert here.count(JobFilter("mail", JobState.PENDING, future=True)) == 1

        back = tmp_path_factory.mktemp("back")
        before = there.count(JobFilter("mail", JobState.PENDING, future=True))
        Mover(back, f"127.0.0.1:{new_port}", old)(script)
        assert there.count(JobFilter("mail", JobState.PENDING, future=True)) == before + 1
