"""Every change that a page offers, and how to see that it happened. One that is missing here fails test_actions.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple

from pinlater import Client, JobFilter, JobState
from pinlater.errors import FlowNotFound
from pinlater.model import Ack, DequeueRequest, ExtendedJob, Job, JobInfo, ScheduleChange, WorkerCommand, WorkerReport
from pinlater.model.flow_words import Applet, AppletKind, FlowState, NewFlow, NewItem, Stage
from tests.access.cluster import until
from tests.browser.hostile import planted

HOUR_MS = 3_600_000
_numbers = count()
Made = dict[str, str]
"""What was made for one action, by the names that its texts have in braces."""


class Action(NamedTuple):
    """`route`: as the product's table has it. On the page at `path` the details `opens` ask `asks`, get `fills` (texts
    by the labels of their fields) and are sent by the button `sends`; then a message says `tells`.
    """

    name: str
    route: str
    prepare: Callable[[Client], Made]
    path: str
    opens: str
    asks: str
    sends: str
    tells: str
    happened: Callable[[Client, Made], bool]
    fills: Mapping[str, str] = {}
    audited: str = ""
    """The target in the audit; "" for what stands in no audit."""

    chooses: Mapping[str, str] = {}
    """Of lists, by their labels."""

    clean_up: Callable[[Client, Made], object] = lambda _client, _made: None


def _queue(client: Client, **settings: str) -> Made:
    """A queue of its own with three jobs."""
    name = f"acted-{next(_numbers)}"
    client.create_queue(name)
    client.enqueue(name, [Job(b"x")] * 3)
    if settings:
        client.update_queue(name, "", set=settings)
    return {"queue": name}


def _grouped_queue(client: Client, **settings: str) -> Made:
    """A queue with two jobs of group acme, which has these settings."""
    name = f"acted-{next(_numbers)}"
    client.create_queue(name)
    client.enqueue(name, [ExtendedJob(b"x", group="acme")] * 2)
    if settings:
        client.update_group(name, "acme", "", set=settings)
    return {"queue": name}


def _group(client: Client, made: Made, key: str) -> str:
    (view,) = client.get_groups(made["queue"], ["acme"]).groups
    return view.settings[key].value


def _dead_letters(client: Client) -> Made:
    """Two of them, in a queue of their own; `from` is the queue that they came from."""
    made = _queue(client)
    dead = f"{made['queue']}-dead"
    client.create_queue(dead)
    client.update_queue(made["queue"], "", set={"dead_letter_queue": dead})
    claimed = client.dequeue(DequeueRequest(made["queue"], 2, wait_ms=5_000))
    client.ack(made["queue"], [], [Ack(each.descriptor, "no", permanent=True) for each in claimed])
    until(lambda: client.count(JobFilter(dead, JobState.FAILED)) + client.count(JobFilter(dead, JobState.PENDING)) == 2)
    return {"queue": dead, "from": made["queue"]}


def _setting(client: Client, made: Made, key: str) -> str:
    (view,) = client.get_queues([made["queue"]])
    return view.settings[key].value


def _pause_of(client: Client, made: Made) -> str | None:
    """Why a queue is paused; None: it is not."""
    (queue,) = client.cluster_status(queues=[made["queue"]]).queues
    return None if queue.pause is None else queue.pause.why


def _drains(client: Client) -> bool:
    (shard,) = client.cluster_status().shards
    return shard.dequeue_only


def _failed_job(client: Client) -> Made:
    made = _queue(client)
    (job,) = client.dequeue(DequeueRequest(made["queue"], 1, wait_ms=5_000))
    client.ack(made["queue"], [], [Ack(job.descriptor, "no", permanent=True)])
    return {**made, "job": job.descriptor}


def _running_job(client: Client) -> Made:
    made = _queue(client)
    (job,) = client.dequeue(DequeueRequest(made["queue"], 1, wait_ms=5_000, claim_timeout_ms=HOUR_MS))
    return {**made, "job": job.descriptor}


def _ready_job(client: Client) -> Made:
    made = _queue(client)
    return {**made, "job": client.enqueue(made["queue"], Job(b"as it was"))}


def _dead_letter(client: Client) -> Made:
    made = _dead_letters(client)
    dead = client.scan(JobFilter(made["queue"], JobState.PENDING)).jobs
    return {**made, "job": dead[0].descriptor}


def _job(client: Client, made: Made) -> JobInfo | None:
    """None: it is gone."""
    return client.lookup([made["job"]], include_body=True).get(made["job"])


def _body(client: Client, made: Made) -> bytes | None:
    job = _job(client, made)
    return None if job is None else job.body


def _flow(client: Client, expression: str = "") -> Made:
    """Of two stages, whose first is open and has two items; with an expression that cannot be, it is stuck."""
    name = f"acted-{next(_numbers)}"
    applet = Applet(AppletKind.MAP, expression) if expression else Applet()
    stages = [Stage("first", "f", name), Stage("second", "s", f"{name}-2", parent="first", applet=applet)]
    items = {"first": [NewItem(b'{"n": 1}'), NewItem(b'{"n": 2}')]}
    flow = client.create_flow(NewFlow(name, stages, items=items)).id
    made = {"queue": name, "flow": flow, "name": name}
    if expression:
        (job,) = client.dequeue(DequeueRequest(name, 1, wait_ms=10_000))
        client.ack(name, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=b"3")], [])
        until(lambda: client.get_flow(flow).troubles)
    return made


def _failed_flow(client: Client) -> Made:
    """One of whose items has failed."""
    made = _flow(client)
    (job,) = client.dequeue(DequeueRequest(made["queue"], 1, wait_ms=10_000))
    client.ack(made["queue"], [], [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, append_status="no")])
    until(lambda: client.get_flow(made["flow"]).stages[0].failed)
    return made


def _worker(client: Client) -> Made:
    """One that does what it is told, in the list of workers."""
    made = _queue(client)
    made |= {"worker": f"w{made['queue']}", "up_ms": "1000"}
    client.heartbeat(made["queue"], [], worker=_report(made))
    return made


def _report(made: Made, *, has_stopped: bool = False) -> WorkerReport:
    """The next one of that worker."""
    made["up_ms"] = str(int(made["up_ms"]) + 1)
    queues = {made["queue"]: 1}
    return WorkerReport(
        made["worker"], "acted", int(made["up_ms"]), "vm", 1, queues, 1, has_stopped=has_stopped, is_quiet=False
    )


def _is_quiet(client: Client, made: Made) -> bool:
    command = client.heartbeat(made["queue"], [], worker=_report(made)).command
    return command is not None and command.command is WorkerCommand.QUIET


def _is_deleted(client: Client, made: Made) -> bool:
    try:
        client.get_flow(made["flow"])
    except FlowNotFound:
        return True
    return False


def _schedule(client: Client, *, paused: bool = False) -> Made:
    made = _queue(client)
    name = f"acted.{next(_numbers)}"
    change = ScheduleChange(name=name, queue=made["queue"], cron="0 3 * * *", body=b"nightly", paused=paused)
    client.update_schedule(change, "")
    return {**made, "schedule": name}


def _is_paused(client: Client, made: Made) -> bool:
    (view,) = client.get_schedules([made["schedule"]]).schedules
    return view.schedule.paused


_QUEUES = "/dashboard/queues"
_QUEUE = f"{_QUEUES}/{{queue}}"
_SHARD = "/dashboard/cluster/shards/{shard}"
_JOB, _JOB_PAGE = "/dashboard/jobs/{descriptor}", "/dashboard/jobs/{job}"
_FLOW = "/dashboard/flows/{flow}"
_SCHEDULE, _SCHEDULE_PAGE = "/dashboard/schedules/{name}", "/dashboard/schedules/{schedule}"
ACTIONS = (
    Action(
        "make a queue",
        _QUEUES,
        lambda _: {"queue": f"made-{next(_numbers)}"},
        _QUEUES,
        "#new-queue",
        "on every shard",
        "Make it",
        "{queue}",
        lambda client, made: made["queue"] in client.queue_names(),
        {"Name": "{queue}"},
        "{queue}",
    ),
    Action(
        "pause",
        f"{_QUEUE}/pause",
        _queue,
        _QUEUE,
        "#pause",
        "No job of {queue} is handed out",
        "Pause",
        "Queue {queue} is paused",
        lambda client, made: _pause_of(client, made) == planted("why"),
        {"Why": planted("why"), "For how long": "2h"},
        "{queue}",
    ),
    Action(
        "resume",
        f"{_QUEUE}/resume",
        lambda client: _queue(client, paused="true", paused_why="lunch"),
        _QUEUE,
        "#resume",
        "Hand out jobs of {queue} again",
        "Resume",
        "{queue} hands out jobs again",
        lambda client, made: _pause_of(client, made) is None,
        audited="{queue}",
    ),
    Action(
        "drain",
        f"{_QUEUE}/drain",
        _queue,
        _QUEUE,
        "#drain",
        "New jobs of {queue} are refused",
        "Drain",
        "{queue} refuses new jobs",
        lambda client, made: _setting(client, made, "draining") == "true",
        audited="{queue}",
    ),
    Action(
        "take new jobs",
        f"{_QUEUE}/undrain",
        lambda client: _queue(client, draining="true"),
        _QUEUE,
        "#drain",
        "{queue} takes new jobs again",
        "Take new jobs",
        "{queue} takes new jobs again",
        lambda client, made: _setting(client, made, "draining") == "false",
        audited="{queue}",
    ),
    Action(
        "pause a group",
        f"{_QUEUE}/groups/pause",
        _grouped_queue,
        _QUEUE,
        "#pause-group-1",
        "No job of group acme is handed out",
        "Pause",
        "Group acme is paused",
        lambda client, made: _group(client, made, "paused_why") == planted("why"),
        {"Why": planted("why"), "For how long": "2h"},
        "{queue}",
    ),
    Action(
        "resume a group",
        f"{_QUEUE}/groups/resume",
        lambda client: _grouped_queue(client, paused="true"),
        _QUEUE,
        "#resume-group-1",
        "Hand out jobs of group acme again",
        "Resume",
        "Group acme gets its turns again",
        lambda client, made: _group(client, made, "paused") == "false",
        audited="{queue}",
    ),
    Action(
        "change a group",
        f"{_QUEUE}/groups/set",
        _grouped_queue,
        _QUEUE,
        "#set-group-1",
        "The share and the limits of group acme",
        "Set",
        "Group acme has other settings now",
        lambda client, made: _group(client, made, "weight") == "3" and _group(client, made, "concurrency") == "2",
        {"Weight": "3", "Most in progress": "2"},
        "{queue}",
    ),
    Action(
        "rate",
        f"{_QUEUE}/settings",
        _queue,
        _QUEUE,
        "#change-max_jobs_per_second",
        "Set max_jobs_per_second of queue {queue}",
        "Set",
        "max_jobs_per_second of queue {queue} is 30/m",
        lambda client, made: _setting(client, made, "max_jobs_per_second") == "30/m",
        {"Value": "30/m"},
        "{queue}",
    ),
    Action(
        "concurrency",
        f"{_QUEUE}/settings",
        _queue,
        _QUEUE,
        "#change-max_in_progress",
        "Set max_in_progress of queue {queue}",
        "Set",
        "max_in_progress of queue {queue} is 7",
        lambda client, made: _setting(client, made, "max_in_progress") == "7",
        {"Value": "7"},
        "{queue}",
    ),
    Action(
        "delete a queue",
        f"{_QUEUE}/delete",
        _queue,
        _QUEUE,
        "#delete",
        "This deletes queue {queue}",
        "Delete queue and jobs",
        "Queue {queue} was deleted",
        lambda client, made: made["queue"] not in client.queue_names(),
        {"Type its name": "{queue}"},
        "{queue}",
    ),
    Action(
        "drain a shard",
        f"{_SHARD}/drain",
        lambda _: {},
        "/dashboard/cluster",
        "#drain-1",
        "Shard 1 stores no new jobs",
        "Drain",
        "Shard 1 stores no new jobs",
        lambda client, _: _drains(client),
        clean_up=lambda client, _: client.update_shard("1", "", dequeue_only=False),
    ),
    Action(
        "fill a shard again",
        f"{_SHARD}/undrain",
        lambda client: client.update_shard("1", "", dequeue_only=True) and {},
        "/dashboard/cluster",
        "#drain-1",
        "Shard 1 stores new jobs again",
        "Take new jobs",
        "Shard 1 stores new jobs again",
        lambda client, _: not _drains(client),
        clean_up=lambda client, _: client.update_shard("1", "", dequeue_only=False),
    ),
    Action(
        "retry a job",
        f"{_JOB}/retry",
        _failed_job,
        _JOB_PAGE,
        "#retry",
        "The job goes back to its queue",
        "Retry",
        "The job waits for a worker again",
        lambda client, made: client.count(JobFilter(made["queue"], JobState.PENDING)) == 3,
        {"Attempts": "4"},
    ),
    Action(
        "cancel a job",
        f"{_JOB}/cancel",
        _ready_job,
        _JOB_PAGE,
        "#cancel",
        "The job is removed, and never runs",
        "Cancel job",
        "The job was cancelled",
        lambda client, made: _job(client, made) is None,
    ),
    Action(
        "ask to stop",
        f"{_JOB}/cancel",
        _running_job,
        _JOB_PAGE,
        "#stop",
        "Its worker is asked to stop it",
        "Ask to stop",
        "Its worker is asked to stop",
        lambda client, made: client.lookup([made["job"]])[made["job"]].cancel_requested_by is not None,
    ),
    Action(
        "delete a job",
        f"{_JOB}/delete",
        _failed_job,
        _JOB_PAGE,
        "#delete",
        "Nothing brings it back",
        "Delete job",
        "The job was deleted",
        lambda client, made: _job(client, made) is None,
    ),
    Action(
        "replay a dead letter",
        f"{_JOB}/replay",
        _dead_letter,
        _JOB_PAGE,
        "#replay",
        "goes back to the queue that it came from",
        "Replay",
        "The dead letter went back",
        lambda client, made: client.count(JobFilter(made["from"], JobState.PENDING)) == 2,
    ),
    Action(
        "change a job",
        f"{_JOB}/reschedule",
        _ready_job,
        _JOB_PAGE,
        "#reschedule",
        "only changed while nobody else has changed it",
        "Change it",
        "The job was changed",
        lambda client, made: _body(client, made) == planted("edited").encode(),
        {"Not before": "+1h", "Body": planted("edited")},
    ),
    Action(
        "enqueue a copy",
        f"{_JOB}/copy",
        _failed_job,
        _JOB_PAGE,
        "#copy",
        "This one stays as it is",
        "Enqueue it",
        "This is the copy of {job}",
        lambda client, made: client.count(JobFilter(made["queue"], JobState.PENDING)) == 3,
        {"Queue": "{queue}"},
    ),
    Action(
        "seal a stage",
        f"{_FLOW}/seal",
        _flow,
        _FLOW,
        "#seal-first",
        "No more items come into stage first",
        "Seal",
        "Stage first takes no more items",
        lambda client, made: client.get_flow(made["flow"]).stages[0].is_sealed,
    ),
    Action(
        "resume a flow",
        f"{_FLOW}/resume",
        lambda client: _flow(client, "payload.n.nothing || `[1, [2]]` | [0] | keys(@)"),
        _FLOW,
        "#resume",
        "What flow {name} is stuck with is tried again",
        "Resume",
        "Flow {name} goes on",
        lambda client, made: not client.get_flow(made["flow"]).troubles,
        {"Make them from now on by": "[payload]"},
        chooses={"Only the items of": "second"},
    ),
    Action(
        "try failed items of a flow again",
        f"{_FLOW}/retry",
        _failed_flow,
        _FLOW,
        "#retry",
        "The 1 item of flow {name} that failed is tried again",
        "Retry failed",
        "1 item is tried again",
        lambda client, made: not client.get_flow(made["flow"]).stages[0].failed,
        audited="{flow}",
    ),
    Action(
        "let a worker rest",
        "/dashboard/workers/commands",
        _worker,
        "/dashboard/workers?queue={queue}",
        "#quiet-{worker}",
        "It takes no more jobs, and ends those it has.",
        "Quiet",
        "They take no more jobs, within 15 seconds: 1 taken",
        _is_quiet,
        audited="{worker}",
        clean_up=lambda client, made: client.heartbeat(made["queue"], [], worker=_report(made, has_stopped=True)),
    ),
    Action(
        "cancel a flow",
        f"{_FLOW}/cancel",
        _flow,
        _FLOW,
        "#cancel",
        "its 2 items that have not ended fail as cancelled",
        "Cancel the flow",
        "Flow {name} is",
        lambda client, made: client.get_flow(made["flow"]).state == FlowState.CANCELLED,
    ),
    Action(
        "delete a flow",
        f"{_FLOW}/delete",
        _flow,
        _FLOW,
        "#delete",
        "removes flow {name} and all its 2 items",
        "Delete flow and items",
        "Flow {flow} was deleted",
        _is_deleted,
    ),
    Action(
        "pause a schedule",
        f"{_SCHEDULE}/pause",
        _schedule,
        _SCHEDULE_PAGE,
        "#pause",
        "{schedule} fires no more until it is resumed",
        "Pause",
        "Schedule {schedule} is paused",
        _is_paused,
        audited="{schedule}",
    ),
    Action(
        "resume a schedule",
        f"{_SCHEDULE}/resume",
        lambda client: _schedule(client, paused=True),
        _SCHEDULE_PAGE,
        "#pause",
        "{schedule} fires again",
        "Resume",
        "Schedule {schedule} fires again",
        lambda client, made: not _is_paused(client, made),
        audited="{schedule}",
    ),
    Action(
        "run a schedule now",
        f"{_SCHEDULE}/run",
        _schedule,
        _SCHEDULE_PAGE,
        "#run",
        "One job is put into queue {queue}",
        "Enqueue the job",
        "is in queue {queue}",
        lambda client, made: client.count(JobFilter(made["queue"], JobState.PENDING)) == 4,
    ),
    Action(
        "delete a schedule",
        f"{_SCHEDULE}/delete",
        _schedule,
        _SCHEDULE_PAGE,
        "#delete",
        "This deletes schedule {schedule}",
        "Delete the schedule",
        "Schedule {schedule} was deleted",
        lambda client, made: not client.get_schedules([made["schedule"]]).schedules,
        {"Type its name": "{schedule}"},
        "{schedule}",
    ),
)
IN_STEPS = {
    "/dashboard/jobs/new",
    "/dashboard/runs/new",
    "/dashboard/runs",
    "/dashboard/runs/{run}/stop",
    "/dashboard/schedules/@new",
    "/dashboard/schedules/{name}/edit",
}
"""Changes of more than one step, which have tests of their own: test_runs.py, test_schedule_form.py and
tests/dashboard/test_new_job.py."""
