"""A service with flows in this process: stores that break on demand, and a clock that the test holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pinlater.clock import Clock
from pinlater.flows.flow_engine import Flows, FlowSettings
from pinlater.metrics import Metrics
from pinlater.queues.directory import QueueDirectory
from pinlater.service.job_events import JobEvents
from pinlater.shards.router import Router
from tests.unit.stand import Stand, stand

SECRET = "not-so-secret-0123"


@dataclass
class FlowStand:
    at: Stand
    flows: Flows
    settings: FlowSettings
    metrics: Metrics


@asynccontextmanager
async def flow_stand(folder: Path, shards: int = 1) -> AsyncIterator[FlowStand]:
    settings = FlowSettings(url=f"sqlite:///{folder}/flows.db", callback_hosts=("127.0.0.1:*",), callback_secret=SECRET)
    metrics = Metrics()
    made: list[Flows] = []

    def flows_of(router: Router, queues: QueueDirectory, clock: Clock, events: JobEvents) -> Flows:
        made.append(Flows(settings, "me/1", router, queues, clock, metrics, events.ready))
        return made[0]

    async with stand(shards, flows=flows_of) as at:
        (flows,) = made
        flows.start()
        try:
            yield FlowStand(at, flows, settings, metrics)
        finally:
            await flows.close()
