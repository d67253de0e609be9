"""Every argument of every call of the clients, of kinds that it does not take; and the short forms that it takes."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from pinlater import AsyncClient, Client, DequeuedJob, DequeueRequest, Job
from pinlater.errors import RequestInvalid, ServerUnreachable
from pinlater.model import AccessAction, Caller, Grant, RequestContext

DESCRIPTOR = "mail:s1:p1:1790000000000000"
WRONG = {
    "int": 5,
    "str": "wrong",
    "bytes": b"wrong",
    "list": [object()],
    "dict": {"wrong": object()},
    "None": None,
    "nan": float("nan"),
    "object": object(),
}
TAKES = {
    "str": {"str"},
    "bytes": {"bytes"},
    "int": {"int"},
    "float": {"int"},
    "None": {"None"},
    "object": set(WRONG),
    "Any": set(WRONG),
    "Delay": {"int"},
}
"""Which of these values the kind in an annotation takes; of a list, the one above has a wrong entry."""

CALLS = {
    name: call
    for name, call in inspect.getmembers(AsyncClient, inspect.isfunction)
    if not name.startswith("_") and name not in ("close", "cancel_long_polls", "end_waits", "scan_pages")
}
NAMED = {"lookup": ("queue", [DESCRIPTOR]), "wait": (DESCRIPTOR,), "cancel": ([DESCRIPTOR],)}
"""What comes in places, of calls whose arguments need each other."""

REQUESTS = {"dequeue": "queue", "dequeue_from_queues": ["queue"]}
"""With which a limit and a wait go."""


def takes(annotation: str) -> set[str]:
    outermost = re.sub(r"\[.*\]", "", annotation.replace("[str]", ""))
    return set().union(*(TAKES.get(kind.strip(), set()) for kind in outermost.split("|")))


def valid(kind: Any) -> Any:
    """Some value of a kind."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return valid(get_args(kind)[0])
    if origin is not None:
        return {} if issubclass(origin, Mapping) else []
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        needed = [each for each in dataclasses.fields(kind) if each.default is each.default_factory]
        return kind(**{each.name: valid(hints[each.name]) for each in needed})
    return {str: "queue", int: 1, bool: False, bytes: b"x"}[kind]


CASES = [(name, each) for name, call in CALLS.items() for each in list(inspect.signature(call).parameters)[1:]]


def arguments(name: str, argument: str, value: object) -> tuple[list[Any], dict[str, Any]]:
    """A call that is right but for this one."""
    call = CALLS[name]
    hints = get_type_hints(call)
    own = inspect.signature(call).parameters
    if own[argument].kind is inspect.Parameter.VAR_POSITIONAL:
        return [value], {}
    placed = NAMED.get(name)
    if placed is not None and own[argument].kind is inspect.Parameter.KEYWORD_ONLY:
        return ([] if argument == "descriptors" else list(placed[-1:])), {argument: value}
    needed = [each.name for each in list(own.values())[1:] if each.default is each.empty]
    others = {each: REQUESTS.get(name, valid(hints[each])) for each in needed if each != argument}
    return [], others | {argument: value}


@pytest.mark.parametrize(("name", "argument"), CASES, ids=lambda text: text)
async def test_an_argument_of_another_kind_is_refused_by_its_name(name: str, argument: str) -> None:
    annotation = str(inspect.signature(CALLS[name]).parameters[argument].annotation)
    async with AsyncClient("127.0.0.1:1", timeout=0.02, retry_unavailable=False) as client:
        for kind in WRONG.keys() - takes(annotation):
            args, given = arguments(name, argument, WRONG[kind])
            with pytest.raises(RequestInvalid, match=re.escape(argument)) as refused:
                await asyncio.wait_for(getattr(client, name)(*args, **given), 60)
            assert "allowed: " in str(refused.value)


@pytest.mark.parametrize(("name", "argument"), CASES, ids=lambda text: text)
def test_the_client_without_asyncio_says_the_same(name: str, argument: str) -> None:
    annotation = str(inspect.signature(CALLS[name]).parameters[argument].annotation)
    with Client("127.0.0.1:1", timeout=0.02, retry_unavailable=False) as client:
        for kind in sorted(WRONG.keys() - takes(annotation))[:1]:
            args, given = arguments(name, argument, WRONG[kind])
            with pytest.raises((TypeError, RequestInvalid), match=re.escape(argument)):
                getattr(client, name)(*args, **given)


SERVER = "127.0.0.1:1"
DEQUEUED = DequeuedJob(DESCRIPTOR, b"x", 1, 2, 1, 0, 0, "claim")
MISTAKES = (
    (lambda client: client.enqueue("q", [Job(b"x"), "text"]), "enqueue: jobs[1] is 'text', of the kind str; allowed: "),
    (lambda client: client.enqueue("q", Job("text")), "body is 'text', of the kind str; allowed: bytes"),
    (lambda client: client.enqueue("q", b"x", delay=1e18), "delay is 1e+18; allowed: up to "),
    (lambda client: client.ack("q", succeeded=[DESCRIPTOR]), f"ack: succeeded[0] is {DESCRIPTOR!r}, of the kind str; "),
    (lambda client: client.ack("q", failed=DEQUEUED), "ack: failed is DequeuedJob("),
    (lambda client: client.dequeue("q", "10"), "dequeue: request.limit is '10', of the kind str; allowed: int"),
    (lambda client: client.dequeue("q", 10, wait="soon"), "wait is 'soon'; allowed: seconds, a text as in 30s"),
    (lambda client: client.dequeue(DequeueRequest("q", 1), 10), "limit and wait go with the name of a queue"),
    (
        lambda client: client.count("q", timeout="5"),
        "count: timeout is '5', of the kind str; allowed: a number or None",
    ),
    (
        lambda client: client.retry_failed("q", attempts=2**31),
        "retry_failed: attempts is 2147483648, of the kind int; ",
    ),
)


@pytest.mark.parametrize(("call", "text"), MISTAKES)
async def test_a_mistake_is_told_before_anything_is_sent(call: Any, text: str) -> None:
    async with AsyncClient(SERVER, timeout=0.02, retry_unavailable=False) as client:
        with pytest.raises(RequestInvalid, match=re.escape(text)):
            await call(client)
    with pytest.raises(ValueError, match="each server is a text of its own"):
        AsyncClient(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a client: timeout is '5', of the kind str; allowed: a number"):
        Client(SERVER, timeout="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"no option 'timout' \(did you mean timeout\?\)"):
        Client(SERVER, timout=5)


async def test_what_a_server_knows_of_a_call_that_it_passes_on_is_no_argument() -> None:
    caller = Caller("cert:mail", grants=[Grant([AccessAction.ENQUEUE], ["q"])])
    assert caller.may((AccessAction.ENQUEUE,), "q")
    context = RequestContext("test", caller=caller)
    async with AsyncClient(SERVER, retry_unavailable=False) as client:
        with pytest.raises(ServerUnreachable):
            await client.enqueue("q", Job(b"x"), context=context)
