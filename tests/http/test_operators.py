"""The routes about queues, the cluster, schedules and access, and the pages, against a real server."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from pinlater.http.openapi import openapi_json
from pinlater.http.reference_pages import docs_page
from pinlater.http.routes import ROUTES
from tests.http.calls import PASSWORD, Caller
from tests.server.running import PROGRAM

ROOT = Path(__file__).parents[2]


def test_queues_are_made_seen_and_deleted(caller: Caller, queue: str) -> None:
    caller.done("PUT", f"/v1/queues/{queue}", status=204)
    assert queue in caller.done("GET", "/v1/queues")["queues"]
    assert caller.done("GET", f"/v1/queues/{queue}")["name"] == queue
    assert caller.refused("PUT", "/v1/queues/a%20b")[:2] == (400, "QUEUE_NAME_INVALID")
    assert caller.refused("PUT", f"/v1/queues/{'a' * 65}")[:2] == (400, "QUEUE_NAME_TOO_LONG")
    assert caller.refused("DELETE", f"/v1/queues/{queue}")[:2] == (403, "PASSWORD_INVALID")
    caller.done("DELETE", f"/v1/queues/{queue}", status=204, X_Admin_Password=PASSWORD)
    assert caller.refused("GET", f"/v1/queues/{queue}")[:2] == (404, "QUEUE_NOT_FOUND")
    assert caller.refused("GET", f"/v1/queues/{queue}?all=1") == (400, "REQUEST_INVALID", "all")


def test_settings_of_a_queue_and_of_all(caller: Caller, queue: str) -> None:
    path = f"/v1/queues/{queue}/settings"
    assert caller.done("GET", path)["settings"]["max_body"]["source"] == "server"
    assert caller.refused("PATCH", path, {"set": {"max_body": "2KiB"}})[:2] == (403, "PASSWORD_INVALID")
    changed = caller.done("PATCH", path, {"set": {"max_body": "2KiB"}}, X_Admin_Password=PASSWORD)
    assert changed["missed_shards"] == []
    after = caller.done("GET", path)
    assert (after["version"], after["settings"]["max_body"]) == (
        changed["version"],
        {"value": "2KiB", "source": "queue"},
    )
    assert [each for each in caller.done("GET", "/v1/settings")["queues"] if each["name"] == queue] == [after]
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", {"body": "x" * 3000})[1] == "BODY_TOO_LARGE"
    caller.done("PATCH", path, {"unset": ["max_body"]}, X_Admin_Password=PASSWORD)
    assert caller.done("GET", path)["settings"]["max_body"]["source"] == "server"
    wrong = {"set": {"colour": "red"}}
    assert caller.refused("PATCH", path, wrong, X_Admin_Password=PASSWORD)[:2] == (400, "REQUEST_INVALID")
    assert caller.refused("PATCH", path, {"set": {"max_body": 7}}, X_Admin_Password=PASSWORD)[0] == 400
    assert caller.done("GET", "/v1/queues/@defaults/settings")["name"] == "@defaults"


def test_the_cluster(caller: Caller, queue: str) -> None:
    status = caller.done("GET", f"/v1/status?queue={queue}")
    assert [each["name"] for each in status["queues"]] == [queue]
    assert status["counters"] is None
    (process,) = caller.done("GET", f"/v1/status?queue={queue}&counters_since_ms=0")["counters"]
    assert process["counted_at_ms"] >= process["started_ms"]
    assert caller.refused("GET", "/v1/status?counters_since_ms=-1")[:2] == (400, "REQUEST_INVALID")
    (server,) = caller.done("GET", "/v1/servers")["servers"]
    assert server["is_ready"] is True
    (shard,) = caller.done("GET", "/v1/shards")["shards"]
    assert (shard["state"], shard["dequeue_only"]) == ("in", False)
    path = f"/v1/shards/{shard['id']}"
    assert caller.refused("PATCH", path, {"dequeue_only": False})[:2] == (403, "PASSWORD_INVALID")
    assert caller.refused("PATCH", path, {"dequeue_only": "no"}) == (400, "REQUEST_INVALID", "dequeue_only")
    assert caller.done("PATCH", path, {"dequeue_only": False}, X_Admin_Password=PASSWORD)["missed_shards"] == []
    nowhere = caller.refused("PATCH", "/v1/shards/nowhere", {"dequeue_only": True}, X_Admin_Password=PASSWORD)
    assert nowhere == (404, "SHARD_NOT_FOUND", None)


def test_a_limit_beyond_its_bound_is_refused_by_name(caller: Caller, queue: str) -> None:
    for path, most in (
        (f"/v1/queues/{queue}/jobs?state=pending&", 10_000),
        ("/v1/audit?", 10_000),
        ("/v1/workers?", 1_000),
        ("/v1/schedules?", 1_000),
        ("/v1/flows?", 1_000),
    ):
        caller.done("GET", f"{path}limit={most}")
        for limit in (0, most + 1):
            assert caller.refused("GET", f"{path}limit={limit}") == (400, "REQUEST_INVALID", "limit")
    search = f"/v1/queues/{queue}/jobs/search"
    caller.done("POST", search, {"limit": 10_000, "min_attempts": 0, "max_attempts": 2**31 - 1})
    for wrong in ({"limit": 20_000}, {"limit": 0}, {"min_attempts": -1}, {"max_attempts": -1}, {"min_attempts": 2**31}):
        assert caller.refused("POST", search, wrong) == (400, "REQUEST_INVALID", next(iter(wrong)))


def test_workers_say_who_they_are(caller: Caller, queue: str) -> None:
    for number in range(3):
        worker = {
            "id": f"{queue}-{number}",
            "name": queue,
            "up_ms": 5,
            "queues": {queue: 1},
            "slots": 2,
            "running": [{"job_descriptor": f"{queue}:s1:p1:1790000000000000", "job_type": "send"}],
        }
        caller.done("POST", f"/v1/queues/{queue}/dequeue", {"worker": worker})
    path = f"/v1/workers?name={queue}&include_running=true&limit=2"
    page = caller.done("GET", path)
    assert (page["total"], page["slots"], len(page["workers"])) == (3, 6, 2)
    assert page["workers"][0]["running"][0]["job_type"] == "send"
    last = caller.done("GET", f"{path}&cursor={page['next_cursor']}")
    assert len(last["workers"]) == 1
    assert "next_cursor" not in last


def test_a_worker_over_http_hears_what_it_is_to_do(caller: Caller, queue: str) -> None:
    old = {"id": f"old-{queue}", "name": queue, "up_ms": 1, "host": queue, "pid": 1, "queues": {queue: 1}, "slots": 2}
    new = {**old, "id": f"new-{queue}", "pid": 2, "is_quiet": False}
    beat = f"/v1/queues/{queue}/heartbeat"
    for worker in (old, new):
        assert caller.done("POST", beat, {"worker": worker}) == {"answers": []}
    given = caller.done("POST", "/v1/workers/commands", {"command": "quiet", "host": queue})
    assert [(each["pid"], each["outcome"]) for each in given["workers"]] == [(1, "too_old"), (2, "taken")]
    assert "command" not in caller.done("POST", beat, {"worker": {**old, "up_ms": 2}})
    heard = caller.done("POST", beat, {"worker": {**new, "up_ms": 2, "is_quiet": True}})
    assert heard["command"] == "quiet"
    (shown,) = [each for each in caller.done("GET", f"/v1/workers?name={queue}")["workers"] if each["pid"] == 2]
    assert shown["is_quiet"] is True
    named = caller.done("POST", "/v1/workers/commands", {"command": "resume", "workers": [f"{queue}:2", "nobody:1"]})
    assert [(each["id"], each["outcome"]) for each in named["workers"]] == [
        (f"new-{queue}", "taken"),
        ("nobody:1", "not_known"),
    ]
    later = caller.done("POST", beat, {"worker": {**new, "up_ms": 3}})
    assert (later["command"], later["command_number"] > heard["command_number"]) == ("resume", True)
    for wrong in ({"command": "quiet"}, {"command": "stop", "host": "x", "all_workers": True}):
        assert caller.refused("POST", "/v1/workers/commands", wrong)[:2] == (400, "REQUEST_INVALID")


def test_pages_of_the_audit_have_each_entry_once(caller: Caller, queue: str) -> None:
    for number in range(5):
        caller.done("PUT", f"/v1/queues/{queue}_{number}")
    whole = caller.done("GET", "/v1/audit?limit=6")["entries"]
    assert {f"{queue}_{number}" for number in range(5)} <= {each["target"] for each in whole}
    paged = []
    page = caller.done("GET", "/v1/audit?limit=1")
    for _ in range(6):
        paged += page["entries"]
        page = caller.done("GET", f"/v1/audit?limit=1&cursor={page['next_cursor']}")
    assert paged == whole
    before = caller.done("GET", f"/v1/audit?before_ms={whole[0]['at_ms']}")["entries"]
    assert all(each["at_ms"] < whole[0]["at_ms"] for each in before)
    assert caller.refused("GET", "/v1/audit?cursor=7")[:2] == (400, "CONTINUATION_INVALID")


def test_schedules(caller: Caller, queue: str) -> None:
    path = f"/v1/schedules/{queue}.nightly"
    assert caller.refused("GET", path)[:2] == (404, "NOT_FOUND")
    made = {"queue": queue, "cron": "0 3 * * *", "body": {"n": 1}, "body_encoding": "json", "misfire": "skip"}
    assert caller.refused("PATCH", path, made)[:2] == (403, "PASSWORD_INVALID")
    tried = caller.done("PATCH", path, {**made, "dry_run": True}, X_Admin_Password=PASSWORD)
    assert len(tried["schedule"]["next_ms"]) == 5
    assert caller.refused("GET", path)[0] == 404
    caller.done("PATCH", path, {**made, "only_if_version": ""}, X_Admin_Password=PASSWORD)
    again = caller.refused("PATCH", path, {**made, "only_if_version": ""}, X_Admin_Password=PASSWORD)
    assert again[:2] == (409, "CHANGED")
    caller.done("PATCH", path, {"paused": True}, X_Admin_Password=PASSWORD)
    seen = caller.done("GET", f"{path}?include_body=true&encoding=json&next_limit=2")
    assert (seen["queue"], seen["cron"], seen["misfire"], seen["paused"]) == (queue, "0 3 * * *", "skip", True)
    assert (seen["body"], seen["body_encoding"], len(seen["next_ms"])) == ({"n": 1}, "json", 2)
    caller.done("PATCH", f"{path}2", {**made, "cron": None, "every_ms": 60_000}, X_Admin_Password=PASSWORD)
    page = caller.done("GET", f"/v1/schedules?queue={queue}&limit=1")
    assert [each["name"] for each in page["schedules"]] == [f"{queue}.nightly"]
    page = caller.done("GET", f"/v1/schedules?queue={queue}&limit=1&cursor={page['next_cursor']}")
    assert [each["every_ms"] for each in page["schedules"]] == [60_000]
    wrong = {"queue": queue, "cron": "every night"}
    assert caller.refused("PATCH", path, wrong, X_Admin_Password=PASSWORD)[:2] == (400, "REQUEST_INVALID")
    assert caller.done("DELETE", path, X_Admin_Password=PASSWORD)["version"]
    assert caller.done("DELETE", path, X_Admin_Password=PASSWORD)["version"] == ""


def test_tokens(caller: Caller, queue: str) -> None:
    token = f"plt_{hashlib.sha256(queue.encode()).hexdigest()[:43]}"
    made = {"hash": hashlib.sha256(token.encode()).hexdigest(), "roles": ["producer"]}
    path = f"/v1/tokens/{queue}"
    assert caller.refused("PUT", path, made)[:2] == (403, "PASSWORD_INVALID")
    caller.done("PUT", path, made, X_Admin_Password=PASSWORD)
    other = {**made, "roles": ["worker"]}
    assert caller.refused("PUT", path, other, X_Admin_Password=PASSWORD)[:2] == (400, "REQUEST_INVALID")
    assert caller.refused("PUT", path, {**made, "hash": "00"}) == (400, "REQUEST_INVALID", "hash")
    assert caller.refused("PUT", path, {**made, "token": token}) == (400, "REQUEST_INVALID", "token")
    (seen,) = [each for each in caller.done("GET", "/v1/tokens")["tokens"] if each["name"] == queue]
    assert seen["roles"] == ["producer"]
    assert token not in str(seen)
    as_token = {"Authorization": f"Bearer {token}"}
    access = caller.done("GET", "/v1/access", **as_token)
    assert (access["identity"], access["roles"]) == (f"token:{queue}", ["producer"])
    assert caller.done("GET", "/v1/access")["identity"] == "anonymous"
    assert caller.done("DELETE", path, X_Admin_Password=PASSWORD)["version"]
    assert caller.refused("GET", "/v1/access", **as_token)[:2] == (403, "FORBIDDEN")


def test_what_is_not_there_is_a_problem_too(caller: Caller) -> None:
    assert caller.refused("GET", "/v1/nothing")[:2] == (404, "NOT_FOUND")
    response = caller.send("PUT", "/v1/dequeue")
    assert (response.status_code, response.json()["reason"]) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["Allow"] == "POST"


def test_whatever_answers_get_answers_head(caller: Caller) -> None:
    for path in [route.path for route in ROUTES if route.verb == "GET" and "{" not in route.path]:
        shown, head = caller.send("GET", path), caller.send("HEAD", path)
        assert head.status_code == shown.status_code, path
        assert head.content == b""
    assert "Content-Encoding" not in caller.send("GET", "/v1/queues").headers, "answers to programs are as they were"


def test_each_route_is_in_the_document_once() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.verb, route.path) for route in ROUTES}) == len(ROUTES)


def test_the_document_is_served_and_printed(caller: Caller) -> None:
    assert caller.client.get("/v1/openapi.json").content == openapi_json()
    printed = subprocess.run([PROGRAM, "api", "openapi"], capture_output=True, check=True).stdout
    assert printed.strip() == openapi_json().strip()


@pytest.mark.parametrize(
    ("path", "content_type"),
    [("/docs/api", "text/html"), ("/docs/api/docs.js", "text/javascript"), ("/docs/api/docs.css", "text/css")],
)
def test_the_page_to_try_the_calls_needs_nothing_from_elsewhere(caller: Caller, path: str, content_type: str) -> None:
    response = caller.client.get(path)
    assert response.headers["Content-Type"] == f"{content_type}; charset=utf-8"
    assert "://" not in response.text
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]
    assert "unsafe" not in response.headers["Content-Security-Policy"]


def test_the_table_in_the_documents_is_that_of_the_routes() -> None:
    assert (ROOT / "docs" / "http-routes.md").read_text(encoding="utf-8") == docs_page(), (
        "write it anew: python -m pinlater.http > docs/http-routes.md"
    )
