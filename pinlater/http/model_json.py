"""The JSON of things of the model, for faces that are no route. Without an answer here, a thing is its own."""

from __future__ import annotations

from typing import Any

import msgspec

from pinlater.http import answers, flow_answers, operator_answers
from pinlater.http.model_map import Answer, answer_of
from pinlater.model import AccessView, CommandedWorker, GroupView, JobInfo, QueueView, ScheduleView
from pinlater.model.alarm_views import Alarm
from pinlater.model.flow_words import FlowItem, FlowStatus
from pinlater.model.owner_bounds import IdentityUsage

_ANSWERS: dict[type, type[Answer]] = {
    Alarm: operator_answers.AlarmAnswer,
    AccessView: operator_answers.AccessAnswer,
    CommandedWorker: operator_answers.CommandedWorkerAnswer,
    FlowItem: flow_answers.ItemAnswer,
    FlowStatus: flow_answers.FlowAnswer,
    IdentityUsage: operator_answers.IdentityUsageAnswer,
    JobInfo: answers.JobAnswer,
    QueueView: operator_answers.QueueSettingsAnswer,
    GroupView: operator_answers.GroupAnswer,
    ScheduleView: operator_answers.ScheduleAnswer,
}


def json_bytes(thing: Any) -> bytes:
    """What HTTP answers for a thing."""
    kind = _ANSWERS.get(type(thing))
    return msgspec.json.encode(thing if kind is None else answer_of(kind, thing))
