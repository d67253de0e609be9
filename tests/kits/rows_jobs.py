"""Rows of what a job is given: its name and arguments, bodies of every kind, the order of jobs."""

from __future__ import annotations

import hashlib
import json
import time

from pinlater.model import Job, JobInfo, JobState
from pinlater_workers.envelope import Envelope, write_envelope
from pinlater_workers.worker.unknown_jobs import FirstSeen, first_seen, is_planned, next_round_ms, since_text
from tests.kits.ledger import most_at_once, spent, until
from tests.kits.site import ATTEMPTS
from tests.kits.trial import PEER, Stand, row

TEXTS = (
    "",
    "ä ß 漢字 🦊",
    'quotes " and \\ and / and </script>',
    "\u0000\u0001\u001f\u007f\u2028\ufeff",
    "\ud7ff\ue000\U0010ffff",
)
ALL_BYTES = bytes(range(256))


@row("A job runs once and succeeds, and its handler knows the descriptor, the name, the arguments and the attempt.")
def runs_once(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_a", "trial.text", {"text": "hello"})
    info = stand.site.ended([job])[job]
    assert (info.state, info.attempts_allowed) == (JobState.SUCCEEDED, ATTEMPTS)
    (begin,) = stand.worker.ledger.begins(job)
    assert (begin["name"], begin["arguments"], begin["attempt"]) == ("trial.text", {"text": "hello"}, 1)
    assert stand.worker.ledger.wait_for("end", job=job)["outcome"] == "succeeded"


@row("Texts arrive as they were sent: other scripts, control characters, the ends of Unicode.")
def texts_arrive(stand: Stand) -> None:
    sent = {stand.producer.enqueue("kits_a", "trial.text", {"text": text}): text for text in TEXTS}
    stand.worker.ledger.has_once(stand.site.ended(list(sent)))
    assert {job: stand.worker.ledger.begins(job)[0]["arguments"]["text"] for job in sent} == sent


@row("A job that Python enqueued runs here.")
def runs_what_python_enqueued(stand: Stand) -> None:
    job = stand.site.enqueue("kits_b", "trial.text", {"text": "ä from Python"})
    stand.worker.ledger.has_once(stand.site.ended([job]))
    assert stand.worker.ledger.begins(job)[0]["arguments"] == {"text": "ä from Python"}


@row("A job that is enqueued here runs in Python.")
def python_runs_what_is_enqueued(stand: Stand) -> None:
    job = stand.producer.enqueue(PEER, "trial.text", {"text": "ä for Python"})
    stand.peer.ledger.has_once(stand.site.ended([job]))
    assert stand.peer.ledger.begins(job)[0]["arguments"] == {"text": "ä for Python"}


@row("A raw body reaches its handler byte for byte: all 256 bytes, one byte, 100 KB.")
def raw_bodies_arrive(stand: Stand) -> None:
    for body in (ALL_BYTES, b"\x00", ALL_BYTES * 400):
        job = stand.site.enqueue_body("kits_raw", body)
        stand.worker.ledger.has_once(stand.site.ended([job]))
        (begin,) = stand.worker.ledger.begins(job)
        assert (begin["name"], begin["length"]) == (None, len(body))
        assert begin["sha256"] == hashlib.sha256(body).hexdigest()


@row("A body of 900 KB is enqueued and runs.")
def large_body(stand: Stand) -> None:
    text = "0123456789abcdeä" * (900_000 // 17)
    job = stand.producer.enqueue("kits_a", "trial.text", {"text": text})
    stand.worker.ledger.has_once(stand.site.ended([job]))
    assert stand.worker.ledger.begins(job)[0]["arguments"] == {"text": text}


@row("A body that lies in a tier runs as any other.")
def body_of_a_tier(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_tier", "trial.text", {"text": "tiered " * 1000})
    info = stand.site.ended([job])[job]
    assert info.body_stored_at is not None, info
    stand.worker.ledger.has_once({job: info})
    assert stand.worker.ledger.begins(job)[0]["arguments"] == {"text": "tiered " * 1000}


def is_known_as_unknown(stand: Stand, job: str) -> JobInfo:
    """A worker has put it back, and its status says since when nobody knows it, as all languages read it."""
    until(lambda: first_seen(stand.site.info(job).custom_status), lambda: f"requeued: {stand.site.info(job)}")
    info = stand.site.info(job)
    seen = first_seen(info.custom_status)
    assert seen is not None
    assert (info.state, spent(info)) == (JobState.PENDING, 0)
    assert is_planned(seen, info.run_after_ms), (seen, info.run_after_ms)
    return info


@row(
    "A job of a type that the worker does not know is requeued with a delay, and spends no attempt; "
    "its status says since when."
)
def unknown_type(stand: Stand) -> None:
    info = is_known_as_unknown(stand, stand.site.enqueue("kits_a", "trial.unknown"))
    seen = first_seen(info.custom_status)
    assert seen is not None
    assert "type trial.unknown, unknown to the workers of queue kits_a since" in info.custom_status
    assert (seen.first_ms, info.run_after_ms - seen.since_ms) == (10_000, 10_000)


def unknown_since(stand: Stand, hours: int, *, is_planned: bool) -> str:
    """A job of an unknown type that workers have put back for so long; not `is_planned`: somebody else was the last."""
    seen = FirstSeen(int(time.time() * 1000) - hours * 3_600_000, 10_000)
    line = f"since {since_text(seen.since_ms)} (web-1:1); looked for again after 10s, later less often; FAILED after 1d"
    status = f"not run: type trial.unknown, unknown to the workers of queue kits_a {line}\n"
    due_ms = next_round_ms(seen, int(time.time() * 1000) - 1_300_000) + (not is_planned)
    return stand.site.enqueue("kits_a", "trial.unknown", custom_status=status, run_after_ms=due_ms)


@row("A job whose type no worker has known for a day fails for good, and its status says why.")
def unknown_for_a_day(stand: Stand) -> None:
    job = unknown_since(stand, 25, is_planned=True)
    info = stand.site.ended([job])[job]
    assert info.state is JobState.FAILED
    assert "attempt 1 of 11: UnknownType: type trial.unknown, unknown to the workers of queue" in info.custom_status
    assert info.custom_status.count("not run:") == 1, info.custom_status


@row("That day goes on from worker to worker, and begins anew where somebody has run the job or put it off.")
def unknown_day_is_shared(stand: Stand) -> None:
    goes_on = unknown_since(stand, 20, is_planned=True)
    until(lambda: stand.site.info(goes_on).run_after_ms > time.time() * 1000, lambda: f"{stand.site.info(goes_on)}")
    assert is_known_as_unknown(stand, goes_on).custom_status.count("not run:") == 1
    begins_anew = unknown_since(stand, 25, is_planned=False)
    until(lambda: stand.site.info(begins_anew).custom_status.count("not run:") == 2, f"{begins_anew} begins anew")
    seen = first_seen(is_known_as_unknown(stand, begins_anew).custom_status)
    assert seen is not None
    assert seen.since_ms > time.time() * 1000 - 3_600_000


@row("A body of a later version of the envelope is requeued, and spends no attempt.")
def later_version(stand: Stand) -> None:
    body = b'PINLATER/2 application/json\n{"job": "trial.noop"}'
    job = stand.site.enqueue_body("kits_a", body)
    until(lambda: stand.site.info(job).run_after_ms > time.time() * 1000, lambda: f"requeued: {stand.site.info(job)}")
    info = stand.site.info(job)
    assert (info.state, spent(info)) == (JobState.PENDING, 0)


@row("A body in MessagePack runs, or is left to workers that read it, as a type that is not known; its status says so.")
def messagepack(stand: Stand) -> None:
    job = stand.site.enqueue_body("kits_a", write_envelope(Envelope(job="trial.noop", encoding="msgpack")))
    until(lambda: stand.worker.ledger.begins(job) or first_seen(stand.site.info(job).custom_status), f"it reads {job}")
    if stand.worker.ledger.begins(job):
        stand.worker.ledger.has_once(stand.site.ended([job]))
    else:
        assert "application/msgpack" in is_known_as_unknown(stand, job).custom_status


@row("A body whose first line is right and whose rest cannot be read fails for good.")
def unreadable_body(stand: Stand) -> None:
    job = stand.site.enqueue_body("kits_a", b"PINLATER/1 application/json\n{")
    assert stand.site.ended([job])[job].state is JobState.FAILED
    assert stand.worker.ledger.begins(job) == []


@row("A worker ignores keys of an envelope that it does not know, and parameters behind its content type.")
def unknown_keys(stand: Stand) -> None:
    rest = json.dumps({"job": "trial.text", "kwargs": {"text": "a"}, "args": None, "of-later": {"a": 1}})
    body = f"PINLATER/1 application/json; charset=utf-8\r\n{rest}"
    job = stand.site.enqueue_body("kits_a", body.encode())
    stand.worker.ledger.has_once(stand.site.ended([job]))
    assert stand.worker.ledger.begins(job)[0]["arguments"] == {"text": "a"}


@row("Jobs of a higher priority run first, whenever they were enqueued.")
def priority(stand: Stand) -> None:
    queue = stand.site.queue()
    late = [stand.producer.enqueue(queue, "trial.noop", priority=3) for _ in range(3)]
    soon = [stand.producer.enqueue(queue, "trial.noop", priority=1) for _ in range(3)]
    with stand.site.worker(queue, slots=1) as worker:
        worker.ledger.has_once(stand.site.ended([*late, *soon]))
        assert [each["job"] for each in worker.ledger.events("begin")] == [*soon, *late]


@row("A job with a delay does not run before its time.")
def delay(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_a", "trial.noop", delay_ms=1500)
    info = stand.site.info(job)
    assert info.run_after_ms >= info.created_at_ms + 1400
    stand.worker.ledger.has_once(stand.site.ended([job]))
    assert stand.worker.ledger.begins(job)[0]["at_ms"] >= info.run_after_ms


@row("Jobs of one serialize key run one at a time, in the order in which they were enqueued.")
def serialize_key(stand: Stand) -> None:
    jobs = [stand.producer.enqueue("kits_a", "trial.sleep", {"ms": 30}, serialize_key="one") for _ in range(5)]
    stand.worker.ledger.has_once(stand.site.ended(jobs))
    told = stand.worker.ledger.events()
    events = [each for each in told if each.get("job") in jobs and each["event"] in ("begin", "end")]
    assert [(each["job"], each["event"]) for each in events] == [
        (job, what) for job in jobs for what in ("begin", "end")
    ]


@row("All queues of a worker are served by one poll, whatever their weights, and a queue without jobs holds up none.")
def several_queues(stand: Stand) -> None:
    busy, quiet, empty = (stand.site.queue() for _ in range(3))
    jobs = [stand.site.enqueue(busy, "trial.noop") for _ in range(40)]
    jobs += [stand.site.enqueue(quiet, "trial.noop") for _ in range(4)]
    with stand.site.worker(queues={busy: 10, quiet: 1, empty: 5}, slots=2) as worker:
        worker.ledger.has_once(stand.site.ended(jobs))
        later = stand.site.enqueue(empty, "trial.noop")
        worker.ledger.has_once(stand.site.ended([later]))


@row("A worker runs as many jobs at once as it has slots, and no more.")
def slots(stand: Stand) -> None:
    queue = stand.site.queue()
    jobs = [stand.site.enqueue(queue, "trial.sleep", {"ms": 150}) for _ in range(9)]
    with stand.site.worker(queue, slots=3) as worker:
        worker.ledger.has_once(stand.site.ended(jobs))
        assert most_at_once(worker.ledger.events()) == 3


@row("800 jobs on two queues, a tenth of which fail once: each of them succeeds, none is lost, none runs twice.")
def eight_hundred(stand: Stand) -> None:
    queues = [stand.site.queue(), stand.site.queue()]
    body = {name: write_envelope(Envelope(job=name)) for name in ("trial.noop", "trial.fail_once")}
    names = ["trial.fail_once" if number % 10 == 0 else "trial.noop" for number in range(400)]
    jobs: dict[str, int] = {}
    for queue in queues:
        made = stand.site.client.enqueue(queue, [Job(body[name], attempts_allowed=ATTEMPTS) for name in names])
        jobs |= {job: 2 if name == "trial.fail_once" else 1 for job, name in zip(made, names, strict=True)}
    with stand.site.worker(queues={queues[0]: 2, queues[1]: 1}, slots=16) as worker:
        twice = [job for job, attempts in jobs.items() if attempts == 2]
        for job in twice:
            worker.ledger.wait_for("end", job=job, outcome="retry")
        until(lambda: all(spent(info) for info in stand.site.infos(twice).values()), "their failures are known")
        for job in twice:
            stand.site.hasten(job)  # where the default policy has not brought it back already
        worker.ledger.has_each(stand.site.ended(list(jobs)), jobs)
