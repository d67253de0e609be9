"""Every call and every route, by a caller without the right, about what is there and about what is not: one answer."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinlater import Client, DequeueFromQueuesRequest, DequeueRequest, Job, JobFilter, JobState, RequestContext
from pinlater.data_folder.password import hash_password
from pinlater.errors import FlowNotFound, Forbidden
from pinlater.http.assignments import AssignmentRef
from pinlater.http.routes import ROUTES
from pinlater.model import (
    AccessAction,
    Ack,
    Checkpoint,
    ExtendedJob,
    Heartbeat,
    JobAction,
    JobChange,
    KeyRef,
    QueueShare,
    RescheduleJob,
    ScheduleChange,
    WorkerCommand,
    WorkerReport,
)
from pinlater.model.body_words import BodiesAction, BodiesChange
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from pinlater.model.job_selection import FoundJobsChange, JobSelection
from pinlater.wire.faults import error_from_exception
from pinlater.wire.methods import METHODS
from tests.access.cluster import PASSWORD, until
from tests.server.running import Plain, RunningServer, running

ACTIONS = [action for action in AccessAction if action not in (AccessAction.ADMIN, AccessAction.GATEWAY)]
ITEMS = 777
HASH = hashlib.sha256(b"x").hexdigest()
OWN = "b-own"
RULES = "".join(
    f"""
[roles.b-{name}]
may = {[str(action) for action in actions]}
queues = ["b-*"]
"""
    for name, actions in {"all": ACTIONS, **{str(action): [action] for action in ACTIONS}}.items()
)
ROLES = ["b-all", *(f"b-{action}" for action in ACTIONS)]


@dataclass(frozen=True)
class Named:
    """What a caller without any right to it names: of another tenant, or not there at all."""

    queue: str
    job: str
    claim: str
    key: str
    flow: str
    shared: str
    """A flow of which one stage is on the caller's own queue."""
    item: int
    schedule: str
    token: str
    worker: str

    def hidden(self, text: str) -> str:
        """An answer without the names, and without what differs from each call to the next."""
        names = {str(getattr(self, field.name)): field.name.upper() for field in dataclasses.fields(self)}
        for name in sorted(names, key=len, reverse=True):  # the name of a queue is in its jobs'
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", names[name], text)
        for pattern, word in _NEW.items():
            text = re.sub(pattern, word, text)
        return text

    def told_by(self, text: str) -> list[str]:
        """The names, and those beside them, in an answer to a call that has none of them."""
        names = ("a-mail", "a-pay", self.flow, self.shared, self.schedule, self.token, self.worker)
        return [name for name in names if name in text]

    @property
    def assignment(self) -> str:
        return AssignmentRef(self.job, self.claim).id()


_NEW = {
    rf"{OWN}:\w+:p\d:\d+": "NEW-JOB",
    r"\b[0-9a-f]{26}\b": "NEW-FLOW",
    r"\b1[0-9]{12}\b": "TIME",
    r"queued=[0-9]": "QUEUED",
}

MISSING = Named(
    "a-missing",
    "a-missing:s1:p1:1790000000000000",
    "web:1:1790000000000:1-c0ffee:nobody",
    "key-missing",
    "e" * 26,
    "d" * 26,
    987_654_321,
    "s-missing",
    "t-missing",
    "w-missing",
)

