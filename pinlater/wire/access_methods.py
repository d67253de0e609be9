"""The calls about access, part of the table in methods.py."""

from __future__ import annotations

from pinlater.api import Api
from pinlater.model import AccessAction
from pinlater.wire.method import NOTHING, Access, Idempotency, Method, every_queue

_ADMIN, _LOOK = (AccessAction.ADMIN,), (AccessAction.ADMIN, AccessAction.OPERATE)

UPDATE_TOKEN = Method(
    "updateToken", Api.update_token, Idempotency.REPEAT, _ADMIN, every_queue, access=Access.ADMIN_PASSWORD
)
GET_TOKENS = Method("getTokens", Api.get_tokens, Idempotency.READ, _LOOK, every_queue)
DELETE_TOKEN = Method(
    "deleteToken", Api.delete_token, Idempotency.REPEAT, _ADMIN, every_queue, access=Access.ADMIN_PASSWORD
)
GET_USAGE = Method("getUsage", Api.get_usage, Idempotency.READ, _LOOK, every_queue)
GET_ACCESS = Method("getAccess", Api.get_access, Idempotency.READ, NOTHING, every_queue)
