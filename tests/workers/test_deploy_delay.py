"""A deploy: half of the workers do not know a new type of job yet, and its jobs wait for seconds at most.

`-s` shows how long: from the enqueue of each job until it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from pinlater import JobState
from pinlater_workers import App
from tests.server.running import RunningServer, running
from tests.workers.site import Site, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("deploy")) as started:
        yield started


@pytest.mark.parametrize("versions", [("2026.10", "2026.11"), ("", "")], ids=["versions", "no versions"])
@pytest.mark.parametrize(("jobs", "pause_s"), [(16, 0.0), (400, 0.05)], ids=["short", "long"])
async def test_half_of_the_workers_are_old(
    server: RunningServer, jobs: int, pause_s: float, versions: tuple[str, str]
) -> None:
    async with Site(server.port) as old, Site(server.port) as new:
        began_s: dict[int, float] = {}
        loop, all_began = asyncio.get_running_loop(), asyncio.Event()
        old.app, new.app = [App(servers=old.app.servers, version=version) for version in versions]

        @old.app.job(queue=old.queue)
        def known() -> None: ...

        @new.app.job(queue=old.queue, attempts=1)
        def resize(number: int) -> None:
            began_s[number] = time.monotonic()
            if len(began_s) == jobs:
                loop.call_soon_threadsafe(all_began.set)

        async def all_are_listed() -> bool:
            return len((await old.client.get_workers(queue=old.queue)).workers) == 4

        async with contextlib.AsyncExitStack() as stack:
            for site in (old, old, new, new):
                await stack.enter_async_context(site.working(queues={old.queue: 1}))
            await until(all_are_listed)
            enqueued_s: list[float] = []
            handles = []
            for number in range(jobs):
                enqueued_s.append(time.monotonic())
                handles.append(await resize.enqueue_async(number))
                await asyncio.sleep(pause_s)
            await asyncio.wait_for(all_began.wait(), 100)  # chance alone decides who gets a job
            await old.all_succeeded(jobs)
            infos = await old.client.lookup([str(each) for each in handles])
    returned = [each.custom_status for each in infos.values() if each.custom_status]
    assert returned
    assert all("; looked for again after 1s, later less often" in status for status in returned), returned
    assert {each.state for each in infos.values()} == {JobState.SUCCEEDED}
    delays_s = sorted(began_s[number] - enqueued_s[number] for number in range(jobs))
    p99 = delays_s[min(jobs - 1, int(jobs * 0.99))]
    print(
        f"\n{jobs} jobs of a new type, {len(returned)} returned by old workers: median {delays_s[jobs // 2]:.2f} s, "
        f"p99 {p99:.2f} s, at most {delays_s[-1]:.2f} s"
    )
