"""Pages of other sites in an operator's browser: they can neither change, nor read, nor frame anything."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from pinlater.dashboard.site import TABLES
from tests.browser.chromium import visit
from tests.browser.other_site import OtherSite, other_site
from tests.browser.stand import Stand

HOSTS = ("127.0.0.1", "localhost")
"""A neighbour of the site, and a stranger."""

_NAMES = {"queue": "mail", "name": "nightly.report", "shard": "1"}
_FIELDS = {"why": "x", "reason": "x", "csrf": "x" * 43, "filter": "queue:mail state:failed", "action": "delete"}
_FORM = """<form id="{id}" method="post" enctype="{enctype}" action="{action}" target="{id}-frame">{fields}</form>
<iframe name="{id}-frame"></iframe>"""
_ATTACK = """async paths => {
    document.querySelectorAll('form').forEach(form => form.submit());
    const sent = paths.map(path => fetch(path, {method: 'POST', credentials: 'include', mode: 'no-cors',
        headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: 'csrf=x&why=x'}));
    await Promise.allSettled(sent);
    const read = await fetch(paths[0].split('/dashboard')[0] + '/session', {credentials: 'include'}).then(
        answer => answer.text(), error => 'refused');
    return read;
}"""


@pytest.fixture
def other() -> Iterator[OtherSite]:
    with other_site() as other:
        yield other


def _posts(stand: Stand) -> list[str]:
    """Every address that takes a change, with names of things that are there."""
    found = ["/login", "/logout", "/dashboard/links", "/v1/queues/mail/jobs"]
    for table in TABLES:
        for route in table:
            if route.verb == "POST":
                path = route.path.replace("{descriptor}", stand.seeded.jobs["ready"]).replace(
                    "{flow}", stand.seeded.flow
                )
                for name, value in _NAMES.items():
                    path = path.replace(f"{{{name}}}", value)
                found.append(path)
    return found


@pytest.mark.parametrize("host", HOSTS)
def test_a_page_of_another_site_changes_nothing(
    browser: Browser, sqlite_stand: Stand, other: OtherSite, host: str
) -> None:
    stand = sqlite_stand
    paths = [f"{stand.address}{path}" for path in _posts(stand)]
    fields = "".join(f'<input name="{name}" value="{value}">' for name, value in _FIELDS.items())
    kinds = ("application/x-www-form-urlencoded", "text/plain")
    other.page = "".join(
        _FORM.format(id=f"form-{at}-{number}", enctype=kind, action=path, fields=fields)
        for at, path in enumerate(paths)
        for number, kind in enumerate(kinds)
    )
    before = _standing(stand)
    statuses: list[int] = []
    with visit(browser, stand.address, stand.cookies("admin")) as (page, _):
        page.context.on(
            "response", lambda answer: statuses.append(answer.status) if _is_ours(answer.url, stand) else None
        )
        page.goto(other.address(host))
        assert page.evaluate(_ATTACK, paths) == "refused"
        for at in range(len(paths)):
            for number in range(len(kinds)):
                _until_answered(page, f"form-{at}-{number}-frame")
        assert set(statuses) <= {303, 401, 403, 404, 415}, statuses
        assert len(statuses) >= len(paths)
        page.goto("/dashboard")  # the session is as it was
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert _standing(stand) == before


def _is_ours(url: str, stand: Stand) -> bool:
    return url.startswith(stand.address)


def _until_answered(page: Page, name: str) -> None:
    frame = page.frame(name=name)
    assert frame is not None
    frame.wait_for_url(lambda url: url != "about:blank")


def _standing(stand: Stand) -> str:
    """All that a change would leave a trace in."""
    with stand.client() as client:
        audit = client.audit(limit=100)
        queues = client.get_queues()
        status = client.cluster_status()
    levels = [[level.ready, level.failed, level.in_progress] for queue in status.queues for level in queue.levels]
    return json.dumps([[str(each) for each in audit], [str(each) for each in queues], levels])


def test_the_dashboard_is_framed_by_nobody(browser: Browser, sqlite_stand: Stand, other: OtherSite) -> None:
    other.page = f'<iframe name="framed" src="{sqlite_stand.address}/dashboard"></iframe>'
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto(other.address("127.0.0.1"))
        frame = page.frame(name="framed")
        assert frame is not None
        frame.wait_for_load_state()
        assert "PinLater" not in frame.content()
