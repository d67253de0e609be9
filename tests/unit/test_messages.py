"""Every call of the table through the wire and back: what is asked, and what is answered, with all fields."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest
import re2

from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import (
    Ack,
    AckOutcome,
    AuditEntry,
    Cancelled,
    CancelOutcome,
    ClaimOutcome,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueRequest,
    ExtendedJob,
    Grant,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobInfo,
    JobState,
    Misfire,
    RequestContext,
)
from pinlater.model.flow_words import Assignment
from pinlater.model.job_selection import JobSelection, TextCondition
from pinlater.model.owner_bounds import NO_BOUNDS
from pinlater.wire.codec import decode_call, decode_reply, encode_call, encode_reply
from pinlater.wire.interface import LAYOUTS, struct
from pinlater.wire.message import Protocol
from pinlater.wire.methods import METHODS, SEARCH_JOBS, Method
from pinlater.wire.struct_map import reader

ME = RequestContext("me", "17")
DESCRIPTOR = "q:s1:p2:1790000000000000"
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
every_form = pytest.mark.parametrize("has_all", [True, False], ids=["all", "least"])
_CLAIMED = DequeuedJob(DESCRIPTOR, b"p", 2, 0, 0, 0, 0, "a claim", 5)

FIXED: dict[Any, Any] = {
    (JobInfo, "descriptor"): DESCRIPTOR,
    (JobInfo, "priority"): 2,
    (JobInfo, "dedupe_for_ms"): 0,
    (JobInfo, "run_after_ms"): 7,
    (DequeuedJob, "descriptor"): DESCRIPTOR,
    (DequeuedJob, "priority"): 2,
    (DequeueRequest, "ack_queue"): "other",
    (DequeueRequest, "succeeded"): [Ack("one", result=b"r")],
    (Grant, "calls_per_second"): 0,
    (Grant, "bounds"): NO_BOUNDS,
    ("deleteJobs", "filter"): JobFilter("q", JobState.FAILED, 3, body_regex="x"),
    "ackDequeuedJobs": None,
    "cancelJobs": Cancelled({"one": CancelOutcome.ENDED}, [CancelOutcome.REQUESTED]),
    "assignItem": Assignment(ClaimOutcome.CLAIMED, dataclasses.replace(_CLAIMED, priority=0), b"p"),
    "dequeueFromQueues": DequeuedFromQueues([_CLAIMED]),
}
"""Of which not every value comes back: what is not on the wire, and what follows from another field."""


def built(hint: Any, has_all: bool, number: int = 3) -> Any:
    """A value of a type of the model: with all that it can have, or with as little."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is NoneType:
        return None
    if NoneType in inner:
        return built(next(each for each in inner if each is not NoneType), True, number) if has_all else None
    if origin in (list, Sequence, set, tuple):
        kind = {set: set, tuple: tuple}.get(origin, list)
        return kind([built(inner[0], has_all, number)] * has_all)
    if origin in (dict, Mapping):
        return {built(inner[0], True): built(inner[1], has_all, number)} if has_all else {}
    if hint is Job:
        hint = ExtendedJob if has_all else Job
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1 if has_all else 0]
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        names = hint._fields if hasattr(hint, "_fields") else [each.name for each in dataclasses.fields(hint)]
        return hint(**{name: FIXED.get((hint, name), _of(hints[name], has_all, at)) for at, name in enumerate(names)})
    least = {str: "", int: 0, bool: False, bytes: b"", float: 0.0}
    most = {str: f"ü{number}", int: number + 3, bool: True, bytes: b"\xff%d" % number, float: number + 0.5}
    return (most if has_all else least)[hint]


def _of(hint: Any, has_all: bool, at: int) -> Any:
    return built(hint, has_all, at)


