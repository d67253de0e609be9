"""The checks of what a browser has shown, or is kept for it: the servers say whether it is right."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from aiohttp import web

from pinlater.api import Api
from pinlater.errors import Forbidden, MethodUnknown, ServerUnreachable
from pinlater.http.caller import context_of, show_connection, show_token
from pinlater.http.sessions import Credential
from pinlater.model import RequestContext
from pinlater.redaction import SECRETS

NO_QUEUE = ""
"""A name that no queue can have."""

AGAIN_WITHIN_S = 4.0
"""A page that waits for the check is shown without by then."""

ADMIN = "admin"
"""The identity of who has shown the admin password, where there are no rules."""


class CredentialChecks:
    """By the servers behind `api`, to which this process shows `gateway_token`, "" for none."""

    def __init__(self, api: Api, gateway_token: str) -> None:
        self._api = api
        self._gateway_token = gateway_token

    async def check_token(self, context: RequestContext, source: str = "") -> Credential:
        """That of a context, at once, so that nobody who is right waits for what a neighbour guesses. Forbidden."""
        identity = (await self._api.get_access(context=context)).identity
        return Credential(context.token, identity=identity, source=source)

    async def check_password(self, request: web.Request, password: str, source: str = "") -> Credential:
        """The admin password, which a server checks. PasswordInvalid: it is wrong, or nothing is allowed by it alone.
        Overloaded: it is not tried now.
        """
        context = replace(context_of(request))
        show_connection(request, context, self._gateway_token)
        with suppress(MethodUnknown):  # servers of before rules
            if (await self._api.get_access(context=context)).has_rules:
                raise Forbidden("rules limit access here: log in with a token")
        # Without rules it is checked before anything else, and no queue can have this name.
        await self._api.delete_queue(NO_QUEUE, password, context=context)
        SECRETS.keep([password])
        return Credential(None, password, ADMIN, source)

    async def check_again(self, request: web.Request, shown: Credential) -> Credential:
        """What a session stands for that another process began. PasswordInvalid: it is right no more. PinLaterError:
        nobody can say so now.
        """
        try:
            async with asyncio.timeout(AGAIN_WITHIN_S):
                if shown.token is None:
                    return await self.check_password(request, shown.password, shown.source)
                context = replace(context_of(request))
                show_token(context, shown.token, self._gateway_token)
                return await self.check_token(context, shown.source)
        except TimeoutError:
            raise ServerUnreachable(f"no answer came within {AGAIN_WITHIN_S:g} s") from None
