"""Each feature of the Async Service, over Thrift, at a server in a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pinlater.errors import FlowNotFound, RequestInvalid, StageSealed
from pinlater.model import ClaimOutcome, Heartbeat, HeartbeatOutcome, JobFilter, JobState
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowState,
    ItemState,
    NewFlow,
    NewItem,
    OnFailure,
)
from pinlater.wire.flow_methods import GET_FLOW
from tests.flows.async_service import (
    SECRET,
    SETTINGS,
    WITHIN_S,
    AsyncService,
    ack_of,
    counts,
    headers_of,
    is_sealed,
    items_of,
    payload_of,
    service_of,
)
from tests.server.running import Plain, running

# -- trees, streaming, sealing -----------------------------------------------------------------------------------------


async def test_a_tree_is_made_whole_under_its_root(service: AsyncService) -> None:
    root, left, right = service.stage("root"), service.stage("left", "root"), service.stage("right", "root")
    leaf = service.stage("leaf", "right")
    flow_id = await service.start(root, leaf, right, left, items=items_of(1), metadata={"month": "11"})
    status = await service.client.get_flow(flow_id)
    assert {each.stage.name: each.stage.parent for each in status.stages} == {
        "root": "",
        "left": "root",
        "right": "root",
        "leaf": "right",
    }
    assert dict(status.metadata) == {"month": "11"}
    for stage in (root, left, right):
        await service.do(stage)
    assert await service.runs(flow_id)
    await service.do(leaf)
    await service.over(flow_id)


async def test_items_stream_in_while_others_run(service: AsyncService) -> None:
    calculate, pay = service.stage("calculate"), service.stage("pay", "calculate")
    flow_id = await service.start(calculate, pay, seal=False)
    for user in range(3):
        await service.client.add_flow_items(flow_id, "calculate", items_of({"user": user}))
        await service.do(calculate)
        await service.do(pay)
        assert await service.runs(flow_id)
    await service.client.seal_stage(flow_id)
    assert counts(await service.over(flow_id), "pay") == (0, 3, 0)


async def test_a_sealed_stage_takes_no_items(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, seal=False)
    await service.client.add_flow_items(flow_id, "root", items_of(1), seal=True)
    with pytest.raises(StageSealed):
        await service.client.add_flow_items(flow_id, "root", items_of(2))
    await service.client.seal_stage(flow_id, "root")
    assert [item.payload for item in await service.items(flow_id)] == [b"1"]


async def test_a_flow_that_known_items_seal_is_over_at_once(service: AsyncService) -> None:
    root = service.stage("root")
    known = [NewItem(b"1", dedupe_key="one")]
    flow_id = await service.start(root, items=known, seal=False)
    await service.do(root)
    await service.client.add_flow_items(flow_id, "root", known, seal=True)
    assert (await service.client.get_flow(flow_id)).state is FlowState.COMPLETE
    assert len(await service.items(flow_id)) == 1


async def test_a_stage_is_sealed_when_its_parent_is_complete(service: AsyncService) -> None:
    root, child = service.stage("root"), service.stage("child", "root")
    flow_id = await service.start(root, child, items=items_of(1))
    assert not is_sealed(await service.client.get_flow(flow_id), "child")
    await service.client.add_flow_items(flow_id, "child", items_of("of mine"))
    await service.do(root)
    assert is_sealed(await service.client.get_flow(flow_id), "child")
    with pytest.raises(StageSealed):
        await service.client.add_flow_items(flow_id, "child", items_of("late"))


async def test_a_stage_that_is_kept_open_is_sealed_by_hand(service: AsyncService) -> None:
    root, child = service.stage("root"), service.stage("child", "root", keeps_open=True)
    flow_id = await service.start(root, child, items=items_of(1))
    await service.do(root)
    await service.do(child)
    assert await service.runs(flow_id)
    await service.client.seal_stage(flow_id, "child")
    await service.over(flow_id)


async def test_a_flow_whose_root_is_sealed_without_items_is_over_at_once(service: AsyncService) -> None:
    flow_id = await service.start(service.stage("root"), service.stage("child", "root"))
    assert (await service.client.get_flow(flow_id)).state is FlowState.COMPLETE


# -- applets -----------------------------------------------------------------------------------------------------------


async def test_the_applet_pass_gives_payload_and_result(service: AsyncService) -> None:
    root, child = service.stage("root"), service.stage("child", "root")
    flow_id = await service.start(root, child, items=items_of({"user": 1}))
    await service.do(root, result=lambda payload: {"amount": 7})
    (job,) = await service.take(child)
    assert payload_of(job) == {"payload": {"user": 1}, "result": {"amount": 7}}
    assert headers_of(job)["pinlater-flow"] == flow_id


async def test_the_applet_map_makes_one_item_or_many_by_an_expression(service: AsyncService) -> None:
    one = Applet(AppletKind.MAP, "{user: payload.user, amount: result.amount}")
    many = Applet(AppletKind.MAP, "result.days")
    root = service.stage("root")
    check, day = service.stage("check", "root", applet=one), service.stage("day", "root", applet=many)
    await service.start(root, check, day, items=items_of({"user": 1}))
    await service.do(root, result=lambda payload: {"amount": 7, "days": [1, 2, 3]})
    assert [payload_of(job) for job in await service.take(check)] == [{"user": 1, "amount": 7}]
    assert sorted(payload_of(job) for job in await service.take(day, 3)) == [1, 2, 3]


async def test_the_applet_job_makes_items_by_a_job_of_the_workers(service: AsyncService) -> None:
    root = service.stage("root")
    split = Applet(AppletKind.JOB, job="do.split", queue=service.queue("split"))
    child = service.stage("child", "root", applet=split)
    flow_id = await service.start(root, child, items=items_of({"user": 1}))
    await service.do(root, result=lambda payload: 7)
    (job,) = await service.take(split.queue)
    assert payload_of(job) == {"payload": {"user": 1}, "result": 7}
    await service.succeed(split.queue, [job], ["a", "b"])
    assert sorted(payload_of(each) for each in await service.take(child, 2)) == ["a", "b"]
    assert [each.stage.name for each in (await service.client.get_flow(flow_id)).stages] == ["root", "child"]


async def test_an_applet_that_fails_is_told_and_mended(service: AsyncService) -> None:
    root = service.stage("root")
    child = service.stage("child", "root", applet=Applet(AppletKind.MAP, "abs(result)"))
    flow_id = await service.start(root, child, items=items_of(1))
    await service.do(root, result=lambda payload: "no number")
    (trouble,) = (await service.client.get_flow(flow_id)).troubles
    assert "pinlater flow resume" in trouble
    assert (await service.items(flow_id, root))[0].applet_error
    await service.client.resume_flow(flow_id, stage="child", expression="result")
    (job,) = await service.take(child)
    assert payload_of(job) == "no number"
    await service.succeed(child, [job])
    assert (await service.over(flow_id)).troubles == []


async def test_a_fan_out_job_that_fails_for_good_keeps_its_flow_open_and_is_tried_again(service: AsyncService) -> None:
    root = service.stage("root")
    split = Applet(AppletKind.JOB, job="do.split", queue=service.queue("split"))
    child = service.stage("child", "root", applet=split, max_failures=0)
    flow_id = await service.start(root, child, items=items_of(1))
    await service.do(root, result=lambda payload: 7)
    makers = replace(root, queue=split.queue)
    await service.fail(makers, await service.take(split.queue), "no such file")
    (trouble,) = (await service.client.get_flow(flow_id)).troubles
    assert "no such file" in trouble
    assert (await service.items(flow_id, root))[0].applet_error
    assert await service.runs(flow_id)
    await service.client.resume_flow(flow_id)
    (job,) = await service.take(split.queue)
    await service.succeed(split.queue, [job], ["a"])
    await service.do(child)
    assert [each.applet_errors for each in (await service.over(flow_id)).stages] == [0, 0]


# -- assignments and heartbeats ----------------------------------------------------------------------------------------


async def test_an_assignment_has_an_id_of_its_own(service: AsyncService) -> None:
    root = service.stage("root", max_failures=1)
    flow_id = await service.start(root, items=items_of({"user": 1}))
    (item,) = await service.items(flow_id)
    first = await service.client.assign_item(item.number)
    assert (first.outcome, json.loads(first.payload)) == (ClaimOutcome.CLAIMED, {"user": 1})
    assert first.job is not None
    assert (await service.client.assign_item(item.number)).outcome is ClaimOutcome.IN_PROGRESS
    await service.fail(root, [first.job])
    second = await service.client.assign_item(item.number)
    assert second.job is not None
    assert second.job.claim_descriptor != first.job.claim_descriptor
    await service.succeed(root, [second.job], "done")
    assert (await service.items(flow_id))[0].result == b'"done"'
    assert (await service.client.assign_item(item.number)).outcome is ClaimOutcome.ENDED


async def test_heartbeats_keep_an_assignment(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, items=items_of("kept", "lost"))
    kept, lost = await service.take(root, 2, claim_timeout_ms=1_000)
    beat = Heartbeat(kept.descriptor, kept.claim_descriptor)
    async with asyncio.timeout(WITHIN_S):
        while counts(await service.client.get_flow(flow_id), "root") != (1, 0, 1):
            (answer,) = await service.client.heartbeat(root.queue, [beat])
            assert answer.outcome is HeartbeatOutcome.OK
            await asyncio.sleep(0.05)
    (failed,) = await service.items(flow_id, state=ItemState.FAILED)
    assert (json.loads(failed.payload), failed.job) == ("lost", lost.descriptor)
    await service.succeed(root, [kept])
    await service.over(flow_id)


# -- keys --------------------------------------------------------------------------------------------------------------


async def test_a_second_flow_of_a_dedupe_key_is_the_first_one(service: AsyncService) -> None:
    root, key = service.stage("root"), service.queue("2026-11")
    first = await service.create(root, items=items_of(1), dedupe_key=key)
    again = await service.create(root, items=items_of(2), dedupe_key=key)
    assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
    assert [item.payload for item in await service.items(first.id)] == [b"1"]
    page = await service.client.get_flows(name="payroll", dedupe_key=key)
    assert [flow.id for flow in page.flows] == [first.id]


async def test_a_dedupe_key_is_of_one_item_of_a_stage(service: AsyncService) -> None:
    root, child = service.stage("root"), service.stage("child", "root")
    item = NewItem(b"1", dedupe_key="user-1")
    flow_id = await service.start(root, child, seal=False)
    (first,) = await service.client.add_flow_items(flow_id, "root", [item])
    again = await service.client.add_flow_items(flow_id, "root", [item, NewItem(b"2", "user-1"), NewItem(b"3")])
    (elsewhere,) = await service.client.add_flow_items(flow_id, "child", [item])
    assert again[:2] == [first, first]
    assert len({first, again[2], elsewhere}) == 3
    (found,) = await service.items(flow_id, "root", dedupe_key="user-1")
    assert (found.number, found.payload) == (first, b"1")


async def test_a_serialize_key_goes_over_trees(service: AsyncService) -> None:
    root = service.stage("root")
    key = service.queue("account-7")
    first = await service.start(root, items=[NewItem(b'"first"', serialize_key=key)])
    second = await service.start(root, items=[NewItem(b'"second"', serialize_key=key)])
    (job,) = await service.take(root)
    assert payload_of(job) == "first"
    await service.until(second, lambda status: status.stages[0].queued == 1)
    assert await service.has_none(root)
    await service.succeed(root, [job])
    await service.over(first)
    await service.do(root)
    await service.over(second)


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_failures_are_a_list(service: AsyncService) -> None:
    root = service.stage("root", max_failures=2)
    flow_id = await service.start(root, items=items_of(1))
    for reason in ("no paper", "no ink"):
        await service.fail(root, await service.take(root), reason)
    await service.succeed(root, await service.take(root), "printed")
    (item,) = await service.items(flow_id)
    assert [failure.attempt for failure in item.failures] == [1, 2]
    assert all(reason in failure.reason for reason, failure in zip(("no paper", "no ink"), item.failures, strict=True))
    assert all(failure.worker and failure.at_ms for failure in item.failures)
    assert (item.state, item.result) == (ItemState.SUCCEEDED, b'"printed"')


@pytest.mark.parametrize("allowed", [0, 1, 3])
async def test_an_item_may_fail_so_often_as_max_failures_per_item_says(service: AsyncService, allowed: int) -> None:
    root = service.stage("root", max_failures=allowed)
    flow_id = await service.start(root, items=items_of(1))
    for _ in range(allowed):
        await service.fail(root, await service.take(root))
        assert await service.runs(flow_id)
    await service.fail(root, await service.take(root))
    assert counts(await service.over(flow_id), "root") == (0, 0, 1)
    assert len((await service.items(flow_id))[0].failures) == allowed + 1


async def test_retry_at_keeps_an_item_that_failed(service: AsyncService) -> None:
    root = service.stage("root", max_failures=5, backoff_ms=600_000, max_backoff_ms=600_000)
    flow_id = await service.start(root, items=items_of(1))
    await service.fail(root, await service.take(root))
    (item,) = await service.items(flow_id)
    assert item.retry_at_ms == item.failures[0].at_ms + 600_000
    assert await service.has_none(root)
    assert (await service.client.assign_item(item.number)).outcome is ClaimOutcome.NOT_DUE


async def test_retry_at_is_twice_as_far_after_each_failure(service: AsyncService) -> None:
    root = service.stage("root", max_failures=9, backoff_ms=2, max_backoff_ms=8)
    flow_id = await service.start(root, items=items_of(1))
    pauses = []
    for _ in range(4):
        await service.fail(root, await service.take(root))
        (item,) = await service.items(flow_id)
        pauses.append((item.retry_at_ms or 0) - item.failures[-1].at_ms)
    assert pauses == [2, 4, 8, 8]


async def test_a_failed_item_stops_its_stage_or_its_flow_where_that_is_asked_for(service: AsyncService) -> None:
    root, child = service.stage("root"), service.stage("child", "root")
    flow_id = await service.start(root, child, items=items_of(1, 2, 3), on_failure=OnFailure.STOP_FLOW)
    done, broken, runs = await service.take(root, 3)
    await service.succeed(root, [done])
    await service.fail(root, [broken])
    status = await service.over(flow_id)
    assert (counts(status, "root"), counts(status, "child")) == ((0, 1, 2), (0, 0, 1))
    (answer,) = await service.client.heartbeat(root.queue, [Heartbeat(runs.descriptor, runs.claim_descriptor)])
    assert answer.outcome is HeartbeatOutcome.CANCEL
    assert await service.has_none(child)


# -- results, callbacks, ends ------------------------------------------------------------------------------------------


async def test_the_results_of_the_final_stage_are_those_of_the_flow(service: AsyncService) -> None:
    root, pay = service.stage("root"), service.stage("pay", "root", is_final=True)
    flow_id = await service.start(root, pay, items=items_of(1, 2))
    await service.do(root, 2, lambda payload: payload)
    await service.do(pay, 2, lambda payload: {"check": payload["result"]})
    status = await service.over(flow_id)
    final = [each.stage.name for each in status.stages if each.stage.is_final]
    results = [json.loads(item.result or b"") for item in await service.items(flow_id, final[0])]
    assert (final, sorted(each["check"] for each in results)) == (["pay"], [1, 2])


async def test_the_callback_is_a_job_on_a_queue(service: AsyncService) -> None:
    root, done = service.stage("root"), service.queue("done")
    flow_id = await service.start(root, items=items_of(1), on_complete=CompletionCallback(done, "report"))
    assert not (await service.client.get_flow(flow_id)).callback
    await service.do(root)
    (job,) = await service.take(done)
    told = payload_of(job)["flow"]
    assert (told["id"], told["state"]) == (flow_id, "COMPLETE")
    assert told["stages"] == [{"name": "root", "items": 1, "succeeded": 1, "failed": 0, "appletErrors": 0}]
    status = await service.until(flow_id, lambda each: bool(each.callback and each.callback.done_ms))
    assert status.callback is not None
    assert headers_of(job)["pinlater-callback"] == status.callback.id


async def test_the_callback_is_a_signed_post_that_is_tried_again_with_the_same_id(service: AsyncService) -> None:
    heard: list[tuple[str, Any]] = []

    async def hear(request: web.Request) -> web.Response:
        body = await request.read()
        time, mac = (part.partition("=")[2] for part in request.headers["PinLater-Signature"].split(","))
        assert mac == hmac.new(SECRET.encode(), f"{time}.".encode() + body, hashlib.sha256).hexdigest()
        heard.append((request.headers["PinLater-Callback"], json.loads(body)))
        return web.Response(status=500 if len(heard) == 1 else 204)

    application = web.Application()
    application.router.add_post("/over", hear)
    site = web.AppRunner(application)
    await site.setup()
    try:
        await web.TCPSite(site, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{site.addresses[0][1]}/over"
        root = service.stage("root")
        flow_id = await service.start(root, items=items_of(1), on_complete=CompletionCallback(url=url))
        await service.do(root)
        status = await service.until(flow_id, lambda each: bool(each.callback and each.callback.done_ms))
    finally:
        await site.cleanup()
    assert status.callback is not None
    assert [each for each, _ in heard] == [status.callback.id] * 2
    assert heard[0][1] == heard[1][1]
    assert (heard[0][1]["id"], status.callback.tries, status.troubles) == (flow_id, 2, [])


async def test_a_callback_to_an_address_that_is_not_allowed_is_refused(service: AsyncService) -> None:
    with pytest.raises(RequestInvalid, match="flow-callback-hosts"):
        await service.start(service.stage("root"), on_complete=CompletionCallback(url="http://example.org/"))


async def test_a_cancelled_flow_is_over_and_its_workers_are_asked_to_stop(service: AsyncService) -> None:
    root, done = service.stage("root"), service.queue("done")
    flow_id = await service.start(root, items=items_of(1, 2), on_complete=CompletionCallback(done, "report"))
    (job,) = await service.take(root)
    assert (await service.client.cancel_flow(flow_id)).state is FlowState.CANCELLED
    assert counts(await service.over(flow_id, FlowState.CANCELLED), "root") == (0, 0, 2)
    assert {item.failures[-1].reason for item in await service.items(flow_id)} == {"cancelled"}
    (answer,) = await service.client.heartbeat(root.queue, [Heartbeat(job.descriptor, job.claim_descriptor)])
    assert answer.outcome is HeartbeatOutcome.CANCEL
    assert await service.has_none(root)
    assert payload_of((await service.take(done))[0])["flow"]["state"] == "CANCELLED"


async def test_a_deleted_flow_is_gone_and_its_key_is_free(service: AsyncService) -> None:
    root, key = service.stage("root"), service.queue("key")
    first = await service.create(root, items=items_of(1), dedupe_key=key)
    await service.client.delete_flow(first.id)
    with pytest.raises(FlowNotFound):
        await service.client.get_flow(first.id)
    assert (await service.create(root, dedupe_key=key)).is_new


# -- what goes on by itself --------------------------------------------------------------------------------------------


async def test_flows_are_reaped_when_their_time_to_live_is_over(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS) as server:
        async with service_of(server) as service:
            root = service.stage("root")
            short = await service.start(root, items=items_of(1), ttl_ms=0)
            long = await service.start(root, items=items_of(1), ttl_ms=3_600_000)
            await service.do(root, 2)
            await service.over(long)
    with running(tmp_path, *SETTINGS) as server:  # looks for them when it begins
        async with service_of(server) as service, asyncio.timeout(WITHIN_S):
            while [flow.id for flow in (await service.client.get_flows()).flows] != [long]:
                await asyncio.sleep(0.05)
            with pytest.raises(FlowNotFound):
                await service.client.get_flow(short)
    with closing(sqlite3.connect(tmp_path / "pinlater-data" / "flows.db")) as file:
        assert file.execute("SELECT count(*) FROM flow_item").fetchone() == (1,)


async def test_a_scanner_brings_items_back_whose_jobs_are_gone(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS) as server:
        async with service_of(server) as service:
            root = service.stage("root")
            flow_id = await service.start(root, items=items_of(1, 2))
            await service.until(flow_id, lambda status: status.stages[0].queued == 2)
            assert await service.client.delete_jobs(JobFilter(root.queue, JobState.PENDING, 1)) == 2
            assert await service.has_none(root)
    with closing(sqlite3.connect(tmp_path / "pinlater-data" / "flows.db")) as file, file:
        file.execute("UPDATE flow_item SET queued_ms = queued_ms - 60000")  # a minute goes by
    with running(tmp_path, *SETTINGS) as server:
        async with service_of(server) as service:
            await service.do(root, 2)
            await service.over(flow_id)


async def test_a_scanner_makes_callbacks_that_a_killed_server_owed(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS) as server:
        async with service_of(server) as service:
            root, done = service.stage("root"), service.queue("done")
            flow_id = await service.start(root, items=items_of(1), on_complete=CompletionCallback(done, "report"))
            await service.do(root)
            await service.over(flow_id)
            (job,) = await service.take(done)
    with closing(sqlite3.connect(tmp_path / "pinlater-data" / "flows.db")) as file, file:
        file.execute("UPDATE flow_callback SET done_ms = NULL")  # as if it had been killed before it said so
    with running(tmp_path, *SETTINGS) as server:
        async with service_of(server) as service:
            status = await service.until(flow_id, lambda each: bool(each.callback and each.callback.done_ms))
            assert status.callback is not None
            assert headers_of(job)["pinlater-callback"] == status.callback.id


async def test_the_taxonomy_is_checked_when_a_flow_is_made(service: AsyncService) -> None:
    for stages in ([service.stage("a", "b"), service.stage("b", "a")], [service.stage("a", "nobody")], []):
        with pytest.raises(RequestInvalid):
            await service.client.create_flow(NewFlow("payroll", stages))


async def test_a_result_that_is_no_json_is_a_failure_that_says_so(service: AsyncService) -> None:
    root = service.stage("root")
    flow_id = await service.start(root, items=items_of(1))
    (job,) = await service.take(root)
    await service.client.ack(root.queue, [ack_of(job, result=b"\x00no json")], [])
    await service.over(flow_id)
    assert "JSON" in (await service.items(flow_id))[0].failures[0].reason


async def test_a_server_that_ends_keeps_nobody_waiting_for_a_flow(tmp_path: Path) -> None:
    with running(tmp_path, *SETTINGS) as server:
        async with service_of(server) as service:
            flow_id = await service.start(service.stage("root"), items=items_of(1))
        waits, gone = await Plain.to(server.port), await Plain.to(server.port)
        for each in (waits, gone):
            await each.send("getFlow", request=GET_FLOW.request(flow_id, 600_000))
        await gone.close()
        server.send(signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            assert (await waits.answer()).success.id == flow_id
        assert server.ended() == 0
        assert not [event for event in server.events if event.get("level") == "error"]
        await waits.close()
