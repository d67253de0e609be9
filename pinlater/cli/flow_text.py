"""Flows and items as people and programs read them: a drawing of the tree, rows of tables, objects of JSON.

The objects have the names and words of the HTTP interface (docs/http.md).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pinlater.cli.output import Row, counted, json_object, whole
from pinlater.cli.times import time_text
from pinlater.durations import age_text
from pinlater.model.flow_words import (
    CompletionCallback,
    FlowItem,
    FlowState,
    FlowStatus,
    StageStatus,
)
from pinlater.printable import printable
from pinlater.text_table import Column, TextTable, cut_text

LIST_COLUMNS = ("flow", "name", "state", "items", "pending", "failed", "dedupe_key", whole("created", 5), "troubles")
ITEM_COLUMNS = ("item", "stage", "state", "failures", "dedupe_key", "reason")
_BAR = 10
_LABEL_WIDTH = 12
_REASON_CHARS = 100
_PAYLOAD_CHARS = 60


# -- for programs ------------------------------------------------------------------------------------------------------


def flow_json(status: FlowStatus) -> Row:
    return json_object(status)


def flow_row(status: FlowStatus) -> Row:
    """The JSON of before, which had what is as by default too, and no tags and groups."""
    row: dict[str, Any] = {"on_failure": _word(status.on_failure), **flow_json(status)}
    defaults = {"is_final": False, "keeps_open": False, "applet_errors": 0}
    stages = [{key: value for key, value in each.items() if key not in ("tags", "group")} for each in row["stages"]]
    return row | {"stages": [defaults | each for each in stages]}


def item_json(item: FlowItem, *, with_payload: bool) -> Row:
    """`with_payload`: payload and result too, as the JSON values that they are."""
    return json_object(item if with_payload else replace(item, payload=b"", result=None))


def _word(value: Any) -> str:
    """Of one of an IntEnum."""
    return str(value.name.lower())


# -- rows of tables ----------------------------------------------------------------------------------------------------


def list_row(status: FlowStatus) -> Row:
    return {
        "flow": status.id,
        "name": status.name,
        "state": state_text(status),
        "items": sum(each.items for each in status.stages),
        "pending": sum(each.pending for each in status.stages),
        "failed": failed_items(status),
        "dedupe_key": status.dedupe_key or None,
        "created": time_text(status.created_ms),
        "troubles": len(status.troubles) or None,
    }


def item_table_row(item: FlowItem) -> Row:
    """`reason`: why its children could not be made, or of the last failure, where it may be seen."""
    reason = item.applet_error or (item.failures[-1].reason if item.failures else "")
    return {
        "item": item.number,
        "stage": item.stage,
        "state": _word(item.state),
        "failures": len(item.failures),
        "dedupe_key": item.dedupe_key or None,
        "reason": cut_text(reason.strip(), _REASON_CHARS) or None,
        "payload": None if not item.payload else cut_text(item.payload.decode(errors="replace"), _PAYLOAD_CHARS),
        "result": None if not item.result else cut_text(item.result.decode(errors="replace"), _PAYLOAD_CHARS),
    }


def state_text(status: FlowStatus) -> str:
    """One that was cancelled goes on until nothing of it runs; one that is stuck does not go on by itself."""
    if status.state is FlowState.CANCELLED and status.completed_ms is None:
        return "stopping"
    if status.is_stuck:
        return "stuck"
    return _word(status.state)


def failed_items(status: FlowStatus) -> int:
    return sum(each.failed for each in status.stages)


# -- the drawing -------------------------------------------------------------------------------------------------------

_COLUMNS = (
    Column("STAGE", 9),
    Column("DONE", 6, True),
    Column("ITEMS", 8, True),
    Column("WAITING", 3, True),
    Column("QUEUED", 4, True),
    Column("SUCCEEDED", 5, True),
    Column("FAILED", 7, True),
    Column("QUEUE", 2),
    Column("", 7),
)


def picture(status: FlowStatus, now_ms: int, width: int) -> list[str]:
    """All that is known of a flow in lines of a terminal of this width."""
    lines = [
        *_field("flow", f"{status.name} {status.id}", width),
        *_field("state", _state_line(status, now_ms), width),
    ]
    if status.dedupe_key:
        lines += _field("dedupe key", status.dedupe_key, width)
    if status.metadata:
        lines += _field("metadata", ", ".join(f"{key}={value}" for key, value in status.metadata.items()), width)
    rows = [_stage_line(branch, each, is_over=status.completed_ms is not None) for branch, each in _tree(status)]
    lines += ["", *(cut_text(line, width) for line in TextTable(_COLUMNS).lines(rows, width)), ""]
    if status.on_complete is not None:
        lines += _field("callback", callback_text(status, now_ms), width)
    for problem in status.troubles:
        lines += _field("trouble", problem, width)
    if failed_items(status):
        shown = (
            f"{counted(failed_items(status), 'item')} failed: "
            f"`pinlater flow items {status.id} --state failed` says why, "
            f"`pinlater flow retry {status.id} --failed` tries again"
        )
        lines += _field("failed", shown, width)
    return lines if lines[-1] else lines[:-1]


def _field(label: str, text: str, width: int) -> list[str]:
    """In as many lines as it takes."""
    room = max(20, width - _LABEL_WIDTH)
    parts = textwrap.wrap(printable(text), room, break_on_hyphens=False) or [""]
    return [cut_text(f"{label if not at else '':{_LABEL_WIDTH}}{part}", width) for at, part in enumerate(parts)]


def _state_line(status: FlowStatus, now_ms: int) -> str:
    if status.completed_ms is None:
        return f"{state_text(status)}, since {age_text(now_ms - status.created_ms)}"
    took = age_text(status.completed_ms - status.created_ms)
    end = f", its end {status.ends}" if status.ends > 1 else ""
    return f"{state_text(status)} at {time_text(status.completed_ms)}, after {took}{end}"


def _tree(status: FlowStatus) -> Iterator[tuple[str, StageStatus]]:
    """Each stage below its parent, with the branch in front of its name."""
    children: dict[str, list[StageStatus]] = {}
    for each in status.stages:
        children.setdefault(each.stage.parent, []).append(each)

    def below(parent: str, indent: str) -> Iterator[tuple[str, StageStatus]]:
        those = children.get(parent, [])
        for each in those:
            is_last = each is those[-1]
            yield ("" if not parent else f"{indent}{'└─ ' if is_last else '├─ '}"), each
            yield from below(each.stage.name, indent + ("" if not parent else "   " if is_last else "│  "))

    return below("", "")


def _stage_line(branch: str, status: StageStatus, *, is_over: bool) -> list[str]:
    ended = status.succeeded + status.failed
    share = ended / status.items if status.items else 1.0 if status.is_complete else 0.0
    filled = int(share * _BAR)
    return [
        branch + status.stage.name,
        f"{'█' * filled}{'░' * (_BAR - filled)} {int(share * 100):3}%",
        f"{status.items:,}",
        f"{status.pending - status.queued:,}",
        f"{status.queued:,}",
        f"{status.succeeded:,}",
        f"{status.failed:,}",
        status.stage.queue,
        stage_state(status, is_over=is_over),
    ]


def stage_state(status: StageStatus, *, is_over: bool) -> str:
    """`is_over`: of a flow that is."""
    if status.applet_errors:
        items = counted(status.applet_errors, "item")
        return f"{items} without children" if is_over else f"stuck: the children of {items}"
    if status.is_complete:
        return "complete"
    if status.is_sealed:
        return "sealed"
    return "open" if not status.stage.parent or status.stage.keeps_open else ""


def callback_text(status: FlowStatus, now_ms: int) -> str:
    wanted, made = status.on_complete, status.callback
    assert wanted is not None
    what = f"POST to {wanted.url}" if wanted.url else _job_text(wanted)
    if made is None:
        return f"{what}, when the flow is over"
    tries = "1 try" if made.tries == 1 else f"{made.tries} tries"
    if made.done_ms is not None:
        return (
            f"{what}: {f'given up after {tries}: {made.error}' if made.error else f'made at {time_text(made.done_ms)}'}"
        )
    if not made.error:
        return f"{what}, now"
    when = "now" if made.next_ms is None or made.next_ms <= now_ms else f"in {age_text(made.next_ms - now_ms)}"
    return f"{what}: {tries} failed ({made.error}), the next one {when}"


def _job_text(callback: CompletionCallback) -> str:
    return f"job {callback.job} on queue {callback.queue}" if callback.job else f"a job on queue {callback.queue}"


def changes(before: FlowStatus | None, now: FlowStatus) -> Iterator[str]:
    """What is new since, a line for each stage and trouble; all of it where there is no `before`."""
    known = {} if before is None else {each.stage.name: each for each in before.stages}
    for each in now.stages:
        if known.get(each.stage.name) != each:
            ended = each.succeeded + each.failed
            failed = f", {each.failed:,} failed" if each.failed else ""
            state = stage_state(each, is_over=now.completed_ms is not None)
            state = f", {state}" if state else ""
            yield f"{each.stage.name}: {ended:,} of {counted(each.items, 'item')} done{failed}{state}"
    for problem in now.troubles:
        if before is None or problem not in before.troubles:
            yield f"problem: {problem}"
    if before is None or state_text(before) != state_text(now):
        yield f"flow {now.name}: {state_text(now)}"
