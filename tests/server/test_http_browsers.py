"""Browsers at the HTTP interface: sessions, and changes that only pages of the site itself can make."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlencode

import pytest

from pinlater.access.guesses import FREE_TRIES, MAX_WAITING_EACH
from pinlater.http.sessions import (
    IDLE_S,
    MAX_AGE_S,
    MAX_COOKIE_CHARS,
    MAX_SESSIONS,
    Credential,
    Notice,
    Sessions,
)
from pinlater.model import AccessAction, AccessView, Grant, RequestContext
from tests.server.http_site import TOKEN, HttpAnswer, RunningSite, WatchedApi, http_site

FORM = "application/x-www-form-urlencoded"


def cookie_of(answer: HttpAnswer) -> str:
    return answer.headers["Set-Cookie"].partition(";")[0]


async def begun(site: RunningSite) -> tuple[str, str]:
    """The cookie and the CSRF token of a new session without a token."""
    answer = await site.ask("GET", "/session", Sec_Fetch_Site="same-origin")
    return cookie_of(answer), answer.json["csrf_token"]


async def log_in(site: RunningSite, token: str, cookie: str, csrf: str, **headers: str) -> HttpAnswer:
    body = urlencode({"csrf": csrf, "token": token, "next": "/docs"}).encode()
    return await site.ask("POST", "/login", body, Content_Type=FORM, Cookie=cookie, **headers)


async def test_a_login_begins_a_session_that_stands_for_the_token() -> None:
    async with http_site(WatchedApi()) as site:
        page = await site.ask("GET", "/login?next=/docs")
        # With "no-referrer" browsers send this form with `Origin: null`, which is refused.
        assert page.headers["Referrer-Policy"] == "same-origin"
        csrf = re.search(rb'name="csrf" value="([^"]+)"', page.body)
        assert csrf is not None
        before = cookie_of(page)
        answer = await log_in(site, TOKEN, before, csrf[1].decode(), Sec_Fetch_Site="same-origin")
        assert (answer.status, answer.headers["Location"]) == (303, "/docs")
        said = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(said.split("; "))
        cookie = cookie_of(answer)
        assert cookie != before
        assert TOKEN not in said
        session = (await site.ask("GET", "/session", Cookie=cookie)).json
        assert session["identity"] == "token:web"
        changed = {"Cookie": cookie, "Sec_Fetch_Site": "same-origin", "X_CSRF_Token": session["csrf_token"]}
        assert (await site.ask("POST", "/echo", b"x", **changed)).status == 200
        assert site.contexts[-1].token == TOKEN
        out = urlencode({"csrf": session["csrf_token"]}).encode()
        assert (await site.ask("POST", "/logout", out, Content_Type=FORM, Cookie=cookie)).status == 303
        assert (await site.ask("POST", "/echo", b"x", **changed)).status == 403
        assert (await site.ask("GET", "/session", Cookie=cookie)).json["identity"] == "anonymous"
        assert len(site.seen) == 1


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Sec_Fetch_Site": "cross-site"}, id="another site"),
        pytest.param({"Sec_Fetch_Site": "same-site"}, id="a neighbour"),
        pytest.param({"Origin": "https://evil.example"}, id="its origin"),
        pytest.param({"Origin": "null"}, id="no origin"),
        pytest.param({"Sec_Fetch_Site": "same-origin"}, id="no token"),
        pytest.param({"Sec_Fetch_Site": "same-origin", "X_CSRF_Token": "x" * 43}, id="wrong token"),
        pytest.param({"Sec_Fetch_Site": "same-origin", "X_CSRF_Token": "\u00e9"}, id="odd token"),
        pytest.param({"Sec_Fetch_Site": "cross-site", "Authorization": f"Bearer {TOKEN}"}, id="with a bearer"),
    ],
)
@pytest.mark.parametrize("has_session", [False, True])
async def test_a_change_that_another_page_makes_a_browser_send_is_refused(
    headers: dict[str, str], has_session: bool
) -> None:
    async with http_site(WatchedApi()) as site:
        if has_session:
            cookie, csrf = await begun(site)
            headers = {"Cookie": cookie_of(await log_in(site, TOKEN, cookie, csrf)), **headers}
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = await site.ask(method, "/echo", b"x", **headers)
            assert (answer.status, answer.json["reason"]) == (403, "FORBIDDEN")
        assert site.seen == []


async def test_a_session_without_a_header_of_a_browser_needs_its_token_too() -> None:
    async with http_site(WatchedApi()) as site:
        cookie, csrf = await begun(site)
        assert (await site.ask("POST", "/echo", b"x", Cookie=cookie)).status == 403
        assert (await site.ask("POST", "/echo", b"x", Cookie=cookie, X_CSRF_Token=csrf)).status == 200


async def test_programs_need_none_of_it() -> None:
    async with http_site(WatchedApi()) as site:
        assert (await site.ask("POST", "/echo", b"x")).status == 200
        assert (await site.ask("POST", "/echo", b"x", Authorization=f"bearer {TOKEN}")).status == 200


@pytest.mark.parametrize("headers", [{"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}])
async def test_another_site_cannot_log_a_browser_in(headers: dict[str, str]) -> None:
    async with http_site(WatchedApi()) as site:
        cookie, csrf = await begun(site)
        assert (await log_in(site, TOKEN, cookie, csrf, **headers)).status == 403
        other, _ = await begun(site)
        assert (await log_in(site, TOKEN, other, csrf)).status == 403
        assert (await log_in(site, TOKEN, "x=y", csrf)).status == 403


@pytest.mark.parametrize(
    "cookie", ["pinlater=" + "a" * 43, "pinlater=", "pinlater=\u00e9", "pinlater=a; pinlater=b", ";;="]
)
async def test_cookies_of_another_process_are_of_nobody(cookie: str) -> None:
    async with http_site(WatchedApi()) as site:
        assert (await site.ask("GET", "/session", Cookie=cookie)).json["identity"] == "anonymous"
        assert (await site.ask("POST", "/echo", b"x", Cookie=cookie)).status == 200
        assert site.contexts[-1].token is None


async def test_a_wrong_token_at_the_login_is_answered_late_and_a_right_one_at_once() -> None:
    async with http_site(WatchedApi()) as site:
        cookie, csrf = await begun(site)
        for number in range(FREE_TRIES - 1):
            answer = await log_in(site, f"plt_{number}", cookie, csrf)
            assert (answer.status, b"not known" in answer.body) == (403, True)
            assert b"plt_" not in answer.body
        guesses = [asyncio.ensure_future(log_in(site, "plt_x", cookie, csrf)) for _ in range(MAX_WAITING_EACH + 1)]
        over = await next(asyncio.as_completed(guesses))
        assert (over.status, b"too many wrong tokens" in over.body.lower()) == (503, True)
        for guess in guesses:
            guess.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
        assert (await log_in(site, TOKEN, cookie, csrf)).status == 303


def test_sessions_end_by_age_by_rest_and_by_number() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    cookie, session = sessions.begin(Credential(TOKEN, identity="token:web"))
    assert TOKEN not in repr(session)
    assert session.csrf not in repr(session)
    now[0] += IDLE_S - 1
    assert sessions.find(cookie) is session
    now[0] += IDLE_S
    assert sessions.find(cookie) is None
    cookie, session = sessions.begin(Credential(TOKEN, identity="token:web"))
    end = now[0] + MAX_AGE_S
    while now[0] < end - IDLE_S:
        now[0] += IDLE_S / 2
        assert sessions.find(cookie) is session
    now[0] = end
    assert sessions.find(cookie) is None
    cookie, session = sessions.begin(Credential(TOKEN, identity="token:web"))
    for _ in range(MAX_SESSIONS + 1):
        sessions.begin(Credential("plt_other", identity="token:other"))
    assert sessions.find(cookie) is session
    for _ in range(MAX_SESSIONS):
        sessions.begin(Credential(TOKEN, identity="token:web"))
    assert sessions.find(cookie) is None


def test_a_visitor_whom_nobody_knows_takes_no_memory_and_cannot_write_its_own_session() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    session = sessions.visit()
    session.tell(Notice("\U0001f600" * 600, is_bad=True))
    cookie = sessions.sealed(session)
    assert len(sessions.kept) == 0
    assert len(cookie) < MAX_COOKIE_CHARS
    found = sessions.find(cookie)
    assert found is not None
    assert (found.csrf, found.credential.identity) == (session.csrf, "anonymous")
    assert found.notices == [Notice("\U0001f600" * 500, is_bad=True)]
    assert session.csrf not in cookie
    assert sessions.visit().csrf != session.csrf
    for at in range(len(cookie)):
        changed = cookie[:at] + ("A" if cookie[at] != "A" else "B") + cookie[at + 1 :]
        forged = sessions.find(changed)
        assert forged is None or (forged.csrf, forged.notices) == (found.csrf, found.notices)  # bits that say nothing
    assert Sessions(lambda: now[0]).find(cookie) is None
    assert sessions.find(cookie * 9) is None
    now[0] += MAX_AGE_S
    assert sessions.find(cookie) is None


class OpenToOperators(WatchedApi):
    """Anybody may operate, by a rule."""

    async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
        return AccessView("anonymous", [], [Grant((AccessAction.READ, AccessAction.OPERATE))], has_rules=True)


async def test_what_happened_is_told_to_a_visitor_whom_nobody_knows() -> None:
    async with http_site(OpenToOperators(), pages="/dashboard") as site:
        cookie, csrf = await begun(site)
        body = urlencode({"csrf": csrf, "for": "x"}).encode()
        sent = {"Content_Type": FORM, "Cookie": cookie, "Sec_Fetch_Site": "same-origin"}
        answer = await site.ask("POST", "/dashboard/queues/mail/pause", body, **sent)
        assert answer.status == 303, answer.body
        page = await site.ask("GET", "/dashboard/runs", Cookie=cookie_of(answer))
        assert b"the length of the pause" in page.body
        assert csrf.encode() in page.body
        again = await site.ask("GET", "/dashboard/runs", Cookie=cookie_of(page))
        assert b"the length of the pause" not in again.body
        assert "Set-Cookie" not in again.headers


async def test_a_site_that_asks_for_certificates_takes_no_call_without_a_credential() -> None:
    async with http_site(WatchedApi(), needs_credential=True, gateway_token="plt_gateway") as site:
        answer = await site.ask("POST", "/echo", b"x")
        assert (answer.status, answer.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
        assert (await site.ask("GET", "/login")).status == 200
        assert (await site.ask("POST", "/echo", b"x", Authorization=f"Bearer {TOKEN}")).status == 200
        assert len(site.seen) == 1


async def test_texts_of_callers_are_no_markup() -> None:
    async with http_site(WatchedApi()) as site:
        page = await site.ask("GET", "/login?next=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        assert b"<script>alert" not in page.body
