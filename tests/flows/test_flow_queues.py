"""What else is done with queues into which items of flows come, and with the jobs of items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pinlater.errors import PinLaterError, RequestInvalid, TagsNotSupported, TagsNotYet
from pinlater.flows import keeper
from pinlater.flows.item_jobs import ITEM_HEADER, envelope
from pinlater.model import (
    AckOutcome,
    DequeuedJob,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobState,
    RequestContext,
    RescheduleJob,
)
from pinlater.model.flow_words import FlowState, ItemState, NewFlow
from pinlater.model.job_selection import JobSelection
from pinlater.service import Service
from pinlater.shards.keys.key_router import FixedHomes
from tests.flows.async_service import WITHIN_S, AsyncService, ack_of, items_of
from tests.flows.flow_stand import flow_stand
from tests.flows.stand import ROOT, some_items

ME = RequestContext("w")


async def test_jobs_of_nobody_are_on_such_a_queue_as_on_any(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, seal=False)
    (descriptor,) = await service.client.enqueue(root.queue, [Job(b"plain", attempts_allowed=2)])
    (job,) = await service.take(root)
    assert list(await service.client.ack(root.queue, [], [ack_of(job, append_status="once")])) == [AckOutcome.RETRIED]
    (job,) = await service.take(root)
    assert await service.client.ack(root.queue, [ack_of(job, result=b"\x00no JSON")], []) == [AckOutcome.SUCCEEDED]
    assert (await service.client.get_flow(flow_id)).stages[0].items == 0
    assert await service.has_none(root)
    assert descriptor == job.descriptor


async def test_jobs_of_items_have_the_tags_of_their_stage(service: AsyncService) -> None:
    root = service.stage("root", tags=("tenant:7", "payroll"))
    child = service.stage("child", parent="root", tags=("tenant:7",))
    plain = service.stage("plain", parent="root")
    flow_id = await service.start(root, child, plain, items=items_of(1))
    assert [stage.stage.tags for stage in (await service.client.get_flow(flow_id)).stages] == [
        ("tenant:7", "payroll"),
        ("tenant:7",),
        (),
    ]
    for stage, tags in ((root, ["payroll", "tenant:7"]), (child, ["tenant:7"]), (plain, [])):
        (job,) = await service.take(stage)
        info = (await service.client.lookup([job.descriptor]))[job.descriptor]
        assert sorted(info.tags or ()) == tags
        assert (b'"pinlater-tags":' in job.body) is bool(tags)
        found = await service.client.search_jobs(JobSelection(stage.queue, tags=["tenant:7"]))
        assert [each.descriptor for each in found.jobs] == [job.descriptor] * bool(tags)
        await service.succeed(stage, [job], "1")
    with pytest.raises(RequestInvalid, match="the tags of stage root"):
        await service.start(service.stage("root", tags=("a", "a")))


@pytest.mark.parametrize("error", [TagsNotYet("an older server"), TagsNotSupported("a store without tags")])
async def test_no_item_waits_for_a_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PinLaterError) -> None:
    """As beside a server of a version before, and on a store that keeps none."""

    def refuse(homes: FixedHomes, jobs: Sequence[ExtendedJob]) -> None:
        if any(job.tags for job in jobs):
            raise error

    monkeypatch.setattr(FixedHomes, "check_jobs", refuse)
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        tagged = replace(ROOT, tags=("tenant:7",))
        await service.create_flow(NewFlow("payroll", [tagged], items={ROOT.name: some_items(1)}))
        async with asyncio.timeout(WITHIN_S):
            while not (jobs := await service.dequeue(DequeueRequest("payroll", 1), context=ME)):
                await asyncio.sleep(0.005)
        (info,) = (await service.lookup([jobs[0].descriptor])).values()
        assert not info.tags


async def test_who_enqueues_cannot_speak_for_an_item(service: AsyncService) -> None:
    root = service.stage("root", max_failures=3)
    flow_id = await service.start(root, items=items_of(1))
    (real,) = await service.take(root)
    (item,) = await service.items(flow_id)
    with pytest.raises(RequestInvalid, match="@"):
        await service.client.enqueue(root.queue, [ExtendedJob(b"x", dedupe_key=f"@flow/{item.number}")])
    await service.client.enqueue(root.queue, [Job(envelope("do.root", b"1", {ITEM_HEADER: str(item.number)}))])
    (forged,) = await service.take(root)
    await service.succeed(root, [forged], "forged")
    (item,) = await service.items(flow_id)
    assert (item.state, item.result) == (ItemState.PENDING, None)
    await service.succeed(root, [real], "real")
    assert (await service.items(flow_id))[0].result == b'"real"'


@pytest.mark.parametrize("succeeds", [True, False])
async def test_what_is_said_of_items_that_were_deleted_ends_their_jobs(service: AsyncService, succeeds: bool) -> None:
    root = service.stage("root", max_failures=3)
    flow_id = await service.start(root, items=items_of(1))
    (job,) = await service.take(root)
    await service.client.delete_flow(flow_id)
    acks = [ack_of(job)]
    (outcome,) = await service.client.ack(root.queue, acks if succeeds else [], [] if succeeds else acks)
    assert outcome is (AckOutcome.SUCCEEDED if succeeds else AckOutcome.CANCELLED)
    assert await service.has_none(root)


async def deleted(service: Service, job: DequeuedJob) -> None:
    await service.delete_jobs(JobFilter("payroll", JobState.PENDING, 1), limit=10)


async def cancelled(service: Service, job: DequeuedJob) -> None:
    await service.cancel("payroll", [job.descriptor])


async def without_attempts(service: Service, job: DequeuedJob) -> None:
    await service.reschedule("payroll", [RescheduleJob(job.descriptor, attempts_allowed=1)])
    (taken,) = await service.dequeue(DequeueRequest("payroll", 1), context=ME)
    await service.ack("payroll", [], [ack_of(taken)])


@pytest.mark.parametrize("harm", [deleted, cancelled, without_attempts])
async def test_an_item_whose_job_an_operator_ends_gets_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Service, DequeuedJob], Awaitable[None]]
) -> None:
    monkeypatch.setattr(keeper, "CHECK_EVERY_S", 0.02)
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        new = NewFlow("payroll", [ROOT], items={ROOT.name: some_items(1)}, sealed=[ROOT.name])
        flow_id = (await service.create_flow(new)).id
        async with asyncio.timeout(WITHIN_S):
            while (await service.get_flow(flow_id)).stages[0].queued < 1:
                await asyncio.sleep(0.005)
        (job,) = await service.dequeue(DequeueRequest("payroll", 1, dry_run=True), context=ME)
        await harm(service, job)
        at.at.clock.tick(keeper.HELD_MS + 1)
        async with asyncio.timeout(WITHIN_S):
            while not (taken := await service.dequeue(DequeueRequest("payroll", 1), context=ME)):
                await asyncio.sleep(0.005)
        assert taken[0].descriptor != job.descriptor
        assert dict(at.metrics.snapshot())[("flow_items_lost",)] == [1.0]
        await service.ack("payroll", [ack_of(taken[0])], [])
        assert (await service.get_flow(flow_id)).state is FlowState.COMPLETE


async def test_a_retry_of_failed_jobs_leaves_those_of_items(service: AsyncService) -> None:
    """The end of an item counts; what else failed in its queue runs again."""
    root = service.stage("root")
    await service.start(root, items=items_of(1, 2))
    for job in await service.take(root, 2):
        await service.client.ack(root.queue, [], [ack_of(job, append_status="no")])
    await service.client.enqueue(root.queue, [Job(b"plain", attempts_allowed=1)])
    (plain,) = await service.take(root)
    await service.client.ack(root.queue, [], [ack_of(plain, append_status="no")])
    assert await service.client.retry_failed(root.queue) == 1
    change = JobChange(root.queue, JobAction.RETRY, JobState.FAILED)
    assert (await service.client.change_jobs(change)).changed == 0
    assert [job.descriptor for job in await service.take(root)] == [plain.descriptor]
