"""Tools by which agents inspect a cluster through `pinlater mcp`: they change nothing.

The docstring of a tool is what an agent reads of it. Its form is what it takes; what it answers has the JSON of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeVar

import click
import msgspec
from msgspec import Meta, Struct

from pinlater.cli.admin import found_password, is_granted
from pinlater.cli.alarm_commands import calm_text, judged_text
from pinlater.cli.connection import readable_jobs, readable_status
from pinlater.cli.filtered_jobs import filter_line, found_by_filter
from pinlater.cli.job_text import job_json
from pinlater.cli.output import Row, json_object
from pinlater.cli.worker import read_pages
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.dashboard.error_kinds import grouped, of_failed
from pinlater.dashboard.page_rights import Rights
from pinlater.errors import MethodUnknown, RequestInvalid
from pinlater.model import CONTINUATION_END, JobState, is_descriptor
from pinlater.model.flow_words import FlowState
from pinlater.model.job_selection import JobPhase
from pinlater.password_search import first_elsewhere
from pinlater.wire.method import Method

_PAGE = 1_000


class AgentCaller:
    """Who asks: the client of the command, with its rights."""

    def __init__(self, client: Client, command: click.Context) -> None:
        self.client = client
        self._command = command

    def in_command(self) -> click.Context:
        """For `with`, in the thread of a call: errors then say as in any command where its token and password came
        from.
        """
        return click.Context(self._command.command, parent=self._command)

    def password(self, method: Method[Any], queue: str) -> str:
        """The admin password where the caller needs one, from the variables or the data folder: nobody can be asked.
        PasswordNotFound.
        """
        if is_granted(self.client, method, queue):
            return ""
        return found_password(first_elsewhere(self.client), may_ask=False)


class ToolForm(Struct, forbid_unknown_fields=True):
    """What a tool takes."""


FormT = TypeVar("FormT", bound=ToolForm)


class AgentTool(NamedTuple):
    """A tool. `changes`: it is there only where changes are allowed."""

    name: str
    about: str
    form: type[ToolForm]
    run: Callable[[AgentCaller, Any], Row]
    changes: bool

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its form."""
        _, parts = msgspec.json.schema_components([self.form])
        return {key: value for key, value in parts[self.form.__name__].items() if key not in ("title", "description")}

    def answer(self, caller: AgentCaller, arguments: dict[str, Any]) -> Row:
        """ValidationError: the arguments are none of its form. The errors of Client; ClickException, ValueError."""
        return self.run(caller, msgspec.convert(arguments, self.form))


TOOLS: dict[str, AgentTool] = {}


def agent_tool(
    name: str, form: type[FormT], *, changes: bool = False
) -> Callable[[Callable[[AgentCaller, FormT], Row]], Callable[[AgentCaller, FormT], Row]]:
    """Puts a function into `TOOLS`."""

    def kept(run: Callable[[AgentCaller, FormT], Row]) -> Callable[[AgentCaller, FormT], Row]:
        about = " ".join((run.__doc__ or "").split())
        TOOLS[name] = AgentTool(name, about, form, run, changes)
        return run

    return kept


Filter = Annotated[
    str,
    Meta(
        description="Jobs in one line, as on the dashboard: conditions with spaces between, all of which have to hold. "
        "queue:mail-* state:failed,ready error:*Timeout* type:shop.send tag:tenant:7 group:acme age:>1h "
        "ended:<2d attempts:>1 body:TEXT; a - in front negates. States: " + ", ".join(phase.word for phase in JobPhase)
    ),
]
Limit = Annotated[int, Meta(ge=1, le=_PAGE, description="The most entries to return.")]
QueueName = Annotated[str, Meta(description="The name of a queue.")]
Descriptor = Annotated[str, Meta(description="The id of a job, such as mail:s1:p1:1790000000000000.")]


class AlarmsForm(ToolForm):
    ended: Annotated[bool, Meta(description="Those that are over, the latest first.")] = False
    limit: Limit = 50


@agent_tool("alarms", AlarmsForm)
def tell_alarms(caller: AgentCaller, form: AlarmsForm) -> Row:
    """What is broken in the cluster, the worst first: since when, why, how bad it is, and what to do, with the command
    that does it. Begin here.
    """
    page = caller.client.get_alarms(ended=form.ended, limit=form.limit)
    note = judged_text(page) or ("" if form.ended else calm_text(page))
    return {"alarms": [json_object(each) for each in page.alarms], "more": page.more, "note": note}


class QueuesForm(ToolForm):
    names: Annotated[list[str], Meta(description="Only these queues. Without any: all.")] = []
    settings: Annotated[bool, Meta(description="The settings of each too, and where each value comes from.")] = False


@agent_tool("queues", QueuesForm)
def tell_queues(caller: AgentCaller, form: QueuesForm) -> Row:
    """Queues in numbers: for each priority how many jobs are in each state and how long the oldest waits, rates per
    second over the last few seconds, whether it is paused, by whom and why.
    """
    status = readable_status(caller.client, form.names or None)
    rows = {each.name: json_object(each) for each in status.queues}
    if uncounted := [name for name in form.names if name not in rows]:
        caller.client.get_queues(uncounted)  # says which of them does not exist
    if form.settings:
        for view in caller.client.get_queues(list(rows)):
            rows[view.name]["settings"] = json_object(view)["settings"]
    return {"now_ms": status.now_ms, "queues": list(rows.values())}


class ClusterForm(ToolForm):
    pass


@agent_tool("cluster", ClusterForm)
def tell_cluster(caller: AgentCaller, form: ClusterForm) -> Row:
    """The servers that are alive and the shards (stores of jobs): whether each is in use, full or out, and why."""
    return json_object(readable_status(caller.client, []))