def plain(value: Any) -> Any:
    """Whether a list came back as a tuple says nothing, and a job of which nothing is extended is a plain one."""
    if isinstance(value, ExtendedJob):
        fields = (value.body, value.priority, value.run_after_ms, value.attempts_allowed, value.custom_status)
        value = Job(*fields) if value == ExtendedJob(*fields) else value
    if dataclasses.is_dataclass(value):
        return type(value).__name__, {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def parameters(method: Method[Any]) -> list[inspect.Parameter]:
    return [each for name, each in inspect.signature(method.call).parameters.items() if name not in ("self", "context")]


class Asked:
    """An Api that keeps what it was asked."""

    def __init__(self, method: Method[Any]) -> None:
        self._method = method
        self.values: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        assert name == self._method.api_name

        async def call(*by_place: Any, context: RequestContext, **by_name: Any) -> Any:
            assert context is ME
            own = parameters(self._method)
            self.values = [*by_place, *(by_name[each.name] for each in own[len(by_place) :])]
            is_heartbeat = self._method.api_name == "heartbeat"
            return [HeartbeatAnswer(HeartbeatOutcome.OK) for _ in by_place[1]] if is_heartbeat else None

        return call


def served(method: Method[Any], sent: Sequence[Any], protocol: Protocol) -> list[Any]:
    """What an Api is asked when a client asks this."""
    data = encode_call(method.name, 1, method.arguments(ME, *sent), protocol)
    api = Asked(method)

    async def serve() -> None:
        await method.serve(api, decode_call(data).args, ME)

    asyncio.run(serve())
    return api.values


def asked(method: Method[Any], has_all: bool) -> dict[str, Any]:
    hints = get_type_hints(method.call)
    names = [each.name for each in parameters(method)]
    return {name: FIXED.get((method.name, name), built(hints[name], has_all)) for name in names}


@every_method
@every_form
@pytest.mark.parametrize("protocol", [Protocol.BINARY, Protocol.COMPACT])
def test_what_is_asked_comes_to_the_service(method: Method[Any], has_all: bool, protocol: Protocol) -> None:
    sent = list(asked(method, has_all).values())
    assert plain(served(method, sent, protocol)) == plain(sent)


@every_method
@every_form
@pytest.mark.parametrize("protocol", [Protocol.BINARY, Protocol.COMPACT])
def test_what_is_answered_comes_to_the_client(method: Method[Any], has_all: bool, protocol: Protocol) -> None:
    if method.name == "heartbeatJobs":  # whose answers are told apart by the heartbeats: see test_convert.py
        return
    sent = FIXED[method.name] if method.name in FIXED else built(get_type_hints(method.call)["return"], has_all)
    reply = decode_reply(encode_reply(method.name, 1, method.answer(sent), protocol=protocol))
    read = method.result(reply.success)
    assert plain(read) == plain(sent)
    assert getattr(read, "by_key", None) == getattr(sent, "by_key", None)


@every_method
def test_what_is_left_out_is_as_a_call_of_the_service_has_it(method: Method[Any]) -> None:
    left_out = {each.name: each.default for each in parameters(method) if each.default is not each.empty}
    sent = [value for name, value in asked(method, True).items() if name not in left_out]
    got = served(method, sent, Protocol.BINARY)[len(sent) :]
    for value, default in zip(got, left_out.values(), strict=True):
        assert value == default or (not value and not default)


# -- both sides have the same fields -----------------------------------------------------------------------------------


@dataclasses.dataclass
class LongEntry(AuditEntry):
    reason: str = ""


class ShortEntry(NamedTuple):
    at_ms: int
    who: str
    action: str
    target: str
    detail: str = ""


def test_a_field_that_one_side_lacks_is_named() -> None:
    layout = LAYOUTS.of("AuditEntry")
    with pytest.raises(TypeError, match=r"LongEntry\.reason has no field in AuditEntry"):
        reader(LongEntry, layout)
    with pytest.raises(TypeError, match="ShortEntry has no field for AuditEntry: server"):
        reader(ShortEntry, layout)


# -- numbers that name nothing -----------------------------------------------------------------------------------------


def refused(method: Method[Any], *asked: Any, **changed: Any) -> RequestInvalid:
    args = method.arguments(ME, *asked)
    vars(args.request).update(changed)
    with pytest.raises(RequestInvalid) as caught:
        method.serve(Asked(method), args, ME)
    return caught.value


def test_a_number_that_names_nothing_is_an_invalid_request_which_says_what_there_is() -> None:
    change = JobChange("mail", JobAction.RETRY)
    assert "action is 9; allowed: RETRY 0" in refused(METHODS["changeJobs"], change, action=9).message
    assert "jobState is 4; allowed: PENDING 0" in refused(METHODS["changeJobs"], change, state=4).message
    assert "mode is 2; allowed: 0 or 1" in refused(METHODS["cancelJobs"], "mail", [], running=2).message
    selection = struct("JobSelection")()
    selection.queue, selection.phases = "mail", [8]
    assert "phases is 8" in refused(SEARCH_JOBS, JobSelection("mail"), selection=selection).message


def test_one_in_an_answer_is_no_answer_but_where_something_stands_for_it() -> None:
    response = struct("RescheduleJobsResponse")()
    response.outcomes = [9]
    with pytest.raises(ProtocolError, match="9 is no RescheduleOutcome"):
        METHODS["rescheduleJobs"].result(response)
    assert METHODS["ackJobs"].result(response) == [AckOutcome.UNKNOWN]
    view = struct("ScheduleView")()
    view.schedule = struct("Schedule")()
    view.schedule.name, view.schedule.misfire = "nightly", 9
    page = struct("GetSchedulesResponse")()
    page.schedules = [view]
    assert METHODS["getSchedules"].result(page).schedules[0].schedule.misfire is Misfire.RUN_ONCE


def test_words_that_only_a_newer_server_knows_are_left_out() -> None:
    grant, count, view = struct("AccessGrant")(), struct("StoredCount")(), struct("AccessView")()
    grant.actions, grant.queues = ["read", "dance"], ["*"]
    count.kind, count.limit = "dances", 1
    view.identity, view.roles, view.grants, view.stored = "token:web", [], [grant], [count]
    shown = METHODS["getAccess"].result(view)
    assert ([list(each.actions) for each in shown.grants], shown.stored) == ([["read"]], [])


def test_an_older_server_does_not_take_the_letters_of_one_queue_for_all_jobs() -> None:
    """It does not see the queue, and refuses a condition that is empty, or finds no job that meets it."""
    args = SEARCH_JOBS.arguments(ME, JobSelection("dead", status_conditions=[TextCondition("why")], origin_queue="q"))
    assert [each.regex for each in args.request.selection.status_conditions] == ["why", ""]
    assert args.request.selection.status_conditions[1].is_not
    selection = JobSelection("dead", status_conditions=[TextCondition("why", True)], origin_queue="q")
    (read, *_others) = served(SEARCH_JOBS, [selection], Protocol.BINARY)
    assert (read.status_conditions, read.origin_queue) == ([TextCondition("why", True)], "q")


@pytest.mark.parametrize("others", [{}, {"tags": ("t",)}, {"origin_queue": "q"}])
def test_an_older_server_does_not_take_the_jobs_of_a_group_for_all(others: dict[str, Any]) -> None:
    """One that knows tags leaves the empty condition out beside them, and no job meets the other one there."""
    selection = JobSelection("mail", status_conditions=[TextCondition("why")], group="acme", **others)
    unmet = SEARCH_JOBS.arguments(ME, selection).request.selection.status_conditions[-1]
    assert unmet.is_not
    assert re2.search(unmet.regex, b"") is not None
    assert unmet.regex != ""
    (read, *_others) = served(SEARCH_JOBS, [selection], Protocol.BINARY)
    assert (read.status_conditions, read.group) == ([TextCondition("why")], "acme")


def test_a_selection_of_nothing_names_a_job_that_is_none() -> None:
    """Older servers take an empty list for all jobs."""
    for field, empty in (("phases", []), ("dedupe_key", ""), ("group", ""), ("descriptors", [])):
        nothing = dataclasses.replace(JobSelection("q"), **{field: empty})
        args = SEARCH_JOBS.arguments(ME, nothing)
        assert list(args.request.selection.descriptors) == [""]
        (read, *_others) = served(SEARCH_JOBS, [nothing], Protocol.BINARY)
        assert read.selects_nothing
