"""What callers of a soak do: each part enqueues jobs of one kind, at its rate, until it is told to end.

A part is a coroutine of `Callers`, and a row of PARTS. Its jobs are in the ledger; its calls are in the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import aiohttp

from pinlater import AsyncClient, ExtendedJob, Job, JobFilter, JobState
from pinlater.errors import PinLaterError
from pinlater.model import CancelOutcome, EnqueuedJobs, EnqueueOutcome, Misfire, RescheduleJob, ScheduleChange
from pinlater.model.flow_words import Applet, AppletKind, FlowState, NewFlow, NewItem, Stage
from tests.patience import until_answered
from tests.soak.jobs import ATTEMPTS, FINE, QUEUES, REFUSES, STUMBLES, app, work, work_apart
from tests.soak.ledger import Latencies, Ledger
from tests.soak.stand import PASSWORD, Site

T = TypeVar("T")
LATEST_MS = 2_000
ONE_AT_A_TIME = 12
"""How many serialize keys there are."""

NAMES = 40
"""How many dedupe keys: so few that some are taken."""

TENANTS = ("busy", "busy", "busy", "calm", "small")
MOST_OF_A_TENANT = 4
ITEMS = 6
FLOW_WITHIN_S, ANSWERED_WITHIN_S = 120.0, 90.0
READ_WITHIN_S = 10.0
"""What jobs write down is read some time later."""

CONNECTIONS = 4
"""More than any server has processes."""

SCHEDULES = 4
EVERY_MS = 2_000
AN_HOUR_MS = 3_600_000
CALL_WITHIN_S = 15.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Callers:
    """Those of one site. `resends`: there is a part more, whose jobs the store remembers for ten minutes."""

    def __init__(
        self,
        site: Site,
        ledger: Ledger,
        latencies: Latencies,
        *,
        rate: float,
        flow_ttl_s: int,
        seed: int,
        resends: bool,
    ) -> None:
        self.site = site
        self.client = AsyncClient(servers=site.addresses, timeout=CALL_WITHIN_S, history=site.run.folder)
        self._ledger = ledger
        self._latencies = latencies
        self._rate = rate
        self._flow_ttl_ms = flow_ttl_s * 1_000
        self._dice = random.Random(seed)
        self._resends = resends
        self._going = True
        self._tasks: list[asyncio.Task[None]] = []
        self._flows: set[asyncio.Task[None]] = set()
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(CALL_WITHIN_S))
        self._made = 0
        self._fired: dict[str, set[int]] = {}
        """Times of schedules whose jobs ran."""

    # -- from begin to end -------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Queues, settings and schedules; known to every server when it returns."""
        for queue in QUEUES:
            await self.safely(lambda queue=queue: self.client.create_queue(queue))  # type: ignore[misc]
        limit = {"group_concurrency": str(MOST_OF_A_TENANT)}
        await self.safely(lambda: self.client.update_queue("tenants", PASSWORD, set=limit))
        await self._known_everywhere()
        await self.safely(lambda: self.client.get_groups("tenants", limit=1_000))
        await self.safely(self.client.get_queues)
        body = app.job_types["tick"].body()
        for number in range(SCHEDULES):
            change = ScheduleChange(
                name=f"every-{number}",
                queue="ticks",
                body=body,
                every_ms=EVERY_MS,
                misfire=Misfire.RUN_ALL,
                attempts_allowed=ATTEMPTS,
            )
            await self.safely(lambda change=change: self.client.update_schedule(change, PASSWORD))  # type: ignore[misc]

    def start(self) -> None:
        parts = {**PARTS, **({"resent": (Callers.resent, 1.0)} if self._resends else {})}
        for name, (step, per_s) in parts.items():
            self._tasks.append(asyncio.create_task(self._go_on(name, step, per_s * self._rate)))

    async def _go_on(self, name: str, step: Callable[[Callers], Awaitable[None]], per_s: float) -> None:
        while self._going:
            began_s = time.monotonic()
            self._ledger.calls[name] += 1
            try:
                await step(self)
            except PinLaterError as error:
                self._refused(name, error)
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                self._ledger.unanswered[f"{name}: {type(error).__name__}"] += 1
            pause_s = self._dice.expovariate(per_s) - (time.monotonic() - began_s)
            await asyncio.sleep(max(0.01, pause_s))

    def _refused(self, name: str, error: PinLaterError) -> None:
        if error.retryable or error.reason == "OUTCOME_UNKNOWN":
            self._ledger.unanswered[f"{name}: {error.reason or type(error).__name__}"] += 1
        else:
            self._ledger.faults.append(f"{name}: {type(error).__name__}: {error.message}")

    async def stop(self) -> None:
        """Nothing is enqueued any more, and all flows are over."""
        self._going = False
        for task in self._tasks:
            await task
        for number in range(SCHEDULES):
            pause = ScheduleChange(name=f"every-{number}", paused=True)
            await self.safely(lambda pause=pause: self.client.update_schedule(pause, PASSWORD))  # type: ignore[misc]
        await asyncio.gather(*self._flows)
        await self._bring_forward()
        await self._schedules_rest()

    async def _known_everywhere(self) -> None:
        """Connections are dealt to the processes of a server in turn: until so many in a row know all queues."""
        for address in self.site.addresses:
            for _ in range(CONNECTIONS):
                async with AsyncClient(address, timeout=CALL_WITHIN_S, history="") as client:
                    while not await self.safely(client.queue_names) >= set(QUEUES):
                        await asyncio.sleep(0.1)

    async def _bring_forward(self) -> None:
        """Jobs that are an hour away because nobody knows whether they were enqueued: they run now."""
        hidden = JobFilter("later", JobState.PENDING, future=True)
        while jobs := (await self.safely(lambda: self.client.scan(hidden, limit=500))).jobs:
            soon = [RescheduleJob(job.descriptor, run_after_ms=now_ms()) for job in jobs]
            await self.safely(lambda: self.client.reschedule("later", soon))  # noqa: B023

    async def _schedules_rest(self) -> None:
        """A pause counts at every server within two seconds: until none has fired for longer than that."""
        fired: list[int | None] = []
        since_s = time.monotonic()
        while time.monotonic() < since_s + 3.0:
            await asyncio.sleep(0.5)
            page = await self.safely(lambda: self.client.get_schedules(limit=1_000))
            now = [view.last_fired_ms for view in page.schedules]
            if now != fired:
                fired, since_s = now, time.monotonic()

    async def left(self) -> dict[str, int]:
        """Jobs that have not ended, by queue."""
        states = [(JobState.PENDING, False), (JobState.PENDING, True), (JobState.IN_PROGRESS, False)]
        filters = [JobFilter(queue, state, future=future) for queue in QUEUES for state, future in states]
        counts = await self.safely(lambda: self.client.counts(filters))
        found: dict[str, int] = {}
        for each, count in zip(filters, counts, strict=True):
            if count:
                found[each.queue] = found.get(each.queue, 0) + count
        return found

    async def close(self) -> None:
        self._going = False
        for task in (*self._tasks, *self._flows):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._flows, return_exceptions=True)
        await self._http.close()
        await self.client.close()

    async def safely(self, call: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(call, ANSWERED_WITHIN_S)

    # -- the parts ---------------------------------------------------------------------------------------------------

    async def _enqueue(self, queue: str, part: str, jobs: Sequence[Job], numbers: Sequence[int], **more: Any) -> None:
        began_s = time.monotonic()
        answer = await self.client.enqueue(queue, jobs, **more)
        self._latencies.add("enqueue", (time.monotonic() - began_s) * 1000)
        outcomes = answer.outcomes if isinstance(answer, EnqueuedJobs) else ()
        kept = [number for number, each in zip(numbers, outcomes, strict=False) if each is EnqueueOutcome.KEPT]
        for number in kept:
            self._ledger.void(number)
        self._ledger.stored(part, [number for number in numbers if number not in kept])

    def _fate(self) -> str:
        thrown = self._dice.random()
        return REFUSES if thrown < 0.01 else STUMBLES if thrown < 0.05 else FINE

    async def mail(self) -> None:
        """Plain jobs, some of them for later, some of which fail once or for good."""
        jobs, numbers = [], []
        for _ in range(self._dice.choice((1, 4, 8))):
            delay_ms = self._dice.choice((0, 0, 0, self._dice.randrange(1, LATEST_MS)))
            numbers.append(self._ledger.number("mail", waits=not delay_ms))
            body = work.body(numbers[-1], self._fate())
            jobs.append(Job(body, self._dice.randint(1, 3), now_ms() + delay_ms, ATTEMPTS))
        await self._enqueue("mail", "mail", jobs, numbers)

    async def keyed(self) -> None:
        """A name that may be taken: the job of that name is kept then, and this one is not stored."""
        number = self._ledger.number("keyed")
        key = f"name-{self._dice.randrange(NAMES)}"
        job = ExtendedJob(work.body(number), attempts_allowed=ATTEMPTS, dedupe_key=key)
        await self._enqueue("keyed", "keyed", [job], [number])

    async def chained(self) -> None:
        numbers = [self._ledger.number("chained") for _ in range(3)]
        key = f"chain-{self._dice.randrange(ONE_AT_A_TIME)}"
        jobs = [ExtendedJob(work.body(each), attempts_allowed=ATTEMPTS, serialize_key=key) for each in numbers]
        await self._enqueue("chained", "chained", jobs, numbers)

    async def tenants(self) -> None:
        numbers = [self._ledger.number("tenants") for _ in TENANTS]
        pairs = zip(numbers, TENANTS, strict=True)
        jobs = [ExtendedJob(work.body(each), attempts_allowed=ATTEMPTS, group=tenant) for each, tenant in pairs]
        await self._enqueue("tenants", "tenants", jobs, numbers)

    async def large(self) -> None:
        """A body that goes to the folder."""
        number = self._ledger.number("large")
        filling = f"{number} ".ljust(self._dice.randrange(20_000, 60_000), "x")
        await self._enqueue("large", "large", [Job(work.body(number, FINE, filling), 1, None, ATTEMPTS)], [number])

    async def apart(self) -> None:
        number = self._ledger.number("apart")
        await self._enqueue("apart", "apart", [Job(work_apart.body(number), 1, None, ATTEMPTS)], [number])

    async def later(self) -> None:
        """Three that are an hour away: one is cancelled, the others come early after all."""
        numbers = [self._ledger.number("later", waits=False) for _ in range(3)]
        jobs = [Job(work.body(each), 1, now_ms() + AN_HOUR_MS, ATTEMPTS) for each in numbers]
        descriptors = list(await self.client.enqueue("later", jobs))
        cancelled = await self.safely(lambda: self.client.cancel("later", descriptors[:1]))
        if set(cancelled.values()) <= {CancelOutcome.CANCELLED, CancelOutcome.NOT_FOUND}:
            self._ledger.void(numbers[0])  # not found: an earlier copy of this call was carried out
        else:
            self._ledger.faults.append(f"later: cancelled {cancelled}")
        self._ledger.stored("later", numbers[1:])
        soon = [RescheduleJob(descriptor, run_after_ms=now_ms()) for descriptor in descriptors[1:]]
        await self.safely(lambda: self.client.reschedule("later", soon))

    async def resent(self) -> None:
        """Stored once however often it is sent, so that its outcome is always known in the end."""
        number = self._ledger.number("resent")
        job = ExtendedJob(work.body(number), attempts_allowed=ATTEMPTS)
        await self._enqueue("mail", "resent", [job], [number], resend=True)

    async def web(self) -> None:
        """Over HTTP."""
        number = self._ledger.number("web")
        server = self._dice.choice(self.site.servers)
        form = {"body": work.body(number).decode(), "attempts_allowed": ATTEMPTS}
        address = f"http://127.0.0.1:{server.api_port}/v1/queues/web/jobs"
        async with self._http.post(address, json=form) as answer:
            text = await answer.text()
            if answer.status == 201:
                self._ledger.stored("web", [number])
            elif answer.status < 500 and answer.status != 429:
                self._ledger.faults.append(f"web: {answer.status} {text[:200]}")
            else:
                self._ledger.unanswered[f"web: {answer.status}"] += 1

    async def looks(self) -> None:
        """What operators and their programs ask all day."""
        await self.client.cluster_status()
        await self.client.count(JobFilter("mail", JobState.PENDING))
        await self.client.get_schedules()
        await self.client.get_groups("tenants")

    async def flow(self) -> None:
        """Begins one; it goes on beside the next."""
        self._made += 1
        key = f"{self._made}"
        tries = {"max_failures": 50, "backoff_ms": 100, "max_backoff_ms": 500}
        stages = (
            Stage("first", "step", "steps", **tries),  # type: ignore[arg-type]
            Stage(
                *("second", "step", "steps", "first", Applet(AppletKind.MAP, "{flow: payload.flow, item: result}")),
                **tries,  # type: ignore[arg-type]
                is_final=True,
            ),
        )
        name = f"{self.site.name} {key}"
        items = [NewItem(json.dumps({"flow": name, "item": number}).encode()) for number in range(ITEMS)]
        new = NewFlow("soak", stages, key, ttl_ms=self._flow_ttl_ms, items={"first": items}, sealed=["first"])
        created = await self.safely(lambda: self.client.create_flow(new))
        self._ledger.given["flow"] += 1
        task = asyncio.create_task(self._see_through(created.id, name))
        self._flows.add(task)
        task.add_done_callback(self._flows.discard)

    async def _see_through(self, flow_id: str, name: str) -> None:
        until_s = time.monotonic() + FLOW_WITHIN_S
        status = None
        while time.monotonic() < until_s:
            with contextlib.suppress(TimeoutError):
                status = await self.safely(lambda: self.client.get_flow(flow_id, wait_ms=2_000))
                if status.completed_ms is not None:
                    break
        ended = None if status is None else [(each.stage.name, each.succeeded) for each in status.stages]
        if status is None or status.state is not FlowState.COMPLETE or ended != [("first", ITEMS), ("second", ITEMS)]:
            self._ledger.faults.append(f"flow {name} is not as it should be: {status}")
        until_s = time.monotonic() + READ_WITHIN_S
        while self._ledger.items[name] < 2 * ITEMS and time.monotonic() < until_s:
            await asyncio.sleep(0.2)
        if (ran := self._ledger.items.pop(name, 0)) < 2 * ITEMS:
            self._ledger.faults.append(f"flow {name} is complete, and {ran} of its {2 * ITEMS} items ran")
        self._ledger.ended["flow"] += 1

    # -- schedules ---------------------------------------------------------------------------------------------------

    async def look_at_ticks(self, descriptors: Sequence[str]) -> list[str]:
        """Which times these jobs stand for; those that could not be looked up."""
        try:
            found = await self.client.lookup(descriptors)
        except PinLaterError:
            return list(descriptors)
        for info in found.values():
            _, name, at_ms = (info.dedupe_key or "//").split("/")
            self._fired.setdefault(name, set()).add(int(at_ms))
        if missing := [each for each in descriptors if each not in found]:
            self._ledger.faults.append(f"jobs of schedules ran, and are not there: {missing[:3]}")
        return []

    async def judge_schedules(self) -> None:
        """Each time was fired, and its job ran."""
        page = await self.safely(lambda: self.client.get_schedules(limit=1_000))
        for view in page.schedules:
            times = sorted(self._fired.get(view.schedule.name, ()))
            if not times or times != list(range(times[0], times[-1] + 1, EVERY_MS)) or times[-1] != view.last_fired_ms:
                gaps = [(a, b) for a, b in pairwise(times) if b - a != EVERY_MS]
                self._ledger.faults.append(
                    f"schedule {view.schedule.name} of {self.site.name}: {len(times)} times ran, "
                    f"gaps {gaps[:5]}, the last {times[-1:]}, fired last {view.last_fired_ms}"
                )
            self._ledger.given["tick"] += len(times)
            self._ledger.ended["tick"] += len(times)


PARTS: dict[str, tuple[Callable[[Callers], Awaitable[None]], float]] = {
    "mail": (Callers.mail, 2.0),
    "keyed": (Callers.keyed, 2.0),
    "chained": (Callers.chained, 1.0),
    "tenants": (Callers.tenants, 1.0),
    "large": (Callers.large, 1.5),
    "apart": (Callers.apart, 1.0),
    "later": (Callers.later, 0.3),
    "web": (Callers.web, 1.0),
    "looks": (Callers.looks, 0.5),
    "flow": (Callers.flow, 0.2),
}
"""With the calls a second, at a rate of 1."""
