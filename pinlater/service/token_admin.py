"""The tokens as operators make and revoke them. Each change is recorded with its author."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pinlater.access.tokens import TokenBook, TokenRecord
from pinlater.model import Changed, RequestContext, TokenView
from pinlater.service.admin_password import Operator
from pinlater.service.audit import PROTECTED
from pinlater.service.service_context import ServiceContext


class TokenAdmin:
    """Changes of tokens, for one service."""

    def __init__(self, context: ServiceContext, tokens: TokenBook) -> None:
        self._tokens = tokens
        self._clock = context.clock
        self._admin = context.admin
        self._audit = context.audit

    async def update(
        self,
        name: str,
        hash: str,
        roles: Sequence[str],
        password: str,
        expires_ms: int | None,
        replace: bool,
        operator: Operator,
    ) -> Changed:
        await self._admin.check(password, operator)
        now_ms = self._clock.now_ms()
        made = await self._tokens.change(
            TokenRecord(name, hash, tuple(roles), operator.who, now_ms, expires_ms),
            replace=replace,
            owner=operator.owner,
        )
        if made.is_new:
            detail = f"roles {', '.join(roles)}" + ("" if expires_ms is None else f", until {expires_ms}")
            await self._audit.write(operator.who, "update_token", name, detail, part=PROTECTED)
        return Changed(made.version, made.missed_shards)

    async def delete(self, name: str, password: str, operator: Operator) -> Changed:
        await self._admin.check(password, operator)
        made = await self._tokens.delete(name, operator.who)
        if not made.is_new:
            return Changed("", [])
        await self._audit.write(operator.who, "delete_token", name, part=PROTECTED)
        return Changed(made.version, made.missed_shards)


class TokenApi:
    """The calls of `Api` about tokens, of a service that has TokenAdmin."""

    tokens: TokenBook
    _token_admin: TokenAdmin
    _operator: Callable[[RequestContext | None], Operator]

    async def update_token(
        self,
        name: str,
        hash: str,
        roles: Sequence[str],
        password: str = "",
        *,
        expires_ms: int | None = None,
        replace: bool = False,
        context: RequestContext | None = None,
    ) -> Changed:
        return await self._token_admin.update(name, hash, roles, password, expires_ms, replace, self._operator(context))

    async def get_tokens(self, *, context: RequestContext | None = None) -> list[TokenView]:
        return await self.tokens.views()

    async def delete_token(self, name: str, password: str = "", *, context: RequestContext | None = None) -> Changed:
        return await self._token_admin.delete(name, password, self._operator(context))
