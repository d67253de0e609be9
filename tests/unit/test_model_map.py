"""Every answer of a thing of the model with all fields and with the fewest, and every form of one, there and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from pinlater import model
from pinlater.api import Api
from pinlater.http import (
    answers,
    flow_answers,
    flow_forms,
    forms,
    job_tree_answers,
    job_tree_forms,
    operator_answers,
    operator_forms,
    search_forms,
)
from pinlater.http.model_map import answer_of, arguments_of, request_of
from pinlater.model import flow_words, job_selection, owner_bounds
from pinlater.wire.struct_map import arguments

ANSWERS: dict[Any, tuple[Any, tuple[str, ...]]] = {
    answers.DequeuedJobAnswer: (model.DequeuedJob, ()),
    answers.FoundJobsAnswer: (job_selection.FoundJobs, ()),
    answers.HeartbeatOutcomeAnswer: (model.HeartbeatAnswer, ()),
    answers.JobPageAnswer: (model.ScanPage, ()),
    answers.JobsChangedAnswer: (model.JobsChanged, ()),
    flow_answers.AssignedAnswer: (flow_words.Assignment, ("number",)),
    flow_answers.FlowCreatedAnswer: (flow_words.FlowCreated, ()),
    flow_answers.FlowsAnswer: (flow_words.FlowsPage, ()),
    flow_answers.ItemsAnswer: (flow_words.FlowItemsPage, ()),
    job_tree_answers.ItemCountsAnswer: (flow_words.StageStatus, ()),
    job_tree_answers.ItemResultAnswer: (flow_words.FlowItem, ()),
    job_tree_answers.JobItemsAnswer: (flow_words.FlowItemsPage, ()),
    job_tree_answers.TreeAnswer: (flow_words.FlowStatus, ("jobs",)),
    job_tree_answers.TreeJobAnswer: (flow_words.StageStatus, ("id", "parent_id", "items")),
    operator_answers.AccessAnswer: (model.AccessView, ()),
    operator_answers.IdentityUsageAnswer: (owner_bounds.IdentityUsage, ()),
    operator_answers.QueueSettingsAnswer: (model.QueueView, ()),
    operator_answers.ScheduleAnswer: (model.ScheduleView, ()),
    operator_answers.WorkersAnswer: (model.WorkersPage, ()),
}
"""Each with the thing that it is of, and its fields that are none of that."""

FORMS: dict[Any, tuple[Any, set[str]]] = {
    flow_forms.CallbackForm: (flow_words.CompletionCallback, set()),
    flow_forms.FlowForm: (flow_words.NewFlow, set()),
    forms.CheckpointForm: (model.Checkpoint, set()),
    forms.FailureForm: (model.ReportingAck, {"log_lines", "progress", "result"}),
    forms.HeartbeatForm: (model.Heartbeat, {"log_lines"}),
    forms.JobForm: (model.ExtendedJob, set()),
    forms.RescheduleForm: (model.RescheduleJob, set()),
    forms.SuccessForm: (model.ReportingAck, {"log_lines", "progress", "retry_delay_ms"}),
    forms.WorkerForm: (model.WorkerReport, set()),
    job_tree_forms.JobItemForm: (flow_words.NewItem, set()),
    job_tree_forms.TreeAppletForm: (flow_words.Applet, set()),
    job_tree_forms.TreeCallbackForm: (flow_words.CompletionCallback, set()),
}
"""Each with the thing that it stands for, and the fields of that which it cannot say whole."""

CALLS: list[tuple[Any, Any, int, set[str]]] = [
    (Api.add_flow_items, flow_forms.AddItemsForm, 1, set()),
    (Api.cancel, forms.CancelForm, 1, set()),
    (Api.checkpoint, forms.CheckpointsForm, 1, set()),
    (Api.cluster_status, operator_forms.StatusQuery, 0, {"queues"}),
    (Api.count, operator_forms.CountQuery, 1, set()),
    (Api.delete_schedule, operator_forms.DeleteScheduleQuery, 2, set()),
    (Api.get_flow, flow_forms.FlowQuery, 1, set()),
    (Api.get_flow, job_tree_forms.TreeStatusQuery, 1, set()),
    (Api.get_flow_items, flow_forms.ItemsQuery, 1, {"numbers"}),
    (Api.get_flow_items, job_tree_forms.JobItemsQuery, 1, {"stage", "numbers"}),
    (Api.get_flows, flow_forms.FlowsQuery, 0, set()),
    (Api.get_flows, job_tree_forms.TreesQuery, 0, set()),
    (Api.get_schedules, operator_forms.ScheduleQuery, 1, {"queue", "made_by", "continuation", "limit"}),
    (Api.get_schedules, operator_forms.SchedulesQuery, 1, set()),
    (Api.command_workers, operator_forms.CommandWorkersForm, 0, set()),
    (Api.get_workers, operator_forms.WorkersQuery, 0, set()),
    (Api.heartbeat, forms.HeartbeatsForm, 2, set()),
    (Api.lookup, forms.LookupForm, 1, set()),
    (Api.lookup, operator_forms.LookupQuery, 1, {"queue", "keys"}),
    (Api.resume_flow, flow_forms.ResumeForm, 1, set()),
    (Api.retry_flow_items, flow_forms.RetryItemsForm, 1, set()),
    (Api.scan, operator_forms.JobPageQuery, 1, set()),
    (Api.seal_stage, flow_forms.SealForm, 1, set()),
    (Api.search_jobs, search_forms.SearchForm, 1, set()),
    (Api.update_queue, operator_forms.SettingsForm, 2, set()),
    (Api.update_schedule, operator_forms.ScheduleForm, 2, set()),
    (Api.update_shard, operator_forms.ShardForm, 2, set()),
    (Api.update_token, operator_forms.TokenForm, 1, {"password"}),
]
"""Calls with the forms of their routes, how many arguments the routes give in front, and those that are not there."""

every_answer = pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
OTHERS_OF_FORM: dict[Any, dict[str, Any]] = {forms.JobForm: {"job": None, "args": msgspec.UNSET}}
"""Fields of a form in place of one that the model has."""

every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


def made(hint: Any, *, has_all: bool) -> Any:
    """A value of a type of the model: none of its fields is as by default, or nothing is there that may be left out."""
    kind, of = get_origin(hint), get_args(hint)
    if NoneType in of:
        return made(next(each for each in of if each is not NoneType), has_all=True) if has_all else None
    if kind in (list, tuple, Sequence):
        return [made(of[0], has_all=True)] if has_all else []
    if kind in (dict, Mapping):
        return {"key": made(of[1], has_all=True)} if has_all else {}
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        names = [each.name for each in dataclasses.fields(hint)] if dataclasses.is_dataclass(hint) else hint._fields
        return hint(**{name: made(hints[name], has_all=has_all) for name in names})  # type: ignore[operator]
    if issubclass(hint, Enum):
        return list(hint)[-1 if has_all else 0]
    return {int: 7, str: "a", bytes: b"17", bool: True, float: 0.5}[hint] if has_all else hint()


@every_answer
@pytest.mark.parametrize("has_all", [True, False], ids=["all", "least"])
def test_an_answer_has_what_the_thing_has(kind: Any, has_all: bool) -> None:
    thing_of, others = ANSWERS[kind]
    hints = {field.name: field for field in msgspec.structs.fields(kind)}
    given = {name: "x" if name == "parent_id" else _json_value(hints[name].type) for name in others}
    thing = made(thing_of, has_all=has_all or "job" in get_type_hints(thing_of))
    data = msgspec.json.encode(answer_of(kind, thing, **given))
    assert msgspec.json.decode(data, type=kind, strict=True)
    said = msgspec.json.decode(data)
    required = {field.encode_name for field in hints.values() if field.required}
    assert required <= set(said)
    if has_all:
        assert {field.encode_name for field in hints.values()} == set(said)


def _json_value(kind: Any) -> Any:
    if kind is job_tree_answers.ItemCountsAnswer:
        return kind(1, 1, 1, 1, 1)
    return [] if get_origin(kind) is list else 1 if kind is int else "x"


@every_form
def test_a_form_says_all_that_the_model_has(form: Any) -> None:
    """What an answer of a form says is what it is made of."""
    stands_for, cannot_say = FORMS[form]
    thing = made(stands_for, has_all=True)
    fields = {field.name for field in dataclasses.fields(stands_for)}
    least = {name: getattr(_least(stands_for, thing), name) for name in cannot_say}
    said = dataclasses.replace(thing, **least)
    shown = answer_of(_that_is_read(form), said, **OTHERS_OF_FORM.get(form, {}))
    read = request_of(stands_for, msgspec.json.decode(msgspec.json.encode(shown), type=form))
    assert {name: getattr(read, name) for name in fields} == {name: getattr(said, name) for name in fields}


def _that_is_read(form: Any) -> Any:
    """The form without what it takes of a claimed job, and does not read."""
    if not issubclass(form, forms.ClaimEntryForm):
        return form
    unread = {each.name for each in msgspec.structs.fields(forms.ClaimEntryForm)}
    read = [(each.name, each.type) for each in msgspec.structs.fields(form) if each.name not in unread]
    return msgspec.defstruct(form.__name__, read)


def _least(kind: Any, thing: Any) -> Any:
    needed = [each.name for each in dataclasses.fields(kind) if each.default is each.default_factory]
    least = kind(**{name: getattr(thing, name) for name in needed})
    return dataclasses.replace(least, **{each.name: [] for each in dataclasses.fields(kind) if each.default == ()})


@pytest.mark.parametrize(("call", "form", "first", "missing"), CALLS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_form_has_the_arguments_of_its_call(call: Any, form: Any, first: int, missing: set[str]) -> None:
    needed = {field.name: get_args(field.type) for field in msgspec.structs.fields(form) if field.required}
    words = {name: words[0] if words and isinstance(words[0], str) else () for name, words in needed.items()}
    given = arguments_of(call, form(**words), first)
    assert {each.name for each in arguments(call)[first:]} - given.keys() == missing


def test_what_a_form_says_becomes_what_the_call_takes() -> None:
    query = msgspec.convert({"state": "failed", "cursor": "7"}, flow_forms.ItemsQuery)
    given = arguments_of(Api.get_flow_items, query, 1)
    assert (given["state"], given["continuation"], given["limit"]) == (flow_words.ItemState.FAILED, "7", 100)
    form = msgspec.convert({"keys": [{"dedupe_key": "a"}], "wait_ms": 5}, forms.LookupForm)
    assert arguments_of(Api.lookup, form, 1) == {
        "include_body": False,
        "include_result": False,
        "include_trail": False,
        "wait_ms": 5,
        "queue": "",
        "keys": [model.KeyRef("a")],
    }
