"""The routes about queues, the cluster, schedules and access."""

from __future__ import annotations

import re

from pinlater.errors import ContinuationInvalid, QueueNotFound
from pinlater.http import operator_answers as answers
from pinlater.http import operator_forms as forms
from pinlater.http.model_map import answer_of, answers_of
from pinlater.http.problems import NotThere
from pinlater.http.route import Incoming, Route
from pinlater.model import CONTINUATION_START, Changed, ClusterStatus, QueueStatus
from pinlater.model.body_words import BodiesStep, BodyTiers
from pinlater.wire import access_methods, body_methods, methods, operator_methods, schedule_methods

QUEUES, CLUSTER, SCHEDULES, ACCESS = "Queues", "Cluster", "Schedules", "Access"
_AUDIT_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,5})", re.ASCII)


# -- queues ------------------------------------------------------------------------------------------------------------


async def _queue_names(incoming: Incoming) -> answers.QueuesAnswer:
    return answers.QueuesAnswer(sorted(await incoming.api.queue_names(context=incoming.context)))


async def _queue(incoming: Incoming) -> QueueStatus:
    name = incoming.queue
    status = await incoming.api.cluster_status(queues=[name], context=incoming.context)
    for queue in status.queues:
        if queue.name == name:
            return queue
    raise QueueNotFound.of(name[:100])


async def _create_queue(incoming: Incoming) -> None:
    await incoming.api.create_queue(incoming.path["queue"], context=incoming.context)


async def _delete_queue(incoming: Incoming) -> None:
    await incoming.api.delete_queue(incoming.queue, incoming.password, context=incoming.context)


async def _all_settings(incoming: Incoming) -> answers.AllSettingsAnswer:
    views = await incoming.api.get_queues((), context=incoming.context)
    return answers.AllSettingsAnswer(answers_of(answers.QueueSettingsAnswer, views))


async def _settings(incoming: Incoming) -> answers.QueueSettingsAnswer:
    (view,) = await incoming.api.get_queues((incoming.path["target"],), context=incoming.context)
    return answer_of(answers.QueueSettingsAnswer, view)


async def _change_settings(incoming: Incoming) -> Changed:
    form: forms.SettingsForm = incoming.form
    return await incoming.api.update_queue(
        incoming.path["target"],
        incoming.password,
        set=form.set,
        unset=form.unset,
        create=form.create,
        context=incoming.context,
    )


# -- the cluster -------------------------------------------------------------------------------------------------------


async def _status(incoming: Incoming) -> ClusterStatus:
    query: forms.StatusQuery = incoming.query
    queues = [query.queue] if query.queue else None
    return await incoming.api.cluster_status(
        queues=queues, counters_since_ms=query.counters_since_ms, context=incoming.context
    )


async def _servers(incoming: Incoming) -> answers.ServersAnswer:
    status = await incoming.api.cluster_status(queues=[], context=incoming.context)
    return answers.ServersAnswer(status.servers)


async def _shards(incoming: Incoming) -> answers.ShardsAnswer:
    status = await incoming.api.cluster_status(queues=[], context=incoming.context)
    return answers.ShardsAnswer(status.shards)


async def _change_shard(incoming: Incoming) -> Changed:
    form: forms.ShardForm = incoming.form
    return await incoming.api.update_shard(
        incoming.path["shard"],
        incoming.password,
        dequeue_only=form.dequeue_only,
        give_up=form.give_up,
        context=incoming.context,
    )


async def _body_tiers(incoming: Incoming) -> BodyTiers:
    return await incoming.api.get_body_tiers(context=incoming.context)


async def _change_bodies(incoming: Incoming) -> BodiesStep:
    form: forms.BodiesForm = incoming.form
    return await incoming.api.change_bodies(form.change(), context=incoming.context)


