"""Every change that a page offers, and how to see that it happened. One that is missing here fails test_actions.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple

from pinlater import Client, JobFilter, JobState
from pinlater.model import Ack, DequeueRequest, Job
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

    clean_up: Callable[[Client, Made], object] = lambda _client, _made: None


def _queue(client: Client, **settings: str) -> Made:
    """A queue of its own with three jobs."""
    name = f"acted-{next(_numbers)}"
    client.create_queue(name)
    client.enqueue(name, [Job(b"x")] * 3)
    if settings:
        client.update_queue(name, "", set=settings)
    return {"queue": name}


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


_QUEUES = "/dashboard/queues"
_QUEUE = f"{_QUEUES}/{{queue}}"
_SHARD = "/dashboard/cluster/shards/{shard}"
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
        "replay dead letters",
        f"{_QUEUE}/replay",
        _dead_letters,
        _QUEUE,
        "#replay",
        "go back to the queues that they came from",
        "Replay",
        "2 dead letters were sent back",
        lambda client, made: client.count(JobFilter(made["from"], JobState.PENDING)) == 3,
        audited="{queue}",
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
)
