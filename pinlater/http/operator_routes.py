"""The routes about queues, the cluster, schedules and access."""

from __future__ import annotations

import re
from typing import Any

from pinlater.api import Api
from pinlater.errors import ContinuationInvalid, QueueNotFound
from pinlater.http import operator_answers as answers
from pinlater.http import operator_forms as forms
from pinlater.http.model_map import answer_of, answers_of, request_of
from pinlater.http.problems import NotThere
from pinlater.http.route import Incoming, RouteTable
from pinlater.model import Changed, ClusterStatus, QueueStatus, ScheduleChange
from pinlater.model.body_words import BodiesChange, BodiesStep, BodyTiers
from pinlater.wire import access_methods, body_methods, methods, operator_methods, schedule_methods

QUEUES, CLUSTER, SCHEDULES, ACCESS = "Queues", "Cluster", "Schedules", "Access"
OPERATOR_ROUTES = RouteTable()
_AUDIT_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,5})", re.ASCII)


# -- queues ------------------------------------------------------------------------------------------------------------


@OPERATOR_ROUTES.add(QUEUES, "GET /v1/queues", methods.GET_QUEUE_NAMES)
async def _get_queue_names(incoming: Incoming) -> answers.QueuesAnswer:
    """The names of all queues that the caller may read."""
    return answers.QueuesAnswer(sorted(await incoming.api.queue_names(context=incoming.context)))


@OPERATOR_ROUTES.add(QUEUES, "GET /v1/queues/{queue}", operator_methods.GET_CLUSTER_STATUS)
async def _get_queue(incoming: Incoming) -> QueueStatus:
    """A queue in numbers."""
    name = incoming.queue
    status = await incoming.api.cluster_status(queues=[name], context=incoming.context)
    for queue in status.queues:
        if queue.name == name:
            return queue
    raise QueueNotFound.of(name[:100])


@OPERATOR_ROUTES.add(QUEUES, "PUT /v1/queues/{queue}", methods.CREATE_QUEUE)
async def _create_queue(incoming: Incoming) -> None:
    """Make a queue, where it is not there."""
    await incoming.api.create_queue(incoming.path["queue"], context=incoming.context)


@OPERATOR_ROUTES.add(QUEUES, "DELETE /v1/queues/{queue}", methods.DELETE_QUEUE)
async def _delete_queue(incoming: Incoming) -> None:
    """Delete a queue and all its jobs."""
    await incoming.api.delete_queue(incoming.queue, incoming.password, context=incoming.context)


@OPERATOR_ROUTES.add(QUEUES, "GET /v1/settings", operator_methods.GET_QUEUES)
async def _get_all_settings(incoming: Incoming) -> answers.AllSettingsAnswer:
    """All queues with their settings, and where each comes from."""
    views = await incoming.api.get_queues((), context=incoming.context)
    return answers.AllSettingsAnswer(answers_of(answers.QueueSettingsAnswer, views))


@OPERATOR_ROUTES.add(QUEUES, "GET /v1/queues/{target}/settings", operator_methods.GET_QUEUES)
async def _get_settings(incoming: Incoming) -> answers.QueueSettingsAnswer:
    """The settings of a queue; of "@defaults": those that were set for all queues."""
    (view,) = await incoming.api.get_queues((incoming.path["target"],), context=incoming.context)
    return answer_of(answers.QueueSettingsAnswer, view)


@OPERATOR_ROUTES.add(QUEUES, "PATCH /v1/queues/{target}/settings", operator_methods.UPDATE_QUEUE)
async def _change_settings(incoming: Incoming, form: forms.SettingsForm) -> Changed:
    """Change settings of a queue, or of "@defaults"."""
    return await incoming.call(Api.update_queue, form, incoming.path["target"], incoming.password)


@OPERATOR_ROUTES.add(QUEUES, "GET /v1/queues/{queue}/groups", operator_methods.GET_GROUPS)
async def _get_groups(incoming: Incoming, query: forms.GroupsQuery) -> answers.GroupsAnswer:
    """A page of the groups of a queue that have ready jobs or settings of their own."""
    return answer_of(answers.GroupsAnswer, await incoming.call(Api.get_groups, query, incoming.queue))


@OPERATOR_ROUTES.add(QUEUES, "GET /v1/queues/{queue}/groups/{group}", operator_methods.GET_GROUPS)
async def _get_group(incoming: Incoming) -> answers.GroupAnswer:
    """One group of a queue, whatever it has."""
    names = (incoming.path["group"],)
    page = await incoming.api.get_groups(incoming.queue, names, context=incoming.context)
    return answer_of(answers.GroupAnswer, page.groups[0])


