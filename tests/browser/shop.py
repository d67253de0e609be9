"""The day of a small shop, for screenshots: jobs of the last hours in each state, workers, schedules and a payroll.

What lies in the past is put into the store through its shard before the server starts; the rest comes through a client,
by people with names, so that the audit has something to say.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pinlater import Client
from pinlater.backends.base import AckRequest, ClaimRequest, ConfigEntry
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.dashboard.duration_buckets import buckets_of
from pinlater.dashboard.history_file import HistoryFile
from pinlater.dashboard.queue_record import QueueRecord, pack
from pinlater.model import (
    Ack,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    Job,
    JobRef,
    ScheduleChange,
    WorkerJob,
    WorkerReport,
    new_version,
    parse_descriptor,
)
from pinlater.model.flow_words import NewFlow, NewItem, OnFailure, Stage
from pinlater.queues.changes import entry_text
from pinlater_workers.envelope import Envelope, write_envelope
from tests.browser.stand import Stand

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SETTINGS = {
    "emails": {"dead_letter_queue": "emails-dead", "max_jobs_per_second": "50/s"},
    "emails-dead": {},
    "exports": {"max_in_progress": "4", "claim_timeout": "30m"},
    "invoices": {"failed_ttl": "30d"},
    "search-index": {},
    "thumbnails": {"max_in_progress": "16"},
    "webhooks": {"max_attempts": "10"},
}
_NAMES = ("ada", "grace", "alan", "edsger", "barbara", "donald", "frances", "tony", "leslie", "radia")


class _Kind(NamedTuple):
    """What is done in a queue: a type of job, its arguments by a number, and how it fails."""

    queue: str
    job: str
    arguments: Callable[[int], dict[str, object]]
    failure: str


_KINDS = (
    _Kind(
        "emails",
        "send_receipt",
        lambda n: {"order": 48_000 + n, "to": f"{_NAMES[n % 10]}@example.org", "language": "en"},
        "SMTPServerDisconnected: Connection unexpectedly closed (mail.py:42 in deliver)",
    ),
    _Kind(
        "thumbnails",
        "resize",
        lambda n: {"picture": f"products/{3_100 + n}.jpg", "sizes": [64, 128, 256]},
        "UnidentifiedImageError: cannot identify image file 'products/3117.jpg' (thumbnails.py:18 in resize)",
    ),
    _Kind(
        "invoices",
        "print_invoice",
        lambda n: {"order": 48_000 + n, "net": round(19.9 * (n % 7 + 1), 2), "currency": "EUR"},
        "KeyError: 'vat_id' (invoices.py:77 in header)",
    ),
    _Kind(
        "webhooks",
        "notify",
        lambda n: {"url": f"https://partner-{n % 5}.example/hook", "event": "order.paid", "order": 48_000 + n},
        "TimeoutError: partner-3.example did not answer within 10 s (webhooks.py:31 in post)",
    ),
    _Kind("search-index", "index_product", lambda n: {"product": 3_100 + n}, "ConnectionRefusedError: search-1:9200"),
)
_TRACE = """
  File "/srv/shop/mail.py", line 42, in deliver
    smtp.send_message(message)
  ... 3 frames of smtplib, ssl, down to socket.py:706 in readinto"""


async def fill_past(url: str, now_ms: int) -> None:
    """The jobs of the last day, in a store that no server has opened yet."""
    rng = random.Random(7)
    shard = SqliteShard(url, "1")
    await shard.open()
    try:
        entries = [ConfigEntry(name, new_version(now_ms, ""), entry_text(each)) for name, each in SETTINGS.items()]
        await shard.put_config(entries, now_ms - DAY_MS)
        for number in range(600):
            kind = _KINDS[number % len(_KINDS)]
            at_ms = now_ms - DAY_MS + number * DAY_MS // 640 + rng.randrange(MINUTE_MS)
            fails = kind.queue != "search-index" and number % 23 == 3
            await shard.enqueue(kind.queue, [_job(kind, number)], at_ms)
            for attempt in (1, 2) if fails else (1,):
                claimed_ms = at_ms + (attempt - 1) * MINUTE_MS + rng.randrange(200, 9_000)
                claim = ClaimRequest(f"web-1:{attempt}:{claimed_ms}:{number}:worker", 1, (1,), HOUR_MS, 1 << 40)
                ((job,),) = await shard.claim(kind.queue, [claim], claimed_ms)
                ref = parse_descriptor(job.descriptor)
                assert ref is not None
                ended_ms = claimed_ms + rng.randrange(1_200, 2_500)
                await shard.ack(kind.queue, [_ended(kind, ref, attempt, fails, number, ended_ms)], ended_ms)
    finally:
        await shard.close()


def fill_history(path: Path, now_ms: int) -> None:
    """The minutes of the last day: busy at noon, a bad half an hour a while ago, and a queue of webhooks that fail."""
    rng = random.Random(11)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    now = now_ms // MINUTE_MS
    file = HistoryFile(path, is_writer=True)
    try:
        for first in range(now - 24 * 60, now, 60):
            minutes = range(first, min(first + 60, now))
            file.write_minutes({minute: _minute(minute - now, rng) for minute in minutes}, {})
        file.put_away(now // 60)
    finally:
        file.close()


def _minute(ago: int, rng: random.Random) -> dict[str, bytes]:
    """What happened in each queue so many minutes ago, and in all of them (""); `ago` is below zero."""
    found = {}
    whole = QueueRecord()
    busy = 1.3 + math.sin(ago / 1440 * 2 * math.pi) + 0.25 * math.sin(ago / 47)
    is_bad = -75 < ago < -40
    for place, kind in enumerate(_KINDS):
        came = int(rng.gauss(90 - 14 * place, 9) * busy)
        failed = int(came * (0.22 if is_bad and kind.queue in ("emails", "webhooks") else 0.012) * rng.random() * 2)
        slow = 6 if is_bad else 1
        record = QueueRecord(
            enqueued=came,
            dequeued=came + failed,
            succeeded=came - failed,
            failed=failed,
            retried=failed,
            ready=int(came * slow / 4),
            scheduled=9,
            running=2 + came // 30,
            oldest_s=2 * slow,
            waits=buckets_of([rng.lognormvariate(4.2, 0.8) * slow for _ in range(12)]),
            runs=buckets_of([rng.lognormvariate(5.5, 0.7) for _ in range(12)]),
            reasons={kind.failure.partition(":")[0]: failed} if failed else {},
            types={kind.job: failed} if failed else {},
            sampled=failed,
        )
        found[kind.queue] = pack(record)
        whole.merge(record)
    return {"": pack(whole), **found}


def _job(kind: _Kind, number: int) -> Job:
    return Job(write_envelope(Envelope(kind.job, kwargs=kind.arguments(number))), attempts_allowed=2)


def _ended(kind: _Kind, ref: JobRef, attempt: int, fails: bool, number: int, at_ms: int) -> AckRequest:
    if not fails:
        status = f"done in {0.1 + number % 9 / 10:.1f}s"
        return AckRequest(ref.priority, ref.id, True, status)
    return AckRequest(ref.priority, ref.id, False, _failed(kind, attempt, at_ms), retry_delay_ms=-1)


def _failed(kind: _Kind, attempt: int, at_ms: int) -> str:
    """As the worker framework says it: in a line, with the traceback where no other attempt follows."""
    at = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    line = f"attempt {attempt} of 2: {kind.failure} [{at}, 1.2s, web-{attempt}:4711]"
    return line + (_TRACE if attempt == 2 and kind.queue == "emails" else "\n")


def open_the_shop(stand: Stand) -> None:
    """What there is now: work that waits, people who changed something, schedules and a payroll."""
    ada = Client(f"127.0.0.1:{stand.server.port}", source="ada@shop", token=stand.tokens["admin"])
    grace = Client(f"127.0.0.1:{stand.server.port}", source="grace@shop", token=stand.tokens["operator"])
    with ada, grace:
        _work(ada)
        _schedules(ada)
        _payroll(ada, stand)
        why = "partner-3 answers with 503 since the morning, ticket 4711"
        until = str(_now_ms() + 2 * HOUR_MS)
        grace.update_queue("webhooks", "", set={"paused": "true", "paused_why": why, "paused_until": until})
        ada.update_queue("thumbnails", "", set={"max_in_progress": "24"})
        grace.retry_failed("thumbnails", limit=2)
        _dead_letters(ada)


def _dead_letters(client: Client) -> None:
    for _ in range(3):
        (job,) = client.dequeue(DequeueRequest("emails", 1, wait_ms=5_000))
        client.ack("emails", [], [Ack(job.descriptor, _failed(_KINDS[0], 1, _now_ms()), retry_delay_ms=1)])
    done = 0
    while done < 3:
        for job in client.dequeue(DequeueRequest("emails", 20, wait_ms=1_000)):
            again = job.attempts_remaining < job.attempts_allowed and done < 3
            done += again
            ack = Ack(job.descriptor, _failed(_KINDS[0], 2, _now_ms()) if again else "done", permanent=again)
            client.ack("emails", *(([], [ack]) if again else ([ack], [])))


def _work(client: Client) -> None:
    now_ms = _now_ms()
    for kind in _KINDS:
        many = {"webhooks": 212, "search-index": 0}.get(kind.queue, 24)
        jobs = [_job(kind, 700 + number) for number in range(many)]
        later = [_job(kind, 900 + number) for number in range(9)]
        for number, job in enumerate(later):
            job.run_after_ms = now_ms + (number + 1) * 17 * MINUTE_MS
        client.enqueue(kind.queue, [*jobs, *later])
    keyed = [
        ExtendedJob(
            write_envelope(Envelope("export_orders", kwargs={"shop": shop, "month": month})),
            dedupe_key=f"orders {shop} {month}",
            serialize_key=f"shop {shop}",
            attempts_allowed=3,
        )
        for month in ("2026-09", "2026-10", "2026-11")
        for shop in ("berlin", "zurich", "lisbon")
    ]
    client.enqueue("exports", keyed)


def _schedules(client: Client) -> None:
    for name, queue, cron in (
        ("reports.nightly", "exports", "0 3 * * *"),
        ("invoices.month-end", "invoices", "30 6 1 * *"),
        ("search.rebuild", "search-index", "0 */6 * * *"),
    ):
        body = write_envelope(Envelope(name.replace(".", "_"), kwargs={"full": True}))
        client.update_schedule(
            ScheduleChange(name=name, queue=queue, cron=cron, timezone="Europe/Berlin", body=body), ""
        )
    body = write_envelope(Envelope("ping", kwargs={}))
    client.update_schedule(
        ScheduleChange(name="webhooks.ping", queue="webhooks", every_ms=5 * MINUTE_MS, body=body), ""
    )
    client.update_schedule(ScheduleChange(name="webhooks.ping", paused=True), "")


def _payroll(client: Client, stand: Stand) -> None:
    """A flow in the midst of it: some paid, some calculated, one without a contract."""
    stages = [
        Stage("calculate", "calculate_wage", "payroll", max_failures=1, backoff_ms=500),
        Stage("pay", "transfer", "payroll-bank", parent="calculate", max_failures=3),
        Stage("book", "book", "payroll-ledger", parent="pay", is_final=True),
    ]
    people = [NewItem(f'{{"user": {user}, "hours": {100 + user % 60}}}'.encode()) for user in range(1, 81)]
    for month, count in (("2026-10", 40), ("2026-11", 80)):
        flow = NewFlow("payroll", stages, month, {"month": month}, on_failure=OnFailure.GO_ON,
                       items={"calculate": people[:count]}, sealed=["calculate"])  # fmt: skip
        stand.seeded.flow = client.create_flow(flow).id
        whole = month == "2026-10"
        _done(client, "payroll", count if whole else 61, fails=not whole)
        _done(client, "payroll-bank", count if whole else 38)
        _done(client, "payroll-ledger", count if whole else 21)


def _done(client: Client, queue: str, jobs: int, fails: bool = False) -> None:
    """So many items of a stage; the last one fails for good where `fails`."""
    done = 0
    while done < jobs:
        claimed = client.dequeue(DequeueRequest(queue, min(20, jobs - done), wait_ms=10_000, claim_timeout_ms=HOUR_MS))
        assert claimed, f"no item came to {queue}"
        done += len(claimed)
        acks = [
            Ack(each.descriptor, claim_descriptor=each.claim_descriptor, result=b'{"amount": 2317.5}')
            for each in claimed
        ]
        bad = acks.pop() if fails and done >= jobs else None
        client.ack(queue, acks, [])
        if bad is not None:
            why = "attempt 1 of 1: LookupError: user 61 has no contract (payroll.py:12 in calculate_wage)"
            client.ack(queue, [], [Ack(bad.descriptor, why, claim_descriptor=bad.claim_descriptor, permanent=True)])


@contextmanager
def working(stand: Stand) -> Iterator[None]:
    """Two workers and a program that enqueues, until the block ends: so that something moves."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_worker, args=(stand, "web-1", ("emails", "invoices"), stop)),
        threading.Thread(target=_worker, args=(stand, "web-2", ("exports", "thumbnails", "search-index"), stop)),
        threading.Thread(target=_producer, args=(stand, stop)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _worker(stand: Stand, host: str, queues: tuple[str, ...], stop: threading.Event) -> None:
    """Does short jobs at once, and has four that take long."""
    began_s = time.monotonic()
    with Client(f"127.0.0.1:{stand.server.port}", source=f"{host}:4711", token=stand.tokens["admin"]) as client:
        long = [
            job for queue in queues[:2] for job in client.dequeue(DequeueRequest(queue, 2, claim_timeout_ms=HOUR_MS))
        ]
        while not stop.wait(0.25):
            up_ms = int((time.monotonic() - began_s) * 1_000) + 5 * HOUR_MS
            running = [WorkerJob(job.descriptor, "export", 30_000 + up_ms % HOUR_MS) for job in long]
            report = WorkerReport(
                f"{host}-4711-1",
                "shop",
                up_ms,
                host=host,
                pid=4711,
                queues=dict.fromkeys(queues, 1),
                slots=8,
                busy_slots=len(long),
                running=running,
                versions={"app": "2026.11.3", "pinlater": "0.1.0", "python": "3.11.2"},
            )
            for number, job in enumerate(long):
                queue = job.descriptor.partition(":")[0]
                beat = Heartbeat(job.descriptor, job.claim_descriptor, 0.2 + 0.2 * number, "page 4 of 12")
                client.heartbeat(queue, [beat], worker=report)
            for queue in queues:
                done = client.dequeue(DequeueRequest(queue, 2, claim_timeout_ms=HOUR_MS, worker=report))
                client.ack(queue, [Ack(job.descriptor, "done in 0.2s") for job in done], [])


def _producer(stand: Stand, stop: threading.Event) -> None:
    numbers = iter(range(2_000, 1_000_000))
    with Client(f"127.0.0.1:{stand.server.port}", source="checkout", token=stand.tokens["admin"]) as client:
        while not stop.wait(0.25):
            for kind in _KINDS:
                if kind.queue != "webhooks":
                    client.enqueue(kind.queue, [_job(kind, next(numbers)) for _ in range(2)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
