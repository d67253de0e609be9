"""Jobs with keys in an outbox, on real databases and a real server: they keep what they have, and each comes once."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest, ExtendedJob, Job, JobFilter, JobState, KeyRef
from pinlater.errors import OutcomeUnknown
from pinlater.model import JobInfo
from pinlater_workers import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.jobs.results import RESULT_HEADER
from pinlater_workers.outbox import Outbox
from tests.server.running import running
from tests.stores.places import start_server
from tests.workers.outbox_stand import DIALECTS, OutboxPlace, fresh_place, until

WEEK_MS = 7 * 86_400_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield f"127.0.0.1:{found.port}"


class Bank:
    """An app with jobs that have keys, its outbox in a database, and a queue of its own on the server."""

    def __init__(self, place: OutboxPlace, server: str) -> None:
        self.place = place
        self.app = App(servers=[server])
        self.outbox = Outbox(self.app)
        self.queue = f"bank_{uuid.uuid4().hex[:12]}"
        self.client: Client = self.app.client
        self.client.create_queue(self.queue)
        with place.engine.begin() as connection:
            self.outbox.create_table(connection)

        @self.app.job(
            queue=self.queue,
            unique="{transfer}",
            unique_for="1h",
            serialize="{account}",
            expires="7d",
            claim_timeout="5m",
        )
        def book(account: str, transfer: int) -> None: ...

        self.book = book

    def relayed(self) -> int:
        return self.outbox.relay(self.place.url).run_once()

    def error(self) -> str:
        return str(self.place.rows("SELECT error FROM pinlater_outbox_relay")[0][0])

    def stored(self) -> list[JobInfo]:
        return self.client.scan(JobFilter(self.queue, JobState.PENDING), limit=100).jobs

    def found(self, transfer: int, account: str) -> JobInfo:
        key = KeyRef(f"book:{transfer}", f"{account}{self.queue}")
        (info,) = self.client.lookup(self.queue, (), keys=[key]).values()
        return info


@pytest.fixture(params=DIALECTS)
def bank(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Bank]:
    made = Bank(fresh_place(request.param, request, tmp_path), server)
    yield made
    made.app.close()


def test_a_job_has_what_its_type_says_and_its_duplicates_count_as_handed_over(bank: Bank) -> None:
    ada = f"ada{bank.queue}"
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue(connection, bank.book, ada, 1)
        bank.outbox.enqueue(connection, bank.book.options(keep_result=True), ada, 2)
        bank.outbox.enqueue(connection, bank.book, ada, 1)
        bank.outbox.enqueue(connection, bank.book.options(on_duplicate="reject"), ada, 2)
    assert (bank.relayed(), bank.place.waiting()) == (4, 0)
    first, second = bank.found(1, "ada"), bank.found(2, "ada")
    assert {each.descriptor for each in bank.stored()} == {first.descriptor, second.descriptor}
    assert (first.dedupe_key, first.serialize_key, second.waits_for) == ("book:1", ada, first.descriptor)
    (claimed,) = bank.client.dequeue(DequeueRequest(bank.queue, limit=10))
    assert claimed.descriptor == first.descriptor
    assert first.expires_at_ms is not None
    assert 0 <= first.expires_at_ms - first.created_at_ms - WEEK_MS + 60_000 < 120_000
    claim_ms = bank.client.lookup([first.descriptor])[first.descriptor].claim_expires_at_ms
    assert claim_ms is not None
    assert 240_000 < claim_ms - first.created_at_ms < 360_000
    body = bank.client.lookup([second.descriptor], include_body=True)[second.descriptor].body
    envelope = read_envelope(body or b"")
    assert envelope is not None
    assert envelope.headers[RESULT_HEADER] == "1"
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue(connection, bank.book, ada, 1)
    assert (bank.relayed(), len(bank.stored())) == (1, 1)


def test_a_job_that_replaces_by_rules_of_its_own_does_so_when_it_is_handed_over(bank: Bank) -> None:
    newest = bank.book.options(on_duplicate="replace", replace_running="cancel", replace_within="1h")
    ada = f"ada{bank.queue}"
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue(connection, newest, ada, 1)
    bank.relayed()
    (claimed,) = bank.client.dequeue(DequeueRequest(bank.queue, limit=10))
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue(connection, newest, ada, 1)
    bank.relayed()
    running = bank.found(1, "ada")
    assert (running.descriptor, running.cancel_requested_by is not None) == (claimed.descriptor, True)
    assert [each.descriptor for each in bank.stored()] == [running.successor]


def test_an_answer_that_is_lost_makes_no_second_job(bank: Bank) -> None:
    servers = bank.app.sink
    lost: list[int] = []

    class Losing:
        """The first two answers do not arrive."""

        def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
            descriptors = servers.send(queue, jobs, timeout_s=timeout_s)
            if len(lost) < 2:
                lost.append(len(jobs))
                raise OutcomeUnknown("no answer came")
            return descriptors

        async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
            raise AssertionError("a relay is a thread")

    bank.app.sink = Losing()
    in_order = [ExtendedJob(b"%d" % number, serialize_key=f"{number}{bank.queue}") for number in (3, 4)]
    jobs = [Job(b"1"), Job(b"2"), *in_order]
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue_jobs(connection, bank.queue, jobs)
    with pytest.raises(OutcomeUnknown):
        bank.relayed()
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue_jobs(connection, bank.queue, [Job(b"5")])
    with pytest.raises(OutcomeUnknown):
        bank.outbox.relay(bank.place.url, batch=3).run_once()
    assert (bank.relayed(), lost) == (5, [4, 3])
    bodies = [each.body for each in bank.client.dequeue(DequeueRequest(bank.queue, limit=10))]
    assert sorted(bodies) == [b"1", b"2", b"3", b"4", b"5"]


def test_rows_of_jobs_without_keys_are_as_the_version_before_reads_and_writes_them(bank: Bank) -> None:
    with bank.place.engine.begin() as connection:
        bank.outbox.enqueue_jobs(connection, bank.queue, [Job(b"a"), Job(b"b", custom_status="new")])
    rows = bank.place.rows("SELECT more FROM pinlater_outbox ORDER BY id")
    assert rows == [(None,), ('{"custom_status":"new"}',)]
    assert bank.relayed() == 2
    assert sorted(each.custom_status for each in bank.stored()) == ["", "new"]
    assert {each.body for each in bank.client.dequeue(DequeueRequest(bank.queue, limit=10))} == {b"a", b"b"}


@pytest.mark.store("redis")
def test_with_a_shard_out_only_jobs_with_its_keys_wait_and_all_come_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    store = start_server("redis", durable=True)
    try:
        arguments = ("--store", "1=sqlite:///one.db", "--store", f"2={store.url()}")
        with running(tmp_path / "data", *arguments, "--health-pause", "1s") as found:
            sqlite3.connect(tmp_path / "app.db").close()
            bank = Bank(OutboxPlace(f"sqlite:///{tmp_path}/app.db"), f"127.0.0.1:{found.port}")
            first, rest = ExtendedJob(b"first", dedupe_key="first"), range(60)
            keyed = [ExtendedJob(b"k%d" % number, dedupe_key=f"{number}") for number in rest]
            with bank.place.engine.begin() as connection:
                bank.outbox.enqueue_jobs(connection, bank.queue, first)
            assert bank.relayed() == 1
            store.terminate()
            found.wait_for("shard_out", shard="2")
            with bank.outbox.relay(bank.place.url, poll=0.01) as relay:
                with bank.place.engine.begin() as connection:
                    bank.outbox.enqueue_jobs(
                        connection, bank.queue, [*keyed, *(Job(b"p%d" % number) for number in rest)]
                    )
                until(lambda: relay.stats.handed_over > len(rest), "plain jobs go, and some others")
                assert 0 < bank.place.waiting() < len(rest)
                until(lambda: "jobs wait as the servers do not take their keys" in bank.error(), "the status says so")
                store.start()
                until(lambda: bank.place.waiting() == 0, "it is back")
            bodies = [each.body for each in bank.client.dequeue(DequeueRequest(bank.queue, limit=500))]
            assert sorted(bodies) == sorted([b"first", *(b"k%d" % n for n in rest), *(b"p%d" % n for n in rest)])
            bank.app.close()
    finally:
        store.stop()
    assert "jobs with keys wait" in caplog.text
