"""The answers about queues, the cluster, schedules and access as JSON. What the model has as it is to be, is the answer
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from pinlater.http.answers import MissingShards, NextCursor
from pinlater.http.encodings import Encoding
from pinlater.http.model_map import Answer, BodyValue, answer_of, has_fields_of
from pinlater.model import (
    AccessAction,
    AuditEntry,
    CommandedWorker,
    GroupsCleared,
    GroupsPage,
    GroupView,
    Schedule,
    ScheduleView,
    ServerView,
    SettingView,
    ShardView,
    TokenView,
    WorkersPage,
)
from pinlater.model.alarm_views import AbsorbedAlarm, Alarm, AlarmsPage
from pinlater.model.owner_bounds import OwnedKind


class QueuesAnswer(Answer):
    """The names of queues."""

    queues: list[str]


@has_fields_of(SettingView)
class SettingAnswer(Answer):
    """A setting, and where it comes from: "breaker", "queue", "file", "default", "file default" or "server"."""


class QueueSettingsAnswer(Answer):
    """A queue and all its settings, by name."""

    name: str
    version: str
    settings: dict[str, SettingAnswer]


class AllSettingsAnswer(Answer):
    """All queues and their settings."""

    queues: list[QueueSettingsAnswer]


@has_fields_of(GroupView)
class GroupAnswer(Answer):
    """A group of a queue: its ready jobs, weight, limits and pause. "" is the group of jobs without one."""

    settings: dict[str, SettingAnswer]


@has_fields_of(GroupsPage, without=("continuation",))
class GroupsAnswer(Answer):
    """A page of groups by name."""

    groups: list[GroupAnswer]
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None


@has_fields_of(GroupsCleared, without=("continuation",))
class GroupsClearedAnswer(Answer):
    """How many jobs had a group in this step."""

    jobs: int
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None


class ShardsAnswer(Answer):
    """Shards, as the server that answers sees them."""

    shards: list[ShardView]


class ServersAnswer(Answer):
    """The server processes that are alive."""

    servers: list[ServerView]


@has_fields_of(WorkersPage, without=("continuation",))
class WorkersAnswer(Answer):
    """A page of workers by name, host and pid; the sums are over all that match."""

    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None


@has_fields_of(AbsorbedAlarm)
class AbsorbedAnswer(Answer):
    """An effect of an alarm, which has no alarm of its own."""


@has_fields_of(Alarm)
class AlarmAnswer(Answer):
    """A condition that holds of one subject: a queue, a shard, a server process; "" is the cluster."""

    absorbed: list[AbsorbedAnswer]


@has_fields_of(AlarmsPage)
class AlarmsAnswer(Answer):
    """Alarms, the worst first, or those that ended, the latest first. `is_alone`: no shard can be reached, so a server
    judged by what it knows itself.
    """

    alarms: list[AlarmAnswer]


@has_fields_of(CommandedWorker)
class CommandedWorkerAnswer(Answer):
    """The outcome of a command for one worker; `id` is the text by which it was named where it is `not_known`."""


class WorkersCommandedAnswer(Answer):
    """An answer for each worker that was meant. Of `missing_shards` nothing is known: more may be meant."""

    workers: list[CommandedWorkerAnswer]
    missing_shards: MissingShards | None = None


class AuditAnswer(Answer):
    """Changes by operators, the latest first."""

    entries: list[AuditEntry]
    next_cursor: NextCursor | None = None


@has_fields_of(Schedule, ScheduleView, without=("schedule",))
class ScheduleAnswer(Answer):
    """A schedule. `next_ms`: its next firings; `trouble`: why it does not fire as it should."""

    every_ms: int | None
    start_ms: int | None
    end_ms: int | None
    last_fired_ms: int | None
    body: BodyValue | UnsetType = UNSET
    body_encoding: Encoding | None = None


class SchedulesAnswer(Answer):
    """A page of schedules, by name."""

    schedules: list[ScheduleAnswer]
    next_cursor: NextCursor | None = None


class ScheduleUpdatedAnswer(Answer):
    """A schedule as it is after a change, or would be after a dry run."""

    schedule: ScheduleAnswer
    is_changed: bool
    missed_shards: MissingShards


class TokensAnswer(Answer):
    """All tokens, by name; the tokens themselves are nowhere."""

    tokens: list[TokenView]


class GrantAnswer(Answer):
    """These actions on the queues that match one of the patterns; `bodies`: to see what is in jobs, too. `groups`:
    patterns of those that jobs may get, "" for jobs without one.
    """

    actions: list[AccessAction]
    queues: list[str]
    bodies: bool
    groups: list[str]


class StoredAnswer(Answer):
    """The number of objects of a kind that an identity has made; `used` null: it is not known now. `limit` 0: any
    number.
    """

    kind: OwnedKind
    used: int | None
    limit: int


class IdentityUsageAnswer(Answer):
    identity: str
    stored: list[StoredAnswer]


class UsageAnswer(Answer):
    """Up to 1,000 identities, those first that are nearest to a bound."""

    identities: list[IdentityUsageAnswer]


class AccessAnswer(Answer):
    """The caller's identity and rights. Without rules it may do all that needs no admin password. `stored`: what it
    has made; nothing where that is not counted.
    """

    identity: str
    roles: list[str]
    grants: list[GrantAnswer]
    has_rules: bool
    stored: list[StoredAnswer]


def schedule(view: ScheduleView, *, with_body: bool = False, encoding: Encoding = "text") -> ScheduleAnswer:
    without: dict[str, Any] = {} if with_body else {"body": UNSET, "body_encoding": None}
    return answer_of(ScheduleAnswer, view, encoding, **without)


def audit_page(entries: Sequence[AuditEntry], limit: int, seen: int) -> AuditAnswer:
    """The first `limit` of entries that begin with those of the last millisecond that the caller has `seen` already.

    The cursor is that millisecond, and how many entries of it were seen.
    """
    page = list(entries[seen : seen + limit])
    if len(page) < limit:
        return AuditAnswer(page)
    last_ms = page[-1].at_ms
    of_last = sum(each.at_ms == last_ms for each in entries[: seen + limit])
    return AuditAnswer(page, f"{last_ms}-{of_last}")
