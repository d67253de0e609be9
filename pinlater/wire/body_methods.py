"""The calls about tiers of bodies, part of the table in methods.py."""

from __future__ import annotations

from pinlater.api import Api
from pinlater.model import AccessAction
from pinlater.wire.method import Idempotency, Method, every_queue

_OPERATE = (AccessAction.OPERATE,)

GET_BODY_TIERS = Method("getBodyTiers", Api.get_body_tiers, Idempotency.READ, _OPERATE, every_queue)
CHANGE_BODIES = Method("changeBodies", Api.change_bodies, Idempotency.REPEAT, _OPERATE, every_queue)
