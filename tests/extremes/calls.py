"""The table of extreme requests: every leaf of the arguments of every call, with every extreme value of its type.

What a call needs besides to be a call at all stands in `ROWS`; a method that has no row there fails the test. Its
fields need none: a further one joins by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from pinlater.queues.settings import BY_NAME
from pinlater.setting_kinds import Kind
from pinlater.wire.interface import BOOL, DOUBLE, LIST, MAP, SET, SIGNATURES, STRING, STRUCT, Node
from tests.extremes.values import EXACT_MS, ODD, extremes_of

Path = tuple[str | int, ...]
"""Attributes of structs, 0 for the first of a list, a text for the entry of a map."""

MOST_ENTRIES = 10_001
"""One more than a server takes in a call."""

KEY = "key"


class Job(NamedTuple):
    """One in progress, under its claim."""

    descriptor: str
    claim: str


@dataclass
class Stock:
    """What the rows take from: each call that needs a job in progress gets one of its own."""

    queue: str
    """Where jobs come and stay."""

    held: str
    """Where the jobs in progress are, and those that wait."""

    scrap: str
    """Where they are handed out, changed and removed."""

    steps: str
    """That of the stage of the flow."""

    password: str
    flow: str
    stage: str
    number: int
    running: list[Job]
    waiting: list[str]
    """Jobs that are to run later."""

    settings: str
    """The queue whose settings are taken to extremes."""

    names: Iterator[str] = field(default_factory=lambda: (f"extreme-{number}" for number in count(1)))
    """Of schedules and tokens, each a new one."""

    def job(self) -> Job:
        return self.running.pop()


Values = dict[Path, object]
Row = Callable[[Stock], Values]


def _request(**values: object) -> Values:
    return {
        ("request", *[int(each) if each == "0" else each for each in name.split("__")]): values[name] for name in values
    }


def _of_jobs(stock: Stock) -> Values:
    return _request(queue=stock.queue)


def _of_held_jobs(stock: Stock) -> Values:
    return _request(queue=stock.held)


def _selection(stock: Stock, **more: object) -> Values:
    return _request(selection__queue=stock.scrap, **more)


def _schedule(stock: Stock, **times: object) -> Values:
    named = {f"change__{name}": value for name, value in times.items()}
    return _request(change__name=next(stock.names), change__queue=stock.steps, password=stock.password, **named)


def _by_interval(stock: Stock) -> Values:
    return _schedule(stock, every_ms=3_600_000)


def _by_cron(stock: Stock) -> Values:
    return _schedule(stock, cron="30 3 * * *", timezone="Europe/Berlin")


def _settings(stock: Stock) -> Values:
    return _request(name=stock.settings, password=stock.password)


def _flow(stock: Stock) -> Values:
    return _request(flow_id=stock.flow)


ROWS: dict[str, Row] = {
    "createQueue": lambda stock: {("name",): stock.scrap},
    "deleteQueue": lambda stock: {("name",): "no-such-queue", ("password",): stock.password},
    "getQueueNames": lambda stock: {},
    "enqueueJobs": _of_jobs,
    "dequeueJobs": lambda stock: _request(queue=stock.scrap),
    "dequeueFromQueues": lambda stock: _request(queues__0__queue=stock.scrap),
    "ackDequeuedJobs": _of_held_jobs,
    "ackJobs": _of_held_jobs,
    "checkpointJobs": _of_held_jobs,
    "heartbeatJobs": _of_held_jobs,
    "lookupJobs": lambda stock: _request(descriptors=[stock.waiting[0]], queue=stock.held),
    "getJobCount": _of_jobs,
    "scanJobs": _of_jobs,
    "retryFailedJobs": lambda stock: _request(queue=stock.scrap),
    "deleteJobs": lambda stock: _request(queue=stock.scrap),
    "cancelJobs": lambda stock: _request(queue=stock.scrap),
    "rescheduleJobs": lambda stock: _request(queue=stock.held, changes__0__descriptor=stock.waiting.pop()),
    "changeJobs": lambda stock: _request(queue=stock.scrap),
    "searchJobs": _selection,
    "changeFoundJobs": _selection,
    "getQueues": lambda stock: {},
    "updateQueue": _settings,
    "getGroups": lambda stock: _request(queue=stock.scrap),
    "updateGroup": lambda stock: _request(queue=stock.settings, group="acme", password=stock.password),
    "clearGroups": lambda stock: _request(queue=stock.scrap, password=stock.password),
    "updateShard": lambda stock: _request(shard_id="no-such-shard", password=stock.password),
    "getClusterStatus": lambda stock: {},
    "getAlarms": lambda stock: {},
    "muteAlarm": lambda stock: _request(name="no_worker", for_ms=1_000, reason="known", password=stock.password),
    "getAudit": lambda stock: {},
    "commandWorkers": lambda stock: _request(command=0, workers=["no-such-worker"]),
    "getWorkers": lambda stock: {},
    "getBodyTiers": lambda stock: {},
    "changeBodies": lambda stock: {},
    "updateSchedule": _by_interval,
    "getSchedules": lambda stock: {},
    "deleteSchedule": lambda stock: _request(name="no-such-schedule", password=stock.password),
    "updateToken": lambda stock: _request(
        name=next(stock.names), hash="0" * 64, roles=["viewer"], password=stock.password
    ),
    "getTokens": lambda stock: {},
    "deleteToken": lambda stock: _request(name="no-such-token", password=stock.password),
    "getAccess": lambda stock: {},
    "getUsage": lambda stock: {},
    "explainJobs": lambda stock: _request(descriptors=[stock.waiting[0]]),
    "createFlow": lambda stock: _request(name="extreme", stages__0__name="first", stages__0__queue=stock.steps),
    "addFlowItems": lambda stock: _request(flow_id=stock.flow, stage=stock.stage),
    "sealStage": lambda stock: _request(flow_id=stock.flow, stage="no-such-stage"),
    "getFlow": _flow,
    "getFlows": lambda stock: {},
    "getFlowItems": _flow,
    "cancelFlow": lambda stock: _request(flow_id="no-such-flow"),
    "deleteFlow": lambda stock: _request(flow_id="no-such-flow"),
    "resumeFlow": _flow,
    "retryFlowItems": lambda stock: _request(flow_id=stock.flow, failed=True),
    "assignItem": lambda stock: _request(number=stock.number),
}
"""By the name of the method, what makes a call of it that can be carried out."""

OTHER_ROWS: dict[str, Row] = {"updateSchedule": _by_cron}
"""Of calls that have another shape besides."""

SETTING_UNITS = {"TIME": "ms", "SIZE": "B", "RATE": "/s"}


def _setting_texts(kind: Kind) -> tuple[str, ...]:
    """What a setting of a queue is set to; the last that is taken stays."""
    return ("", "0", "1", ODD, f"{EXACT_MS}{SETTING_UNITS.get(kind.metavar, '')}")


READ_ALIKE = {"RequestContext": "dequeueJobs", "WorkerReport": "checkpointJobs"}
"""Structs that the same hand takes from every call: the one call in which each is taken to extremes."""


class ExtremeCall(NamedTuple):
    method: str
    path: Path
    value: object
    row: Row

    @property
    def place(self) -> str:
        return f"{self.method} {'.'.join(map(str, self.path))}"

    def __str__(self) -> str:
        return f"{self.place} = {ascii(self.value)[:60]}"

    def arguments(self, stock: Stock) -> Any:
        node = Node(STRUCT, struct=SIGNATURES[self.method].args)
        args = _ordinary(node, stock)
        for path, value in self.row(stock).items():
            args = _with(node, args, path, value, stock)
        value = self.value(stock) if callable(self.value) else self.value
        return _with(node, args, self.path, value, stock)


def extreme_calls() -> Iterator[ExtremeCall]:
    for rows in (ROWS, OTHER_ROWS):
        for method, row in rows.items():
            for each in SIGNATURES[method].args.fields.values():
                for path, value in _leaves(each.node, (each.attribute,), each.attribute, method):
                    yield ExtremeCall(method, path, value, row)
    for key, setting in BY_NAME.items():
        for text in _setting_texts(setting.kind):
            yield ExtremeCall("updateQueue", ("request", "set", key), text, _settings)


def reports_of_workers() -> Iterator[ExtremeCall]:
    """Those of the calls that say who works, which servers forget soon."""
    return (each for each in extreme_calls() if "worker" in each.path)


def _leaves(node: Node, path: Path, attribute: str, method: str) -> Iterator[tuple[Path, object]]:
    if node.struct is not None:
        if READ_ALIKE.get(node.struct.name, method) == method:
            for each in node.struct.fields.values():
                yield from _leaves(each.node, (*path, each.attribute), each.attribute, method)
    elif node.ttype in (LIST, SET):
        assert node.value is not None
        yield path, []
        yield path, partial(_many, node.value)
        yield from _leaves(node.value, (*path, 0), attribute, method)
    elif node.ttype == MAP:
        assert node.value is not None
        yield path, {}
        yield path, partial(_oddly_named, node.value)
        yield from _leaves(node.value, (*path, KEY), attribute, method)
    else:
        for value in extremes_of(node, attribute):
            yield path, value


def _many(node: Node, stock: Stock) -> list[Any]:
    return [_ordinary(node, stock)] * MOST_ENTRIES


def _oddly_named(node: Node, stock: Stock) -> dict[str, Any]:
    return {ODD: _ordinary(node, stock)}


def _ordinary(node: Node, stock: Stock) -> Any:
    """What may stand in a field that has to be there. What names a job and its claim names one in progress."""
    if node.struct is not None:
        made = node.struct.cls()
        fields = {each.attribute: each for each in node.struct.fields.values()}
        for each in fields.values():
            if each.required:
                setattr(made, each.attribute, _ordinary(each.node, stock))
        if {"descriptor", "claim_descriptor"} <= set(fields):
            made.descriptor, made.claim_descriptor = stock.job()
        return made
    if node.ttype in (LIST, SET):
        return []
    if node.ttype == MAP:
        return {}
    if node.ttype == STRING:
        return "word" if node.text else b"body"
    return {BOOL: False, DOUBLE: 0.5}.get(node.ttype, 1)


def _with(node: Node, inner: Any, path: Path, value: object, stock: Stock) -> Any:
    """The same with a value where the path leads; what is not there on the way is made."""
    if not path:
        return value
    place, rest = path[0], path[1:]
    if node.struct is not None:
        field = next(each for each in node.struct.fields.values() if each.attribute == place)
        held = getattr(inner, field.attribute)
        setattr(
            inner,
            field.attribute,
            _with(field.node, _ordinary(field.node, stock) if held is None else held, rest, value, stock),
        )
        return inner
    assert node.value is not None
    if node.ttype == MAP:
        held = inner[place] if place in inner else _ordinary(node.value, stock)
        return {**inner, place: _with(node.value, held, rest, value, stock)}
    held = inner[0] if inner else _ordinary(node.value, stock)
    return [_with(node.value, held, rest, value, stock), *inner[1:]]
