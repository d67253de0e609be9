"""The routes of flows, against a real server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.http.calls import Caller

_names = itertools.count()


def stages(queue: str, **first: Any) -> list[dict[str, Any]]:
    """Two of them; what the first one makes, the second one gets."""
    return [
        {"name": "calculate", "queue": queue, "max_failures": 1, "backoff_ms": 0, **first},
        {"name": "pay", "queue": f"{queue}_pay", "parent": "calculate", "is_final": True},
    ]


@pytest.fixture
def queue() -> str:
    """That of the first stage; nobody has made it."""
    return f"flows_{next(_names)}"


def made(caller: Caller, queue: str, *payloads: Any, **fields: Any) -> str:
    items = {"calculate": [{"payload": each} for each in payloads]}
    return str(
        caller.done("POST", "/v1/flows", {"name": queue, "stages": stages(queue), "items": items, **fields})["id"]
    )


def dequeued(caller: Caller, queue: str) -> dict[str, Any]:
    wanted = {"wait_ms": 10_000, "encoding": "json"}
    (job,) = caller.done("POST", f"/v1/queues/{queue}/dequeue", wanted)["jobs"]
    return dict(job)


def succeed(caller: Caller, queue: str, result: Any) -> dict[str, Any]:
    """Do one job of a queue as any worker does; the job."""
    job = dequeued(caller, queue)
    claim = {name: job[name] for name in ("descriptor", "claim_descriptor")}
    done = {"succeeded": [{**claim, "result": result, "result_encoding": "json"}]}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", done)["outcomes"] == ["succeeded"]
    return job


def test_a_flow_from_its_making_to_its_end(caller: Caller, queue: str) -> None:
    flow = made(caller, queue, {"user": 1}, metadata={"month": "11"})
    added = {"stage": "calculate", "items": [{"payload": [2], "dedupe_key": "two"}], "seal": True}
    (number,) = caller.done("POST", f"/v1/flows/{flow}/items", added, status=201)["numbers"]
    assert succeed(caller, queue, {"amount": 7})["body"] == {"user": 1}
    assert succeed(caller, queue, None)["body"] == [2]
    paid = [succeed(caller, f"{queue}_pay", "paid")["body"] for _ in range(2)]
    assert paid == [{"payload": {"user": 1}, "result": {"amount": 7}}, {"payload": [2], "result": None}]
    found = caller.done("GET", f"/v1/flows/{flow}?wait_ms=20000")
    assert (found["state"], found["name"], found["metadata"]) == ("complete", queue, {"month": "11"})
    counts = [[each[name] for name in ("name", "items", "succeeded", "is_complete")] for each in found["stages"]]
    assert counts == [["calculate", 2, 2, True], ["pay", 2, 2, True]]
    (item,) = caller.done("GET", f"/v1/flows/{flow}/items?dedupe_key=two")["items"]
    assert (item["number"], item["payload"], item["result"], item["state"]) == (number, [2], None, "succeeded")
    assert caller.refused("POST", f"/v1/flows/{flow}/items", added)[:2] == (409, "STAGE_SEALED")
    caller.done("DELETE", f"/v1/flows/{flow}", status=204)
    assert caller.refused("GET", f"/v1/flows/{flow}")[:2] == (404, "FLOW_NOT_FOUND")


def test_jobs_of_a_stage_with_tags_are_found_by_them(caller: Caller, queue: str) -> None:
    tagged = [{**each, "tags": ["tenant:7"]} for each in stages(queue)]
    flow = made(caller, queue, 1, stages=tagged)
    assert caller.done("GET", f"/v1/flows/{flow}")["stages"][0]["tags"] == ["tenant:7"]
    job = dequeued(caller, queue)
    found = caller.done("POST", f"/v1/queues/{queue}/jobs/search", {"tags": ["tenant:7"]})["jobs"]
    assert [each["descriptor"] for each in found] == [job["descriptor"]]
    wrong = {"name": queue, "stages": [{**tagged[0], "tags": ["a\nb"]}]}
    assert caller.refused("POST", "/v1/flows", wrong)[:2] == (400, "REQUEST_INVALID")


def test_jobs_of_a_stage_have_the_groups_that_it_makes_of_their_payloads(caller: Caller, queue: str) -> None:
    grouped = [{**each, "group": "{tenant}"} for each in stages(queue)]
    flow = made(caller, queue, {"tenant": "acme"}, stages=grouped)
    assert caller.done("GET", f"/v1/flows/{flow}")["stages"][0]["group"] == "{tenant}"
    job = dequeued(caller, queue)
    assert caller.done("GET", f"/v1/jobs/{job['descriptor']}")["group"] == "acme"
    wrong = {"name": queue, "stages": [{**grouped[0], "group": "{tenant"}]}
    assert caller.refused("POST", "/v1/flows", wrong)[:2] == (400, "REQUEST_INVALID")


def test_an_ack_of_jobs_as_they_came_has_their_results(caller: Caller, queue: str) -> None:
    flow = made(caller, queue, 1)
    done = {"jobs": [{**dequeued(caller, queue), "result": {"amount": 7}, "result_encoding": "json"}]}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", done)["outcomes"] == ["succeeded"]
    (item,) = caller.done("GET", f"/v1/flows/{flow}/items?stage=calculate")["items"]
    assert item["result"] == {"amount": 7}


def test_json_comes_back_as_it_was_sent(caller: Caller, queue: str) -> None:
    sent = b'{"name":"x","stages":[{"name":"s","queue":"%b"}],"items":{"s":[{"payload":{"b": 1.50, "a":"\\u00e9"}}]}}'
    flow = caller.done("POST", "/v1/flows", sent % queue.encode())["id"]
    assert b'"payload":{"b": 1.50, "a":"\\u00e9"}' in caller.send("GET", f"/v1/flows/{flow}/items").content
    hidden = caller.done("GET", f"/v1/flows/{flow}/items?include_body=false")["items"]
    assert "payload" not in hidden[0]


def test_a_flow_is_made_once(caller: Caller, queue: str) -> None:
    form = {"name": "once", "stages": stages(queue)}
    first = caller.done("POST", "/v1/flows", form, status=201, Idempotency_Key=queue)
    assert first["is_new"]
    assert caller.done("POST", "/v1/flows", form, Idempotency_Key=f'"{queue}"') == {"id": first["id"], "is_new": False}
    assert caller.done("POST", "/v1/flows", {**form, "dedupe_key": queue})["id"] == first["id"]
    both = caller.refused("POST", "/v1/flows", {**form, "dedupe_key": queue}, Idempotency_Key="k")
    assert both == (400, "REQUEST_INVALID", "dedupe_key")
    assert caller.refused("POST", "/v1/flows", form, Idempotency_Key="k" * 201)[2] == "Idempotency-Key"
    (found,) = caller.done("GET", f"/v1/flows?name=once&dedupe_key={queue}")["flows"]
    assert found["id"] == first["id"]


def test_flows_and_items_come_in_pages(caller: Caller, queue: str) -> None:
    flows = [made(caller, queue, 1, 2, 3, dedupe_key=f"k{at}") for at in range(3)]
    path, seen = f"/v1/flows?name={queue}&limit=2", []
    page = caller.done("GET", path)
    seen += page["flows"]
    page = caller.done("GET", f"{path}&cursor={page['next_cursor']}")
    seen += page["flows"]
    assert "next_cursor" not in page
    assert [each["id"] for each in seen] == flows[::-1]
    path = f"/v1/flows/{flows[0]}/items?stage=calculate&state=pending&limit=2"
    page = caller.done("GET", path)
    rest = caller.done("GET", f"{path}&cursor={page['next_cursor']}")
    assert [each["payload"] for each in page["items"] + rest["items"]] == [1, 2, 3]
    number = rest["items"][0]["number"]
    assert [each["payload"] for each in caller.done("GET", f"/v1/flows/{flows[0]}/items?number={number}")["items"]] == [
        3
    ]
    assert caller.refused("GET", "/v1/flows?cursor=x")[:2] == (400, "CONTINUATION_INVALID")
    assert caller.refused("GET", f"/v1/flows/{flows[0]}/items?stage=a%20b") == (400, "REQUEST_INVALID", "stage")
    assert caller.refused("GET", "/v1/flows?state=null") == (400, "REQUEST_INVALID", "state")


def test_stages_are_sealed_and_flows_cancelled(caller: Caller, queue: str) -> None:
    flow = made(caller, queue)
    caller.done("POST", f"/v1/flows/{flow}/seal", {}, status=204)
    assert caller.done("GET", f"/v1/flows/{flow}?wait_ms=20000")["state"] == "complete"
    other = made(caller, queue, 1)
    cancelled = caller.done("POST", f"/v1/flows/{other}/cancel")
    assert cancelled["id"] == other
    assert caller.done("GET", f"/v1/flows/{other}?wait_ms=20000")["state"] == "cancelled"
    (item,) = caller.done("GET", f"/v1/flows/{other}/items")["items"]
    assert item["state"] == "failed"
    assert "cancel" in item["failures"][0]["reason"]


def test_a_flow_goes_on_with_another_expression(caller: Caller, queue: str) -> None:
    broken = stages(queue)
    broken[1]["applet"] = {"kind": "map", "expression": "length(result.amount)"}
    items = {"calculate": [{"payload": {"user": 1}}]}
    form = {"name": queue, "stages": broken, "items": items, "sealed": ["calculate"]}
    flow = caller.done("POST", "/v1/flows", form)["id"]
    succeed(caller, queue, {"amount": 7})
    stuck = caller.done("GET", f"/v1/flows/{flow}")
    assert (stuck["state"], stuck["stages"][0]["applet_errors"]) == ("running", 1)
    assert "pay" in stuck["troubles"][0]
    mended = {"stage": "pay", "expression": "{amount: result.amount}"}
    assert "troubles" not in caller.done("POST", f"/v1/flows/{flow}/resume", mended)
    assert succeed(caller, f"{queue}_pay", 0)["body"] == {"amount": 7}
    assert caller.done("GET", f"/v1/flows/{flow}?wait_ms=20000")["state"] == "complete"


def test_one_item_is_assigned(caller: Caller, queue: str) -> None:
    flow = made(caller, queue, "first", "second")
    first, second = (each["number"] for each in caller.done("GET", f"/v1/flows/{flow}/items")["items"])
    found = caller.done(
        "POST", f"/v1/flow-items/{second}/assign", {"claim_timeout_ms": 60_000}, X_PinLater_Source="ada"
    )
    assert (found["number"], found["payload"]) == (second, "second")
    assert caller.refused("POST", f"/v1/flow-items/{second}/assign", {})[:2] == (409, "IN_PROGRESS")
    failure = {name: found[name] for name in ("descriptor", "claim_descriptor")}
    acks = {"failed": [{**failure, "append_status": "no ink", "permanent": True}]}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", acks)["outcomes"] == ["failed"]
    assert caller.refused("POST", f"/v1/flow-items/{second}/assign", {})[:2] == (409, "ENDED")
    (item,) = caller.done("GET", f"/v1/flows/{flow}/items?state=failed")["items"]
    assert [(each["attempt"], each["worker"], each["reason"]) for each in item["failures"]] == [(1, "ada", "no ink")]
    assert caller.done("GET", f"/v1/flows/{flow}/items?state=pending")["items"][0]["number"] == first


@pytest.mark.parametrize("number", ["0", "99999999999", "x", "1" * 40])
def test_an_item_that_is_not_there(caller: Caller, number: str) -> None:
    assert caller.refused("POST", f"/v1/flow-items/{number}/assign", {})[:2] == (404, "ITEM_NOT_FOUND")
    assert caller.refused("POST", f"/job_item/{number}/worker/ada")[:2] == (404, "ITEM_NOT_FOUND")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"stages": []}, "stages"),
        ({"stages": [{"name": "s"}]}, "stages[0].queue"),
        ({"stages": [{"name": "s", "queue": "q", "color": 1}]}, "stages[0].color"),
        ({"stages": [{"name": "s", "queue": "q", "max_failures": 100}]}, "stages[0].max_failures"),
        ({"stages": [{"name": "s", "queue": "q", "applet": {"kind": "both"}}]}, "stages[0].applet.kind"),
        ({"items": {"calculate": [{}]}}, "items[...][0].payload"),
        ({"on_failure": "stop"}, "on_failure"),
        ({"ttl_ms": -1}, "ttl_ms"),
    ],
)
def test_what_is_wrong_is_named(caller: Caller, queue: str, change: dict[str, Any], field: str) -> None:
    form = {"name": "wrong", "stages": stages(queue), **change}
    assert caller.refused("POST", "/v1/flows", form) == (400, "REQUEST_INVALID", field)


@pytest.mark.parametrize(
    "change",
    [
        {"stages": [{"name": "s", "queue": "q", "parent": "nobody"}]},
        {"items": {"nowhere": [{"payload": 1}]}},
        {"sealed": ["nowhere"]},
        {"on_complete": {}},
        {"on_complete": {"url": "http://127.0.0.1:1/"}},
    ],
)
def test_what_the_server_refuses(caller: Caller, queue: str, change: dict[str, Any]) -> None:
    form = {"name": "wrong", "stages": stages(queue), **change}
    assert caller.refused("POST", "/v1/flows", form)[:2] == (400, "REQUEST_INVALID")


def test_what_has_failed_is_tried_again_and_what_is_refused_has_its_reason(caller: Caller, queue: str) -> None:
    flow = made(caller, queue, 1, 2, sealed=["calculate"])
    done = succeed(caller, queue, 7)
    for _ in range(2):
        job = dequeued(caller, queue)
        claim = {name: job[name] for name in ("descriptor", "claim_descriptor")}
        caller.done("POST", f"/v1/queues/{queue}/ack", {"failed": [claim]})
    succeed(caller, f"{queue}_pay", None)
    over = caller.done("GET", f"/v1/flows/{flow}?wait_ms=20000")
    assert (over["state"], over["ends"]) == ("complete", 1)
    numbers = [each["number"] for each in caller.done("GET", f"/v1/flows/{flow}/items?stage=calculate")["items"]]
    came = caller.done("POST", f"/v1/flows/{flow}/retry", {"numbers": numbers})
    assert (came["retried"], came["removed"], came["flow"]["state"], came["flow"]["ends"]) == (1, 0, "running", 1)
    (refused,) = came["refused"]
    assert (refused["count"], len(refused["numbers"])) == (1, 1)
    assert refused["reason"].startswith("it has succeeded, and its children are there")
    assert done["body"] in (1, 2)
    succeed(caller, queue, 8)
    succeed(caller, f"{queue}_pay", None)
    over = caller.done("GET", f"/v1/flows/{flow}?wait_ms=20000")
    assert (over["state"], over["ends"], [each["succeeded"] for each in over["stages"]]) == ("complete", 2, [2, 2])
    for wrong in ({}, {"numbers": numbers, "failed": True}, {"numbers": numbers, "stage": "pay"}):
        assert caller.refused("POST", f"/v1/flows/{flow}/retry", wrong)[:2] == (400, "REQUEST_INVALID")
