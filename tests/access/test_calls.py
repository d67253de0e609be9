"""Every call of the method table over a real port: without, with a wrong, and with the right identity."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, DequeueRequest, Job, JobFilter, JobState, RequestContext
from pinlater.data_folder.password import hash_password
from pinlater.errors import Forbidden, PasswordInvalid
from pinlater.model import (
    AccessAction,
    Ack,
    Checkpoint,
    DequeueFromQueuesRequest,
    Heartbeat,
    JobAction,
    JobChange,
    QueueShare,
    RescheduleJob,
    ScheduleChange,
    WorkerCommand,
)
from pinlater.model.body_words import BodiesAction, BodiesChange
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from pinlater.model.job_selection import FoundJobsChange, JobSelection
from pinlater.wire.faults import error_from_exception
from pinlater.wire.methods import METHODS, Access, Method
from tests.server.running import Plain, RunningServer, running

PASSWORD = "open sesame"
WRONG = "plt_" + "w" * 43
GONE = "mail:s1:p1:1790000000000000"
NO_FLOW = "f" * 26
HASH = hashlib.sha256(b"x").hexdigest()

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "createQueue": ("mail",),
    "deleteQueue": ("other", ""),
    "getQueueNames": (),
    "enqueueJobs": ("mail", [Job(b"x")]),
    "dequeueJobs": (DequeueRequest("mail", 1),),
    "dequeueFromQueues": (DequeueFromQueuesRequest([QueueShare("mail")], 1),),
    "ackDequeuedJobs": ("mail", [Ack(GONE)], []),
    "ackJobs": ("mail", [Ack(GONE)], []),
    "checkpointJobs": ("mail", [Checkpoint(GONE)]),
    "heartbeatJobs": ("mail", [Heartbeat(GONE, "claim")]),
    "lookupJobs": ([GONE], False),
    "getJobCount": (JobFilter("mail", JobState.PENDING), False),
    "scanJobs": (JobFilter("mail", JobState.PENDING), "0", 10),
    "retryFailedJobs": ("mail", 1, 1, None, 10),
    "deleteJobs": (JobFilter("mail", JobState.FAILED, priority=1), 10),
    "cancelJobs": ("mail", [GONE]),
    "rescheduleJobs": ("mail", [RescheduleJob(GONE, attempts_allowed=3)]),
    "changeJobs": (JobChange("mail", JobAction.RETRY, JobState.FAILED, limit=1),),
    "searchJobs": (JobSelection("mail"), 10, False, None, "0"),
    "changeFoundJobs": (FoundJobsChange(JobSelection("mail"), JobAction.RETRY, limit=1),),
    "getQueues": (["mail"],),
    "updateQueue": ("mail", "", {"max_attempts": "3"}, [], False),
    "getGroups": ("mail", ["acme"]),
    "updateGroup": ("mail", "acme", "", {"weight": "2"}),
    "clearGroups": ("mail", "", "0", 10, True),
    "updateShard": ("1", "", False, False),
    "getClusterStatus": (None,),
    "getAlarms": (False, 10),
    "muteAlarm": ("no_worker", 1_000, "known", "", ""),
    "getAudit": (10, None),
    "getBodyTiers": (),
    "changeBodies": (BodiesChange(BodiesAction.SWEEP, dry_run=True),),
    "getWorkers": ("mail", "", False, "0", 10),
    "commandWorkers": (WorkerCommand.QUIET, ("none",), "", "", False),
    "updateSchedule": (ScheduleChange(name="nightly", queue="mail", every_ms=3_600_000), "", False, None),
    "getSchedules": (None, "mail", "", False, 0, "0", 10),
    "deleteSchedule": ("nightly", "", None),
    "createFlow": (NewFlow("payroll", [Stage("pay", "pay", "mail")]),),
    "addFlowItems": (NO_FLOW, "pay", [NewItem(b"1")], False),
    "sealStage": (NO_FLOW, ""),
    "getFlow": (NO_FLOW, 0),
    "getFlows": ("", "", None, "0", 10),
    "getFlowItems": (NO_FLOW, "", None, "", (), False, "0", 10),
    "cancelFlow": (NO_FLOW,),
    "deleteFlow": (NO_FLOW,),
    "resumeFlow": (NO_FLOW, "", ""),
    "retryFlowItems": (NO_FLOW, (), "", True, False),
    "assignItem": (1, None),
    "updateToken": ("made", HASH, ["viewer"], "", None, False),
    "getTokens": (),
    "deleteToken": ("made", ""),
    "getAccess": (),
    "getUsage": (),
    "explainJobs": ([GONE],),
}
"""Of each call; queues that they name are "mail", but for the one that is deleted. A call without arguments here fails
the test, so that no call comes without one.
"""

RULES = "".join(
    f"""