CALLS: dict[str, list[Callable[[Named], tuple[Any, ...]]]] = {
    "createQueue": [lambda it: (it.queue,)],
    "deleteQueue": [lambda it: (it.queue, "")],
    "getQueueNames": [lambda _: ()],
    "enqueueJobs": [
        lambda it: (it.queue, [Job(b"x")]),
        lambda it: (OWN, [ExtendedJob(b"x", dedupe_key=it.key)]),
        lambda it: (OWN, [ExtendedJob(b"x", send_id=it.key)]),
    ],
    "dequeueJobs": [
        lambda it: (DequeueRequest(it.queue, 1),),
        lambda it: (DequeueRequest(OWN, 0, succeeded=[Ack(it.job, claim_descriptor=it.claim)]),),
    ],
    "dequeueFromQueues": [lambda it: (DequeueFromQueuesRequest([QueueShare(it.queue)], 1),)],
    "ackDequeuedJobs": [lambda it: (OWN, [Ack(it.job, claim_descriptor=it.claim)], [])],
    "ackJobs": [
        lambda it: (it.queue, [Ack(it.job, claim_descriptor=it.claim)], []),
        lambda it: (OWN, [], [Ack(it.job, claim_descriptor=it.claim)]),
    ],
    "checkpointJobs": [
        lambda it: (it.queue, [Checkpoint(it.job)]),
        lambda it: (OWN, [Checkpoint(it.job, move_to_pending=True)]),
    ],
    "heartbeatJobs": [
        lambda it: (it.queue, [Heartbeat(it.job, it.claim)]),
        lambda it: (OWN, [Heartbeat(it.job, it.claim)]),
    ],
    "lookupJobs": [
        lambda it: ([it.job], False),
        lambda it: ([], False, False, 0, OWN, [KeyRef(dedupe_key=it.key)]),
        lambda it: ([], False, False, 5_000, OWN, [KeyRef(serialize_key=it.key)]),
        lambda it: ([], False, False, 0, it.queue, [KeyRef(dedupe_key=it.key)]),
    ],
    "getJobCount": [lambda it: (JobFilter(it.queue, JobState.PENDING), False)],
    "scanJobs": [lambda it: (JobFilter(it.queue, JobState.PENDING), "0", 10)],
    "retryFailedJobs": [lambda it: (it.queue, 1, 1, None, 10)],
    "deleteJobs": [lambda it: (JobFilter(it.queue, JobState.FAILED, priority=1), 10)],
    "cancelJobs": [
        lambda it: (it.queue, [it.job]),
        lambda it: (OWN, [it.job]),
        lambda it: (OWN, [], [KeyRef(dedupe_key=it.key)]),
    ],
    "rescheduleJobs": [
        lambda it: (it.queue, [RescheduleJob(it.job, attempts_allowed=3)]),
        lambda it: (OWN, [RescheduleJob(it.job, attempts_allowed=3)]),
        lambda it: (OWN, [RescheduleJob("", key=KeyRef(dedupe_key=it.key), attempts_allowed=3)]),
    ],
    "changeJobs": [
        lambda it: (JobChange(it.queue, JobAction.RETRY, JobState.FAILED, limit=1),),
        lambda it: (JobChange(OWN, JobAction.DELETE, JobState.FAILED, body_regex=it.key),),
    ],
    "searchJobs": [
        lambda it: (JobSelection(it.queue), 10, False, None, "0"),
        lambda it: (JobSelection(OWN, descriptors=(it.job,)), 10, False, None, "0"),
    ],
    "changeFoundJobs": [
        lambda it: (FoundJobsChange(JobSelection(it.queue), JobAction.RETRY, limit=1),),
        lambda it: (FoundJobsChange(JobSelection(OWN, descriptors=(it.job,)), JobAction.RETRY, limit=1),),
    ],
    "getQueues": [lambda it: ([it.queue],), lambda it: ([OWN, it.queue],)],
    "updateQueue": [
        lambda it: (it.queue, "", {"max_attempts": "3"}, [], False),
        lambda it: (it.queue, "", {}, [], True),
        lambda it: (OWN, "", {"dead_letter_queue": it.queue}, [], False),
    ],
    "getGroups": [lambda it: (it.queue,), lambda it: (it.queue, [it.key])],
    "updateGroup": [lambda it: (it.queue, it.key, "", {"weight": "2"})],
    "clearGroups": [lambda it: (it.queue, "", "0", 10, True)],
    "updateShard": [lambda it: (it.key, "", False, False)],
    "getClusterStatus": [lambda it: ([it.queue],), lambda it: ([OWN, it.queue],)],
    "getAlarms": [lambda _: (False, 10), lambda _: (True, 10)],
    "muteAlarm": [lambda it: ("no_worker", 1_000, "known", "", it.queue)],
    "getAudit": [lambda _: (10, None)],
    "getBodyTiers": [lambda _: ()],
    "changeBodies": [lambda _: (BodiesChange(BodiesAction.SWEEP, dry_run=True),)],
    "commandWorkers": [
        lambda it: (WorkerCommand.QUIET, (), "", it.worker, False),
        lambda it: (WorkerCommand.QUIET, (it.worker,), "", "", False),
    ],
    "getWorkers": [
        lambda it: (it.queue, "", False, "0", 10),
        lambda it: (OWN, it.worker, True, "0", 10),
        lambda it: (OWN, "", True, json.dumps([it.worker, "h", 1, "r"]), 10),
    ],
    "updateSchedule": [lambda it: (ScheduleChange(name=it.schedule, queue=OWN, every_ms=3_600_000), "", False, None)],
    "getSchedules": [
        lambda it: (None, it.queue, "", False, 0, "0", 10),
        lambda it: ([it.schedule], OWN, "", False, 0, "0", 10),
        lambda it: (None, OWN, "", False, 0, it.schedule, 10),
    ],
    "deleteSchedule": [lambda it: (it.schedule, "", None)],
    "createFlow": [
        lambda it: (NewFlow(it.key, [Stage("pay", "pay", it.queue)], it.key),),
        lambda it: (NewFlow(it.key, [Stage("pay", "pay", OWN)], it.key, items={"pay": [NewItem(b"1")]}),),
    ],
    "addFlowItems": [
        lambda it: (it.flow, "pay", [NewItem(b"1")], False),
        lambda it: (it.shared, "pay", [NewItem(b"1")], False),
        lambda it: (it.shared, "nothing", [NewItem(b"1")], False),
    ],
    "sealStage": [lambda it: (it.flow, ""), lambda it: (it.shared, ""), lambda it: (it.shared, "pay")],
    "getFlow": [lambda it: (it.flow, 0), lambda it: (it.shared, 5_000)],
    "getFlows": [lambda it: ("", it.key, None, "0", 10), lambda it: (it.key, "", None, "0", 10)],
    "getFlowItems": [
        lambda it: (it.flow, "", None, "", (), True, "0", 10),
        lambda it: (it.shared, "own", None, "", (), False, "0", 10),
        lambda it: (it.flow, "", None, "", (it.item,), False, str(it.item), 10),
    ],
    "cancelFlow": [lambda it: (it.flow,), lambda it: (it.shared,)],
    "deleteFlow": [lambda it: (it.flow,), lambda it: (it.shared,)],
    "resumeFlow": [lambda it: (it.flow, "", ""), lambda it: (it.shared, "pay", "payload")],
    "retryFlowItems": [
        lambda it: (it.flow, (), "", True, False),
        lambda it: (it.shared, (it.item,), "", False, True),
    ],
    "assignItem": [lambda it: (it.item, None), lambda it: (it.item, -1)],
    "updateToken": [lambda it: (it.token, HASH, ["viewer"], "", None, False)],
    "getTokens": [lambda _: ()],
    "deleteToken": [lambda it: (it.token, "")],
    "getAccess": [lambda _: ()],
    "getUsage": [lambda _: ()],
    "explainJobs": [lambda it: ([it.job],)],
}
"""Of each call the ways to name what is not the caller's. A call without any here fails the test."""