@OPERATOR_ROUTES.add(QUEUES, "PATCH /v1/queues/{queue}/groups/{group}", operator_methods.UPDATE_GROUP)
async def _change_group(incoming: Incoming, form: forms.GroupForm) -> Changed:
    """Change settings of a group, or of those that fit a pattern."""
    group = incoming.path["group"]
    return await incoming.call(Api.update_group, form, incoming.queue, group, incoming.password)


@OPERATOR_ROUTES.add(QUEUES, "DELETE /v1/queues/{queue}/groups", operator_methods.CLEAR_GROUPS)
async def _clear_groups(incoming: Incoming, query: forms.ClearGroupsQuery) -> answers.GroupsClearedAnswer:
    """Take the groups off the jobs of a queue: one step."""
    cleared = await incoming.call(Api.clear_groups, query, incoming.queue, incoming.password)
    return answer_of(answers.GroupsClearedAnswer, cleared)


# -- the cluster -------------------------------------------------------------------------------------------------------


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/status", operator_methods.GET_CLUSTER_STATUS)
async def _get_status(incoming: Incoming, query: forms.StatusQuery) -> ClusterStatus:
    """Servers, shards and queues in numbers."""
    queues = [query.queue] if query.queue else None
    return await incoming.call(Api.cluster_status, query, queues=queues)


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/servers", operator_methods.GET_CLUSTER_STATUS)
async def _get_servers(incoming: Incoming) -> answers.ServersAnswer:
    """The servers that are alive."""
    status = await incoming.api.cluster_status(queues=[], context=incoming.context)
    return answers.ServersAnswer(status.servers)


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/shards", operator_methods.GET_CLUSTER_STATUS)
async def _get_shards(incoming: Incoming) -> answers.ShardsAnswer:
    """The shards, and how they are."""
    status = await incoming.api.cluster_status(queues=[], context=incoming.context)
    return answers.ShardsAnswer(status.shards)


@OPERATOR_ROUTES.add(CLUSTER, "PATCH /v1/shards/{shard}", operator_methods.UPDATE_SHARD)
async def _change_shard(incoming: Incoming, form: forms.ShardForm) -> Changed:
    """Whether a shard takes new jobs."""
    return await incoming.call(Api.update_shard, form, incoming.path["shard"], incoming.password)


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/bodies", body_methods.GET_BODY_TIERS)
async def _get_body_tiers(incoming: Incoming) -> BodyTiers:
    """The tiers of bodies, and the rules."""
    return await incoming.api.get_body_tiers(context=incoming.context)


@OPERATOR_ROUTES.add(CLUSTER, "POST /v1/bodies/changes", body_methods.CHANGE_BODIES)
async def _change_bodies(incoming: Incoming, form: forms.BodiesForm) -> BodiesStep:
    """One step of a sweep, a check or a move of bodies."""
    return await incoming.api.change_bodies(request_of(BodiesChange, form), context=incoming.context)


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/workers", operator_methods.GET_WORKERS)
async def _get_workers(incoming: Incoming, query: forms.WorkersQuery) -> answers.WorkersAnswer:
    """A page of the workers that say who they are."""
    return answer_of(answers.WorkersAnswer, await incoming.call(Api.get_workers, query))


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/alarms", operator_methods.GET_ALARMS)
async def _get_alarms(incoming: Incoming, query: forms.AlarmsQuery) -> answers.AlarmsAnswer:
    """What is broken, since when, why, and what to do; the worst first."""
    return answer_of(answers.AlarmsAnswer, await incoming.call(Api.get_alarms, query))


@OPERATOR_ROUTES.add(CLUSTER, "PUT /v1/alarms/{alarm}/mute", operator_methods.MUTE_ALARM)
async def _mute_alarm(incoming: Incoming, form: forms.MuteForm) -> None:
    """Show the alarms of a condition as known for a while."""
    await incoming.api.mute_alarm(
        incoming.path["alarm"],
        form.for_ms,
        form.reason,
        incoming.password,
        subject=form.subject,
        context=incoming.context,
    )


@OPERATOR_ROUTES.add(
    CLUSTER,
    "POST /v1/workers/commands",
    operator_methods.COMMAND_WORKERS,
    example={"command": "quiet", "host": "web-1"},
)
async def _command_workers(incoming: Incoming, form: forms.CommandWorkersForm) -> answers.WorkersCommandedAnswer:
    """Let workers take no more jobs, take jobs again, or end when their jobs have."""
    return answer_of(answers.WorkersCommandedAnswer, await incoming.call(Api.command_workers, form))


