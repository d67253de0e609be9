"""Parts that are away: the part says so, and the rest of the page is shown."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pinlater import Client
from pinlater.dashboard.page import Page
from pinlater.dashboard.snapshots import KEPT_QUEUES, KEPT_S, Snapshots
from pinlater.data_folder.password import hash_password
from pinlater.errors import ServerUnreachable
from pinlater.model import ClusterStatus, QueueStatus, RequestContext
from tests.dashboard.test_pages import until
from tests.dashboard.visitor import Visitor
from tests.http.calls import PASSWORD
from tests.server.memory_api import EchoService
from tests.server.running import running
from tests.stores.process import StoreServer


def test_a_shard_that_is_away_is_a_part_of_the_page(tmp_path: Path, durable_redis_server: StoreServer) -> None:
    stores = ["--store", f"1=sqlite:///{tmp_path}/one.db", "--store", f"2={durable_redis_server.url()}"]
    admin = ["--admin-password-hash", hash_password(PASSWORD)]
    with running(tmp_path, *stores, *admin, "--api", "127.0.0.1:0", "--call-timeout", "3s") as server:
        server.wait_for("ready")
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("mail")
        visitor = Visitor(address).open(password=PASSWORD)
        until(lambda: "All is well: 2 shards in use" in visitor.text("/dashboard"))
        durable_redis_server.kill()
        until(lambda: "Shard 2 is out" in visitor.text("/dashboard"))
        for page in ("", "/queues", "/queues/mail", "/workers", "/cluster", "/audit"):
            shown = visitor.text(f"/dashboard{page}")
            assert "This page cannot be shown" not in shown
        assert "mail" in visitor.text("/dashboard/queues")
        durable_redis_server.start()
        until(lambda: "All is well: 2 shards in use" in visitor.text("/dashboard"))


def test_a_server_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--call-timeout", "3s") as server:
        server.wait_for("ready")
        said = server.wait_for("api_ready")
        visitor = Visitor(str(said["address"])).open(
            password=(tmp_path / "pinlater-data" / "admin-password").read_text().strip()
        )
        visitor.client.timeout = 60.0
        visitor.get("/dashboard/queues")
        (worker,) = server.wait_for("ready")["workers"]
        os.kill(worker, signal.SIGSTOP)
        try:
            until(lambda: "No server answers" in visitor.text("/dashboard/queues"))
        finally:
            os.kill(worker, signal.SIGCONT)
        until(lambda: "There is no queue yet" in visitor.text("/dashboard/queues"))


class CountingApi(EchoService):
    """Its queues take as long to tell as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.fails = False
        self.may_answer = asyncio.Event()

    async def queue_names(self, *, context: RequestContext | None = None) -> set[str]:
        self.loads += 1
        await self.may_answer.wait()
        if self.fails:
            raise ServerUnreachable("nobody there")
        return {f"load-{self.loads}"}


async def test_pages_of_one_caller_share_a_load() -> None:
    api = CountingApi()
    snapshots = Snapshots(api)
    anna, ada = RequestContext("web", token="plt_a"), RequestContext("web", token="plt_b")

    async def look(context: RequestContext) -> set[str]:
        return await snapshots.get(context, "names", lambda: api.queue_names(context=context))

    together = [asyncio.ensure_future(look(anna)) for _ in range(50)]
    await asyncio.sleep(0)
    together[0].cancel()
    api.may_answer.set()
    found = await asyncio.gather(*together, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [{"load-1"}] * 49
    assert await look(anna) == {"load-1"}
    assert await look(ada) == {"load-2"}
    snapshots.forget(anna)
    assert await look(anna) == {"load-3"}
    assert await look(ada) == {"load-2"}
    await snapshots.close()


async def test_what_fails_is_tried_again() -> None:
    api = CountingApi()
    api.may_answer.set()
    api.fails = True
    snapshots = Snapshots(api)
    me = RequestContext("web")
    for _ in range(3):
        with pytest.raises(ServerUnreachable):
            await snapshots.get(me, "names", lambda: api.queue_names(context=me))
    assert api.loads == 1
    api.fails = False
    await asyncio.sleep(KEPT_S)
    assert await snapshots.get(me, "names", lambda: api.queue_names(context=me)) == {"load-2"}
    await snapshots.close()


async def test_the_clock_of_the_servers_counts() -> None:
    class FastApi(CountingApi):
        ahead_ms = 3 * 60_000

        async def cluster_status(
            self, *, queues: Sequence[str] | None = None, context: RequestContext | None = None
        ) -> ClusterStatus:
            return ClusterStatus(int(time.time() * 1000) + self.ahead_ms, [], [], [])

    api = FastApi()
    snapshots = Snapshots(api)
    for ahead_ms, told_ms in ((3 * 60_000, 3 * 60_000), (-3 * 60_000, -3 * 60_000), (300, 0)):
        api.ahead_ms = ahead_ms
        await snapshots.cluster(RequestContext("web"), fresh=True)
        assert abs(snapshots.now_ms() - time.time() * 1000 - told_ms) < 500
    await snapshots.close()


async def test_a_large_status_is_kept_for_longer() -> None:
    class LargeApi(CountingApi):
        async def cluster_status(
            self, *, queues: Sequence[str] | None = None, context: RequestContext | None = None
        ) -> ClusterStatus:
            self.loads += 1
            many = [QueueStatus(f"q{number}", 0, []) for number in range(2 * KEPT_QUEUES)]
            return ClusterStatus(self.loads, [], [], many)

    snapshots = Snapshots(LargeApi())
    me = RequestContext("web")
    await snapshots.cluster(me)
    await asyncio.sleep(KEPT_S * 1.2)
    assert (await snapshots.cluster(me)).now_ms == 1
    await asyncio.sleep(KEPT_S)
    assert (await snapshots.cluster(me)).now_ms == 2
    await snapshots.close()


async def test_a_page_whose_browser_is_gone_at_once_leaves_no_call_behind() -> None:
    """The parts of a page begin together, a turn of the loop after they were asked for."""
    page = Page(*[cast(Any, None)] * 13)
    begun: list[str] = []

    async def load() -> str:
        begun.append("load")
        return "loaded"

    gone = asyncio.ensure_future(page.part(load))
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert begun == []
    assert await page.part(load) == "loaded"