NAMED_JOBS: Callable[[Named], Any] = lambda it: {"descriptors": [it.job]}  # noqa: E731
REQUESTS: dict[str, tuple[str, Callable[[Named], Any]]] = {
    "mute_alarm": ("", lambda it: {"for_ms": 1_000, "reason": "known", "subject": it.queue}),
    "enqueue": ("", lambda it: {"body": "x", "dedupe_key": it.key}),
    "enqueue_batch": ("", lambda it: {"jobs": [{"body": "x", "dedupe_key": it.key}]}),
    "dequeue": ("", lambda _: {}),
    "dequeue_from_queues": ("", lambda it: {"queues": [{"queue": it.queue}]}),
    "ack": ("", lambda it: {"failed": [{"descriptor": it.job, "claim_descriptor": it.claim}]}),
    "heartbeat": ("", lambda it: {"heartbeats": [{"descriptor": it.job, "claim_descriptor": it.claim}]}),
    "checkpoint": ("", lambda it: {"checkpoints": [{"descriptor": it.job}]}),
    "lookup_jobs": ("", NAMED_JOBS),
    "scan_jobs": ("?state=pending", lambda _: None),
    "count_jobs": ("?state=pending", lambda _: None),
    "cancel_jobs": ("", NAMED_JOBS),
    "reschedule_jobs": ("", lambda it: {"jobs": [{"descriptor": it.job, "attempts_allowed": 3}]}),
    "change_jobs": ("", lambda it: {"action": "delete", "descriptors": [it.job]}),
    "search_jobs": ("", lambda it: {"descriptors": [it.job]}),
    "change_found_jobs": ("", lambda it: {"action": "delete", "descriptors": [it.job]}),
    "change_settings": ("", lambda it: {"set": {"dead_letter_queue": it.queue}}),
    "change_group": ("", lambda _: {"set": {"weight": "2"}}),
    "change_shard": ("", lambda _: {"dequeue_only": False}),
    "get_schedule": (f"?queue={OWN}", lambda _: None),
    "get_schedules": (f"?queue={OWN}", lambda _: None),
    "change_schedule": ("", lambda _: {"queue": OWN, "cron": "0 3 * * *", "body": "x"}),
    "command_workers": ("", lambda it: {"command": "quiet", "name": it.worker}),
    "get_workers": (f"?queue={OWN}&name={{worker_name}}", lambda _: None),
    "get_flows": ("?name={key}", lambda _: None),
    "get_jobs": ("?dedupeKey={key}", lambda _: None),
    "create_flow": ("", lambda it: {"name": it.key, "dedupe_key": it.key, "stages": [{"name": "s", "queue": OWN}]}),
    "add_flow_items": ("", lambda _: {"stage": "pay", "items": [{"payload": 1}]}),
    "seal_flow": ("", lambda _: {}),
    "resume_flow": ("", lambda _: {}),
    "retry_flow_items": ("", lambda _: {"failed": True}),
    "assign_flow_item": ("", lambda _: {}),
    "post_job": ("", lambda it: {"name": it.key, "dedupeKey": it.key, "queue": OWN, "items": [{"payload": 1}]}),
    "get_job_items": ("?jobId={flow}", lambda _: None),
    "end_assignment_with_result": ("", lambda _: {"result": 1}),
    "end_assignment_with_failure": ("", lambda _: {"reason": "x"}),
    "change_bodies": ("", lambda _: {"action": "sweep", "dry_run": True}),
    "put_token": ("", lambda _: {"hash": HASH, "roles": ["viewer"]}),
}
"""What follows the path of a route, and its body; others have neither."""

