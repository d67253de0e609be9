"""What the clients and the HTTP interface send of groups to an older server: nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from pinlater import AsyncClient, Client, ExtendedJob, Job
from pinlater.data_folder.password import hash_password
from pinlater.errors import GroupsNotYet
from pinlater.model import ScheduleChange
from pinlater.model.flow_words import NewFlow, Stage
from tests.server.http_site import http_site
from tests.server.older import older_server
from tests.server.running import RunningServer, running

pytestmark = pytest.mark.usefixtures("way")

PASSWORD = "correct horse"
PROBE = "getGroups"
SOON_S = 3.0
"""A client tries again for so long before it says that it is not yet, and the first try has to come through."""

GROUPED = ExtendedJob(b"", group="acme")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("served"), "--admin-password-hash", hash_password(PASSWORD)) as started:
        yield started


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", "_").replace("]", "")[-60:].lstrip("_")


def make_queue(server: RunningServer, queue: str) -> None:
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue(queue)


async def test_an_older_server_gets_no_group(server: RunningServer, queue: str) -> None:
    make_queue(server, queue)
    async with older_server(server.port, PROBE) as older, AsyncClient(older.address, timeout=SOON_S) as client:
        schedule = ScheduleChange(name="nightly", queue=queue, body=b"", cron="0 3 * * *", group="acme")
        refused = [
            client.enqueue(queue, GROUPED),
            client.enqueue(queue, [Job(b""), GROUPED]),
            client.enqueue(queue, ExtendedJob(b"", dedupe_key="a", group="acme")),
            client.update_schedule(schedule, PASSWORD),
            client.create_flow(NewFlow("pay", [Stage("pay", "pay", queue, group="{tenant}")])),
        ]
        for error in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(error, GroupsNotYet), error
            assert "does not know groups" in str(error)
            assert (error.reason, error.retryable) == ("GROUPS_NOT_YET", True)
        assert not older.calls.keys() & {"enqueueJobs", "updateSchedule", "createFlow"}


async def test_what_has_no_group_goes_there_and_nothing_is_asked(server: RunningServer, queue: str) -> None:
    async with older_server(server.port, PROBE) as older, AsyncClient(older.address, timeout=30) as client:
        await client.create_queue(queue)
        await client.enqueue(queue, Job(b""))
        await client.enqueue(queue, ExtendedJob(b"", dedupe_key="a"))
        await client.update_schedule(ScheduleChange(name=queue, queue=queue, body=b"", cron="0 3 * * *"), PASSWORD)
        assert older.calls[PROBE] == 0


async def test_a_server_that_knows_groups_is_asked_once_and_takes_over_from_one_that_does_not(
    server: RunningServer, queue: str
) -> None:
    async with (
        older_server(server.port, PROBE) as older,
        older_server(server.port) as newer,
        AsyncClient(older.address, newer.address, timeout=30) as client,
    ):
        await client.create_queue(queue)
        stored = [await client.enqueue(queue, GROUPED) for _ in range(4)]
        found = await client.lookup(stored)
        assert [found[each].group for each in stored] == ["acme"] * 4
        assert older.calls["enqueueJobs"] == 0
        assert (newer.calls["enqueueJobs"], newer.calls[PROBE]) == (4, 1)


async def test_the_http_interface_says_that_it_is_not_yet(server: RunningServer, queue: str) -> None:
    make_queue(server, queue)
    async with older_server(server.port, PROBE) as older, AsyncClient(older.address, timeout=SOON_S) as client:
        async with http_site(client) as site:
            body = json.dumps({"body": "x", "group": "acme"}).encode()
            answer = await site.ask("POST", f"/v1/queues/{queue}/jobs", body, Content_Type="application/json")
        assert (answer.status, answer.json["reason"]) == (503, "GROUPS_NOT_YET")
        assert older.calls["enqueueJobs"] == 0
