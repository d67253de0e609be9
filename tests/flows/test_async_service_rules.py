"""The eleven rules of the Async Service, each by its number. What it calls a job is a stage here."""

from __future__ import annotations

import pytest

from pinlater.errors import ItemNotFound
from pinlater.model import AckOutcome, ClaimOutcome, Heartbeat, HeartbeatOutcome
from pinlater.model.flow_words import ItemState, NewItem
from tests.flows.async_service import AsyncService, as_json, counts, items_of, payload_of


async def test_rule_1_a_stage_is_complete_when_it_is_sealed_and_no_item_of_it_is_pending(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, items=items_of(1, 2), seal=False)
    await service.do(root)
    await service.do(root)
    (stage,) = (await service.client.get_flow(flow_id)).stages
    assert (stage.pending, stage.is_complete) == (0, False)
    await service.client.add_flow_items(flow_id, "root", items_of(3), seal=True)
    (stage,) = (await service.client.get_flow(flow_id)).stages
    assert (stage.is_sealed, stage.is_complete) == (True, False)
    await service.do(root)
    (stage,) = (await service.client.get_flow(flow_id)).stages
    assert stage.is_complete


async def test_rule_2_a_tree_is_complete_when_all_its_stages_are(service: AsyncService) -> None:
    root, left, right = service.stage("root"), service.stage("left", "root"), service.stage("right", "root")
    flow_id = await service.start(root, left, right, items=items_of(1))
    for stage in (root, left):
        await service.do(stage)
        assert await service.runs(flow_id)
    await service.do(right)
    assert all(stage.is_complete for stage in (await service.over(flow_id)).stages)


async def test_rule_3_an_item_is_pending_succeeded_or_failed(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, items=items_of(1, 2, 3))
    first, second, _ = await service.take(root, 3)
    await service.succeed(root, [first])
    await service.fail(root, [second])
    states = await service.states(flow_id, root)
    assert sorted(states) == [ItemState.PENDING, ItemState.SUCCEEDED, ItemState.FAILED]
    for state in ItemState:
        assert [item.state for item in await service.items(flow_id, state=state)] == [state]
    assert counts(await service.client.get_flow(flow_id), "root") == (1, 1, 1)


@pytest.mark.parametrize("result", [None, 0, "", [], {"amount": 7}], ids=repr)
async def test_rule_4_an_item_has_succeeded_when_it_has_a_result(service: AsyncService, result: object) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, items=items_of(1))
    assert (await service.items(flow_id))[0].result is None
    await service.do(root, result=lambda payload: result)
    (item,) = await service.items(flow_id)
    assert (item.state, item.result) == (ItemState.SUCCEEDED, as_json(result))


async def test_rule_5_an_item_has_failed_when_its_failures_exceed_max_failures(service: AsyncService) -> None:
    root = service.stage("root", max_failures=2)
    flow_id = await service.start(root, items=items_of(1))
    for amount in (1, 2, 3):
        assert await service.states(flow_id, root) == [ItemState.PENDING]
        await service.fail(root, await service.take(root))
        assert len((await service.items(flow_id))[0].failures) == amount
    assert await service.states(flow_id, root) == [ItemState.FAILED]


async def test_rule_6_an_item_is_pending_otherwise(service: AsyncService) -> None:
    root = service.stage("root", max_failures=1)
    flow_id = await service.start(root, items=items_of(1))
    assert await service.states(flow_id, root) == [ItemState.PENDING]
    (job,) = await service.take(root)
    assert await service.states(flow_id, root) == [ItemState.PENDING]
    await service.fail(root, [job])
    assert await service.states(flow_id, root) == [ItemState.PENDING]


async def test_rule_7_an_item_is_locked_while_an_assignment_without_a_result_exists(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, items=items_of(1))
    (item,) = await service.items(flow_id)
    (job,) = await service.take(root)
    assert (await service.client.assign_item(item.number)).outcome is ClaimOutcome.IN_PROGRESS
    assert await service.has_none(root)
    await service.succeed(root, [job])
    assert (await service.client.assign_item(item.number)).outcome is ClaimOutcome.ENDED


