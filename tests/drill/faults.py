"""The faults of the drill: how each is made, what is to be said of it, and how it is mended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pinlater import Ack, DequeueRequest, ExtendedJob, Job
from pinlater.model import ScheduleChange
from pinlater.model.alarm_views import Alarm, Severity
from pinlater.model.flow_words import Applet, AppletKind, NewFlow, NewItem, Stage
from tests.drill.stand import DISK_MIB, MANY, OUTBOX, PASSWORD, Drill, call, until


@dataclass(frozen=True)
class Fault:
    """`condition` of `subject` ("": what it is called is known when it is made) is the alarm, within `within_s`, and
    may have `absorbed` others. Its texts have `says`, and the page that it leads to shows `cause`.

    `mend` does what the alarm says. None: it ends only after minutes of quiet, which the held clock proves.
    """

    condition: str
    severity: Severity
    make: Callable[[Drill], None]
    mend: Callable[[Drill, Alarm], None] | None
    within_s: float
    says: tuple[str, ...]
    cause: tuple[str, ...]
    subject: str = ""
    absorbed: frozenset[str] = frozenset()


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1].removeprefix("s")


def _processes(pid: int) -> list[int]:
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(each for child in children for each in _processes(child))]


def on_each_shard(drill: Drill, queue: str, body: bytes) -> None:
    """Jobs of this queue."""
    shards: list[str] = []
    while len(set(shards)) < 2 or len(shards) < 4:
        shards.append(shard_of(drill.client.enqueue(queue, Job(body))))


def kill_workers(drill: Drill) -> None:
    for pid in _processes(drill.workers["mail"].process.pid):
        os.kill(pid, signal.SIGKILL)
    on_each_shard(drill, "mail", call("send", 1))


def start_workers(drill: Drill, alarm: Alarm) -> None:
    drill.start_worker("mail")


def fail_one_type(drill: Drill) -> None:
    """One by one, so that each shard has of all types."""
    for number in range(40):
        drill.client.enqueue("shop", Job(call("invoice", number), attempts_allowed=1))
        drill.client.enqueue("shop", Job(call(MANY[number % len(MANY)], number)))
    for name in MANY:
        drill.client.enqueue("shop", [Job(call(name, number)) for number in range(30)])


def stop_shard(drill: Drill) -> None:
    """Its jobs have been counted."""
    until(lambda: drill.client.cluster_status().shards[1].jobs not in (None, 0), "jobs of shard 2 are counted")
    drill.store.pause()


def start_shard(drill: Drill, alarm: Alarm) -> None:
    drill.store.resume()


def key_of_shard(drill: Drill, shard: str) -> str:
    """A serialize key whose jobs live on that shard."""
    for number in range(100):
        (found,) = drill.client.enqueue("orders", [ExtendedJob(call("order", 1), serialize_key=f"tenant:{number}")])
        if shard_of(found) == shard:
            return f"tenant:{number}"
    raise AssertionError(shard)


def block_chain(drill: Drill) -> None:
    key = drill.subjects["key"] = key_of_shard(drill, "1")
    jobs = [ExtendedJob(call("order", number), serialize_key=key) for number in range(8)]
    drill.subjects["chain_blocked"] = f"orders/{key}"
    for job in jobs:
        drill.client.enqueue("orders", [job])


def cancel_first(drill: Drill, alarm: Alarm) -> None:
    """As the alarm says."""
    drill.operate(*alarm.action.partition("pinlater ")[2].split())


def forget_pause(drill: Drill) -> None:
    on_each_shard(drill, "later", call("greet", 1))


def run_command(drill: Drill, alarm: Alarm) -> None:
    """The one that the alarm names."""
    program, *arguments = alarm.command.split()
    assert program == "pinlater"
    drill.operate(*arguments)


def break_fan_out(drill: Drill) -> None:
    stages = [
        Stage("orders", "fan", "fan"),
        Stage("lines", "fan", "fan", "orders", Applet(AppletKind.MAP, "sum(result)")),
    ]
    flow = drill.client.create_flow(NewFlow("billing", stages, items={"orders": [NewItem(b"1")]}, sealed=["orders"])).id
    (job,) = drill.client.dequeue(DequeueRequest("fan", 1, wait_ms=20_000))
    drill.client.ack("fan", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=b'"no list"')], [])
    drill.subjects["flow_stuck"] = flow


def correct_fan_out(drill: Drill, alarm: Alarm) -> None:
    drill.operate(*alarm.command.split()[1:], "--stage", "lines", "--expression", "[1]")


def silence_schedule(drill: Drill) -> None:
    """Its queue goes."""
    key = drill.subjects["key"]  # so that it is at home where the chain is
    change = ScheduleChange(name="close-books", queue="nightly", body=call("close"), every_ms=1_000, serialize_key=key)
    drill.client.update_schedule(change, PASSWORD)
    drill.client.delete_queue("nightly", PASSWORD)


def make_queue(drill: Drill, alarm: Alarm) -> None:
    drill.client.create_queue("nightly")


def fill_disk(drill: Drill) -> None:
    (drill.disk / "core.7").write_bytes(bytes(DISK_MIB * 2**20 * 94 // 100))


def empty_disk(drill: Drill, alarm: Alarm) -> None:
    (drill.disk / "core.7").unlink()


def kill_relay(drill: Drill) -> None:
    """It has said that it is there."""
    until(lambda: any(each.outbox for each in drill.client.get_workers().workers), "the relay is listed")
    os.kill(drill.relay.process.pid, signal.SIGKILL)


def start_relay(drill: Drill, alarm: Alarm) -> None:
    drill.start_relay()


CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
FAULTS: dict[str, Fault] = {
    "one type of job fails": Fault(
        "failing",
        CRITICAL,
        fail_one_type,
        None,
        60.0,
        ("of the jobs fail", "the tax service refused invoice"),
        ("the tax service refused invoice", "invoice"),
        subject="shop/invoice",
        absorbed=frozenset({"attempts_failing"}),
    ),
    "a chain is stuck": Fault(
        "chain_blocked",
        WARNING,
        block_chain,
        cancel_first,
        30.0,
        ("keeps 7 others of serialize key", "pinlater job get orders:"),
        ("running", "tenant:"),
    ),
    "a paused queue is forgotten": Fault(
        "paused_long",
        INFO,
        forget_pause,
        run_command,
        30.0,
        ("later: paused, with", "by anna", "the provider is down", "$ pinlater queue resume later"),
        ("paused", "anna", "the provider is down"),
        subject="later",
    ),
    "the fan-out of a flow is broken": Fault(
        "flow_stuck",
        WARNING,
        break_fan_out,
        correct_fan_out,
        30.0,
        ("Flow billing cannot go on", "could not be made", "$ pinlater flow resume"),
        ("could not be made", "sum(result)"),
    ),
    "a schedule is silenced": Fault(
        "schedule_silent",
        WARNING,
        silence_schedule,
        make_queue,
        30.0,
        ("close-books does not fire", "its queue 'nightly' is not there"),
        ("its queue 'nightly' is not there",),
        subject="close-books",
    ),
    "a disk fills": Fault(
        "disk_low",
        WARNING,
        fill_disk,
        empty_disk,
        30.0,
        ("of the disk of its data folder is free", "MiB are free"),
        ("of the disk of its data folder is free",),
    ),
    "a relay of an outbox is gone": Fault(
        "outbox_not_relayed",
        CRITICAL,
        kill_relay,
        start_relay,
        30.0,
        ("is not relayed: its relay is gone", "announced no stop", "$ pinlater-worker outbox"),
        ("is not relayed: its relay is gone", "announced no stop"),
        subject=OUTBOX,
    ),
    "all workers of a queue are killed": Fault(
        "worker_gone",
        CRITICAL,
        kill_workers,
        start_workers,
        30.0,
        ("1 worker is gone, and none is left", "ready jobs wait"),
        ("1 worker is gone, and none is left",),
        subject="mail",
        absorbed=frozenset({"no_worker", "waits_long", "backlog_grows"}),
    ),
    "a shard is stopped": Fault(
        "shard_out",
        WARNING,
        stop_shard,
        start_shard,
        45.0,
        ("Shard 2 is out", "held there"),
        ("out",),
        subject="2",
        absorbed=frozenset({"overflow_used", "homes_stuck", "counts_old"}),
    ),
}
"""In the order in which they are made."""
