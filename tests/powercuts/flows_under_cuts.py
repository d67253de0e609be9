"""Flows whose database is on the disk that is cut: what was answered of flows, items and results is there again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pinlater import Ack, AsyncClient, JobState, PinLaterError
from pinlater.errors import QueueNotFound
from pinlater.model import AckOutcome, DequeueRequest
from pinlater.model.flow_words import FlowState, ItemState, NewFlow, NewItem, Stage
from tests.faults.test_kills import STUCK_AFTER_S
from tests.powercuts.jobs_under_cuts import CUTS_A_HISTORY
from tests.powercuts.machine import Cut, Machine

QUEUE = "work"
ITEMS_A_CALL = 5
PRODUCERS, WORKERS = 4, 4
LEAST_ANSWERS = 10
MAX_FAILURES = 99


@dataclass
class Ledger:
    """What was answered: the items of each flow by their numbers, with their payloads, and the jobs of items that have
    succeeded. Of several results of one the first counts that was recorded, by docs/flows.md: also that of an ack which
    was not answered, or came behind the end of its claim.
    """

    flows: dict[str, dict[int, bytes]] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    sent: dict[str, set[bytes]] = field(default_factory=dict)
    """Results, by the jobs of items."""

    @property
    def answers(self) -> int:
        return len(self.flows) + sum(map(len, self.flows.values())) + len(self.succeeded)


class FlowsUnderCuts:
    def __init__(self, machine: Machine, seed: int) -> None:
        self._machine = machine
        self._random = random.Random(seed)
        self._ledger = Ledger()
        self._is_going = False
        self._answers_before = 0
        self.cuts: list[Cut] = []

    async def survives(self, cuts: int) -> None:
        for number in range(1, cuts + 1):
            await self.is_cut()
            if number % CUTS_A_HISTORY == 0 or number == cuts:
                await self._all_end()
                self._answers_before += self._ledger.answers
                self._ledger = Ledger()
        held = sum(cut.held["pages"] for cut in self.cuts)
        print(f"{cuts} cuts, {self._answers_before} answers; {held} pages held back")

    async def serves(self) -> None:
        """Waits until it answers."""
        async with self._client() as client:
            await self._answers(client)

    async def is_cut(self) -> None:
        seed, before = self._random.randrange(1 << 32), self._ledger.answers
        self._is_going = True
        roles = [self._produce] * PRODUCERS + [self._work] * WORKERS
        tasks = [asyncio.create_task(self._until_cut(role)) for role in roles]
        try:
            async with asyncio.timeout(STUCK_AFTER_S):
                while self._ledger.answers < before + LEAST_ANSWERS:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(self._random.uniform(0.05, 0.7))
            cut = await self._machine.cut(seed)
            self.cuts.append(cut)
            await asyncio.to_thread(self._machine.start)
        finally:
            self._is_going = False
            await asyncio.gather(*tasks)  # calls that were under way are made again, as by any client
        broken = await self._broken()
        assert not broken, f"{cut}: {len(broken)} answers do not hold: {broken[:5]}"

    def _client(self) -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self._machine.port}", timeout=10.0)

    async def _until_cut(self, role: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async with self._client() as client:
            while self._is_going:
                try:
                    await role(client)
                except QueueNotFound:  # until the first items are in it
                    await asyncio.sleep(0.05)
                except PinLaterError as error:
                    if not (error.retryable or error.reason == "OUTCOME_UNKNOWN"):
                        raise
                    await asyncio.sleep(0.05)

    async def _produce(self, client: AsyncClient) -> None:
        flow = await client.create_flow(NewFlow("cut", [Stage("work", "", QUEUE, max_failures=MAX_FAILURES)]))
        items = self._ledger.flows.setdefault(flow.id, {})
        for _ in range(3):
            payloads = [b"%d" % self._random.getrandbits(50) for _ in range(ITEMS_A_CALL)]
            numbers = await client.add_flow_items(flow.id, "work", [NewItem(payload) for payload in payloads])
            items |= zip(numbers, payloads, strict=True)

    async def _work(self, client: AsyncClient) -> None:
        jobs = await client.dequeue(DequeueRequest(QUEUE, 4, wait_ms=100))
        results = {job.descriptor: b"%d" % self._random.getrandbits(50) for job in jobs}
        acks = [
            Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=results[job.descriptor]) for job in jobs
        ]
        for job, result in results.items():
            self._ledger.sent.setdefault(job, set()).add(result)
        if acks:
            outcomes = await client.ack(QUEUE, acks, [])
            for ack, outcome in zip(acks, outcomes, strict=True):
                if outcome is AckOutcome.SUCCEEDED:
                    self._ledger.succeeded.add(ack.descriptor)

    async def _broken(self) -> list[str]:
        """What was answered and does not hold. A job of an item that has ended leads to it."""
        broken, found = [], dict[str, bytes | None]()
        async with self._client() as client:
            await self._answers(client)
            for flow, items in self._ledger.flows.items():
                try:
                    there = await self._items(client, flow)
                except PinLaterError as error:
                    broken.append(f"flow {flow}: {error}")
                    continue
                found |= {job: result for job, result, _ in there.values()}
                missing = [f"item {number}" for number in items if number not in there]
                changed = [f"item {number}" for number in items.keys() & there if there[number][2] != items[number]]
                broken += missing + changed
        sent = self._ledger.sent
        return broken + [f"result of {job}" for job in self._ledger.succeeded if found.get(job) not in sent[job]]

    async def _items(self, client: AsyncClient, flow: str) -> dict[int, tuple[str, bytes | None, bytes]]:
        found: dict[int, tuple[str, bytes | None, bytes]] = {}
        page = await client.get_flow_items(flow, limit=1_000)
        for item in page.items:
            result = item.result if item.state is ItemState.SUCCEEDED else None
            found[item.number] = (item.job, result, item.payload)
        return found

    async def _answers(self, client: AsyncClient) -> None:
        deadline = time.monotonic() + STUCK_AFTER_S
        while True:
            try:
                await client.get_flows(limit=1)
            except PinLaterError:
                said = self._machine.what_was_said()
                assert time.monotonic() < deadline, f"it does not serve again: {said}"
                await asyncio.sleep(0.1)
            else:
                return

    async def _all_end(self) -> None:
        """Every flow comes to its end, and has no item more than the last lookup showed. Those whose creation was not
        answered may be there too, and jobs whose items have ended by a late result.
        """
        async with self._client() as client:
            deadline = time.monotonic() + STUCK_AFTER_S
            while True:
                flows = (await client.get_flows(state=FlowState.RUNNING)).flows
                left = [await client.count(QUEUE, state) for state in (JobState.PENDING, JobState.IN_PROGRESS)]
                if not flows and not any(left):
                    break
                assert time.monotonic() < deadline, f"{left} jobs and flows do not end: {flows[:3]}"
                for flow in flows:
                    if not all(stage.is_sealed for stage in flow.stages):
                        await client.seal_stage(flow.id)
                await self._work(client)
        assert (broken := await self._broken()) == [], f"{[str(each) for each in self.cuts]}: {broken[:5]}"
