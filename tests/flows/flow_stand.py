"""A service with flows in this process: stores that break on demand, and a clock that the test holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pinlater.flows.flow_engine import Flows, FlowSettings
from pinlater.metrics import Metrics
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
    async with stand(shards) as at:
        service = at.service
        metrics = Metrics()
        flows = Flows(settings, "me/1", at.router, service.queues, at.clock, metrics, service.fired)
        service.attach_flows(flows)
        flows.start()
        try:
            yield FlowStand(at, flows, settings, metrics)
        finally:
            await flows.close()