@OPERATOR_ROUTES.add(CLUSTER, "GET /v1/audit", operator_methods.GET_AUDIT)
async def _get_audit(incoming: Incoming, query: forms.AuditQuery) -> answers.AuditAnswer:
    """A page of the changes by operators, the latest first."""
    before_ms, seen = query.before_ms, 0
    if query.cursor:
        found = _AUDIT_CURSOR.fullmatch(query.cursor)
        if found is None:
            raise ContinuationInvalid("cursor: it is none of those that a page before has given")
        before_ms, seen = int(found[1]) + 1, int(found[2])
    entries = await incoming.api.audit(limit=query.limit + seen, before_ms=before_ms, context=incoming.context)
    return answers.audit_page(entries, query.limit, seen)


# -- schedules ---------------------------------------------------------------------------------------------------------


@OPERATOR_ROUTES.add(SCHEDULES, "GET /v1/schedules", schedule_methods.GET_SCHEDULES)
async def _get_schedules(incoming: Incoming, query: forms.SchedulesQuery) -> answers.SchedulesAnswer:
    """A page of the schedules, by name."""
    page = await incoming.call(Api.get_schedules, query, None)
    shown = [answers.schedule(each, with_body=query.include_body, encoding=query.encoding) for each in page.schedules]
    return answer_of(answers.SchedulesAnswer, page, schedules=shown)


@OPERATOR_ROUTES.add(SCHEDULES, "GET /v1/schedules/{schedule}", schedule_methods.GET_SCHEDULES)
async def _get_schedule(incoming: Incoming, query: forms.ScheduleQuery) -> answers.ScheduleAnswer:
    """A schedule."""
    name = incoming.path["schedule"]
    page = await incoming.call(Api.get_schedules, query, [name])
    if not page.schedules:
        raise NotThere(f"there is no schedule {name[:100]!r}")
    return answers.schedule(page.schedules[0], with_body=query.include_body, encoding=query.encoding)


@OPERATOR_ROUTES.add(SCHEDULES, "PATCH /v1/schedules/{schedule}", schedule_methods.UPDATE_SCHEDULE)
async def _change_schedule(incoming: Incoming, form: forms.ScheduleForm) -> answers.ScheduleUpdatedAnswer:
    """Make or change a schedule."""
    body = form.body_of_call()
    given: dict[str, Any] = {} if body is None else {"body": body}
    change = request_of(ScheduleChange, form, name=incoming.path["schedule"], **given)
    updated = await incoming.call(Api.update_schedule, form, change, incoming.password)
    return answer_of(answers.ScheduleUpdatedAnswer, updated, schedule=answers.schedule(updated.view))


@OPERATOR_ROUTES.add(SCHEDULES, "DELETE /v1/schedules/{schedule}", schedule_methods.DELETE_SCHEDULE)
async def _delete_schedule(incoming: Incoming, query: forms.DeleteScheduleQuery) -> Changed:
    """Delete a schedule; one that is not there has the version ""."""
    return await incoming.call(Api.delete_schedule, query, incoming.path["schedule"], incoming.password)


# -- access ------------------------------------------------------------------------------------------------------------


@OPERATOR_ROUTES.add(ACCESS, "GET /v1/access", access_methods.GET_ACCESS)
async def _get_access(incoming: Incoming) -> answers.AccessAnswer:
    """Who the caller is, and what it may."""
    return answer_of(answers.AccessAnswer, await incoming.api.get_access(context=incoming.context))


@OPERATOR_ROUTES.add(ACCESS, "GET /v1/access/usage", access_methods.GET_USAGE)
async def _get_usage(incoming: Incoming) -> answers.UsageAnswer:
    """What identities have made, and may have."""
    return answers.UsageAnswer(
        answers_of(answers.IdentityUsageAnswer, await incoming.api.get_usage(context=incoming.context))
    )


@OPERATOR_ROUTES.add(ACCESS, "GET /v1/tokens", access_methods.GET_TOKENS)
async def _get_tokens(incoming: Incoming) -> answers.TokensAnswer:
    """All tokens, by name."""
    return answers.TokensAnswer(await incoming.api.get_tokens(context=incoming.context))


@OPERATOR_ROUTES.add(ACCESS, "PUT /v1/tokens/{token}", access_methods.UPDATE_TOKEN)
async def _put_token(incoming: Incoming, form: forms.TokenForm) -> Changed:
    """Make a token known."""
    return await incoming.call(Api.update_token, form, incoming.path["token"], password=incoming.password)


@OPERATOR_ROUTES.add(ACCESS, "DELETE /v1/tokens/{token}", access_methods.DELETE_TOKEN)
async def _delete_token(incoming: Incoming) -> Changed:
    """Revoke a token; one that is not there has the version ""."""
    return await incoming.api.delete_token(incoming.path["token"], incoming.password, context=incoming.context)
