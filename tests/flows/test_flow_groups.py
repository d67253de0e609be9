"""Groups of the jobs of items: by the template of their stage, and by their flow where the queue says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pinlater.data_folder.password import hash_password
from pinlater.errors import GroupsNotSupported, GroupsNotYet, NothingStored, RequestInvalid, TagsNotYet
from pinlater.model import (
    DequeuedJob,
    DequeueRequest,
    ExtendedJob,
    JobInfo,
    RequestContext,
    ScheduleChange,
    parse_descriptor,
)
from pinlater.model.flow_words import Applet, AppletKind, NewFlow, NewItem
from pinlater.service import Service
from pinlater.shards.keys.key_router import FixedHomes
from tests.flows.async_service import SETTINGS, WITHIN_S, AsyncService, as_json, items_of, payload_of, service_of
from tests.flows.flow_stand import flow_stand
from tests.flows.stand import ROOT
from tests.server.running import running
from tests.stores.places import Places

PASSWORD = "let me in"

ME = RequestContext("w", is_granted=True)


async def group_of(service: AsyncService, descriptor: str) -> str:
    return (await service.client.lookup([descriptor]))[descriptor].group or ""


async def test_jobs_of_items_have_the_group_that_their_stage_makes_of_them(service: AsyncService) -> None:
    root = service.stage("root", group="{tenant}")
    made_by_job = Applet(AppletKind.JOB, job="split", queue=service.queue("split"))
    child = service.stage("child", parent="root", group="child-{payload.tenant}")
    fanned = service.stage("fanned", parent="root", applet=made_by_job, group="{tenant}")
    flow_id = await service.start(root, child, fanned, items=items_of({"tenant": "acme"}, {"tenant": 7}, {"user": 1}))
    stages = [each.stage for each in (await service.client.get_flow(flow_id)).stages]
    assert {each.name: each.group for each in stages} == {
        "root": "{tenant}",
        "child": "child-{payload.tenant}",
        "fanned": "{tenant}",
    }
    jobs = await service.take(root, 3)
    assert sorted([await group_of(service, job.descriptor) for job in jobs]) == ["", "7", "acme"]
    await service.succeed(root, jobs, "1")
    assert sorted([await group_of(service, job.descriptor) for job in await service.take(child, 3)]) == [
        "",
        "child-7",
        "child-acme",
    ]
    splits = await service.take(made_by_job.queue, 3)
    assert [await group_of(service, job.descriptor) for job in splits] == [""] * 3


@pytest.mark.parametrize("template", ["{", "{}", "{a!r}", "{a:3}", "x" * 256, "a\nb"])
async def test_a_stage_whose_group_is_no_template_is_refused(service: AsyncService, template: str) -> None:
    with pytest.raises(RequestInvalid, match="the group of stage root"):
        await service.start(service.stage("root", group=template))


async def test_flows_of_a_queue_take_turns_where_it_says_so(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS, "--admin-password-hash", hash_password(PASSWORD)) as server:
        async with service_of(server) as service:
            root, own = service.stage("root"), service.stage("root", group="{tenant}")
            await service.client.update_queue(root.queue, PASSWORD, set={"flows_by_group": "true"}, create=True)
            flood = await service.start(root, items=items_of(*range(200)))
            await service.until(flood, lambda status: status.stages[0].queued == 200)
            late = await service.start(own, items=items_of({"tenant": "acme"}, 7))
            await service.until(late, lambda status: status.stages[0].queued == 2)
            first = [await group_of(service, job.descriptor) for job in await service.take(root, 3)]
            assert sorted(first) == sorted([flood, late, "acme"])
            await service.client.update_queue(root.queue, PASSWORD, unset=["flows_by_group"])
            plain = await service.start(root, items=items_of(1))
            await service.until(plain, lambda status: status.stages[0].queued == 1)
            assert "" in [await group_of(service, job.descriptor) for job in await service.take(root, 4)]


class OlderServer:
    """One that knows neither tags nor groups, as the homes of keys learn of it."""

    lives = True

    def check(self, error: type[NothingStored]) -> None:
        if self.lives:
            raise error("servers of an earlier version are running: b/1")

    def check_jobs(self, jobs: Sequence[ExtendedJob | ScheduleChange]) -> None:
        for job in jobs:
            if job.tags or job.group:
                self.check(TagsNotYet if job.tags else GroupsNotYet)


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> OlderServer:
    server = OlderServer()
    monkeypatch.setattr(FixedHomes, "check_jobs", lambda homes, jobs: server.check_jobs(jobs))
    monkeypatch.setattr(FixedHomes, "check_groups", lambda homes: server.check(GroupsNotYet))
    return server


GROUPED = replace(ROOT, group="{tenant}", tags=("payroll",))
ITEM = NewItem(b'{"tenant": "acme"}')


async def test_a_flow_with_groups_is_refused_beside_an_older_server(tmp_path: Path, older: OlderServer) -> None:
    assert older.lives
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        with pytest.raises(GroupsNotYet) as raised:
            await service.create_flow(NewFlow("payroll", [GROUPED], items={ROOT.name: [ITEM]}))
        assert (raised.value.reason, raised.value.retryable) == ("GROUPS_NOT_YET", True)
        with pytest.raises(GroupsNotYet):
            await service.update_queue("mail", "", set={"flows_by_group": "true"}, context=ME)
        assert (await service.get_flows()).flows == []
        assert "payroll" not in await service.queue_names()


async def test_items_that_are_to_have_a_group_wait_until_an_older_server_is_gone(
    tmp_path: Path, older: OlderServer
) -> None:
    """One that came back since the flow was made."""
    older.lives = False
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        flow_id = (await service.create_flow(NewFlow("payroll", [GROUPED]))).id
        older.lives = True
        await service.add_flow_items(flow_id, ROOT.name, [ITEM])
        async with asyncio.timeout(WITHIN_S):
            while not (troubles := (await service.get_flow(flow_id)).troubles):
                await asyncio.sleep(0.005)
        assert "servers of an earlier version are running: b/1" in troubles[0]
        older.lives = False
        info = await taken(service)
        assert (info.group, list(info.tags or ())) == ("acme", ["payroll"])


async def test_no_item_waits_to_have_its_flow_as_its_group(tmp_path: Path, older: OlderServer) -> None:
    older.lives = False
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        await service.update_queue("payroll", "", set={"flows_by_group": "true"}, create=True, context=ME)
        older.lives = True
        await service.create_flow(NewFlow("payroll", [replace(GROUPED, group="")], items={ROOT.name: [ITEM]}))
        info = await taken(service)
        assert (info.group, info.tags) == (None, None)


async def taken(service: Service) -> JobInfo:
    """The next job, claimed."""
    async with asyncio.timeout(WITHIN_S):
        while not (jobs := await service.dequeue(DequeueRequest("payroll", 1), context=ME)):
            await asyncio.sleep(0.005)
    (info,) = (await service.lookup([jobs[0].descriptor])).values()
    return info


def stores(places: dict[str, Places]) -> list[str]:
    return [part for kind, each in places.items() for part in ("--store", f"{kind}={each.fresh()}")]


def shards_of(jobs: Sequence[DequeuedJob]) -> set[str]:
    return {ref.shard for job in jobs if (ref := parse_descriptor(job.descriptor)) is not None}


@pytest.mark.slow
async def test_items_have_their_groups_on_every_store_that_has_some(
    tmp_path: Path, sqlite_places: Places, redis_places: Places, mysql_places: Places, postgres_places: Places
) -> None:
    places = {"sqlite": sqlite_places, "redis": redis_places, "mysql": mysql_places, "postgres": postgres_places}
    options = ("--admin-password-hash", hash_password(PASSWORD), "--processes", "1")
    with running(tmp_path, *SETTINGS, *stores(places), *options) as server:
        async with service_of(server) as service:
            root = service.stage("root", group="{tenant}", tags=("payroll",))
            await service.client.update_queue(root.queue, PASSWORD, set={"flows_by_group": "true"}, create=True)
            payloads = [{"tenant": f"t{number % 3}"} if number % 4 else {"user": number} for number in range(80)]
            flow_id = await service.start(root, items=items_of(*payloads))
            jobs = await service.take(root, 80)
            assert shards_of(jobs) == places.keys()
            wanted = {as_json(payload): payload.get("tenant", flow_id) for payload in payloads}
            for job in jobs:
                assert await group_of(service, job.descriptor) == wanted[as_json(payload_of(job))]
            await service.succeed(root, jobs, "1")
            await service.over(flow_id)


@pytest.mark.slow
async def test_a_shard_without_groups_is_said_before_a_flow_is_made_and_keeps_no_item_back(
    tmp_path: Path, sqlite_places: Places, dynamodb_places: Places
) -> None:
    """The setting stands in a file, which is taken as it is."""
    settings = tmp_path / "queues.toml"
    options = ("--admin-password-hash", hash_password(PASSWORD), "--queue-file", str(settings), "--processes", "1")
    settings.write_text("[queues.mixed]\nflows_by_group = true\n")
    places = {"sqlite": sqlite_places, "dynamodb": dynamodb_places}
    with running(tmp_path, *SETTINGS, *stores(places), *options) as server:
        async with service_of(server) as service:
            root = replace(service.stage("root"), queue="mixed", tags=("payroll",))
            with pytest.raises(GroupsNotSupported, match="the store of shard 'dynamodb' has no groups"):
                await service.start(replace(root, group="{tenant}"))
            with pytest.raises(GroupsNotSupported):
                await service.client.update_queue("other", PASSWORD, set={"flows_by_group": "true"}, create=True)
            assert (await service.client.get_flows()).flows == []
            flow_id = await service.start(root, items=items_of(*range(60)))
            jobs = await service.take(root, 60)
            assert shards_of(jobs) == places.keys()
            assert {await group_of(service, job.descriptor) for job in jobs} <= {"", flow_id}
            await service.succeed(root, jobs, "1")
            await service.over(flow_id)
