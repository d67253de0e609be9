"""Cursors of every list: one that no page has given is refused, and so is one of another list."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from pinlater.http.routes import ROUTES
from tests.http.calls import PASSWORD, Caller
from tests.http.test_flows import made

LISTS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "scan_jobs": ("GET", "/v1/queues/{queue}/jobs?state=pending&", None),
    "change_jobs": ("POST", "/v1/queues/{queue}/jobs/change", {"action": "cancel"}),
    "search_jobs": ("POST", "/v1/queues/{queue}/jobs/search", {}),
    "change_found_jobs": ("POST", "/v1/queues/{queue}/jobs/search/change", {"action": "cancel"}),
    "get_flows": ("GET", "/v1/flows?", None),
    "get_flow_items": ("GET", "/v1/flows/{flow}/items?", None),
    "get_jobs": ("GET", "/job?", None),
    "get_job_status": ("GET", "/job/{flow}/status?", None),
    "get_job_items": ("GET", "/job_item?jobId={flow}&", None),
    "get_workers": ("GET", "/v1/workers?", None),
    "get_groups": ("GET", "/v1/queues/{queue}/groups?", None),
    "clear_groups": ("DELETE", "/v1/queues/{queue}/groups?", None),
    "get_audit": ("GET", "/v1/audit?", None),
    "get_schedules": ("GET", "/v1/schedules?", None),
}
NO_CURSORS = ("nonsense", "-1", "17", "0/", "a/b", "🦆", "x" * 300)
BY_NUMBER = {"get_flows", "get_flow_items", "get_jobs", "get_job_items"}
"""Any number is a place in them: whoever follows a flow goes on behind the last item that it has seen."""


def test_every_list_is_among_them() -> None:
    has_cursor = {
        route.name
        for route in ROUTES
        for form in (route.form, route.query)
        if form is not None and "cursor" in form.__struct_fields__
    }
    assert has_cursor == set(LISTS)


@pytest.mark.parametrize("name", LISTS)
def test_a_cursor_that_no_page_has_given_is_refused(caller: Caller, queue: str, name: str) -> None:
    verb, path, form = LISTS[name]
    path = path.format(queue=queue, flow=made(caller, queue, 1) if "{flow}" in path else "")
    for cursor in NO_CURSORS:
        where, body = (
            (path, {**form, "cursor": cursor}) if form is not None else (f"{path}cursor={quote(cursor)}", None)
        )
        if name in BY_NUMBER and cursor.isdecimal():
            caller.done(verb, where, body)
        else:
            assert caller.refused(verb, where, body, X_Admin_Password=PASSWORD)[:2] == (400, "CONTINUATION_INVALID"), (
                cursor
            )


def test_a_cursor_counts_for_the_list_alone_that_gave_it(caller: Caller, queue: str) -> None:
    for name in ("0", f"{queue}.b", f"{queue}.c"):
        caller.done("PATCH", f"/v1/schedules/{name}", {"queue": queue, "cron": "0 3 * * *"}, X_Admin_Password=PASSWORD)
    seen: list[str] = []
    cursor = ""
    while len(seen) < 5:
        page = caller.done("GET", f"/v1/schedules?queue={queue}&limit=1&cursor={quote(cursor)}")
        seen += [each["name"] for each in page["schedules"]]
        cursor = page.get("next_cursor", "")
        if not cursor:
            break
        refused = caller.refused("GET", f"/v1/schedules?limit=1&cursor={quote(cursor)}")
        assert refused[:2] == (400, "CONTINUATION_INVALID")
    assert seen == ["0", f"{queue}.b", f"{queue}.c"]
    caller.done("DELETE", "/v1/schedules/0", X_Admin_Password=PASSWORD)
