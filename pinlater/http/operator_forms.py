"""The forms of requests about queues, schedules, shards and tokens, as JSON, and of what stands in addresses."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from pinlater.http.encodings import Encoding
from pinlater.http.forms import (
    CalledForm,
    Count,
    Duration,
    Form,
    Group,
    Key,
    Pattern,
    Priority,
    StateWord,
    Tags,
    Time,
    Wait,
    Wanted,
)
from pinlater.model import MAX_TIME_MS
from pinlater.model.callers import MAX_ROLES

Cursor = Annotated[str, Meta(description="Where the page begins: `next_cursor` of the page before.")]
Limit = Annotated[int, Meta(ge=1, le=10_000)]
PageLimit = Annotated[int, Meta(ge=1, le=1_000)]
MisfireWord = Literal["skip", "run_once", "run_all"]
BodiesWord = Literal["sweep", "verify", "move"]
Version = Annotated[str, Meta(description='Only where it is of this version; "": only where it is not there.')]


# -- in addresses ------------------------------------------------------------------------------------------------------


class LookupQuery(Form):
    include_body: bool = False
    include_result: bool = False
    include_trail: Annotated[bool, Meta(description="The attempts of the job, and its log lines.")] = False
    wait_ms: Wait = 0
    encoding: Wanted = "text"


class FilterQuery(Form):
    state: StateWord
    priority: Priority | None = None
    future: Annotated[bool, Meta(description="Pending jobs that may run only later.")] = False
    body_regex: (
        Annotated[Pattern, Meta(description="Only jobs whose body holds a match of this RE2 pattern.")] | None
    ) = None


class JobPageQuery(FilterQuery):
    limit: Limit = 100
    cursor: Cursor = ""


class CountQuery(FilterQuery):
    allow_partial: Annotated[bool, Meta(description="Count also where some shards do not answer.")] = False


class StatusQuery(Form):
    queue: Annotated[str, Meta(description="The numbers of this queue only.")] = ""
    counters_since_ms: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=MAX_TIME_MS,
                description="Also what server processes have counted of queues that changed since then; 0: of all.",
            ),
        ]
        | None
    ) = None


class WorkersQuery(Form):
    queue: str = ""
    name: str = ""
    include_running: bool = False
    limit: PageLimit = 100
    cursor: Cursor = ""


class AlarmsQuery(Form):
    ended: Annotated[bool, Meta(description="Those that are over, the latest first.")] = False
    limit: Limit = 200


class MuteForm(Form):
    """Mute the alarms of a condition, or of one subject of it, for a time; 0 ends that."""

    for_ms: Annotated[int, Meta(ge=0)]
    reason: str = ""
    subject: str = ""


class CommandWorkersForm(Form):
    """A command to workers: those of these ids, or HOST:PID; all of a host, of a name or of both; or all. `quiet`:
    take no more jobs. `resume`: take jobs again. `stop`: take none, and end when their jobs have ended.
    """

    command: Literal["quiet", "resume", "stop"]
    workers: Annotated[list[str], Meta(max_length=1_000)] = []
    host: str = ""
    name: str = ""
    all_workers: bool = False


class AuditQuery(Form):
    limit: Limit = 100
    before_ms: Time | None = None
    cursor: Cursor = ""


class SchedulesQuery(Form):
    queue: str = ""
    made_by: str = ""
    include_body: bool = False
    next_limit: Annotated[int, Meta(ge=0, le=100, description="How many of the next firings.")] = 1
    limit: PageLimit = 100
    cursor: Cursor = ""
    encoding: Wanted = "text"


class ScheduleQuery(Form):
    include_body: bool = False
    next_limit: Annotated[int, Meta(ge=0, le=100, description="How many of the next firings.")] = 1
    encoding: Wanted = "text"


class DeleteScheduleQuery(Form):
    only_if_version: Version | None = None


class ClearGroupsQuery(Form):
    limit: PageLimit = 500
    cursor: Cursor = ""
    dry_run: Annotated[bool, Meta(description="Only count them.")] = False


# -- changes -----------------------------------------------------------------------------------------------------------


class SettingsForm(Form):
    """Settings of a queue to change; those of `unset` come from elsewhere again. All or nothing."""

    set: dict[str, str] = {}
    unset: list[str] = []
    create: Annotated[bool, Meta(description="Make the queue where it is not there.")] = False


class GroupsQuery(Form):
    limit: PageLimit = 100
    cursor: Cursor = ""


class GroupForm(Form):
    """Settings of a group to change, or of those that fit a pattern; those of `unset` are as of others again."""

    set: dict[str, str] = {}
    unset: list[str] = []


class ShardForm(Form):
    """Whether a shard takes new jobs. `give_up`: it takes none, and keys that live there count as lost."""

    dequeue_only: bool
    give_up: bool = False


class BodiesForm(Form):
    """One step of a run over bodies; the answer's `continuation` begins the next one, "-1" is the end."""

    action: BodiesWord
    queue: Annotated[str, Meta(description="Not for a sweep. Without one: all.")] = ""
    tier: str = ""
    dry_run: bool = False
    store: Annotated[str, Meta(description="For a sweep: the store id of objects that belong to no shard here.")] = ""
    continuation: str = "0"
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 500


class TokenForm(Form):
    """A token, by the SHA-256 of its text. The program that makes it keeps the text: no server ever sees it stored."""

    hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="Of the whole token, in hexadecimal.")]
    roles: Annotated[list[str], Meta(min_length=1, max_length=MAX_ROLES)]
    expires_ms: Time | None = None
    replace: Annotated[bool, Meta(description="Revoke the one of this name that is there.")] = False


class ScheduleForm(CalledForm):
    """A schedule to make or change; what is left out stays as it is, or as a new schedule has it."""

    queue: str | None = None
    body_encoding: Encoding = "text"
    cron: str | None = None
    timezone: str | None = None
    every_ms: Duration | None = None
    priority: Priority | None = None
    attempts_allowed: Count | None = None
    serialize_key: Key | None = None
    tags: Tags | None = None
    group: Group | None = None
    misfire: MisfireWord | None = None
    max_catch_up: Count | None = None
    jitter_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] | None = None
    start_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="0: none.")] | None = None
    end_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="0: none.")] | None = None
    paused: bool | None = None
    made_by: str | None = None
    dry_run: bool = False
    only_if_version: Version | None = None
