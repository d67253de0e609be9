"""What a dashboard has to show: jobs in every state, workers, schedules, flows and an audit, full of awkward texts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

from pinlater import Client
from pinlater.errors import PinLaterError
from pinlater.model import (
    Ack,
    Checkpoint,
    DequeuedJob,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    Job,
    JobState,
    Misfire,
    RequestContext,
    ScheduleChange,
    WorkerJob,
    WorkerReport,
)
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from pinlater_workers.envelope import Envelope, write_envelope
from tests.browser.hostile import ODD, planted

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SAY_EVERY_S = 10.0
QUEUES = ("mail", "images", "reports", "held", "empty", "pay", "checks")
STRANGER = RequestContext(planted("source", 200), planted("request", 200))
LONG_LINE = b"x" * 65_536
BINARY = bytes(range(256)) * 4
BODIES: dict[str, bytes] = {
    "markup": planted("body").encode(),
    "odd": ODD.encode("utf-8", "surrogatepass"),
    "long": LONG_LINE,
    "binary": BINARY,
    "empty": b"",
    "json": b'{"to": "ada@example.org", "tags": ["<img/src=x/onerror=planted(\'json\')>", {"deep": [1, null, true]}]}',
    "envelope": write_envelope(
        Envelope(planted("type", 100), [planted("argument")], {"to": planted("keyword")}, {"trace": planted("header")})
    ),
    "msgpack": write_envelope(Envelope("resize", ["a.jpg", 128], encoding="msgpack")),
}
TRACEBACK = f"""attempt 2 of 2: ValueError: {planted("error")} (mail.py:42 in deliver) [2026-11-23T00:09:12Z, 1.2s, w:1]
  File "/srv/shop/mail.py", line 42, in deliver
    smtp.connect("{planted("frame")}")
  ... 2 frames of smtplib, socket, down to socket.py:850 in create_connection
"""

_run_numbers = count()


@dataclass
class Seeded:
    """Descriptors of jobs by what they are, and the id of a flow."""

    jobs: dict[str, str] = field(default_factory=dict)
    flow: str = ""


def seed(client: Client, password: str) -> Seeded:
    """Fill what the client's server serves; the password where the client may not operate by itself."""
    seeded = Seeded()
    for queue in (*QUEUES, "mail_dead"):
        client.create_queue(queue, context=STRANGER)
    client.update_queue("mail", password, set={"dead_letter_queue": "mail_dead", "failed_ttl": "7d"})
    client.update_queue("images", password, set={"max_jobs_per_second": "100/s", "max_in_progress": "50"})
    _pause(client, password)
    _bodies(client, seeded)
    _states(client, seeded)
    _schedules(client, password)
    _flow(client, seeded)
    return seeded


def failed_jobs(client: Client, number: int) -> str:
    """A queue of its own with so many jobs that failed; every second one by a time-out. The queue."""
    queue = f"run-{next(_run_numbers)}"
    client.create_queue(queue)
    for first in range(0, number, 1_000):
        client.enqueue(queue, [Job(b"x")] * min(1_000, number - first))
    done = 0
    while done < number:
        claimed = client.dequeue(DequeueRequest(queue, 1_000, wait_ms=5_000))
        why = {0: "attempt 1 of 1: TimeoutError: late", 1: "attempt 1 of 1: KeyError: 'vat_id'"}
        acks = [Ack(job.descriptor, why[at % 2], permanent=True) for at, job in enumerate(claimed, done)]
        client.ack(queue, [], acks)
        done += len(claimed)
    return queue


def _pause(client: Client, password: str) -> None:
    until_ms = _now_ms() + 5 * HOUR_MS
    paused = {"paused": "true", "paused_why": planted("reason", 400), "paused_until": str(until_ms)}
    client.update_queue("held", password, set=paused, context=STRANGER)
    client.enqueue("held", [Job(b"waits")] * 3)


def _bodies(client: Client, seeded: Seeded) -> None:
    for name, body in BODIES.items():
        job = ExtendedJob(
            body,
            priority=2,
            custom_status=planted("status"),
            dedupe_key=planted(f"dedupe-{name}", 200),
            serialize_key=planted("serialize", 200) if name == "markup" else "",
        )
        seeded.jobs[name] = client.enqueue("images", job, context=STRANGER)
    behind = ExtendedJob(b"behind", priority=2, serialize_key=planted("serialize", 200))
    seeded.jobs["behind"] = client.enqueue("images", behind, context=STRANGER)