async def _workers(incoming: Incoming) -> answers.WorkersAnswer:
    query: forms.WorkersQuery = incoming.query
    page = await incoming.api.get_workers(
        queue=query.queue,
        name=query.name,
        include_running=query.include_running,
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    return answer_of(answers.WorkersAnswer, page)


async def _audit(incoming: Incoming) -> answers.AuditAnswer:
    query: forms.AuditQuery = incoming.query
    before_ms, seen = query.before_ms, 0
    if query.cursor:
        found = _AUDIT_CURSOR.fullmatch(query.cursor)
        if found is None:
            raise ContinuationInvalid("cursor: it is none of those that a page before has given")
        before_ms, seen = int(found[1]) + 1, int(found[2])
    entries = await incoming.api.audit(limit=query.limit + seen, before_ms=before_ms, context=incoming.context)
    return answers.audit_page(entries, query.limit, seen)


# -- schedules ---------------------------------------------------------------------------------------------------------


async def _schedules(incoming: Incoming) -> answers.SchedulesAnswer:
    query: forms.SchedulesQuery = incoming.query
    page = await incoming.api.get_schedules(
        None,
        queue=query.queue,
        made_by=query.made_by,
        include_body=query.include_body,
        next_limit=query.next_limit,
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    shown = [answers.schedule(each, with_body=query.include_body, encoding=query.encoding) for each in page.schedules]
    return answer_of(answers.SchedulesAnswer, page, schedules=shown)


async def _schedule(incoming: Incoming) -> answers.ScheduleAnswer:
    query: forms.ScheduleQuery = incoming.query
    name = incoming.path["schedule"]
    page = await incoming.api.get_schedules(
        [name], include_body=query.include_body, next_limit=query.next_limit, context=incoming.context
    )
    if not page.schedules:
        raise NotThere(f"there is no schedule {name[:100]!r}")
    return answers.schedule(page.schedules[0], with_body=query.include_body, encoding=query.encoding)


async def _change_schedule(incoming: Incoming) -> answers.ScheduleUpdatedAnswer:
    form: forms.ScheduleForm = incoming.form
    updated = await incoming.api.update_schedule(
        form.change(incoming.path["schedule"]),
        incoming.password,
        dry_run=form.dry_run,
        only_if_version=form.only_if_version,
        context=incoming.context,
    )
    return answer_of(answers.ScheduleUpdatedAnswer, updated, schedule=answers.schedule(updated.view))


async def _delete_schedule(incoming: Incoming) -> Changed:
    query: forms.DeleteScheduleQuery = incoming.query
    return await incoming.api.delete_schedule(
        incoming.path["schedule"],
        incoming.password,
        only_if_version=query.only_if_version,
        context=incoming.context,
    )


# -- access ------------------------------------------------------------------------------------------------------------


async def _access(incoming: Incoming) -> answers.AccessAnswer:
    return answer_of(answers.AccessAnswer, await incoming.api.get_access(context=incoming.context))


async def _usage(incoming: Incoming) -> answers.UsageAnswer:
    return answers.UsageAnswer(
        answers_of(answers.IdentityUsageAnswer, await incoming.api.get_usage(context=incoming.context))
    )


async def _tokens(incoming: Incoming) -> answers.TokensAnswer:
    return answers.TokensAnswer(await incoming.api.get_tokens(context=incoming.context))


async def _put_token(incoming: Incoming) -> Changed:
    form: forms.TokenForm = incoming.form
    return await incoming.api.update_token(
        incoming.path["token"],
        form.hash,
        form.roles,
        incoming.password,
        expires_ms=form.expires_ms,
        replace=form.replace,
        context=incoming.context,
    )


async def _delete_token(incoming: Incoming) -> Changed:
    return await incoming.api.delete_token(incoming.path["token"], incoming.password, context=incoming.context)


OPERATOR_ROUTES = (
    Route(
        name="get_queue_names",
        verb="GET",
        path="/v1/queues",
        tag=QUEUES,
        summary="The names of all queues that the caller may read",
        method=methods.GET_QUEUE_NAMES,
        call=_queue_names,
        answer=answers.QueuesAnswer,
    ),
    Route(
        name="get_queue",
        verb="GET",
        path="/v1/queues/{queue}",
        tag=QUEUES,
        summary="A queue in numbers",
        method=operator_methods.GET_CLUSTER_STATUS,
        call=_queue,
        answer=QueueStatus,
    ),
    Route(
        name="create_queue",
        verb="PUT",
        path="/v1/queues/{queue}",
        tag=QUEUES,
        summary="Make a queue, where it is not there",
        method=methods.CREATE_QUEUE,
        call=_create_queue,
    ),
    Route(
        name="delete_queue",
        verb="DELETE",
        path="/v1/queues/{queue}",
        tag=QUEUES,
        summary="Delete a queue and all its jobs",
        method=methods.DELETE_QUEUE,
        call=_delete_queue,
    ),
    Route(
        name="get_all_settings",
        verb="GET",
        path="/v1/settings",
        tag=QUEUES,
        summary="All queues with their settings, and where each comes from",
        method=operator_methods.GET_QUEUES,
        call=_all_settings,
        answer=answers.AllSettingsAnswer,
    ),
    Route(
        name="get_settings",
        verb="GET",
        path="/v1/queues/{target}/settings",
        tag=QUEUES,
        summary='The settings of a queue; of "@defaults": those that were set for all queues',
        method=operator_methods.GET_QUEUES,
        call=_settings,
        answer=answers.QueueSettingsAnswer,
    ),
    Route(
        name="change_settings",
        verb="PATCH",
        path="/v1/queues/{target}/settings",
        tag=QUEUES,
        summary='Change settings of a queue, or of "@defaults"',
        method=operator_methods.UPDATE_QUEUE,
        call=_change_settings,
        form=forms.SettingsForm,
        answer=Changed,
    ),
    Route(
        name="get_status",
        verb="GET",
        path="/v1/status",
        tag=CLUSTER,
        summary="Servers, shards and queues in numbers",
        method=operator_methods.GET_CLUSTER_STATUS,
        call=_status,
        query=forms.StatusQuery,
        answer=ClusterStatus,
    ),
    Route(
        name="get_servers",
        verb="GET",
        path="/v1/servers",
        tag=CLUSTER,
        summary="The servers that are alive",
        method=operator_methods.GET_CLUSTER_STATUS,
        call=_servers,
        answer=answers.ServersAnswer,
    ),
    Route(
        name="get_shards",
        verb="GET",
        path="/v1/shards",
        tag=CLUSTER,
        summary="The shards, and how they are",
        method=operator_methods.GET_CLUSTER_STATUS,
        call=_shards,
        answer=answers.ShardsAnswer,
    ),
    Route(
        name="change_shard",
        verb="PATCH",
        path="/v1/shards/{shard}",
        tag=CLUSTER,
        summary="Whether a shard takes new jobs",
        method=operator_methods.UPDATE_SHARD,
        call=_change_shard,
        form=forms.ShardForm,
        answer=Changed,
    ),
    Route(
        name="get_body_tiers",
        verb="GET",
        path="/v1/bodies",
        tag=CLUSTER,
        summary="The tiers of bodies, and the rules",
        method=body_methods.GET_BODY_TIERS,
        call=_body_tiers,
        answer=BodyTiers,
    ),
    Route(
        name="change_bodies",
        verb="POST",
        path="/v1/bodies/changes",
        tag=CLUSTER,
        summary="One step of a sweep, a check or a move of bodies",
        method=body_methods.CHANGE_BODIES,
        call=_change_bodies,
        form=forms.BodiesForm,
        answer=BodiesStep,
    ),
    Route(
        name="get_workers",
        verb="GET",
        path="/v1/workers",
        tag=CLUSTER,
        summary="A page of the workers that say who they are",
        method=operator_methods.GET_WORKERS,
        call=_workers,
        query=forms.WorkersQuery,
        answer=answers.WorkersAnswer,
    ),
    Route(
        name="get_audit",
        verb="GET",
        path="/v1/audit",
        tag=CLUSTER,
        summary="A page of the changes by operators, the latest first",
        method=operator_methods.GET_AUDIT,
        call=_audit,
        query=forms.AuditQuery,
        answer=answers.AuditAnswer,
    ),
    Route(
        name="get_schedules",
        verb="GET",
        path="/v1/schedules",
        tag=SCHEDULES,
        summary="A page of the schedules, by name",
        method=schedule_methods.GET_SCHEDULES,
        call=_schedules,
        query=forms.SchedulesQuery,
        answer=answers.SchedulesAnswer,
    ),
    Route(
        name="get_schedule",
        verb="GET",
        path="/v1/schedules/{schedule}",
        tag=SCHEDULES,
        summary="A schedule",
        method=schedule_methods.GET_SCHEDULES,
        call=_schedule,
        query=forms.ScheduleQuery,
        answer=answers.ScheduleAnswer,
    ),
    Route(
        name="change_schedule",
        verb="PATCH",
        path="/v1/schedules/{schedule}",
        tag=SCHEDULES,
        summary="Make or change a schedule",
        method=schedule_methods.UPDATE_SCHEDULE,
        call=_change_schedule,
        form=forms.ScheduleForm,
        answer=answers.ScheduleUpdatedAnswer,
    ),
    Route(
        name="delete_schedule",
        verb="DELETE",
        path="/v1/schedules/{schedule}",
        tag=SCHEDULES,
        summary='Delete a schedule; one that is not there has the version ""',
        method=schedule_methods.DELETE_SCHEDULE,
        call=_delete_schedule,
        query=forms.DeleteScheduleQuery,
        answer=Changed,
    ),
    Route(
        name="get_access",
        verb="GET",
        path="/v1/access",
        tag=ACCESS,
        summary="Who the caller is, and what it may",
        method=access_methods.GET_ACCESS,
        call=_access,
        answer=answers.AccessAnswer,
    ),
    Route(
        name="get_usage",
        verb="GET",
        path="/v1/access/usage",
        tag=ACCESS,
        summary="What identities have made, and may have",
        method=access_methods.GET_USAGE,
        call=_usage,
        answer=answers.UsageAnswer,
    ),
    Route(
        name="get_tokens",
        verb="GET",
        path="/v1/tokens",
        tag=ACCESS,
        summary="All tokens, by name",
        method=access_methods.GET_TOKENS,
        call=_tokens,
        answer=answers.TokensAnswer,
    ),
    Route(
        name="put_token",
        verb="PUT",
        path="/v1/tokens/{token}",
        tag=ACCESS,
        summary="Make a token known",
        method=access_methods.UPDATE_TOKEN,
        call=_put_token,
        form=forms.TokenForm,
        answer=Changed,
    ),
    Route(
        name="delete_token",
        verb="DELETE",
        path="/v1/tokens/{token}",
        tag=ACCESS,
        summary='Revoke a token; one that is not there has the version ""',
        method=access_methods.DELETE_TOKEN,
        call=_delete_token,
        answer=Changed,
    ),
)
