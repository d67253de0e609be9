"""The routes of the Async Service, against a real server: a tree of jobs, and workers that are HTTP callers."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinlater.http.routes import ROUTES
from tests.http.calls import AS_ADMIN, Caller
from tests.server.running import running

ROOT = Path(__file__).parents[2]
_names = itertools.count()


@pytest.fixture
def queue() -> str:
    """That of the first job; nobody has made it."""
    return f"trees_{next(_names)}"


def tree(queue: str, *payloads: Any, **fields: Any) -> dict[str, Any]:
    """A tree of two jobs, with items for the first one."""
    pay = {"name": "pay", "queue": f"{queue}_pay", "finalStage": True}
    pay["applet"] = {"kind": "map", "expression": "result"}
    items = [{"payload": each} for each in payloads]
    return {"name": "calculate", "queue": queue, "items": items, "children": [pay], "backoffMs": 0, **fields}


def waiting(caller: Caller, job: str) -> list[dict[str, Any]]:
    """The items of a job that are to be done, in order."""
    return list(caller.done("GET", f"/job_item?jobId={job}&state=pending")["items"])


def assigned(caller: Caller, item: int, worker: str = "ada") -> str:
    return str(caller.done("POST", f"/job_item/{item}/worker/{worker}")["assignmentId"])


def succeed(caller: Caller, job: str, result: Any) -> Any:
    """Do the first item of a job; its payload."""
    item = waiting(caller, job)[0]
    path = f"/assignment/{assigned(caller, item['id'])}/result"
    assert caller.done("POST", path, {"result": result}) == {"outcome": "succeeded"}
    return item["payload"]


def test_a_tree_from_its_creation_to_its_end(caller: Caller, queue: str) -> None:
    created = caller.done("POST", "/job", tree(queue, {"user": 1}, metadata={"month": "11"}), status=201)
    root, jobs = created["treeId"], created["jobs"]
    assert (created["isNew"], jobs) == (True, {"calculate": f"{root}:calculate", "pay": f"{root}:pay"})
    more = {"jobId": jobs["calculate"], "items": [{"payload": {"user": 2}}], "sealed": True}
    (added,) = caller.done("POST", "/job", more, status=201)["itemIds"]
    assert [each["id"] for each in waiting(caller, jobs["calculate"])][1] == added
    assert caller.refused("POST", "/job", more)[:2] == (409, "STAGE_SEALED")
    assert [succeed(caller, jobs["calculate"], {"amount": at}) for at in (10, 20)] == [{"user": 1}, {"user": 2}]
    assert [succeed(caller, jobs["pay"], ["paid", at]) for at in (10, 20)] == [{"amount": 10}, {"amount": 20}]
    status = caller.done("GET", f"/job/{root}/status?waitMs=20000")
    assert (status["state"], status["metadata"]) == ("complete", {"month": "11"})
    assert [(each["id"], each["items"], each["complete"]) for each in status["jobs"]] == [
        (job, {"total": 2, "pending": 0, "queued": 0, "succeeded": 2, "failed": 0}, True) for job in jobs.values()
    ]
    assert status["jobs"][1]["parentId"] == jobs["calculate"]
    assert [(each["jobId"], each["result"]) for each in status["results"]] == [
        (jobs["pay"], ["paid", 10]),
        (jobs["pay"], ["paid", 20]),
    ]
    one = caller.done("GET", f"/job/{jobs['calculate']}/status")
    assert [each["name"] for each in one["jobs"]] == ["calculate"]
    assert "results" not in one
    assert [each["treeId"] for each in caller.done("GET", "/job?name=calculate&limit=1")["trees"]] == [root]
    assert caller.refused("DELETE", f"/job/{jobs['pay']}") == (400, "REQUEST_INVALID", "job")
    caller.done("DELETE", f"/job/{root}", status=204)
    assert caller.refused("GET", f"/job/{root}/status")[:2] == (404, "FLOW_NOT_FOUND")


def test_results_of_final_stages_come_in_pages(caller: Caller, queue: str) -> None:
    leaves = [{"name": name, "queue": f"{queue}_{name}", "finalStage": True} for name in ("left", "right")]
    form = {"name": "root", "queue": queue, "items": [{"payload": at} for at in range(2)], "children": leaves}
    jobs = caller.done("POST", "/job", {**form, "sealed": True})["jobs"]
    root = jobs["root"].partition(":")[0]
    for job in ("root", "left", "right"):
        for at in range(2):
            succeed(caller, jobs[job], [job, at])
    path, found, pages = f"/job/{root}/status?limit=1", [], 0
    page = caller.done("GET", path)
    while True:
        found, pages = found + page.get("results", []), pages + 1
        if "nextCursor" not in page:
            break
        page = caller.done("GET", f"{path}&cursor={page['nextCursor']}")
    assert [each["result"] for each in found] == [[job, at] for job in ("left", "right") for at in range(2)]
    assert pages == 4
    assert "results" not in caller.done("GET", f"/job/{root}/status?includeResults=false")
    for cursor in ("x", "root:0", "left:x"):
        assert caller.refused("GET", f"{path}&cursor={cursor}")[:2] == (400, "CONTINUATION_INVALID")
    assert caller.refused("GET", f"/job/{root}:nothing/status")[:2] == (404, "NOT_FOUND")


def test_a_tree_is_created_once(caller: Caller, queue: str) -> None:
    first = caller.done("POST", "/job", tree(queue), Idempotency_Key=queue)
    again = caller.done("POST", "/job", tree(queue, dedupeKey=queue))
    assert again == {**first, "isNew": False}
    both = caller.refused("POST", "/job", tree(queue, dedupeKey=queue), Idempotency_Key=queue)
    assert both == (400, "REQUEST_INVALID", "dedupeKey")
    (found,) = caller.done("GET", f"/job?dedupeKey={queue}&state=running")["trees"]
    assert found["treeId"] == first["treeId"]


def test_an_assignment_is_exclusive_and_kept(caller: Caller, queue: str) -> None:
    job = caller.done("POST", "/job", tree(queue, "one"))["jobs"]["calculate"]
    (item,) = waiting(caller, job)
    path = f"/job_item/{item['id']}/worker"
    assignment = caller.done("POST", f"{path}/ada?heartbeatMs=5000")
    assert (assignment["itemId"], assignment["payload"]) == (item["id"], "one")
    assert (assignment["heartbeatMs"], assignment["timeoutMs"]) == (5_000, 15_000)
    assert caller.refused("POST", f"{path}/bob")[:2] == (409, "IN_PROGRESS")
    ours = f"/assignment/{assignment['assignmentId']}"
    assert caller.done("POST", f"{ours}/heartbeat") == {"cancelled": False}
    assert caller.done("POST", f"{ours}/result", {"result": {"b": 1, "a": None}}) == {"outcome": "succeeded"}
    for what, body in (("heartbeat", None), ("result", {"result": 2}), ("failure", {})):
        assert caller.refused("POST", f"{ours}/{what}", body)[:2] == (410, "NOT_HELD")
    assert caller.refused("POST", f"{path}/bob")[:2] == (409, "ENDED")
    (done,) = caller.done("GET", f"/job_item?jobId={job}&itemId={item['id']}")["items"]
    assert (done["state"], done["result"], done["failures"]) == ("succeeded", {"b": 1, "a": None}, [])


def test_a_failure_names_its_worker_and_its_reason(caller: Caller, queue: str) -> None:
    job = caller.done("POST", "/job", tree(queue, "one", maxFailuresPerItem=2))["jobs"]["calculate"]
    (item,) = waiting(caller, job)
    first = assigned(caller, item["id"], "ada")
    assert caller.done("POST", f"/assignment/{first}/failure", {"reason": "no ink"}) == {"outcome": "retried"}
    second = assigned_when_due(caller, item["id"], "bob")
    last = {"reason": "no paper", "permanent": True}
    assert caller.refused("POST", f"/assignment/{first}/failure", last)[:2] == (410, "NOT_HELD")
    assert caller.done("POST", f"/assignment/{second}/failure", last) == {"outcome": "failed"}
    (item,) = caller.done("GET", f"/job_item?jobId={job}&state=failed")["items"]
    told = [[each[name] for name in ("attempt", "workerId", "reason")] for each in item["failures"]]
    assert told == [[1, "ada", "no ink"], [2, "bob", "no paper"]]


def test_a_late_result_counts_where_no_other_has_come(caller: Caller, queue: str) -> None:
    job = caller.done("POST", "/job", tree(queue, "one", maxFailuresPerItem=1))["jobs"]["calculate"]
    (item,) = waiting(caller, job)
    first = assigned(caller, item["id"])
    caller.done("POST", f"/assignment/{first}/failure", {"reason": "no ink"})
    second = assigned_when_due(caller, item["id"], "bob")
    assert caller.refused("POST", f"/assignment/{first}/result", {"result": 1})[:2] == (410, "NOT_HELD")
    assert caller.done("POST", f"/assignment/{second}/result", {"result": 2}) == {"outcome": "succeeded"}
    (item,) = caller.done("GET", f"/job_item?jobId={job}")["items"]
    assert (item["state"], item["result"]) == ("succeeded", 1)


def assigned_when_due(caller: Caller, item: int, worker: str) -> str:
    """The clock of the server may be a moment before the time of the retry."""
    while True:
        response = caller.send("POST", f"/job_item/{item}/worker/{worker}")
        if response.status_code != 409 or response.json()["reason"] != "NOT_DUE":
            return str(response.json()["assignmentId"])


def test_why_an_item_is_not_assigned(caller: Caller, queue: str) -> None:
    keyed = [{"payload": at, "serializeKey": queue} for at in range(2)]
    form = tree(queue, maxFailuresPerItem=1, backoffMs=600_000) | {"items": keyed}
    job = caller.done("POST", "/job", form)["jobs"]["calculate"]
    first, second = (each["id"] for each in waiting(caller, job))
    refused = caller.refused("POST", f"/job_item/{second}/worker/ada")
    assert refused[:2] == (409, "BEHIND")
    failed = {"reason": "later"}
    caller.done("POST", f"/assignment/{assigned(caller, first)}/failure", failed)
    assert caller.refused("POST", f"/job_item/{first}/worker/ada")[:2] == (409, "NOT_DUE")
    (item,) = caller.done("GET", f"/job_item?jobId={job}&itemId={first}")["items"]
    assert item["retryAtMs"] > item["addedAtMs"]
    assert item["failures"][0]["workerId"] == "ada"


def test_no_item_of_a_paused_queue_is_assigned(caller: Caller, queue: str) -> None:
    job = caller.done("POST", "/job", tree(queue, "one"))["jobs"]["calculate"]
    (item,) = waiting(caller, job)
    settings = f"/v1/queues/{queue}/settings"
    caller.done("PATCH", settings, {"set": {"paused": "true"}}, **AS_ADMIN)
    assert caller.refused("POST", f"/job_item/{item['id']}/worker/ada")[:2] == (409, "LIMITED")
    caller.done("PATCH", settings, {"set": {"paused": "false"}}, **AS_ADMIN)
    assert assigned(caller, item["id"])


def test_an_assignment_without_heartbeats_ends_like_a_failure(caller: Caller, queue: str) -> None:
    created = caller.done("POST", "/job", tree(queue, "one", sealed=True))
    (item,) = waiting(caller, created["jobs"]["calculate"])
    ours = caller.done("POST", f"/job_item/{item['id']}/worker/ada?heartbeatMs=1")["assignmentId"]
    status = caller.done("GET", f"/job/{created['treeId']}/status?waitMs=25000")
    assert (status["state"], status["jobs"][0]["items"]["failed"]) == ("complete", 1)
    assert caller.refused("POST", f"/assignment/{ours}/heartbeat")[:2] == (410, "NOT_HELD")
    (item,) = caller.done("GET", f"/job_item?jobId={created['treeId']}")["items"]
    assert [each["workerId"] for each in item["failures"]] == ["ada"]


def test_a_server_without_flows_says_so(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--flows", "none") as server:
        address = str(server.wait_for("api_ready")["address"])
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
            for path in ("/v1/flows", "/job"):
                assert Caller(client).refused("GET", path)[:2] == (503, "FLOWS_UNAVAILABLE")


def test_an_assignment_ends_with_its_flow(caller: Caller, queue: str) -> None:
    created = caller.done("POST", "/job", tree(queue, "one"))
    (item,) = waiting(caller, created["jobs"]["calculate"])
    ours = f"/assignment/{assigned(caller, item['id'])}"
    caller.done("POST", f"/v1/flows/{created['treeId']}/cancel")
    assert caller.done("POST", f"{ours}/heartbeat")["cancelled"]


def test_an_assignments_id_cannot_be_made_up(caller: Caller, queue: str) -> None:
    job = caller.done("POST", "/job", tree(queue, 1, 2))["jobs"]["calculate"]
    claims = []
    for item in waiting(caller, job):
        text = assigned(caller, item["id"])
        descriptor, claim = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split("\n")
        claims.append(claim.split(":")[3].partition("-")[2])
    assert len(set(claims)) == 2
    assert {len(bytes.fromhex(each)) for each in claims} == {16}
    made_up = [f"{descriptor}\n", f"{descriptor}\nada", descriptor, f"{descriptor}\n{claim[:-4]}x:ada", "\n"]
    answers = [caller.refused("POST", f"/assignment/{encoded(each)}/heartbeat")[:2] for each in made_up]
    assert answers == [(404, "NOT_FOUND")] * 3 + [(410, "NOT_HELD"), (404, "NOT_FOUND")]
    for text in ("x", "!", "é", "A" * 2001, encoded(f"{descriptor}\n{claim}")[:-3] + "%0A"):
        assert caller.send("POST", f"/assignment/{text}/result", {"result": 1}).status_code in (404, 410)
    assert len(waiting(caller, job)) == 2


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"queue": ""}, "queue"),
        ({"name": "a b"}, "name"),
        ({"children": [{"queue": "q"}]}, "children[0].name"),
        ({"children": [{"name": "a", "queue": "q", "children": [{"name": "b"}]}]}, "children[0].children[0].queue"),
        ({"max_failures": 1}, "max_failures"),
        ({"applet": {"kind": "both"}}, "applet.kind"),
        ({"jobId": "f1:calculate"}, "queue"),
        ({"jobId": "f1:calculate", "queue": "", "children": []}, "name"),
        (
            {"jobId": "f1:calculate", "queue": "", "name": "", "backoffMs": 1000, "children": [], "finalStage": True},
            "finalStage",
        ),
        ({"jobId": "a b"}, "jobId"),
    ],
)
def test_what_is_wrong_is_named(caller: Caller, queue: str, change: dict[str, Any], field: str) -> None:
    assert caller.refused("POST", "/job", {**tree(queue), **change}) == (400, "REQUEST_INVALID", field)


def test_more_that_is_refused(caller: Caller, queue: str) -> None:
    deep = b'{"name":"j","queue":"q","children":[' * 400 + b"]}" * 400
    assert caller.refused("POST", "/job", deep)[:2] == (400, "REQUEST_INVALID")
    assert caller.refused("POST", "/job", {"jobId": "f1", "items": []})[:2] == (400, "REQUEST_INVALID")
    assert caller.refused("POST", "/job", {"jobId": "f1:x", "items": []})[:2] == (404, "FLOW_NOT_FOUND")
    assert caller.refused("GET", "/job_item") == (400, "REQUEST_INVALID", "jobId")
    assert caller.refused("GET", "/job_item?jobId=f1&state=locked") == (400, "REQUEST_INVALID", "state")
    assert caller.refused("GET", "/job?state=null") == (400, "REQUEST_INVALID", "state")
    assert caller.refused("GET", "/job_item?jobId=f1&itemId=null") == (400, "REQUEST_INVALID", "itemId")
    assert caller.refused("POST", "/job_item/1/worker/a%20b")[:2] == (400, "REQUEST_INVALID")
    assert caller.refused("POST", "/job_item/1/worker/ada?heartbeatMs=0") == (400, "REQUEST_INVALID", "heartbeatMs")
    assert caller.refused("POST", "/assignment/x/result", {}) == (400, "REQUEST_INVALID", "result")


@pytest.mark.parametrize("route", [each for each in ROUTES if each.form and each.example], ids=lambda route: route.name)
def test_examples_of_requests_are_taken(caller: Caller, route: Any) -> None:
    """That of a form is one: what it names may not be there."""
    path = route.path.format_map({"flow": "f1", "item": "99999999999", "assignment": "x"})
    response = caller.send(route.verb, path, dict(route.example))
    assert response.is_success or response.status_code == 404, response.text


@pytest.mark.parametrize("place", [0, 1], ids=["items of flows", "a worker of the Async Service"])
def test_the_lines_of_the_page(caller: Caller, api_address: str, tmp_path: Path, place: int) -> None:
    """As they stand there but for the address."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    text = (ROOT / "docs/http.md").read_text("utf-8").split("\n## Flows\n")[1].split("\n## ")[0]
    script = text.split("```bash\n")[1 + place].split("```\n")[0]
    assert script.startswith("api=http://127.0.0.1:9012\n")
    script = "set -e\n" + script.replace("http://127.0.0.1:9012", api_address)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = done.stdout.strip()
    last, _ = json.JSONDecoder().raw_decode(said[said.rindex('{"treeId"' if place else '{"id"') :])
    assert last["state"] == "complete"
    if place:
        assert [each["result"] for each in last["results"]] == [3]
