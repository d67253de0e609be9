"""The answers about queues, the cluster, schedules and access as JSON. What the model has as it is to be, is the answer
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from msgspec import UNSET, UnsetType

from pinlater.http.answers import Answer, BodyValue, MissingShards, NextCursor, next_cursor
from pinlater.http.encodings import Encoding, to_json
from pinlater.http.operator_forms import MisfireWord
from pinlater.model import (
    AccessAction,
    AccessView,
    AuditEntry,
    QueueView,
    Schedule,
    SchedulesPage,
    ScheduleUpdated,
    ScheduleView,
    ServerView,
    ShardView,
    TokenView,
    WorkerInfo,
    WorkersPage,
)
from pinlater.model.owner_bounds import IdentityUsage, OwnedCount, OwnedKind


class QueuesAnswer(Answer):
    """The names of queues."""

    queues: list[str]


class SettingAnswer(Answer):
    """A setting, and where it comes from: "queue", "file", "default", "file default" or "server"."""

    value: str
    source: str


class QueueSettingsAnswer(Answer):
    """A queue and all its settings, by name."""

    name: str
    version: str
    settings: dict[str, SettingAnswer]


class AllSettingsAnswer(Answer):
    """All queues and their settings."""

    queues: list[QueueSettingsAnswer]


class ShardsAnswer(Answer):
    """Shards, as the server that was asked sees them."""

    shards: list[ShardView]


class ServersAnswer(Answer):
    """The server processes that are alive."""

    servers: list[ServerView]


class WorkersAnswer(Answer):
    """A page of workers by name, host and pid; the sums are over all that match."""

    now_ms: int
    workers: list[WorkerInfo]
    total: int
    slots: int
    busy_slots: int
    stuck_slots: int
    next_cursor: NextCursor | None = None
    missing_shards: MissingShards | None = None


class AuditAnswer(Answer):
    """Changes by operators, the latest first."""

    entries: list[AuditEntry]
    next_cursor: NextCursor | None = None


class ScheduleAnswer(Answer):
    """A schedule. `next_ms`: its next firings; `trouble`: why it does not fire as it should."""

    name: str
    queue: str
    cron: str
    timezone: str
    every_ms: int | None
    priority: int
    attempts_allowed: int
    serialize_key: str
    misfire: MisfireWord
    max_catch_up: int
    jitter_ms: int
    start_ms: int | None
    end_ms: int | None
    paused: bool
    made_by: str
    version: str
    created_at_ms: int
    updated_at_ms: int
    updated_by: str
    last_fired_ms: int | None
    next_ms: list[int]
    trouble: str
    body_size: int
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
    """These actions on the queues that match one of the patterns; `bodies`: to see what is in jobs, too."""

    actions: list[AccessAction]
    queues: list[str]
    bodies: bool


class StoredAnswer(Answer):
    """How many of a kind an identity has made; `used` null: it is not known now. `limit` 0: any number."""

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
    """Who the caller is, and what it may. Without rules it may do all that needs no admin password. `stored`: what it
    has made; nothing where that is not counted.
    """

    identity: str
    roles: list[str]
    grants: list[GrantAnswer]
    has_rules: bool
    stored: list[StoredAnswer]


_MISFIRE_WORDS: tuple[MisfireWord, ...] = ("skip", "run_once", "run_all")
_SHOWN_APART = {"misfire", "body", "body_encoding"}
_OF_SCHEDULE = [each.name for each in fields(Schedule) if each.name not in _SHOWN_APART]
_OF_VIEW = [each.name for each in fields(ScheduleView) if each.name != "schedule"]


def queue_settings(view: QueueView) -> QueueSettingsAnswer:
    settings = {name: SettingAnswer(each.value, each.source) for name, each in view.settings.items()}
    return QueueSettingsAnswer(view.name, view.version, settings)


def workers(page: WorkersPage) -> WorkersAnswer:
    sums = (page.total, page.slots, page.busy_slots, page.stuck_slots)
    return WorkersAnswer(page.now_ms, page.workers, *sums, next_cursor(page.continuation), page.missing_shards or None)


def schedule(view: ScheduleView, *, with_body: bool, encoding: Encoding = "text") -> ScheduleAnswer:
    said = view.schedule
    shown = {name: getattr(said, name) for name in _OF_SCHEDULE} | {name: getattr(view, name) for name in _OF_VIEW}
    answer = ScheduleAnswer(misfire=_MISFIRE_WORDS[said.misfire], **shown)
    if with_body:
        answer.body, answer.body_encoding = to_json(said.body, encoding)
    return answer


def schedules(page: SchedulesPage, *, with_body: bool, encoding: Encoding) -> SchedulesAnswer:
    listed = [schedule(view, with_body=with_body, encoding=encoding) for view in page.schedules]
    return SchedulesAnswer(listed, next_cursor(page.continuation))


def schedule_updated(updated: ScheduleUpdated) -> ScheduleUpdatedAnswer:
    view = schedule(updated.view, with_body=False)
    return ScheduleUpdatedAnswer(view, updated.is_changed, updated.missed_shards)


def access(view: AccessView) -> AccessAnswer:
    grants = [GrantAnswer(list(each.actions), list(each.queues), each.bodies) for each in view.grants]
    return AccessAnswer(view.identity, view.roles, grants, view.has_rules, _stored(view.stored))


def usage(identities: Iterable[IdentityUsage]) -> UsageAnswer:
    return UsageAnswer([IdentityUsageAnswer(each.identity, _stored(each.stored)) for each in identities])


def _stored(counts: Iterable[OwnedCount]) -> list[StoredAnswer]:
    return [StoredAnswer(*each) for each in counts]


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
