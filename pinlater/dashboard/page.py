"""A page in the making: the request, its caller and the caller's rights, and the ways to answer.

Handlers get a Page and return a response. They stand in tables of PageRoute, one for each module of pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from urllib.parse import unquote, urlencode

from aiohttp import web
from markupsafe import Markup
from multidict import MultiDict, MultiMapping

from pinlater.api import Api
from pinlater.dashboard.bulk_runs import BulkRuns
from pinlater.dashboard.cluster_menu import ClusterItem
from pinlater.dashboard.page_parts import news_for
from pinlater.dashboard.page_rights import Rights
from pinlater.dashboard.part_failed import PartFailed as PartFailed
from pinlater.dashboard.queue_history import History
from pinlater.dashboard.refused_form import with_typed
from pinlater.dashboard.snapshots import WITHIN_S, Snapshots, too_late
from pinlater.dashboard.template_engine import TemplateEngine, without_clocks
from pinlater.errors import PinLaterError, ServerUnreachable, UnknownError
from pinlater.http.caller import USE, is_change
from pinlater.http.request_use import RequestUse
from pinlater.http.sessions import BrowserSession, Notice, RefusedForm
from pinlater.http.site import SITE
from pinlater.model import AccessAction, RequestContext, is_queue_name
from pinlater.model.alarm_views import Alarm

P = ParamSpec("P")
T = TypeVar("T")
LIVE_HEADER = "X-Live"
"""Of a script that wants what has changed on an open page: the element <main> alone, or 304."""

PARTS_HEADER = "X-Parts"
"""Of that script: the hashes of the parts that it has. It gets those that are new."""

NOW_HEADER = "X-Now"
"""Of what that script gets: the servers' clock, as that of a viewer may be wrong."""

FORM_FIELD = "form"
"""Names a form among those of a page that are sent to one address."""


class NavItem(NamedTuple):
    """A page that all others link to; `key` goes there, behind a g."""

    title: str
    path: str
    key: str
    action: AccessAction = AccessAction.READ


