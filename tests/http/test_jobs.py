"""The routes about jobs, against a real server: what each does, and what it says of a wrong request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pinlater_workers.envelope import Envelope, read_envelope
from tests.http.calls import Caller, problem_of

NOBODY = "http:s1:p1:1790000000000000"


def enqueued(caller: Caller, queue: str, **fields: Any) -> str:
    body = {"body": "a letter", **fields}
    return str(caller.done("POST", f"/v1/queues/{queue}/jobs", body, status=201)["descriptor"])


def dequeued(caller: Caller, queue: str, **fields: Any) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = caller.done("POST", f"/v1/queues/{queue}/dequeue", {"limit": 10, **fields})["jobs"]
    return jobs


def test_the_life_of_a_job(caller: Caller, queue: str) -> None:
    first = caller.done("POST", f"/v1/queues/{queue}/jobs", {"body": "a letter", "priority": 2}, status=201)
    assert first["outcome"] == "stored"
    (job,) = dequeued(caller, queue, wait_ms=5_000, claim_timeout_ms=60_000)
    assert (job["descriptor"], job["body"], job["body_encoding"]) == (first["descriptor"], "a letter", "text")
    assert (job["priority"], job["attempts_allowed"], job["attempts_remaining"]) == (2, 2, 2)
    assert job["claim_expires_at_ms"] >= job["enqueued_at_ms"] + 60_000

    claim = {"descriptor": job["descriptor"], "claim_descriptor": job["claim_descriptor"]}
    lines = [{"text": "begun", "at_ms": 7}]
    beat = {"heartbeats": [{**claim, "fraction": 0.5, "text": "half", "log_lines": lines}]}
    assert caller.done("POST", f"/v1/queues/{queue}/heartbeat", beat) == {"answers": [{"outcome": "ok"}]}
    held = caller.done("GET", f"/v1/jobs/{job['descriptor']}")
    assert (held["state"], held["progress"]["fraction"], held["progress"]["text"]) == ("in_progress", 0.5, "half")
    assert "body" not in held

    last = {"progress": {"fraction": 1.0, "text": "all"}, "log_lines": [*lines, {"text": "done"}]}
    done = {"succeeded": [{**claim, **last, "append_status": "sent", "result": {"id": 7}, "result_encoding": "json"}]}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", done) == {"outcomes": ["succeeded"]}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", done) == {"outcomes": ["ignored"]}
    ended = caller.done(
        "GET", f"/v1/jobs/{job['descriptor']}?include_body=true&include_result=true&encoding=json&wait_ms=5000"
    )
    assert (ended["state"], ended["custom_status"], ended["body"]) == ("succeeded", "sent", "a letter")
    assert (ended["result"], ended["result_encoding"]) == ({"id": 7}, "json")
    assert "attempts" not in ended
    assert (ended["progress"]["fraction"], ended["progress"]["text"]) == (1.0, "all")
    trail = caller.done("GET", f"/v1/jobs/{job['descriptor']}?include_trail=true")
    assert [(line["text"], line["attempt"]) for line in trail["log_lines"]] == [("begun", 1), ("done", 1)]
    assert trail["log_lines"][0]["at_ms"] == 7 < ended["created_at_ms"] <= trail["log_lines"][1]["at_ms"]
    (attempt,) = trail["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "succeeded")
    assert attempt["eligible_at_ms"] <= attempt["claimed_at_ms"] <= attempt["ended_at_ms"] == ended["finished_at_ms"]


def test_no_report_is_too_large_for_an_ack_and_each_is_kept_as_by_the_wire(caller: Caller, queue: str) -> None:
    enqueued(caller, queue)
    (job,) = dequeued(caller, queue)
    claim = {"descriptor": job["descriptor"], "claim_descriptor": job["claim_descriptor"]}
    many = [{"text": f"line {at}", "at_ms": at} for at in range(1, 102)] + [{"text": "é" * 513, "at_ms": 200}]
    large = {"fraction": 1.5, "text": "é" * 201}
    beat = {"heartbeats": [{**claim, **large, "log_lines": many}]}
    assert caller.done("POST", f"/v1/queues/{queue}/heartbeat", beat) == {"answers": [{"outcome": "ok"}]}
    failed = {**claim, "progress": {"fraction": -1, "text": "ü" * 201}, "log_lines": [*many, {"text": "over"}]}
    nobody = {**failed, "claim_descriptor": "web:1:1:1:other", "log_lines": [{"text": "of another"}]}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", {"failed": [nobody]}) == {"outcomes": ["ignored"]}
    # This one rides on a dequeue.
    assert dequeued(caller, queue, acks={"failed": [{**failed, "retry_delay_ms": 60_000}]}) == []
    found = caller.done("GET", f"/v1/jobs/{job['descriptor']}?include_trail=true")
    assert (found["progress"]["fraction"], found["progress"]["text"]) == (0.0, "ü" * 200)
    texts = [line["text"] for line in found["log_lines"]]
    assert texts == [*(f"line {at}" for at in range(4, 102)), "é" * 512, "over"]


@pytest.mark.parametrize(
    ("sent", "encoding", "stored"),
    [
        ("héllo\u0000\U0001f4ee", "text", "héllo\u0000\U0001f4ee".encode()),
        ("", "text", b""),
        ({"to": ["ada", 1.5, None]}, "json", b'{"to":["ada",1.5,null]}'),
        (None, "json", b"null"),
        ("/wA=", "base64", b"\xff\x00"),
    ],
)
def test_bodies_come_back_in_each_form(caller: Caller, queue: str, sent: object, encoding: str, stored: bytes) -> None:
    body = json.dumps({"body": sent, "body_encoding": encoding}, separators=(",", ":")).encode()
    descriptor = caller.done("POST", f"/v1/queues/{queue}/jobs", body)["descriptor"]
    found = {
        wanted: caller.done("GET", f"/v1/jobs/{descriptor}?include_body=true&encoding={wanted}")
        for wanted in ("text", "json", "base64")
    }
    assert found["base64"]["body_encoding"] == "base64"
    assert base64.b64decode(found["base64"]["body"]) == stored
    assert (found[encoding]["body"], found[encoding]["body_encoding"]) == (sent, encoding)
    if encoding == "base64":
        assert [found[each]["body_encoding"] for each in ("text", "json")] == ["base64", "base64"]


def test_bytes_that_are_json_too_deep_to_read_come_as_text(caller: Caller, queue: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    enqueued(caller, queue, body=deep)
    (job,) = dequeued(caller, queue, encoding="json")
    assert (job["body"], job["body_encoding"]) == (deep, "text")
    refused = caller.refused("POST", f"/v1/queues/{queue}/jobs", {"body_encoding": "base64", "body": [deep]})
    assert refused == (400, "REQUEST_INVALID", "body")


def test_many_jobs_in_one_request(caller: Caller, queue: str) -> None:
    path = f"/v1/queues/{queue}/jobs/batch"
    plain = {"jobs": [{"body": str(number)} for number in range(3)]}
    answer = caller.done("POST", path, plain, status=201)["jobs"]
    assert [each["outcome"] for each in answer] == ["stored"] * 3
    keyed = {"jobs": [{"body": "x", "dedupe_key": "one"}] * 2}
    first, second = caller.done("POST", path, keyed, status=201)["jobs"]
    assert (first["outcome"], second["outcome"]) == ("stored", "kept")
    assert first["descriptor"] == second["descriptor"]
    assert caller.done("GET", f"/v1/queues/{queue}/jobs/count?state=pending") == {"count": 4}
    mixed = {"jobs": [*keyed["jobs"], *plain["jobs"]]}
    response = caller.send("POST", path, mixed)
    assert response.json()["detail"].startswith("dedupe_key of job 3 is ''")


def test_jobs_are_found_counted_and_changed_by_their_tags(caller: Caller, queue: str) -> None:
    mine = [enqueued(caller, queue, tags=["tenant:7", str(number)]) for number in range(3)]
    enqueued(caller, queue, tags=["tenant:8"])
    enqueued(caller, queue)
    search = f"/v1/queues/{queue}/jobs/search"
    found = caller.done("POST", search, {"tags": ["tenant:7"]})
    assert [each["descriptor"] for each in found["jobs"]] == mine[::-1]
    assert found["jobs"][0]["tags"] == ["tenant:7", "2"]
    (one,) = caller.done("POST", search, {"tags": ["tenant:7", "1"]})["jobs"]
    assert one["descriptor"] == mine[1]
    assert "tags" not in caller.done("POST", search, {"phases": ["ready"]})["jobs"][0]
    change = {"action": "cancel", "tags": ["tenant:7"], "dry_run": True}
    path = f"{search}/change"
    assert caller.done("POST", path, change)["changed"] == 3
    assert caller.done("POST", path, {**change, "dry_run": False})["changed"] == 3
    assert caller.done("GET", f"/v1/queues/{queue}/jobs/count?state=pending") == {"count": 2}
    for wrong in (["a", "a"], [""], ["x" * 65], ["a\u0000b"]):
        problem = caller.refused("POST", f"/v1/queues/{queue}/jobs", {"body": "x", "tags": wrong})
        assert problem[:2] == (400, "REQUEST_INVALID")


def test_jobs_are_found_and_changed_by_their_group(caller: Caller, queue: str) -> None:
    mine = [enqueued(caller, queue, group="acme", tags=["t"]) for _ in range(2)]
    enqueued(caller, queue, group="betty", tags=["t"])
    search = f"/v1/queues/{queue}/jobs/search"
    found = caller.done("POST", search, {"group": "acme", "tags": ["t"]})
    assert sorted(each["descriptor"] for each in found["jobs"]) == sorted(mine)
    assert caller.done("POST", search, {"group": ""})["jobs"] == []
    assert caller.done("POST", f"{search}/change", {"action": "cancel", "group": "acme"})["changed"] == 2
    assert caller.done("GET", f"/v1/queues/{queue}/jobs/count?state=pending") == {"count": 1}
    assert caller.refused("POST", search, {"group": "a\u0000b"})[:2] == (400, "REQUEST_INVALID")


def test_an_idempotency_key_makes_it_safe_to_send_again(caller: Caller, queue: str) -> None:
    path = f"/v1/queues/{queue}/jobs"
    first = caller.done("POST", path, {"body": "1"}, Idempotency_Key="order-1")
    (job,) = dequeued(caller, queue)
    caller.done("POST", f"/v1/queues/{queue}/ack", {"jobs": [job]})
    again = caller.done("POST", path, {"body": "1"}, Idempotency_Key='"order-1"')
    assert again == {"descriptor": first["descriptor"], "outcome": "kept"}

    batch = {"jobs": [{"body": "1"}, {"body": "2"}]}
    one = caller.done("POST", f"{path}/batch", batch, Idempotency_Key="order-2")["jobs"]
    two = caller.done("POST", f"{path}/batch", batch, Idempotency_Key="order-2")["jobs"]
    assert [each["descriptor"] for each in one] == [each["descriptor"] for each in two]
    assert len({each["descriptor"] for each in one}) == 2
    assert [each["outcome"] for each in two] == ["kept", "kept"]

    twice = {"body": "1", "dedupe_key": "other"}
    assert caller.refused("POST", path, twice, Idempotency_Key="x") == (400, "REQUEST_INVALID", "dedupe_key")
    for wrong in ("", "a" * 201, "a\tb"):
        refused = caller.refused("POST", path, {"body": "1"}, Idempotency_Key=wrong)
        assert refused == (400, "REQUEST_INVALID", "Idempotency-Key")


def test_a_send_id_makes_it_safe_to_send_again_beside_a_dedupe_key(caller: Caller, queue: str) -> None:
    path = f"/v1/queues/{queue}/jobs/batch"
    batch = {"jobs": [{"body": "1", "send_id": "s-1"}, {"body": "2", "send_id": "s-1", "dedupe_key": "k"}]}
    first = caller.done("POST", path, batch, status=201)["jobs"]
    jobs = dequeued(caller, queue, limit=2)
    assert sorted(job["descriptor"] for job in jobs) == sorted(each["descriptor"] for each in first)
    caller.done("POST", f"/v1/queues/{queue}/ack", {"jobs": jobs})
    assert caller.done("POST", path, batch)["jobs"] == first
    other = {"jobs": [{**each, "send_id": "s-2"} for each in batch["jobs"]]}
    assert not {each["descriptor"] for each in caller.done("POST", path, other)["jobs"]} & {
        each["descriptor"] for each in first
    }
    long = {"body": "1", "send_id": "a" * 65}
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", long) == (400, "REQUEST_INVALID", "send_id")


def test_a_result_that_is_too_large_fails_the_attempt_or_the_job(caller: Caller, queue: str) -> None:
    descriptor = enqueued(caller, queue, attempts_allowed=3)
    for permanent, outcome in ((False, "retried"), (True, "failed")):
        (job,) = dequeued(caller, queue)
        claim = {"descriptor": descriptor, "claim_descriptor": job["claim_descriptor"]}
        done = {**claim, "result": "x" * 70_000, "permanent": permanent}
        assert caller.done("POST", f"/v1/queues/{queue}/ack", {"succeeded": [done]}) == {"outcomes": [outcome]}
    assert caller.done("GET", f"/v1/jobs/{descriptor}")["state"] == "failed"


def test_a_duplicate_that_is_rejected_is_a_conflict(caller: Caller, queue: str) -> None:
    job = {"body": "1", "dedupe_key": "k", "on_duplicate": "reject"}
    first = caller.done("POST", f"/v1/queues/{queue}/jobs", job)
    response = caller.send("POST", f"/v1/queues/{queue}/jobs", job)
    assert (response.status_code, response.json()["reason"]) == (409, "DUPLICATE")
    assert response.json()["job_descriptors"] == [first["descriptor"]]


def test_a_newer_job_follows_the_one_that_runs_and_is_postponed_up_to_a_bound(caller: Caller, queue: str) -> None:
    path, rules = f"/v1/queues/{queue}/jobs", {"dedupe_key": "k", "on_duplicate": "replace"}
    old = enqueued(caller, queue, **rules)
    assert [job["descriptor"] for job in dequeued(caller, queue)] == [old]
    newer = {"body": "2", **rules, "replace_running": "cancel", "replace_within_ms": 60_000}
    first = caller.done("POST", path, newer, status=201)
    again = caller.done("POST", path, {**newer, "body": "3", "run_after_ms": 2_000_000_000_000})
    assert (first["outcome"], again) == ("stored", {"descriptor": first["descriptor"], "outcome": "replaced"})
    info = caller.done("GET", f"/v1/jobs/{old}")
    assert (info["successor"], "cancel_requested_by" in info) == (first["descriptor"], True)
    info = caller.done("GET", f"/v1/jobs/{first['descriptor']}")
    assert (info["waits_for"], info["run_after_ms"]) == (old, info["created_at_ms"] + 60_000)
    assert caller.refused("POST", path, {**newer, "on_duplicate": "keep"})[:2] == (400, "REQUEST_INVALID")


def test_a_worker_sends_back_what_it_got(caller: Caller, queue: str) -> None:
    for _ in range(3):
        enqueued(caller, queue)
    answer = caller.send("POST", f"/v1/queues/{queue}/dequeue", {"limit": 3}).content
    beats = caller.done("POST", f"/v1/queues/{queue}/heartbeat", answer)
    assert beats == {"answers": [{"outcome": "ok"}] * 3}
    assert caller.done("POST", f"/v1/queues/{queue}/ack", answer) == {"outcomes": ["succeeded"] * 3}
    assert caller.done("POST", f"/v1/queues/{queue}/heartbeat", answer) == {"answers": [{"outcome": "lost"}] * 3}


def test_acks_ride_on_a_dequeue(caller: Caller, queue: str) -> None:
    for _ in range(2):
        enqueued(caller, queue)
    (job,) = dequeued(caller, queue, limit=1)
    claim = {"descriptor": job["descriptor"], "claim_descriptor": job["claim_descriptor"]}
    next_one = caller.done("POST", f"/v1/queues/{queue}/dequeue", {"acks": {"failed": [{**claim, "permanent": True}]}})
    assert "ack_outcomes" not in next_one
    assert next_one["jobs"][0]["descriptor"] != job["descriptor"]
    assert caller.done("GET", f"/v1/jobs/{job['descriptor']}")["state"] == "failed"
    ignored = caller.done("POST", f"/v1/queues/{queue}/dequeue", {"acks": {"jobs": [job]}})
    assert ignored == {"jobs": [], "ack_outcomes": ["ignored"]}


def test_a_dequeue_from_several_queues(caller: Caller, queue: str) -> None:
    enqueued(caller, queue)
    wanted = {"queues": [{"queue": queue, "weight": 3}, {"queue": "not_there"}], "limit": 5, "wait_ms": 100}
    answer = caller.done("POST", "/v1/dequeue", wanted)
    assert [job["body"] for job in answer["jobs"]] == ["a letter"]
    assert answer["queue_errors"]["not_there"]["reason"] == "QUEUE_NOT_FOUND"
    acks = [{"queue": queue, "jobs": answer["jobs"]}]
    again = caller.done("POST", "/v1/dequeue", {"queues": [{"queue": queue}], "acks": acks})
    assert again == {"jobs": []}
    again = caller.done("POST", "/v1/dequeue", {"queues": [{"queue": queue}], "acks": acks})
    assert again == {"jobs": [], "ack_outcomes": [["ignored"]]}


def test_a_checkpoint_changes_a_job_and_gives_it_back(caller: Caller, queue: str) -> None:
    enqueued(caller, queue)
    (job,) = dequeued(caller, queue)
    change = {
        "descriptor": job["descriptor"],
        "claim_descriptor": job["claim_descriptor"],
        "body": [1],
        "body_encoding": "json",
        "move_to_pending": True,
        "prepend_status": "half; ",
    }
    caller.done("POST", f"/v1/queues/{queue}/checkpoint", {"checkpoints": [change]}, status=204)
    (again,) = dequeued(caller, queue, encoding="json", wait_ms=5_000)
    assert (again["descriptor"], again["body"], again["body_encoding"]) == (job["descriptor"], [1], "json")


def test_jobs_are_looked_up_by_descriptor_and_by_key(caller: Caller, queue: str) -> None:
    one = enqueued(caller, queue)
    two = enqueued(caller, queue, dedupe_key="two")
    missing = f"{queue}:s1:p1:1790000000000000"
    found = caller.done("POST", "/v1/lookup", {"descriptors": [one, missing], "include_body": True})["jobs"]
    assert [(job["descriptor"], job["body"]) for job in found] == [(one, "a letter")]
    by_key = caller.done("POST", "/v1/lookup", {"queue": queue, "keys": [{"dedupe_key": "two"}]})["jobs"]
    assert [(job["descriptor"], job["dedupe_key"]) for job in by_key] == [(two, "two")]
    nowhere = {"keys": [{"dedupe_key": "two"}]}
    assert caller.refused("POST", "/v1/lookup", nowhere) == (400, "REQUEST_INVALID", "queue")
    assert caller.refused("GET", f"/v1/jobs/{missing}") == (404, "NOT_FOUND", None)
    assert caller.refused("GET", "/v1/jobs/none")[:2] == (400, "REQUEST_INVALID")


def test_pages_of_jobs_have_each_job_once(caller: Caller, queue: str) -> None:
    stored = {enqueued(caller, queue, priority=1 + number % 2) for number in range(7)}
    seen: list[str] = []
    path = f"/v1/queues/{queue}/jobs?state=pending&limit=3"
    page = caller.done("GET", path)
    while True:
        seen += [job["descriptor"] for job in page["jobs"]]
        if "next_cursor" not in page:
            break
        page = caller.done("GET", f"{path}&cursor={page['next_cursor']}")
    assert len(seen) == 7
    assert set(seen) == stored
    assert caller.refused("GET", f"{path}&cursor=nonsense")[:2] == (400, "CONTINUATION_INVALID")
    assert caller.done("GET", f"/v1/queues/{queue}/jobs/count?state=pending&priority=2") == {"count": 3}
    assert caller.done("GET", f"/v1/queues/{queue}/jobs/count?state=pending&body_regex=nothing") == {"count": 0}


def test_jobs_are_cancelled_and_rescheduled(caller: Caller, queue: str) -> None:
    one, two = enqueued(caller, queue), enqueued(caller, queue, dedupe_key="two")
    change = {"jobs": [{"descriptor": one, "body": "later", "run_after_ms": 4_000_000_000_000}, {"descriptor": NOBODY}]}
    outcomes = caller.done("POST", f"/v1/queues/{queue}/jobs/reschedule", change)
    assert outcomes == {"outcomes": ["rescheduled", "not_found"]}
    assert caller.done("GET", f"/v1/jobs/{one}?include_body=true")["body"] == "later"
    assert caller.done("GET", f"/v1/queues/{queue}/jobs/count?state=pending&future=true") == {"count": 1}
    wanted = {"descriptors": [one], "keys": [{"dedupe_key": "two"}]}
    answer = caller.done("POST", f"/v1/queues/{queue}/jobs/cancel", wanted)
    assert answer == {"outcomes": {one: "cancelled"}, "key_outcomes": ["cancelled"]}
    assert caller.refused("GET", f"/v1/jobs/{two}")[0] == 404


def test_a_running_job_is_asked_to_stop(caller: Caller, queue: str) -> None:
    descriptor = enqueued(caller, queue)
    (job,) = dequeued(caller, queue)
    wanted = {"descriptors": [descriptor], "running": True}
    answer = caller.done("POST", f"/v1/queues/{queue}/jobs/cancel", wanted)
    assert answer["outcomes"] == {descriptor: "requested"}
    (beat,) = caller.done("POST", f"/v1/queues/{queue}/heartbeat", {"jobs": [job]})["answers"]
    assert beat["outcome"] == "cancel"
    assert beat["cancelled_by"]


def test_all_jobs_that_match_are_changed_slice_by_slice(caller: Caller, queue: str) -> None:
    for _ in range(5):
        enqueued(caller, queue)
    failed = [{"descriptor": job["descriptor"], "permanent": True} for job in dequeued(caller, queue)]
    caller.done("POST", f"/v1/queues/{queue}/ack", {"failed": failed})
    path = f"/v1/queues/{queue}/jobs/change"
    tried = caller.done("POST", path, {"action": "retry", "dry_run": True})
    assert (tried["changed"], len(tried["samples"])) == (5, 5)
    slice_ = caller.done("POST", path, {"action": "retry", "limit": 2})
    assert slice_["changed"] == 2
    rest = caller.done("POST", path, {"action": "retry", "cursor": slice_["next_cursor"]})
    assert rest["changed"] == 3
    assert "next_cursor" not in rest
    assert caller.done("POST", path, {"action": "delete", "state": "pending", "priority": 1})["changed"] == 5


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"body": "x", "colour": 1}, "colour"),
        ({"body": 17}, "body"),
        ({"body": {"a": 1}}, "body"),
        ({"body": "%%", "body_encoding": "base64"}, "body"),
        ({"body": "x", "body_encoding": "hex"}, "body_encoding"),
        ({"body": "x", "priority": 0}, "priority"),
        ({"body": "x", "priority": "1"}, "priority"),
        ({"body": "x", "priority": True}, "priority"),
        ({"body": "x", "run_after_ms": -1}, "run_after_ms"),
        ({"body": "x", "run_after_ms": 2**60}, "run_after_ms"),
        ({"body": "x", "attempts_allowed": 2**31}, "attempts_allowed"),
        ({"body": "x", "dedupe_for_ms": 1.5}, "dedupe_for_ms"),
        ({"body": "x", "on_duplicate": "maybe"}, "on_duplicate"),
        ({"body": "x", "replace_running": "stop"}, "replace_running"),
        ({"body": "x", "replace_within_ms": 0}, "replace_within_ms"),
    ],
)
def test_a_wrong_field_is_named(caller: Caller, queue: str, body: dict[str, Any], field: str) -> None:
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", body) == (400, "REQUEST_INVALID", field)
    batch = {"jobs": [{"body": "fine"}, body]}
    wanted = (400, "REQUEST_INVALID", f"jobs[1].{field}")
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs/batch", batch) == wanted


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"body": "\xff"}',
        b'{"body": "\\ud800"}',
        b"[" * 100_000,
        b'{"body": ' + b"[" * 100_000,
        b"\0",
        b"1",
    ],
)
def test_what_is_no_json_is_refused(caller: Caller, queue: str, body: bytes) -> None:
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", body)[:2] == (400, "REQUEST_INVALID")


def test_json_that_is_none_inside_a_body_is_refused(caller: Caller, queue: str) -> None:
    wrong = b'{"body_encoding": "json", "body": "\xff"}'
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", wrong) == (400, "REQUEST_INVALID", "body")


def test_only_json_is_taken_as_json(caller: Caller, queue: str) -> None:
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/json-seq"):
        refused = caller.refused("POST", f"/v1/queues/{queue}/jobs", b'{"body": "x"}', Content_Type=content_type)
        assert refused[:2] == (415, "UNSUPPORTED_MEDIA_TYPE")
    with_charset = "Application/JSON; charset=utf-8"
    caller.done("POST", f"/v1/queues/{queue}/jobs", b'{"body": "x"}', Content_Type=with_charset)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "state"),
        ("?state=lost", "state"),
        ("?state=failed&colour=1", "colour"),
        ("?state=failed&limit=0", "limit"),
        ("?state=failed&limit=ten", "limit"),
        ("?state=failed&future=perhaps", "future"),
        ("?state=failed&priority=null", "priority"),
        ("?state=failed&state=pending", "state"),
    ],
)
def test_what_follows_the_question_mark_is_checked(caller: Caller, queue: str, query: str, field: str) -> None:
    assert caller.refused("GET", f"/v1/queues/{queue}/jobs{query}") == (400, "REQUEST_INVALID", field)


def test_errors_of_the_server_keep_their_reason(caller: Caller, queue: str) -> None:
    assert caller.refused("POST", "/v1/queues/none/jobs", {"body": "x"})[:2] == (404, "QUEUE_NOT_FOUND")
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", {"body": "x", "priority": 9})[:2] == (
        400,
        "PRIORITY_NOT_SUPPORTED",
    )
    large = {"body": "x" * (1024 * 1024 + 1)}
    assert caller.refused("POST", f"/v1/queues/{queue}/jobs", large)[:2] == (413, "BODY_TOO_LARGE")
    assert caller.refused("GET", f"/v1/queues/{queue}/jobs?state=failed&body_regex=(")[:2] == (400, "REQUEST_INVALID")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'{"body_encoding": "json", "body": ' + b"[" * 100_000, "it is nested too deep"),
        (b'{"body": "\xff"}', "it is no string"),
        (b'{"body": "\xff", "body_encoding": "json"}', "a text in it is not UTF-8"),
        (b'{"body": "abc", "body_encoding": "base64"}', "it is no base64"),
        (b'{"body": [', "Input data was truncated"),
    ],
)
def test_what_is_wrong_with_bytes_is_told_in_words_of_our_own(
    caller: Caller, queue: str, sent: bytes, said: str
) -> None:
    detail = problem_of(caller.send("POST", f"/v1/queues/{queue}/jobs", sent))["detail"]
    assert said in detail
    for pythons in ("codec", "recursion", "padding"):
        assert pythons not in detail


def test_after_a_body_that_cannot_be_unpacked_the_next_request_is_answered(caller: Caller, queue: str) -> None:
    for _ in range(3):
        broken = caller.send("POST", f"/v1/queues/{queue}/jobs", b"no gzip", Content_Encoding="gzip")
        assert broken.status_code == 400
        assert broken.headers["Connection"] == "close"
        enqueued(caller, queue)


def test_a_queue_that_holds_back_says_when_to_come_again(caller: Caller, queue: str) -> None:
    settings = {"set": {"max_jobs_per_second": "0.1"}}
    caller.done("PATCH", f"/v1/queues/{queue}/settings", settings, X_Admin_Password="open sesame")
    for _ in range(30):
        enqueued(caller, queue)
    for _ in range(30):
        response = caller.send("POST", f"/v1/queues/{queue}/dequeue", {})
        if response.status_code != 200:
            break
    assert response.json()["reason"] == "RATE_LIMITED"
    assert response.status_code == 429
    assert response.json()["retryable"] is True
    assert int(response.headers["Retry-After"]) >= response.json()["retry_after_ms"] / 1000 > 0


def test_jobs_are_searched_by_their_status_and_changed_slice_by_slice(caller: Caller, queue: str) -> None:
    for number in range(6):
        enqueued(caller, queue, body=f"letter {number}", priority=1 + number % 2)
    failed = [
        {"descriptor": job["descriptor"], "append_status": f"TimeoutError in {job['body']}", "permanent": True}
        for job in dequeued(caller, queue)
    ]
    caller.done("POST", f"/v1/queues/{queue}/ack", {"failed": failed})
    wanted = {
        "phases": ["failed"],
        "status_conditions": [{"regex": "^Timeout"}, {"regex": "letter 3", "is_not": True}],
    }
    path = f"/v1/queues/{queue}/jobs/search"
    page = caller.done("POST", path, {**wanted, "limit": 3, "include_body": True})
    assert len(page["jobs"]) == 3
    rest = caller.done("POST", path, {**wanted, "include_body": True, "cursor": page["next_cursor"]})
    assert "next_cursor" not in rest
    assert page["looked_at"] + rest["looked_at"] == 6
    assert {job["body"] for job in page["jobs"] + rest["jobs"]} == {f"letter {number}" for number in (0, 1, 2, 4, 5)}
    assert len(caller.done("POST", path, {**wanted, "priorities": [2], "max_ms": 1_000})["jobs"]) == 2

    change = {**wanted, "action": "retry", "note": "after the outage", "limit": 2}
    assert caller.done("POST", f"{path}/change", {**change, "dry_run": True, "limit": 10})["changed"] == 5
    first = caller.done("POST", f"{path}/change", change)
    last = caller.done("POST", f"{path}/change", {**change, "limit": 10, "cursor": first["next_cursor"]})
    assert (first["changed"], last["changed"], "next_cursor" in last) == (2, 3, False)
    left = caller.done("POST", path, {"phases": ["failed"]})["jobs"]
    assert [job["custom_status"] for job in left] == ["TimeoutError in letter 3"]
    named = {"descriptors": [left[0]["descriptor"], NOBODY], "action": "delete"}
    assert caller.done("POST", f"{path}/change", named)["changed"] == 1


@pytest.mark.parametrize(
    "empty",
    [{"descriptors": []}, {"phases": []}, {"priorities": []}, {"dedupe_key": ""}, {"serialize_key": ""}],
    ids=lambda empty: next(iter(empty)),
)
def test_an_empty_list_means_no_job_and_a_field_that_is_left_out_or_null_all(
    caller: Caller, queue: str, empty: dict[str, Any]
) -> None:
    enqueued(caller, queue)
    path = f"/v1/queues/{queue}/jobs/search"
    assert caller.done("POST", path, empty) == {"jobs": [], "looked_at": 0}
    for action in ("cancel", "delete", "retry", "replay"):
        for dry_run in (True, False):
            done = caller.done("POST", f"{path}/change", {**empty, "action": action, "dry_run": dry_run})
            assert (done["changed"], "next_cursor" in done) == (0, False)
    assert len(caller.done("POST", path, {})["jobs"]) == 1
    assert caller.done("POST", f"{path}/change", dict.fromkeys(empty) | {"action": "cancel"})["changed"] == 1


def test_a_job_whose_body_the_answer_had_no_room_for_says_so(caller: Caller, queue: str) -> None:
    lacking = [enqueued(caller, queue, body=f"{number:02}" * 450_000) for number in range(20)]
    bodies: dict[str, str] = {}
    while lacking:
        jobs = caller.done("POST", "/v1/lookup", {"descriptors": lacking, "include_body": True})["jobs"]
        assert {job["descriptor"] for job in jobs} == set(lacking)
        assert all(("body" in job) is not job.get("body_left_out", False) for job in jobs)
        bodies |= {job["descriptor"]: job["body"] for job in jobs if "body" in job}
        lacking = [job["descriptor"] for job in jobs if "body" not in job]
    assert sorted(body[:2] for body in bodies.values()) == [f"{number:02}" for number in range(20)]
    assert {len(body) for body in bodies.values()} == {900_000}


def test_an_empty_pattern_is_refused_wherever_it_would_mean_all(caller: Caller, queue: str) -> None:
    enqueued(caller, queue)
    of_queue = f"/v1/queues/{queue}/jobs"
    for verb, path, body, field in (
        ("POST", "/search", {"body_conditions": [{"regex": ""}]}, "body_conditions[0].regex"),
        ("POST", "/search/change", {"status_conditions": [{"regex": ""}], "action": "cancel"}, None),
        ("POST", "/change", {"action": "cancel", "body_regex": ""}, "body_regex"),
        ("GET", "?state=pending&body_regex=", None, "body_regex"),
        ("GET", "/count?state=pending&body_regex=", None, "body_regex"),
    ):
        status, code, found = caller.refused(verb, of_queue + path, body)
        assert (status, code) == (400, "REQUEST_INVALID")
        assert field is None or found == field
    assert caller.done("GET", f"{of_queue}/count?state=pending")["count"] == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"phases": ["over"]}, "phases[0]"),
        ({"status_conditions": [{"regex": "("}]}, None),
        ({"body_conditions": [{}]}, "body_conditions[0].regex"),
        ({"created_after_ms": -1}, "created_after_ms"),
        ({"state": "failed"}, "state"),
    ],
)
def test_a_search_for_what_cannot_be_is_refused(
    caller: Caller, queue: str, wrong: dict[str, Any], field: str | None
) -> None:
    path = f"/v1/queues/{queue}/jobs/search"
    assert caller.refused("POST", path, wrong) == (400, "REQUEST_INVALID", field)


@pytest.mark.parametrize("args", [["ada", 3], {"to": "ada", "times": 3}])
def test_a_call_of_the_worker_framework_is_made_of_a_type_of_job_and_its_arguments(
    caller: Caller, queue: str, args: list[object] | dict[str, object]
) -> None:
    caller.done("POST", f"/v1/queues/{queue}/jobs", {"job": "shop.send", "args": args}, status=201)
    caller.done("POST", f"/v1/queues/{queue}/jobs/batch", {"jobs": [{"job": "shop.send"}]}, status=201)
    first, second = (read_envelope(job["body"].encode()) for job in dequeued(caller, queue))
    called = {"args": args} if isinstance(args, list) else {"kwargs": args}
    assert (first, second) == (Envelope("shop.send", **called), Envelope("shop.send"))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "body: it is missing"),
        ({"job": "send", "body": "x"}, "body: give the body, or `job` with `args`"),
        ({"args": []}, "args: they are those of a job"),
        ({"job": "a/b"}, "job: 'a/b' is no type of job"),
    ],
)
def test_a_job_has_a_body_or_a_call(caller: Caller, queue: str, fields: dict[str, object], why: str) -> None:
    response = caller.send("POST", f"/v1/queues/{queue}/jobs", fields)
    assert response.status_code == 400
    assert why in problem_of(response)["detail"]
