"""Every page, wide and narrow, light and dark: axe finds nothing, and nothing is cut off or has to be scrolled to."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import DESK, PHONE, visit
from tests.browser.pages import PAGES, ShownPage
from tests.browser.stand import Stand

_RUN = """rules => axe.run(document, rules.length ? {runOnly: {type: 'rule', values: rules}} : {}).then(
    found => found.violations.map(each => [each.id, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"""
_WIDER = """width => [...document.querySelectorAll('body *')].filter(each => {
    const box = each.getBoundingClientRect();
    if (box.right <= width + 1 || !box.width || !each.checkVisibility({visibilityProperty: true})) return false;
    for (let up = each.parentElement; up; up = up.parentElement)
        if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)) return false;
    return true;
}).slice(0, 3).map(each => each.outerHTML.slice(0, 200))"""
_A_UNIT = """() => {
    const cell = document.querySelector('td[data-label=Enqueued]');
    cell.className = 'n';
    cell.innerHTML = '7.6 <span class="unit">/s</span>';
}"""
"""As a queue has it in which something happens."""

_APART = """() => {
    const unit = document.querySelector('td .unit'), number = document.createRange();
    number.selectNode(unit.previousSibling);
    return unit.getBoundingClientRect().left - number.getBoundingClientRect().right;
}"""
MOST_TOP, NEAR = 92, 8
OPENED = "document.querySelectorAll('main details').forEach(each => each.open = true)"


@pytest.mark.parametrize("shown_page", PAGES, ids=lambda page: page.name)
def test_a_page_is_accessible(browser: Browser, axe: str, sqlite_stand: Stand, shown_page: ShownPage) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto(shown_page.address(sqlite_stand.seeded))
        page.evaluate("document.body.dataset.live = 'off'")
        check_width(page, DESK)
        assert violations(page, axe) == []
        page.emulate_media(color_scheme="dark")
        assert violations(page, axe, "color-contrast") == []
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        page.evaluate(OPENED)  # every form that a button opens
        check_width(page, PHONE)
        check_top(page)
        assert violations(page, axe, "color-contrast") == []
        page.emulate_media(color_scheme="light")
        assert violations(page, axe) == []


def check_width(page: Page, size: tuple[int, int]) -> None:
    """Nothing has to be scrolled to."""
    assert page.evaluate(_WIDER, size[0]) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def check_top(page: Page) -> None:
    """On a phone it has a line of buttons and one of pages, where the present one is in sight."""
    top = page.locator("header.top").bounding_box()
    assert top is not None
    assert top["height"] < MOST_TOP
    for here in page.locator(".nav [aria-current]").all():
        expect(here).to_be_in_viewport(ratio=1)


def test_a_phone_shows_a_number_beside_its_unit(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator"), size=PHONE) as (page, _):
        page.goto("/dashboard/queues")
        page.evaluate("document.body.dataset.live = 'off'")
        page.evaluate(_A_UNIT)
        assert page.evaluate(_APART) < NEAR


def violations(page: Page, axe: str, *rules: str) -> Any:
    """What axe finds, by all of its rules or by these; run past the policy of the page, which lets in no script."""
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": axe})
    return page.evaluate(_RUN, list(rules))
