"""The tables of docs/access.md: what each call and each route needs, from the tables of methods and routes.

`python -m tests.packaging.access_table` writes them anew; a test compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinlater.http.routes import ROUTES
from pinlater.wire.flow_methods import CREATE_FLOW, GET_FLOWS
from pinlater.wire.method import (
    any_queue,
    every_queue,
    queue_of_item,
    queue_of_stage,
    queue_or_every,
    queues_of_flow,
    queues_or_any,
    queues_or_every,
)
from pinlater.wire.methods import DEQUEUE, LOOKUP, METHODS, Access, Method
from pinlater.wire.operator_methods import UPDATE_QUEUE

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
HEADING = "## What each call needs\n"

_QUEUES = {
    every_queue: "all",
    any_queue: "one at least; the answer has those that the caller may read",
    queues_or_any: "those it names, else one at least; the answer has those that the caller may read",
    queues_or_every: "those it names, else all",
    queue_or_every: "the one it names, else all",
    queues_of_flow: "those of all stages of the flow",
    queue_of_stage: "that of the stage it names, else those of all stages",
    queue_of_item: "that of the item",
}
_TEXT = """Where a row names two actions, one of them is enough.
A call that names no queue needs its action on all queues (`*`) where it says so.
A flow is FLOW_NOT_FOUND for a caller that may neither make the call nor read the queues of all its stages.
An item is ITEM_NOT_FOUND for one that may not consume its queue.
"""
_REMARKS = {
    DEQUEUE.name: "For a dry run read is enough, where bodies may be seen.",
    LOOKUP.name: "With bodies or results, these must not be hidden.",
    CREATE_FLOW.name: "With those of applets and the callback. The first flow on a queue needs operate too.",
    GET_FLOWS.name: "To read a flow needs read on the queues of all its stages.",
    UPDATE_QUEUE.name: "With the dead-letter queue that it sets.",
}


def section() -> str:
    """The section, its heading too."""
    rows = "".join(_row(method) for method in METHODS.values())
    return (
        f"{HEADING}{_TEXT}\n| call | needs | on the queues | admin password instead | remark |\n"
        f"| --- | --- | --- | --- | --- |\n{rows}{_routes()}{_PAGES}"
    )


_PAGES = "\nThe rest of what a server answers over HTTP:\n\n| address | needs |\n| --- | --- |\n" + "".join(
    f"| {address} | {needs} |\n"
    for address, needs in (
        (
            "`/`, `/metrics`, `/livez`, `/readyz` of `--http`",
            "nothing: bind it where only your monitoring reaches it; browsers see the page under `/` only under its "
            "own names",
        ),
        ("`/healthz`, `/metrics` of `pinlater-worker --http`", "nothing"),
        (
            "`/v1/openapi.json`, all below `/docs`, `/login`, `/session`, `/logout` of `--api`",
            "nothing: they show no job and no queue",
        ),
        (
            "`/v1/events` of `--api`",
            "read on the queue it names, else as getClusterStatus; events are read with the caller's own rights",
        ),
        ("`/metrics` of `--api`", "read on all queues"),
    )
)


def _routes() -> str:
    """Those of the HTTP interface, by the call that each makes."""
    rows = "".join(
        f"| `{route.verb} {route.path}` | {route.method.name} | {' or '.join(route.method.actions) or 'nothing'} |\n"
        for route in sorted(ROUTES, key=lambda route: (route.path, route.verb))
    )
    return (
        "\nOver HTTP each route makes one call, and needs what that call needs:\n\n"
        f"| route | call | needs |\n| --- | --- | --- |\n{rows}"
    )


def _row(method: Method[Any]) -> str:
    needs = " or ".join(method.actions) or "nothing"
    queues = _QUEUES.get(method.queues, "those it names") if method.actions else ""
    password = "yes" if method.access is Access.ADMIN_PASSWORD else ""
    remark = _REMARKS.get(method.name, "")
    if not remark and method.shows_bodies is not None:
        remark = "With bodies, or a pattern over them, these must not be hidden."
    return f"| {method.name} | {needs} | {queues} | {password} | {remark} |\n"


def with_section(text: str) -> str:
    """The page with the section as it is now, in the place of the one there, else at its end."""
    before, found, rest = text.partition(HEADING)
    after = "\n" + rest[rest.index("\n## ") + 1 :] if found and "\n## " in rest else ""
    return before.rstrip() + "\n\n" + section() + after


if __name__ == "__main__":
    beside = PAGE.with_suffix(".new")  # so that a run which is cut short leaves the page whole
    beside.write_text(with_section(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    beside.replace(PAGE)
