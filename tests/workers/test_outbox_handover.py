"""What becomes of the jobs of a batch that a server does not take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pinlater.errors import (
    BodyTooLarge,
    EnqueueRejected,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    RequestInvalid,
    ServerUnreachable,
    ShardsFull,
    UnknownError,
)
from pinlater.model import Job
from pinlater_workers.outbox.handover import LARGE_BYTES, PATIENCE_S, BatchOutcome, Handover
from pinlater_workers.outbox.statements import OutboxRow


def rows(*named: str, queue: str = "mail", start: int = 1) -> list[OutboxRow]:
    return [
        OutboxRow(number, f"key-{number}", queue, name.encode(), 1, 3, None, None)
        for number, name in enumerate(named, start)
    ]


class Servers:
    """Refuses calls by their queue or by a job in them, and keeps what it takes in order."""

    def __init__(self, refuse: Callable[[str, list[bytes]], Exception | None] = lambda queue, bodies: None) -> None:
        self.refuse = refuse
        self.calls: list[tuple[str, list[bytes]]] = []
        self.taken: list[bytes] = []
        self.now_s = 1000.0

    def send(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        bodies = [job.body for job in jobs]
        self.calls.append((queue, bodies))
        error = self.refuse(queue, bodies)
        if error is not None:
            raise error
        self.taken += bodies
        return [""] * len(jobs)

    def handover(self) -> Handover:
        return Handover(self.send, lambda: self.now_s)


def refused(outcome: BatchOutcome) -> list[tuple[list[bytes], str]]:
    return [([row.body for row in some], why) for some, why in outcome.refused]


def test_jobs_go_in_order_with_one_call_for_each_queue() -> None:
    servers = Servers()
    mixed = [*rows("a", "b"), *rows("x", queue="sms", start=3), *rows("c", start=4)]
    outcome = servers.handover().send(mixed)
    assert servers.calls == [("mail", [b"a", b"b", b"c"]), ("sms", [b"x"])]
    assert [row.id for row in outcome.handed_over] == [1, 2, 4, 3]
    assert (outcome.refused, outcome.away) == ([], None)


def test_one_call_has_500_jobs_and_4_MiB_at_most() -> None:
    servers = Servers()
    servers.handover().send(rows(*["x"] * 1100))
    servers.handover().send(rows(*["y" * 1_500_000] * 3))
    assert [len(bodies) for _, bodies in servers.calls] == [500, 500, 100, 2, 1]


@pytest.mark.parametrize(
    "error", [BodyTooLarge("too large"), RequestInvalid("no such priority"), ValueError("a lone surrogate")]
)
def test_a_job_that_cannot_be_is_refused_and_all_others_go_in_order(error: Exception) -> None:
    servers = Servers(lambda _queue, bodies: error if b"bad" in bodies else None)
    names = [str(number) for number in range(100)]
    names[37] = names[38] = names[99] = "bad"
    outcome = servers.handover().send(rows(*names))
    assert servers.taken == [name.encode() for name in names if name != "bad"]
    assert refused(outcome) == [([b"bad"], str(error))] * 3
    assert len(servers.calls) < 40
    assert outcome.away is None


@pytest.mark.parametrize("error", [QueueNotFound("no queue mail"), UnknownError("something broke")])
def test_a_queue_that_is_missing_keeps_only_its_own_jobs_and_for_a_minute(error: PinLaterError) -> None:
    servers = Servers(lambda queue, _bodies: error if queue == "mail" else None)
    handover = servers.handover()
    batch = [*rows("a", "b"), *rows("x", queue="sms", start=3)]
    outcome = handover.send(batch)
    assert servers.taken == [b"x"]
    assert outcome.refused == []
    assert handover.waiting_queues() == ["mail"]
    calls = len(servers.calls)
    assert handover.send(rows("a", "b")).handed_over == []
    assert len(servers.calls) == calls, "nothing is sent to a queue that waits"
    servers.now_s += PATIENCE_S / 2
    assert handover.waiting_queues() == []
    assert handover.send(rows("a", "b")).refused == []
    servers.now_s += PATIENCE_S / 2
    outcome = handover.send(rows("a", "b"))
    assert sorted(body for some, _ in refused(outcome) for body in some) == [b"a", b"b"]
    assert handover.send(rows("c", start=9)).refused, "no second minute for those that come later"


def test_a_queue_that_comes_to_be_gets_its_jobs_and_a_new_minute_when_it_goes() -> None:
    missing = True
    servers = Servers(lambda _queue, _bodies: QueueNotFound("no queue mail") if missing else None)
    handover = servers.handover()
    handover.send(rows("a"))
    missing = False
    servers.now_s += PATIENCE_S
    assert len(handover.send(rows("a")).handed_over) == 1
    missing = True
    assert handover.send(rows("b")).refused == []


def test_a_queue_whose_jobs_are_gone_is_forgotten() -> None:
    servers = Servers(lambda _queue, _bodies: QueueNotFound("no queue mail"))
    handover = servers.handover()
    handover.send(rows("a"))
    servers.now_s += 3600
    assert handover.waiting_queues() == []
    assert handover.held == {}


def test_a_queue_that_is_full_waits_without_end_and_by_what_it_asks_for() -> None:
    servers = Servers(lambda _queue, _bodies: EnqueueRejected("full", retry_after_ms=30_000))
    handover = servers.handover()
    for _ in range(10):
        assert handover.send(rows("a")).refused == []
        servers.now_s += 29
        assert handover.waiting_queues() == ["mail"]
        servers.now_s += 2
        assert handover.waiting_queues() == []
    assert len(servers.calls) == 10


def test_a_rejection_for_good_is_a_refusal() -> None:
    servers = Servers(lambda _queue, bodies: EnqueueRejected("no", retryable=False) if b"bad" in bodies else None)
    assert refused(servers.handover().send(rows("a", "bad", "b"))) == [([b"bad"], "no")]
    assert servers.taken == [b"a", b"b"]


@pytest.mark.parametrize("error", [ServerUnreachable("away"), ShardsFull("full"), OutcomeUnknown("who knows")])
def test_where_no_server_takes_jobs_nothing_more_is_sent(error: PinLaterError) -> None:
    servers = Servers(lambda _queue, _bodies: error)
    handover = servers.handover()
    for _ in range(100):
        outcome = handover.send([*rows("a"), *rows("x", queue="sms", start=2)])
        assert (outcome.handed_over, outcome.refused, outcome.away) == ([], [], error)
        servers.now_s += PATIENCE_S
    assert {queue for queue, _ in servers.calls} == {"mail"}


def test_what_was_handed_over_before_a_server_went_away_counts() -> None:
    servers = Servers(lambda queue, _bodies: ServerUnreachable("away") if queue == "sms" else None)
    outcome = servers.handover().send([*rows("a"), *rows("x", queue="sms", start=2)])
    assert [row.id for row in outcome.handed_over] == [1]
    assert isinstance(outcome.away, ServerUnreachable)


def test_a_job_that_servers_cut_off_because_of_its_size_is_refused_after_a_minute() -> None:
    """They close the connection at a frame that is too large, and the client cannot know why."""
    huge = "x" * (20 * LARGE_BYTES)
    cut = OutcomeUnknown("the connection broke")
    servers = Servers(lambda _queue, bodies: cut if sum(map(len, bodies)) > 16 * LARGE_BYTES else None)
    handover = servers.handover()
    handover.send(rows("a", huge, "b"))
    handed_over: list[int] = []
    left = rows("a", huge, "b")
    for _ in range(20):
        servers.now_s += PATIENCE_S / 4
        outcome = handover.send(left)
        assert outcome.away is None
        handed_over += [row.id for row in outcome.handed_over]
        gone = {row.id for row in outcome.handed_over} | {row.id for some, _ in outcome.refused for row in some}
        left = [row for row in left if row.id not in gone]
    assert (sorted(handed_over), left) == ([1, 3], [])


def test_a_field_of_a_job_that_this_version_does_not_know_is_no_reason_to_lose_it() -> None:
    servers = Servers()
    later = OutboxRow(2, "key", "mail", b"b", 1, 3, None, '{"serialize_key": "ada"}')
    outcome = servers.handover().send([*rows("a"), later, *rows("c", start=3)])
    assert servers.taken == [b"a", b"c"]
    ((some, why),) = outcome.refused
    assert (some, "serialize_key" in why) == ([later], True)
