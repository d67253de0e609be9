"""Flows of several stages whose items fan out, fail, are tried again, and come to an end that is waited for."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace

from pinlater.errors import FlowNotFound, PinLaterError
from pinlater.model import DequeuedJob
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowState,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)
from tests.simulation.callers import Caller, Callers
from tests.simulation.parts.part import Part, PartSettings, Program
from tests.simulation.parts.worker import Habits, Worker

ITEMS, CALLBACKS = "flow-items", "flow-callbacks"
HABITS = Habits(fails=0.2, changes=0.0, is_unfenced=0.0, reports=1.0, forgets=0.05, renews_late=0.1)


class _ItemWorker(Worker):
    """What it returns is a list of up to three, which makes as many children where the next stage takes lists."""

    def result(self, job: DequeuedJob) -> bytes:
        return json.dumps([{"page": page} for page in range(self.rng.randint(1, 3))]).encode()


class Flows(Part):
    NAME = "flows"

    def __init__(self, callers: Callers, rng: random.Random, settings: PartSettings | None = None) -> None:
        super().__init__(callers, rng, settings)
        self._flows: dict[str, None] = {}
        """Those that were made and are not known to be over."""

        self._left_alone: set[str] = set()
        """Of these, those of which nobody tries items again or gives any up: what comes of them is told exactly."""

    async def set_up(self) -> None:
        for queue in (ITEMS, CALLBACKS):
            await self.set_up_queue(queue, succeeded_ttl="10m")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("callbacks", self._call_back),
            Program("operator", self._operate, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await _ItemWorker(self, caller, rng, [ITEMS], HABITS).run()

    async def _call_back(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [CALLBACKS], Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            flow = self._flow(caller, rng)
            made = await self.call("create_flow", caller.client.create_flow(flow))
            if made is None:
                continue
            self._flows[made.id] = None
            if rng.random() < 0.5:
                self._left_alone.add(made.id)
            first = flow.stages[0].name
            for _ in range(rng.randint(0, 2)):
                added = caller.client.add_flow_items(made.id, first, self._items(caller, rng))
                await self.call("add_flow_items", added)
            await self.call("seal_stage", caller.client.seal_stage(made.id))
            if rng.random() < 0.5:
                await self.call("get_flow", caller.client.get_flow(made.id, wait_ms=rng.randint(1_000, 30_000)))

    def _flow(self, caller: Caller, rng: random.Random) -> NewFlow:
        kinds = (
            Applet(),
            Applet(AppletKind.LIST),
            Applet(AppletKind.MAP, "result[].{page: page}"),
            Applet(AppletKind.JOB, job="split", queue=ITEMS),
        )
        max_failures, backoff_ms = rng.randint(0, 3), rng.randint(100, 2_000)
        stages = [Stage("first", "work", ITEMS, max_failures=max_failures, backoff_ms=backoff_ms)]
        for number in range(rng.randint(0, 2)):
            parent = rng.choice(stages).name
            applet = rng.choice(kinds)
            stages.append(Stage(f"next-{number}", "work", ITEMS, parent, applet, max_failures, backoff_ms))
        return NewFlow(
            "flow",
            stages,
            dedupe_key=rng.choice(("", self.body(caller).decode())),
            on_complete=rng.choice((None, CompletionCallback(CALLBACKS, "done"))),
            on_failure=rng.choice((OnFailure.GO_ON, OnFailure.GO_ON, OnFailure.STOP_STAGE, OnFailure.STOP_FLOW)),
            items={"first": self._items(caller, rng)},
        )

    def _items(self, caller: Caller, rng: random.Random) -> list[NewItem]:
        return [
            NewItem(
                json.dumps({"page": self.body(caller).decode()}).encode(),
                dedupe_key=rng.choice(("", f"key-{rng.randrange(5)}")),
                serialize_key=rng.choice(("", "", "one-at-a-time")),
            )
            for _ in range(rng.randint(1, self.settings.burst))
        ]

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        """Somebody who tries items again, and sometimes gives a flow up."""
        while True:
            await self.rest(rng)
            flows = [flow_id for flow_id in self._flows if flow_id not in self._left_alone]
            if not flows:
                continue
            flow_id, client = rng.choice(flows), caller.client
            deed = rng.random()
            if deed < 0.5:
                again = client.retry_flow_items(flow_id, failed=True, and_follows=rng.random() < 0.3)
                await self.call("retry_flow_items", again)
            elif deed < 0.55:
                await self.call("cancel_flow", client.cancel_flow(flow_id))
            elif deed < 0.58:
                await self.call("delete_flow", client.delete_flow(flow_id))
            elif deed < 0.75:
                await self._take_item(caller, rng, flow_id)
            elif deed < 0.85:
                await self.call("resume_flow", client.resume_flow(flow_id))
            else:
                await self._see(caller, flow_id)

    async def _take_item(self, caller: Caller, rng: random.Random, flow_id: str) -> None:
        """Works on an item that is chosen."""
        page = await self.call("get_flow_items", caller.client.get_flow_items(flow_id))
        if page is not None and page.items:
            number = rng.choice(page.items).number
            taken = await self.call("assign_item", caller.client.assign_item(number))
            if taken is not None and taken.job is not None:
                await _ItemWorker(self, caller, rng, [ITEMS], replace(HABITS, rides=0.0)).work(taken.job)

    async def _see(self, caller: Caller, flow_id: str) -> str:
        """What keeps a flow from its end; "": nothing, it is over or not there any more."""
        try:
            flow = await caller.client.get_flow(flow_id)
        except FlowNotFound:
            return ""
        except PinLaterError as error:
            self.callers.failed(error, "get_flow")
            return "cannot be looked up"
        if flow.state is FlowState.RUNNING:
            return f"{flow.state.name} {'; '.join(flow.troubles)}"
        if flow.callback is not None and flow.callback.done_ms is None:
            return f"its callback was not made: {flow.callback.error}"
        return ""

    async def unended(self, caller: Caller) -> dict[str, str]:
        left = await super().unended(caller)
        for flow_id in list(self._flows):
            why = await self._see(caller, flow_id)
            if not why:
                self._flows.pop(flow_id, None)
                await self.call("get_flow_items", caller.client.get_flow_items(flow_id, limit=1_000))
                continue
            left[f"flow {flow_id}"] = why
            await self.call("seal_stage", caller.client.seal_stage(flow_id))
            if "could not be made" in why:
                await self.call("resume_flow", caller.client.resume_flow(flow_id))
        return left
