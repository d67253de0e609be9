"""The calls about access, part of the table in methods.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinlater.model import AccessAction, AccessView, Grant, TokenView
from pinlater.model.owner_bounds import IdentityUsage, OwnedCount, OwnedKind
from pinlater.wire import convert_operators as operators
from pinlater.wire.interface import filled, struct
from pinlater.wire.method import NOTHING, Access, Idempotency, Method, every_queue

_UpdateRequest = struct("UpdateTokenRequest")
_GetTokensResponse = struct("GetTokensResponse")
_DeleteRequest = struct("DeleteTokenRequest")
_AccessView = struct("AccessView")
_AccessGrant = struct("AccessGrant")
_TokenView = struct("TokenView")
_StoredCount = struct("StoredCount")
_IdentityUsage = struct("IdentityUsage")
_GetUsageResponse = struct("GetUsageResponse")
_KINDS = {str(kind): kind for kind in OwnedKind}
_ACTIONS = {str(action): action for action in AccessAction}


def _update_token_to_wire(
    name: str, hash: str, roles: Any, password: str, expires_ms: int | None, replace: bool
) -> Any:
    return filled(
        _UpdateRequest,
        name=name,
        token_hash=hash,
        roles=list(roles),
        password=password,
        expires_at_ms=expires_ms,
        replace=replace or None,
    )


UPDATE_TOKEN = Method(
    "updateToken",
    "update_token",
    Idempotency.REPEAT,
    (AccessAction.ADMIN,),
    every_queue,
    lambda api, args, context: api.update_token(
        args.request.name,
        args.request.token_hash,
        args.request.roles,
        args.request.password,
        expires_ms=args.request.expires_at_ms,
        replace=args.request.replace or False,
        context=context,
    ),
    request=_update_token_to_wire,
    result=operators.changed_from_wire,
    access=Access.ADMIN_PASSWORD,
)


def _tokens_to_wire(tokens: list[TokenView]) -> Any:
    views = [
        filled(
            _TokenView,
            name=each.name,
            roles=each.roles,
            made_by=each.made_by,
            made_at_ms=each.made_at_ms,
            expires_at_ms=each.expires_ms,
            last_used_at_ms=each.last_used_ms,
        )
        for each in tokens
    ]
    return filled(_GetTokensResponse, tokens=views)


def _tokens_from_wire(response: Any) -> list[TokenView]:
    return [
        TokenView(
            each.name, each.roles, each.made_by or "", each.made_at_ms or 0, each.expires_at_ms, each.last_used_at_ms
        )
        for each in response.tokens
    ]


GET_TOKENS: Method[list[TokenView]] = Method(
    "getTokens",
    "get_tokens",
    Idempotency.READ,
    (AccessAction.ADMIN, AccessAction.OPERATE),
    every_queue,
    lambda api, args, context: api.get_tokens(context=context),
    _tokens_to_wire,
    result=_tokens_from_wire,
)

DELETE_TOKEN = Method(
    "deleteToken",
    "delete_token",
    Idempotency.REPEAT,
    (AccessAction.ADMIN,),
    every_queue,
    lambda api, args, context: api.delete_token(args.request.name, args.request.password, context=context),
    request=lambda name, password: filled(_DeleteRequest, name=name, password=password),
    result=operators.changed_from_wire,
    access=Access.ADMIN_PASSWORD,
)


def _stored_to_wire(stored: Iterable[OwnedCount]) -> list[Any]:
    return [filled(_StoredCount, kind=str(each.kind), used=each.used, limit=each.limit) for each in stored]


def _stored_from_wire(stored: Iterable[Any]) -> list[OwnedCount]:
    """Kinds that only a newer server knows are left out."""
    return [OwnedCount(_KINDS[each.kind], each.used, each.limit) for each in stored if each.kind in _KINDS]


def _usage_to_wire(usage: Iterable[IdentityUsage]) -> Any:
    identities = [filled(_IdentityUsage, identity=each.identity, stored=_stored_to_wire(each.stored)) for each in usage]
    return filled(_GetUsageResponse, identities=identities)


def _usage_from_wire(response: Any) -> list[IdentityUsage]:
    return [IdentityUsage(each.identity, _stored_from_wire(each.stored)) for each in response.identities]


GET_USAGE: Method[list[IdentityUsage]] = Method(
    "getUsage",
    "get_usage",
    Idempotency.READ,
    (AccessAction.ADMIN, AccessAction.OPERATE),
    every_queue,
    lambda api, args, context: api.get_usage(context=context),
    _usage_to_wire,
    result=_usage_from_wire,
)


def _access_to_wire(view: AccessView) -> Any:
    grants = [
        filled(_AccessGrant, actions=list(map(str, each.actions)), queues=list(each.queues), bodies=each.bodies)
        for each in view.grants
    ]
    return filled(
        _AccessView,
        identity=view.identity,
        roles=view.roles,
        grants=grants,
        has_rules=view.has_rules,
        stored=_stored_to_wire(view.stored) or None,
    )


def _access_from_wire(view: Any) -> AccessView:
    """Actions that only a newer server knows are left out."""
    grants = [
        Grant(
            tuple(_ACTIONS[each] for each in grant.actions if each in _ACTIONS),
            tuple(grant.queues),
            grant.bodies is not False,
        )
        for grant in view.grants
    ]
    stored = _stored_from_wire(view.stored or ())
    return AccessView(view.identity, view.roles, grants, view.has_rules or False, stored)


GET_ACCESS: Method[AccessView] = Method(
    "getAccess",
    "get_access",
    Idempotency.READ,
    NOTHING,
    every_queue,
    lambda api, args, context: api.get_access(context=context),
    _access_to_wire,
    result=_access_from_wire,
)
