"""Servers with judges over stores in memory, whose time is held."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pinlater.alarms.condition import QUIET_MS
from pinlater.alarms.judge import JUDGE_EVERY_MS, JUDGES, WORK, Judge
from pinlater.alarms.webhooks import AlarmWebhooks, WebhookSettings
from pinlater.cluster.worker_list import WorkerList
from pinlater.config.webhook_urls import webhook_target
from pinlater.metrics import Metrics
from pinlater.model.alarm_views import AlarmsPage
from pinlater.signed_post import PostOutcome
from tests.unit.breaking import HeldClock
from tests.unit.cluster_stand import ClusterStand, Server, cluster_stand

MINUTE = 60_000


class AlarmStand:
    """A cluster whose servers have judges."""

    def __init__(self, cluster: ClusterStand) -> None:
        self.cluster = cluster
        self.settings = WebhookSettings([webhook_target("https://ops.example/hook")])
        self.posts: list[dict[str, Any]] = []
        """What webhooks have sent."""
        self.failure = ""
        """Why they cannot."""
        self.tries = 0
        self.judges: dict[str, Judge] = {}
        self.workers: dict[str, WorkerList] = {}
        self.webhooks: dict[str, AlarmWebhooks] = {}
        self.metrics: dict[str, Metrics] = {}

    async def server(self, name: str, clock: HeldClock | None = None) -> Server:
        server = await self.cluster.server(name, clock=clock, describe=lambda: self.judges[name].describe())
        workers = WorkerList(server.members, server.time, server.membership.me.lease_name)
        self.workers[name] = workers
        self.webhooks[name] = AlarmWebhooks(self.settings, server.time, self._post)
        self.judges[name] = Judge(
            server.members,
            server.queues,
            server.membership,
            server.stats,
            server.cluster,
            workers,
            server.time,
            webhooks=self.webhooks[name],
            metrics=self.metrics.setdefault(name, Metrics()),
        )
        return server

    async def pass_time(self, ms: int = JUDGE_EVERY_MS) -> None:
        """So much later everybody has counted, told of itself, and judged where it is its turn."""
        self.cluster.clock.tick(ms)
        await self.cluster.round()
        for server in self.cluster.servers:
            await server.queues.poll()
            await server.stats.tick()
            await server.stats.drain()
        for server in self.cluster.servers:
            if server.membership.me.server in self.judges:
                await self.judges[server.membership.me.server].tick()

    async def settle(self) -> None:
        """So long that what is not found any more has ended."""
        for _ in range(QUIET_MS // JUDGE_EVERY_MS + 1):
            await self.pass_time()

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> PostOutcome:
        self.tries += 1
        if not self.failure:
            self.posts.append(json.loads(body))
        return PostOutcome(self.failure, has_answered=True)

    async def heard(self) -> list[tuple[list[str], list[str]]]:
        """The subjects of alarms that webhooks have sent of late, and of those whose end they have."""
        for webhooks in self.webhooks.values():
            await webhooks.drain()
        posts, self.posts = self.posts, []
        return [
            ([each["subject"] for each in post["alarms"]], [each["subject"] for each in post["ended"]])
            for post in posts
        ]

    async def pages(self) -> list[AlarmsPage]:
        """What each server answers."""
        return [await self.judges[each.membership.me.server].page(100) for each in self.cluster.servers]

    def judging(self) -> Server:
        """The server whose turn it is."""
        (found,) = [each for each in self.cluster.servers if each.membership.does_among(WORK, JUDGES)]
        return found


@asynccontextmanager
async def alarm_stand() -> AsyncIterator[AlarmStand]:
    """Two servers over two shards."""
    async with cluster_stand(2) as cluster:
        at = AlarmStand(cluster)
        try:
            for name in ("a", "b"):
                await at.server(name)
            await cluster.round()
            yield at
        finally:
            for judge in at.judges.values():
                await judge.close()
            for workers in at.workers.values():
                await workers.close()