[roles.only-{action}]
may = ["{action}"]
[roles.{action}-elsewhere]
may = ["{action}"]
queues = ["elsewhere-*"]
[roles.all-but-{action}]
may = {[str(other) for other in AccessAction if other not in (action, AccessAction.GATEWAY)]}
"""
    for action in AccessAction
)


@dataclass
class Place:
    """A server with rules, and tokens by the roles that they have."""

    server: RunningServer
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("access")
    with limited(folder, RULES) as server, Client(f"127.0.0.1:{server.port}") as client:
        tokens = {}
        roles = [
            f"{each}"
            for action in AccessAction
            for each in (f"only-{action}", f"{action}-elsewhere", f"all-but-{action}")
        ]
        for number, role in enumerate(roles):
            tokens[role] = f"plt_{number:043}"
            client.update_token(role, hashlib.sha256(tokens[role].encode()).hexdigest(), [role], PASSWORD)
        with Client(f"127.0.0.1:{server.port}", token=tokens["only-operate"]) as operator:
            operator.create_queue("mail")
        with Client(f"127.0.0.1:{server.port}", token=tokens["all-but-read"]) as operator:
            operator.create_flow(NewFlow("ready", [Stage("ready", "", "mail")], sealed=["ready"]))
        yield Place(server, tokens)


@contextmanager
def limited(folder: Path, rules: str) -> Iterator[RunningServer]:
    (folder / "rules.toml").write_text(rules)
    with running(folder, "--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield server


@pytest.mark.parametrize("queue", ["not_there", "plain"])
def test_a_queue_is_made_ready_for_items_by_who_may_operate_it(place: Place, queue: str) -> None:
    """It loses its crash budget and dead letters; and to make a queue is an operator's too."""
    address = f"127.0.0.1:{place.server.port}"
    flow = NewFlow(queue, [Stage("one", "", queue)], sealed=["one"])
    producing, operating = place.tokens["only-enqueue"], place.tokens["all-but-read"]
    with Client(address, token=producing) as producer, Client(address, token=operating) as operator:
        if queue == "plain":
            operator.create_queue(queue)
        with pytest.raises(Forbidden, match=f"makes it ready, as by `pinlater flow create ready --stage ready:{queue}"):
            producer.create_flow(flow)
        operator.create_flow(NewFlow("ready", [Stage("ready", "", queue)], sealed=["ready"]))
        assert producer.create_flow(flow).is_new


def test_every_call_is_tried_here() -> None:
    assert ARGUMENTS.keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_who_may_make_it(place: Place, name: str) -> None:
    asyncio.run(_tried(place, METHODS[name]))


_addresses = count(2)


async def _tried(place: Place, method: Method[Any]) -> None:
    # an address for each call: answers to who shows many wrong tokens are held back
    plain = await Plain.to(place.server.port, f"127.0.0.{next(_addresses)}")

    async def refusal(role: str | None = None, *, token: str | None = None, password: str = "") -> str:
        """Why the caller may not; "" where it may."""
        shown = RequestContext("test", token=place.tokens[role] if role else token)
        args = method.arguments(shown, *ARGUMENTS[method.name])
        if password:
            getattr(args, "request", args).password = password
        await plain.send(
            method.name, context=shown, **{name: value for name, value in vars(args).items() if name != "context"}
        )
        exception = (await plain.answer()).exception
        error = None if exception is None else error_from_exception(exception)
        return error.message if isinstance(error, PasswordInvalid) else ""

    try:
        assert "the token is wrong" in await refusal(token=WRONG)
        if not method.actions:
            assert await refusal() == ""
            return
        assert "anonymous may not" in await refusal()
        others = [action for action in AccessAction if action not in method.actions]
        for action in others:
            assert f"token:only-{action} may not" in await refusal(f"only-{action}")
        for action in method.actions:
            if list(method.queues(method.arguments(RequestContext(""), *ARGUMENTS[method.name]))) != ["?"]:
                assert f"token:{action}-elsewhere may not" in await refusal(f"{action}-elsewhere")
            if len(method.actions) == 1:
                assert f"token:all-but-{action} may not" in await refusal(f"all-but-{action}")
        if method.access is Access.ADMIN_PASSWORD:
            assert await refusal(password=PASSWORD) == ""
        for action in method.actions:
            assert await refusal(f"only-{action}") == ""
    finally:
        await plain.close()
