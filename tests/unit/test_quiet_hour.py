"""An hour of a cluster that is busy and healthy raises no alarm, at any judgement."""

from __future__ import annotations

from dataclasses import replace

from pinlater.alarms.judge import JUDGE_EVERY_MS
from pinlater.backends.requests import AckRequest
from pinlater.model import ANONYMOUS, Job, OutboxReport, UnknownType, WorkerReport, parse_descriptor
from tests.unit.alarm_stand import MINUTE, AlarmStand, alarm_stand
from tests.unit.cluster_stand import Server

STEP_MS = 2 * JUDGE_EVERY_MS
STEPS = 60 * MINUTE // STEP_MS
QUEUES = {"mail": 1, "later": 1}
DEPLOY_AT, REPLACE_AT = (60, 200, 330), (100, 240)
ENDS_AT = 300
"""The pause."""

LEFT = 3
"""Jobs that no worker has taken yet."""

NEW_TYPE_BEFORE = 3 * MINUTE // STEP_MS
"""So long before a deploy of the workers their producers have enqueued jobs of a type that these do not know yet."""


class Hour:
    """What producers, workers and operators do."""

    def __init__(self, stand: AlarmStand) -> None:
        self.stand = stand
        self.deployed = 0
        self.worker = WorkerReport("w0", "shop", 3_600_000, "host-1", 7, QUEUES, 4, job_types=["type0"])
        self.relay = WorkerReport("r0", "outbox relay", 3_600_000, "host-2", 7, outbox=OutboxReport("shop.db"))
        self.handed_out = dict.fromkeys(QUEUES, 0)

    @property
    def server(self) -> Server:
        """One that lives, to which workers and producers are connected."""
        return self.stand.cluster.servers[0]

    async def begin(self) -> None:
        """A queue with dead letters that lie there, and one that is paused for a while."""
        server = self.server
        for name in (*QUEUES, "letters"):
            await server.queues.create(name, "anna")
        await server.queues.change("mail", {"dead_letter_queue": "letters"}, (), False, "anna")
        until_ms = server.time.now_ms() + ENDS_AT * STEP_MS
        pause = {"paused": "true", "paused_until": str(until_ms), "paused_why": "the provider moves"}
        await server.queues.change("later", pause, (), False, "anna")
        for name, jobs in (("letters", 200), ("later", 50)):
            await server.router.enqueue(name, [Job(b"x")] * jobs, server.time.now_ms())

    async def step(self, step: int) -> None:
        if step in DEPLOY_AT:
            self.deploy()
        if step in REPLACE_AT:
            await self.replace_server(step)
        if any(0 < at - step <= NEW_TYPE_BEFORE for at in DEPLOY_AT):
            met = [UnknownType("mail", f"type{self.deployed + 1}", 1, 1_000)]
            self.worker = replace(self.worker, unknown_types=met)
        self.report(self.worker)
        self.relayed(20 if step % 30 < 5 else 0)
        server = self.server
        await server.router.enqueue("mail", [Job(b"x")] * (20 if step % 30 < 5 else 8), server.time.now_ms())
        server.metrics.add(8, "jobs_enqueued", "mail", 1)
        await self.work("mail", step)
        if step > ENDS_AT:
            await self.work("later", step)

    async def work(self, queue: str, step: int) -> None:
        """Take what is there but for a few, and end it: a job in fifty fails for good, and is a letter more."""
        server = self.server
        for store in self.stand.cluster.stores:
            claimed = (await self.stand.cluster.claimed(store, queue, 100))[LEFT * (step % 2) :]
            failed = 1 if queue == "mail" and step % 5 == 0 and claimed else 0
            acks = [
                AckRequest(ref.priority, ref.id, place >= failed)
                for place, job in enumerate(claimed)
                if (ref := parse_descriptor(job.descriptor))
            ]
            await store.ack(queue, acks, self.stand.cluster.clock.now_ms())
            server.metrics.add(len(claimed), "jobs_dequeued", queue, 1)
            server.metrics.add(len(claimed) - failed, "jobs_acked", queue, 1, "succeeded")
            server.metrics.add(failed, "jobs_acked", queue, 1, "failed")
            if failed:
                await server.router.enqueue("letters", [Job(b"x")] * failed, server.time.now_ms())

    def report(self, worker: WorkerReport) -> None:
        self.worker = replace(worker, up_ms=worker.up_ms + STEP_MS)
        self.stand.workers[self.server.membership.me.server].receive(self.worker)

    def deploy(self) -> None:
        """The worker stops in order, its connection ends, and one of the new version takes its place."""
        self.report(replace(self.worker, is_stopping=True, has_stopped=True))
        self.stand.workers[self.server.membership.me.server].connection_lost(ANONYMOUS, self.worker.id)
        self.deployed += 1
        pid, types = 7 + self.deployed, [f"type{number}" for number in range(self.deployed + 1)]
        self.worker = WorkerReport(f"w{self.deployed}", "shop", 0, "host-1", pid, QUEUES, 4, job_types=types)
        self.relayed(0, has_stopped=True)
        self.relay = WorkerReport(f"r{self.deployed}", "outbox relay", 0, "host-2", pid, outbox=OutboxReport("shop.db"))

    def relayed(self, waiting: int, *, has_stopped: bool = False) -> None:
        """The relay of an outbox, where a burst waits for some seconds now and then, says how it stands."""
        outbox = OutboxReport("shop.db", waiting, 9_000 if waiting else 0, 5 * MINUTE)
        self.relay = replace(self.relay, up_ms=self.relay.up_ms + STEP_MS, outbox=outbox, has_stopped=has_stopped)
        self.stand.workers[self.server.membership.me.server].receive(self.relay)

    async def replace_server(self, step: int) -> None:
        """The one that judges goes in order, and another one comes."""
        gone = self.stand.judging()
        await gone.membership.drain()
        await self.stand.cluster.round()
        self.stand.cluster.servers.remove(gone)
        await gone.stop()
        await self.stand.server(f"new-{step}")


async def test_an_hour_of_a_healthy_busy_cluster_raises_no_alarm() -> None:
    async with alarm_stand() as stand:
        hour = Hour(stand)
        await hour.begin()
        judged: set[str] = set()
        for step in range(STEPS):
            await hour.step(step)
            await stand.pass_time(STEP_MS)
            for page in await stand.pages():
                assert [each.title for each in page.alarms] == [], f"minute {step * STEP_MS // MINUTE}"
                judged.add(page.judged_by)
        assert len(judged) >= 1 + len(REPLACE_AT)
        assert (await stand.judges[hour.server.membership.me.server].ended_page(10)).alarms == []
        assert await stand.heard() == []
