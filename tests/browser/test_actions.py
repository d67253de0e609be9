"""Every change that a page offers, on every kind of store: it asks, does what it says, and tells what happened."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from pinlater import Client
from pinlater.dashboard.site import TABLES
from tests.access.cluster import until
from tests.browser.actions import ACTIONS, IN_STEPS, Action, Made
from tests.browser.chromium import visit
from tests.browser.stand import Stand


def test_every_change_of_the_product_is_in_the_table() -> None:
    routes = {route.path for table in TABLES for route in table if route.verb == "POST"}
    assert routes == {action.route for action in ACTIONS} | IN_STEPS


def begin(page: Page, action: Action, made: Made) -> None:
    """Up to the button that sends it."""
    page.goto(action.path.format(**made))
    opened = page.locator(action.opens.format(**made))
    opened.locator("summary").click()
    expect(opened).to_contain_text(action.asks.format(**made))
    for label, text in action.fills.items():
        opened.get_by_label(label).fill(text.format(**made))
    for label, text in action.chooses.items():
        opened.get_by_label(label).select_option(text)


def send(page: Page, action: Action, made: Made) -> None:
    page.locator(action.opens.format(**made)).get_by_role("button", name=action.sends, exact=True).click()


def finish(client: Client, action: Action, made: Made) -> None:
    """The queues go: other tests expect theirs on the first page. Flows and schedules keep what they enqueue to."""
    action.clean_up(client, made)
    if not made.keys() & {"flow", "schedule"}:
        for name in [made[key] for key in ("from", "queue") if key in made]:
            client.delete_queue(name, "")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_an_action_asks_is_done_and_told(browser: Browser, stand: Stand, action: Action) -> None:
    with stand.client() as client, visit(browser, stand.address, stand.cookies("admin")) as (page, watch):
        made = action.prepare(client)
        try:
            begin(page, action, made)
            assert not action.happened(client, made)
            send(page, action, made)
            expect(page.locator("#notices")).to_contain_text(action.tells.format(**made))
            until(lambda: action.happened(client, made))
            if action.audited:
                target = action.audited.format(**made)
                assert any(
                    entry.who.startswith("token:admin (http@") and entry.target == target
                    for entry in client.audit(limit=10)
                )
            watch.check()
        finally:
            finish(client, action, made)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_an_action_needs_no_script(browser: Browser, sqlite_stand: Stand, action: Action) -> None:
    stand = sqlite_stand
    with stand.client() as client, visit(browser, stand.address, stand.cookies("admin"), script=False) as (page, _):
        made = action.prepare(client)
        try:
            begin(page, action, made)
            send(page, action, made)
            expect(page.locator("#notices")).to_contain_text(action.tells.format(**made))
            until(lambda: action.happened(client, made))
        finally:
            finish(client, action, made)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_the_server_refuses_what_a_reader_may_not_do(sqlite_stand: Stand, action: Action) -> None:
    """Who makes the request by hand, with a session and its text against other sites."""
    stand = sqlite_stand
    (cookie,) = stand.cookies("viewer")["cookies"]
    with stand.client() as client, httpx.Client(base_url=stand.address, trust_env=False) as http:
        http.cookies.set(cookie["name"], cookie["value"])
        made = action.prepare(client)
        try:
            csrf = http.get("/session").json()["csrf_token"]
            names = {"shard": "1", "descriptor": made.get("job"), **made, "name": made.get("schedule")}
            path = action.route.format_map(names)
            fields = {
                "csrf": csrf,
                "key": "max_in_progress",
                "value": "7",
                "name": made.get("queue", "x"),
                "when": "+1h",
            }
            answer = http.post(path, data=fields)
            shown = http.get(answer.headers["Location"]).text if answer.status_code == 303 else answer.text
            assert answer.status_code == 403 or 'class="notice bad"' in shown
            assert not action.happened(client, made)
        finally:
            finish(client, action, made)