class FindForm(ToolForm):
    filter: Filter
    limit: Limit = 20


@agent_tool("find_jobs", FindForm)
def find_for_agent(caller: AgentCaller, form: FindForm) -> Row:
    """Jobs that a filter finds, in whichever queues: state, times, attempts and status, without bodies. `is_all` says
    whether there are no others.
    """
    jobs, missing = [], set[str]()
    for found in found_by_filter(caller.client, filter_line(form.filter), limit=form.limit + 1):
        jobs += found.jobs
        missing.update(found.missing_shards)
    shown = [job_json(each) for each in jobs[: form.limit]]
    return {"jobs": shown, "is_all": len(jobs) <= form.limit, "missing_shards": sorted(missing)}


def checked_descriptors(named: list[str]) -> list[str]:
    """RequestInvalid: one is none."""
    for each in named:
        if not is_descriptor(each):
            raise RequestInvalid(f"{each[:100]!r} is no descriptor; they are such as mail:s1:p1:1790000000000000")
    return named


class JobForAgent(ToolForm):
    descriptor: Descriptor
    body: Annotated[bool, Meta(description="Its body too, which is what it is to do.")] = False


@agent_tool("job", JobForAgent)
def tell_job(caller: AgentCaller, form: JobForAgent) -> Row:
    """One job with all that is known of it: its attempts with their errors and workers, what it logged, its result, and
    `hold`: why it does not run, if it waits.
    """
    named = checked_descriptors([form.descriptor])
    found = readable_jobs(
        caller.client,
        named,
        has_to_show=form.body,
        include_body=form.body,
        include_result=True,
        include_trail=True,
    )
    info = found.get(form.descriptor)
    if info is None:
        raise RequestInvalid(f"there is no job {form.descriptor}: it was deleted, or ended and was kept its time")
    holds = caller.client.explain_jobs(named) if info.state is JobState.PENDING else []
    return {**job_json(info), **({"hold": json_object(holds[0])} if holds else {})}


class ErrorsForm(ToolForm):
    filter: Filter = ""
    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most failed jobs to examine.")] = _PAGE


@agent_tool("errors", ErrorsForm)
def tell_errors(caller: AgentCaller, form: ErrorsForm) -> Row:
    """The kinds of error that jobs failed with for good: how many jobs of each, the first and the last time, what the
    latest says, and the filter that finds its jobs. `examined`: among so many jobs.
    """
    line = of_failed(filter_line(form.filter or f"state:{JobPhase.FAILED.word}"))
    pages = found_by_filter(caller.client, line, limit=form.limit)
    jobs = list(islice((job for page in pages for job in page.jobs), form.limit))
    rights = Rights(caller.client.get_access(), has_password=False)
    kinds = grouped(jobs, SystemClock().now_ms(), rights.sees_bodies)
    shown = [
        {
            "error": each.name,
            "jobs": each.jobs,
            "first_at_ms": each.first_ms,
            "last_at_ms": each.last_ms,
            "latest": each.line,
            "filter": line.with_values("error", each.name).text(),
        }
        for each in kinds
    ]
    return {"errors": shown, "examined": len(jobs), "is_all": len(jobs) < form.limit}


class WorkersForm(ToolForm):
    queue: Annotated[str, Meta(description="Only workers of this queue.")] = ""
    running: Annotated[bool, Meta(description="The jobs that each runs now too.")] = False
    limit: Limit = 100


@agent_tool("workers", WorkersForm)
def tell_workers(caller: AgentCaller, form: WorkersForm) -> Row:
    """The workers of the framework: where each runs, of which queues, how many of its slots are busy or stuck, its
    version, and the time of its last report.
    """
    pages = read_pages(caller.client, queue=form.queue, running=form.running)
    workers = list(islice((worker for page in pages for worker in page.workers), form.limit + 1))
    return {"workers": [json_object(each) for each in workers[: form.limit]], "is_all": len(workers) <= form.limit}


class SchedulesForm(ToolForm):
    queue: Annotated[str, Meta(description="Only schedules of this queue.")] = ""
    limit: Limit = 100


@agent_tool("schedules", SchedulesForm)
def tell_schedules(caller: AgentCaller, form: SchedulesForm) -> Row:
    """Schedules, by which jobs are enqueued again and again: when, into which queue, the next and the last firing, and
    whether each is paused.
    """
    page = caller.client.get_schedules(queue=form.queue, limit=form.limit)
    return {
        "schedules": [json_object(each) for each in page.schedules],
        "is_all": page.continuation == CONTINUATION_END,
    }


class FlowsForm(ToolForm):
    id: Annotated[str, Meta(description="Only this flow.")] = ""
    state: Annotated[
        str, Meta(description="Only flows in this state: " + ", ".join(s.name.lower() for s in FlowState))
    ] = ""
    limit: Limit = 20


@agent_tool("flows", FlowsForm)
def tell_flows(caller: AgentCaller, form: FlowsForm) -> Row:
    """Flows, which are work in several stages, the newest first: how many items of each stage wait, run, succeeded and
    failed, and `troubles`: what keeps it from going on, and what to do about it.
    """
    states = {state.name.lower(): state for state in FlowState}
    if form.state and form.state not in states:
        raise RequestInvalid(f"state {form.state!r} is none of {', '.join(states)}")
    try:
        if form.id:
            return {"flows": [json_object(caller.client.get_flow(form.id))], "is_all": True}
        page = caller.client.get_flows(state=states.get(form.state), limit=form.limit)
    except MethodUnknown:
        raise RequestInvalid("these servers have no flows: they are started without --flows") from None
    return {"flows": [json_object(each) for each in page.flows], "is_all": page.continuation == CONTINUATION_END}