def _states(client: Client, seeded: Seeded) -> None:
    """In the queue mail, a job at least in each state, under names that say which."""
    later_ms = _now_ms() + 3 * HOUR_MS
    seeded.jobs["scheduled"] = client.enqueue("mail", Job(b"later", run_after_ms=later_ms, custom_status="for later"))
    _, *done = _claimed(client, "mail", [b"done %d" % number for number in range(6)])
    client.ack(
        "mail", [Ack(each.descriptor, planted("ending"), result=planted("result").encode()) for each in done], []
    )
    seeded.jobs["succeeded"] = done[0].descriptor
    failed = _claimed(client, "mail", [BODIES["envelope"], b"fails"])
    acks = [Ack(each.descriptor, TRACEBACK, claim_descriptor=each.claim_descriptor, permanent=True) for each in failed]
    client.ack("mail", [], acks)
    seeded.jobs["failed"] = failed[0].descriptor
    (tried,) = _claimed(client, "mail", [b"tried once"], attempts=5)
    client.ack("mail", [], [Ack(tried.descriptor, f"attempt 1 of 5: {ODD}", retry_delay_ms=HOUR_MS)])
    seeded.jobs["retried"] = tried.descriptor
    (running,) = _claimed(client, "mail", [BODIES["envelope"]])
    client.heartbeat("mail", [Heartbeat(running.descriptor, running.claim_descriptor, 0.4, planted("progress", 200))])
    client.checkpoint("mail", [Checkpoint(running.descriptor, prepend_status=planted("checkpoint"))], context=STRANGER)
    seeded.jobs["running"] = running.descriptor
    (cancelled,) = _claimed(client, "mail", [b"cancelled"])
    client.cancel("mail", [cancelled.descriptor], running=True, context=STRANGER)
    client.ack("mail", [], [Ack(cancelled.descriptor, "stopped", claim_descriptor=cancelled.claim_descriptor)])
    seeded.jobs["cancelled"] = cancelled.descriptor
    seeded.jobs["ready"], *_ = client.enqueue("mail", [Job(b"ready %d" % number) for number in range(30)])


def _claimed(client: Client, queue: str, bodies: Sequence[bytes], attempts: int = 2) -> list[DequeuedJob]:
    """New jobs of a queue, claimed for an hour by a stranger."""
    made = client.enqueue(queue, [Job(body, attempts_allowed=attempts) for body in bodies])
    request = DequeueRequest(queue, len(bodies), claim_timeout_ms=HOUR_MS, wait_ms=5_000)
    claimed = client.dequeue(request, context=STRANGER)
    assert {each.descriptor for each in claimed} == set(made)
    return claimed


def _schedules(client: Client, password: str) -> None:
    client.update_schedule(
        ScheduleChange(name="nightly.report", queue="reports", cron="0 3 * * *", timezone="Europe/Zurich", body=b"{}"),
        password,
        context=STRANGER,
    )
    client.update_schedule(
        ScheduleChange(
            name="hostile:every-hour",
            queue="reports",
            every_ms=HOUR_MS,
            body=BODIES["markup"],
            serialize_key=planted("schedule-key", 200),
            misfire=Misfire.SKIP,
            paused=True,
            made_by=planted("maker", 90),
        ),
        password,
        context=STRANGER,
    )


def _flow(client: Client, seeded: Seeded) -> None:
    calculate = Stage("calculate", planted("stage-type", 90), "pay", max_failures=1, backoff_ms=0)
    pay = Stage("pay", "pay", "checks", parent="calculate", is_final=True)
    items = [
        NewItem(f'{{"who": "{name}"}}'.encode(), dedupe_key=planted(f"item-{name}", 200))
        for name in ("ada", "bob", "eve")
    ]
    flow = NewFlow(
        "payroll",
        [calculate, pay],
        dedupe_key=planted("flow-key", 200),
        metadata={planted("label", 60): planted("metadata", 90)},
        items={"calculate": items},
    )
    seeded.flow = client.create_flow(flow, context=STRANGER).id
    first, second = client.dequeue(DequeueRequest("pay", 2, claim_timeout_ms=HOUR_MS, wait_ms=10_000), context=STRANGER)
    result = b'{"amount": 7, "note": "<script>planted(\'item result\')</script>"}'
    client.ack("pay", [Ack(first.descriptor, claim_descriptor=first.claim_descriptor, result=result)], [])
    why = planted("item-failure")
    client.ack("pay", [], [Ack(second.descriptor, why, claim_descriptor=second.claim_descriptor, permanent=True)])


def say_workers(client: Client, seeded: Seeded) -> None:
    """Two workers say of themselves what workers say; it counts for a minute."""
    running = [WorkerJob(seeded.jobs["running"], planted("running-type", 200), 65_000)]
    for number, name in enumerate((planted("worker", 100), "mailer")):
        report = WorkerReport(
            f"worker-{number}",
            name,
            7 * HOUR_MS + _now_ms() % DAY_MS,
            host=planted("host", 100),
            pid=4711,
            queues={"mail": 3, "images": 1},
            slots=8,
            busy_slots=3,
            stuck_slots=1,
            running=running,
            versions={"app": planted("version", 100), "python": "3.11.2"},
        )
        client.dequeue(DequeueRequest("empty", 1, worker=report), context=STRANGER)


@contextmanager
def workers_alive(client: Client, seeded: Seeded) -> Iterator[None]:
    """They go on saying so until the block ends."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(SAY_EVERY_S):
            with suppress(PinLaterError):
                say_workers(client, seeded)

    say_workers(client, seeded)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_in(client: Client, descriptor: str) -> JobState:
    """The state of a job as the servers say it."""
    return client.lookup([descriptor])[descriptor].state


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
