"""What becomes of the jobs of a batch that a server does not take."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pinlater.errors import (
    BodyTooLarge,
    EnqueueRejected,
    HomeOut,
    KeysNotYet,
    MethodUnknown,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    RequestInvalid,
    ServerUnreachable,
    ShardConnectionFailed,
    ShardsFull,
    UnknownError,
)
from pinlater.model import ExtendedJob, Job, OnDuplicate
from pinlater_workers.outbox.handover import LARGE_BYTES, LONGEST_PAUSE_S, PATIENCE_S, BatchOutcome, Handover
from pinlater_workers.outbox.statements import OutboxRow, insert_values


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
        self.ids: list[list[str | None]] = []
        self.now_s = 1000.0

    def send(self, queue: str, jobs: Sequence[Job], timeout_s: float | None = None) -> list[str]:
        bodies = [job.body for job in jobs]
        self.ids.append([job.send_id if isinstance(job, ExtendedJob) else None for job in jobs])
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
    later = OutboxRow(2, "key", "mail", b"b", 1, 3, None, '{"colour": "red"}')
    outcome = servers.handover().send([*rows("a"), later, *rows("c", start=3)])
    assert servers.taken == [b"a", b"c"]
    ((some, why),) = outcome.refused
    assert (some, "colour" in why) == ([later], True)


def keyed(number: int, name: str, **fields: Any) -> OutboxRow:
    values = insert_values("mail", ExtendedJob(name.encode(), **fields), f"key-{number}", 0)
    return OutboxRow(number, f"key-{number}", "mail", name.encode(), 1, 2, None, values[-1])


def test_a_row_keeps_all_that_a_job_has() -> None:
    job = ExtendedJob(
        b"x",
        priority=2,
        run_after_ms=5,
        attempts_allowed=7,
        custom_status="new",
        dedupe_key="é",
        serialize_key="ada",
        claim_timeout_ms=9_000,
        on_duplicate=OnDuplicate.REPLACE,
        dedupe_for_ms=-1,
        expires_at_ms=99,
        send_id="mine",
    )
    key, queue, body, priority, attempts, run_after_ms, _, more = insert_values("mail", job, "k", 0)
    row = OutboxRow(1, key, queue, body, priority, attempts, run_after_ms, more)
    assert row.job(with_id=True) == row.job(with_id=False) == job
    plain = Job(b"x", custom_status="new")
    assert (
        OutboxRow(1, "k", "mail", b"x", 1, 2, None, insert_values("mail", plain, "k", 0)[-1]).job(with_id=False)
        == plain
    )


def test_versions_before_keys_refuse_a_row_with_keys_and_take_all_others() -> None:
    """They make a Job of what is in `more`."""
    before = {each.name for each in dataclasses.fields(Job)}
    assert not keyed(1, "a", dedupe_key="ada").extras.keys() <= before
    assert not keyed(1, "a", expires_at_ms=1).extras.keys() <= before
    assert keyed(1, "a", custom_status="new").extras.keys() <= before


def test_a_job_that_a_duplicate_would_reject_is_as_good_as_its_duplicate() -> None:
    job = keyed(1, "a", dedupe_key="ada", on_duplicate=OnDuplicate.REJECT).job(with_id=True)
    assert isinstance(job, ExtendedJob)
    assert job.on_duplicate is OnDuplicate.KEEP


def test_each_job_has_an_id_of_its_own() -> None:
    servers = Servers()
    servers.handover().send([*rows("a", "b"), keyed(3, "c", dedupe_key="ada"), keyed(4, "d", send_id="mine")])
    assert servers.ids == [["key-1", "key-2", "key-3", "mine"]]


@pytest.mark.parametrize("error", [KeysNotYet("servers of an earlier version"), MethodUnknown("of a version before")])
def test_where_servers_know_no_keys_plain_jobs_go_plain_and_others_wait(error: PinLaterError) -> None:
    is_old = True
    servers = Servers()
    servers.refuse = lambda _queue, _bodies: error if is_old and any(servers.ids[-1]) else None
    handover = servers.handover()
    late = keyed(3, "late", expires_at_ms=2**45)
    outcome = handover.send([*rows("a"), keyed(2, "once", dedupe_key="ada"), late, *rows("b", start=4)])
    assert (servers.taken, outcome.refused, outcome.away) == ([b"a", b"b"], [], None)
    assert (handover.waiting_ids(), handover.keys_why) == ({2, 3}, str(error))
    handover.send([*rows("c", start=5), keyed(6, "in", serialize_key="ada")])
    assert servers.ids[2:] == [[None]], "nothing else is tried for a while"
    is_old = False
    servers.now_s += LONGEST_PAUSE_S
    assert handover.waiting_ids() == set()
    handover.send([keyed(2, "once", dedupe_key="ada"), late, keyed(6, "in", serialize_key="ada")])
    assert servers.taken == [b"a", b"b", b"c", b"late", b"once", b"in"], "what has no key needs no id, and goes first"
    assert (handover.keys_why, handover.waiting) == ("", {})
    handover.send(rows("d", start=7))
    assert servers.ids[-1] == ["key-7"]


def test_with_a_home_out_what_is_stored_counts_and_only_its_keys_wait() -> None:
    servers = Servers()

    def one_out(_queue: str, bodies: list[bytes]) -> Exception | None:
        out = [servers.ids[-1][place] is not None and b"out" in body for place, body in enumerate(bodies)]
        if not any(out):
            return None
        stored = [] if all(out) else ["" if is_out else "mail:1" for is_out in out]
        return ShardConnectionFailed("shard 2 is out", reason="HOME_OUT", job_descriptors=stored or None)

    servers.refuse = one_out
    handover = servers.handover()
    kept = keyed(3, "out 3", serialize_key="ada")
    outcome = handover.send([*rows("in 1", "out 2"), kept, keyed(4, "in 4", serialize_key="eve")])
    assert [row.id for row in outcome.handed_over] == [1, 4, 2]
    assert servers.ids == [["key-1", "key-2", "key-3", "key-4"], [None]]
    behind = keyed(5, "in 5", serialize_key="ada")
    outcome = handover.send([behind, keyed(6, "in 6", dedupe_key="x"), *rows("out 7", start=7)])
    assert [row.id for row in outcome.handed_over] == [7, 6], "a job overtakes none of its key"
    servers.refuse = lambda _queue, _bodies: None
    servers.now_s += PATIENCE_S
    assert [row.id for row in handover.send([kept, behind]).handed_over] == [3, 5]
    assert (outcome.away, handover.keys_why) == (None, "")


def test_a_job_that_may_be_stored_waits_for_a_minute_before_it_goes_without_its_id() -> None:
    servers = Servers(lambda _queue, _bodies: OutcomeUnknown("no answer"))
    handover = servers.handover()
    assert handover.send(rows("a")).away is not None
    servers.refuse = lambda _queue, _bodies: HomeOut("shard 2 is out") if any(servers.ids[-1]) else None
    assert [row.id for row in handover.send(rows("a", "b")).handed_over] == [2]
    assert handover.waiting_ids() == {1}
    servers.now_s += PATIENCE_S
    assert [row.id for row in handover.send(rows("a")).handed_over] == [1]
    assert servers.ids[-2:] == [["key-1"], [None]]
