"""The limits of flows: the largest that is allowed, and one more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pinlater.errors import RequestInvalid
from pinlater.flows import flow_limits as limits
from pinlater.flows.callbacks import FlowCallbacks
from pinlater.flows.flow_limits import check_flow, check_items
from pinlater.model.flow_words import Applet, AppletKind, CompletionCallback, NewFlow, NewItem, Stage

STAGE = Stage("one", "do.one", "queue")
MAP, JOB = AppletKind.MAP, AppletKind.JOB


def flow(*stages: Stage, **values: Any) -> NewFlow:
    return NewFlow("payroll", stages or (STAGE,), **values)


def chain(depth: int) -> Sequence[Stage]:
    return [replace(STAGE, name=f"s{at}", parent=f"s{at - 1}" if at else "") for at in range(depth)]


def wide(amount: int) -> Sequence[Stage]:
    return [STAGE, *[replace(STAGE, name=f"s{at}", parent="one") for at in range(amount - 1)]]


def child(**applet: Any) -> tuple[Stage, Stage]:
    return STAGE, replace(STAGE, name="two", parent="one", applet=Applet(**applet))


ALLOWED = {
    "name": NewFlow("a" * 200, [STAGE]),
    "key": flow(dedupe_key="k" * 200),
    "stages": flow(*wide(limits.MAX_STAGES)),
    "depth": flow(*chain(limits.MAX_DEPTH)),
    "metadata": flow(metadata={"k": "v" * (limits.MAX_METADATA_BYTES - 1)}),
    "failures": flow(replace(STAGE, max_failures=limits.MAX_FAILURES)),
    "backoff": flow(replace(STAGE, backoff_ms=0, max_backoff_ms=limits.MAX_BACKOFF_MS)),
    "time to live": flow(ttl_ms=limits.MAX_TTL_MS),
    "expression": flow(*child(kind=MAP, expression="a" * limits.MAX_EXPRESSION_CHARS)),
    "job": flow(*child(kind=JOB, job="split", queue="parts")),
    "items": flow(items={"one": [NewItem(b"1")] * limits.MAX_ITEMS}, sealed=["one"]),
    "payload": flow(items={"one": [NewItem(b'"%b"' % (b"x" * (limits.MAX_PAYLOAD_BYTES - 2)))]}),
    "callback": flow(on_complete=CompletionCallback(url="https://example.org/?a=b")),
}

REFUSED = {
    "no name": NewFlow("", [STAGE]),
    "name": NewFlow("a" * 201, [STAGE]),
    "name in UTF-8": NewFlow("löhne", [STAGE]),
    "key": flow(dedupe_key="k" * 201),
    "key of ours": flow(dedupe_key="@1:1"),
    "key with a space behind": flow(dedupe_key="user-1 "),
    "key with NUL": flow(dedupe_key="a\0b"),
    "key that is no text": flow(dedupe_key="\ud800"),
    "no stages": NewFlow("payroll", []),
    "stages": flow(*wide(limits.MAX_STAGES + 1)),
    "depth": flow(*chain(limits.MAX_DEPTH + 1)),
    "circle": flow(replace(STAGE, parent="two"), replace(STAGE, name="two", parent="one")),
    "itself": flow(replace(STAGE, parent="one")),
    "unknown parent": flow(replace(STAGE, parent="two")),
    "two of a name": flow(STAGE, STAGE),
    "metadata": flow(metadata={"k": "v" * limits.MAX_METADATA_BYTES}),
    "entries": flow(metadata={str(at): "" for at in range(limits.MAX_METADATA + 1)}),
    "metadata that is no text": flow(metadata={"k": "\ud800"}),
    "failures": flow(replace(STAGE, max_failures=limits.MAX_FAILURES + 1)),
    "negative failures": flow(replace(STAGE, max_failures=-1)),
    "backoff": flow(replace(STAGE, max_backoff_ms=limits.MAX_BACKOFF_MS + 1)),
    "backoff over its maximum": flow(replace(STAGE, backoff_ms=2, max_backoff_ms=1)),
    "time to live": flow(ttl_ms=2**63),
    "job with a space": flow(replace(STAGE, job="do it")),
    "expression": flow(*child(kind=MAP, expression="a" * (limits.MAX_EXPRESSION_CHARS + 1))),
    "no expression": flow(*child(kind=MAP)),
    "no job": flow(*child(kind=JOB, queue="parts")),
    "items of no stage": flow(items={"two": []}),
    "seal of no stage": flow(sealed=["two"]),
    "callback to nothing": flow(on_complete=CompletionCallback()),
    "callback to both": flow(on_complete=CompletionCallback("queue", url="https://example.org/")),
    "URL": flow(on_complete=CompletionCallback(url="https://example.org/" + "a" * limits.MAX_URL_CHARS)),
    "URL with a tab": flow(on_complete=CompletionCallback(url="http://exa\tmple.org/")),
    "URL with a backslash": flow(on_complete=CompletionCallback(url="http://good.org\\@example.org/")),
    "URL in UTF-8": flow(on_complete=CompletionCallback(url="http://ⓔxample.org/")),
}

ITEMS = {
    "amount": [NewItem(b"1")] * (limits.MAX_ITEMS + 1),
    "payload": [NewItem(b'"%b"' % (b"x" * limits.MAX_PAYLOAD_BYTES))],
    "bytes of the call": [NewItem(b'"%b"' % (b"x" * 60_000))] * 80,
    "no JSON": [NewItem(b"{")],
    "nothing": [NewItem(b"")],
    "NaN": [NewItem(b"NaN")],
    "infinity": [NewItem(b"1e999")],
    "half a character": [NewItem(b'"\\ud800"')],
    "not UTF-8": [NewItem(b'"\xff"')],
    "too deep": [NewItem(b"[" * 30_000 + b"]" * 30_000)],
    "key": [NewItem(b"1", "k" * 201)],
    "bytes of a key": [NewItem(b"1", serialize_key="ü" * 128)],
    "serialize key": [NewItem(b"1", serialize_key="@k")],
    "key with a newline": [NewItem(b"1", "a\nb")],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed(name: str) -> None:
    check_flow(ALLOWED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_flow_that_is_refused(name: str) -> None:
    with pytest.raises(RequestInvalid):
        check_flow(REFUSED[name])


@pytest.mark.parametrize("name", ITEMS)
def test_items_that_are_refused(name: str) -> None:
    with pytest.raises(RequestInvalid):
        check_items(ITEMS[name])
    with pytest.raises(RequestInvalid):
        check_flow(flow(items={"one": ITEMS[name]}))


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://hooks.example.org/over", True),
        ("https://HOOKS.example.org:443/over", True),
        ("http://inside:8080/", True),
        ("http://inside/", False),
        ("http://hooks.example.org:443/", True),
        ("https://hooks.example.org:80/", True),
        ("http://hooks.example.org:22/", False),
        ("https://hooks.example.org:8443/", False),
        ("http://hooks.example.org:0/", False),
        ("http://any:1/", True),
        ("http://any:65535/", True),
        ("https://10.0.0.9/", True),
        ("http://10.0.0.9:6379/", False),
        ("http://[fd00::1]/", True),
        ("http://[fd00::1]:6379/", False),
        ("http://[fd00::2]:8080/", True),
        ("http://[fd00::2]/", False),
        ("http://inside:80@evil.org/", False),
        ("http://user:secret@hooks.example.org/", False),
        ("http://evil.org/?x=.example.org", False),
        ("http://evil.org#.example.org", False),
        ("http://example.org.evil.org/", False),
        ("http://127.0.0.1/", False),
        ("http://[::1]/", False),
        ("ftp://hooks.example.org/", False),
        ("//hooks.example.org/", False),
        ("http://hooks.example.org:99999/", False),
        ("http://[/", False),
    ],
)
def test_where_callbacks_may_go_to(url: str, is_allowed: bool) -> None:
    made: Any = None
    hosts = ["*.Example.org", "inside:8080", "any:*", "10.*", "fd00::1", "[FD00::2]:8080"]
    callbacks = FlowCallbacks(made, made, made, made, hosts, "not-so-secret-0123")
    if is_allowed:
        callbacks.check(CompletionCallback(url=url))
        return
    with pytest.raises(RequestInvalid, match=r"flow-callback-hosts|http:..HOST"):
        callbacks.check(CompletionCallback(url=url))