@dataclass(slots=True, eq=False)
class Page:
    """One request. `csrf` is what forms show; `form` is what a form has sent. `status_page`: HOST:PORT, "" for none."""

    request: web.Request
    api: Api
    context: RequestContext
    rights: Rights
    session: BrowserSession
    now_ms: int
    templates: TemplateEngine
    snapshots: Snapshots
    history: History
    runs: BulkRuns
    nav: Sequence[NavItem]
    status_page: str
    clusters: Sequence[ClusterItem]
    form: MultiMapping[str] = field(default_factory=MultiDict)
    back: str = "/dashboard"
    """Where a change that fails leads to; handlers set it."""

    refused: RefusedForm | None = None
    """What this browser has sent before, and was not taken."""

    is_away: bool = False
    """No server has answered."""

    @property
    def password(self) -> str:
        """The admin password, for calls that need one; "" for none."""
        return self.session.credential.password

    @property
    def csrf(self) -> str:
        return self.session.csrf

    @property
    def who(self) -> str:
        """The caller, for itself."""
        credential = self.session.credential
        return credential.source or "admin" if credential.password else self.rights.view.identity

    @property
    def counts_as(self) -> str:
        """Whom the caller counts as where something is shared."""
        use: RequestUse = self.request[USE]
        return use.owner

    @property
    def is_live(self) -> bool:
        return LIVE_HEADER in self.request.headers

    @property
    def is_change(self) -> bool:
        return is_change(self.request)

    @property
    def path(self) -> str:
        return self.request.path

    @property
    def query(self) -> Mapping[str, str]:
        """What follows the `?`; of several values of one name the first."""
        return self.request.query

    @property
    def queue(self) -> str:
        """That of the path. HTTPNotFound: none can have such a name."""
        name = self.request.match_info["queue"]
        if not is_queue_name(name):
            raise web.HTTPNotFound
        return name

    def may(self, action: str, queue: str = "*") -> bool:
        """For templates: `page.may("operate", queue)`."""
        return self.rights.may(AccessAction(action), queue)

    def address(self, **changes: object) -> str:
        """This page's, with other values behind the `?`; None or "" takes one away."""
        query = {**self.request.query, **{name: "" if each is None else str(each) for name, each in changes.items()}}
        text = urlencode({name: each for name, each in query.items() if each})
        return f"{self.path}?{text}" if text else self.path

    async def load(self, method: Callable[Concatenate[Api, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a call gives, or gave the caller a moment ago."""
        return await self.snapshots.call(self.context, method, *args, **kwargs)

    async def part(self, load: Callable[[], Awaitable[T]]) -> T | PartFailed:
        """What is loaded, or why it cannot be: the rest of the page is shown all the same. The call that loads it is
        made here: a page whose browser is gone may end before it has begun.
        """
        try:
            async with asyncio.timeout(WITHIN_S + 1):  # what is shared has a bound of its own
                return await load()
        except TimeoutError:
            return PartFailed.by(too_late(UnknownError))
        except PinLaterError as error:
            return self.failed(error)

    async def alarms_here(self, queue: str = "") -> list[Alarm]:
        """Those that lead to this page, and those of a queue: none where nobody says which there are."""
        found = await self.part(lambda: self.snapshots.alarms(self.context))
        if isinstance(found, PartFailed):
            return []
        return [each for each in found.alarms if each.path == self.path or (queue and each.queue == queue)]

    def failed(self, error: PinLaterError) -> PartFailed:
        """A part of the page that cannot be loaded."""
        self.is_away = self.is_away or isinstance(error, ServerUnreachable)
        return PartFailed.by(error)

    def render(self, template: str, /, *, status: int = HTTPStatus.OK, **values: Any) -> web.Response:
        """The whole page; for the script of an open one <main> alone, or 304 where that is as before. Where no server
        answers an open page is to stay as it is.
        """
        is_live = self.is_live
        if is_live and self.is_away:
            return self.stays(HTTPStatus.SERVICE_UNAVAILABLE, "")
        layout = "live.html" if is_live else "base.html"
        notices = [] if is_live else self._take_notices()
        html = self.templates.render(template, layout=layout, page=self, notices=notices, **values)
        headers = {"Vary": f"Cookie, {LIVE_HEADER}", NOW_HEADER: str(self.now_ms)}
        if is_live and status == HTTPStatus.OK:
            headers["ETag"] = f'"{sha256(without_clocks(html).encode()).hexdigest()[:32]}"'
            if self.request.headers.get("If-None-Match") == headers["ETag"]:
                return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
            if PARTS_HEADER in self.request.headers:
                prefix = self.request.app[SITE].prefix  # which answers that are pages get on their way
                whole = html if prefix is None else prefix.in_page(html.encode()).decode()
                news = news_for(whole, self.request.headers[PARTS_HEADER])
                response = web.Response(body=news, content_type="application/json", headers=headers)
                response.enable_compression()
                return response
        return web.Response(status=status, text=html, content_type="text/html", headers=headers)

    def stays(self, status: int, why: str) -> web.Response:
        """For the script of an open page: what is shown is to stay, as there is nothing newer."""
        return web.Response(status=status, text="No server answers" if self.is_away else why)

    def redirect(
        self, path: str, message: str = "", *, is_bad: bool = False, missed: Sequence[str] = ()
    ) -> web.Response:
        """To another page, which says what has happened. `missed`: shards that do not have a change yet, which counts
        all the same.
        """
        if missed:
            message += f" Shard {', '.join(missed)} was not reached; it gets the change before it serves again."
        if message:
            self.session.tell(Notice(message, is_bad))
        if is_bad:
            self.keep_form()
        self.snapshots.forget(self.context)
        return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": path})

    def _take_notices(self) -> list[Notice]:
        taken, self.session.notices = self.session.notices, []
        self.take_form()
        return taken

    # -- forms that were not taken -------------------------------------------------------------------------------------

    def keep_form(self) -> bool:
        """What was sent is shown again by the next page that has the form. False: it is too large for that."""
        fields = tuple((name, value) for name, value in self.form.items() if name != "csrf")
        return self.session.keep(RefusedForm(self.path, fields))

    def take_form(self) -> RefusedForm | None:
        """What the browser has sent before, for this page alone."""
        if self.session.refused is not None:
            self.refused, self.session.refused = self.session.refused, None
        return self.refused

    def typed(self, path: str, form: str, fields: str) -> Markup | None:
        """For templates: the controls of a form with what was typed into them; None: it is not the one that was sent
        and not taken.
        """
        refused = self.refused
        if refused is None or not fields or unquote(path.partition("?")[0]) != refused.path:
            return None
        return with_typed(fields, refused.fields) if (FORM_FIELD, form) in refused.fields else None


PageHandler = Callable[[Page], Awaitable[web.Response]]


class PageRoute(NamedTuple):
    """One address of the dashboard. `action` is what its caller has to be allowed, on the queue of the path where that
    has one; None: the handler looks itself.
    """

    verb: str
    path: str
    handler: PageHandler
    action: AccessAction | None = AccessAction.READ
