"""Tools by which agents change a cluster, with `pinlater mcp --allow-changes`. Those that would change many jobs say
first which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from pinlater.cli.agent_tools import (
    AgentCaller,
    Descriptor,
    Filter,
    Limit,
    QueueName,
    ToolForm,
    agent_tool,
    checked_descriptors,
)
from pinlater.cli.bulk_changes import Extent, carried_out
from pinlater.cli.filtered_jobs import FilteredQueues, filter_line
from pinlater.cli.job_states import words_of
from pinlater.cli.job_text import job_json
from pinlater.cli.output import Row, json_object
from pinlater.cli.times import duration_option, moment_option
from pinlater.clock import SystemClock
from pinlater.errors import RequestInvalid
from pinlater.job_body import call_body
from pinlater.job_filters.bulk_order import ACTIONS, RunOrder
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import ExtendedJob
from pinlater.model.job_selection import FoundJobsChange
from pinlater.wire.operator_methods import UPDATE_QUEUE


class NewJobForm(ToolForm):
    queue: QueueName
    job: Annotated[str, Meta(description="The type of job, as workers of the framework know it.")] = ""
    args: Annotated[list[Any] | dict[str, Any] | None, Meta(description="Its arguments, in order or by name.")] = None
    body: Annotated[str | None, Meta(description="In place of a type: the body, as it is.")] = None
    priority: Annotated[int, Meta(ge=1, le=127, description="1 is the highest.")] = 1
    attempts: Annotated[int, Meta(ge=1, description="How often it may be tried.")] = 2
    run_after: Annotated[str, Meta(description="Not before this time: ISO, or +10m from now.")] = ""
    dedupe_key: Annotated[str, Meta(description="While a job of this name lives in the queue, no second is made.")] = ""
    tags: Annotated[list[str], Meta(description="Texts by which it is found.")] = []
    group: Annotated[str, Meta(description="Its group, such as a tenant: groups have fair shares of the queue.")] = ""


@agent_tool("enqueue", NewJobForm, changes=True)
def enqueue_for_agent(caller: AgentCaller, form: NewJobForm) -> Row:
    """Changes a queue: stores one job in it, and answers its descriptor. Name a type of job with its arguments, or a
    body.
    """
    if (form.body is None) == (not form.job) or (form.args is not None and not form.job):
        raise RequestInvalid("give a job with its args, or a body")
    body = call_body(form.job, form.args or []) if form.body is None else form.body.encode()
    job = ExtendedJob(
        body,
        form.priority,
        moment_option(form.run_after) if form.run_after else None,
        form.attempts,
        dedupe_key=form.dedupe_key,
        tags=form.tags,
        group=form.group,
    )
    (descriptor,) = caller.client.enqueue(form.queue, [job], resend=True)
    return {"descriptor": descriptor}


class ChangeForm(ToolForm, kw_only=True):
    filter: Filter = ""
    descriptors: Annotated[
        list[Descriptor], Meta(max_length=1_000, description="These jobs, in place of a filter.")
    ] = []
    limit: Limit = 100
    dry_run: Annotated[
        bool, Meta(description="Change nothing, and return how many jobs match, with up to ten. Try this first.")
    ] = True


class AttemptsForm(ChangeForm, kw_only=True):
    attempts: Annotated[int, Meta(ge=1, description="How often they may be tried again.")] | None = None


class AgentCancelForm(ChangeForm, kw_only=True):
    running: Annotated[bool, Meta(description="Also ask workers to stop what is running.")] = False


@agent_tool("retry_jobs", AttemptsForm, changes=True)
def retry_for_agent(caller: AgentCaller, form: AttemptsForm) -> Row:
    """Changes jobs that failed: they go back to their queues and run again, and their dead letters go. Of cancelled
    ones too where the filter says state:cancelled. Changes nothing unless `dry_run` is false.
    """
    return _changed(caller, "retry", form, attempts=form.attempts or 1)


@agent_tool("cancel_jobs", AgentCancelForm, changes=True)
def cancel_for_agent(caller: AgentCaller, form: AgentCancelForm) -> Row:
    """Changes jobs that have not begun: they are removed, and nothing brings them back. With `running`, workers are
    asked to stop the others. Changes nothing unless `dry_run` is false.
    """
    return _changed(caller, "cancel", form, stops_running=form.running)


@agent_tool("replay_letters", AttemptsForm, changes=True)
def replay_for_agent(caller: AgentCaller, form: AttemptsForm) -> Row:
    """Changes dead letters: they leave their dead-letter queue, which the filter names, and go back to the queues that
    they came from. Changes nothing unless `dry_run` is false.
    """
    return _changed(caller, "replay", form, attempts=form.attempts)


def _changed(caller: AgentCaller, word: str, form: ChangeForm, **more: Any) -> Row:
    if bool(form.filter) == bool(form.descriptors):
        raise RequestInvalid("give a filter or descriptors")
    line = filter_line(form.filter) if form.filter else FilterLine(())
    order = RunOrder(ACTIONS[word], line, tuple(checked_descriptors(form.descriptors)), note="by an agent", **more)
    if why_not := order.why_not():
        raise RequestInvalid(why_not)
    changes = _slices_of(caller, order)
    extent = Extent(form.limit, form.dry_run, "json")
    found = carried_out(caller.client, order.action.action, changes, extent)
    what = "of those named" if form.descriptors else f"that {line.text()} finds"
    return {
        "changed": 0 if form.dry_run else found.jobs,
        "meant": found.jobs,
        "what": f"{order.action.word} {words_of(order.phases())} jobs {what}",
        "is_all": found.is_all,
        "dry_run": form.dry_run,
        "samples": [job_json(each) for each in found.samples],
        "left_alone": found.refusals,
        "missing_shards": sorted(found.missing),
    }


def _slices_of(caller: AgentCaller, order: RunOrder) -> Sequence[FoundJobsChange]:
    """One for each queue that is meant."""
    if order.descriptors:
        queues = sorted({each.partition(":")[0] for each in order.descriptors})
        changes = [order.change(queue, 0, ()) for queue in queues]
    else:
        meant = FilteredQueues(caller.client, order.line, order.phases())
        changes = [order.change(each, meant.now_ms, meant.priorities_of(each)) for each in meant.names]
    return [each for each in changes if each is not None]


class PauseForm(ToolForm, rename={"for_": "for"}):
    queue: QueueName
    why: Annotated[str, Meta(min_length=1, max_length=1_000, description="The reason, which others see.")]
    for_: Annotated[str, Meta(description="It ends by itself after so long: 30m, 2h.")] = ""


@agent_tool("pause_queue", PauseForm, changes=True)
def pause_for_agent(caller: AgentCaller, form: PauseForm) -> Row:
    """Changes a queue: no worker gets jobs of it until it is resumed, or `for` is over. Jobs are enqueued as before,
    and those that run go on.
    """
    values = {"paused": "true", "paused_why": form.why}
    if form.for_:
        values["paused_until"] = str(SystemClock().now_ms() + duration_option(form.for_))
    return _set(caller, form.queue, values)


class AgentResumeForm(ToolForm):
    queue: QueueName


@agent_tool("resume_queue", AgentResumeForm, changes=True)
def resume_for_agent(caller: AgentCaller, form: AgentResumeForm) -> Row:
    """Changes a queue: workers get its jobs again, whoever paused it."""
    return _set(caller, form.queue, {"paused": "false"})


def _set(caller: AgentCaller, queue: str, values: dict[str, str]) -> Row:
    changed = caller.client.update_queue(queue, caller.password(UPDATE_QUEUE, queue), set=values)
    (view,) = caller.client.get_queues([queue])
    settings = json_object(view)["settings"]
    return {
        "queue": queue,
        "settings": {key: value for key, value in settings.items() if key.startswith("paused")},
        "missed_shards": list(changed.missed_shards),
    }