NAME_JOBS = {"ack", "heartbeat", "checkpoint", "cancel_jobs", "reschedule_jobs", "enqueue", "search_jobs"}
"""Routes of a queue that may name jobs of another one."""


@dataclass
class Place:
    """A server on which tenant A has one of everything; the tokens of tenant B, by their roles."""

    server: RunningServer
    address: str
    tokens: dict[str, str]
    theirs: Named
    before: dict[str, str]
    """What lists said to B when A had nothing yet."""

    @property
    def thrift(self) -> str:
        return f"127.0.0.1:{self.server.port}"


LISTS: dict[str, tuple[Any, ...]] = {
    "getQueueNames": (),
    "getQueues": ([],),
    "getClusterStatus": ([OWN],),
    "getWorkers": (OWN, "", True, "0", 10),
    "getSchedules": (None, OWN, "", True, 5, "0", 10),
    "getFlows": ("", "", None, "0", 10),
    "getAccess": (),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("tenants")
    (folder / "rules.toml").write_text(RULES)
    options = ["--api", "127.0.0.1:0", "--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD)]
    with running(folder, *options) as server:
        tokens = {role: f"plt_{number:043}" for number, role in enumerate(["admin", *ROLES])}
        with Client(f"127.0.0.1:{server.port}") as client:
            for role, token in tokens.items():
                client.update_token(role, hashlib.sha256(token.encode()).hexdigest(), [role], PASSWORD)
        with Client(f"127.0.0.1:{server.port}", token=tokens["admin"]) as admin:
            admin.create_queue(OWN)
            admin.create_flow(NewFlow("ready", [Stage("ready", "", OWN)], sealed=["ready"]))
            place = Place(server, server.wait_for("api_ready")["address"], tokens, MISSING, {})
            place.before = asyncio.run(lists(place))
            place.theirs = everything(admin)
        yield place


def everything(admin: Client) -> Named:
    """One of each, made by a tenant for whom the administrator stands."""
    queue, key = "a-mail", "nightly-key"
    admin.create_queue(queue)
    admin.create_queue("a-pay")
    admin.enqueue(queue, [ExtendedJob(b"secret", dedupe_key=key, serialize_key=key, send_id=key)])
    report = WorkerReport("run", "a-worker", 1, queues={queue: 1})
    (job,) = admin.dequeue(DequeueRequest(queue, 1, worker=report))
    change = ScheduleChange(name="a-nightly", queue=queue, every_ms=3_600_000, body=b"secret")
    admin.update_schedule(change, "")
    admin.update_token("a-token", HASH, ["viewer"], "")
    stages = [Stage("pay", "pay", "a-pay")]
    flow = admin.create_flow(NewFlow(key, stages, key, items={"pay": [NewItem(b"1")] * ITEMS})).id
    item = admin.get_flow_items(flow, limit=1_000).items[-1]  # a number that nothing else has
    shared = admin.create_flow(NewFlow("shared", [*stages, Stage("own", "own", OWN)])).id
    return Named(
        queue, job.descriptor, job.claim_descriptor, key, flow, shared, item.number, "a-nightly", "a-token", "a-worker"
    )


async def answer(connection: Plain, token: str, name: str, values: Sequence[Any]) -> str:
    """All that comes back for a call."""
    method, shown = METHODS[name], RequestContext("b", token=token)
    args = vars(method.arguments(shown, *values))
    await connection.send(name, context=shown, **{each: value for each, value in args.items() if each != "context"})
    reply = await connection.answer()
    if reply.exception is not None:
        error = error_from_exception(reply.exception)
        return f"{type(error).__name__} {reply.exception!r}"
    return repr(reply.success)


async def lists(place: Place) -> dict[str, str]:
    connection = await Plain.to(place.server.port)
    try:
        return {name: await answer(connection, place.tokens["b-all"], name, LISTS[name]) for name in LISTS}
    finally:
        await connection.close()


def test_every_call_is_tried_here() -> None:
    assert CALLS.keys() == METHODS.keys()


PAGES = (
    "/v1/events?queue={queue}",
    f"/v1/events?queue={OWN}&queue={{queue}}",
    "/v1/events?job={job}",
    f"/v1/events?queue={OWN}&job={{job}}",
    "/metrics",
    "/dashboard/queues/{queue}",
    "/dashboard/jobs?queue={queue}",
    "/dashboard/jobs/{job}",
    "/dashboard/jobs/{job}/body",
    "/dashboard/flows/{flow}",
    "/dashboard/flows/{shared}",
    "/dashboard/flows/{shared}/items/{item}/payload",
    f"/dashboard/flows?name={{key}}&queue={OWN}",
    f"/dashboard/schedules/{{schedule}}?queue={OWN}",
    f"/dashboard/schedules/{{schedule}}/body?queue={OWN}",
    "/dashboard/schedules?queue={queue}",
    "/dashboard/runs/{key}",
)
"""Of the HTTP process, beside its routes."""


@pytest.mark.parametrize("path", PAGES)
def test_pages_and_streams_show_no_difference(place: Place, path: str) -> None:
    """Before the caller has jobs of its own, whose ages would differ."""
    headers = {"Authorization": f"Bearer {place.tokens['b-all']}"}
    with httpx.Client(base_url=place.address, headers=headers, timeout=60, trust_env=False) as caller:
        answers = []
        for named in (place.theirs, MISSING):
            response = caller.get(path.format_map(dataclasses.asdict(named)))
            text = re.sub(r"[A-Za-z0-9_-]{43}|[0-9]+ ms|nonce-\S+", "", response.text)
            answers.append((response.status_code, named.hidden(text)))
        assert answers[0] == answers[1]
        assert not place.theirs.told_by(text)


async def test_lists_and_figures_are_as_if_others_had_nothing(place: Place) -> None:
    with (
        Client(place.thrift, token=place.tokens["admin"]) as admin,
        Client(place.thrift, token=place.tokens["b-all"]) as tenant,
    ):
        until(lambda: (admin.cluster_status(queues=[OWN]).shards[0].jobs or 0) > ITEMS)
        assert (tenant.cluster_status(queues=[OWN]).shards[0].jobs or 0) < ITEMS
    after = await lists(place)
    assert not place.theirs.told_by(after.pop("getClusterStatus"))  # it has times
    assert place.before.pop("getClusterStatus")
    assert {name: MISSING.hidden(text) for name, text in after.items()} == {
        name: MISSING.hidden(text) for name, text in place.before.items()
    }


@pytest.mark.parametrize("role", ROLES)
async def test_what_is_there_and_what_is_not_have_one_answer(place: Place, role: str) -> None:
    connection = await Plain.to(place.server.port)
    told: dict[str, list[str]] = {}
    try:
        for name, ways in CALLS.items():
            for number, way in enumerate(ways):
                texts = [
                    await answer(connection, place.tokens[role], name, way(named)) for named in (place.theirs, MISSING)
                ]
                answers = [named.hidden(text) for named, text in zip((place.theirs, MISSING), texts, strict=True)]
                if answers[0] != answers[1] or place.theirs.told_by(texts[1]):
                    told[f"{name} {number}"] = answers
    finally:
        await connection.close()
    assert told == {}


@pytest.mark.parametrize("role", ["b-all", "b-read", None])
def test_what_is_there_and_what_is_not_have_one_answer_over_http(place: Place, role: str | None) -> None:
    told: dict[str, list[tuple[int, str]]] = {}
    headers = {} if role is None else {"Authorization": f"Bearer {place.tokens[role]}"}
    with httpx.Client(base_url=place.address, headers=headers, timeout=60, trust_env=False) as caller:
        for route in ROUTES:
            query, body = REQUESTS.get(route.name, ("", lambda _: None))
            for queue in (None, OWN) if route.name in NAME_JOBS else (None,):
                answers = []
                for named in (place.theirs, MISSING):
                    names = {
                        **dataclasses.asdict(named),
                        "queue": queue or named.queue,
                        "target": named.queue,
                        "descriptor": named.job,
                        "job": named.flow,
                        "worker": "ada",
                        "worker_name": named.worker,
                        "assignment": named.assignment,
                        "shard": named.key,
                        "group": named.key,
                        "alarm": "no_worker",
                    }
                    path = (route.path + query).format_map(names)
                    response = caller.request(route.verb, path, json=body(named))
                    answers.append((response.status_code, named.hidden(response.text)))
                if answers[0] != answers[1] or place.theirs.told_by(response.text):
                    told[f"{route.name} {queue}"] = answers
    assert told == {}


def test_a_name_and_key_of_a_flow_are_free_for_who_may_not_fill_the_flow_that_has_them(place: Place) -> None:
    """Nobody loses items to a flow of others, or a name to others; and a call that is made again makes nothing."""
    key = "payroll-2026-11"
    new = NewFlow(key, [Stage("pay", "pay", OWN)], key, items={"pay": [NewItem(b"2")]})
    with Client(place.thrift, token=place.tokens["admin"]) as admin:
        first = admin.create_flow(NewFlow(key, [Stage("pay", "pay", "a-pay")], key)).id
    with Client(place.thrift, token=place.tokens["b-all"]) as tenant:
        made, again = tenant.create_flow(new), tenant.create_flow(new)
        other = tenant.create_flow(NewFlow(key, [Stage("other", "", OWN)], key))
        assert (again.id, again.is_new, other.id, other.is_new) == (made.id, False, made.id, False)
        assert (made.is_new, made.id != first) == (True, True)
        assert [each.payload for each in tenant.get_flow_items(made.id).items] == [b"2"]
        (shown,) = tenant.get_flows(name=key, dedupe_key=key).flows
        assert (shown.id, shown.dedupe_key) == (made.id, key)
        with pytest.raises(FlowNotFound):
            tenant.get_flow(first)
    with Client(place.thrift, token=place.tokens["admin"]) as admin:
        assert {each.id for each in admin.get_flows(name=key).flows} == {made.id, first}
        assert admin.create_flow(new) == again
        assert admin.create_flow(NewFlow(key, [Stage("pay", "pay", "a-pay")], key)).id == first
    headers = {"Authorization": f"Bearer {place.tokens['b-all']}"}
    form = {"name": key, "queue": OWN, "dedupeKey": f"{key}-2", "items": [{"payload": "kept"}]}
    with Client(place.thrift, token=place.tokens["admin"]) as admin:
        admin.create_flow(NewFlow(key, [Stage("pay", "pay", "a-pay")], f"{key}-2"))
    posted = httpx.post(f"{place.address}job", json=form, headers=headers, timeout=60, trust_env=False)
    assert (posted.status_code, posted.json()["isNew"]) == (201, True)
    items = httpx.get(
        f"{place.address}job_item?jobId={posted.json()['treeId']}", headers=headers, timeout=30.0, trust_env=False
    )
    assert [each["payload"] for each in items.json()["items"]] == ["kept"]


def test_who_may_read_a_flow_hears_which_queue_is_in_the_way_and_others_hear_nothing(place: Place) -> None:
    with Client(place.thrift, token=place.tokens["b-all"]) as tenant:
        with pytest.raises(FlowNotFound) as refused:
            tenant.get_flow(place.theirs.shared)
        assert "a-pay" not in refused.value.message
    with Client(place.thrift, token=place.tokens["admin"]) as admin:
        own = admin.create_flow(NewFlow("own", [Stage("own", "", OWN)])).id
    with (
        Client(place.thrift, token=place.tokens["b-read"]) as reader,
        pytest.raises(Forbidden, match="may not enqueue or operate"),
    ):
        reader.cancel_flow(own)


def test_a_job_that_waits_does_not_say_for_which_job_of_others(place: Place) -> None:
    """A serialize key is one for all queues; the job that comes first may be anybody's."""
    with Client(place.thrift, token=place.tokens["admin"]) as admin:
        (first,) = admin.enqueue("a-mail", [ExtendedJob(b"x", serialize_key="ann")])
        (second,) = admin.enqueue(OWN, [ExtendedJob(b"x", serialize_key="ann")])
        assert admin.lookup([second])[second].waits_for == first
    with Client(place.thrift, token=place.tokens["b-all"]) as tenant:
        found = [
            tenant.lookup([second])[second],
            *[each for each in tenant.scan(JobFilter(OWN, JobState.PENDING)).jobs if each.descriptor == second],
            *tenant.search_jobs(JobSelection(OWN, descriptors=(second,))).jobs,
        ]
        assert [each.waits_for for each in found] == ["?"] * 3
    headers = {"Authorization": f"Bearer {place.tokens['b-all']}"}
    page = httpx.get(f"{place.address}dashboard/jobs/{second}", headers=headers, timeout=60, trust_env=False)
    assert "It waits for a job of a queue that you may not read" in page.text
