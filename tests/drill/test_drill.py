"""The drill: nine faults at once, each of which is one alarm, says the same on every face, and ends when it is mended.

With PINLATER_DRILL_NOTES=FILE it writes there, for each fault, what the first screen and `pinlater alarms` say of it,
and pictures of that screen beside it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pinlater.model.alarm_views import Alarm, Severity
from tests.browser.chromium import visit
from tests.drill.faults import FAULTS, Fault
from tests.drill.stand import Drill, until

pytestmark = [pytest.mark.slow]
SCREEN, SMALL = (1440, 900), (390, 844)
NUMBER = "[0-9][0-9.,]*"
SAME = ("since_ms", "action", "command", "path", "queue")
OpenBrowser = Callable[[], AbstractContextManager[Browser]]
NOTES = "PINLATER_DRILL_NOTES"


def faults_of(place: Drill) -> dict[str, Fault]:
    return {name: each for name, each in FAULTS.items() if each.condition != "disk_low" or place.has_disk}


def key_of(place: Drill, fault: Fault) -> tuple[str, str]:
    """The alarm of a fault. The subject of a disk is its server, which named itself."""
    if fault.condition == "disk_low":
        (server,) = {each.server for each in place.client.cluster_status().servers}
        return fault.condition, server
    return fault.condition, fault.subject or place.subjects[fault.condition]


@pytest.fixture(scope="module")
def alarms(place: Drill) -> Mapping[str, Alarm]:
    """All faults are made, and of each the alarm is there within its bound."""
    made_s: dict[str, float] = {}
    faults = faults_of(place)
    for name, fault in faults.items():
        fault.make(place)
        made_s[name] = time.monotonic()
    late: dict[str, float] = {}
    for name, fault in faults.items():
        place.until_alarms(lambda keys, fault=fault: key_of(place, fault) in keys, f"{name} is an alarm")
        late[name] = time.monotonic() - made_s[name] - fault.within_s
    assert {name: over_s for name, over_s in late.items() if over_s > 0} == {}
    place.judged()
    standing = place.alarms()
    return {name: standing[key_of(place, fault)] for name, fault in faults.items()}


def test_each_fault_is_one_alarm_and_nothing_else_is_told(place: Drill, alarms: Mapping[str, Alarm]) -> None:
    faults = faults_of(place)
    assert place.alarms().keys() == {key_of(place, fault) for fault in faults.values()}
    for name, alarm in alarms.items():
        assert {each.name for each in alarm.absorbed} <= faults[name].absorbed, name


def test_each_says_what_since_when_how_bad_why_and_what_to_do(place: Drill, alarms: Mapping[str, Alarm]) -> None:
    listed = place.shell("alarms").out
    standing = place.alarms()
    for name, made in alarms.items():
        fault, alarm = FAULTS[name], standing[made.key]  # on a busy machine it says more by now than it first did
        assert alarm.severity is fault.severity
        assert alarm.since_ms <= place.client.get_alarms().now_ms
        assert all((alarm.title, alarm.why, alarm.action, alarm.command, alarm.path)), alarm
        found = [each for each in paragraphs(listed) if alarm.action in each and f"$ {alarm.command}" in each]
        assert len(found) == 1, (name, alarm.action, alarm.command)
        (paragraph,) = found
        for text in fault.says:
            assert text in paragraph, name
        assert alarm.size or alarm.impact, name


def paragraphs(listed: str) -> list[str]:
    """Of `pinlater alarms`, one for each alarm."""
    return re.split(r"\n(?=\S)", listed)


def test_every_face_says_the_same(place: Drill, alarms: Mapping[str, Alarm]) -> None:
    by_key = {each.key: each for each in alarms.values()}
    listed = json.loads(place.shell("alarms", "-o", "json").out)
    answered = httpx.get(f"{place.site}/v1/alarms", headers={"Accept": "application/json"}).json()["alarms"]
    until(lambda: place.receiver.sent().keys() >= by_key.keys(), "the webhook is told of all")
    sent = place.receiver.sent()
    assert sent.keys() == by_key.keys()
    for face in (listed, answered, list(sent.values())):
        assert {(each["name"], each["subject"]) for each in face} == by_key.keys()
        for each in face:
            alarm = by_key[each["name"], each["subject"]]
            assert each["severity"] == str(alarm.severity)
            assert [each.get(name, "") for name in SAME] == [getattr(alarm, name) for name in SAME]
            assert {one["name"] for one in each.get("absorbed", ())} == {one.name for one in alarm.absorbed}
    checked = place.shell("check", code=2).out
    top = place.shell("top", "--once", COLUMNS="4000").out
    assert f"{len(alarms)} alarms: {max_of(alarms).title}" in top
    for alarm in alarms.values():
        assert untimed(alarm.title) in untimed(top)
        is_checked = alarm.severity is not Severity.INFO
        assert (untimed(alarm.title) in untimed(checked)) == is_checked or alarm.name == "shard_out"
    assert "shard 2" in checked.lower()


def untimed(text: str) -> str:
    """Without what goes on: ages, and numbers of jobs."""
    return re.sub(NUMBER, "N", text)


def max_of(alarms: Mapping[str, Alarm]) -> Alarm:
    """The worst."""
    return min(alarms.values(), key=lambda each: each.order)


def test_the_first_screen_has_all_and_one_click_leads_to_the_cause(
    place: Drill, alarms: Mapping[str, Alarm], browser: OpenBrowser
) -> None:
    """On a desk nothing has to be scrolled to; on a phone the alarms come first."""
    screens, notes = dict[str, str](), []
    with browser() as opened:
        with visit(opened, place.site, place.session(), size=SCREEN) as (page, watch):
            for name, alarm in alarms.items():
                page.goto("/dashboard")
                card = card_of(page, alarm)
                screens[name] = card.inner_text()
                assert bottom_of(card) <= SCREEN[1], f"{name} has to be scrolled to"
                card.get_by_role("link").first.click()
                page.wait_for_url(f"**{alarm.path}")
                for text in FAULTS[name].cause:
                    expect(page.locator("main"), f"the cause of {name}").to_contain_text(text)
            page.goto("/dashboard")
            expect(page.locator("[data-alarm]")).to_have_count(len(alarms))
            picture(page, "desk")
            assert f"({len(alarms)})" in page.title()
            watch.check()
        with visit(opened, place.site, place.session(), size=SMALL) as (page, watch):
            page.goto("/dashboard")
            last = max(bottom_of(card) for card in page.locator(".alarm").all())
            assert last <= top_of(page.locator(".figures"))
            assert top_of(page.locator(".alarm").first) < SMALL[1] / 4
            picture(page, "phone")
            watch.check()
    listed = paragraphs(place.shell("alarms").out)
    for name, alarm in alarms.items():
        for text in (alarm.title, alarm.action, alarm.command, alarm.impact):
            assert untimed(text).lower() in untimed(screens[name]).lower(), (name, screens[name])
        assert re.search(r"\bfor \d", screens[name]), f"{name} says not since when"
        (paragraph,) = [each for each in listed if untimed(alarm.title) in untimed(each)]
        notes.append(f"## {name}\n\nclicks to the cause: 1 ({alarm.path})\n\n{screens[name]}\n\n{paragraph}\n")
    if file := os.environ.get(NOTES):
        Path(file).write_text("\n".join(notes))


def picture(page: Page, name: str) -> None:
    """Of the whole page, where notes are taken."""
    if file := os.environ.get(NOTES):
        page.screenshot(path=Path(file).with_suffix(f".{name}.png"), full_page=True)


def card_of(page: Page, alarm: Alarm) -> Locator:
    title = re.compile(NUMBER.join(map(re.escape, re.split(NUMBER, alarm.title))))
    return page.locator(f"[data-alarm={alarm.name}]").filter(has_text=title)


def top_of(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["y"]


def bottom_of(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def test_each_ends_by_itself_when_it_is_mended(place: Drill, alarms: Mapping[str, Alarm], browser: OpenBrowser) -> None:
    faults = faults_of(place)
    for name, fault in faults.items():
        if fault.mend is not None:
            fault.mend(place, alarms[name])
    left = {key_of(place, fault) for fault in faults.values() if fault.mend is None}
    place.until_alarms(lambda keys: keys <= left, "no alarm is left")
    ended = {each.key for each in place.client.get_alarms(ended=True).alarms}
    assert ended >= {each.key for each in alarms.values()} - left
    with browser() as opened, visit(opened, place.site, place.session(), size=SCREEN) as (page, _):
        page.goto("/dashboard")
        expect(page.locator("[data-alarm]")).to_have_count(len(left))


def test_the_webhook_is_told_of_the_ends(place: Drill, alarms: Mapping[str, Alarm]) -> None:
    """Of a condition it hears once a minute."""
    mended = {key_of(place, fault) for fault in faults_of(place).values() if fault.mend is not None}
    until(lambda: place.receiver.sent("ended").keys() >= mended, "the webhook is told of all ends", 120.0)
