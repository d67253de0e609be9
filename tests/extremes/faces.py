"""The faces of a server: every way by which people and programs are shown what it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click

from pinlater.cli import main
from pinlater.dashboard.site import TABLES
from pinlater.http.routes import ROUTES
from tests.extremes.sending import Sent

NOTHING_STORED = None
"""A command that shows nothing of what callers have sent."""

Words = tuple[str, ...]
SETTINGS_QUEUE, JOB, FLOW, QUEUE, SCHEDULE = "{queue}", "{descriptor}", "{flow}", "{queue}", "{schedule}"

COMMANDS: dict[str, Words | None] = {
    "serve": NOTHING_STORED,
    "api openapi": NOTHING_STORED,
    "dashboard": NOTHING_STORED,
    "completion": NOTHING_STORED,
    "export": NOTHING_STORED,
    "import": NOTHING_STORED,
    "history check": NOTHING_STORED,
    "history finish": NOTHING_STORED,
    "history show": NOTHING_STORED,
    "mcp": NOTHING_STORED,  # JSON, for programs
    "admin hash-password": NOTHING_STORED,
    "access check": NOTHING_STORED,
    "access test": NOTHING_STORED,
    "token create": NOTHING_STORED,
    "token revoke": NOTHING_STORED,
    "queue create": NOTHING_STORED,
    "queue delete": NOTHING_STORED,
    "queue drain": NOTHING_STORED,
    "queue pause": NOTHING_STORED,
    "queue resume": NOTHING_STORED,
    "queue set": NOTHING_STORED,
    "queue set-rate": NOTHING_STORED,
    "queue unset": NOTHING_STORED,
    "queue replay": (QUEUE, "--dry-run"),
    "queue list": (),
    "queue show": (SETTINGS_QUEUE,),
    "queue stats": (),
    "group list": (QUEUE,),
    "group show": (QUEUE, "{group}"),
    "group set": NOTHING_STORED,
    "group unset": NOTHING_STORED,
    "group pause": NOTHING_STORED,
    "group resume": NOTHING_STORED,
    "group clear": NOTHING_STORED,
    "job enqueue": NOTHING_STORED,
    "job reschedule": NOTHING_STORED,
    "job get": (JOB, "--body"),
    "job log": (JOB,),
    "job wait": NOTHING_STORED,
    "job cancel": NOTHING_STORED,
    "job count": (QUEUE, "--state", "pending"),
    "job scan": (QUEUE, "--state", "pending", "--future"),
    "job retry": (QUEUE, "--dry-run"),
    "job delete": (QUEUE, "--state", "failed", "--dry-run"),
    "schedule delete": NOTHING_STORED,
    "schedule set": NOTHING_STORED,
    "schedule run": NOTHING_STORED,
    "schedule pause": NOTHING_STORED,
    "schedule resume": NOTHING_STORED,
    "schedule list": (),
    "schedule show": (SCHEDULE,),
    "schedule next": (SCHEDULE,),
    "flow add": NOTHING_STORED,
    "flow cancel": NOTHING_STORED,
    "flow create": NOTHING_STORED,
    "flow delete": NOTHING_STORED,
    "flow resume": NOTHING_STORED,
    "flow retry": NOTHING_STORED,
    "flow seal": NOTHING_STORED,
    "flow wait": NOTHING_STORED,
    "flow list": (),
    "flow status": (FLOW,),
    "flow items": (FLOW,),
    "shard drain": NOTHING_STORED,
    "shard give-up": NOTHING_STORED,
    "shard move": NOTHING_STORED,
    "shard list": (),
    "shard health": (),
    "bodies move": NOTHING_STORED,
    "bodies sweep": NOTHING_STORED,
    "bodies verify": NOTHING_STORED,
    "bodies status": (),
    "worker list": (),
    "alarms mute": NOTHING_STORED,
    "alarms unmute": NOTHING_STORED,
    "alarms list": (),
    "worker quiet": NOTHING_STORED,
    "worker resume": NOTHING_STORED,
    "worker stop": NOTHING_STORED,
    "cluster status": (),
    "top": ("--once",),
    "watch": ("--for", "1ms", "--interval", "10ms"),
    "check": (),
    "token list": (),
    "access show": (),
    "access usage": (),
    "audit": (),
}
"""By the words of a command, its arguments; without a row for it the test fails."""

EVERY_STATE = tuple(f"?state={state}" for state in ("pending", "in_progress", "succeeded", "failed"))
QUERIES = {
    "/v1/jobs/{descriptor}": ("?include_body=true&include_result=true",),
    "/v1/queues/{queue}/jobs": (*EVERY_STATE, "?state=pending&future=true"),
    "/v1/queues/{queue}/jobs/count": EVERY_STATE,
    "/v1/flows/{flow}/items": ("?include_body=true",),
    "/job/{job}/status": (),
    "/job_item": (),
    "/v1/workers": ("?include_running=true",),
    "/v1/schedules": ("?include_body=true",),
    "/dashboard/runs/new": ("?action=cancel&filter=queue:{queue}",),
}
"""By path; none: those of the Async Service name jobs of their own."""

QUESTIONS: dict[str, dict[str, Any]] = {
    "/v1/lookup": {"descriptors": [JOB], "include_body": True, "include_result": True},
    "/v1/queues/{queue}/jobs/search": {"include_body": True, "limit": 1_000},
}
"""By path of the HTTP interface, the form of what is asked by POST and changes nothing; one without a row fails."""

NOT_OF_CALLERS = {"/dashboard/runs/{run}"}
"""A run is of the dashboard itself."""

_PATTERN = re.compile(r"\{(\w+):(?:[^{}]|\{[^{}]*\})*\}")


def commands_of(command: click.Command, words: Words = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands_of(found, (*words, name))


def shown_by_commands(sent: Sent) -> Iterator[Words]:
    """The command lines, each in every form of its output."""
    for words, command in commands_of(main):
        row = COMMANDS[words]
        if row is None:
            continue
        forms = next((each.type.choices for each in command.params if each.name == "format"), None)
        for arguments in _filled(sent, row):
            for form in forms or ("",):
                yield (*words.split(), *arguments, *(("-o", form) if form else ()))


def shown_by_http(sent: Sent) -> Iterator[str]:
    """The paths of the HTTP interface, with what its forms may ask for."""
    for route in ROUTES:
        if route.verb == "GET":
            for query in QUERIES.get(route.path, ("",)):
                yield from (path for (path,) in _filled(sent, (f"{route.path}{query}",)))


def asked_by_http(sent: Sent) -> Iterator[tuple[str, str]]:
    """The paths of its questions, and their forms as JSON."""
    for path, form in QUESTIONS.items():
        yield from ((words[0], words[1]) for words in _filled(sent, (path, json.dumps(form))))


def shown_by_dashboard(sent: Sent) -> Iterator[str]:
    for route in (each for table in TABLES for each in table):
        if route.verb == "GET" and route.path not in NOT_OF_CALLERS:
            for query in QUERIES.get(route.path, ("",)):
                path = _PATTERN.sub(r"{\1}", route.path)
                yield from (path for (path,) in _filled(sent, (f"{path}{query}",)))


def _filled(sent: Sent, words: Words) -> Iterator[Words]:
    """The words once for each thing that they may be about."""
    name = next((name for name in sent.shown if any(f"{{{name}}}" in word for word in words)), None)
    if name is None:
        yield words
        return
    for value in sent.shown[name]:
        yield from _filled(sent, tuple(word.replace(f"{{{name}}}", value) for word in words))
