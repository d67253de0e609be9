"""The size of what one call leaves in the memory of every server: no text of an entry is longer than its bound."""

from __future__ import annotations

import pytest

from pinlater.errors import PinLaterError
from pinlater.flows.flow_limits import check_flow
from pinlater.model import ScheduleChange
from pinlater.model.flow_words import Applet, AppletKind, CompletionCallback, NewFlow, NewItem, Stage
from pinlater.queues.changes import MAX_TEXT_CHARS, Author, changed
from pinlater.queues.settings import SETTINGS
from pinlater.schedules import record
from pinlater.schedules.record import MAX_BODY_BYTES

NOW_MS = 1_790_000_000_000
MANY = 200_000
CRON = "0 3 * * *"
ENTRY_CHARS = 2 * MAX_BODY_BYTES
"""Of a schedule, whose body is written in base64."""


@pytest.mark.parametrize(
    "change",
    [
        {"cron": CRON + " " * MANY},
        {"cron": " " * MANY + CRON},
        {"cron": "@hourly" + " " * MANY},
        {"cron": "0," * MANY + CRON},
        {"timezone": "Europe/Berlin" + " " * MANY},
        {"timezone": "./" * MANY + "UTC"},
        {"made_by": "x" * MANY},
        {"serialize_key": "x" * MANY},
        {"body": b"x" * MANY},
    ],
    ids=range(9),
)
def test_a_schedule_is_refused_or_stays_small(change: dict[str, object]) -> None:
    values = {"cron": CRON, "queue": "mail", **change}
    with pytest.raises(PinLaterError):
        record.changed(None, ScheduleChange(name="s", **values), "ann", NOW_MS)  # type: ignore[arg-type]
    largest = ScheduleChange(name="s", queue="mail", cron=CRON, body=b"x" * MAX_BODY_BYTES)
    assert len(record.changed(None, largest, "ann", NOW_MS).text()) < ENTRY_CHARS


@pytest.mark.parametrize("padded", ["{} ", " {}", "0{}", "{}0", "disk: queue {}", "disk: caller {}", "{}"])
def test_no_setting_of_a_queue_is_longer_than_its_bound(padded: str) -> None:
    for setting in SETTINGS:
        if setting.by_server:
            continue
        for value in ("1", "x", "1s", "0.5/s", "true", "none"):
            text = padded.replace("{}", value + "0" * MANY) if padded.strip("{} ") else padded.replace(" ", " " * MANY)
            text = text.replace("{}", value)
            try:
                texts = changed({}, {setting.name: text, "paused": "true"}, (), Author("ann", NOW_MS))
            except PinLaterError:
                continue
            assert max(map(len, texts.values())) <= MAX_TEXT_CHARS, setting.name


def flow(**stage: object) -> NewFlow:
    return NewFlow("f", [Stage(**{"name": "s", "job": "j", "queue": "q", **stage})])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "new",
    [
        NewFlow("f" * MANY, [Stage("s", "s", "q")]),
        NewFlow("f", [Stage("s", "s", "q")], "k" * MANY),
        NewFlow("f", [Stage("s", "s", "q")], metadata={"k": "v" * MANY}),
        NewFlow("f", [Stage("s", "s", "q")], metadata={str(number): "" for number in range(1_000)}),
        NewFlow("f", [Stage("s", "s", "q")], on_complete=CompletionCallback("q", "j" * MANY)),
        NewFlow("f", [Stage("s", "s", "q")], on_complete=CompletionCallback(url="http://h/" + "x" * MANY)),
        NewFlow("f", [Stage(f"s{number}", "s", "q") for number in range(1_000)]),
        NewFlow("f", [Stage("s", "s", "q")], items={"s": [NewItem(b"1" * MANY)]}),
        NewFlow("f", [Stage("s", "s", "q")], items={"s": [NewItem(b"1")] * 1_001}),
        NewFlow("f", [Stage("s", "s", "q")], items={"s": [NewItem(b'"%s"' % (b"x" * 60_000))] * 100}),
        NewFlow("f", [Stage("s", "s", "q")], items={"s": [NewItem(b"1", "k" * MANY)]}),
        NewFlow("f", [Stage("s", "s", "q")], items={"s": [NewItem(b"1", "", "k" * MANY)]}),
        flow(name="s" * MANY),
        flow(job="j" * MANY),
        NewFlow("f", [Stage("r", "r", "q"), Stage("s", "s", "q", "r", Applet(AppletKind.MAP, "[p" + " " * MANY))]),
        NewFlow("f", [Stage("r", "r", "q"), Stage("s", "s", "q", "r", Applet(AppletKind.JOB, "", "j" * MANY, "q"))]),
    ],
    ids=range(16),
)
def test_a_flow_with_a_text_or_a_list_beyond_its_bound_is_refused(new: NewFlow) -> None:
    check_flow(flow())
    with pytest.raises(PinLaterError):
        check_flow(new)