async def test_rule_8_a_failure_is_appended_and_the_assignment_ends(service: AsyncService) -> None:
    root = service.stage("root", max_failures=1, backoff_ms=600_000)
    flow_id = await service.start(root, items=items_of(1))
    (job,) = await service.take(root)
    await service.fail(root, [job])
    (answer,) = await service.client.heartbeat(root.queue, [Heartbeat(job.descriptor, job.claim_descriptor)])
    assert answer.outcome is HeartbeatOutcome.LOST
    await service.fail(root, [job], "said twice")
    (item,) = await service.items(flow_id)
    assert [failure.attempt for failure in item.failures] == [1]
    assert "it broke" in item.failures[0].reason


async def test_rule_9_a_success_sets_the_result_and_later_ones_change_nothing(service: AsyncService) -> None:
    root, child = service.stage("root", max_failures=1), service.stage("child", "root")
    flow_id = await service.start(root, child, items=items_of(1))
    (lost,) = await service.take(root, claim_timeout_ms=50)
    (job,) = await service.take(root)  # the first claim has expired
    assert await service.succeed(root, [lost], "the first") != [AckOutcome.FAILED]
    await service.succeed(root, [job], "the second")
    (item,) = await service.items(flow_id, root)
    assert item.result == b'"the first"'
    (child_job,) = await service.take(child)
    assert payload_of(child_job)["result"] == "the first"
    assert len(await service.items(flow_id, child)) == 1


async def test_rule_10_an_assignment_without_heartbeats_ends_like_a_failure(service: AsyncService) -> None:
    root = service.stage("root", max_failures=1)
    flow_id = await service.start(root, items=items_of(1))
    await service.take(root, claim_timeout_ms=50)
    await service.take(root, claim_timeout_ms=50)
    status = await service.over(flow_id)
    assert counts(status, "root") == (0, 0, 1)
    failures = (await service.items(flow_id))[0].failures
    assert [failure.attempt for failure in failures] == [1, 2]
    assert all("expired" in failure.reason for failure in failures)


async def test_rule_11_an_item_can_be_assigned_if_nothing_is_in_the_way(service: AsyncService) -> None:
    root = service.stage("root", max_failures=1, backoff_ms=600_000)
    key = service.queue("account")
    flow_id = await service.start(
        root,
        items=[NewItem(b'"free"'), NewItem(b'"oldest"', serialize_key=key), NewItem(b'"younger"', serialize_key=key)],
    )
    free, oldest, younger = [item.number for item in await service.items(flow_id)]

    async def asked(number: int) -> ClaimOutcome:
        return (await service.client.assign_item(number)).outcome

    assert await asked(younger) is ClaimOutcome.BEHIND  # not the oldest pending item of its key
    assert await asked(free) is ClaimOutcome.CLAIMED  # its key is empty
    assert await asked(free) is ClaimOutcome.IN_PROGRESS  # it is assigned
    first = await service.client.assign_item(oldest)
    assert first.job is not None
    await service.fail(root, [first.job])
    assert await asked(oldest) is ClaimOutcome.NOT_DUE  # retry_at is yet to come
    assert await asked(younger) is ClaimOutcome.BEHIND  # the one before is pending still
    with pytest.raises(ItemNotFound):
        await asked(10**15)


async def test_rule_11_the_next_of_a_serialize_key_can_be_assigned_when_the_oldest_has_ended(
    service: AsyncService,
) -> None:
    root = service.stage("root")
    key = service.queue("account")
    flow_id = await service.start(root, items=[NewItem(b"1", serialize_key=key), NewItem(b"2", serialize_key=key)])
    oldest, younger = [item.number for item in await service.items(flow_id)]
    first = await service.client.assign_item(oldest)
    assert first.job is not None
    await service.succeed(root, [first.job])
    assert (await service.client.assign_item(oldest)).outcome is ClaimOutcome.ENDED  # it has succeeded
    assert (await service.client.assign_item(younger)).outcome is ClaimOutcome.CLAIMED
