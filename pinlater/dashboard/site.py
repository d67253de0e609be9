"""The dashboard on an application: its routes, logins and error pages.

A page is shown to callers who have logged in or opened a one-time link, and to those whom a rule lets read, anonymous
ones among them. All others are sent to the login.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, quote

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import MultiDict

from pinlater.api import Api
from pinlater.dashboard import (
    audit_list,
    cluster_view,
    flow_actions,
    flow_detail,
    flow_list,
    group_actions,
    job_actions,
    job_detail,
    job_list,
    new_job,
    overview,
    queue_actions,
    queue_detail,
    queue_list,
    run_list,
    schedule_actions,
    schedule_detail,
    schedule_form,
    schedule_list,
    worker_table,
)
from pinlater.dashboard.bulk_runs import BulkRuns
from pinlater.dashboard.cluster_menu import ClusterMenu
from pinlater.dashboard.links import VALID_S, OneTimeLinks
from pinlater.dashboard.page import LIVE_HEADER, NavItem, Page, PageRoute
from pinlater.dashboard.page_rights import Rights
from pinlater.dashboard.part_failed import PartFailed, text_for_people
from pinlater.dashboard.queue_history import History
from pinlater.dashboard.snapshots import Snapshots
from pinlater.dashboard.static_files import PATH as STATIC
from pinlater.dashboard.static_files import StaticFiles
from pinlater.dashboard.template_engine import TemplateEngine
from pinlater.errors import Forbidden, MethodUnknown, PinLaterError, RequestInvalid
from pinlater.http.caller import API, OtherSite, context_of, has_credential, has_token, is_change, is_of_browser
from pinlater.http.problems import status_of
from pinlater.http.route import PASSWORD_HEADER, add_route
from pinlater.http.sessions import BrowserSession, is_csrf_token
from pinlater.http.site import LOGIN, PAGE_POLICY, SITE, ApiSite
from pinlater.model import EVERY_QUEUE, AccessAction, AccessView, Grant, RequestContext, is_queue_name

_log = structlog.get_logger("pinlater.dashboard")
HOME = "/dashboard"
LINKS, OPEN = f"{HOME}/links", f"{HOME}/open"
SOURCE_HEADER = "X-PinLater-Source"
MAX_FIELDS = 1_000
"""Of a form."""

TABLES: Sequence[Sequence[PageRoute]] = (
    overview.PAGES,
    queue_list.PAGES,
    queue_detail.PAGES,
    queue_actions.PAGES,
    group_actions.PAGES,
    worker_table.PAGES,
    flow_list.PAGES,
    flow_detail.PAGES,
    flow_actions.PAGES,
    schedule_list.PAGES,
    schedule_form.PAGES,
    schedule_detail.PAGES,
    schedule_actions.PAGES,
    job_list.PAGES,
    new_job.PAGES,
    job_detail.PAGES,
    job_actions.PAGES,
    run_list.PAGES,
    cluster_view.PAGES,
    audit_list.PAGES,
)
_NAV = (
    NavItem("Overview", HOME, "o"),
    NavItem("Queues", f"{HOME}/queues", "q"),
    NavItem("Jobs", f"{HOME}/jobs", "j"),
    NavItem("Flows", f"{HOME}/flows", "f"),
    NavItem("Schedules", f"{HOME}/schedules", "s"),
    NavItem("Workers", f"{HOME}/workers", "w"),
    NavItem("Cluster", f"{HOME}/cluster", "c"),
    NavItem("Audit", f"{HOME}/audit", "a", AccessAction.OPERATE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """`status_page`: HOST:PORT of the server's status page, "" for none. `clusters`: the menu of them, None for none.
    `history_path`: where the history is kept; None: in memory. `history_token` is shown with what it asks; "" for none.
    """

    status_page: str = ""
    clusters: ClusterMenu | None = None
    history_path: Path | None = None
    history_token: str = ""


class Dashboard:
    """What all pages share, and what runs beside them; `open` it before the first request."""

    def __init__(self, api: Api, site: ApiSite, settings: DashboardSettings) -> None:
        self.settings = settings
        self.static = StaticFiles()
        self.snapshots = Snapshots(api, site.owner_of)
        self.templates = TemplateEngine(self.static, self.snapshots.now_ms)
        self.links = OneTimeLinks()
        asks_as = RequestContext("history", token=settings.history_token or None)
        self.history = History(api, asks_as, settings.history_path)
        self.runs = BulkRuns(api)
        self._api = api
        self._site = site
        site.pools += [self.links.kept, *self.snapshots.pools, self.history.drawings, *self.runs.pools]

    async def open(self) -> None:
        """Begin what runs beside the pages."""
        await self.history.open()

    async def drain(self) -> None:
        """Another process goes on with what one alone may do."""
        await self.history.stop()

    async def close(self) -> None:
        await self.history.close()
        await self.runs.close()
        await self.snapshots.close()

    def add_to(self, app: web.Application) -> None:
        router = app.router
        router.add_get(f"{STATIC}/{{mark}}/{{name}}", self.static.serve)
        router.add_post(LINKS, self._make_link)
        router.add_get(f"{OPEN}/{{secret}}", self._open_link)
        for route in (each for table in TABLES for each in table):
            add_route(router, route.verb, route.path, self._handler(route))
        router.add_route("*", f"{HOME}/{{rest:.*}}", self._handler(PageRoute("*", "", _not_there, None)))

    # -- a request -----------------------------------------------------------------------------------------------------

    def _handler(self, route: PageRoute) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if (passing := self._go_on(request)) is not None:
                return passing
            doubt = await self._site.doubt_of(request)
            page = await self._begin(request, is_sure=doubt is None)
            if page is None:
                return _to_login(request)
            try:
                if is_change(request):
                    page.form = await self._form(request, page.session)
                if doubt is not None:
                    raise doubt
                queue = request.match_info.get("queue", EVERY_QUEUE)
                if route.action is not None and not self._lets_in(page, route, queue):
                    raise Forbidden(f"{page.who} may not {route.action} here")
                response = await route.handler(page)
            except web.HTTPNotFound:
                response = page.render("error.html", status=HTTPStatus.NOT_FOUND, failure=_NOTHING_HERE)
            except OtherSite:
                raise
            except PinLaterError as error:
                response = self._failed(page, error)
            self._site.keep_session(request, response, page.session)
            return response

        return handle

    def _go_on(self, request: web.Request) -> web.Response | None:
        """For a browser that a link of another site led here, as that of another cluster or of an alarm: it did not
        send its cookie, which is for this site alone, and does when the page goes on by itself.
        """
        is_led_here = request.method == "GET" and request.headers.get("Sec-Fetch-Site") == "cross-site"
        if not is_led_here or self._site.session_of(request) is not None:
            return None
        text = self.templates.render("opened.html", after=request.path_qs)
        headers = {"Referrer-Policy": "no-referrer", "Content-Security-Policy": PAGE_POLICY}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def _begin(self, request: web.Request, *, is_sure: bool) -> Page | None:
        """None: the caller is to log in first. `is_sure`: what its session stands for is right."""
        context = context_of(request)
        session = self._site.session_of(request)
        credential = None if session is None else session.credential
        shows = bool(credential) or has_credential(context)
        if self._site.settings.needs_credential and not shows:
            return None
        blind = AccessView(credential.identity if credential else "", [], _LOOKS, has_rules=True)
        try:
            view = await self.snapshots.access(context) if is_sure else blind
        except Forbidden:
            return None  # the token was revoked, or has ended
        except MethodUnknown:  # servers of before rules
            view = AccessView("anonymous", [], [], has_rules=False)
        except PinLaterError:
            known = self.snapshots.last_access(context)
            if known is None and not shows:
                return None
            view = known or blind
        rights = Rights(view, has_password=is_sure and bool(credential and credential.password))
        if not (shows or rights.may_see):
            return None
        clusters = self.settings.clusters
        return Page(
            request,
            self._api,
            context,
            rights,
            self._site.session_or_new(request),
            self.snapshots.now_ms(),
            self.templates,
            self.snapshots,
            self.history,
            self.runs,
            [item for item in _NAV if rights.may_somewhere(item.action)],
            self.settings.status_page,
            [] if clusters is None else clusters.items(f"{request.host}{self._site.settings.prefix}"),
        )

    async def _form(self, request: web.Request, session: BrowserSession) -> MultiDict[str]:
        """OtherSite: no page of this site has sent it."""
        is_form = request.content_type == "application/x-www-form-urlencoded"
        body = (await request.read()).decode("utf-8", "replace") if is_form else ""
        try:
            form = MultiDict(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError as error:
            raise RequestInvalid(f"a form has at most {MAX_FIELDS} fields") from error
        if not is_csrf_token(session, form.get("csrf", "")):
            raise OtherSite("the form is out of date: load the page again, and send it from there")
        return form

    def _lets_in(self, page: Page, route: PageRoute, queue: str) -> bool:
        if route.action is None:
            return True
        if queue != EVERY_QUEUE and not is_queue_name(queue):
            return True  # which the handler answers
        if queue == EVERY_QUEUE and not is_change(page.request):
            return any(route.action in grant.actions for grant in page.rights.view.grants)  # what it may see of it
        return page.rights.may(route.action, queue)

    def _failed(self, page: Page, error: PinLaterError) -> web.Response:
        if is_change(page.request) and not isinstance(error, Forbidden):
            return page.redirect(page.back, text_for_people(error), is_bad=True)
        status = status_of(error, has_credential=True)
        failure = page.failed(error)
        if page.is_live and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return page.stays(status, failure.message)
        return page.render("error.html", status=status, failure=failure)

    # -- one-time links ------------------------------------------------------------------------------------------------

    async def _make_link(self, request: web.Request) -> web.StreamResponse:
        """For whoever shows a token or the admin password, in the headers of the HTTP interface. Forbidden."""
        if is_of_browser(request, self._site.session_of(request)):
            raise OtherSite("links are for programs: a page of this site needs none")
        context = context_of(request)
        password = request.headers.get(PASSWORD_HEADER, "").encode(errors="replace").decode()
        source = request.headers.get(SOURCE_HEADER, "")
        if has_token(context):
            credential = await self._site.checks.check_token(context, source)
        elif password:
            credential = await self._site.checks.check_password(request, password, source)
        else:
            raise Forbidden(f"show a token, or the admin password in {PASSWORD_HEADER}")
        secret = self.links.make(credential)
        path = f"{self._site.settings.prefix}{OPEN}/{secret}"
        return web.json_response({"path": path, "valid_s": int(VALID_S)}, status=HTTPStatus.CREATED)

    async def _open_link(self, request: web.Request) -> web.StreamResponse:
        """Begins a session. The page that answers goes on to the dashboard by itself: a redirect that another site led
        to would get no cookie, as that is for this site alone.
        """
        headers = {"Referrer-Policy": "no-referrer", "Content-Security-Policy": PAGE_POLICY}
        if "prefetch" in request.headers.get("Sec-Purpose", "") or request.method != "GET":
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)  # nobody has opened it yet
        credential = self.links.use(request.match_info["secret"])
        after = "" if credential is None else HOME
        status = HTTPStatus.GONE if credential is None else HTTPStatus.OK
        text = self.templates.render("opened.html", after=after)
        response = web.Response(status=status, text=text, content_type="text/html", headers=headers)
        if credential is not None:
            self._site.begin_session(request, response, credential)
        return response


_LOOKS = [Grant((AccessAction.READ,))]
"""What a caller may as long as no server says it: be shown that none answers."""

_NOTHING_HERE = PartFailed("There is nothing at this address.", "It may have been deleted, or the link is not whole.")


async def _not_there(page: Page) -> web.Response:
    raise web.HTTPNotFound


def _to_login(request: web.Request) -> web.Response:
    """Scripts of open pages are told; browsers go there."""
    if LIVE_HEADER in request.headers:
        return web.Response(status=HTTPStatus.UNAUTHORIZED)
    after = HOME if is_change(request) else request.path_qs
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": f"{LOGIN}?next={quote(after, safe='/')}"})


def add_dashboard(app: web.Application, settings: DashboardSettings) -> Dashboard:
    """To an application of `http.site` that is not running yet."""
    dashboard = Dashboard(app[API], app[SITE], settings)
    dashboard.add_to(app)
    return dashboard
