"""The drawing of a flow, in all widths, and the lines of what is new in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinlater.cli.flow_text import callback_text, changes, item_json, item_table_row, picture
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CallbackStatus,
    CompletionCallback,
    FlowItem,
    FlowState,
    FlowStatus,
    ItemFailure,
    ItemState,
    Stage,
    StageStatus,
)

NOW_MS = 1_790_000_000_000


def stage(
    name: str, parent: str, items: int, pending: int, queued: int, failed: int = 0, stuck: int = 0
) -> StageStatus:
    made = Stage(name, "", f"{name}_queue", parent, Applet(AppletKind.MAP, "payload") if parent else Applet())
    return StageStatus(made, items, pending, queued, items - pending - failed, failed, stuck, is_sealed=not pending)


STATUS = FlowStatus(
    "f1d0",
    "payroll\x1b",
    FlowState.RUNNING,
    "2026-11",
    {"month": "11"},
    [
        stage("calculate", "", 10_000, 0, 0, failed=3),
        stage("pay", "calculate", 9_997, 4_997, 1_000),
        stage("archive", "calculate", 0, 0, 0, stuck=2),
        stage("notify", "pay", 0, 0, 0),
    ],
    NOW_MS - 61_000,
    None,
    on_complete=CompletionCallback("reports", "report_done"),
    troubles=["the children of 2 items of stage archive could not be made: no list; `pinlater flow resume f1d0`"],
)


def test_the_tree_has_each_stage_below_its_parent_with_its_numbers() -> None:
    lines = picture(STATUS, NOW_MS, 160)
    rows = [line.split() for line in lines[5:10]]
    assert lines[0].split() == ["flow", r"payroll\x1b", "f1d0"]
    assert [row[:-1] if row[-1] == "complete" else row for row in rows] == [
        ["STAGE", "DONE", "ITEMS", "WAITING", "QUEUED", "SUCCEEDED", "FAILED", "QUEUE"],
        ["calculate", "██████████", "100%", "10,000", "0", "0", "9,997", "3", "calculate_queue"],
        ["├─", "pay", "█████░░░░░", "50%", "9,997", "3,997", "1,000", "5,000", "0", "pay_queue"],
        ["│", "└─", "notify", "██████████", "100%", "0", "0", "0", "0", "0", "notify_queue"],
        [
            "└─",
            "archive",
            "░░░░░░░░░░",
            "0%",
            *"00000",
            "archive_queue",
            *["stuck:", "the", "children", "of", "2", "items"],
        ],
    ]
    text = " ".join(" ".join(lines).split())
    for told in ("since 1m1s", "month=11", "`pinlater flow resume f1d0`", "3 items failed: `pinlater flow items f1d0"):
        assert told in text


@pytest.mark.parametrize("width", [1, 20, 40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_what_matters_stays(width: int) -> None:
    lines = picture(STATUS, NOW_MS, width)
    assert max(map(len, lines)) <= width
    if width >= 60:
        text = "\n".join(lines)
        for word in ("ITEMS", "FAILED", "9,997", "stuck", "resume f1d0`"):
            assert word in text


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (None, "job report_done on queue reports, when the flow is over"),
        (CallbackStatus("c", 0, "", NOW_MS, None), "job report_done on queue reports, now"),
        (CallbackStatus("c", 1, "", None, NOW_MS), "made at 2026-09-21T14:13:20.000Z"),
        (
            CallbackStatus("c", 1, "gone", NOW_MS + 2_000, None),
            "1 try failed (gone), the next one in 2s",
        ),
        (CallbackStatus("c", 10, "refused", None, NOW_MS), "given up after 10 tries: refused"),
    ],
)
def test_the_callback_is_told(callback: CallbackStatus | None, told: str) -> None:
    assert callback_text(replace(STATUS, callback=callback), NOW_MS).endswith(told)


def test_a_flow_that_is_over_says_when_and_after_how_long() -> None:
    over = replace(STATUS, state=FlowState.CANCELLED, completed_ms=NOW_MS, on_complete=None)
    assert picture(over, NOW_MS, 120)[1].endswith("cancelled at 2026-09-21T14:13:20.000Z, after 1m1s")
    assert "stopping, since" in picture(replace(over, completed_ms=None), NOW_MS, 120)[1]


def test_only_what_is_new_is_told() -> None:
    assert list(changes(STATUS, STATUS)) == []
    later = replace(
        STATUS,
        state=FlowState.COMPLETE,
        completed_ms=NOW_MS,
        stages=[STATUS.stages[0], stage("pay", "calculate", 9_997, 0, 0, failed=1), *STATUS.stages[2:]],
        troubles=[*STATUS.troubles, "no worker"],
    )
    assert list(changes(STATUS, later)) == [
        "pay: 9,997 of 9,997 items done, 1 failed, complete",
        "problem: no worker",
        "flow payroll\x1b: complete",
    ]
    assert len(list(changes(None, STATUS))) == 6


def test_an_item_is_a_row_with_its_last_failure_or_an_object_with_all() -> None:
    failures = [ItemFailure(1, NOW_MS, "w1", "first"), ItemFailure(2, NOW_MS, "w2", "x" * 200)]
    item = FlowItem(
        *(7, "f1d0", "pay", ItemState.FAILED, b'{"a": 1.50}', None, failures, "k", "", None, NOW_MS, NOW_MS, "q:1:p1:1")
    )
    row = item_table_row(item)
    assert (row["item"], row["failures"], row["reason"]) == (7, 2, "x" * 97 + "...")
    told = item_json(item, with_payload=True)
    assert (told["payload"], len(told["failures"]), "result" in told, "retry_at_ms" in told) == (
        {"a": 1.5},
        2,
        False,
        False,
    )
    assert "payload" not in item_json(item, with_payload=False)
    assert item_table_row(replace(item, applet_error="no list"))["reason"] == "no list"
